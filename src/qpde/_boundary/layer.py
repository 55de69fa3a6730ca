"""The layer of an evolution problem whose initial and boundary data differ where they meet.

`w = u0 - g` at the instant of the data does not vanish on the boundary. No function that is continuous has
both values; the solution has them through a layer of width `sqrt(a s)` at the time `s`, `a` the diffusion.
With `phi` zero on a face of the boundary, `|grad phi| = 1` there, and `z = phi / (2 sqrt(a s))`,

    w erf(z)

is 0 on the face, `w` at the beginning, and satisfies `f_s = a Lap f` up to terms of size `s^(-1/2)`. These
are taken away by the next order. With `|grad phi|^2 = 1 + beta phi` and `kappa = Lap phi` on the face they
are `(a / s)^(1/2) (w kappa / 2 + grad w . grad phi - beta w z^2) erf'(z)`, and with `y` solving
`y'' + 2 z y' - 2 y = source`, `erfc` and `z^2 erf'(z)` give

    phi [ (w (kappa - beta / 2) / 2 + grad w . grad phi) erfc(z) - beta w z erf'(z) / 4 ].

So `L f` is bounded, as bounds for the error need. A ball of radius `R` has `phi = (R^2 - r^2) / (2 R)`,
`beta = -2 / R`, `kappa = -d / R`. On a box the faces multiply: at edges the product of `erf`s solves it.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._domain.base import AbstractDomain
from .._domain.eta import others
from .._precision import Numbers

# Added to the time, so that the width has a derivative at its beginning.
_TINY = 1e-30


class Layer(eqx.Module):
    """`w` times a layer, as a function of a point and the time since the data."""

    domain: AbstractDomain
    gap: Callable[..., Array]
    diffusion: Numbers

    def __call__(self, x: Float[Array, " d"], age: Float[Array, ""]) -> Float[Array, ""]:
        width = 2.0 * jnp.sqrt(self.diffusion * (age + _TINY))
        if self.domain.fills_box:
            return self._box(x, width)
        return self._ball(x, width)

    def _ball(self, x: Array, width: Array) -> Array:
        centre, radius = self.domain.enclosing_ball
        y = x - centre
        phi = 0.5 * (radius - jnp.dot(y, y) / radius)
        z = phi / width
        w, slope = jax.jvp(self.gap, (x,), (-y / radius,))
        bent = w * (1.0 - x.size) / (2.0 * radius) + slope
        inner = w * z * _slope(z) / (2.0 * radius)
        return w * jax.lax.erf(z) + phi * (bent * (1.0 - jax.lax.erf(z)) + inner)

    def _box(self, x: Array, width: Array) -> Array:
        lower, upper = self.domain.enclosing_box
        phi = jnp.concatenate([x - lower, upper - x])
        erf = jax.lax.erf(phi / width)
        w, grad = jax.value_and_grad(self.gap)(x)
        slopes = jnp.concatenate([grad, -grad])
        beside = others(erf)
        return w * jnp.prod(erf) + jnp.sum(slopes * phi * (1.0 - erf) * beside)


def _slope(z: Array) -> Array:
    """`erf'`."""
    return 2.0 / math.sqrt(math.pi) * jnp.exp(-z * z)


def has_layer(domain: AbstractDomain) -> bool:
    """Whether a layer is known for a domain: on boxes and balls."""
    return domain.fills_box or (domain.round is not None and domain.round.is_ball)
