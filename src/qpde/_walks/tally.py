"""The books of the walks: what each point has got, whether that is enough, and how many more it needs."""

from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from scipy.special import stdtrit

from .._motion.pool import Payoff, Scheme
from .agreement import disagree
from .bias import bias_by_distance
from .ledger import Ledger
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
REFUTED = (
    "; the network was left out, because values with and without it differ by more than chance"
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
        size = rms(plain.mean + self._bases[0])
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
        aim = accuracy * rms(mean + self._pick(self._bases))
        # The effect of the time step, where there is one, is not known yet.
        room = (1.0 if self._plan.bias is not None else 0.75) * aim
        if not aim > 0:
            return np.full(len(mean), PILOT)
        quantile = _student(_spend(confidence, np.ones(len(mean))), np.inf)
        needed = np.ceil(1.2 * (quantile * deviation / room) ** 2)
        return np.clip(needed, PILOT, MOST).astype(np.int64)

    def lacking(self, accuracy: float, confidence: float) -> np.ndarray:
        """How many more walks every point needs."""
        aim, half, bias = accuracy * rms(self.value), self.half(confidence, self.looks), self.bias
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


def rms(values: Any) -> float:
    """The root mean square; of nothing it is zero."""
    return float(np.sqrt(np.mean(np.square(values)))) if np.size(values) else 0.0
