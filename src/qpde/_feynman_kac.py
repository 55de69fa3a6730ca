"""Values at given points with confidence intervals, from random walks (Feynman-Kac).

For `L u = A : Hess u + b . grad u - c u + r = 0`, `u = f` on the boundary, and the diffusion `X` with the
generator `A : Hess + b . grad`, which leaves the domain at the time `tau`,

    u(x) = E_x[ exp(-int c) f(X_tau) + int_0^tau exp(-int c) r(X_s) ds ],
    u(x) = Q(x) + E_x[ exp(-int c) (f - Q)(X_tau) + int_0^tau exp(-int c) (L Q)(X_s) ds ]

for any smooth `Q`. A solution `Q` makes the second mean small: it serves as a control variate, and the
interval is right however bad it is. A `Q` that may have kinks is not used.
"""

import time
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from ._diffusion import Diffusion
from ._domain import AbstractDomain, Box, Interval
from ._enclosure import Unbounded
from ._estimate import MOST, PILOT, Estimate, Plan, Table
from ._field import AbstractField
from ._form import Identity, Numbers, fresh
from ._interrupt import Keyboard
from ._jet import Jet, widely
from ._linear import Affine, Linear, examine
from ._network import cast
from ._operator import Operator, Structure
from ._problem import Problem
from ._progress import Walks
from ._residual import rough_parts
from ._solution import Solution
from ._trial import Trial
from ._walk import Spheres

_DEFAULT = 1_000
# The shell in which a walk on spheres stops, in inradii.
_SHELL = 1e-6
# Euler-Maruyama is done with time steps multiplied by these; the values are those of the second.
_LEVELS = (1.0, 0.25)
# Points that lie outside by less, in inradii, are on the boundary up to rounding (as in `Solution`).
_OUTSIDE, _ON = 1e-5, 1e-12
_SAMPLE = 4_096
_CHUNK = 1_024


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
    operator = _structure(problem)
    with jax.enable_x64(True):
        distance = np.asarray(_chunked(_distances, problem.domain, where))
        inside = _check_inside(problem.domain, where, distance)
        plan = _plan(_usable(solution), problem, linear, operator)
        key = jr.wrap_key_data(
            jnp.asarray(np.random.SeedSequence(seed).generate_state(2)), impl="threefry2x32"
        )
        known = np.asarray(_chunked(_bases, plan.known, where))
        edge = np.asarray(_chunked(_bases, Known(problem.boundary), where))
        table = Table(plan, np.where(inside, known, edge), where, inside, confidence)
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
        return PILOT
    return _DEFAULT if walks is None else walks


class Known(eqx.Module):
    """What is added to the mean over the walks: `Q`, the boundary function, or nothing."""

    function: Trial | AbstractField | None

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros(()) if self.function is None else self.function.value(x)


class Payoff(eqx.Module):
    """`L Q` or `r` along the walk, and `f - Q` or `f` at its end, divided by the operator's `scale`."""

    operator: Affine
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


def _structure(problem: Problem) -> Operator | None:
    """What the equation's program says beyond samples; None where the program is too large to say."""
    try:
        operator = Operator.of(problem)
    except Unbounded:
        return None
    if operator.structure is not Structure.LINEAR:
        raise ValueError(
            "This equation is not linear: somewhere it depends on u in another way than its samples show "
            "(a jump, or a gradient that is stopped). Walks represent equations that are affine in u only."
        )
    return operator


def _usable(solution: Solution | Problem) -> Solution | Problem:
    """The solution, or its problem alone where Q may have kinks, which its residual would not show."""
    if isinstance(solution, Problem):
        return solution
    with jax.enable_x64(True):
        trial = cast(fresh(solution.trial), "float64")
    found = rough_parts(trial, fresh(solution.problem.domain))
    if not found:
        return solution
    warnings.warn(
        f"{' and '.join(found).capitalize()} may have kinks or jumps, so that the network is not used as a "
        "control variate.",
        stacklevel=3,
    )
    return solution.problem


def _plan(
    solution: Solution | Problem, problem: Problem, linear: Linear, program: Operator | None
) -> Plan:
    trial = cast(solution.trial, "float64") if isinstance(solution, Solution) else None
    operator = Affine(problem.equation, problem.orientation)
    # Samples may miss a small region; the program knows what varies.
    steady = program is not None and not program.varies
    spheres = linear.scalar is not None and linear.killing is not None and steady
    scale = 2.0 * linear.scalar if spheres and linear.scalar is not None else 1.0
    exact = trial is not None and trial.exact_boundary
    payoff = Payoff(operator, trial, problem.boundary, np.asarray(scale), not exact)
    domain, known = problem.domain, Known(trial)
    if not spheres:
        scheme = Diffusion(domain, operator, linear)
        source = (
            f"time steps of at most {float(scheme.longest):.2g}, and a quarter of them for the values: "
            "mean difference of the two over all points, plus its standard error (an estimate)"
        )
        if program is None or not program.least(program.killing).proved:
            source += "; that c >= 0 was only seen at random points"
        return Plan(
            scheme, payoff, known, "Euler-Maruyama", trial is not None, _LEVELS, None, source
        )
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
    return Plan(scheme, payoff, known, "walk on spheres", trial is not None, (1.0,), bias, source)


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
    # Where it is not finite nothing bounds the bias.
    found = jnp.where(jnp.isfinite(found), found, jnp.inf)
    return jnp.max(found), jnp.where(constant, longest, jnp.inf)


def _width(domain: AbstractDomain) -> float:
    """The largest distance between a boundary point and the parallel of its tangent plane."""
    if isinstance(domain, Box | Interval):  # the nearest face and the one opposite
        lower, upper = domain.enclosing_box
        return float(np.max(upper - lower))
    return 2.0 * float(domain.enclosing_ball[1])


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
    if walks is not None and not (whole and 2 <= walks <= MOST):
        raise ValueError(f"walks must be a whole number from 2 to {MOST:,}, got {walks!r}.")
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
