"""What became of an accuracy that was asked for."""

import dataclasses

_ERRORS = {
    "l2": "L2 error",
    "sup": "sup error",
    "last": "L2 error at the last instant",
    "value": "error at the start",
}


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """The relative error that `solve` was asked for, the bound of the last certificate, and what limits it.

    `met` says that a certificate of the returned solution has the bound; `words` is its first line. Where
    values at points were asked for (`norm` is `"points"`), the bound is half their widest interval, relative.
    """

    asked: float
    norm: str
    bound: float | None
    met: bool
    words: str
    limit: str

    def __str__(self) -> str:
        if self.norm == "points":
            if self.met:
                return f"Accurate at the points, asked {self.asked:g}: {self.words}."
            return f"Asked for {self.asked:g} at the points, not reached. {self.limit}"
        error = _ERRORS[self.norm]
        if self.met:
            return f"Accurate: relative {error} at most {self.bound:.2g}, asked {self.asked:g}."
        return f"Asked for a relative {error} of {self.asked:g}, not reached. {self.limit}"
