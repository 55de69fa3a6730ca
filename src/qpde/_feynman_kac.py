"""Values at given points with confidence intervals, from random walks (Feynman-Kac).

For `L u = A : Hess u + b . grad u - c u + r = 0`, `u = f` on the boundary, and the diffusion `X` with the
generator `A : Hess + b . grad`, which leaves the domain at the time `tau`,

    u(x) = E_x[ exp(-int c) f(X_tau) + int_0^tau exp(-int c) r(X_s) ds ],
    u(x) = Q(x) + E_x[ exp(-int c) (f - Q)(X_tau) + int_0^tau exp(-int c) (L Q)(X_s) ds ]

for any smooth `Q`. A solution `Q` makes the second mean small: it serves as a control variate, and the
interval is right however bad it is.
"""

import dataclasses
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._diffusion import Diffusion
from ._domain import AbstractDomain, Box, Interval
from ._field import AbstractField
from ._form import Identity, Numbers
from ._interrupt import Keyboard
from ._jet import Jet, widely
from ._linear import Linear, Operator, examine
from ._network import cast
from ._pool import Ledger, Scheme, run
from ._problem import Problem
from ._progress import Walks
from ._solution import Solution
from ._trial import Trial
from ._walk import Spheres

_DEFAULT, _PILOT, _MOST = 1_000, 64, 1_000_000
# The shell in which a walk on spheres stops, in inradii.
_SHELL = 1e-6
# Euler-Maruyama is done with time steps multiplied by these; the values are those of the second.
_LEVELS = (1.0, 0.25)
# Points that lie outside by less, in inradii, are on the boundary up to rounding (as in `Solution`).
_OUTSIDE, _ON = 1e-5, 1e-12
_SAMPLE = 4_096
_CHUNK = 1_024


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Values of the solution of a linear problem at points, with confidence intervals.

    `low` and `high` are `value -+ (quantile * standard_error + bias)`: each interval holds with the given
    confidence (asymptotically: the sums of the walks are taken as normal). `bias` bounds or estimates
    the systematic error, `bias_source` says how. `walks` are the walks from every point (with both time
    steps, where there are two), `work` the steps of all. `corrected`: a network served as control variate. `reached`: whether every half-width is
    at most `accuracy` times the root mean square of the values; None where no accuracy was asked for.
    """

    points: np.ndarray
    value: np.ndarray
    standard_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    confidence: float
    bias: np.ndarray
    bias_source: str
    walks: np.ndarray
    work: int
    seconds: float
    method: str
    corrected: bool
    reached: bool | None

    def __repr__(self) -> str:
        half = 0.5 * (self.high - self.low)
        size = _rms(self.value)
        relative = f"{_rms(half) / size:.2g} of the rms value" if size > 0 else f"{_rms(half):.2g}"
        aim = {None: "", True: ", accuracy reached", False: ", accuracy NOT reached"}[self.reached]
        network = "with" if self.corrected else "without"
        return (
            f"Estimate at {self.value.size:,} points by {self.method}, {network} a network\n"
            f"  {100 * self.confidence:g} % intervals of half-width {relative} (rms){aim}\n"
            f"  {self.walks.sum():,} walks, {self.work:,} steps, {self.seconds:.1f} s"
        )


def feynman_kac(
    solution: Solution | Problem,
    points: Any,
    *,
    accuracy: float | None = None,
    walks: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    progress: bool = True,
) -> Estimate:
    """The solution of a linear problem at points, with confidence intervals, from random walks.

        >>> estimate = feynman_kac(solution, np.zeros((1, 20)), accuracy=1e-3)
        >>> estimate.low, estimate.value, estimate.high

    With a `Solution` the walks estimate its error, which has a variance far below that of the solution
    itself; with a `Problem` they start from nothing. Where the equation is `s Lap u - c u + r(x)` with
    numbers `s` and `c` the walk goes from sphere to sphere and has no time step; else it is done in
    time steps (Euler-Maruyama), of two lengths to see their effect. All numbers are float64.

    **Arguments**

    - `points`: `(n, d)` or `(d,)`, in the closed domain.
    - `accuracy`: walk until the half-width of every interval is at most this times the root mean
      square of the values (at most 1,000,000 walks a point; see `reached`).
    - `walks`: so many from every point; 1,000 where neither is given.
    - `confidence`: of each interval by itself.
    - `seed`: the same seed gives the same bits on the same machine.

    Raises `ValueError` for equations that are not affine in `u`, or in which `c < 0`.
    """
    start = time.perf_counter()
    if not isinstance(solution, Solution | Problem):
        raise ValueError(
            f"feynman_kac takes a qpde.Solution or a qpde.Problem, got {type(solution).__name__}."
        )
    problem = solution.problem if isinstance(solution, Solution) else solution
    _check_options(accuracy, walks, confidence)
    where = _check_points(problem, points)
    linear = examine(problem)
    with jax.enable_x64(True):
        distance = np.asarray(_chunked(_distances, problem.domain, where))
        inside = _check_inside(problem.domain, where, distance)
        plan = _plan(solution, problem, linear)
        key = jr.wrap_key_data(
            jnp.asarray(np.random.SeedSequence(seed).generate_state(2)), impl="threefry2x32"
        )
        known = np.asarray(_chunked(_bases, plan.known, where))
        edge = np.asarray(_chunked(_bases, Known(problem.boundary), where))
        table = _Table(plan, np.where(inside, known, edge), where, inside, confidence)
        with Walks(progress) as bar, Keyboard() as keyboard:

            def tell(done: int) -> None:
                bar.update(table.done + done, table.planned)
                if keyboard.seen:
                    raise KeyboardInterrupt

            table.walk(np.full(int(inside.sum()), _first(accuracy, walks)), key, tell)
            rounds = 0
            while accuracy is not None and rounds < 20:
                more = table.lacking(accuracy)
                if not more.any():
                    break
                rounds += 1
                table.walk(more, jr.fold_in(key, rounds), tell)
    return table.estimate(np.asarray(points, np.float64), accuracy, time.perf_counter() - start)


def _first(accuracy: float | None, walks: int | None) -> int:
    if accuracy is not None:
        return _PILOT
    return _DEFAULT if walks is None else walks


class Known(eqx.Module):
    """What is added to the mean over the walks: `Q`, the boundary function, or nothing."""

    function: Trial | AbstractField | None

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros(()) if self.function is None else self.function.value(x)


class Payoff(eqx.Module):
    """`L Q` or `r` along the walk, and `f - Q` or `f` at its end, divided by the operator's `scale`."""

    operator: Operator
    trial: Trial | None
    boundary: AbstractField
    scale: Numbers
    ends: bool = eqx.field(static=True)

    def source(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        g = self.operator.source(x) if self.trial is None else self.trial.residual(x)
        return g / self.scale

    def end(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        f = self.boundary.value(x)
        return f if self.trial is None else f - self.trial.value(x)


class _Plan(eqx.Module):
    """How the walks are done and what they add up."""

    scheme: Scheme
    payoff: Payoff
    known: Known
    method: str
    corrected: bool
    levels: tuple[float, ...]
    bias: float
    bias_source: str


def _plan(solution: Solution | Problem, problem: Problem, linear: Linear) -> _Plan:
    trial = cast(solution.trial, "float64") if isinstance(solution, Solution) else None
    operator = Operator(problem.equation, problem.orientation)
    spheres = linear.scalar is not None and linear.killing is not None
    scale = 2.0 * linear.scalar if spheres and linear.scalar is not None else 1.0
    exact = trial is not None and trial.exact_boundary
    payoff = Payoff(operator, trial, problem.boundary, np.asarray(scale), not exact)
    domain, known = problem.domain, Known(trial)
    if not spheres:
        scheme = Diffusion(domain, operator, linear)
        return _Plan(scheme, payoff, known, "Euler-Maruyama", trial is not None, _LEVELS, 0.0, "")
    shell = _SHELL * domain.inradius
    gamma = max(linear.killing or 0.0, 0.0) / scale
    # In the shell u is replaced by Q, or by f, with an error of at most sup |L Q|, or |L f|, times
    # the mean time to the boundary.
    most, longest = (float(n) for n in _shell(problem, trial if exact else None, shell))
    how = "exact, from an eta of constant Laplacian"
    if not np.isfinite(longest):
        longest, how = shell * _width(domain), "at most shell times width, for a convex domain"
    bias = most / scale * longest
    source = (
        f"stopping {shell:.1e} from the boundary: largest |L {'Q' if exact else 'f'}| on "
        f"{2 * _SAMPLE:,} points times the mean time to the boundary ({how})"
    )
    scheme = Spheres(domain, gamma, shell)
    return _Plan(scheme, payoff, known, "walk on spheres", trial is not None, (1.0,), bias, source)


@eqx.filter_jit
def _shell(problem: Problem, trial: Trial | None, width: Any) -> tuple[Array, Array]:
    """The largest `|L Q|` (or `|L f|`) found inside and in the shell, and the longest mean time there."""
    domain, eta = problem.domain, problem.domain.eta
    inside_key, edge_key = jr.split(jr.key(1, impl="threefry2x32"))
    inner = domain.sample(inside_key, _SAMPLE)
    edge = domain.sample_boundary(edge_key, _SAMPLE)
    middle = jnp.asarray(domain.centre)

    def inwards(z: Array) -> Array:
        # The gradient of the distance on the boundary itself; a kink there has the centre's side.
        n = jax.grad(domain.distance)(z + 1e-9 * (middle - z))
        return z + width * n * jax.lax.rsqrt(jnp.sum(n * n))

    def residual(x: Array) -> Array:
        if trial is not None:
            return trial.residual(x)
        return problem.orientation * widely(problem.equation, x, Jet(problem.boundary.at(x), x))

    near = jax.vmap(inwards)(edge)
    found = jnp.abs(jax.vmap(residual)(jnp.concatenate([inner, near])))
    laplacians = jax.vmap(lambda x: eta.trace(x, Identity()))(inner)
    constant = jnp.ptp(laplacians) <= 1e-9 * jnp.max(jnp.abs(laplacians))
    longest = 2.0 * jnp.max(jax.vmap(eta.value)(near)) / jnp.abs(laplacians[0])
    found = jnp.where(jnp.isfinite(found), found, 0.0)
    return jnp.max(found), jnp.where(constant, longest, jnp.inf)


def _width(domain: AbstractDomain) -> float:
    """The largest distance between a boundary point and the parallel of its tangent plane."""
    if isinstance(domain, Box | Interval):  # the nearest face and the one opposite
        lower, upper = domain.enclosing_box
        return float(np.max(upper - lower))
    return 2.0 * float(domain.enclosing_ball[1])


class _Table:
    """The walks so far, and what follows from them."""

    def __init__(
        self,
        plan: _Plan,
        known: np.ndarray,
        points: np.ndarray,
        inside: np.ndarray,
        confidence: float,
    ):
        self._plan, self._known, self._points = plan, known, points
        self._inside, self._confidence = inside, confidence
        starts = points[inside]
        self._ledgers = [Ledger(starts, np.full(len(starts), level)) for level in plan.levels]
        self.done = self.planned = 0

    def walk(self, walks: np.ndarray, key: PRNGKeyArray, tell: Any) -> None:
        """Do so many more walks from every inner point."""
        self.planned += len(self._ledgers) * int(walks.sum())
        for i, ledger in enumerate(self._ledgers):
            level_key = jr.fold_in(key, 1_000 + i)
            run(self._plan.scheme, self._plan.payoff, ledger, walks, level_key, tell)
            self.done += int(walks.sum())

    @property
    def value(self) -> np.ndarray:
        return self._spread(self._ledgers[-1].mean) + self._known

    @property
    def bias(self) -> float:
        """The bound of the plan, or what two time steps show."""
        if len(self._ledgers) == 1 or not self._inside.any():
            return self._plan.bias
        # An error of order h^p with p >= 1/2 falls at least by half with h / 4, so what is left is
        # at most the difference. One mean over all points, because single ones are mostly noise.
        coarse, fine = self._ledgers
        difference = np.mean(coarse.mean - fine.mean)
        noise = np.sqrt(np.sum(_error(coarse) ** 2 + _error(fine) ** 2)) / len(fine.count)
        return float(abs(difference) + noise)

    def lacking(self, accuracy: float) -> np.ndarray:
        """How many more walks every inner point needs, by its variance so far."""
        ledger = self._ledgers[-1]
        aim = accuracy * _rms(self.value)
        room = max(aim - self.bias, 0.5 * aim)
        quantile = _quantile(self._confidence, ledger.count)
        short = quantile * _error(ledger) > room
        if not aim > 0:
            return np.zeros(len(ledger.count), np.int64)
        needed = np.ceil(1.1 * (quantile * ledger.deviation / room) ** 2)
        needed = np.minimum(np.maximum(needed, ledger.count + _PILOT), _MOST)
        return np.where(short, np.maximum(needed - ledger.count, 0), 0).astype(np.int64)

    def estimate(self, points: np.ndarray, accuracy: float | None, seconds: float) -> Estimate:
        """The result; arrays have the shape that the points ask for."""
        ledger, plan = self._ledgers[-1], self._plan
        value, error = self.value, self._spread(_error(ledger))
        bias = self._spread(np.full(len(ledger.count), self.bias))
        half = self._spread(_quantile(self._confidence, ledger.count) * _error(ledger)) + bias
        reached = None
        if accuracy is not None:
            reached = bool(np.all(half <= accuracy * _rms(value) * (1 + 1e-9)))
        walks = sum(self._spread(each.count) for each in self._ledgers)
        shape = points.shape[:-1]
        value, error, half, bias, walks = (
            np.asarray(a).reshape(shape) for a in (value, error, half, bias, walks)
        )
        return Estimate(
            points=points,
            value=value,
            standard_error=error,
            low=value - half,
            high=value + half,
            confidence=self._confidence,
            bias=bias,
            bias_source=plan.bias_source or _stepping(plan),
            walks=walks.astype(np.int64),
            work=sum(each.work for each in self._ledgers),
            seconds=seconds,
            method=plan.method,
            corrected=plan.corrected,
            reached=reached,
        )

    def _spread(self, inner: np.ndarray) -> np.ndarray:
        """Numbers of the inner points among all; zero on the boundary."""
        full = np.zeros(len(self._inside), inner.dtype)
        full[self._inside] = inner
        return full


def _stepping(plan: _Plan) -> str:
    scheme = plan.scheme
    assert isinstance(scheme, Diffusion)
    return (
        f"time steps of at most {float(scheme.longest):.2g}, and a quarter of them for the values: "
        "difference of the two means over all points, plus its standard error (an estimate)"
    )


def _error(ledger: Ledger) -> np.ndarray:
    return ledger.deviation / np.sqrt(np.maximum(ledger.count, 1))


def _quantile(confidence: float, count: np.ndarray) -> np.ndarray:
    """Student's, two-sided."""
    from scipy.special import stdtrit

    return stdtrit(np.maximum(count - 1.0, 1.0), 0.5 + 0.5 * confidence)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if np.size(values) else 0.0


def _distances(domain: AbstractDomain, points: Array) -> Array:
    return jax.vmap(domain.distance)(points)


def _bases(known: Known, points: Array) -> Array:
    return jax.vmap(known.value)(points)


_compiled = eqx.filter_jit(lambda function, owner, points: function(owner, points))


def _chunked(function: Any, owner: Any, points: np.ndarray) -> np.ndarray:
    """A function of all points, in padded chunks of one shape."""
    results = [np.zeros(0)]
    for begin in range(0, len(points), _CHUNK):
        part = points[begin : begin + _CHUNK]
        padded = np.concatenate([part, np.repeat(part[:1], _CHUNK - len(part), axis=0)])
        results.append(np.asarray(_compiled(function, owner, padded))[: len(part)])
    return np.concatenate(results)


def _check_options(accuracy: float | None, walks: int | None, confidence: float) -> None:
    if accuracy is not None and walks is not None:
        raise ValueError("Give accuracy or walks, not both: each says how much work is done.")
    if accuracy is not None and not 0 < accuracy < np.inf:
        raise ValueError(f"accuracy must be a positive number such as 1e-3, got {accuracy!r}.")
    whole = isinstance(walks, int | np.integer) and not isinstance(walks, bool)
    if walks is not None and not (whole and 2 <= walks <= _MOST):
        raise ValueError(f"walks must be a whole number from 2 to {_MOST:,}, got {walks!r}.")
    if not 0 < confidence < 1:
        raise ValueError(
            f"confidence must lie between 0 and 1, for example 0.95, got {confidence}."
        )


def _check_points(problem: Problem, points: Any) -> np.ndarray:
    array, dim = np.asarray(points, np.float64), problem.dim
    if array.ndim not in (1, 2) or array.shape[-1] != dim:
        cure = " In one dimension write points[:, None]." if dim == 1 and array.ndim == 1 else ""
        raise ValueError(
            f"Points of this problem have shape ({dim},) or (n, {dim}), got {array.shape}.{cure}"
        )
    if not np.all(np.isfinite(array)):
        rows = (~np.isfinite(np.atleast_2d(array))).any(axis=1).sum()
        raise ValueError(f"{rows} of the points contain NaN or infinity.")
    return np.atleast_2d(array)


def _check_inside(domain: AbstractDomain, points: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Which points lie inside; the others are on the boundary."""
    outside = distance < -_OUTSIDE * domain.inradius
    if outside.any():
        where = np.array2string(points[outside][0], precision=4, threshold=6)
        raise ValueError(
            f"{outside.sum():,} of {len(points):,} points lie outside {domain!r}, for example "
            f"{where}. The solution is defined on the closed domain only."
        )
    return distance > _ON * domain.inradius
