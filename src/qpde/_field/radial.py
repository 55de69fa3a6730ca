"""Functions of the distance from a point, with a Laplacian as cheap as a value."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._arguments import a_function, reals
from .._precision import Numbers, like
from .base import AbstractField
from .form import AbstractForm


class OfSquare(AbstractField):
    """`profile(|x - centre|^2)` with a function of one number.

        >>> OfSquare(lambda s: 1 / (2 + 0.4 * s), np.zeros(100))

    `a : Hess = 2 p' tr a + 4 p'' y' a y`, `y = x - centre`: two derivatives of one number in any dimension.
    """

    profile: Callable[..., Any]
    centre: Numbers

    def __init__(self, profile: Any, centre: Any):
        self.profile = a_function("profile", profile, "a function of one number, |x - centre|^2")
        self.centre = reals("centre", centre, "a point (d,)")
        if self.centre.ndim != 1:
            raise ValueError(f"centre must be a point (d,), got shape {self.centre.shape}.")

    def _square(self, x: Array) -> Array:
        y = x - self.centre
        return jnp.sum(y * y)

    def _at(self, s: Array) -> Array:
        return like(s, self.profile(s))

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self._at(self._square(x))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return 2.0 * jax.grad(self._at)(self._square(x)) * (x - self.centre)

    def _slopes(self, x: Array) -> tuple[Array, Array]:
        s = self._square(x)
        return jax.grad(self._at)(s), jax.grad(jax.grad(self._at))(s)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        first, second = self._slopes(x)
        bent = form.quadratic((x - self.centre)[None])[0]
        return 2.0 * first * jnp.sum(form.diagonal(x)) + 4.0 * second * bent

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        first, second = self._slopes(x)
        y = x - self.centre
        return 2.0 * first * jnp.eye(x.size, dtype=x.dtype) + 4.0 * second * jnp.outer(y, y)
