"""Stopping without an end: one network for all times, by policy iteration.

Let `h` be a short time and `Q` a network with known means. Where one waits, `Q(x) = e^(-r h) E[Q(X_h) | x]`;
where one stops, `Q = payoff`. For a given set of states in which one stops both are linear in the output
layer: least squares at random states give it, and the network gives the next set. A short `h` is approached
from longer ones, whose sets are found in a few turns.
"""

import math
import time as clock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiled import compiled
from .kinks import payoff_kinks, strikes
from .problem import Stopping
from .solution import Rest, StoppingSolution, Waiting
from .units import Units, draw_units

# `discount * h` of the last turns, and how much longer the first ones are.
_SHORT, _LONGER = 1e-4, (1_000.0, 100.0, 10.0, 1.0)
_TURNS = 12
# States for each unit, and the discounted part of a payoff that is left at the end of paths.
_STATES, _CUT = 40, 1e-4
# Half of the units bend so much more sharply, nearer to the starts.
_SHARPER = 6.0
_RIDGE = 1e-13


def steady(
    problem: Stopping, rng: np.random.Generator, count: int, size: float, steps: int
) -> StoppingSolution:
    """The solution, with paths of about `steps` dates for its bounds."""
    started = clock.perf_counter()
    rate = float(problem.discount)
    end = -math.log(_CUT) / rate
    levels = _states(problem, rng, _STATES * count, end)
    units = _drawn(problem, rng, levels, count, size)
    payoff = np.asarray(_payoffs(problem, levels))
    now = np.asarray(_means(problem, units, levels, np.asarray(0.0)))
    stop, outer, worth = payoff > 0, np.zeros(now.shape[1]), payoff
    for longer in _LONGER:
        h = longer * _SHORT / rate
        later = math.exp(-rate * h) * np.asarray(_means(problem, units, levels, np.asarray(h)))
        for _ in range(_TURNS):
            rows = np.where(stop[:, None], now, (now - later) / (1.0 - math.exp(-rate * h)))
            outer = _least_squares(rows, np.where(stop, payoff, 0.0))
            worth = later @ outer
            before, stop = stop, (payoff >= worth) & (payoff > np.min(payoff))
            if np.array_equal(before, stop):
                break
    misfit = np.sqrt(np.mean((now @ outer - np.maximum(worth, payoff)) ** 2))
    return StoppingSolution(
        problem,
        _waiting(problem, units, outer, _growing(rate, end, steps), np.min(payoff)),
        np.asarray([misfit]),
        clock.perf_counter() - started,
    )


def _growing(rate: float, end: float, steps: int) -> np.ndarray:
    """Dates whose distance grows as much as payoffs are discounted."""
    return -np.log(np.linspace(1.0, math.exp(-rate * end), steps + 1)) / rate


def _states(problem: Stopping, rng: np.random.Generator, count: int, end: float) -> np.ndarray:
    """Levels at discounted times, early ones more often, a fifth of them at any time."""
    frame, dim = problem.frame, problem.dim
    first = np.log(problem.starts) if frame.prices else problem.starts
    early = rng.uniform(size=count) ** 3
    times = np.minimum(early * rng.exponential(1.0 / float(problem.discount), count), end)
    times[::5] = end * rng.uniform(size=len(times[::5]))
    noise = rng.normal(size=(count, dim)) @ frame.factor.T
    start = first[rng.integers(len(first), size=count)]
    return start + frame.speed * times[:, None] + np.sqrt(times)[:, None] * noise


def _drawn(
    problem: Stopping, rng: np.random.Generator, levels: np.ndarray, count: int, size: float
) -> Units:
    frame = problem.frame
    at = (levels - frame.origin) @ frame.inverse.T
    found = strikes(problem, levels, payoff_kinks(problem, levels))
    wide = draw_units(rng, frame, 0.0, at, count - count // 2, found, size)
    far = np.linalg.norm(at, axis=1)
    near = at[far <= np.median(far)]
    sharp = draw_units(rng, frame, 0.0, near, count // 2, found, _SHARPER * size)
    parts = ("directions", "shifts", "widths")
    both = [np.concatenate([getattr(wide, name), getattr(sharp, name)]) for name in parts]
    return eqx.tree_at(lambda u: [getattr(u, name) for name in parts], wide, both)


def _waiting(
    problem: Stopping, units: Units, outer: np.ndarray, times: np.ndarray, least: float
) -> Waiting:
    dim = problem.dim
    nothing = Rest(
        np.zeros((0, dim + 1)),
        np.zeros(0),
        np.zeros((1, dim)),
        np.ones((1, dim)),
        np.ones(()),
        False,
    )
    return Waiting(
        problem=problem,
        times=times,
        units=jax.tree.map(lambda leaf: leaf[None], units),
        outer=outer[None],
        rest=nothing,
        rests=np.zeros((1, dim + 2)),
        least=np.asarray(least if least >= 0 else -math.inf),
    )


def _least_squares(rows: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Least squares by the singular values of the scaled rows."""
    scale = 1.0 / np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
    found, *_ = np.linalg.lstsq(rows * scale, targets, rcond=_RIDGE)
    return scale * found


@compiled
def _means(problem: Stopping, units: Units, levels: Any, h: Any) -> Float[Array, "n u"]:
    frame = problem.frame
    return jax.vmap(lambda y: units.means(frame, y + frame.speed * h, h))(jnp.asarray(levels))


@compiled(brief=True)
def _payoffs(problem: Stopping, levels: Any) -> Float[Array, " n"]:
    prices = problem.frame.prices
    return jax.vmap(lambda y: problem.pays(jnp.exp(y) if prices else y))(jnp.asarray(levels))
