"""Closed surfaces around a centre, from which boundary values are carried inside along rays."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._precision import Numbers


class Sheet(eqx.Module):
    """The surface `|y| = 1`, `y = (x - centre) / axes`, and the factor `q` of the values it carries inside.

    With `rho = |y|`, `q = constant + linear rho + quartic rho^4`. The factors of all sheets of a domain
    are 1 on their own sheet and 0 on the others.
    """

    centre: Numbers
    axes: Numbers
    constant: float = eqx.field(static=True, converter=float)
    linear: float = eqx.field(static=True, converter=float)
    quartic: float = eqx.field(static=True, converter=float)

    def project(self, x: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        """The point of the surface on the ray through `x`; the direction `z = y / rho`; `rho`."""
        y = (x - self.centre) / self.axes
        # At the centre any direction will do: its factor is zero.
        start = jnp.zeros_like(y).at[0].set(1e-15)
        y = jnp.where(jnp.sum(y * y) > 1e-30, y, start)
        rho = jnp.sqrt(jnp.sum(y * y))
        return self.centre + self.axes * (y / rho), y / rho, rho

    def factor(self, rho: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """`q`, `q'`, `q''`."""
        return (
            self.constant + self.linear * rho + self.quartic * rho**4,
            self.linear + 4.0 * self.quartic * rho**3,
            12.0 * self.quartic * rho**2,
        )
