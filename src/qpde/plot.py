"""Figures of a solution. Each function draws on the axes it is given, or makes some, and returns them.

save(radial(solution), "radial.pdf")
"""

from ._plot.curves import compare, history
from ._plot.figures import save, suited
from ._plot.film import film
from ._plot.loops import paths
from ._plot.slices import slice
from ._plot.values import profile, radial, scatter

__all__ = [
    "compare",
    "film",
    "history",
    "paths",
    "profile",
    "radial",
    "save",
    "scatter",
    "slice",
    "suited",
]
