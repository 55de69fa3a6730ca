"""Values along a line at several times, as a strip of panels."""

from typing import Any

import numpy as np

from .._arguments import whole
from .._problem.solution import Solution
from .evaluate import many, on_section, quietly
from .sections import inside_line, misses, point_of, straight_line
from .style import COMPUTED, EXACT, are_axes, new_figure
from .words import checked, title

_MOST = 12


def film(
    solution: Solution,
    axes: Any = None,
    *,
    direction: Any = 0,
    through: Any = None,
    times: int = 5,
    count: int = 201,
) -> Any:
    """`Q` along a line in space at several times, a panel each, from the data on; evolution problems only.

        >>> panels = film(solution, times=4)

    The line runs along `direction`, an axis in space or a vector of space-time with no part in time,
    `through` a point of space-time whose time does not matter, by default the centre.
    """
    problem = checked(solution).problem
    domain, exact, interval = problem.domain, problem.exact, problem.domain.times
    if interval is None:
        raise ValueError("A film shows an evolution problem; this one is stationary.")
    whole("count", count, least=2)
    instants = np.linspace(0.0, float(interval.end), whole("times", times, least=2, most=_MOST))
    names = tuple(f"t = {t:.3g}" for t in instants)
    if axes is None:
        axes = new_figure((1.55 * len(names) + 0.5, 2.1), 1, len(names), sharey=True)
        axes[0].figure.suptitle(title(solution, "line", through, at_time=False), fontsize=9)
    axes = are_axes("axes", axes, names)
    place = point_of(domain, through)
    for ax, t, name in zip(axes, instants, names, strict=True):
        place[-1] = t
        origin, unit, label = straight_line(domain, direction, place)
        if unit[0, -1] != 0:
            raise ValueError(
                "direction must lie in space: its part in time, the last, must be zero."
            )
        along = inside_line(domain, origin, unit, count)
        if along.size == 0:
            raise ValueError(misses("line", domain, place))
        if exact is not None:
            ax.plot(along, on_section(many, exact, origin, unit, along), color=EXACT, lw=1.0)
        dashes = "-" if exact is None else "--"
        values = on_section(quietly, solution, origin, unit, along)
        ax.plot(along, values, dashes, color=COMPUTED, lw=1.4)
        ax.set(xlabel=label)
        ax.set_title(name, fontsize=ax.xaxis.label.get_size())
    axes[0].set(ylabel="$u$")
    return tuple(axes)
