"""Whether an equation is the largest or the smallest of several operators."""

from .._program.interval import roughness_over
from .._program.levels import KINK
from .damping import Whole, every_jet
from .operator import Operator

# The arguments of `Whole` that hold second derivatives.
_SECOND = (3, 4)


def chooses(operator: Operator) -> bool:
    """Whether the equation's program has kinks in second derivatives: obstacles, switching, volatility.

    Second derivatives of its solutions then jump where the choice changes.
    """
    (levels,) = roughness_over(Whole(operator.equation), *every_jet(operator.domain))
    return any(levels.get(argument, 0) >= KINK for argument in _SECOND)
