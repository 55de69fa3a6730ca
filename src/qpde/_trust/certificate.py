"""Certificates: a bound for the error of a solution, with its kind, confidence and assumptions."""

import dataclasses
import enum
from typing import Any

from .._monotone.in_time import Weight
from .._monotone.monotonicity import Monotonicity


class Kind(enum.StrEnum):
    """What a certificate is worth."""

    RIGOROUS = "rigorous"  # by interval arithmetic
    STATISTICAL = "statistical"  # holds with a confidence, whatever the tails are
    ASSUMING = "statistical, assuming"  # holds with a confidence if what is named is so
    HEURISTIC = "heuristic"  # an estimate


class Norm(enum.StrEnum):
    """The norm of a bound."""

    L2 = "l2"
    SUP = "sup"
    H2 = "h2"
    LAST = "last"  # in L2 at the last instant of an evolution problem
    VALUE = "value"  # at the starting point of the whole space


_WORDS = {
    Norm.L2: "||Q - u|| in L2",
    Norm.SUP: "sup |Q - u|",
    Norm.H2: "||Hess(Q - u)|| in L2",
    Norm.LAST: "||Q - u|| in L2 at the last instant",
    Norm.VALUE: "|Q - u| at the starting point",
}


@dataclasses.dataclass(frozen=True)
class Certificate:
    """`||Q - u|| <= bound`, and what that rests on.

    `kind` is rigorous (interval arithmetic); statistical (holds with `confidence`, by empirical Bernstein
    bounds for the mean over `sample_size` points and a proved range); "statistical, assuming" (the same,
    with a range or another number that was looked for and not proved, as `assumptions` say); or heuristic
    (an estimate). `boundary` is what boundary values that are not exact add to the bound; `stronger` says
    what would earn a stronger word.
    `relative_bound` is `bound / (||Q|| - bound)`, which bounds `||Q - u|| / ||u||`; None where that is not
    positive. `residual` is the bound for the norm of `L Q`, `factor` what it was multiplied by.
    """

    bound: float
    relative_bound: float | None
    norm: Norm
    kind: Kind
    confidence: float | None
    residual: float
    factor: float
    assumptions: tuple[str, ...]
    sample_size: int | None
    monotonicity: Monotonicity | None = None
    boundary: float = 0.0
    stronger: str = ""
    weight: Weight | None = None

    def __repr__(self) -> str:
        words = _WORDS[self.norm]
        relative = "" if self.relative_bound is None else f" (relative: {self.relative_bound:.3g})"
        sure = "" if self.confidence is None else f", {100 * self.confidence:g} % confidence"
        word = str(self.kind)
        if self.kind is Kind.ASSUMING:
            word, sure = str(Kind.STATISTICAL), f"{sure}, under an assumption"
        size = "" if self.sample_size is None else f" on {self.sample_size:,} points"
        constant = f"times {self.factor:.4g}"
        if self.weight is not None:
            constant += (
                f" (the constant {self.weight.gamma:.6g} under {self.weight}, "
                f"{self.monotonicity.kind if self.monotonicity is not None else Kind.HEURISTIC})"
            )
        elif self.monotonicity is not None:
            constant = f"over the constant {1 / self.factor:.6g} ({self.monotonicity.kind})"
        what = "carried data" if self.norm is Norm.VALUE else "boundary values"
        edge = f", plus {self.boundary:.3g} for {what}" if self.boundary else ""
        text = (
            f"{words} <= {self.bound:.3g}{relative}: {word}{sure}\n"
            f"  |L Q| <= {self.residual:.3g}{size}, {constant}{edge}; assumes: {'; '.join(self.assumptions)}"
        )
        return f"{text}\n  -> {self.stronger}" if self.stronger else text

    def summary(self) -> dict[str, Any]:
        """Plain values, for files."""
        values = dataclasses.asdict(dataclasses.replace(self, monotonicity=None))
        values.pop("weight")
        constant = self.monotonicity
        values["monotonicity"] = (
            None
            if constant is None
            else {"constant": constant.constant or 1 / self.factor, "kind": str(constant.kind)}
        )
        plain = {"norm": str(self.norm), "kind": str(self.kind)}
        return values | plain | {"assumptions": list(self.assumptions)}
