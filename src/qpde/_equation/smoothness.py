"""Kinks and jumps of a function, found by bisection. It can find them, never rule them out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._precision import key_from

_GRID, _CELLS, _HALVINGS = 513, 32, 30
# Lines on which a domain is searched.
LINES = 16


class Leap(NamedTuple):
    """A place where a derivative of some order leaps or is not finite: 0 is the function itself."""

    order: int
    place: Any
    size: float


def leap_on_line(
    derivative: Callable[[np.ndarray], np.ndarray], low: float, high: float
) -> tuple[float, float] | None:
    """Place and size of a leap of a function of many numbers at once, between two ends.

    The cells of a grid in which it changes most are halved thirty times. What is smooth changes by
    1e-9 of what it did before; a leap stays.
    """
    grid = np.linspace(low, high, _GRID)
    before = np.abs(np.diff(derivative(grid)))
    if not np.all(np.isfinite(before)):
        return float(grid[int(np.argmax(~np.isfinite(before)))]), np.inf
    cells = np.argsort(before)[-_CELLS:]
    left, right = grid[cells], grid[cells + 1]
    for _ in range(_HALVINGS):
        middle = 0.5 * (left + right)
        a, m, b = derivative(np.concatenate([left, middle, right])).reshape(3, -1)
        first = np.abs(m - a) >= np.abs(b - m)
        left, right = np.where(first, left, middle), np.where(first, middle, right)
    ends = derivative(np.concatenate([left, right])).reshape(2, -1)
    after = np.where(np.isfinite(ends).all(axis=0), np.abs(ends[1] - ends[0]), np.inf)
    leaps = np.where(after > 0.1 * before[cells] + 1e-9, after, 0.0)
    worst = int(np.argmax(leaps))
    return None if leaps[worst] == 0 else (float(left[worst]), float(leaps[worst]))


def leap_inside(
    function: Callable[[Array], Array], domain: AbstractDomain, orders: int
) -> Leap | None:
    """A leap inside the domain, of the function or of its first `orders` derivatives, on random lines."""
    for order in range(orders + 1):
        for start, end in zip(*_chords(domain), strict=True):

            def values(t: np.ndarray, start: Any = start, end: Any = end) -> np.ndarray:
                return np.asarray(_along(function, start, end, t, order))  # noqa: B023

            found = leap_on_line(values, 1e-3, 1.0 - 1e-3)
            if found is not None:
                return Leap(order, start + found[0] * (end - start), found[1])
    return None


@compiled(brief=True)
def _along(
    function: Callable[[Array], Array], start: Any, end: Any, t: Any, order: int
) -> Float[Array, " n"]:
    """A derivative of the function along the line from `start` to `end`, at many places."""
    line: Callable[[Array], Array] = lambda s: function(start + s * (end - start))  # noqa: E731
    for _ in range(order):
        line = _derivative(line)
    return jax.vmap(line)(t)


def _chords(domain: AbstractDomain) -> np.ndarray:
    """Ends of lines between boundary points that do not leave the domain, at 64 points of each."""
    ends, inside = (np.asarray(part) for part in _pairs(domain, key_from(5)))
    return ends[:, inside][:, :LINES]


@compiled(brief=True)
def _pairs(domain: AbstractDomain, key: PRNGKeyArray) -> tuple[Array, Array]:
    """Pairs of boundary points, and whether the line between them stays inside."""
    ends = domain.sample_boundary(key, 32 * LINES).reshape(2, 16 * LINES, -1)
    t = jnp.linspace(1e-3, 1.0 - 1e-3, 64)[:, None]

    def whole(start: Array, end: Array) -> Array:
        return jnp.all(jax.vmap(domain.contains)(start[None] + t * (end - start)[None]))

    return ends, jax.vmap(whole)(*ends)


def _derivative(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda s: jax.jvp(function, (s,), (jnp.ones_like(s),))[1]
