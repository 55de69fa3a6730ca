"""The infinitely wide network as a solver: `dQ/dt = alpha B L Q`, `Q_0 = f`.

A linear flow is solved exactly in time by the eigenvectors of its matrix, a nonlinear one by a stiff
integrator, the fixed point by regularised least squares; all in the coordinates of `_limit_system`.
"""

import dataclasses
import math
import time as clock
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from . import activations
from ._interrupt import Keyboard
from ._limit_system import Elsewhere, System
from ._measure import Uniform
from ._network import Shallow
from ._operator import Operator, Structure
from ._problem import Problem
from ._progress import Bar
from ._solution import History, Solution
from ._status import Interrupted, SolveError, Status

# Regularisations that are tried, relative to the largest singular value squared; how large a positive
# eigenvalue of the flow may be, relative to the largest, to be taken for an error of the nodes.
_STRENGTHS, _ROUNDING = 10.0 ** np.arange(-1.0, -19.0, -0.5), 1e-6
_NODES = {1: 80}
_MANY = 1_024
_NEWTON = 12
_RELATIVE, _ABSOLUTE, _MAX_STEPS = 1e-6, 1e-9, 20_000


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


@dataclasses.dataclass(frozen=True)
class LimitSolution(Solution):
    """A solution of the limit equation; `limit` tells how it was found."""

    limit: Limit | None = None


class LinearFlow:
    """The linear flow, exact in time: `q(t) = sum_k x_k c_k (exp(alpha l_k t) - 1) / l_k`."""

    def __init__(self, system: System, rate: float):
        matrix, force = system.flow()
        values, vectors = (np.asarray(v) for v in np.linalg.eig(matrix))
        order = np.argsort(-np.abs(values))
        self.values: Any = values[order]
        self._vectors: Any = vectors[:, order]
        condition = np.linalg.cond(self._vectors)
        if not condition < 1e10:
            raise ValueError(
                f"The flow's eigenvectors are nearly parallel (condition {condition:.0e}), so that it "
                "cannot be solved by them. Take more nodes."
            )
        self._parts = np.linalg.solve(self._vectors, force.astype(complex))
        self._rate = rate
        growing = self.values.real > 0
        # Nodes are not integrals: tiny eigenvalues may come out on the wrong side.
        wrong = growing & (self.values.real <= _ROUNDING * np.abs(self.values).max())
        self.clamped = int(wrong.sum())
        self._used = np.where(wrong, 0.0, self.values)

    def __call__(self, t: float) -> np.ndarray:
        """The coefficients at time `t`."""
        z = self._used * self._rate * t
        small = np.abs(z) < 1e-8
        safe = np.where(small, 1.0, self._used)
        with np.errstate(over="ignore", invalid="ignore"):
            grown = np.where(small, self._rate * t * (1.0 + 0.5 * z), np.expm1(z) / safe)
            return (self._vectors @ (grown * self._parts)).real


def stationary(
    system: System, other: Elsewhere, report: Callable[[int], Any] = lambda _: None
) -> tuple[np.ndarray, float]:
    """The coefficients of the fixed point `L Q = 0`, and their regularisation.

    Least squares on the nodes with a multiple of `|q|^2`, the norm of `u - f` in the space of the
    kernel. The multiple falls from large to small until the residual at points that are not
    nodes, which sees what the nodes do not, stops falling.
    """
    root = np.sqrt(system.weights)
    q = np.zeros(system.phi.shape[1])
    best, chosen, least = q, math.inf, other.loss(q)
    slopes = system.lphi
    parts = scipy.linalg.svd(root[:, None] * slopes, full_matrices=False)
    top = parts[1][0] ** 2
    for index, strength in enumerate(_STRENGTHS):
        report(index)
        for _ in range(1 if system.linear else _NEWTON):
            if not system.linear:
                slopes = _slopes(system, q)
                parts = scipy.linalg.svd(root[:, None] * slopes, full_matrices=False)
            left, sizes, right = parts
            constant = system.residual(q) - slopes @ q
            filtered = sizes / (sizes**2 + strength * top)
            new = -right.T @ (filtered * (left.T @ (root * constant)))
            moved, q = np.linalg.norm(new - q), new
            if moved <= 1e-10 * np.linalg.norm(q):
                break
        loss = other.loss(q)
        if loss < least:
            best, chosen, least = q, strength, loss
        if not loss < 100.0 * least:
            break
    return best, float(chosen)


def _slopes(system: System, q: np.ndarray) -> np.ndarray:
    """The derivative of `L Q` at the nodes in the coefficients."""
    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.jacfwd(system.traced_residual))(jnp.asarray(q)))


def _integrate(
    system: System, rate: float, times: np.ndarray, report: Callable[[int], Any]
) -> tuple[list[np.ndarray], Status]:
    """The nonlinear flow at the given times, by an implicit Runge-Kutta method of order five."""
    import diffrax

    side = system.phi.T * system.weights[None]
    path, q, now, first = [], np.zeros(system.phi.shape[1]), 0.0, 1e-3
    with jax.enable_x64(True):

        @jax.jit
        def advance(q: Any, start: Any, end: Any, first: Any) -> Any:
            return diffrax.diffeqsolve(
                diffrax.ODETerm(lambda t, q, _: rate * (side @ system.traced_residual(q))),
                diffrax.Kvaerno5(),
                t0=start,
                t1=end,
                dt0=first,
                y0=q,
                stepsize_controller=diffrax.PIDController(rtol=_RELATIVE, atol=_ABSOLUTE),
                max_steps=_MAX_STEPS,
                throw=False,
            )

        with Keyboard() as keyboard:
            for index, end in enumerate(times):
                found = advance(jnp.asarray(q), now, end, min(first, end - now))
                if found.result != diffrax.RESULTS.successful:
                    return path, Status.GAVE_UP
                q, first, now = np.asarray(found.ys[-1]), max(first, 0.01 * end), end
                path.append(q)
                report(index)
                if keyboard.seen:
                    return path, Status.INTERRUPTED
    return path, Status.FINISHED


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
    - `nodes`: how many; 80 Gauss-Legendre nodes in one dimension, 1,024 Sobol points otherwise. Work
      grows with their cube.
    - `record`: times at which `solution.limit` notes the loss.
    - `network`: the `Shallow` network whose limit is taken: its activation, scale and `normalise`
      count. Sigmoids by default.
    - `rate`: `alpha`.
    - `seed`: of the nodes.
    - `throw`: raise `SolveError` (with `.solution`) where the flow grows or the integrator gives up.
    """
    began = clock.perf_counter()
    _check(problem, time, nodes, record, network, rate)
    network = Shallow(activation=activations.sigmoid) if network is None else network
    count = _NODES.get(problem.dim, _MANY) if nodes is None else int(nodes)
    times = np.unique([*record, time]).astype(np.float64)
    finite = times[np.isfinite(times)]
    stops = finite if Operator.of(problem).structure is Structure.LINEAR else _decades(finite)
    stages = len(stops) + (len(_STRENGTHS) if math.isinf(time) else 0)
    with Bar(stages, progress) as bar:
        system = System(problem, network, count, seed=seed)
        other = system.elsewhere(min(count + 1, _MANY), seed=seed + 1)

        def report(done: int) -> None:
            bar.update(done, math.nan, clock.perf_counter() - began)

        flow = LinearFlow(system, rate) if system.linear else None
        if flow is not None:
            path, status = [flow(t) for t in stops], Status.FINISHED
            if (
                not all(np.all(np.isfinite(q)) for q in path)
                or flow.values.real.max() * rate * (stops[-1] if len(stops) else 0.0) > 30.0
            ):
                status = Status.DIVERGED
                path = [q for q in path if np.all(np.isfinite(q))]
        else:
            path, status = _integrate(system, rate, stops, report)
        wanted = np.isin(stops[: len(path)], finite)
        path = [q for q, use in zip(path, wanted, strict=True) if use]
        times = stops[: len(wanted)][wanted]
        strength = None
        if math.isinf(time) and status.successful:
            q, strength = stationary(system, other, lambda done: report(len(stops) + done))
            path, times = [*path, q], np.append(times, math.inf)
    path = path or [np.zeros(system.phi.shape[1])]
    times = times if len(times) else np.zeros(1)
    loss = np.array([system.weights @ np.square(system.residual(q)) for q in path])
    held_out = np.array([other.loss(q) for q in path])
    spectrum = (
        flow.values
        if flow is not None
        else np.linalg.eigvals((system.phi.T * system.weights[None]) @ system.lphi)
    )
    solution = LimitSolution(
        problem=problem,
        trial=system.trial(path[-1]),
        measure=Uniform(problem.domain),
        status=status,
        steps=len(path),
        history=History(
            loss,
            np.full(len(path), np.nan),
            np.zeros(len(path)),
            np.arange(1, len(path) + 1),
            held_out,
        ),
        seconds=clock.perf_counter() - began,
        compile_seconds=0.0,
        rule="limit",
        seed=seed,
        precision="float64",
        limit=Limit(
            times=times,
            loss=loss,
            held_out=held_out,
            spectrum=spectrum[np.argsort(-np.abs(spectrum))],
            rank=system.phi.shape[1],
            clamped=0 if flow is None else flow.clamped,
            regularisation=strength,
        ),
    )
    if throw and not status.successful:
        raise (Interrupted if status is Status.INTERRUPTED else SolveError)(solution)
    return solution


def _decades(times: np.ndarray) -> np.ndarray:
    """The times, and powers of ten on the way: between them progress is shown and the keyboard read."""
    if not len(times):
        return times
    last = math.log10(times[-1])
    between = 10.0 ** np.arange(min(-1.0, math.floor(last)), last, 0.5)
    return np.unique(np.concatenate([times, between[between < times[-1]]]))


def _check(
    problem: Any, time: Any, nodes: Any, record: Sequence[float], network: Any, rate: Any
) -> None:
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be a qpde.Problem, got {type(problem).__name__}.")
    if not time > 0:
        raise ValueError(f"time must be positive, or math.inf for the fixed point, got {time!r}.")
    if nodes is not None and not (isinstance(nodes, int | np.integer) and 4 <= nodes <= 8_192):
        raise ValueError(f"nodes must be a whole number from 4 to 8,192, got {nodes!r}.")
    if any(not 0 < t <= time for t in record):
        raise ValueError(f"record lists times between 0 and time={time:g}, got {list(record)}.")
    if network is not None and not isinstance(network, Shallow):
        raise ValueError(
            f"network must be a qpde.Shallow, whose limit is known, got {type(network).__name__}."
        )
    if not (np.isfinite(rate) and rate > 0):
        raise ValueError(f"rate must be a positive number, got {rate!r}.")
