"""Paths of closed loops."""

from typing import Any

import numpy as np

from .._arguments import an_instance, whole
from .._walks.simulate import Simulation
from .style import CYCLE, finish, new_axes


def paths(simulation: Simulation, ax: Any = None, *, coordinate: int = 0) -> Any:
    """A coordinate of the paths of a closed loop against time; a dot where a path leaves the domain.

    >>> ax = paths(simulate(solution, start))
    """
    an_instance("simulation", simulation, Simulation, "qpde.simulate(solution, start)")
    dim = np.atleast_2d(simulation.start).shape[1]
    which = whole("coordinate", coordinate, most=dim - 1)
    if not simulation.paths:
        raise ValueError("This simulation kept no paths: call qpde.simulate(..., paths=8).")
    ax = new_axes(ax)
    for i, (t, x) in enumerate(zip(simulation.times, simulation.paths, strict=True)):
        color = CYCLE[i % len(CYCLE)]
        ax.plot(t, x[: len(t), which], color=color, lw=0.8)
        ax.plot(t[-1], x[len(t) - 1, which], color=color, marker="o", ms=3, ls="")
    ax.set(xlabel="time", ylabel=f"$x_{{{which + 1}}}$")
    word = "reward" if simulation.maximised else "cost"
    cost = np.atleast_1d(simulation.cost)[0]
    return finish(ax, f"closed loop, mean {word} {cost:.4g}")
