"""The best action: of a quadratic by a system of equations, in a box by projected Newton steps.

Both minimise a function `h` of one action. In a box `h` may have several minima: the steps start from its
middle, two corners and points spread over it, and the smallest value found wins. That is a search and no
proof.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Objective = Callable[[Array], Array]

# Steps in a box, starts beside its middle and two corners, lengths tried along Newton's direction and along
# the gradient's.
_STEPS, _SPREAD, _LENGTHS = 12, 5, (1.0, 0.3, 0.1, 0.01)
# The least curvature of a regularised quadratic, as a part of that of the cost, and in a box of the largest.
_FLOOR, _LEAST = 0.1, 1e-8


def quadratic(h: Objective, count: int, like: Array) -> tuple[Array, Array]:
    """Slope and curvature of `h` at zero, which are all there is where `h` is quadratic."""
    zero = jnp.zeros(count, like.dtype)
    return jax.grad(h)(zero), jax.hessian(h)(zero)


def inverse(matrix: Float[Array, "m m"]) -> tuple[Float[Array, "m m"], Array]:
    """The inverse of a symmetric matrix by elimination, and its smallest pivot: positive where the matrix is.

    Programs map it over points. Those of LAPACK wait for each other's threads there, sometimes for ever (JAX
    0.10.2 on two cores), and for a few components they are no quicker.
    """
    size = len(matrix)
    identity = jnp.eye(size, dtype=matrix.dtype)

    def eliminate(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        left, right = carry
        pivot = left[k, k]
        safe = jnp.where(pivot != 0, pivot, 1.0)
        row, other = left[k] / safe, right[k] / safe
        column = left[:, k] - identity[k]  # row k itself becomes the divided one
        return (left - column[:, None] * row[None], right - column[:, None] * other[None]), pivot

    (_, found), pivots = jax.lax.scan(eliminate, (matrix, identity), jnp.arange(size))
    return found, jnp.min(pivots)


def lifted(
    curvature: Float[Array, "m m"], floor: Float[Array, ""]
) -> tuple[Float[Array, "m m"], Array]:
    """A curvature made positive where it is not, and by how much: a multiple of the identity is added.

    Where all curvatures are above `floor` nothing changes; elsewhere they are after it, by Gershgorin's
    discs.
    """
    fixed, identity = (
        jax.lax.stop_gradient(curvature),
        jnp.eye(len(curvature), dtype=curvature.dtype),
    )
    positive = inverse(fixed - floor * identity)[1] > 0
    diagonal = jnp.diagonal(fixed)
    least = jnp.min(diagonal + jnp.abs(diagonal) - jnp.sum(jnp.abs(fixed), axis=1))
    added = jnp.where(positive, 0.0, jnp.maximum(floor - least, 0.0))
    return curvature + added * identity, added


def floor_of(cost: Float[Array, "m m"]) -> Float[Array, ""]:
    """A part of the smallest curvature of a cost; zero where that is not positive."""
    cost = jax.lax.stop_gradient(cost)
    found, pivot = inverse(cost)
    # The trace of the inverse is at least the inverse of the smallest eigenvalue.
    trace = jnp.trace(found)
    return jnp.where(pivot > 0, _FLOOR / jnp.where(pivot > 0, trace, 1.0), 0.0)


def best_of_quadratic(slope: Float[Array, " m"], curvature: Float[Array, "m m"]) -> Array:
    """`-curvature^-1 slope`."""
    if slope.size == 1:
        return -slope / curvature[0]
    # The inverse apart from the slope: it is the same for all points where the curvature is.
    return -inverse(curvature)[0] @ slope


def best_in_box(h: Objective, low: Any, high: Any, like: Array) -> Array:
    """An action of the box at which `h` is smallest, as far as the search sees."""
    lower, upper = jnp.asarray(low, like.dtype), jnp.asarray(high, like.dtype)
    starts = _starts(lower, upper)

    def search(start: Array) -> Array:
        return jax.lax.fori_loop(0, _STEPS, lambda _, a: _moved(h, a, lower, upper), start)

    found = jax.vmap(search)(starts)
    return found[jnp.argmin(jax.vmap(h)(found))]


def _starts(low: Float[Array, " m"], high: Float[Array, " m"]) -> Float[Array, "k m"]:
    """The middle, two corners, the action nearest to zero, and points spread over the box."""
    shares = jnp.asarray(np.random.default_rng(0).random((_SPREAD, low.size)), low.dtype)
    rest = low[None, :] + (high - low)[None, :] * shares
    nearest = jnp.clip(jnp.zeros_like(low), low, high)
    return jnp.concatenate([jnp.stack([0.5 * (low + high), low, high, nearest]), rest])


def _moved(h: Objective, a: Array, low: Array, high: Array) -> Array:
    """The best of some steps from `a`, none at all among them."""
    slope, curvature = jax.grad(h)(a), jax.hessian(h)(a)
    # Components that the box holds back take no part.
    held = ((a <= low) & (slope > 0)) | ((a >= high) & (slope < 0))
    slope = jnp.where(held, 0.0, slope)
    identity = jnp.eye(a.size, dtype=a.dtype)
    curvature = jnp.where(held[:, None] | held[None, :], identity, curvature)
    size = jnp.max(jnp.abs(curvature))
    newton = inverse(lifted(curvature, _LEAST * jnp.where(size > 0, size, 1.0))[0])[0] @ slope
    top = jnp.max(jnp.abs(slope))
    steepest = (high - low) * slope / jnp.where(top > 0, top, 1.0)
    lengths = jnp.asarray(_LENGTHS, a.dtype)[:, None]
    moves = [lengths * newton[None, :], lengths * steepest[None, :]]
    tried = jnp.clip(a[None, :] - jnp.concatenate(moves), low[None, :], high[None, :])
    tried = jnp.concatenate([a[None, :], tried])
    heights = jax.vmap(h)(tried)
    return tried[jnp.argmin(jnp.where(jnp.isfinite(heights), heights, jnp.inf))]
