"""A finding: whether something holds for a problem, how that is known, and what to do about it."""

import dataclasses
import enum


class Answer(enum.Enum):
    """Whether something holds."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Evidence(enum.StrEnum):
    """How a finding is known."""

    PROVED = "proved"
    SAMPLED = "sampled"  # seen at random points, which is no proof
    CONDITIONAL = "conditional"  # on what the text says
    NONE = ""


@dataclasses.dataclass(frozen=True)
class Finding:
    """Whether one thing holds for a problem, how that is known, and what to do."""

    name: str
    verdict: Answer
    basis: Evidence
    text: str
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        """Plain values."""
        plain = {"verdict": self.verdict.value, "basis": str(self.basis)}
        return dataclasses.asdict(self) | plain
