"""From walks to values with confidence intervals: what the walks show, and how many more are needed."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.special import stdtrit

from .._status import Status
from .agreement import disagree
from .bias import bias_by_distance
from .ledger import Ledger
from .pool import Payoff, Scheme
from .splitting import levels_above, run

# Walks from every point that choose the payoff, that foresee how many an accuracy needs, and at most.
TRIAL, PILOT, MOST = 64, 128, 1_000_000
# From fewer walks no interval is made, because not even their variance is known; from so many more for every
# time that they may be split.
_FEWEST = 10
# Of the risk `1 - confidence` the first look at an accuracy takes this part, the next that of the rest.
_SPENT = 0.8
_LOOKS = 12
# How far values with and without the network may be apart for other reasons than chance, over their size: by
# time steps, and by rounding.
_BIASED, _ROUNDED = 0.02, 1e-6
_REFUTED = (
    "; the network was left out, because values with and without it differ by more than chance"
)


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
        size = _rms(self.value)
        relative = f"{_rms(half[known]):.2g}"
        if size > 0:
            relative = f"{_rms(half[known]) / size:.2g} of the rms value"
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


class WalkPlan(eqx.Module):
    """How the walks are done and what they add up.

    There are one or two ways to the values, without a network and with one: `payoffs[i]` is averaged and
    `bases[i]` added; `constant[i]`: all walks have the same sum, by the program.
    """

    scheme: Scheme
    payoffs: tuple[Payoff, ...]
    bases: tuple[Any, ...]
    constant: tuple[bool, ...]
    method: str
    levels: tuple[float, ...]
    resolution: np.ndarray  # at every inner point
    coarsest: float  # of branches that begin further inside
    bias: (
        tuple[np.ndarray, ...] | None
    )  # a bound, for each payoff; None: to be seen from two levels
    bias_source: str
    inradius: float
    ends: tuple[tuple[float, float], ...]  # smallest and largest value at the end of a walk
    blind: str  # why there can be no interval; empty where there can


class Tally:
    """The walks so far, and what follows from them. Arrays are those of the inner points."""

    def __init__(self, plan: WalkPlan, starts: np.ndarray, distance: np.ndarray, bases: np.ndarray):
        self._plan, self._starts, self._distance, self._bases = plan, starts, distance, bases
        self._choice = np.full(len(starts), len(plan.payoffs) - 1)
        self._ledgers = [self._ledger_pair(level) for level in plan.levels]
        self._pilot = self._ledger_pair(plan.levels[0])
        # Sums with the network less those without it, of the same walks.
        self._apart = [self._ledger_pair(plan.levels[-1])[0] for _ in range(2)]
        self._pilots = 0
        self.refuted = False
        self.looks = np.zeros(len(starts), np.int64)
        self.done = self.planned = 0

    def _ledger_pair(self, level: float) -> list[Ledger]:
        n = len(self._starts)
        plan = self._plan
        return [
            Ledger(self._starts, self._distance, np.full(n, level), plan.resolution, plan.coarsest)
            for _ in self._plan.payoffs
        ]

    def try_out(self, each: np.ndarray, likely: int, key: PRNGKeyArray, report: Any) -> None:
        """`each[i]` walks from point `i` that are not counted: they choose its payoff and show its variance.

        `likely` is the number of walks that are to come, for which the buffers are made.
        """
        self.planned += int(each.sum())
        key = jr.fold_in(key, 500 + self._pilots)
        self._pilots += 1
        plan = self._plan
        run(
            plan.scheme,
            plan.payoffs,
            self._pilot,
            plan.inradius,
            each,
            key,
            report,
            likely=likely,
            differences=self._apart[0] if len(plan.payoffs) == 2 else None,
        )
        self.done += int(each.sum())
        if len(plan.payoffs) == 2:
            plain, corrected = (ledger.deviation for ledger in self._pilot)
            # Where no walk differs from another they have seen nothing, unless there is nothing to see.
            unseen = (plain == 0) & (not plan.constant[0])
            self._choice = np.where((corrected > 0) & ((corrected < plain) | unseen), 1, 0)
            self._confront(self._apart[0], self._pilot[0])

    def _confront(self, apart: Ledger, plain: Ledger) -> None:
        """Leave the network out where values with and without it, by the same walks, are not the same.

        They have the same mean if `L Q` is what the walks see of it; a crease of `Q` that no walk looks at
        shows here.
        """
        gap = apart.mean + self._bases[1] - self._bases[0]
        size = _rms(plain.mean + self._bases[0])
        # Time steps have errors of their own, which the network makes smaller.
        room = (_BIASED if self._plan.bias is None else _ROUNDED) * size
        if self.refuted or disagree(gap, apart.error, apart.count, self._bases[1], room):
            self.refuted = True
            self._choice[:] = 0

    def walk(self, walks: np.ndarray, key: PRNGKeyArray, report: Any) -> None:
        """Do `walks[i]` more walks from inner point `i`."""
        plan, last = self._plan, len(self._ledgers) - 1
        self.planned += len(self._ledgers) * int(walks.sum())
        for i, ledgers in enumerate(self._ledgers):
            run(
                plan.scheme,
                plan.payoffs,
                ledgers,
                plan.inradius,
                walks,
                jr.fold_in(key, 1_000 + i),
                report,
                differences=self._apart[1] if len(plan.payoffs) == 2 and i == last else None,
            )
            self.done += int(walks.sum())
        if len(plan.payoffs) == 2:
            self._confront(self._apart[1], self._ledgers[-1][0])
        self.looks += walks > 0

    @property
    def stuck(self) -> bool:
        """Whether some walks could not be brought to an end."""
        return bool(np.any(self.unfinished > 0))

    @property
    def unfinished(self) -> np.ndarray:
        """The share of walks that could not be brought to an end."""
        lost = sum(self._of(ledgers, "unfinished") for ledgers in self._ledgers)
        return lost / np.maximum(lost + self.count, 1)

    @property
    def count(self) -> np.ndarray:
        return sum(
            (self._of(ledgers, "count") for ledgers in self._ledgers),
            np.zeros(len(self._starts), int),
        )

    @property
    def work(self) -> int:
        """The steps of all walks."""
        ledgers = [self._pilot, *self._ledgers]
        return sum(max(ledger.work for ledger in pair) for pair in ledgers)

    @property
    def value(self) -> np.ndarray:
        return self._of(self._ledgers[-1], "mean") + self._pick(self._bases)

    @property
    def error(self) -> np.ndarray:
        return self._of(self._ledgers[-1], "error")

    @property
    def with_network(self) -> np.ndarray:
        return self._choice == 1

    @property
    def bias(self) -> np.ndarray:
        """The bound of the plan, or what two time steps show."""
        if self._plan.bias is not None:
            return self._pick(self._plan.bias)
        coarse, fine = self._ledgers
        difference = self._of(coarse, "mean") - self._of(fine, "mean")
        noise = self._of(coarse, "error") ** 2 + self._of(fine, "error") ** 2
        return bias_by_distance(difference, noise, self._distance / self._plan.inradius)

    def half(self, confidence: float, looks: np.ndarray | None = None) -> np.ndarray:
        """Half-widths of the intervals; infinite where nothing earns one."""
        error, count = self.error, self._of(self._ledgers[-1], "count")
        half = (
            self._quantile(confidence, looks) * error + self.bias + self._unseen(confidence, looks)
        )
        constant = np.asarray(self._plan.constant)[self._choice]
        splits = levels_above(self._distance, self._plan.inradius)
        few = (count < _FEWEST * (1 + splits)) & (error > 0)
        nothing = (self.unfinished > 0) | few | ((error == 0) & ~constant)
        return np.where(nothing | bool(self._plan.blind), np.inf, half)

    def _unseen(self, confidence: float, looks: np.ndarray | None) -> np.ndarray:
        """What boundary values beyond all sums from a point may add to its mean, by the cost of a range.

        Walks that are split go as far as they must by design, and their sums are means of many ends.
        """
        low, high = np.asarray(self._plan.ends)[self._choice].T
        least, most = (self._of(self._ledgers[-1], name) for name in ("least", "most"))
        count = np.maximum(self._of(self._ledgers[-1], "count"), 2)
        beyond = np.maximum(high - most, 0.0) + np.maximum(least - low, 0.0)
        level = np.asarray(confidence if looks is None else _spend(confidence, looks))
        cost = 7.0 * np.log(2.0 / (1.0 - level)) / (3.0 * (count - 1))
        whole = (levels_above(self._distance, self._plan.inradius) == 0) & (high > low)
        return np.where(whole & np.isfinite(beyond), cost * beyond, 0.0)

    def needed(self, accuracy: float, confidence: float) -> np.ndarray:
        """How many walks every point needs, by the variance that those that are not counted show."""
        mean, deviation = (self._of(self._pilot, name) for name in ("mean", "deviation"))
        aim = accuracy * _rms(mean + self._pick(self._bases))
        # The effect of the time step, where there is one, is not known yet.
        room = (1.0 if self._plan.bias is not None else 0.75) * aim
        if not aim > 0:
            return np.full(len(mean), PILOT)
        quantile = _student(_spend(confidence, np.ones(len(mean))), np.inf)
        needed = np.ceil(1.2 * (quantile * deviation / room) ** 2)
        return np.clip(needed, PILOT, MOST).astype(np.int64)

    def lacking(self, accuracy: float, confidence: float) -> np.ndarray:
        """How many more walks every point needs."""
        aim, half, bias = accuracy * _rms(self.value), self.half(confidence, self.looks), self.bias
        count = self._of(self._ledgers[-1], "count")
        if not aim > 0 or self.stuck or self.looks.max(initial=0) >= _LOOKS:
            return np.zeros(len(count), np.int64)
        short = (half > aim) & (self.error > 0)
        room = np.maximum(aim - bias, 0.5 * aim)
        quantile = self._quantile(confidence, self.looks + 1)
        needed = np.ceil(1.2 * (quantile * self._of(self._ledgers[-1], "deviation") / room) ** 2)
        # In steps, because the quantile falls as the variance becomes known.
        needed = np.clip(needed, 1.5 * count, np.minimum(8 * count, MOST))
        return np.where(short, np.maximum(needed - count, 0), 0).astype(np.int64)

    def _quantile(self, confidence: float, looks: np.ndarray | None) -> np.ndarray:
        ledgers = self._ledgers[-1]
        count, kurtosis = self._of(ledgers, "count"), self._of(ledgers, "kurtosis")
        level = confidence if looks is None else _spend(confidence, looks)
        return _student(level, _freedom(count, kurtosis))

    def _of(self, ledgers: list[Ledger], name: str) -> np.ndarray:
        """A property of the ledgers of the chosen payoffs."""
        return self._pick([getattr(ledger, name) for ledger in ledgers])

    def _pick(self, each: Any) -> np.ndarray:
        return np.choose(self._choice, list(each)) if len(self._starts) else np.zeros(0)


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
        reached = _rms(value) > 0 and bool(np.all(half <= accuracy * _rms(value) * (1 + 1e-9)))
    return Estimate(
        points=points,
        value=value,
        standard_error=spread(tally.error),
        low=np.asarray(value - half),
        high=np.asarray(value + half),
        confidence=confidence,
        bias=spread(tally.bias),
        bias_source=plan.bias_source + (_REFUTED if tally.refuted else ""),
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


def _spend(confidence: float, looks: np.ndarray) -> np.ndarray:
    """The confidence of the interval at a point's look number 1, 2, ...: their risks sum to all of it."""
    return 1.0 - (1.0 - confidence) * _SPENT * (1.0 - _SPENT) ** (np.maximum(looks, 1) - 1.0)


def _student(confidence: Any, freedom: Any) -> np.ndarray:
    return stdtrit(freedom, 0.5 + 0.5 * np.asarray(confidence))


def _freedom(count: np.ndarray, kurtosis: np.ndarray) -> np.ndarray:
    """As many degrees of freedom as the variance is known by.

    The variance of a sample variance is `(kurtosis - 1) / n` of its square, and `2 / nu` with `nu` degrees of
    freedom. Walks from a point near the boundary are mostly short and rarely long: a kurtosis of 50
    is common, and `nu = n - 1` would give intervals that hold too rarely.
    """
    most = np.maximum(count - 1.0, 1.0)
    return np.clip(2.0 * count / np.maximum(kurtosis - 1.0, 1e-12), 1.0, most)


def _rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if np.size(values) else 0.0
