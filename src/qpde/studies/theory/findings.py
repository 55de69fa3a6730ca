"""What an experiment found: a statement, what the theory says, what was measured, and whether it holds."""

import dataclasses
from typing import Any

import numpy as np
import scipy.stats


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the page's table. `low` and `high` are the ends of a 95 % confidence interval, or None."""

    id: str
    statement: str
    theory: str
    measured: str
    value: float
    holds: bool
    why: str
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass(frozen=True)
class Rate:
    """The slope of a straight line through logarithms, with the ends of its 95 % interval."""

    slope: float
    low: float
    high: float
    constant: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The fitted power."""
        return self.constant * np.asarray(x) ** self.slope


def fit(x: np.ndarray, y: np.ndarray) -> Rate:
    """The power that fits `y` best in the logarithms, by least squares."""
    found: Any = scipy.stats.linregress(np.log(x), np.log(y))
    reach = scipy.stats.t.ppf(0.975, len(x) - 2) * found.stderr
    return Rate(
        float(found.slope),
        float(found.slope - reach),
        float(found.slope + reach),
        float(np.exp(found.intercept)),
    )
