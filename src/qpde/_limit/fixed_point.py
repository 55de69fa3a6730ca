"""The fixed point of the limit equation, `L Q = 0`, by regularised least squares."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

from .system import AbstractSample, System

# Regularisations that are tried, relative to the largest singular value squared.
STRENGTHS = 10.0 ** np.arange(-1.0, -19.0, -0.5)
# Most Gauss-Newton steps for one regularisation, and the relative change that ends them.
_STEPS, _CHANGE = 12, 1e-10
# A held-out loss of this many times the least one ends the search.
_WORSE = 100.0


@dataclasses.dataclass(frozen=True)
class _LeastSquares:
    """`mean (constant + slopes q)^2 + strength |q|^2` over the nodes, by singular values of the slopes."""

    left: np.ndarray
    sizes: np.ndarray
    right: np.ndarray
    constant: np.ndarray

    @classmethod
    def near(cls, system: System, q: np.ndarray) -> "_LeastSquares":
        """The problem whose `L Q` is linearised at the coefficients `q`."""
        root, at = np.sqrt(system.weights), system.linearised(q)
        left, sizes, right = scipy.linalg.svd(root[:, None] * at.slopes, full_matrices=False)
        return cls(left, sizes, right, root * at.constant)

    def least(self, strength: float) -> np.ndarray:
        """The coefficients of the minimum."""
        filtered = self.sizes / (self.sizes**2 + strength)
        return -self.right.T @ (filtered * (self.left.T @ self.constant))


def stationary(
    system: System, held_out: AbstractSample, report: Callable[[int], Any] = lambda _: None
) -> tuple[np.ndarray, float]:
    """The coefficients of the fixed point `L Q = 0`, and their regularisation.

    Least squares on the nodes with a multiple of `|q|^2`, the norm of `u - f` in the space of the
    kernel. The multiple falls from large to small until the held-out loss, which sees errors between
    the nodes, stops falling. `report` is called with the index of every multiple.
    """
    q = np.zeros(system.rank)
    best, chosen, least = q, math.inf, held_out.loss(q)
    start = _LeastSquares.near(system, q)
    top = start.sizes[0] ** 2
    for index, strength in enumerate(STRENGTHS):
        report(index)
        if system.linear is not None:
            q = start.least(strength * top)
        else:
            q = _gauss_newton(system, q, strength * top)
        loss = held_out.loss(q)
        if loss < least:
            best, chosen, least = q, strength, loss
        if not loss < _WORSE * least:
            break
    return best, float(chosen)


def _gauss_newton(system: System, q: np.ndarray, strength: float) -> np.ndarray:
    """The coefficients of the minimum for one regularisation of a nonlinear equation, from `q`."""
    for _ in range(_STEPS):
        new = _LeastSquares.near(system, q).least(strength)
        moved, q = np.linalg.norm(new - q), new
        if moved <= _CHANGE * np.linalg.norm(q):
            break
    return q
