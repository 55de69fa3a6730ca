"""The figures of a solution, listed once: how each is drawn, what it shows, which problems it suits."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .._arguments import shown, whole
from .._problem.problem import Problem
from .._problem.solution import Solution
from .curves import history
from .film import film
from .slices import slice
from .style import close, figure_of, write_figure
from .values import profile, radial, scatter
from .words import checked

# Dots an inch: below the first letters have none, the last is above what printers have.
_COARSEST, _SHARPEST = 20, 4_800


class FigureKind(NamedTuple):
    """A figure that can be drawn of a solution."""

    draw: Callable[..., Any]
    caption: str
    suits: Callable[[Problem], bool]


FIGURES = {
    "history": FigureKind(
        history,
        "The loss during training: every minibatch, and the held-out points.",
        lambda problem: True,
    ),
    "profile": FigureKind(
        profile,
        "Values along a line through the domain.",
        lambda problem: True,
    ),
    "radial": FigureKind(
        radial,
        "Values at random points against the distance from the centre.",
        # The profile of an interval shows all of it; folded at the centre it would show no more.
        lambda problem: problem.domain.round is not None and not problem.domain.fills_box,
    ),
    "slice": FigureKind(
        slice,
        "A plane through the domain.",
        lambda problem: problem.dim >= 2,
    ),
    "film": FigureKind(
        film,
        "Values along a line at several times.",
        lambda problem: problem.domain.times is not None,
    ),
    "scatter": FigureKind(
        scatter,
        "Computed against exact values at random points.",
        lambda problem: problem.exact is not None,
    ),
}


def suited(solution: Solution) -> dict[str, Callable[..., Any]]:
    """The figures that suit a solution, by name.

    >>> for name, draw in suited(solution).items():
    ...     save(draw(solution), f"{name}.png")
    """
    problem = checked(solution).problem
    return {name: kind.draw for name, kind in FIGURES.items() if kind.suits(problem)}


def save(axes: Any, path: str | Path, *, dpi: int = 300) -> Any:
    """Write the figure that holds the axes, in the format of the path's suffix, and return it.

        >>> figure = save(slice(solution), "slice.pdf")

    The same figure gives the same bytes. A PDF holds TrueType fonts, as journals ask.
    """
    figure = figure_of(axes)
    _check_target(figure, path)
    write_figure(figure, path, dpi=whole("dpi", dpi, least=_COARSEST, most=_SHARPEST))
    return figure


def _check_target(figure: Any, path: Any) -> None:
    """Refuse what is no path, or has no suffix of a format that matplotlib writes."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be a path such as 'figure.pdf', got {shown(path)}.")
    known = figure.canvas.get_supported_filetypes()
    suffix = Path(path).suffix[1:].lower()
    if suffix not in known:
        raise ValueError(
            f"path must end with one of .{', .'.join(sorted(known))}, got {shown(str(path))}."
        )


def write_figures(
    solution: Solution, folder: Path, suffix: str, names: Sequence[str] | None = None
) -> list[Path]:
    """Write the named figures, or all that suit the solution, into a folder, and return their paths."""
    drawn = suited(solution)
    for name in names or ():
        if name not in drawn:
            raise ValueError(f"No figure {name!r} suits this solution. It has: {', '.join(drawn)}.")
    paths = [folder / f"{name}.{suffix}" for name in names or drawn]
    for path in paths:
        close(save(drawn[path.stem](solution), path))
    return paths
