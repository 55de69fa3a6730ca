"""Sizes at fresh points: `L Q` beside the terms of its equation, and how far it lets `Q` be off.

**Terms.** With the equation `F` linearised at `Q`, `A = dF/dHess`, `b = dF/dgrad`, `c = dF/du`,

    F(Q) = A : Hess Q + b . grad Q + c Q + r,

`r` the rest, which is the source of a linear equation. `L Q` is small where it is small beside these terms.
In `Lap u = 0` the only term vanishes at the solution, but single second derivatives do not: the size of the
first term is that of `z' A (Hess Q) z` with a standard normal `z`, whose square has the mean
`tr(M)^2 + |M|^2 + tr(M M)`, `M = A Hess Q`. All quotients are the same for `k L`, for other units of `x`
and, where the equation is linear, of `u`.

**Stiffness.** `|Q - u| <= |L Q| / s` in L2, to first order, with `s` the smallest `|F'(Q) v| / |v|` over
functions `v` of zero boundary values. Here it is the smallest over a span of some dozen smooth ones, so that
the quotient estimates an error; it bounds none.

**Correction.** The `v` of that span with which `F(Q) + F'(Q) v` is smallest: a part of `u - Q`, where it
takes away much of the residual. Ripples of `Q`, whose residual is large and whose error is small, have none.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._compiled import compiled
from .._domain.base import drawn, drawn_on_boundary
from .._domain.random import directions
from .._field.form import Factor
from .._field.jet import Jet, Sum
from .._field.linearise import asks, linearise
from .._network.shallow import Shallow, ShallowField
from .._precision import cast, fitting, key_from, like
from .._problem.solution import Solution
from .._problem.trial import Trial

# Fresh points, and coordinates of all points, because thousands of dimensions get fewer.
_POINTS, _NUMBERS, _LEAST = 2_048, 2**22, 32
# Hidden units whose span is searched for a small `|F'(Q) v| / |v|`, beside a constant and `|y|^2`.
_UNITS = 48
# Directions of that span that are smaller than this, over the largest, are rounding.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Root mean squares over the domain."""

    value: float  # Q
    residual: float  # L Q
    start: float  # L f
    terms: float  # those of the equation at Q
    edge: float  # Q - f on the boundary

    @property
    def finite(self) -> bool:
        """Whether Q and L Q are finite at all points."""
        return bool(np.isfinite(self.value + self.residual + self.edge))


def sizes_of(solution: Solution) -> Sizes:
    """The sizes of a solution at points that nothing else has seen."""
    trial, domain = cast((solution.trial.by_values(), solution.problem.domain), "float64")
    key = key_from(solution.seed, 0x5EED)
    count = _count(domain.dim)
    points = np.asarray(drawn(domain, key, count))
    edge = np.asarray(drawn_on_boundary(domain, jr.fold_in(key, 1), count))
    probes = np.asarray(directions(jr.fold_in(key, 2), points.shape))
    size = fitting(count, domain.dim, numbers=_NUMBERS)
    parts = [
        [np.asarray(c) for c in _columns(trial, *(a[i : i + size] for a in (points, edge, probes)))]
        for i in range(0, count, size)
    ]
    q, residual, start, terms, edge = (np.concatenate(c) for c in zip(*parts, strict=True))
    # A coefficient may not exist at single points (a kink of the equation), where its term is left out.
    terms = np.where(np.isfinite(terms), terms, 0.0)
    return Sizes(
        value=rms(q),
        residual=rms(residual),
        start=rms(start),
        terms=rms(terms) * np.sqrt(terms.shape[1]),
        edge=rms(edge),
    )


def _count(dim: int) -> int:
    """The number of points; a multiple of the few that are evaluated at a time, and at least 32."""
    size = fitting(_POINTS, dim, numbers=_NUMBERS)
    return min(_POINTS, size * -(-_LEAST // size))


def rms(values: np.ndarray) -> float:
    """The root mean square, also of numbers whose squares are none."""
    top = float(np.max(np.abs(values), initial=0.0))
    if not 0 < top < np.inf:
        return top
    return top * float(np.sqrt(np.mean(np.square(values / top))))


@compiled
def _columns(trial: Trial, points: Any, edge: Any, probes: Any) -> tuple[Array, ...]:
    def at(x: Array, z: Array) -> tuple[Array, ...]:
        jet = trial.jet(x)
        residual, terms = _terms(trial, x, jet, z)
        start = like(x, trial.equation(x, Jet(trial.boundary.at(x), x)))
        return jet.value, residual, start, terms

    def gap(x: Array) -> Array:
        return trial.value(x) - trial.boundary.value(x)

    return *jax.vmap(at)(points, probes), jax.vmap(gap)(edge)


def _terms(trial: Trial, x: Array, jet: Jet, z: Array) -> tuple[Array, Array]:
    """`F` at the jet, and its terms there."""
    at = linearise(trial.equation, x, jet)
    # z' A H z by second derivatives along two directions: v' H z = (v + z)' H (v + z) / 4 - ...
    v = at.apply(z)
    scale = jnp.sqrt(jnp.sum(v * v) / jnp.sum(z * z))
    v = v / jnp.where(scale > 0, scale, 1.0)
    plus, minus = (jet.contract(Factor(w[:, None])) for w in (v + z, v - z))
    # The mean of z' A H z is A : H, but one of them may be anything; the rest below needs the sum itself.
    second = 0.25 * scale * (plus - minus)
    if "bilaplacian" in asks(trial.equation, x, jet)[0].asked:
        fourth = at.bilaplacian * jet.bilaplacian
    else:
        fourth = jnp.zeros_like(second)
    first, zeroth = jnp.dot(at.grad, jet.grad), at.value * jet.value
    known = sum(
        (scale * jet.contract(form) for scale, form in zip(at.traces, at.forms, strict=True)),
        jnp.zeros_like(first),
    )
    if at.hessian is not None:
        known = known + jnp.sum(at.hessian * jet.hessian)
    rest = at.residual - known - first - zeroth - fourth
    return at.residual, jnp.stack([second, first, zeroth, rest, fourth])


class Correction(NamedTuple):
    """The stiffness, the size of the correction, and the part of the squared residual that it explains."""

    stiffness: float
    size: float
    explained: float


def correction(solution: Solution) -> Correction | None:
    """What some smooth `v` of zero boundary values say of the error; None where they are not finite."""
    trial, domain = cast((solution.trial.by_values(), solution.problem.domain), "float64")
    span = cast(Shallow(_UNITS, polynomial=True).build(domain, key=key_from(0, 0x57)), "float64")
    key = key_from(solution.seed, 0x571F)
    count = _count(domain.dim)
    size = fitting(count, domain.dim, numbers=_NUMBERS)
    points = np.asarray(drawn(domain, key, count))
    rows = [_span(trial, span, points[i : i + size]) for i in range(0, count, size)]
    columns = zip(*rows, strict=True)
    values, images, residual = (np.concatenate([np.asarray(a) for a in c]) for c in columns)
    good = np.all(np.isfinite(images), axis=1) & np.all(np.isfinite(values), axis=1)
    good &= np.isfinite(residual)
    if good.mean() < 0.99:
        return None
    values, images, residual = values[good], images[good], residual[good]
    # An orthonormal basis of the span, and the smallest image of a unit vector.
    lengths = np.maximum(np.linalg.norm(values, axis=0), 1e-300)
    _, sizes, right = np.linalg.svd(values / lengths, full_matrices=False)
    kept = sizes > _ROUNDING * sizes[0]
    image = (images / lengths) @ (right[kept].T / sizes[kept])
    least = float(np.linalg.svd(image, compute_uv=False)[-1])
    top = float(np.max(np.abs(residual), initial=0.0))
    if not top > 0:
        return Correction(least, 0.0, 0.0)
    found, *_ = np.linalg.lstsq(image, -residual / top, rcond=1e-10)
    left = rms(residual / top + image @ found) / rms(residual / top)
    size = top * float(np.linalg.norm(found)) / np.sqrt(len(residual))
    return Correction(least, size, 1.0 - left**2)


@compiled
def _span(
    trial: Trial, span: ShallowField, points: Any
) -> tuple[Float[Array, "n m"], Float[Array, "n m"], Float[Array, " n"]]:
    """The values of `eta S_j` at points, those of `F'(Q) (eta S_j)`, and `F(Q)`."""

    def network(a: Array) -> ShallowField:
        def outputs(n: Any) -> tuple[Any, ...]:
            return n.c, n.polynomial.constant, n.polynomial.curvature

        return eqx.tree_at(outputs, span, (a[:-2], a[-2], a[-1]))

    def at(x: Array) -> tuple[Array, Array, Array]:
        def moved(a: Array) -> tuple[Array, Array]:
            product = trial.part(x, network(a))
            jet = Jet(Sum(trial.jet(x), product), x)
            return product.value, like(x, trial.equation(x, jet))

        (v, residual), pullback = jax.vjp(moved, jnp.zeros(_UNITS + 2, x.dtype))
        one, zero = jnp.ones_like(v), jnp.zeros_like(v)
        return pullback((one, zero))[0], pullback((zero, one))[0], residual

    return jax.vmap(at)(points)
