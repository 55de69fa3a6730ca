"""The words of a figure that depend on the solution."""

from typing import Any

from .._arguments import an_instance
from .._domain.base import short
from .._problem.solution import Solution
from .._text import for_figure
from .sections import point_of


def checked(solution: Any) -> Solution:
    """The solution that is to be drawn."""
    return an_instance("solution", solution, Solution, "qpde.solve(problem)")


def title(
    solution: Solution, section: str = "", through: Any = None, *, at_time: bool = True
) -> str:
    """Problem, dimension and rule; for a `section` ("line" or "slice") also the point that it contains.

    Where several times are shown, the time of that point is left out.
    """
    problem = solution.problem
    point = point_of(problem.domain, through)
    where = "the centre" if through is None else short(point)
    if through is None and at_time and problem.domain.times is not None:
        where = f"{where} at t = {point[-1]:.3g}"
    place = f", {section} through {where}" if section else ""
    return f"{for_figure(problem.name)}, d = {problem.space_dim}, {solution.rule}{place}"


def boundary_note(solution: Solution) -> str:
    """A remark where the held-out loss includes a penalty for wrong boundary values."""
    return "" if solution.trial.exact_boundary else " (with boundary term)"
