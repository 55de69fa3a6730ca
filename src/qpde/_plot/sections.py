"""Lines and planes through a domain."""

from typing import Any

import numpy as np

from .._arguments import reals, shown
from .._domain.base import AbstractDomain, as_point, short
from .evaluate import many, on_section


def point_of(domain: AbstractDomain, through: Any) -> np.ndarray:
    """A copy of the point that a section passes through, by default the centre of the domain."""
    return np.array(domain.centre if through is None else as_point("through", through, domain.dim))


def straight_line(domain: AbstractDomain, direction: Any, through: Any) -> tuple[Any, Any, str]:
    """The origin of a line, its unit vector `(1, d)` and the label of its coordinate.

    The coordinate is `x_i` along an axis, and the distance from `through` along any other vector.
    """
    origin, dim = point_of(domain, through), domain.dim
    vector = reals("direction", direction, f"an axis below {dim} or {dim} numbers")
    if isinstance(direction, int | np.integer) and 0 <= direction < dim:
        origin[direction] = 0.0
        label = coordinate(domain, int(direction))
        return origin, np.eye(1, dim, int(direction)), label
    length = np.linalg.norm(vector) if vector.shape == (dim,) else 0.0
    if length > 0 and np.isfinite(length):
        return origin, vector[None] / length, "distance along the line"
    got = np.asarray(direction) if vector.size <= 10 else f"shape {vector.shape}"
    raise ValueError(f"direction is an axis below {dim} or {dim} numbers, not 0; got {got}.")


def coordinate(domain: AbstractDomain, axis: int) -> str:
    """The label of a coordinate axis."""
    if domain.times is not None and axis == domain.dim - 1:
        return "$t$"
    return "$x$" if domain.dim == 1 else f"$x_{{{axis + 1}}}$"


def two_axes(domain: AbstractDomain, plane: Any) -> tuple[int, int]:
    """The numbers of the coordinate axes that span a plane."""
    if domain.dim == 1:
        raise ValueError("A slice needs two dimensions or more. In one, draw qpde.plot.profile.")
    axes = np.asarray(plane) if isinstance(plane, tuple | list | range | np.ndarray) else None
    good = axes is not None and axes.shape == (2,) and axes.dtype.kind in "iu"
    if (
        axes is None
        or not good
        or axes[0] == axes[1]
        or not np.all((axes >= 0) & (axes < domain.dim))
    ):
        last = domain.dim - 1
        raise ValueError(f"plane must be two different axes from 0 to {last}, got {shown(plane)}.")
    return int(axes[0]), int(axes[1])


def coordinate_plane(
    domain: AbstractDomain, axes: tuple[int, int], through: Any
) -> tuple[Any, Any]:
    """The origin of a plane and its unit vectors `(2, d)`, along two coordinate axes."""
    origin = point_of(domain, through)
    origin[list(axes)] = 0.0
    return origin, np.concatenate([np.eye(1, domain.dim, axis) for axis in axes])


def misses(section: str, domain: AbstractDomain, through: Any) -> str:
    """The message for a line or a plane that does not meet the domain."""
    where = short(point_of(domain, through))
    return f"The {section} through {where} misses {domain!r}. Choose `through` inside the domain."


def inside_line(domain: AbstractDomain, origin: Any, unit: Any, count: int) -> np.ndarray:
    """Coordinates `(n, 1)` of the points of a line in the closed domain.

    Where the domain has a hole, the line has several pieces; a NaN stands between two of them.
    """
    lower, upper = domain.frame_box
    centre, radius = domain.enclosing_ball
    if domain.follows_paths:
        centre, radius = 0.5 * (lower + upper), 0.5 * np.linalg.norm(upper - lower)
    middle = float(unit[0] @ (centre - origin))
    square = radius**2 - np.sum((origin + middle * unit[0] - centre) ** 2)
    # A little beyond the ball, so that both ends are outside and crossings come in pairs.
    t = middle + 1.001 * np.sqrt(max(square, 0.0)) * np.linspace(-1.0, 1.0, 2_001)

    def inside(t: np.ndarray) -> np.ndarray:
        return on_section(many, domain.distance, origin, unit, t[:, None]) >= 0

    found = inside(t)
    before = np.flatnonzero(np.diff(found))
    enters = found[before + 1]
    inner, outer = t[before + enters], t[before + ~enters]
    for _ in range(55 if before.size else 0):
        half = 0.5 * (outer + inner)
        good = inside(half)
        outer, inner = np.where(good, outer, half), np.where(good, half, inner)
    pieces = inner.reshape(-1, 2)
    share = max(count // max(len(pieces), 1), 2)
    parts = [np.append(np.linspace(start, end, share), np.nan) for start, end in pieces]
    return np.concatenate([[], *parts])[:-1, None]
