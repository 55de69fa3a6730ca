"""Points that a caller gives: their shape and numbers are checked in one place."""

from typing import Any

import numpy as np

from .._arguments import shown


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
    try:
        plain = np.asarray(points)
        if plain.dtype.kind in "cSUmMV" or points is None:
            raise TypeError
        array = np.asarray(plain, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"Points are real numbers of shape ({dim},) or (n, {dim}), got {shown(points)}."
        ) from None
    check_shape(array.shape, dim)
    rows = np.atleast_2d(array)
    bad = (~np.isfinite(rows)).any(axis=1).sum()
    if bad:
        raise ValueError(f"{bad} of the points contain NaN or infinity.")
    return rows
