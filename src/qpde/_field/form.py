"""Second-order forms `H -> a : H`: how second derivatives are asked for without a d x d array."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


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
    def diagonal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The diagonal of `a`, in the precision of the point `x`."""

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

    def diagonal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.ones_like(x)

    def seed(self, w: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], AbstractForm]:
        return w, self


class Spatial(AbstractForm):
    """`a = diag(1, ..., 1, 0)`: the Laplacian in all coordinates but the last, which is time."""

    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        return v.at[-1].set(0)

    def quadratic(self, w: Float[Array, "... d"]) -> Float[Array, "..."]:
        return jnp.sum(jnp.square(w[..., :-1]), axis=-1)

    def contract(self, hessian: Float[Array, "d d"]) -> Float[Array, ""]:
        return jnp.trace(hessian[:-1, :-1])

    def diagonal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.ones_like(x).at[-1].set(0)

    def seed(self, w: Float[Array, "n d"]) -> tuple[Float[Array, "n k"], AbstractForm]:
        return w[:, :-1], Identity()


class Factor(AbstractForm):
    """`a = sigma sigma'` for a `(d, k)` factor; a direction is a factor with one column.

    `spatial`: its last row, which is that of time, is known to be zero.
    """

    sigma: Float[Array, "d k"]
    spatial: bool = eqx.field(static=True, default=False)

    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.sigma @ (v @ self.sigma)

    def quadratic(self, w: Float[Array, "... d"]) -> Float[Array, "..."]:
        return jnp.sum(jnp.square(w @ self.sigma), axis=-1)

    def contract(self, hessian: Float[Array, "d d"]) -> Float[Array, ""]:
        return jnp.sum((hessian @ self.sigma) * self.sigma)

    def diagonal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.sum(jnp.square(self.sigma), axis=1)

    def seed(self, w: Float[Array, "n d"]) -> tuple[Float[Array, "n k"], AbstractForm]:
        return w @ self.sigma, Identity()


class Coordinates(AbstractForm):
    """`a = scale sum_j e_j e_j'` over some coordinates, which may repeat: a sample of the Laplacian."""

    chosen: Int[Array, " k"]
    scale: Float[Array, ""]

    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.zeros_like(v).at[self.chosen].add(self.scale * v[self.chosen])

    def quadratic(self, w: Float[Array, "... d"]) -> Float[Array, "..."]:
        return self.scale * jnp.sum(jnp.square(w[..., self.chosen]), axis=-1)

    def contract(self, hessian: Float[Array, "d d"]) -> Float[Array, ""]:
        return self.scale * jnp.sum(hessian[self.chosen, self.chosen])

    def diagonal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.zeros_like(x).at[self.chosen].add(self.scale)

    def seed(self, w: Float[Array, "n d"]) -> tuple[Float[Array, "n k"], AbstractForm]:
        return jnp.sqrt(self.scale) * w[:, self.chosen], Identity()


class Matrix(AbstractForm):
    """`a` as a full matrix; only its symmetric part counts. `spatial`: as of a `Factor`."""

    a: Float[Array, "d d"]
    spatial: bool = eqx.field(static=True, default=False)

    def apply(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        return 0.5 * (self.a @ v + v @ self.a)

    def quadratic(self, w: Float[Array, "... d"]) -> Float[Array, "..."]:
        return jnp.sum((w @ self.a) * w, axis=-1)

    def contract(self, hessian: Float[Array, "d d"]) -> Float[Array, ""]:
        return jnp.sum(self.a * hessian)

    def diagonal(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.diagonal(self.a)

    def seed(self, w: Float[Array, "n d"]) -> tuple[Float[Array, "n d"], AbstractForm]:
        return w, self


def with_time(form: AbstractForm) -> AbstractForm:
    """A form in the space coordinates as one in space and time, with nothing in time."""
    if isinstance(form, Identity):
        return Spatial()
    if isinstance(form, Factor):
        return Factor(jnp.pad(form.sigma, ((0, 1), (0, 0))), spatial=True)
    if isinstance(form, Matrix):
        return Matrix(jnp.pad(form.a, ((0, 1), (0, 1))), spatial=True)
    raise TypeError(f"{type(form).__name__} is no form of an equation's.")


def in_space(form: AbstractForm) -> bool:
    """Whether a form in space and time is known to have nothing in time, as those of equations."""
    return isinstance(form, Spatial) or (isinstance(form, Factor | Matrix) and form.spatial)


def without_time(
    form: AbstractForm, x: Float[Array, " d"]
) -> tuple[AbstractForm, Float[Array, " d"]]:
    """The part of a form in the space coordinates of the points `x`, and its column beside time."""
    if isinstance(form, Identity | Spatial):
        return Identity(), jnp.zeros_like(x)
    if isinstance(form, Factor):
        return Factor(form.sigma[:-1]), form.sigma[:-1] @ form.sigma[-1]
    whole = jax.vmap(form.apply)(jnp.eye(x.size + 1, dtype=x.dtype))
    return Matrix(whole[:-1, :-1]), whole[:-1, -1]
