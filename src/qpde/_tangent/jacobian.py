"""The residual at some points and its Jacobian in the parameters, as second-order rules ask for it."""

import itertools
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._machines.blocks import is_shared, mapped
from .._machines.place import BLOCKS
from .._network.base import trainable
from .._problem.trial import Trial

Span = tuple[int, int]

# The largest explicit Jacobian, in bytes.
_MEMORY = 2**30
# Block columns of a symmetric matrix: at least so wide, and at most so many.
_NARROWEST, _STRIPES = 200, 4


class AbstractTangent(eqx.Module):
    """The residual at M points and its Jacobian `J`, rows times the square root of a point's weight."""

    residual: eqx.AbstractVar[Float[Array, " m"]]

    @abstractmethod
    def stripes(self, spans: list[Span]) -> list[Float[Array, "n b"]]:
        """Columns of `J J'` from `start` to `stop`, without the rows above `start`, for every span."""

    @abstractmethod
    def rows(self, start: Any, count: int) -> Float[Array, "n m"]:
        """`count` rows of `J J'`, the first of which a program may choose."""

    @abstractmethod
    def diagonal(self) -> Float[Array, " m"]:
        """The diagonal of `J J'`."""

    @abstractmethod
    def push(self, change: PyTree) -> Float[Array, " m"]:
        """`J v` for a change `v` of the trained arrays."""

    @abstractmethod
    def pull(self, v: Float[Array, " m"]) -> PyTree:
        """`J' v`, in the form of the trained arrays."""

    @abstractmethod
    def cross(self) -> Float[Array, "m m"]:
        """`K = J J_Q'`."""

    @abstractmethod
    def pull_value(self, v: Float[Array, " m"]) -> PyTree:
        """`J_Q' v`, in the form of the trained arrays."""

    def lower(self) -> Float[Array, "m m"]:
        """`J J'` in its lower triangle, made in block columns: little more than half of all products.

        Processes that work together make block rows of all of it.
        """
        size = self.residual.size
        if is_shared():
            each = -(-size // BLOCKS)
            # The last block begins earlier where the rows do not divide.
            firsts = [min(block * each, size - each) for block in range(BLOCKS)]
            starts = jnp.asarray(firsts)
            blocks = mapped(lambda block: self.rows(starts[block], each), BLOCKS)
            return jnp.concatenate(
                [blocks[i, i * each - first :] for i, first in enumerate(firsts)]
            )[:size]
        stripes = self.stripes(spans(size))
        whole = [jnp.pad(part, ((size - len(part), 0), (0, 0))) for part in stripes]
        return jnp.concatenate(whole, axis=1)

    def gram(self) -> Float[Array, "m m"]:
        """`J J'`."""
        triangle = jnp.tril(self.lower())
        return triangle + jnp.tril(triangle, -1).T


def spans(size: int) -> list[Span]:
    """Where the block columns of a symmetric matrix begin and end."""
    count = min(max(size // _NARROWEST, 1), _STRIPES)
    ends = [size * i // count for i in range(count + 1)]
    return list(itertools.pairwise(ends))


class Explicit(AbstractTangent):
    """The tangent of any network, from its Jacobians."""

    residual: Float[Array, " m"]
    jacobian: Float[Array, "m p"]
    value_jacobian: Float[Array, "m p"]
    unravel: Any = eqx.field(static=True)

    def stripes(self, spans: list[Span]) -> list[Float[Array, "n b"]]:
        return [self.jacobian[start:] @ self.jacobian[start:stop].T for start, stop in spans]

    def rows(self, start: Any, count: int) -> Float[Array, "n m"]:
        return jax.lax.dynamic_slice_in_dim(self.jacobian, start, count) @ self.jacobian.T

    def diagonal(self) -> Float[Array, " m"]:
        return jnp.sum(self.jacobian * self.jacobian, axis=1)

    def push(self, change: PyTree) -> Float[Array, " m"]:
        return self.jacobian @ jax.flatten_util.ravel_pytree(change)[0]

    def pull(self, v: Float[Array, " m"]) -> PyTree:
        return self.unravel(v @ self.jacobian)

    def cross(self) -> Float[Array, "m m"]:
        return self.jacobian @ self.value_jacobian.T

    def pull_value(self, v: Float[Array, " m"]) -> PyTree:
        return self.unravel(v @ self.value_jacobian)


def explicit(trial: Trial, points: Float[Array, "m d"], roots: Float[Array, " m"]) -> Explicit:
    """The Jacobians by reverse mode; `ValueError` where they do not fit into memory."""
    params, rest = trainable(trial.network)
    flat, unravel = jax.flatten_util.ravel_pytree(params)
    needed = points.shape[0] * flat.size * flat.dtype.itemsize
    if needed > _MEMORY:
        raise ValueError(
            f"A second-order step on {points.shape[0]:,} points with {flat.size:,} parameters needs a "
            f"Jacobian of {needed / 2**30:.1f} GiB, more than {_MEMORY / 2**30:.0f} GiB. Take a smaller "
            "batch or network, or a Shallow network with an equation whose second-order part has constant "
            "matrices (u.laplacian, or u.trace(a) with one a for all points), which needs no Jacobian."
        )

    def both(flat: Array, x: Array) -> tuple[Array, Array]:
        moved = trial.with_network(eqx.combine(unravel(flat), rest))
        return moved.value_and_residual(x)

    def one(x: Array) -> tuple[Array, Array, Array]:
        (_, r), pullback = jax.vjp(lambda p: both(p, x), flat)
        one, zero = jnp.ones_like(r), jnp.zeros_like(r)
        return r, pullback((zero, one))[0], pullback((one, zero))[0]

    residual, jacobian, values = jax.vmap(one)(points)
    return Explicit(roots * residual, roots[:, None] * jacobian, roots[:, None] * values, unravel)
