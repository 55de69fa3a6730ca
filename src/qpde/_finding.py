"""A finding: whether something holds for a problem, how that is known, and what to do about it."""

import dataclasses
import enum


class Verdict(enum.Enum):
    """Whether something holds."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Finding:
    """Whether one thing holds for a problem, how that is known, and what to do.

    `basis` is `proved`, `sampled` (seen at random points, which is no proof), `conditional` (on what `text`
    says) or empty where nothing is known.
    """

    name: str
    verdict: Verdict
    basis: str
    text: str
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        """Plain values."""
        return dataclasses.asdict(self) | {"verdict": self.verdict.value}
