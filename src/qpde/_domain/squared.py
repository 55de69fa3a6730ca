"""Factors for two conditions at the boundary: squares of `eta`, products of sines, cosine coordinates."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._field.base import AbstractField
from .._field.form import AbstractForm, Factor, Identity
from .._precision import Numbers
from .eta import AbstractRadial, Sphere, others


def squared(eta: AbstractField) -> AbstractField:
    """`eta^2`, which vanishes on the boundary with its gradient."""
    if isinstance(eta, Sphere):
        return SquaredSphere(eta.centre, eta.radius)
    return Squared(eta)


class SquaredSphere(AbstractRadial):
    """`(1 - s / radius^2)^2`, `s = |x - centre|^2`, with all derivatives in closed form."""

    centre: Numbers
    radius: Numbers

    def _parts(self, x: Float[Array, " d"]) -> tuple[Array, Array, Array, Array]:
        """`x - centre`, the root of the value, and the value's first and second derivative in `s`."""
        y = x - self.centre
        scale = jnp.asarray(1.0 / self.radius**2, x.dtype)
        root = 1.0 - scale * jnp.sum(y * y)
        return y, root, -2.0 * scale * root, 2.0 * scale * scale

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.square(self._parts(x)[1])

    def slope(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return 2.0 * self._parts(x)[2]

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        y, _, first, second = self._parts(x)
        return 2.0 * first * jnp.sum(form.diagonal(x)) + 4.0 * second * form.quadratic(y)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        y, _, first, second = self._parts(x)
        return 2.0 * first * jnp.eye(x.size, dtype=x.dtype) + 4.0 * second * jnp.outer(y, y)

    def hessian_parts(self, x: Float[Array, " d"]) -> list[tuple[Any, AbstractForm]]:
        y, _, first, second = self._parts(x)
        return [(2.0 * first, Identity()), (4.0 * second, Factor(y[:, None]))]

    def laplacian_grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        # The Laplacian is 2 d first + 4 s second, and the derivative of first is second.
        y, _, _, second = self._parts(x)
        return (4.0 * x.size + 8.0) * second * y

    def bilaplacian(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return (4.0 * x.size + 8.0) * x.size * self._parts(x)[3]


class Squared(AbstractField):
    """The square of a field; derivatives of fourth order by automatic differentiation of its Laplacian."""

    root: AbstractField

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.square(self.root.value(x))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return 2.0 * self.root.value(x) * self.root.grad(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        slope = self.root.grad(x)
        return 2.0 * (self.root.value(x) * self.root.trace(x, form) + form.quadratic(slope))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        slope = self.root.grad(x)
        return 2.0 * (self.root.value(x) * self.root.hessian(x) + jnp.outer(slope, slope))


class Sines(AbstractField):
    """`prod_i sin(pi t_i)`, `t` from 0 to 1 across a box: it and its Laplacian vanish on the faces."""

    lower: Numbers
    lengths: Numbers

    def _parts(self, x: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        """Wave numbers, sines and cosines."""
        k = jnp.asarray(jnp.pi / self.lengths, x.dtype)
        return k, jnp.sin(k * (x - self.lower)), jnp.cos(k * (x - self.lower))

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.prod(self._parts(x)[1])

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        k, sines, cosines = self._parts(x)
        return k * cosines * others(sines)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if isinstance(form, Identity):
            return -jnp.sum(self._parts(x)[0] ** 2) * self.value(x)
        return form.contract(self.hessian(x))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        k, sines, cosines = self._parts(x)
        identity = jnp.eye(x.size, dtype=x.dtype)
        # Row i: the sines, with the cosine in place i; the product of all but the entry j.
        once = jnp.where(identity > 0, cosines[None, :], sines[None, :])
        products = jnp.stack([others(row) for row in once])
        mixed = k[:, None] * (k * cosines)[None, :] * products * (1.0 - identity)
        return mixed - identity * (k * k * self.value(x))[None, :]

    def laplacian_grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return -jnp.sum(self._parts(x)[0] ** 2) * self.grad(x)

    def bilaplacian(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.sum(self._parts(x)[0] ** 2) ** 2 * self.value(x)


class Cosines(eqx.Module):
    """Coordinates of a box that go across it as `cos(pi t)` does: their normal derivatives vanish on
    faces.
    """

    lower: Numbers
    lengths: Numbers

    def __call__(self, x: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        """The coordinates, inside the same box, and the first and second derivative of each in its `x_i`."""
        k = jnp.asarray(jnp.pi / self.lengths, x.dtype)
        half = jnp.asarray(0.5 * self.lengths, x.dtype)
        z = k * (x - self.lower)
        y = self.lower + half * (1.0 - jnp.cos(z))
        return y, half * k * jnp.sin(z), half * k * k * jnp.cos(z)


class Moved(AbstractField):
    """A field in other coordinates, `inner(coordinates(x))`."""

    inner: AbstractField
    coordinates: Cosines

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.inner.value(self.coordinates(x)[0])

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        y, first, _ = self.coordinates(x)
        return first * self.inner.grad(y)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if not isinstance(form, Identity):
            return form.contract(self.hessian(x))
        y, first, second = self.coordinates(x)
        return self.inner.trace(y, Factor(jnp.diag(first))) + jnp.dot(second, self.inner.grad(y))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        y, first, second = self.coordinates(x)
        bent = self.inner.hessian(y) * first[:, None] * first[None, :]
        return bent + jnp.diag(second * self.inner.grad(y))
