"""Second-order forms `H -> a : H`: how second derivatives are asked for without a d x d array."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Numbers in objects are NumPy float64 arrays; inside compiled code the same fields hold tracers.
# (A checker sees `Any`: NumPy times JAX is JAX, which it cannot know.)
if TYPE_CHECKING:
    Numbers = Any
else:
    Numbers = np.ndarray | jax.Array


def fresh(tree: Any) -> Any:
    """The tree with copies of its NumPy numbers, to be closed over by programs of one precision.

    JAX (0.10.2) remembers the float32 or float64 version of a NumPy array that a program closed over, and
    then hands it to programs that expect the other. Copies keep our own numbers out of that cache.
    """
    return jax.tree.map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, tree)


class AbstractForm(eqx.Module):
    """A second-order form `H -> a : H` with a symmetric matrix `a`."""

    @abstractmethod
    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        """`a v`."""

    @abstractmethod
    def quadratic(self, w: Float[Array, "... d"]) -> Float[Array, "..."]:
        """`w' a w` for every row of `w`."""

    @abstractmethod
    def contract(self, hessian: Float[Array, "d d"]) -> Float[Array, ""]:
        """`a : hessian`."""

    @abstractmethod
    def diagonal(self, dim: int) -> Float[Array, " d"]:
        """The diagonal of `a`."""

    @abstractmethod
    def seed(self, w: Float[Array, "n d"]) -> "tuple[Float[Array, 'n k'], AbstractForm]":
        """Rows `p` and a form with the same `w' a w`, as narrow as can be."""


class Identity(AbstractForm):
    """`a = I`: the Laplacian."""

    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        return v

    def quadratic(self, w: Float[Array, "... d"]) -> Float[Array, "..."]:
        return jnp.sum(w * w, axis=-1)

    def contract(self, hessian: Float[Array, "d d"]) -> Float[Array, ""]:
        return jnp.trace(hessian)

    def diagonal(self, dim: int) -> Float[Array, " d"]:
        return jnp.ones(dim)

    def seed(self, w: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], AbstractForm]:
        return w, self


class Factor(AbstractForm):
    """`a = sigma sigma'` for a `(d, k)` factor; a direction is a factor with one column."""

    sigma: Float[Array, "d k"]

    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.sigma @ (v @ self.sigma)

    def quadratic(self, w: Float[Array, "... d"]) -> Float[Array, "..."]:
        return jnp.sum(jnp.square(w @ self.sigma), axis=-1)

    def contract(self, hessian: Float[Array, "d d"]) -> Float[Array, ""]:
        return jnp.sum((hessian @ self.sigma) * self.sigma)

    def diagonal(self, dim: int) -> Float[Array, " d"]:
        return jnp.sum(jnp.square(self.sigma), axis=1)

    def seed(self, w: Float[Array, "n d"]) -> tuple[Float[Array, "n k"], AbstractForm]:
        return w @ self.sigma, Identity()


class Matrix(AbstractForm):
    """`a` as a full matrix; only its symmetric part counts."""

    a: Float[Array, "d d"]

    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        return 0.5 * (self.a @ v + v @ self.a)

    def quadratic(self, w: Float[Array, "... d"]) -> Float[Array, "..."]:
        return jnp.sum((w @ self.a) * w, axis=-1)

    def contract(self, hessian: Float[Array, "d d"]) -> Float[Array, ""]:
        return jnp.sum(self.a * hessian)

    def diagonal(self, dim: int) -> Float[Array, " d"]:
        # Not jnp.diagonal: JAX 0.10.2 mixes the precisions of traces with and without x64 in it.
        return self.a[jnp.arange(dim), jnp.arange(dim)]

    def seed(self, w: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], AbstractForm]:
        return w, self
