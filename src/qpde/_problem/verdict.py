"""The verdict: whether a solution solves its problem, the numbers that say so, and what to try."""

import dataclasses
import enum
import math
from typing import Any


class Word(enum.StrEnum):
    """Whether a problem is solved."""

    SOLVED = "solved"  # the relative error is below 10 %, as far as the numbers tell
    ROUGHLY = "roughly"  # it may be, but the numbers do not show it
    NOT_SOLVED = "not solved"  # the numbers speak against it


_HEADLINES = {
    Word.SOLVED: "Solved",
    Word.ROUGHLY: "Roughly solved",
    Word.NOT_SOLVED: "NOT SOLVED",
}


@dataclasses.dataclass(frozen=True)
class Reason:
    """One number behind a verdict. `word` is what it says by itself, None where it says nothing.

    `value` is None where the number could not be had; `text` says why, or what it means.
    """

    name: str
    value: float | None
    word: Word | None
    text: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a solution solves its problem, from numbers without a scale at fresh random points.

    It is evidence, not a proof; `certify` proves. `text` is the reason that decided, `reasons` are all
    of them, `advice` is what to try where the problem is not solved.
    """

    word: Word
    text: str
    reasons: tuple[Reason, ...]
    advice: str = ""

    def __str__(self) -> str:
        return f"{_HEADLINES[self.word]}: {self.text}."

    def value(self, name: str) -> float | None:
        """The number of that name, None where it could not be had."""
        return next((reason.value for reason in self.reasons if reason.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        """Plain values; a number that is not finite becomes None."""
        plain = dataclasses.asdict(self)
        for reason in plain["reasons"]:
            value = reason["value"]
            reason["value"] = value if value is not None and math.isfinite(value) else None
        return plain | {"reasons": list(plain["reasons"])}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> "Verdict":
        """The verdict that `as_dict` wrote."""

        def reason(one: dict[str, Any]) -> Reason:
            word = one["word"]
            return Reason(
                one["name"], one["value"], None if word is None else Word(word), one["text"]
            )

        reasons = tuple(reason(one) for one in plain["reasons"])
        return cls(Word(plain["word"]), plain["text"], reasons, plain["advice"])
