"""A plane through the domain, as pictures beside each other."""

from typing import Any, NamedTuple

import numpy as np

from .._arguments import whole
from .._domain.base import AbstractDomain
from .._problem.solution import Solution
from .evaluate import many, on_section, quietly
from .sections import coordinate, coordinate_plane, misses, two_axes
from .style import EXACT, TICKS, are_axes, new_figure
from .words import checked, title

# More cells along a side than a printed page shows.
_FINEST = 4_000
_PANELS = {"exact": "exact $u$", "computed": "computed $Q$"}
_PANELS |= {"error": "error $Q - u$", "residual": r"residual $|\mathcal{L} Q|$"}


class _Grid(NamedTuple):
    """Cells over the part of a plane that holds the domain, with a margin."""

    x: np.ndarray  # centres of the columns of cells
    y: np.ndarray  # centres of the rows
    lower: np.ndarray  # (2,) the lower left corner
    sides: np.ndarray  # (2,) width and height

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom and top, as `imshow` takes them."""
        left, bottom = self.lower
        return (left, left + self.sides[0], bottom, bottom + self.sides[1])


def slice(
    solution: Solution,
    axes: Any = None,
    *,
    plane: tuple[int, int] = (0, 1),
    through: Any = None,
    resolution: int = 200,
) -> Any:
    """Exact values, computed values and error on a plane; without an exact solution, computed and residual.

        >>> exact, computed, error = slice(solution, plane=(0, 2))

    The plane is spanned by two coordinate axes `through` a point, by default the centre. Outside
    the domain it is blank. `resolution` is the number of cells along the longer side.
    """
    problem = checked(solution).problem
    domain, exact = problem.domain, problem.exact
    whole("resolution", resolution, least=2, most=_FINEST)
    plane = two_axes(domain, plane)
    origin, basis = coordinate_plane(domain, plane, through)
    names = ("computed", "residual") if exact is None else ("exact", "computed", "error")
    if axes is not None:
        axes = are_axes("axes", axes, names)
    grid = _grid(domain, plane, resolution)
    t = np.stack(np.meshgrid(grid.x, grid.y), axis=-1)
    distance = on_section(many, domain.distance, origin, basis, t)
    t[distance < 0] = np.nan
    if np.all(np.isnan(t)):
        raise ValueError(misses("plane", domain, through))
    values = _values(solution, origin, basis, t)
    if axes is None:
        axes = _new_panels(len(names), grid.sides)
        words = title(solution, "slice" if domain.dim > 2 else "", through)
        axes[0].figure.suptitle(words, fontsize=9)
    for ax, name in zip(axes, names, strict=True):
        _panel(ax, name, values, grid)
        ax.contour(grid.x, grid.y, distance, levels=[0.0], colors=EXACT, linewidths=0.7)
        ax.set(xlabel=coordinate(domain, plane[0]))
    axes[0].set(ylabel=coordinate(domain, plane[1]))
    return tuple(axes)


def _grid(domain: AbstractDomain, plane: tuple[int, int], resolution: int) -> _Grid:
    lower, upper = (corner[list(plane)] for corner in domain.frame_box)
    margin = 0.03 * np.max(upper - lower)
    lower, sides = lower - margin, upper - lower + 2 * margin
    cells = np.ceil(resolution * sides / np.max(sides)).astype(int)
    x, y = (lower[i] + sides[i] * (np.arange(cells[i]) + 0.5) / cells[i] for i in (0, 1))
    return _Grid(x, y, lower, sides)


def _values(solution: Solution, origin: Any, basis: Any, t: np.ndarray) -> dict[str, np.ndarray]:
    """The numbers of every panel, by its name."""
    exact = solution.problem.exact
    computed = on_section(quietly, solution, origin, basis, t)
    if exact is None:
        residual = np.abs(on_section(quietly, solution.residual, origin, basis, t))
        return {"computed": computed, "residual": residual}
    u = on_section(many, exact, origin, basis, t)
    return {"exact": u, "computed": computed, "error": computed - u}


def _new_panels(count: int, sides: np.ndarray) -> Any:
    """Axes beside each other, in the shape of the plane, with room for colour bars."""
    width, height = np.maximum(1.75 * sides / np.max(sides), 0.75)
    size = (count * (width + 0.05) + 1.65, height + 0.92)
    return new_figure(size, 1, count, sharey=True, layout="compressed")


def _panel(ax: Any, name: str, values: dict[str, np.ndarray], grid: _Grid) -> None:
    """One picture, with its title and its colour bar."""
    style = {"extent": grid.extent, "origin": "lower", "interpolation": "nearest"}
    shown = np.ma.masked_invalid(values[name])
    image = ax.imshow(shown, aspect="equal", **style, **_colours(name, values))
    ax.locator_params(nbins=3, steps=[1, 2, 5, 10])
    ax.set_title(_PANELS[name], fontsize=ax.xaxis.label.get_size())
    if name != "exact":  # the exact values share the colours and the bar of the computed ones
        _colour_bar(ax, image, max(1.0, grid.sides[1] / grid.sides[0]), log=name == "residual")


def _colours(name: str, values: dict[str, np.ndarray]) -> dict[str, Any]:
    """The map and limits of a panel: exact and computed share theirs, the error is symmetric."""
    names = ("exact", "computed") if name in ("exact", "computed") else (name,)
    known = np.concatenate([values[n][np.isfinite(values[n])] for n in names if n in values])
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if name == "error":
        most = max(-low, high) or 1.0
        return {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    if name == "residual":
        return {"cmap": "magma_r", "norm": "log", "vmin": 1e-3 * (high or 1.0), "vmax": high or 1.0}
    return {"cmap": "viridis", "vmin": low, "vmax": high}


def _colour_bar(ax: Any, image: Any, unit: float, *, log: bool) -> None:
    """A bar at the right of a panel; its width is a share of the panel's times `unit`."""
    # An inset is exactly as high as the panel, whatever the layout.
    inset = ax.inset_axes((1.0 + 0.04 * unit, 0.0, 0.05 * unit, 1.0))
    bar = ax.figure.colorbar(image, cax=inset, extend="min" if log else "neither")
    bar.outline.set_linewidth(0.6)
    inset.tick_params(**TICKS)
    if not log:
        bar.formatter.set_powerlimits((-3, 4))
        bar.formatter.set_useMathText(True)
        inset.yaxis.set_offset_position("left")
        inset.yaxis.get_offset_text().set(fontsize=8)
