"""Whether two estimates by the same walks agree, over all points together.

Each point alone has much noise. What is systematic shows in sums over the points: of the gaps, of the gaps
times the values, and of their squares. The limits are wide, because sums of walks may have long tails; a
false alarm costs only the gain of a control variate.
"""

import numpy as np

# In standard errors: a sum of gaps, a sum of squares, a single gap; and the walks that a single one takes.
_SUM, _SQUARES, _SINGLE, _MANY = 5.0, 12.0, 7.0, 50


def disagree(
    gap: np.ndarray, error: np.ndarray, count: np.ndarray, value: np.ndarray, room: float
) -> bool:
    """Whether gaps with given standard errors are more than chance and `room` explain."""
    known = (count >= 2) & np.isfinite(gap) & np.isfinite(error)
    if not np.any(known):
        return False
    gap, error, count, value = (part[known] for part in (gap, error, count, value))
    gap = np.sign(gap) * np.maximum(np.abs(gap) - room, 0.0)
    scale = max(float(np.max(error)), 1e-300)
    gap, error = gap / scale, error / scale
    if np.any((np.abs(gap) > _SINGLE * error) & (count >= _MANY)):
        return True
    for weight in (np.ones_like(value), value / max(float(np.max(np.abs(value))), 1e-300)):
        noise = np.sqrt(np.sum((weight * error) ** 2))
        if abs(np.sum(weight * gap)) > _SUM * noise:
            return True
    excess, noise = np.sum(gap**2 - error**2), np.sqrt(2.0 * np.sum(error**4))
    return bool(excess > _SQUARES * noise)
