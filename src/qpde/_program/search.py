"""The least value of a function over a box, bounded from below by cells that are halved where it is small."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

# Lower and upper bounds of a function on many boxes at once, from their corners `(n, d)`.
CellBounds = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

# Cells are halved this many times; less often where bounds are within this share of each other.
_ROUNDS, _CLOSE = 8, 0.02
# Up to this dimension a matrix is eliminated in fractions, whose digits grow.
_FRACTIONS = 24


def least_on_cells(bounds: CellBounds, lower: np.ndarray, upper: np.ndarray) -> tuple[float, float]:
    """A lower bound of a function over all cells, and an upper bound of its values.

    In every round the cells with the smallest lower bounds are halved along each axis, as many as make one
    batch of children of the first size, so that `bounds` is one compiled program. It stops where the
    bound is close to what it can be.
    """
    low, high = bounds(lower, upper)
    most = float(np.max(high))
    count, dim = lower.shape
    children = 2**dim
    if count < children or not np.all(np.isfinite(lower)) or not np.all(np.isfinite(upper)):
        return float(np.min(low)), most
    for _ in range(_ROUNDS):
        least, attained = float(np.min(low)), float(np.min(high))
        if attained < np.inf and attained - least <= _CLOSE * abs(attained):
            break
        worst = np.argsort(low)[: count // children]
        parts = _halves(lower[worst], upper[worst])
        below, above = bounds(*(_filled(part, count) for part in parts))
        size = len(parts[0])
        # What held of a cell holds of its halves.
        inherited = np.tile(low[worst], children)
        if not np.any(below[:size] > inherited):
            break  # halving does not help
        below = np.maximum(below[:size], inherited)
        above = np.minimum(above[:size], np.tile(high[worst], children))
        kept = np.ones(len(low), bool)
        kept[worst] = False
        lower, upper = (
            np.concatenate([old[kept], new]) for old, new in zip((lower, upper), parts, strict=True)
        )
        low, high = np.concatenate([low[kept], below]), np.concatenate([high[kept], above])
    return float(np.min(low)), most


def _halves(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The boxes cut in two along every axis: all first parts, then all second ones, and so on."""
    for axis in range(lower.shape[1]):
        middle = 0.5 * (lower[:, axis] + upper[:, axis])
        first, second = upper.copy(), lower.copy()
        first[:, axis], second[:, axis] = middle, middle
        lower, upper = np.concatenate([lower, second]), np.concatenate([first, upper])
    return lower, upper


def _filled(rows: np.ndarray, count: int) -> np.ndarray:
    """As many rows as a compiled program takes."""
    return np.concatenate([rows, np.repeat(rows[:1], count - len(rows), axis=0)])


def smallest_eigenvalues(low: Any, high: Any) -> np.ndarray:
    """Lower bounds for the eigenvalues of all symmetric matrices between two, `(n, d, d)` each.

    The larger of two bounds. Weyl: that of the midpoint, less the norm of the radius, which is at most its
    largest sum of a row. Gershgorin: diagonal less the sizes beside it, row by row.
    """
    low, high = (0.5 * (end + end.mT) for end in (np.asarray(low), np.asarray(high)))
    known = np.isfinite(low).all((1, 2)) & np.isfinite(high).all((1, 2))
    low, high = (np.where(known[:, None, None], end, 0.0) for end in (low, high))
    middle, radius = 0.5 * (low + high), 0.5 * (high - low)
    sizes = np.maximum(np.abs(low), np.abs(high))
    # More than eigenvalues of a symmetric matrix are off by, and sums of its rows.
    slack = 1e-14 * low.shape[-1] * np.max(np.sum(sizes, axis=2), axis=1)
    weyl = np.linalg.eigvalsh(middle)[:, 0] - np.max(np.sum(radius, axis=2), axis=1) - slack
    beside = sizes * (1.0 - np.eye(low.shape[-1]))
    alone = ~np.any(beside, axis=(1, 2))
    gershgorin = np.min(np.diagonal(low, axis1=1, axis2=2) - np.sum(beside, axis=2), axis=1)
    gershgorin = gershgorin - np.where(alone, 0.0, slack)  # a diagonal is read off
    return np.where(known, np.maximum(weyl, gershgorin), -np.inf)


def is_semidefinite(matrix: np.ndarray) -> bool:
    """Whether one symmetric matrix has no negative eigenvalue, by elimination in fractions, without rounding.

    A pivot may be zero only together with its row.
    """
    if len(matrix) > _FRACTIONS:
        return False
    exact = [[Fraction(float(a)) for a in row] for row in matrix]
    count = range(len(exact))
    rows = [[exact[i][j] + exact[j][i] for j in count] for i in count]
    for k in count:
        pivot, row = rows[k][k], rows[k]
        if pivot < 0 or (pivot == 0 and any(row[k:])):
            return False
        for i in range(k + 1, len(rows)):
            share = rows[i][k] / pivot if pivot else Fraction(0)
            rows[i] = [a - share * b for a, b in zip(rows[i], row, strict=True)]
    return True
