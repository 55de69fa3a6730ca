"""The infinitely wide network as a solver: `dQ/dt = alpha B L Q`, `Q_0 = f`.

The coefficients of `system` are followed in time by `flow`, or to the end by `fixed_point`.
"""

import dataclasses
import math
import time as clock
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import activations
from .._arguments import a_seed, an_instance, flag, real, reals, shown, whole
from .._equation.operator import Structure
from .._network.shallow import Shallow
from .._precision import x64
from .._problem.measure import Uniform
from .._problem.problem import Problem
from .._problem.solution import History, Solution
from .._status import Interrupted, SolveError, Status
from .._train.progress import Bar
from .fixed_point import STRENGTHS, stationary
from .flow import LinearFlow, Path, integrate
from .system import HeldOut, System

# The default number of nodes in one dimension and beyond, and the most held-out points.
_FEW, _MANY = 80, 1_024


@dataclasses.dataclass(frozen=True)
class Limit:
    """How a solution of the limit equation was found, and its path in time."""

    times: np.ndarray  # those recorded, the last one included
    loss: np.ndarray  # mean (L Q)^2 over the nodes at these times
    held_out: np.ndarray  # the same on other points
    spectrum: np.ndarray  # eigenvalues of the flow at Q = f, the largest first
    rank: int  # eigenfunctions of B that count
    clamped: int  # eigenvalues with positive real part that were set to zero
    regularisation: float | None  # at infinite time, relative to the largest singular value squared

    @property
    def history(self) -> History:
        """The losses as a history, a step for every time."""
        count = len(self.times)
        return History(
            loss=self.loss,
            gradient=np.full(count, np.nan),
            truncated=np.zeros(count),
            checked_step=np.arange(1, count + 1),
            held_out=self.held_out,
        )


@dataclasses.dataclass(frozen=True)
class LimitSolution(Solution):
    """A solution of the limit equation; `limit` tells how it was found."""

    limit: Limit | None = None


@dataclasses.dataclass(frozen=True)
class _Found:
    """The flow of a system as far as it was followed."""

    system: System
    held_out: HeldOut
    path: Path
    flow: LinearFlow | None  # where the equation is linear
    regularisation: float | None

    def limit(self) -> Limit:
        """The losses along the path, and the spectrum at its start."""
        path, flow = self.path.coefficients, self.flow
        spectrum = np.linalg.eigvals(self.system.flow()[0]) if flow is None else flow.values
        return Limit(
            times=self.path.times,
            loss=np.array([self.system.loss(q) for q in path]),
            held_out=np.array([self.held_out.loss(q) for q in path]),
            spectrum=spectrum[np.argsort(-np.abs(spectrum))],
            rank=self.system.rank,
            clamped=0 if flow is None else flow.clamped,
            regularisation=self.regularisation,
        )

    def solution(self, seed: int, began: float) -> LimitSolution:
        """The solution at the end of the path; `began` is the clock's time at the start of the call."""
        problem, limit = self.system.problem, self.limit()
        return LimitSolution(
            problem=problem,
            trial=self.system.trial(self.path.coefficients[-1]),
            measure=Uniform(problem.domain),
            status=self.path.status,
            steps=len(limit.times),
            history=limit.history,
            seconds=clock.perf_counter() - began,
            compile_seconds=0.0,
            rule="limit",
            seed=seed,
            precision="float64",
            limit=limit,
        )


@x64()
def solve_limit(
    problem: Problem,
    *,
    time: float = math.inf,
    nodes: int | None = None,
    record: Sequence[float] = (),
    network: Any = None,
    rate: float = 1.0,
    seed: int = 0,
    progress: bool = True,
    throw: bool = True,
) -> LimitSolution:
    """Solve a problem with an infinitely wide network, trained for a given time.

        >>> solution = solve_limit(zoo.survival(1, discount=0.1), time=1e6)
        >>> solution.limit.spectrum

    The paper's limit equation `dQ/dt = alpha B L Q` is solved on nodes: a linear equation exactly in
    time, a nonlinear one by a stiff integrator. No network is trained, nothing is random but the
    nodes. `time=inf` asks for the fixed point.

    **Arguments**

    - `time`: training time, or `inf`.
    - `nodes`: their number; 80 Gauss-Legendre nodes in one dimension, 1,024 Sobol points otherwise by
      default. Work grows with the cube of their number.
    - `record`: times at which `solution.limit` notes the loss.
    - `network`: the `Shallow` network whose limit is taken: its activation, scale and `normalise`
      count. Sigmoids by default.
    - `rate`: `alpha`.
    - `seed`: of the nodes.
    - `throw`: raise `SolveError` (with `.solution`) where the flow grows or the integrator gives up.
    """
    began = clock.perf_counter()
    _check(problem, nodes, network, rate, progress, throw)
    network = Shallow(activation=activations.sigmoid) if network is None else network
    count = (_FEW if problem.dim == 1 else _MANY) if nodes is None else int(nodes)
    time, rate, seed = _checked_time(time), float(rate), a_seed(seed)
    times = _checked_times(record, time)
    stops = _stops(problem, times[np.isfinite(times)])
    stages = len(stops) + (len(STRENGTHS) if math.isinf(time) else 0)
    with Bar(stages, progress) as bar:
        system = System(problem, network, count, seed=seed)
        other = system.held_out(min(count + 1, _MANY), seed=(seed + 1) % 2**63)

        def report(done: int) -> None:
            bar.update(done, math.nan, clock.perf_counter() - began)

        found = _follow(system, other, rate, times, stops, report)
    solution = found.solution(seed, began)
    if throw and not solution.status.successful:
        kind = Interrupted if solution.status is Status.INTERRUPTED else SolveError
        raise kind(solution)
    return solution


def _follow(
    system: System,
    held_out: HeldOut,
    rate: float,
    times: np.ndarray,
    stops: np.ndarray,
    report: Callable[[int], None],
) -> _Found:
    """The coefficients at the times, the fixed point among them if it is asked for and can be reached."""
    flow = regularisation = None
    if system.linear is not None:
        flow = LinearFlow(system, rate)
        path = flow.path(stops)
    else:
        path = integrate(system, rate, stops, report)
    path = path.at(times)
    if math.isinf(times[-1]) and path.status.successful:
        q, regularisation = stationary(system, held_out, lambda done: report(len(stops) + done))
        path = path.then(math.inf, q)
    if not len(path.times):
        path = path.then(0.0, np.zeros(system.rank))
    return _Found(system, held_out, path, flow, regularisation)


def _stops(problem: Problem, times: np.ndarray) -> np.ndarray:
    """The times at which the flow is computed: a nonlinear one also at powers of ten on the way.

    Between stops the progress is shown and the keyboard read.
    """
    if not len(times) or problem.operator.structure is Structure.LINEAR:
        return times
    last = math.log10(times[-1])
    between = 10.0 ** np.arange(min(-1.0, math.floor(last)), last, 0.5)
    return np.unique(np.concatenate([times, between[between < times[-1]]]))


def _check(problem: Any, nodes: Any, network: Any, rate: Any, progress: Any, throw: Any) -> None:
    an_instance("problem", problem, Problem, "qpde.Problem(domain, equation)")
    if problem.order == 4:
        raise ValueError(
            "solve_limit is for equations of second order; for this one call qpde.solve(problem)."
        )
    if nodes is not None:
        whole("nodes", nodes, least=4, most=8_192)
    if network is not None and not isinstance(network, Shallow):
        raise ValueError(
            f"network must be a qpde.Shallow, whose limit is known, got {shown(network)}."
        )
    real("rate", rate, above=0.0)
    flag("progress", progress)
    flag("throw", throw)


def _checked_time(time: Any) -> float:
    """The training time, which may be infinite."""
    if isinstance(time, float | np.floating) and time == math.inf:
        return math.inf
    if not real("time", time) > 0:
        raise ValueError(f"time must be positive, or math.inf for the fixed point, got {time!r}.")
    return float(time)


def _checked_times(record: Any, time: float) -> np.ndarray:
    """The times to note and the last one, in order."""
    noted = reals("record", record, "a list of times")
    if noted.ndim != 1 or not np.all((noted > 0) & (noted <= time)):
        raise ValueError(f"record lists times between 0 and time={time:g}, got {shown(record)}.")
    return np.unique([*noted, time])
