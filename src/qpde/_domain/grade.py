"""Coordinates of a box that are finer where diffusion is small.

With `u` a coordinate scaled to (0, 1) and `r` how many times as large the root of the diffusion along it is
at the upper end as at the lower one,

    s = log(1 + k u) / log(1 + k),   k = r - 1,

in which a diffusion whose root is linear in `u` is constant: logarithms for prices. `s` runs through (0, 1).
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._precision import Numbers

# The largest ratio that is followed, and the smallest that is: below it a coordinate is as good as ungraded.
_STEEPEST, _LEAST = 100.0, 1.02


class Grade(eqx.Module):
    """The graded coordinates of a box, by the ratios `r`, one an axis."""

    lower: Numbers
    upper: Numbers
    ratio: Numbers

    def __init__(self, lower: Numbers, upper: Numbers, ratio: np.ndarray):
        self.lower, self.upper = np.asarray(lower), np.asarray(upper)
        held = np.clip(ratio, 1.0 / _STEEPEST, _STEEPEST)
        near = (held < _LEAST) & (held > 1.0 / _LEAST)  # the formula divides by log r
        self.ratio = np.where(near, _LEAST, held)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """`s`."""
        return jnp.log1p(self._grown(x)) / jnp.log(self.ratio)

    def slope(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """`ds_i / dx_i`."""
        k = self.ratio - 1.0
        return k / ((self.upper - self.lower) * jnp.log(self.ratio) * (1.0 + self._grown(x)))

    def bend(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """The second derivatives."""
        k = self.ratio - 1.0
        return -self.slope(x) * k / ((self.upper - self.lower) * (1.0 + self._grown(x)))

    def _grown(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return (self.ratio - 1.0) * (x - self.lower) / (self.upper - self.lower)
