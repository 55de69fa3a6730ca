"""From walks to values with confidence intervals: what the walks show, and how many more are needed."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .._status import Status
from .tally import PILOT, REFUTED, TRIAL, Tally, WalkPlan, rms


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Values of the solution of a linear problem at points, with confidence intervals.

    `low` and `high` are `value -+ (quantile * standard_error + bias)`: each interval holds with the given
    confidence (asymptotically: the mean over the walks is taken as normal, with a variance known as
    well as the kurtosis of the walks allows). `bias` bounds or estimates the systematic error,
    `bias_source` says how. An interval is infinite where nothing earns one: at points with `unfinished`
    walks, the share that could not be brought to an end (`value` is then the mean of the others, and
    `status` is not successful), where fewer than ten walks were asked for, and where all walks gave one and
    the same sum although what they add up varies: they have seen nothing of it.

    With `accuracy` the walks that say how many are needed are not those that are averaged, and each of the
    looks at which a point may stop has its part of `1 - confidence` (80 % the first, 16 % the
    second, ...): the interval holds at the look at which it stopped, whichever that was. `reached`: whether
    every half-width is at most `accuracy` times the root mean square of the values; None where no
    accuracy was asked for.

    A range that walks have not seen counts too: where boundary values are larger than all sums from a point,
    the interval is wider by what empirical Bernstein bounds add for it. `blind` says why there is no interval
    at all where something in the equation is out of the walks' sight.

    `with_network`: the points at which the network served as control variate, because it made the
    variance of walks smaller that are not counted here; `corrected`: there are some. `walks` are the walks
    from every point that are averaged (with both time steps, where there are two), `work` the steps
    of all, those of trial walks too.
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
    with_network: np.ndarray
    unfinished: np.ndarray
    status: Status
    blind: str = ""

    def __repr__(self) -> str:
        half = 0.5 * (self.high - self.low)
        known = np.isfinite(half)
        size = rms(self.value)
        relative = f"{rms(half[known]):.2g}"
        if size > 0:
            relative = f"{rms(half[known]) / size:.2g} of the rms value"
        aim = {None: "", True: ", accuracy reached", False: ", accuracy NOT reached"}[self.reached]
        network = "with" if self.corrected else "without"
        if self.corrected and not self.with_network.all():
            network = f"at {self.with_network.sum():,} of them with"
        text = (
            f"Estimate at {self.value.size:,} points by {self.method}, {network} a network\n"
            f"  {100 * self.confidence:g} % intervals of half-width {relative} (rms){aim}\n"
            f"  {self.walks.sum():,} walks, {self.work:,} steps, {self.seconds:.1f} s"
        )
        if not np.all(known):
            text += f"\n  NO interval at {np.sum(~known):,} points: {self._why()}"
        return text

    def _why(self) -> str:
        if self.blind:
            return f"{self.blind}."
        if self.status.successful:
            return "too few walks, or all gave the same sum, so that they have seen nothing."
        return (
            f"{100 * np.max(self.unfinished):.2g} % of the walks did not end. {self.status.value}"
        )


def make_estimate(
    tally: Tally,
    plan: WalkPlan,
    points: np.ndarray,
    inside: np.ndarray,
    edge: np.ndarray,
    *,
    confidence: float,
    accuracy: float | None,
    seconds: float,
) -> Estimate:
    """The result; arrays have the shape that the points ask for. `edge`: values on the boundary."""

    def spread(inner: np.ndarray, rest: Any = 0.0) -> np.ndarray:
        full = np.array(np.broadcast_to(np.asarray(rest, inner.dtype), inside.shape))
        full[inside] = inner
        return full.reshape(points.shape[:-1])

    half = spread(tally.half(confidence, None if accuracy is None else tally.looks))
    value = spread(tally.value, edge)
    reached = None
    if accuracy is not None:
        reached = rms(value) > 0 and bool(np.all(half <= accuracy * rms(value) * (1 + 1e-9)))
    return Estimate(
        points=points,
        value=value,
        standard_error=spread(tally.error),
        low=np.asarray(value - half),
        high=np.asarray(value + half),
        confidence=confidence,
        bias=spread(tally.bias),
        bias_source=plan.bias_source + (REFUTED if tally.refuted else ""),
        walks=spread(tally.count),
        work=tally.work,
        seconds=seconds,
        method=plan.method,
        corrected=bool(np.any(tally.with_network)),
        reached=reached,
        with_network=spread(tally.with_network, False),
        unfinished=spread(tally.unfinished),
        status=Status.UNFINISHED if tally.stuck else Status.FINISHED,
        blind=plan.blind,
    )


_BY_POINT = (
    "value",
    "standard_error",
    "low",
    "high",
    "bias",
    "walks",
    "with_network",
    "unfinished",
)


def parts_of(estimate: Estimate) -> dict[str, np.ndarray]:
    """The numbers of an estimate that differ from one block of points to another."""
    arrays = {name: np.asarray(getattr(estimate, name)) for name in _BY_POINT}
    return arrays | {
        "work": np.asarray(estimate.work),
        "fine": np.asarray(estimate.status.successful),
        "refuted": np.asarray(estimate.bias_source.endswith(REFUTED)),
    }


def joined(
    one: Estimate, parts: list[dict[str, Any]], sizes: list[int], points: np.ndarray, seconds: float
) -> Estimate:
    """The estimate at all points from those of blocks of them; `one` is any of the blocks."""

    def whole(name: str) -> np.ndarray:
        rows = [part[name][:size] for part, size in zip(parts, sizes, strict=True)]
        return np.concatenate(rows).reshape(points.shape[:-1])

    arrays: dict[str, Any] = {name: whole(name) for name in _BY_POINT}
    refuted = any(part["refuted"] for part in parts)
    return dataclasses.replace(
        one,
        points=points,
        **arrays,
        work=int(sum(part["work"] for part in parts)),
        seconds=seconds,
        corrected=bool(np.any(arrays["with_network"])),
        bias_source=one.bias_source.removesuffix(REFUTED) + (REFUTED if refuted else ""),
        status=Status.FINISHED if all(part["fine"] for part in parts) else Status.UNFINISHED,
    )


def walk_all(
    tally: Tally,
    plan: WalkPlan,
    *,
    accuracy: float | None,
    walks: int,
    confidence: float,
    key: PRNGKeyArray,
    report: Callable[[int], None],
) -> None:
    """`walks` walks from every point, or as many as an accuracy asks for."""
    n = len(plan.resolution)
    if n == 0:
        return
    if accuracy is None:
        if len(plan.payoffs) == 2:
            tally.try_out(np.full(n, min(TRIAL, walks)), n * walks, key, report)
        tally.walk(np.full(n, walks), key, report)
        return
    tried = np.full(n, PILOT)
    tally.try_out(tried, 0, key, report)
    needed = tally.needed(accuracy, confidence)
    # A number far above that of the trial walks is foreseen from more of them.
    while np.any(few := (needed > 16 * tried) & (tried < 64 * PILOT)):
        more = np.where(few, 7 * tried, 0)
        tally.try_out(more, 0, key, report)
        tried = tried + more
        needed = tally.needed(accuracy, confidence)
    rounds = 0
    while needed.any():
        tally.walk(needed, jr.fold_in(key, rounds), report)
        needed = tally.lacking(accuracy, confidence)
        rounds += 1
