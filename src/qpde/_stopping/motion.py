"""How the state moves: Brownian motion with drift, or its exponential; both have exact laws."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import reals
from .._precision import Numbers


class _Motion(eqx.Module):
    """Drift and spread as they were given; their dimension is that of the start."""

    drift: Numbers
    sigma: Numbers

    def __repr__(self) -> str:
        parts = (f"{name}={_told(getattr(self, name))}" for name in ("drift", "sigma"))
        return f"{type(self).__name__}({', '.join(parts)})"

    def parts(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """The drift `(d,)` and the matrix `(d, d)` in dimension `dim`."""
        if self.drift.shape not in ((), (dim,)):
            raise ValueError(
                f"drift must be a number or have shape ({dim},), got {self.drift.shape}."
            )
        if self.sigma.shape not in ((), (dim,), (dim, dim)):
            raise ValueError(
                f"sigma must be a number, {dim} numbers or a ({dim}, {dim}) matrix, got shape "
                f"{self.sigma.shape}."
            )
        matrix = self.sigma if self.sigma.ndim == 2 else np.diag(np.broadcast_to(self.sigma, dim))
        sizes = np.linalg.svd(matrix, compute_uv=False)
        if sizes[-1] <= 1e-12 * sizes[0]:
            raise ValueError(
                "sigma must be invertible: a direction without noise has no Brownian motion to stop on. "
                "Leave out what moves without noise or is a function of the rest."
            )
        return np.broadcast_to(self.drift, dim).astype(np.float64), np.asarray(matrix, np.float64)


def _told(number: np.ndarray) -> str:
    return f"{number:g}" if number.ndim == 0 else f"array{number.shape}"


class LogNormal(_Motion):
    """Prices: `dX_i = X_i (drift_i dt + (sigma dW)_i)`, at positive points.

        >>> LogNormal(drift=0.05 - 0.10, sigma=0.2)

    `drift` is a number or one for each price; `sigma` too, or a matrix, whose rows hold the
    correlations.
    """

    def __init__(self, *, drift: Any = 0.0, sigma: Any):
        self.drift, self.sigma = reals("drift", drift), reals("sigma", sigma)


class Gaussian(_Motion):
    """Brownian motion with drift: `dX = drift dt + sigma dW`.

    >>> Gaussian(drift=0.1, sigma=np.eye(3))
    """

    def __init__(self, *, drift: Any = 0.0, sigma: Any):
        self.drift, self.sigma = reals("drift", drift), reals("sigma", sigma)


class Frame(eqx.Module):
    """States as functions of the time and of a Brownian motion `B`, which is where they are in the frame.

    `X_t = origin + speed t + factor B_t`, or the exponential of that (`prices`).
    """

    origin: Numbers
    speed: Numbers
    factor: Numbers
    inverse: Numbers
    prices: bool = eqx.field(static=True)

    @classmethod
    def of(cls, motion: _Motion, starts: np.ndarray) -> "Frame":
        """The frame around the mean of some starts `(n, d)`."""
        drift, factor = motion.parts(starts.shape[1])
        prices = isinstance(motion, LogNormal)
        if prices and np.any(starts <= 0):
            raise ValueError("Prices that move by LogNormal start at positive numbers.")
        origin = np.mean(np.log(starts) if prices else starts, axis=0)
        speed = drift - 0.5 * np.sum(factor**2, axis=1) if prices else drift
        return cls(origin, speed, factor, np.linalg.inv(factor), prices)

    @property
    def dim(self) -> int:
        """The dimension of the state."""
        return self.origin.size

    def level(self, t: Any, b: Any) -> Float[Array, " d"]:
        """The state, or the logarithm of prices."""
        return self.origin + self.speed * t + self.factor @ b

    def place(self, t: Any, b: Any) -> Float[Array, " d"]:
        """The state at the time `t` where the Brownian motion is at `b`."""
        level = self.level(t, b)
        return jnp.exp(level) if self.prices else level

    def position(self, t: Any, x: Any) -> Float[Array, " d"]:
        """Where the Brownian motion is at the time `t` if the state is `x`."""
        level = jnp.log(x) if self.prices else x
        return self.inverse @ (level - self.origin - self.speed * t)
