"""Stopping: the perpetual American put."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._domain.base import as_dimension
from .._domain.box import Interval
from .._field.jet import Jet
from .._precision import Numbers
from .._problem.problem import Problem
from ._recipe import recorded


class _PutEquation(eqx.Module):
    """`max(1/2 volatility^2 x^2 u'' + rate x u' - rate u, (strike - x)^+ - u)`."""

    strike: Numbers
    rate: Numbers
    volatility: Numbers

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        s = x[0]
        held = u.generator(self.rate * x, self.volatility * s) - self.rate * u.value
        return jnp.maximum(held, jnp.maximum(self.strike - s, 0.0) - u.value)


class _PutSolution(eqx.Module):
    """`strike - x` up to the free boundary, then `(strike - free) (x / free)^-power`."""

    strike: Numbers
    free: Numbers
    power: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        s = jnp.maximum(x[0], self.free)
        held = (self.strike - self.free) * (s / self.free) ** -self.power
        return jnp.where(x[0] > self.free, held, self.strike - x[0])


class _Straight(eqx.Module):
    """The line through two values, at 0 and at 1."""

    left: Numbers
    right: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.left + (self.right - self.left) * x[0]


@recorded
def american_put(
    dim: int = 1, *, strike: float = 0.5, rate: float = 0.05, volatility: float = 0.25
) -> Problem:
    """The perpetual American put, an obstacle problem with a free boundary.

    `max(1/2 volatility^2 x^2 u'' + rate x u' - rate u, (strike - x)^+ - u) = 0` in (0, 1), with the
    exact values at both ends. With `m = 2 rate / volatility^2` one exercises below
    `strike m / (1 + m)` (0.307692 by default); all coefficients vanish at `x = 0`.

    Source: the notebooks beside Cohen, Jiang and Sirignano, JMLR 24 (2023).
    """
    if as_dimension(dim) != 1:
        raise ValueError(f"american_put is defined in dimension 1, got {dim}.")
    numbers = {"strike": strike, "rate": rate, "volatility": volatility}
    for name, number in numbers.items():
        if not (np.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be a positive number, got {number}.")
    if strike >= 1:
        raise ValueError(f"strike must lie inside the domain (0, 1), got {strike}.")
    power = 2.0 * rate / volatility**2
    exact = _PutSolution(*(np.asarray(v) for v in (strike, strike * power / (1 + power), power)))
    return Problem(
        domain=Interval(0.0, 1.0),
        equation=_PutEquation(*(np.asarray(v, np.float64) for v in numbers.values())),
        boundary=_Straight(
            np.asarray(strike), np.asarray((exact.strike - exact.free) * exact.free**exact.power)
        ),
        exact=exact,
        name="american_put",
    )
