"""Damped systems `(J J' + lambda I) x = r`, for several dampings at once.

Up to 4,000 points by Cholesky, block column by block column: LAPACK factorises the small blocks on the
diagonal only, and the rest are large products. Beyond, by conjugate gradients that never make `J J'`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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
    mean = sum(jnp.trace(part) for part in lower) / residual.size
    columns = factors(lower, dampings * mean)
    right = jnp.broadcast_to(residual, (dampings.size, residual.size))
    solutions = _backward(columns, _forward(columns, right))
    return solutions, (dampings * mean)[:, None] * solutions


def _by_gradients(
    here: AbstractTangent, dampings: Float[Array, " k"]
) -> tuple[Float[Array, "k m"], Float[Array, "k m"]]:
    """The same by conjugate gradients, for all dampings side by side.

    The preconditioner is `(U U' + mu I)^-1`, where `U U'` is the Nystroem approximation of `J J'` from the
    columns of the first points, which are as random as all others, and `mu` the damping plus the mean
    diagonal of what the approximation lacks.
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


def factors(
    lower: list[Float[Array, "n b"]], dampings: Float[Array, " k"]
) -> list[Float[Array, "k n b"]]:
    """The Cholesky factors in block columns."""
    columns: list[Array] = []
    for part in lower:
        size, width = part.shape
        column = part[None] + dampings[:, None, None] * jnp.eye(size, width)[None]
        if columns:
            before = jnp.concatenate([done[:, -size:] for done in columns], axis=2)
            column = column - before @ before[:, :width].mT
        top = jax.lax.linalg.cholesky(column[:, :width], symmetrize_input=False)
        if size == width:
            columns.append(top)
            continue
        below = jax.lax.linalg.triangular_solve(
            top, column[:, width:], left_side=False, lower=True, transpose_a=True
        )
        columns.append(jnp.concatenate([top, below], axis=1))
    return columns


def _forward(columns: list[Float[Array, "k n b"]], v: Float[Array, "k m"]) -> Float[Array, "k m"]:
    """`L^-1 v`."""
    parts = []
    for column in columns:
        width = column.shape[2]
        part = _triangle(column[:, :width], v[:, :width], transposed=False)
        parts.append(part)
        v = v[:, width:] - jnp.einsum("knb,kb->kn", column[:, width:], part)
    return jnp.concatenate(parts, axis=1)


def _backward(columns: list[Float[Array, "k n b"]], v: Float[Array, "k m"]) -> Float[Array, "k m"]:
    """`L'^-1 v`."""
    done = v[:, :0]
    for column in reversed(columns):
        size, width = column.shape[1:]
        part = v[:, v.shape[1] - size : v.shape[1] - size + width]
        part = part - jnp.einsum("knb,kn->kb", column[:, width:], done)
        done = jnp.concatenate([_triangle(column[:, :width], part, transposed=True), done], axis=1)
    return done


def _triangle(
    top: Float[Array, "k b b"], v: Float[Array, "k b"], *, transposed: bool
) -> Float[Array, "k b"]:
    return jax.lax.linalg.triangular_solve(
        top, v[:, :, None], left_side=True, lower=True, transpose_a=transposed
    )[:, :, 0]
