"""Damped systems `(J J' + lambda I) x = r`, for several dampings at once.

Up to 4,000 points by Cholesky: four factors of 1,000 points take less time than one decomposition into
eigenvectors. Beyond, by conjugate gradients that never make `J J'`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._machines.blocks import mapped
from .jacobian import AbstractTangent

# The most points for Cholesky; the points of the preconditioner beyond, the smallest relative residual that
# conjugate gradients are to reach, and their most steps.
_LARGEST, _LANDMARKS, _ENOUGH, _MOST = 4_000, 1_000, 1e-10, 300
# What the preconditioner's own matrix needs to be positive, relative to its mean diagonal.
_ROUNDING = 1e-12


def solve_damped(
    here: AbstractTangent, dampings: Float[Array, " k"]
) -> tuple[Float[Array, "k m"], Float[Array, "k m"]]:
    """`x = (J J' + lambda I)^-1 r` and what it leaves, `r - J J' x`, for every damping.

    Dampings are relative: `lambda` is a damping times the mean diagonal of `J J'`. Where the matrix is not
    positive to rounding both are NaN.
    """
    residual = here.residual
    if residual.size > _LARGEST:
        return _by_gradients(here, dampings)
    lower = here.lower()
    shifts = dampings * (jnp.trace(lower) / residual.size)
    solutions = mapped(lambda i: _by_cholesky(lower, shifts[i], residual), len(dampings))
    return solutions, shifts[:, None] * solutions


def _by_gradients(
    here: AbstractTangent, dampings: Float[Array, " k"]
) -> tuple[Float[Array, "k m"], Float[Array, "k m"]]:
    """The same by conjugate gradients, for all dampings side by side.

    The preconditioner is `(U U' + mu I)^-1`, where `U U'` is the Nystroem approximation of `J J'` from the
    columns of the first points, which are as random as all others, and `mu` the damping plus the mean
    diagonal of what the approximation lacks. Where the damping is next to nothing the steps run out before
    the system is solved: what is returned is then a shorter step, and `left` is what that step leaves.
    """
    residual = here.residual
    size = residual.size
    mean = jnp.sum(here.diagonal()) / size
    shifts = (dampings * mean)[:, None]
    (columns,) = here.stripes([(0, _LANDMARKS)])
    root = jnp.linalg.cholesky(columns[:_LANDMARKS] + _ROUNDING * mean * jnp.eye(_LANDMARKS))
    u = jax.lax.linalg.triangular_solve(
        root, columns, left_side=False, lower=True, transpose_a=True
    )
    lacking = jnp.maximum(mean - jnp.sum(u * u) / size, 0.0)
    weights = shifts + lacking
    inner = jnp.linalg.cholesky((u.T @ u)[None] + weights[:, :, None] * jnp.eye(_LANDMARKS)[None])

    def eased(v: Array) -> Array:
        projected = jax.scipy.linalg.cho_solve((inner, True), (v @ u)[:, :, None])[:, :, 0]
        return (v - projected @ u.T) / weights

    def times(v: Array) -> Array:
        return jax.vmap(lambda one: here.push(here.pull(one)))(v) + shifts * v

    # One damping's numbers stay finite, and its step is none, once it has converged.
    def ratio(a: Array, b: Array) -> Array:
        return jnp.where(b > 0, a / jnp.where(b > 0, b, 1.0), 0.0)

    def advance(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        step, x, left, direction, size = carry
        moved = times(direction)
        length = ratio(size, jnp.sum(direction * moved, axis=1, keepdims=True))
        x, left = x + length * direction, left - length * moved
        better = eased(left)
        new = jnp.sum(left * better, axis=1, keepdims=True)
        return step + 1, x, left, better + ratio(new, size) * direction, new

    def going(carry: tuple[Array, ...]) -> Array:
        largest = jnp.max(jnp.sum(carry[2] ** 2, axis=1))
        return (carry[0] < _MOST) & (largest > _ENOUGH**2 * jnp.dot(residual, residual))

    start = jnp.broadcast_to(residual, (dampings.size, size))
    first = eased(start)
    sizes = jnp.sum(start * first, axis=1, keepdims=True)
    none = jnp.zeros_like(start)
    _, x, left, _, _ = jax.lax.while_loop(
        going, advance, (jnp.asarray(0), none, start, first, sizes)
    )
    return x, left + shifts * x


def _by_cholesky(
    lower: Float[Array, "m m"], damping: Float[Array, ""], v: Float[Array, " m"]
) -> Float[Array, " m"]:
    """`(G + damping I)^-1 v` from the lower triangle of `G`; NaN where that is not positive to rounding."""
    damped = lower + damping * jnp.eye(v.size, dtype=v.dtype)
    factor = jax.lax.linalg.cholesky(damped, symmetrize_input=False)
    return jax.scipy.linalg.cho_solve((factor, True), v)
