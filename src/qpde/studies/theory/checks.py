"""Checks of the theory: a statement, the number that was measured for it, and whether it holds."""

import dataclasses
from typing import Any

import numpy as np
import scipy.stats


@dataclasses.dataclass(frozen=True)
class Check:
    """A statement of the theory, checked; one line of the page's table."""

    id: str
    statement: str
    theory: str  # the number or sign that the theory predicts
    measured: str  # the quantity whose number is `value`
    value: float
    holds: bool
    why: str
    low: float | None = None  # the ends of a 95 % confidence interval, where there is one
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Rate:
    """A power `constant x^slope` fitted to data, with the ends of the slope's 95 % confidence interval."""

    slope: float
    low: float
    high: float
    constant: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The fitted power at `x`."""
        return self.constant * np.asarray(x) ** self.slope


def fit(x: np.ndarray, y: np.ndarray) -> Rate:
    """The power of `x` that fits `y` best, by least squares in the logarithms."""
    found: Any = scipy.stats.linregress(np.log(x), np.log(y))
    reach = scipy.stats.t.ppf(0.975, len(x) - 2) * found.stderr
    return Rate(
        float(found.slope),
        float(found.slope - reach),
        float(found.slope + reach),
        float(np.exp(found.intercept)),
    )
