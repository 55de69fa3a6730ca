"""Points that a caller gives: their shape and numbers are checked in one place."""

from typing import Any

import numpy as np


def check_shape(shape: tuple[int, ...], dim: int) -> None:
    """Refuse points that are neither `(d,)` nor `(n, d)`."""
    if len(shape) in (1, 2) and shape[-1] == dim:
        return
    cure = " In one dimension write points[:, None]." if dim == 1 and len(shape) == 1 else ""
    raise ValueError(
        f"Points of this problem have shape ({dim},) or (n, {dim}), got {shape}.{cure}"
    )


def as_rows(points: Any, dim: int) -> np.ndarray:
    """Points as finite float64 rows `(n, d)`; one point `(d,)` is one row."""
    array = np.asarray(points, np.float64)
    check_shape(array.shape, dim)
    rows = np.atleast_2d(array)
    bad = (~np.isfinite(rows)).any(axis=1).sum()
    if bad:
        raise ValueError(f"{bad} of the points contain NaN or infinity.")
    return rows
