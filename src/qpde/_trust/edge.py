"""What boundary values that are not exact add to a bound.

Where the killing rate is nowhere negative, two solutions differ by no more inside than on the boundary, and
where it is hardly negative by little more (the maximum principle, see `exit_time.py`). The values are off
because data with kinks were rounded off or fitted, or because the rule left the boundary to a penalty.
"""

from typing import NamedTuple

import numpy as np

from .._boundary.miss import Approximation, largest_miss
from .._equation.exit_time import amplification, exit_time
from .._equation.operator import Operator, Structure
from .._precision import cast
from .._problem.solution import Solution


class Edge(NamedTuple):
    """The size of the term, what it assumes, and whether one of the assumptions is a guess."""

    size: float
    assumptions: list[str]
    guessed: bool


def boundary_term(solution: Solution, heuristic: bool = False) -> Edge:
    """What the boundary values of `Q` add to a bound for the error."""
    edge = boundary_gap(solution)
    if edge.size == 0.0:
        return edge
    growth = inward_growth(solution.problem.operator)
    if growth is not None:
        return edge._replace(size=growth * edge.size)
    if not heuristic:
        raise ValueError(
            f"No bound for the error: the boundary values are off by up to {edge.size:.2g}, and how that "
            "spreads inside is known only where the term in u is proved to damp (c >= 0). Write the "
            "boundary values smoothly; certify(solution, heuristic=True) gives an estimate without proof."
        )
    words = "errors of boundary values do not grow inwards"
    return Edge(edge.size, [*edge.assumptions, words], True)


def boundary_gap(solution: Solution) -> Edge:
    """How far the boundary values of `Q` are off those that were given."""
    boundary, assumptions, size = solution.problem.boundary, [], 0.0
    if isinstance(boundary, Approximation):
        size = float(boundary.miss)
        if not boundary.proved:
            assumptions.append(
                f"boundary values are nowhere off by more than {size:.2g}, the most that a search found"
            )
    if not solution.trial.exact_boundary:
        trial = cast(solution.trial, "float64")
        soft, _ = largest_miss(trial.boundary.value, trial.network, solution.problem.domain)
        size += soft
        assumptions.append(
            f"the boundary mismatch is nowhere above {soft:.2g}, the most that a search found"
        )
    return Edge(size, assumptions, False)


def inward_growth(operator: Operator) -> float | None:
    """By how much errors of boundary values may grow inside, for all values of `u`; None: not proved."""
    if operator.structure is Structure.NONLINEAR or operator.domain.times is not None:
        return None
    values = (-np.inf, np.inf) if operator.structure is Structure.SEMILINEAR else None
    killing = operator.least(operator.killing, values)
    if killing.proved and killing.value >= 0:
        return 1.0
    growth = amplification(killing, exit_time(operator))
    return growth.value if growth is not None and growth.proved else None
