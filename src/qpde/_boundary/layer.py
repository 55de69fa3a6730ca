"""The layer of an evolution problem whose initial and boundary data differ where they meet.

`w = u0 - g` at the instant of the data does not vanish on the boundary. No function that is continuous has
both values; the solution has them through a layer of width `sqrt(a s)` at the time `s`, `a` the diffusion.
On a box the faces multiply, `w prod erf(z)` with `z = phi / (2 sqrt(a s))` and `phi` the distance to a face,
and a slope `w'` of `w` into the box adds `phi w' erfc(z)`.

**On a ball** of radius `R` the Laplacian drifts outwards, along the distance by `a kappa`, next to the sphere
`kappa = -(d - 1) / R`, and in high dimension that is as strong as the diffusion. With a constant drift the
chance not to have reached zero from `psi` is

    B = (erfc(m - z) - e^(4 z m) erfc(m + z)) / 2,   z = psi / (2 sqrt(a s)),   m = -kappa sqrt(a s) / 2.

Distance is not smooth at the centre; `psi = phi + phi^2 / (2 R)` with `phi = (R^2 - r^2) / (2 R)` is, and

    |grad psi|^2 = 1 - 3 phi^2 / R^2 + ...,   Lap psi = kappa - (d + 2) phi / R^2 + ... .

Both differences leave terms of the size of the layer's width over `R`. With `B_psi = e^(-z^2)/sqrt(pi a s)`,
which it nearly is, these are `a B_psi psi (-(d + 2) + 3 psi^2 / (2 a s)) / R^2`, and

    psi B_psi (psi^2 - (d - 1) a s) / (2 R^2)

takes them away: the values of `y_s - a y''` at `s z e^(-z^2)` and `s z^3 e^(-z^2)` are `2 z e^(-z^2)` and
`(3 z^3 - 3 z / 2) e^(-z^2)`. What is left is of the next order whether `psi^2` or, along the path of the
drift, `psi (psi + a kappa s)` stands there; the latter leaves less where the layer is wide. A slope of `w`
adds `psi w' (1 - B)`. So `L f` is bounded, as bounds for the error need, and small at the edge where `w` is
constant.
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
# Beyond so many widths a layer has ended: erfc(12) = 1e-64.
_FAR = 12.0


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
        psi = phi + 0.5 * phi * phi / radius
        kappa, spread = (1.0 - x.size) / radius, 0.25 * width * width  # spread: a s
        value, slope = _survival(psi / width, -0.25 * kappa * width)
        bent = psi * (psi + kappa * spread) + radius * kappa * spread
        value = value + 0.5 * slope * bent / (radius * radius)
        w, along = jax.jvp(self.gap, (x,), (-y / radius,))
        return w * value + psi * along * (1.0 - value)

    def _box(self, x: Array, width: Array) -> Array:
        lower, upper = self.domain.enclosing_box
        phi = jnp.concatenate([x - lower, upper - x])
        erf = jax.lax.erf(phi / width)
        w, grad = jax.value_and_grad(self.gap)(x)
        slopes = jnp.concatenate([grad, -grad])
        beside = others(erf)
        return w * jnp.prod(erf) + jnp.sum(slopes * phi * (1.0 - erf) * beside)


def _survival(z: Array, m: Array) -> tuple[Array, Array]:
    """`B` of the head of this file, and `z` times its derivative in `z`."""
    z = jnp.minimum(z, m + _FAR)
    tail = jnp.exp(4.0 * z * m + jax.scipy.special.log_ndtr(-math.sqrt(2.0) * (z + m)))
    value = 0.5 * (1.0 + jax.lax.erf(z - m)) - tail
    steep = 2.0 / math.sqrt(math.pi) * jnp.exp(-((z - m) ** 2)) - 4.0 * m * tail
    return value, z * steep


def has_layer(domain: AbstractDomain) -> bool:
    """Whether a layer is known for a domain: on boxes and balls."""
    return domain.fills_box or (domain.round is not None and domain.round.is_ball)
