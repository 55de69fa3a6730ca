"""What every bound leaves to others: the rounding of values, the word of whoever wrote a domain."""

from .._problem.solution import Solution


def said_of(solution: Solution) -> list[str]:
    """What is to be said of a bound for this solution that makes it no weaker."""
    said = []
    if solution.precision == "float32":
        said.append(
            "Q is meant in exact numbers, while values in float32 are rounded to seven digits"
        )
    if solution.trial.exact_boundary and solution.problem.domain.sloped_eta is None:
        said.append("eta vanishes on the boundary, as at random points")
    return said
