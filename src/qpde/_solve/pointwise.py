"""Accuracy at points: a network is trained only as far as random walks need it.

Walks give the solution of a linear equation at points with intervals, and the network is their control
variate: the better it is, the fewer walks are needed. After every stage, and before the first, a few walks
from every point foretell how much work an accuracy asks for. It is done where it is no more than what
training has cost so far, which is never more than twice the shorter road: work is counted in steps and
points, not in seconds, so that the clock decides nothing. When training ends, what is left is done by walks.
"""

import dataclasses
import warnings
from typing import Any

import numpy as np

from .._arguments import real
from .._problem.accuracy import Accuracy
from .._problem.points import as_rows
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._walks.estimate import Estimate
from .._walks.feynman_kac import feynman_kac
from .spot import no_walks

# The risk that an interval is wrong, shared over the looks: the i-th has `2^-i` of it.
_RISK = 0.05
# Walks from every point that foretell, at least and where there are few points.
_PILOT, _PILOT_ALL = 32, 1_024
# What walks may cost before anything is trained, and how that grows from look to look: the work of a step of
# a walk is one point evaluated, and a stage evaluates some ten million.
_FREE, _GROWS = 1e7, 2.0
# The most walks from a point, and the most steps of all times dimensions, that are begun: about an hour.
_MOST, _LONGEST = 1_000_000, 1e11
# Half-widths are so many standard errors; the shared risk makes it more than 1.96.
_WIDTHS = 2.5


@dataclasses.dataclass(frozen=True)
class PointGoal:
    """An error at some points that intervals must not exceed, relative to the values' root mean square."""

    accuracy: float
    points: np.ndarray

    @classmethod
    def of(cls, accuracy: Any, points: Any, problem: Problem) -> "PointGoal":
        """From the options of `solve`; wrong ones raise, equations without walks too."""
        size = float(real("accuracy", accuracy, above=0.0))
        if not size < 1:
            raise ValueError(
                f"accuracy is a relative error below 1, for example 1e-2, got {accuracy!r}."
            )
        rows = as_rows(points, problem.dim, problem.domain.times is not None)
        if not len(rows):
            raise ValueError("at= needs at least one point.")
        why = no_walks(problem)
        if why:
            raise ValueError(
                f"at= asks random walks for values at points, and there are none here: {why}. Leave it out: "
                "accuracy= alone asks for a bound over the whole domain."
            )
        return cls(size, rows)


class PointLooks:
    """The looks of a run: whether walks from the points are a short road by now."""

    def __init__(self, goal: PointGoal, problem: Problem, seed: int, progress: bool):
        self._goal, self._problem, self._seed, self._progress = goal, problem, seed, progress
        self._count, self._forecast = 0, (np.inf, np.inf)
        self._best: Solution | None = None
        self.estimate: Estimate | None = None
        self.seconds = 0.0

    def met_at_once(self) -> bool:
        """Whether the values are known without a network."""
        return self._look(self._problem, _FREE)

    def met(self, solution: Solution, loss: float, seconds: float) -> bool:
        """Whether the values are known now; `solution` is the best one, whatever its loss."""
        self._best = solution
        return self._look(solution, _FREE * _GROWS**self._count)

    def close(self, left: float) -> None:
        """Nothing more is trained: walk what is left to walk, if that takes at most `left` seconds."""
        if not self.reached and self._best is not None and self._forecast[1] <= left:
            self._look(self._best, _LONGEST / (self._problem.dim + 10))

    @property
    def reached(self) -> bool:
        """Whether all intervals are as narrow as was asked."""
        return self.estimate is not None and bool(self.estimate.reached)

    def _look(self, start: Solution | Problem, allowed: float) -> bool:
        self._count += 1
        each = max(_PILOT, _PILOT_ALL // len(self._goal.points))
        pilot = self._walk(start, walks=each, number=2 * self._count)
        if self.estimate is None or self.estimate.reached is None:
            self.estimate = pilot  # until there is something better
        if not pilot.status.successful or pilot.blind:
            return False
        aim = self._goal.accuracy * float(np.sqrt(np.mean(np.square(pilot.value))))
        spread = pilot.standard_error * np.sqrt(pilot.walks)
        with np.errstate(divide="ignore", invalid="ignore"):
            walks = np.maximum((_WIDTHS * spread / aim) ** 2, each)
        steps = float(np.sum(walks) * pilot.work / np.sum(pilot.walks))
        self._forecast = steps, steps * pilot.seconds / max(pilot.work, 1)
        if not steps <= allowed or np.max(walks) > _MOST:
            return False
        sure = 1.0 - _RISK * 0.5**self._count
        aimed = {"accuracy": self._goal.accuracy, "confidence": sure}
        self.estimate = self._walk(start, **aimed, number=2 * self._count + 1)
        return self.reached

    def _walk(self, start: Solution | Problem, *, number: int, **options: Any) -> Estimate:
        seed = int(np.random.SeedSequence([self._seed, 0xA7, number]).generate_state(1)[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the network has kinks is told elsewhere
            found = feynman_kac(
                start, self._goal.points, seed=seed, progress=self._progress, **options
            )
        self.seconds += found.seconds
        return found

    def outcome(self) -> Accuracy:
        """What became of the goal."""
        found, asked = self.estimate, self._goal.accuracy
        if found is None:
            return Accuracy(asked, "points", None, False, "", "No walk was done.")
        bound = _relative(found)
        words = repr(found).splitlines()[1].strip()
        limit = "" if self.reached else self._limit(found, bound)
        return Accuracy(asked, "points", bound, self.reached, words, limit)

    def _limit(self, found: Estimate, bound: float) -> str:
        """What keeps the intervals wider than was asked, and what walking on would take."""
        if not found.status.successful:
            return found.status.value
        if found.blind:
            return f"There are no intervals: {found.blind}."
        steps, seconds = self._forecast
        return (
            f"The widest interval is {bound:.1e} of the values to either side; with this network walks would "
            f"take about {steps:.1e} steps more, some {seconds:.0f} s. A larger budget trains a network "
            "that takes more of their spread away."
        )


def _relative(found: Estimate) -> float:
    half = 0.5 * float(np.max(found.high - found.low))
    size = float(np.sqrt(np.mean(np.square(found.value))))
    return half / size if size > 0 else np.inf
