"""Sets of actions: all of R^m, finitely many, or a box."""

from typing import Any

import equinox as eqx
import numpy as np

from .._arguments import reals, whole
from .._precision import Numbers

# The most actions of a finite set: an equation asks once for each.
_MOST = 256


class FreeActions(eqx.Module):
    """All of R^m: `FreeActions(3)`."""

    count: int = eqx.field(static=True)

    def __init__(self, count: int):
        self.count = whole("The number of components of an action", count, least=1, most=100_000)


class FiniteActions(eqx.Module):
    """Finitely many actions, a row each: `FiniteActions([[0.0, 1.0], [1.0, 0.0]])`; numbers are actions
    too.
    """

    values: Numbers

    def __init__(self, values: Any):
        array = reals("actions", values, "a list of actions, a row each")
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2 or array.size == 0:
            raise ValueError(f"actions must be a list of actions, a row each, got {array.shape}.")
        if len(array) > _MOST:
            raise ValueError(
                f"At most {_MOST} actions are tried one by one, got {len(array):,}. Take a box of them: "
                "qpde.BoxActions(low, high)."
            )
        self.values = array

    @property
    def count(self) -> int:
        """The number of components of an action."""
        return int(self.values.shape[1])


class BoxActions(eqx.Module):
    """A box of actions: `BoxActions(-1.0, 1.0)` for one component, lists for several."""

    low: Numbers
    high: Numbers

    def __init__(self, low: Any, high: Any):
        self.low = np.atleast_1d(reals("low", low, "a number or a list of numbers"))
        self.high = np.atleast_1d(reals("high", high, "a number or a list of numbers"))
        if self.low.shape != self.high.shape or self.low.ndim != 1:
            raise ValueError(
                f"low and high must be of one length, got shapes {self.low.shape} and {self.high.shape}."
            )
        if not np.all(self.low < self.high):
            raise ValueError("Each low must be less than its high.")

    @property
    def count(self) -> int:
        """The number of components of an action."""
        return int(self.low.size)


Actions = FreeActions | FiniteActions | BoxActions
