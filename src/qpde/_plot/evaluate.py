"""Values for a figure: functions at many points, in chunks."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from .._precision import by_chunks, x64

# Points are made and evaluated this many at a time: a slice in 10,000 dimensions fits in memory.
_CHUNK = 1_024


def many(function: Callable[..., Any], x: Any) -> np.ndarray:
    """A function of one point at the points `x (n, d)`, in float64."""
    with x64():
        return by_chunks(jax.vmap(function), np.asarray(x), _CHUNK)


def quietly(function: Callable[..., Any], x: Any) -> np.ndarray:
    """A function of many points, such as a solution, without its warning of points outside.

    The points of a figure lie in the closed domain; rounding to float32 may put some of them outside.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*lie outside")
        return np.asarray(function(x), np.float64)


def on_section(
    evaluate: Callable[..., np.ndarray], function: Any, origin: Any, basis: Any, t: np.ndarray
) -> np.ndarray:
    """`evaluate(function, x)` at the points `x = origin + t @ basis` of a line or a plane.

    **Arguments**

    - `evaluate`: `many` or `quietly`.
    - `basis`: `(k, d)`, one unit vector of a line or two of a plane.
    - `t`: coordinates `(..., k)`; where they are NaN, so is the value.
    """
    known = ~np.isnan(t).any(axis=-1)
    values, chosen = np.full(known.shape, np.nan), t[known]
    starts = range(0, len(chosen), _CHUNK)
    parts = [evaluate(function, origin + chosen[i : i + _CHUNK] @ basis) for i in starts]
    values[known] = np.concatenate([[], *parts])
    return values
