"""Accuracy on demand: a run goes on until a certificate says that it is accurate enough.

A certificate looks at points that nothing else has seen. Looks of one run share the risk that a statistical
bound is wrong: the i-th has `2^-i` of it, and points of its own. A look is taken where the last one, scaled
by what the loss has fallen since, would suffice; the first one always.
"""

import dataclasses
import math

import numpy as np

from .._arguments import one_of, real
from .._problem.accuracy import Accuracy
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._trust.certificate import Certificate, Kind
from .._trust.certify import certify

_RISK = 0.01


@dataclasses.dataclass(frozen=True)
class Goal:
    """A relative error that a certificate must not exceed, in a norm."""

    accuracy: float
    norm: str = "l2"

    @classmethod
    def of(cls, accuracy: float, norm: str, problem: Problem) -> "Goal":
        """From the options of `solve`; wrong ones raise."""
        size = float(real("accuracy", accuracy, above=0.0))
        if not size < 1:
            raise ValueError(
                f"accuracy is a relative error below 1, for example 1e-4, got {accuracy!r}."
            )
        known = ("l2", "sup") if problem.domain.times is None else ("l2", "sup", "last")
        return cls(
            size, one_of("norm", norm, ("value",) if problem.domain.follows_paths else known)
        )


class Looks:
    """The looks of a run: each at the best solution so far."""

    def __init__(self, goal: Goal):
        self._goal, self._count = goal, 0
        self._last: tuple[Certificate, float] | None = None
        self._course: list[tuple[float, float]] = []
        self._refusal = ""

    def met(self, solution: Solution, loss: float, seconds: float) -> bool:
        """Whether a certificate says now that the solution is accurate enough."""
        self._course.append((seconds, loss))
        if self._refusal or not self._hopeful(loss):
            return False
        self._count += 1
        # Points of its own: those of a certificate follow from the seed.
        seed = int(np.random.SeedSequence([solution.seed, self._count]).generate_state(1)[0])
        other = dataclasses.replace(solution, seed=seed)
        try:
            found = certify(other, confidence=1.0 - _RISK * 0.5**self._count, norm=self._goal.norm)
        except ValueError as error:
            self._refusal = str(error)
            return False
        self._last = found, loss
        return self._suffices(found)

    def outcome(self) -> Accuracy:
        """What became of the goal."""
        goal = self._goal
        if self._last is None:
            return Accuracy(
                goal.accuracy, goal.norm, None, False, "", self._refusal or "No look was taken."
            )
        certificate, loss = self._last
        met = self._suffices(certificate)
        words = repr(certificate).splitlines()[0]
        limit = "" if met else self._limit(certificate, loss)
        return Accuracy(goal.accuracy, goal.norm, certificate.relative_bound, met, words, limit)

    def _suffices(self, found: Certificate) -> bool:
        relative = found.relative_bound
        sure = found.kind is not Kind.HEURISTIC
        return sure and relative is not None and relative <= self._goal.accuracy

    def _hopeful(self, loss: float) -> bool:
        if self._last is None:
            return True
        certificate, before = self._last
        relative = certificate.relative_bound
        if relative is None:
            return loss < 0.25 * before
        return relative * math.sqrt(loss / max(before, 1e-300)) <= self._goal.accuracy

    def _limit(self, certificate: Certificate, loss: float) -> str:
        """What keeps the bound above the goal, and how long the present pace would take."""
        if certificate.kind is Kind.HEURISTIC:
            return (
                f"The bound is an estimate only, which meets no goal: {certificate.assumptions[0]}."
            )
        relative, now = certificate.relative_bound, self._course[-1][1]
        if relative is None:
            return "The bound is as large as the solution: L Q is far from zero still."
        bound = relative * math.sqrt(now / max(loss, 1e-300))
        text = f"The relative bound is about {bound:.1e}"
        pace = self._pace()
        if pace is None:
            return (
                f"{text}, and the last stage made L Q hardly smaller: there is no pace to go on at."
            )
        left = 2.0 * math.log(bound / self._goal.accuracy) / pace
        return f"{text}; at the pace of the last stage about {max(left, 1.0):.0f} s more would do."

    def _pace(self) -> float | None:
        """By how much the logarithm of the best loss fell in a second of the last stage."""
        if len(self._course) < 2:
            return None
        (t0, l0), (t1, l1) = self._course[-2:]
        fell = math.log(max(l0, 1e-300) / max(l1, 1e-300))
        return fell / (t1 - t0) if fell > 0.1 and t1 > t0 else None
