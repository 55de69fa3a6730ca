"""What a problem looks like at random points and jets: mistakes are refused, the sign and doubts are told."""

from typing import TYPE_CHECKING, Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._compiled import compiled
from .._control.base import AbstractControl
from .._control.checks import gaps_at, refuse_worse
from .._domain.base import AbstractDomain
from .._field.form import Identity, Spatial
from .._field.jet import Jet, Quadratic, Sum
from .._field.linearise import Coefficients, linearise
from .._precision import few_at_a_time, fitting, key_from, like

if TYPE_CHECKING:
    from .problem import Problem

# Points and random directions used by the checks.
_POINTS, _DIRECTIONS = 64, 64
# Numbers of the points that are looked at together.
_AT_ONCE = 2**22
# What of its largest value inside `eta` may have on the boundary, for rounding.
_ZERO = 1e-9
# Up to this dimension eigenvalues are computed, so the sign check is complete at each point;
# beyond, it looks along the coordinate axes and the random directions.
_EIGEN = 100

# What was seen at the points is said as that: elsewhere the equation may be another.
_GROWS = (
    "At {count} random points u itself enters with the sign of growth: c < 0 in `A : Hess u + b . grad u "
    "- c u`. Near an eigenvalue solutions explode, and bounds need that it is far. If it is meant as a "
    "discount or a killing rate, change its sign."
)
_DEGENERATE = (
    "At {count} random points there is no second derivative along {axes}. If that is time, a value is "
    "prescribed on its last slice too, where the solution has one of its own: unless they agree, no network "
    "resolves the layer between them. Problem(..., time=T, initial=u0) solves equations in time."
)


class _Places(eqx.Module):
    """Random points inside and on the boundary, and `eta` there."""

    inside: Array
    edge: Array
    eta_inside: Array
    eta_edge: Array


@compiled(brief=True)
def _places(domain: AbstractDomain) -> _Places:
    """A program of the domain's own, which other problems on such a domain share."""
    inside_key, edge_key = jr.split(key_from(0))
    count = fitting(_POINTS, domain.dim)
    inside = domain.sample(inside_key, count)
    edge = domain.sample_boundary(edge_key, count)
    if inside.shape != (count, domain.dim) or edge.shape != (count, domain.dim):
        raise ValueError(f"The domain's samplers must return (n, {domain.dim}) points.")
    eta = jax.vmap(domain.eta.value)
    return _Places(inside, edge, eta(inside), eta(edge))


class _Sample(eqx.Module):
    """What the checks look at, as arrays over points."""

    data: Array
    start: Array  # L f
    second: Array  # (points, jets, directions): w' (dF/dHess) w / |w|^2
    value: Array  # (points, jets): dF/du
    along: Array  # (coordinates,): the largest |dF/dHess_ii|


@compiled(brief=True)
def _probe(problem: "Problem", places: Any, bumps: Quadratic, directions: Any) -> _Sample:
    def at(x: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        base = Jet(problem.boundary.at(x), x)

        def coefficients(bump: Quadratic) -> tuple[Array, Array, Array]:
            found = linearise(problem.equation, x, Jet(Sum(base, Jet(bump, x)), x))
            if problem.order == 4:
                # The leading part of L = -Lap^2 is positive, as that of Lap.
                return -found.bilaplacian[None], found.value, jnp.abs(found.bilaplacian) + 0.0 * x
            # Depending on x, lest the compiler computes the maximum over all points of a constant itself.
            along = jnp.abs(found.diagonal()) + 0.0 * x
            return _second_order(found, directions), found.value, along

        start = like(x, problem.equation(x, base))
        second, value, along = jax.vmap(coefficients)(bumps)
        return start, (second, value, jnp.max(along, axis=0))

    # Every point meets several jets: in tens of thousands of dimensions a few points at a time.
    start, (second, value, along) = few_at_a_time(at, places.inside, _AT_ONCE)
    return _Sample(
        data=jax.vmap(problem.boundary.value)(jnp.concatenate([places.inside, places.edge])),
        start=start,
        second=second,
        value=value,
        along=jnp.max(along, axis=0),
    )


@compiled(brief=True)
def _choices(problem: "Problem", points: Any, bumps: Quadratic) -> Any:
    """How good the best actions are at the points, and at jets around those of the boundary data."""

    def at(x: Array, key: Any) -> Any:
        return gaps_at(problem.equation, Jet(problem.boundary.at(x), x), x, bumps, key)  # pyright: ignore

    return jax.vmap(at)(points, jr.split(key_from(1), len(points)))


def _random_jets(dim: int) -> tuple[Quadratic, np.ndarray]:
    """Jets to add to that of the boundary data, from none to large, and unit directions."""
    rng = np.random.default_rng(0)
    sizes = np.array([0.0, 0.1, 1.0, 10.0])
    bumps = Quadratic(
        sizes * rng.standard_normal(4),
        sizes[:, None] * rng.standard_normal((4, dim)),
        sizes * rng.standard_normal(4),
        sizes[:, None] * rng.standard_normal((4, dim)),
    )
    directions = rng.standard_normal((_DIRECTIONS, dim))
    return bumps, directions / np.linalg.norm(directions, axis=1, keepdims=True)


def _second_order(at: Coefficients, directions: Array) -> Array:
    """The second-order part along some directions, or its eigenvalues in low dimension."""
    dim = directions.shape[1]
    if all(isinstance(form, Identity | Spatial) for form in at.forms) and at.hessian is None:
        return at.quadratic(directions[:1])
    if dim <= _EIGEN:
        return jnp.linalg.eigvalsh(at.matrix())
    return jnp.concatenate([at.quadratic(directions), at.diagonal()])


def looked_at(problem: "Problem") -> tuple[float, tuple[str, ...]]:
    """Check numbers on a sample; return the orientation, and what may not be meant."""
    places = jax.tree.map(np.asarray, _places(problem.domain))
    if not np.all(places.eta_inside > 0):
        _fail("eta must be positive inside the domain", places.inside, places.eta_inside > 0)
    flat = np.abs(places.eta_edge) <= _ZERO * np.max(places.eta_inside)
    if not np.all(flat):
        _fail("eta must vanish on the boundary", places.edge, flat)
    sample = jax.tree.map(np.asarray, _probe(problem, places, *_random_jets(problem.dim)))
    finite = np.isfinite(sample.data)
    if not np.all(finite):
        _fail(
            "The boundary function must be finite on the whole closure of the domain, because "
            "it also serves as the extension inside. It is not",
            np.concatenate([places.inside, places.edge]),
            finite,
        )
    if isinstance(problem.equation, AbstractControl):
        bumps, _ = _random_jets(problem.dim)
        refuse_worse(problem.equation, _choices(problem, places.inside, bumps), places.inside)
    finite = np.isfinite(sample.start)
    if not np.all(finite):
        _fail(
            "The equation is not finite at u = boundary function. Check it for division by "
            "zero or for derivatives of the boundary function that do not exist",
            places.inside,
            finite,
        )
    sign = _orientation(sample.second)
    evolves = problem.domain.times is not None
    along = sample.along[: problem.dim - evolves]
    return sign, _notes(sign * sample.value, along, evolves)


def _notes(growth: np.ndarray, along: np.ndarray, evolves: bool) -> tuple[str, ...]:
    """Doubts, without numbers: a sweep over a parameter keeps its programs.

    In time growth is nothing to doubt: it has a bound on every finite horizon.
    """
    notes = []
    if not evolves and np.all(growth >= 0) and np.any(growth > 0):
        notes.append(_GROWS.format(count=len(growth)))
    flat = [f"x[{axis}]" for axis in np.flatnonzero(along == 0)]
    if flat:
        few = flat if len(flat) <= 3 else [*flat[:2], f"{len(flat) - 2} more coordinates"]
        notes.append(_DEGENERATE.format(count=len(growth), axes=" and ".join(few)))
    return tuple(notes)


def _orientation(second: np.ndarray) -> float:
    # Coefficients need not exist at every jet (|grad u| at grad u = 0), only at most of them.
    known = second[np.isfinite(second)]
    if known.size == 0:
        raise ValueError(
            "The derivative of the equation in u's second derivatives is nowhere finite."
        )
    largest = np.max(np.abs(known))
    positive, negative = np.any(known > 1e-9 * largest), np.any(known < -1e-9 * largest)
    if positive and negative:
        raise ValueError(
            "The equation is not elliptic: its leading part has both signs on the domain. "
            "Check the signs of the second derivatives; a diffusion matrix must be semi-definite."
        )
    if largest == 0:
        raise ValueError(
            "The equation asks for derivatives of its order but does not depend on them."
        )
    return -1.0 if negative else 1.0


def _fail(message: str, points: np.ndarray, good: np.ndarray) -> NoReturn:
    where = np.array2string(points[~good][0], precision=4, threshold=6)
    raise ValueError(f"{message}, for example at x = {where}.")
