"""From walks to values with confidence intervals: what the walks show, and how many more are needed."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.special import stdtrit

from ._pool import Ledger, Payoff, Scheme, run

# Walks from every point before an accuracy is judged, and at most.
PILOT, MOST = 128, 1_000_000


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Values of the solution of a linear problem at points, with confidence intervals.

    `low` and `high` are `value -+ (quantile * standard_error + bias)`: each interval holds with the given
    confidence (asymptotically: the mean over the walks is taken as normal). `bias` bounds or estimates
    the systematic error, `bias_source` says how. `walks` are the walks from every point (with both time
    steps, where there are two), `work` the steps of all. `corrected`: a network served as control
    variate. `reached`: whether every half-width is at most `accuracy` times the root mean square of
    the values; None where no accuracy was asked for.
    """

    points: np.ndarray
    value: np.ndarray
    standard_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    confidence: float
    bias: np.ndarray
    bias_source: str
    walks: np.ndarray
    work: int
    seconds: float
    method: str
    corrected: bool
    reached: bool | None

    def __repr__(self) -> str:
        half = 0.5 * (self.high - self.low)
        size = _rms(self.value)
        relative = f"{_rms(half) / size:.2g} of the rms value" if size > 0 else f"{_rms(half):.2g}"
        aim = {None: "", True: ", accuracy reached", False: ", accuracy NOT reached"}[self.reached]
        network = "with" if self.corrected else "without"
        return (
            f"Estimate at {self.value.size:,} points by {self.method}, {network} a network\n"
            f"  {100 * self.confidence:g} % intervals of half-width {relative} (rms){aim}\n"
            f"  {self.walks.sum():,} walks, {self.work:,} steps, {self.seconds:.1f} s"
        )


class Plan(eqx.Module):
    """How the walks are done and what they add up."""

    scheme: Scheme
    payoff: Payoff
    known: Any  # its value is added to the mean
    method: str
    corrected: bool
    levels: tuple[float, ...]
    bias: float | None  # a bound; None: to be seen from two levels
    bias_source: str


class Table:
    """The walks so far, and what follows from them."""

    def __init__(
        self,
        plan: Plan,
        known: np.ndarray,
        points: np.ndarray,
        inside: np.ndarray,
        confidence: float,
    ):
        self._plan, self._known, self._points = plan, known, points
        self._inside, self._confidence = inside, confidence
        starts = points[inside]
        self._ledgers = [Ledger(starts, np.full(len(starts), level)) for level in plan.levels]
        self.done = self.planned = 0

    def walk(self, walks: np.ndarray, key: PRNGKeyArray, tell: Any) -> None:
        """Do so many more walks from every inner point."""
        self.planned += len(self._ledgers) * int(walks.sum())
        for i, ledger in enumerate(self._ledgers):
            level_key = jr.fold_in(key, 1_000 + i)
            run(self._plan.scheme, self._plan.payoff, ledger, walks, level_key, tell)
            self.done += int(walks.sum())

    @property
    def value(self) -> np.ndarray:
        return self._spread(self._ledgers[-1].mean) + self._known

    @property
    def bias(self) -> float:
        """The bound of the plan, or what two time steps show."""
        if self._plan.bias is not None:
            return self._plan.bias
        if not self._inside.any():
            return 0.0
        # An error of order h^p with p >= 1/2 falls at least by half with h / 4, so what is left is
        # at most the difference. One mean over all points, because single ones are mostly noise.
        # Points with much noise count less; none counts more than twice as much as the median one.
        coarse, fine = self._ledgers
        noise = _error(coarse) ** 2 + _error(fine) ** 2
        weight = 1.0 / np.maximum(noise + np.median(noise), 1e-300)
        weight /= weight.sum()
        difference = np.dot(weight, coarse.mean - fine.mean)
        return float(abs(difference) + np.sqrt(np.dot(weight**2, noise)))

    def lacking(self, accuracy: float) -> np.ndarray:
        """How many more walks every inner point needs, by its variance so far."""
        ledger = self._ledgers[-1]
        aim = accuracy * _rms(self.value)
        room = max(aim - self.bias, 0.5 * aim)
        quantile = _quantile(self._confidence, ledger)
        short = quantile * _error(ledger) > room
        if not aim > 0:
            return np.zeros(len(ledger.count), np.int64)
        needed = np.ceil(1.1 * (quantile * ledger.deviation / room) ** 2)
        # In steps, because the quantile falls as the variance becomes known.
        needed = np.clip(needed, ledger.count + PILOT, np.minimum(4 * ledger.count, MOST))
        return np.where(short, np.maximum(needed - ledger.count, 0), 0).astype(np.int64)

    def estimate(self, points: np.ndarray, accuracy: float | None, seconds: float) -> Estimate:
        """The result; arrays have the shape that the points ask for."""
        ledger, plan = self._ledgers[-1], self._plan
        value, error = self.value, self._spread(_error(ledger))
        bias = self._spread(np.full(len(ledger.count), self.bias))
        half = self._spread(_quantile(self._confidence, ledger) * _error(ledger)) + bias
        reached = None
        if accuracy is not None:
            # No spread at all says that the walks have seen nothing, not that nothing is there.
            seen = bool(np.all(ledger.deviation > 0)) and _rms(value) > 0
            reached = seen and bool(np.all(half <= accuracy * _rms(value) * (1 + 1e-9)))
        walks = sum(self._spread(each.count) for each in self._ledgers)
        shape = points.shape[:-1]
        value, error, half, bias, walks = (
            np.asarray(a).reshape(shape) for a in (value, error, half, bias, walks)
        )
        return Estimate(
            points=points,
            value=value,
            standard_error=error,
            low=np.asarray(value - half),
            high=np.asarray(value + half),
            confidence=self._confidence,
            bias=bias,
            bias_source=plan.bias_source,
            walks=walks.astype(np.int64),
            work=sum(each.work for each in self._ledgers),
            seconds=seconds,
            method=plan.method,
            corrected=plan.corrected,
            reached=reached,
        )

    def _spread(self, inner: np.ndarray) -> np.ndarray:
        """Numbers of the inner points among all; zero on the boundary."""
        full = np.zeros(len(self._inside), inner.dtype)
        full[self._inside] = inner
        return full


def _error(ledger: Ledger) -> np.ndarray:
    return ledger.deviation / np.sqrt(np.maximum(ledger.count, 1))


def _quantile(confidence: float, ledger: Ledger) -> np.ndarray:
    """Student's, two-sided, with as many degrees of freedom as the variance is known by.

    The variance of a sample variance is `(kurtosis - 1) / n` of its square, and `2 / nu` with `nu` degrees of
    freedom. Walks from a point near the boundary are mostly short and rarely long: a kurtosis of 50
    is common, and `nu = n - 1` would give intervals that hold too rarely.
    """
    most = np.maximum(ledger.count - 1.0, 1.0)
    freedom = 2.0 * ledger.count / np.maximum(ledger.kurtosis - 1.0, 1e-12)
    return stdtrit(np.clip(freedom, 1.0, most), 0.5 + 0.5 * confidence)


def _rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if np.size(values) else 0.0
