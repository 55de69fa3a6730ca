"""The loss of many parameters at the same points: trial steps.

What does not depend on the parameters - the jets of `eta` and `f`, the source and the coefficients of an
equation - is computed once for all of them, because they are mapped over inside the map over points.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._field.base import SourcedField
from .._machines.blocks import mapped
from .._network.shallow import ShallowAt, ShallowField
from .._problem.trial import Trial
from .batch import Batch

# Points at a time, so that what the trial steps make of them stays in the cache.
_AT_ONCE = 128


class Steps(eqx.Module):
    """Parameters `theta - length direction`, for pairs of a direction and a length; `theta` at length 0."""

    params: PyTree
    directions: PyTree  # with a leading axis
    which: Array
    lengths: Float[Array, " c"]

    def of(self, number: Any) -> PyTree:
        """The parameters of one pair, or of all of them for a slice."""
        return self.moved(self.which[number], self.lengths[number], self.params, self.directions)

    @staticmethod
    def moved(which: Array, length: Array, start: PyTree, directions: PyTree) -> PyTree:
        """`start - length direction`; a direction may be NaN, and no step is still no step."""
        return jax.tree.map(
            lambda p, v: jnp.where(length > 0, p - length * v[which], p), start, directions
        )

    def losses(self, trial: Trial, rest: PyTree, batch: Batch) -> Float[Array, " c"]:
        """The mean of `(L Q)^2` over a batch for every pair."""
        field = trial.network
        # In other coordinates the products are those of other points.
        shared = type(field) is ShallowField and trial.coordinates is None
        now, moves = self.params, self.directions

        def inner(w: Array, x: Array) -> Array:
            return field.frame(x) @ w  # pyright: ignore[reportAttributeAccessIssue]

        def at(x: Array) -> Float[Array, " c"]:
            # With one hidden layer the products with the points are shared too.
            products = (inner(now.w, x), jax.vmap(inner, (0, None))(moves.w, x)) if shared else None

            def one(which: Array, length: Array) -> Array:
                network: Any = eqx.combine(self.moved(which, length, now, moves), rest)
                if products is not None:
                    network = _Known(network, self.moved(which, length, *products))
                return trial.with_network(network).residual(x)

            return jax.vmap(one)(self.which, self.lengths)

        return _mean_of_squares(jax.vmap(at), batch)


class _Known(SourcedField):
    """A shallow network at a point where `w . y` is known."""

    field: ShallowField
    inner: Float[Array, " n"]

    def at(self, x: Float[Array, " d"]) -> ShallowAt:
        return ShallowAt(self.field, x, self.inner)


def _mean_of_squares(residuals: Any, batch: Batch) -> Float[Array, " c"]:
    """The weighted mean of the squares of a function of points, a few points at a time."""
    points, weights = batch.points, batch.weights
    parts = -(-len(points) // _AT_ONCE)
    size = -(-len(points) // parts)
    lacking = parts * size - len(points)
    if lacking:
        points = jnp.concatenate([points, jnp.repeat(points[:1], lacking, axis=0)])
        weights = jnp.concatenate([weights, jnp.zeros(lacking, weights.dtype)])

    def part(given: tuple[Array, Array]) -> Array:
        found = residuals(given[0])
        return given[1] @ (found * found)

    chunks = points.reshape(parts, size, -1), weights.reshape(parts, size)
    return jnp.sum(mapped(lambda i: part((chunks[0][i], chunks[1][i])), parts), axis=0)
