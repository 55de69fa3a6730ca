"""The infinitely wide network as a solver: `dQ/dt = alpha B L Q`, `Q_0 = f`.

With `Q_t = f + B V_t` the equation is `dV/dt = alpha L(f + B V)`, `V_0 = 0`. On nodes with weights `m_j`
the kernel is `B = sum_a phi_a phi_a'` (its eigenfunctions, those below 1e-14 of the largest
eigenvalue left out), so that

    Q = f + sum_a q_a phi_a,    dq/dt = alpha Phi' M L(f + Phi q).

In these coordinates a self-adjoint `L` gives a matrix that is symmetric up to the error of the
nodes, and `q` stays of the size of `u - f`; in the coordinates `V` neither holds.
"""

import dataclasses
import math
import time as clock
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.linalg

from . import activations
from ._form import fresh
from ._interrupt import Keyboard
from ._jet import Jet, Product, Sum, widely
from ._kernel import TangentKernel, Values
from ._kernel_field import KernelField, Row
from ._measure import Uniform
from ._network import Shallow
from ._nodes import nodes as place
from ._operator import Operator, Structure
from ._problem import Problem
from ._progress import Bar
from ._solution import History, Solution
from ._status import Interrupted, SolveError, Status
from ._trial import Trial

# Eigenvalues of B that count, relative to the largest; regularisations that are tried, relative to
# the largest singular value squared; how large a positive eigenvalue of the flow may be, relative
# to the largest, to be taken for an error of the nodes.
_RANK, _STRENGTHS, _ROUNDING = 1e-14, 10.0 ** np.arange(-1.0, -19.0, -0.5), 1e-6
_NODES = {1: 80}
_MANY = 1_024
_ROWS = 256
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


class System:
    """The limit equation on nodes, in the eigenfunctions of `B`.

    `phi` and `lphi` hold the eigenfunctions and, where the equation is linear, `L` of them without its
    constant part; `f` and `start` hold the extension and `L f`.
    """

    def __init__(self, problem: Problem, network: Shallow, count: int, *, seed: int = 0):
        self.problem, self.linear = problem, Operator.of(problem).structure is Structure.LINEAR
        field = network.build(problem.domain, key=jr.key(0))
        self._centre, self._half = field.frame.centre.array, field.frame.half.array
        scale = problem.dim**-0.5 if network.scale is None else float(network.scale)
        self.kernel = TangentKernel(network.activation, scale=scale)
        self.points, self.weights = place(problem.domain, count, seed=seed)
        self._framed = self._frame(self.points)
        self._eta = self.values(problem.domain.eta.value)
        self.f = self.values(problem.boundary.value)
        root = np.sqrt(self.weights)
        known = self.kernel.values(self._framed, self._framed)
        side = root * self._eta
        size, vectors = scipy.linalg.eigh(side[:, None] * known.value * side[None])
        kept = size > _RANK * size[-1]
        self.eigenvalues = size[kept][::-1]
        vectors = vectors[:, kept][:, ::-1]
        # Node weights of the eigenfunctions: phi_a(x) = eta(x) sum_j shape[j, a] A(x, y_j).
        self.shape = side[:, None] * vectors / np.sqrt(self.eigenvalues)[None]
        self.phi = vectors * np.sqrt(self.eigenvalues)[None] / root[:, None]
        self._known = known
        self.start, slopes = self._rows(self.points, known)
        self.lphi = slopes @ self.shape

    def _frame(self, x: np.ndarray) -> np.ndarray:
        return (x - self._centre) / self._half

    def _rows(self, x: np.ndarray, known: Values) -> tuple[np.ndarray, np.ndarray]:
        """`L f` at the points, and its derivative in the weights of the nodes."""
        values, slopes, nothing = [], [], np.zeros(len(self.points))
        for begin in range(0, len(x), _ROWS):
            part = jax.tree.map(lambda m, b=begin: m[b : b + _ROWS], known)
            with jax.enable_x64(True):
                one, two = _linearised(
                    fresh(self.problem),
                    nothing,
                    x[begin : begin + _ROWS],
                    part,
                    (self._framed, self._centre, self._half),
                )
            values.append(np.asarray(one))
            slopes.append(np.asarray(two))
        return np.concatenate(values), np.concatenate(slopes)

    def elsewhere(self, count: int, seed: int) -> "Elsewhere":
        """The same at other points."""
        x, weights = place(self.problem.domain, count, seed=seed)
        known = self.kernel.values(self._frame(x), self._framed)
        start, slopes = self._rows(x, known)
        eta, f = (_values(f.value, x) for f in (self.problem.domain.eta, self.problem.boundary))
        phi = eta[:, None] * (known.value @ self.shape)
        return Elsewhere(self, x, weights, known, start, slopes @ self.shape, f, phi)

    def residual(self, q: Any, x: np.ndarray | None = None, known: Values | None = None) -> Any:
        """`L Q` at the nodes, or at other points, for coefficients `q`; NumPy in, NumPy out."""
        if self.linear and known is None:
            return self.start + self.lphi @ q
        with jax.enable_x64(True):
            return np.asarray(self._residual(jnp.asarray(q), x, known))

    def _residual(self, q: Any, x: np.ndarray | None = None, known: Values | None = None) -> Any:
        x, known = (self.points, self._known) if known is None else (x, known)
        frame = (self._framed, self._centre, self._half)
        return _residuals(fresh(self.problem), self.shape @ q, x, known, frame)

    def flow(self) -> tuple[np.ndarray, np.ndarray]:
        """`G = Phi' M L Phi` and `g = Phi' M L f`: the linear flow is `dq/dt = alpha (g + G q)`."""
        side = self.phi.T * self.weights[None]
        return side @ self.lphi, side @ self.start

    def field(self, q: np.ndarray) -> KernelField:
        """The network `S` of `Q = S eta + f` with coefficients `q`."""
        centre, radius = self.problem.domain.enclosing_ball
        off = np.linalg.norm((centre - self._centre) / self._half)
        return KernelField.of(
            self.kernel,
            self._framed,
            self.shape @ q,
            reach=float(off + radius / self._half.min()),
            centre=self._centre,
            half=self._half,
            centred=bool(np.allclose(self._centre, self.problem.domain.centre, rtol=0, atol=0)),
        )

    def values(self, function: Callable[..., Any]) -> np.ndarray:
        """A function of one point at the nodes."""
        return _values(function, self.points)

    def trial(self, q: np.ndarray) -> Trial:
        """`Q` with coefficients `q`."""
        return Trial.of(self.problem, self.field(q), exact_boundary=True)


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """A system at points that are not its nodes."""

    system: System
    points: np.ndarray
    weights: np.ndarray
    known: Values
    start: np.ndarray
    lphi: np.ndarray
    f: np.ndarray
    phi: np.ndarray

    def values(self, function: Callable[..., Any]) -> np.ndarray:
        """A function of one point here."""
        return _values(function, self.points)

    def residual(self, q: np.ndarray) -> np.ndarray:
        """`L Q` here."""
        if self.system.linear:
            return self.start + self.lphi @ q
        return self.system.residual(q, self.points, self.known)

    def loss(self, q: np.ndarray) -> float:
        """The mean of `(L Q)^2` here."""
        return float(self.weights @ np.square(self.residual(q)))


def _values(function: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(fresh(function))(jnp.asarray(x)))


def _at(problem: Problem, weights: Any, x: Any, known: Values, frame: Any) -> Any:
    """`L Q` at one point where the kernel's derivatives are known."""
    network = Jet(Row(weights, known, x, *frame), x)
    product = Jet(Product(Jet(problem.domain.eta.at(x), x), network), x)
    jet = Jet(Sum(product, Jet(problem.boundary.at(x), x)), x)
    return problem.orientation * widely(problem.equation, x, jet)


@eqx.filter_jit
def _residuals(problem: Problem, weights: Any, x: Any, known: Values, frame: Any) -> Any:
    return jax.vmap(lambda x, known: _at(problem, weights, x, known, frame))(x, known)


@eqx.filter_jit
def _linearised(problem: Problem, weights: Any, x: Any, known: Values, frame: Any) -> Any:
    def one(x: Any, known: Values) -> Any:
        return jax.value_and_grad(lambda w: _at(problem, w, x, known, frame))(weights)

    return jax.vmap(one)(x, known)


class Linear:
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
        return np.asarray(jax.jit(jax.jacfwd(system._residual))(jnp.asarray(q)))


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
                diffrax.ODETerm(lambda t, q, _: rate * (side @ system._residual(q))),
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
    network: Shallow | None = None,
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

        flow = Linear(system, rate) if system.linear else None
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
