"""Stopping: the perpetual American put as an equation, and problems with dates and published values."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import real, whole
from .._domain.base import as_dimension
from .._domain.box import Interval
from .._field.jet import Jet
from .._precision import Numbers
from .._problem.problem import Problem
from .._stopping.motion import LogNormal
from .._stopping.problem import Stopping
from ._recipe import recorded

# Becker, Cheridito and Jentzen, Deep optimal stopping, JMLR 20 (2019), table 1: by dimension and start the
# lower bound, the upper bound, the point estimate and the 95 % interval; nine dates after 0.
MAX_CALL: dict[tuple[int, int], tuple[float, float, float, float, float]] = {
    (2, 90): (8.072, 8.075, 8.074, 8.060, 8.081),
    (2, 100): (13.895, 13.903, 13.899, 13.880, 13.910),
    (2, 110): (21.353, 21.346, 21.349, 21.336, 21.354),
    (3, 90): (11.290, 11.283, 11.287, 11.276, 11.290),
    (3, 100): (18.690, 18.691, 18.690, 18.673, 18.699),
    (3, 110): (27.564, 27.581, 27.573, 27.545, 27.591),
    (5, 90): (16.648, 16.640, 16.644, 16.633, 16.648),
    (5, 100): (26.156, 26.162, 26.159, 26.138, 26.174),
    (5, 110): (36.766, 36.777, 36.772, 36.745, 36.789),
    (10, 90): (26.208, 26.272, 26.240, 26.189, 26.289),
    (10, 100): (38.321, 38.353, 38.337, 38.300, 38.367),
    (10, 110): (50.857, 50.914, 50.886, 50.834, 50.937),
    (20, 90): (37.701, 37.903, 37.802, 37.681, 37.942),
    (20, 100): (51.571, 51.765, 51.668, 51.549, 51.803),
    (20, 110): (65.494, 65.762, 65.628, 65.470, 65.812),
}


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


class _MaxCall(eqx.Module):
    """`(max x - strike)^+`."""

    strike: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.maximum(jnp.max(x) - self.strike, 0.0)


class _Put(eqx.Module):
    """`(strike - x)^+`."""

    strike: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.maximum(self.strike - x[0], 0.0)


def bermudan_max_call(
    dim: int = 2, *, start: float = 100.0, time: float = 3.0, dates: int = 9
) -> Stopping:
    """The Bermudan max-call: the best of some independent prices over 100, at one of ten dates.

    `dX_i = X_i (-0.05 dt + 0.2 dW_i)` (a rate of 0.05 less dividends of 0.10), payoff `(max X - 100)^+`,
    discounted at 0.05, at the dates `0, time/dates, ..., time`. `zoo.MAX_CALL` has published values for
    the default dates.

    Source: Andersen and Broadie, Management Science 50 (2004); Becker, Cheridito and Jentzen, JMLR 20 (2019).
    """
    last = float(real("time", time, above=0.0))
    return Stopping(
        payoff=_MaxCall(np.asarray(100.0)),
        motion=LogNormal(drift=0.05 - 0.10, sigma=0.2),
        start=np.full(as_dimension(dim), float(real("start", start, above=0.0))),
        discount=0.05,
        dates=np.linspace(0.0, last, whole("dates", dates, least=1) + 1),
    )


def put_in_time(
    start: object = 1.0,
    *,
    time: float = 1.0,
    strike: float = 1.0,
    rate: float = 0.05,
    volatility: float = 0.25,
) -> Stopping:
    """The American put on one price without dividends, at any time up to `time`.

    `start` is one price or an array of them.
    """
    prices = np.atleast_1d(np.asarray(start, np.float64))
    return Stopping(
        payoff=_Put(real("strike", strike, above=0.0)),
        motion=LogNormal(drift=real("rate", rate), sigma=real("volatility", volatility, above=0.0)),
        start=prices[:, None] if prices.size > 1 else prices,
        discount=rate,
        time=time,
    )
