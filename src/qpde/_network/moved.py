"""A shallow network in coordinates that move along the axes, with derivatives of fourth order in closed form.

With `z = sum_i w_i g_i(x_i) + b` and sums over `i`,

    Z = sum w g'',  G = sum w^2 g'^2,  B = sum w^2 g' g''',  C = sum w^2 g''^2,  D = sum w^3 g'^2 g'',
    Lap s(z) = s1 Z + s2 G,
    Lap^2 s(z) = s1 sum w g'''' + s2 (Z^2 + 4 B + 2 C) + s3 (2 Z G + 4 D) + s4 G^2.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._domain.squared import Cosines, Moved
from .._field.form import AbstractForm, Identity
from .shallow import ShallowField


class MovedShallowAt:
    """A shallow network in the coordinates of a box at one point."""

    def __init__(self, field: ShallowField, coordinates: Cosines, x: Float[Array, " d"]):
        self._plain, self._x = Moved(field, coordinates), x
        y, first, second = coordinates(x)
        k = jnp.asarray(jnp.pi / coordinates.lengths, x.dtype)
        self._g = first, second, -k * k * first, -k * k * second
        self._w, self._c = field.frame.slopes(field.w.T), field.factor.array * field.c
        z = field.frame(y) @ field.w + field.b
        # Derivatives that nobody asks for are removed by the compiler.
        self._s = field.activation.derivatives(z, 4)
        self._polynomial, self._half = field.polynomial, field.frame.half.array
        self._xi = field.frame(y)

    def value(self) -> Float[Array, ""]:
        return self._plain.value(self._x)

    def grad(self) -> Float[Array, " d"]:
        return self._plain.grad(self._x)

    def hessian(self) -> Float[Array, "d d"]:
        return self._plain.hessian(self._x)

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        if not isinstance(form, Identity):
            return form.contract(self.hessian())
        g1, g2, _, _ = self._g
        z, g = self._sums()
        slope, bend = self._bends()
        polynomial = jnp.sum(slope * g2 + bend * g1 * g1)
        return jnp.dot(self._c, self._s[1] * z + self._s[2] * g) + polynomial

    def laplacian_grad(self) -> Float[Array, " d"]:
        g1, g2, g3, _ = self._g
        _, s1, s2, s3, _ = self._s
        w, (z, g) = self._w, self._sums()
        along = (self._c * (s2 * z + s3 * g)) @ w * g1
        straight = (self._c * s1) @ w * g3 + 2.0 * ((self._c * s2) @ (w * w)) * g1 * g2
        slope, bend = self._bends()
        return along + straight + slope * g3 + 3.0 * bend * g1 * g2

    def bilaplacian(self) -> Float[Array, ""]:
        g1, g2, g3, g4 = self._g
        _, s1, s2, s3, s4 = self._s
        w, (z, g) = self._w, self._sums()
        b, c = (w * w) @ (g1 * g3), (w * w) @ (g2 * g2)
        d = (w * w * w) @ (g1 * g1 * g2)
        hidden = s1 * (w @ g4) + s2 * (z * z + 4.0 * b + 2.0 * c)
        hidden = hidden + s3 * (2.0 * z * g + 4.0 * d) + s4 * g * g
        slope, bend = self._bends()
        polynomial = jnp.sum(slope * g4 + bend * (4.0 * g1 * g3 + 3.0 * g2 * g2))
        return jnp.dot(self._c, hidden) + polynomial

    def _sums(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """`Z` and `G` of every unit."""
        g1, g2, _, _ = self._g
        return self._w @ g2, (self._w * self._w) @ (g1 * g1)

    def _bends(self) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """First and second derivatives of the polynomial in each coordinate `y_i`."""
        p = self._polynomial
        if p is None:
            return jnp.zeros_like(self._x), jnp.zeros_like(self._x)
        return p.grad(self._xi) / self._half, 2.0 * p.curvature / self._half**2
