"""A search for functions that violate monotonicity, on random points.

It never proves a constant, and what it refutes it refutes on its points: a coefficient that is large where
none of them lies can make a violation false. The words that come of it say so.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._compiled import compiled
from .._field.base import Constant
from .._field.jet import Jet, Sum
from .._network.shallow import Shallow, ShallowField
from .._precision import cast, key_from, like
from .._problem.measure import AbstractMeasure
from .._problem.problem import Problem
from .._problem.trial import Trial

_UNITS, _POINTS, _CHUNK = 48, 16_384, 1_024
# A violation must stand out by this many standard errors on points that the search did not see
# (false alarms: 3e-7 under a normal law).
_ERRORS = 5.0


@dataclasses.dataclass(frozen=True)
class Witness:
    """The worst pair that a search found: `v1 = v2 + eta S`.

    `quotient` is `-<v, L v1 - L v2> / <v, v>` for `v = v1 - v2`, with its standard error on fresh points;
    `field` is the network `S`. A negative quotient speaks against monotonicity, a positive one is about an
    upper bound for the constant; both as far as random points tell.
    """

    quotient: float
    standard_error: float
    field: ShallowField

    @property
    def refutes(self) -> bool:
        """Whether the quotient is negative by five standard errors, which is no proof."""
        return self.quotient + _ERRORS * self.standard_error < 0

    def __repr__(self) -> str:
        return (
            f"Witness: -<v, L v1 - L v2> / <v, v> = {self.quotient:.4g} "
            f"(standard error {self.standard_error:.2g}, at {_POINTS:,} random points), v = v1 - v2 = eta S"
        )


def _pair(base: Trial, field: ShallowField, x: Array) -> tuple[Array, Array]:
    """`v = eta S` and `L(base + v)` at `x`."""
    product = base.part(x, field)
    jet = Jet(Sum(base.jet(x), product), x)
    return product.value, base.orientation * like(x, base.equation(x, jet))


@compiled
def _forms(
    base: Trial,
    basis: ShallowField,
    measure: AbstractMeasure,
    key: PRNGKeyArray,
) -> Any:
    """Monte Carlo estimates of `<v_i, v_j>` and `<v_i, DL(base) v_j>`."""
    points, weights = measure.sample(key, _CHUNK)

    def at(x: Array) -> tuple[Array, Array]:
        def one(c: Array) -> tuple[Array, Array]:
            return _pair(base, eqx.tree_at(lambda b: b.c, basis, c), x)

        return jax.jacfwd(one)(jnp.zeros(_UNITS))

    v, lv = jax.vmap(at)(points)
    scaled = weights[:, None] * v / _CHUNK
    return scaled.T @ v, scaled.T @ lv


@compiled(brief=True)
def _check(
    base: Trial,
    field: ShallowField,
    measure: AbstractMeasure,
    key: PRNGKeyArray,
) -> Any:
    """`v (L v1 - L v2)` and `v^2` point by point, on fresh points."""
    points, weights = measure.sample(key, _CHUNK)
    nothing = eqx.tree_at(lambda f: f.c, field, jnp.zeros_like(field.c))

    def at(x: Array) -> tuple[Array, Array]:
        v, upper = _pair(base, field, x)
        _, lower = _pair(base, nothing, x)
        return v * (upper - lower), v * v

    top, bottom = jax.vmap(at)(points)
    return weights * top, weights * bottom


def find_witness(
    problem: Problem, measure: AbstractMeasure, base: Trial | None = None
) -> Witness | None:
    """The worst direction in the span of random units times `eta`, around `base` (the boundary data).

    It is the smallest eigenvector of the symmetric part of `-L` on the span, found on one sample of points
    and measured on another. None where the equation is not finite there.
    """
    key = key_from(7)
    start = Trial.of(problem, Constant(0.0), exact_boundary=True) if base is None else base
    basis = cast(Shallow(_UNITS, beta=0.0).build(problem.domain, key=key), "float64")

    def gather(function: Any, field: ShallowField, first: int) -> list[Any]:
        parts = [
            jax.tree.map(np.asarray, function(start, field, measure, jr.fold_in(key, first + i)))
            for i in range(_POINTS // _CHUNK)
        ]
        return [np.asarray(column) for column in zip(*parts, strict=True)]

    gram, form = (np.mean(part, axis=0) for part in gather(_forms, basis, 0))
    if not (np.all(np.isfinite(gram)) and np.all(np.isfinite(form))):
        return None
    sizes, axes = np.linalg.eigh(gram)
    resolved = sizes > 1e-8 * sizes[-1]
    kept = axes[:, resolved] / np.sqrt(sizes[resolved])
    worst = np.linalg.eigh(-0.5 * kept.T @ (form + form.T) @ kept)[1][:, 0]
    field = eqx.tree_at(lambda b: b.c, basis, jnp.asarray(kept @ worst))
    top, bottom = (part.ravel() for part in gather(_check, field, 1_000))
    if not (np.all(np.isfinite(top)) and np.mean(bottom) > 0):
        return None
    quotient = -np.mean(top) / np.mean(bottom)
    error = np.std(top + quotient * bottom) / (np.sqrt(len(top)) * np.mean(bottom))
    return Witness(float(quotient), float(error), field)
