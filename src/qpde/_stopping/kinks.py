"""Where a payoff has kinks along the axes: strikes, from its values alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compiled import compiled
from .problem import Stopping

# Points of a line at first, halvings of the part with a kink, and kinks that are kept.
_POINTS, _HALVINGS, _MOST = 257, 40, 3
_STRIKES = 12


def strikes(problem: Stopping, levels: np.ndarray, kinks: list[list[float]]) -> np.ndarray:
    """Strikes for every axis `(d, m)`: quantiles of the states, some replaced by kinks."""
    found = np.quantile(levels, np.linspace(0.005, 0.995, _STRIKES + _MOST), axis=0).T
    found = np.exp(found) if problem.frame.prices else found
    for row, places in zip(found, kinks, strict=True):
        row[: len(places)] = places
    return found


def payoff_kinks(problem: Stopping, levels: np.ndarray) -> list[list[float]]:
    """Kinks of the payoff along each axis, through the middle of some states."""
    states = np.exp(levels) if problem.frame.prices else levels
    middle = np.median(states, axis=0)

    def along(axis: int) -> Callable[[np.ndarray], np.ndarray]:
        def values(places: np.ndarray) -> np.ndarray:
            rows = np.repeat(middle[None], _POINTS, axis=0)
            rows[: len(places), axis] = places
            return np.asarray(_paid(problem, rows))[: len(places)]

        return values

    ends = states.min(axis=0), states.max(axis=0)
    return [
        kinks_on_line(along(axis), low, high)
        for axis, (low, high) in enumerate(zip(*ends, strict=True))
    ]


@compiled(brief=True)
def _paid(problem: Stopping, states: Any) -> Array:
    return jax.vmap(problem.pays)(jnp.asarray(states))


def kinks_on_line(
    values: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> list[float]:
    """Places in `(low, high)` where second differences of a function stand out, at most three."""
    grid = np.linspace(low, high, _POINTS)
    bends = np.abs(np.diff(values(grid), n=2))
    out = 20.0 * np.median(bends) + 1e-9 * np.max(bends, initial=0.0)
    peak = (bends > out) & (bends >= np.roll(bends, 1)) & (bends > np.roll(bends, -1))
    places = np.flatnonzero(peak)
    places = places[np.argsort(-bends[places])][:_MOST]
    return sorted(_narrowed(values, float(grid[i]), float(grid[i + 2])) for i in places)


def _narrowed(values: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """The kink between two places: the half of the part that bends most, again and again."""
    for _ in range(_HALVINGS):
        parts = np.linspace(low, high, 5)
        i = int(np.argmax(np.abs(np.diff(values(parts), n=2))))
        if parts[i + 2] - parts[i] <= 1e-13 * max(abs(low), abs(high)):
            break
        low, high = float(parts[i]), float(parts[i + 2])
    return 0.5 * (low + high)
