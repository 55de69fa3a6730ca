"""The constant of an evolution equation, and what it makes of a residual.

For `L u = F - k u_t`, two functions with the same values where data are given, `v` their difference and `s`
the time since the data, the weight `m(s) = e^(-kappa s)` gives, integrated by parts in time,

    -<v, L u1 - L u2>_m >= (gamma_F + k kappa / 2) ||v||_m^2 + k/2 m(T) ||v(T)||^2,

with `gamma_F` the constant of `F` at every instant, which may be negative. So every equation that is
Lipschitz from one side has a positive constant `gamma = gamma_F + k kappa / 2`. As `m` lies between
`e^(-kappa T)` and 1 where `kappa >= 0`,

    ||v|| <= e^(kappa T / 2) ||L Q||_m / gamma,

and at the last instant, where `a b - gamma a^2 <= b^2 / (4 gamma)`,

    rms v(T) <= e^(kappa T / 2) sqrt(T / (2 k gamma)) sqrt(mean of m (L Q)^2).

`kappa` is chosen from the constants alone, before any point is drawn: where `L Q` has one size at all times
it makes the bound least.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Array

from .._problem.problem import Problem

# Exponents beyond which a bound says nothing, in a float or to a user.
_MOST = 600.0


class Weight(NamedTuple):
    """The weight `e^(-kappa s)` in time, the constant `gamma` under it, and the factor `k` of `u_t`."""

    kappa: float
    gamma: float
    rate: float
    end: float
    backward: bool

    @property
    def factor(self) -> float:
        """What bounds the error in L2 by the root of the mean of `m (L Q)^2`, with `m` at most 1."""
        return math.exp(0.5 * self.kappa * self.end) / self.gamma

    @property
    def last_factor(self) -> float:
        """The same for the error at the last instant."""
        return math.exp(0.5 * max(self.kappa, 0.0) * self.end) * math.sqrt(
            self.end / (2.0 * self.rate * self.gamma)
        )

    def __str__(self) -> str:
        if self.kappa == 0:
            return "no weight in time"
        return f"the weight exp({-self.kappa:.4g} s) in the time s since the data"

    def words(self, spatial: float) -> str:
        """How the weight was chosen."""
        if self.kappa == 0:
            return "at every instant; a weight in time would make the bound no better"
        return (
            f"{spatial:.4g} at every instant, and {self.gamma - spatial:.4g} from {self}, which makes the "
            "bound least where L Q has one size at all times"
        )

    def at(self, points: np.ndarray | Array) -> np.ndarray:
        """`m` at points of space-time, scaled to the maximum 1."""
        t = np.asarray(points)[..., -1]
        age = self.end - t if self.backward else t
        return np.exp(-self.kappa * (age - (self.end if self.kappa < 0 else 0.0)))


def weight_of(problem: Problem, gamma: float, *, last: bool = False) -> Weight | None:
    """The weight for a constant `gamma` of `F`; None where the growth is beyond all bounds.

    In L2 it makes `e^(kappa T / 2) / gamma` least among `kappa >= 0`, at the last instant
    `e^(kappa T / 2) / sqrt(gamma)` among all.
    """
    times = problem.domain.times
    if times is None:
        raise ValueError("This problem is stationary: it has no weight in time.")
    end, rate = float(times.end), float(problem.rate)
    new = 0.5 * rate / end if last else max(gamma, rate / end)
    kappa = 2.0 * (new - gamma) / rate
    if not abs(kappa) * end <= _MOST:
        if kappa > 0:
            return None
        kappa = -_MOST / end
        new = gamma + 0.5 * rate * kappa
    return Weight(kappa, new, rate, end, times.backward)


def growth_over(rate: float, killing: float, end: float) -> tuple[float, float]:
    """By how much a residual and errors of data may grow in the largest error, where `c >= killing`.

    The maximum principle: `k v_t <= F' v + |L Q|` gives `(1 - e^(-c T / k)) / c` and `e^(-c T / k)`, at most
    1 for data.
    """
    exponent = killing * end / rate
    if -exponent > _MOST:
        return math.inf, math.inf
    spread = end / rate if exponent == 0 else -math.expm1(-exponent) / killing
    return spread, math.exp(max(-exponent, 0.0))
