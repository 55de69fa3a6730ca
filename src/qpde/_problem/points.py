"""Points that a caller gives: their shape and numbers are checked in one place."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arguments import shown
from .._domain.base import AbstractDomain


def check_shape(shape: tuple[int, ...], dim: int, evolves: bool = False) -> None:
    """Refuse points that are neither `(d,)` nor `(n, d)`."""
    if len(shape) in (1, 2) and shape[-1] == dim:
        return
    if evolves:
        raise ValueError(
            f"Points of this evolution problem have shape ({dim - 1},) or (n, {dim - 1}) with a time, "
            f"solution(x, t), or ({dim},) or (n, {dim}) with time last; got {shape}."
        )
    cure = " In one dimension write points[:, None]." if dim == 1 and len(shape) == 1 else ""
    raise ValueError(
        f"Points of this problem have shape ({dim},) or (n, {dim}), got {shape}.{cure}"
    )


def as_rows(points: Any, dim: int, evolves: bool = False) -> np.ndarray:
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
    check_shape(array.shape, dim, evolves)
    rows = np.atleast_2d(array)
    bad = (~np.isfinite(rows)).any(axis=1).sum()
    if bad:
        raise ValueError(f"{bad} of the points contain NaN or infinity.")
    return rows


def with_times(points: Any, t: Any, domain: AbstractDomain) -> Any:
    """Points of space-time from points in space and a time, one for all points or one each."""
    if domain.times is None:
        raise ValueError(
            "This problem is stationary: its solution takes points alone, solution(x)."
        )
    space = domain.dim - 1
    if isinstance(points, jax.Array) or isinstance(t, jax.Array):
        points, given = jnp.asarray(points), jnp.asarray(t)
        numpy: Any = jnp
    else:
        points, given = np.asarray(points), np.asarray(t)
        numpy = np
        if given.dtype.kind not in "iuf":
            raise ValueError(f"t is a time or an array of times, got {shown(t)}.")
    if points.ndim not in (1, 2) or points.shape[-1] != space:
        raise ValueError(
            f"Points in space have shape ({space},) or (n, {space}) where a time is given, got "
            f"{points.shape}."
        )
    if given.shape not in ((), points.shape[:-1]):
        raise ValueError(
            f"t is one time, or one for each of the {len(points)} points, got shape {given.shape}."
        )
    column = numpy.broadcast_to(given, points.shape[:-1])[..., None]
    return numpy.concatenate([points, column], axis=-1)
