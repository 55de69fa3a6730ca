"""What bounds leave to others: the rounding of values, the word of whoever wrote a domain, ranges of values.

Bounds for nonlinear terms hold between `Q` and `u`, so that both must stay in a range that is given.
That `u` does is the user's knowledge; that `Q` does is shown here.
"""

from typing import NamedTuple

import numpy as np

from .._equation.operator import Structure
from .._field.base import Autodiff
from .._precision import cast
from .._problem.evolution import Extension
from .._problem.solution import Solution
from .._program.interval import Unbounded
from .residual import CELLS, cell_bounds, value_range


class Held(NamedTuple):
    """What is said of a range, and whether it is proved that `Q` lies in it."""

    words: list[str]
    proved: bool


WITHIN = Held([], True)


def held_range(solution: Solution, values: tuple[float, float] | None, rigorous: bool) -> Held:
    """Whether `Q` stays in a given range; raise where it does not, or where a proof is asked and fails."""
    if values is None or solution.problem.operator.structure is Structure.LINEAR:
        return WITHIN
    low, high = values
    seen = value_range(solution)
    if not low <= seen[0] <= seen[1] <= high:
        raise ValueError(
            f"Q takes values from {seen[0]:.4g} to {seen[1]:.4g}, beyond the value_range ({low:.4g}, "
            f"{high:.4g}), and a bound looks at all values between Q and u. Give a range that holds both."
        )
    known = f"u takes values from {low:.4g} to {high:.4g}, as you say"
    if _is_enclosed(solution, low, high):
        return Held([known], True)
    if rigorous:
        raise ValueError(
            f"No rigorous bound: interval arithmetic does not show that Q stays between {low:.4g} and "
            f"{high:.4g}. Give a wider value_range, or leave rigorous=True out."
        )
    return Held([known, "and so does Q, as at random points"], False)


def _is_enclosed(solution: Solution, low: float, high: float) -> bool:
    domain, trial = solution.problem.domain, cast(solution.trial, "float64")
    if domain.dim not in CELLS:
        return False
    middle = 0.5 * (low + high)
    try:
        most, _ = cell_bounds(domain, lambda x: trial.value(x) - middle)
    except Unbounded:
        return False
    room = np.nextafter(min(high - middle, middle - low), 0.0)
    return bool(np.max(most) <= room)


def said_of(solution: Solution) -> list[str]:
    """What is to be said of a bound for this solution that makes it no weaker."""
    said = []
    if solution.precision == "float32":
        said.append(
            "Q is meant in exact numbers, while values in float32 are rounded to seven digits"
        )
    if solution.trial.exact_boundary and solution.problem.domain.sloped_eta is None:
        said.append("eta vanishes on the boundary, as at random points")
    field = solution.problem.boundary
    if isinstance(field, Autodiff) and isinstance(field.function, Extension):
        said.append("initial and boundary data agree where they meet, as at random points")
    return said
