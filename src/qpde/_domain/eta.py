"""The factors `eta` that vanish on the boundary of a domain, as fields with closed-form derivatives."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._field.base import AbstractField, Autodiff
from .._field.form import AbstractForm, Identity
from .._precision import Numbers


class AbstractRadial(AbstractField):
    """A field whose gradient points to or from a centre: `slope(x) (x - centre)`.

    A shallow network knows its derivative in that direction from its own evaluation, which spares the
    product rule a product of matrices.
    """

    centre: eqx.AbstractVar[Numbers]

    @abstractmethod
    def slope(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The factor of `x - centre` in the gradient."""

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.slope(x) * (x - self.centre)


class Sphere(AbstractRadial):
    """`1 - |x - centre|^2 / radius^2`."""

    centre: Numbers
    radius: Numbers

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        y = (x - self.centre) / self.radius
        return 1.0 - jnp.sum(y * y)

    def slope(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.asarray(-2.0 / self.radius**2, x.dtype)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return -2.0 * jnp.sum(form.diagonal(x)) / self.radius**2

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return -2.0 / self.radius**2 * jnp.eye(x.size, dtype=x.dtype)


class Quadric(AbstractField):
    """`1 - sum ((x - centre)_i / axes_i)^2`."""

    centre: Numbers
    axes: Numbers

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        y = (x - self.centre) / self.axes
        return 1.0 - jnp.sum(y * y)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return -2.0 * (x - self.centre) / (self.axes * self.axes)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return -2.0 * jnp.sum(form.diagonal(x) / (self.axes * self.axes))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jnp.diag(-2.0 / (self.axes * self.axes) * jnp.ones_like(x))


class Shell(AbstractRadial):
    """The function with constant Laplacian that vanishes on two spheres, scaled to the maximum 1.

    `(outer^2 - r^2 - (outer^2 - inner^2) h) / c`, `r = |x - centre|`, where `h(r)` is harmonic, 1 on the
    inner sphere and 0 on the outer: `h = (r^-p - outer^-p) / (inner^-p - outer^-p)`, `p = d - 2` (the
    logarithm in d = 2). Like the `eta` of a ball it is the mean exit time of Brownian motion, up to a
    factor. It has the layer of width `inner / d` at the inner sphere that solutions have, so that the
    network need not.
    """

    centre: Numbers
    inner: Numbers
    outer: Numbers

    def _radial(self, x: Float[Array, " d"]) -> tuple[Array, Array, Array, Array]:
        """The unit vector, and `g'(r) / r`, `g''(r) - g'(r) / r`, `g(r)`."""
        y = x - self.centre
        r = jnp.sqrt(jnp.sum(y * y))
        d = x.size
        whole = jnp.log(self.outer / self.inner)
        gap = self.outer**2 - self.inner**2
        # -h' = steepest (inner / r)^p / r.
        steepest = (d - 2) / -jnp.expm1((2 - d) * whole) if d != 2 else 1.0 / whole

        def height(r: Array) -> Array:
            t = jnp.log(r / self.inner)
            left = -jnp.expm1((2 - d) * (whole - t)) / (d - 2) if d != 2 else whole - t
            h = jnp.exp((2 - d) * t) * steepest * left
            return (self.outer - r) * (self.outer + r) - gap * h

        # The maximum is where 2 r = gap steepest (inner / r)^p / r.
        top = self.inner * (0.5 * gap * steepest / self.inner**2) ** (1.0 / d)
        c = height(top)
        decay = jnp.exp((2 - d) * jnp.log(r / self.inner))
        steepness = (gap * steepest * decay / (r * r) - 2.0) / c
        # The Laplacian g'' + (d - 1) g' / r is -2 d / c.
        return y / r, steepness, -d * (2.0 / c + steepness), height(r) / c

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self._radial(x)[3]

    def slope(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self._radial(x)[1]

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        unit, round_, along, _ = self._radial(x)
        return round_ * jnp.sum(form.diagonal(x)) + along * form.quadratic(unit)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        unit, round_, along, _ = self._radial(x)
        return round_ * jnp.eye(x.size, dtype=x.dtype) + along * jnp.outer(unit, unit)


class Faces(AbstractField):
    """`prod_i (1 - y_i^(2 m))`, `y = (x - centre) / half`."""

    centre: Numbers
    half: Numbers
    m: int = eqx.field(static=True)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        y = (x - self.centre) / self.half
        return jnp.prod(1.0 - y ** (2 * self.m))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        y = (x - self.centre) / self.half
        m = 2 * self.m
        return -m * y ** (m - 1) / self.half * others(1.0 - y**m)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if not isinstance(form, Identity):  # mixed derivatives, by automatic differentiation
            return Autodiff(self.value).trace(x, form)
        y = (x - self.centre) / self.half
        m = 2 * self.m
        second = -m * (m - 1) * y ** (m - 2) / (self.half * self.half)
        return jnp.sum(second * others(1.0 - y**m))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.jacfwd(self.grad)(x)


def others(factors: Float[Array, " d"]) -> Float[Array, " d"]:
    """The product of all the other factors, without division (a factor may be zero)."""
    one = jnp.ones((1,), factors.dtype)
    before = jnp.cumprod(jnp.concatenate([one, factors[:-1]]))
    after = jnp.cumprod(jnp.concatenate([one, factors[:0:-1]]))[::-1]
    return before * after
