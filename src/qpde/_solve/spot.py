"""A spot check by random walks: the L2 error of a solution of a linear equation.

From a random point `x` of the uniform law, two independent rounds of walks estimate the error `e(x)` of `Q`
by means `m_1` and `m_2`. `m_1 m_2` has the mean `e(x)^2`, however few the walks are, so that its mean over
random points is an unbiased estimate of `|Q - u|^2`, and its spread over the points gives an interval. Of
more than two rounds all pairs are taken.
"""

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
from scipy.special import stdtrit

from .._domain.base import drawn
from .._equation.operator import Operator, Structure
from .._precision import key_from
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._walks.estimate import Estimate
from .._walks.feynman_kac import feynman_kac
from .sizes import rms

# Points, walks from each in a round; and of the pilot, which tells how long walks are.
_POINTS, _WALKS, _PILOT_POINTS, _PILOT_WALKS = 256, 8, 16, 4
# Rounds before the first look at the interval, and before the second where that does not tell.
_ROUNDS = (2, 6)
# Steps of all walks times dimensions: about two seconds. With time steps and from sphere to sphere, walks are
# done up to a dimension.
_WORK, _TIME_STEPS, _SPHERES = 5e7, 100, 20_000
# A control variate whose standard error in the pilot is above this share of the values is left out.
_SPREAD = 0.3
# The chance, at each look, that the error is above the upper end of the interval or below the lower one.
_RISKS = (5e-4, 5e-5)


@dataclasses.dataclass(frozen=True)
class Spot:
    """The error as walks see it, or why they do not. `low` and `high` are the ends of an interval."""

    error: float | None
    low: float | None
    high: float | None
    text: str


def spot_check(solution: Solution, size: float, limits: tuple[float, float]) -> Spot:
    """`|Q - u|` in L2 by walks from random points, until it is seen below or above one of two limits.

    `size` is `|Q|`, from many more points. The ends of the interval are those of the normal law, corrected
    for skewness. Where a few points carry the error, as in high dimension, the upper one may be too low.
    """
    why = "none were asked for" if _WALKS == 0 else no_walks(solution.problem)
    if why:
        return Spot(None, None, None, why)
    points = drawn(solution.problem.domain, key_from(solution.seed, 0x5907), _POINTS)
    try:
        return _rounds(solution, np.asarray(points), size, limits)
    except (ValueError, RuntimeError) as error:
        return Spot(None, None, None, str(error).split(". ")[0].rstrip("."))


def no_walks(problem: Problem) -> str:
    """Why there can be no walks, where that is known beforehand; empty where there can."""
    domain: Any = problem.domain
    try:
        operator = problem.operator
        if operator.structure is not Structure.LINEAR:
            return "the equation is not linear"
        quick = _on_spheres(operator)
        if domain.follows_paths:
            quick = domain.law.exact and "c" not in operator.varies
        if domain.times is not None and not quick:
            return "walks in time steps would take too long"
        slow = problem.dim > _TIME_STEPS and not quick
    except ValueError as error:
        return str(error)
    if slow:
        return f"time steps in {problem.dim} dimensions would take too long"
    many = problem.dim > _SPHERES
    return f"walks in {problem.dim:,} dimensions would take too long" if many else ""


def _on_spheres(operator: Operator) -> bool:
    """Whether walks go from sphere to sphere, without time steps."""
    return operator.isotropic and not operator.varies and not operator.has_drift


def _rounds(
    solution: Solution, points: np.ndarray, size: float, limits: tuple[float, float]
) -> Spot:
    """Rounds of walks from the points; fewer, from fewer points, where a pilot says that walks are long.

    A poor network makes a poor control variate: where the pilot spreads much with it, it is left out. The
    walks that count are drawn anew, so that the choice does not bend them.
    """
    pilot = _walks(solution, points[:_PILOT_POINTS], _PILOT_WALKS, 1)
    poor = not rms(pilot.standard_error) <= _SPREAD * rms(pilot.value)
    steps = pilot.work / (_PILOT_POINTS * _PILOT_WALKS)
    # Of all rounds but the last two.
    affordable = _WORK / (max(steps, 1.0) * (solution.problem.dim + 10))
    few, rounds = 4 * _PILOT_POINTS, _ROUNDS[-1] - 2
    points = points[: int(np.clip(affordable / (2 * rounds), few, len(points)))]
    each = int(np.clip(affordable / (rounds * len(points)), 2, _WALKS))
    found: list[Estimate] = []
    spot = Spot(None, None, None, "too few walks came to an end")
    start = solution.problem if poor else solution
    for rounds in _ROUNDS:
        more = rounds - len(found)
        # Rounds at once: the longest walk of all is waited for once.
        together = _walks(start, np.tile(points, (more, 1)), each, 2 + len(found))
        found += _separated(together, more)
        spot = _spot(solution, found, size)
        if spot.low is None or spot.high is None or spot.high <= limits[0] or spot.low > limits[1]:
            break
    return spot


def _separated(together: Estimate, count: int) -> list[Estimate]:
    """The rounds of walks that were done at once."""
    parts = ("points", "value", "standard_error", "low", "high", "bias", "walks")
    split = {name: np.split(getattr(together, name), count) for name in parts}
    return [
        dataclasses.replace(together, **{name: split[name][i] for name in parts})
        for i in range(count)
    ]


def _walks(start: Solution | Problem, points: np.ndarray, count: int, seed: int) -> Estimate:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the network has kinks is told elsewhere
        return feynman_kac(start, points, walks=count, seed=seed, progress=False)


def _spot(solution: Solution, found: list[Estimate], size: float) -> Spot:
    """The interval for the L2 error from the values of the rounds."""
    if any(not one.status.successful for one in found):
        return Spot(None, None, None, "some walks did not come to an end")
    if found[0].blind:
        return Spot(None, None, None, found[0].blind)
    values = np.stack([one.value for one in found])
    good = np.all(np.isfinite(values), axis=0)
    count = int(good.sum())
    if count < _PILOT_POINTS // 2:
        return Spot(None, None, None, "too few walks came to an end")
    q = np.asarray(solution(found[0].points), np.float64)[good]
    # In units of the values, whose squares may be no numbers.
    unit = max(size, float(np.max(np.abs(q))), float(np.max(np.abs(values[:, good]))), 1e-300)
    gaps, q, size = (values[:, good] - q[None, :]) / unit, q / unit, size / unit
    bias = float(np.mean([np.max(one.bias) for one in found])) / unit
    # The mean of m_a m_b over all pairs of rounds.
    pairs = (np.sum(gaps, 0) ** 2 - np.sum(gaps**2, 0)) / (len(found) * (len(found) - 1))
    pairs = _adjusted(pairs, q, size)
    mean = float(np.mean(pairs))
    method = found[0].method + ("" if found[0].corrected else ", without the network")
    return Spot(
        error=unit * float(np.sqrt(max(mean, 0.0))),
        low=unit * max(_lower(np.mean(gaps, 0), q, pairs) - bias, 0.0),
        # Values are known to rounding at best.
        high=unit * (float(np.sqrt(max(mean, 0.0) + _above(pairs))) + bias + 1e-14 * rms(q)),
        text=f"{sum(int(np.sum(one.walks)) for one in found):,} random walks from {count} points ({method})",
    )


def _mean(values: np.ndarray) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def _adjusted(squares: np.ndarray, q: np.ndarray, size: float) -> np.ndarray:
    """The squares with what `|Q|^2`, which is known better, says of these points (a ratio estimate).

    In high dimension a few points inside carry both the error and the values, and a sample may have too few
    of them: a mean of squares that is too small goes with one of `Q^2` that is too small.
    """
    known = float(np.mean(q * q))
    if not (known > 0 and size > 0):
        return squares
    ratio = float(np.mean(squares)) / known
    return (squares - ratio * q * q) * (size * size / known) + ratio * size * size


def _above(values: np.ndarray) -> float:
    """By how much the true mean may lie above that of the values.

    Student's quantile, and Johnson's term for laws with a long tail to the right, as squares of errors have
    where a few points inside carry them: samples mostly miss the tail.
    """
    count, quantile = len(values), -float(stdtrit(len(values) - 1, _RISKS[0]))
    mean, error = _mean(values)
    spread = error * math.sqrt(count)
    skewness = float(np.mean((values - mean) ** 3)) / max(spread**3, 1e-300)
    return quantile * error + max(skewness, 0.0) * spread * (1 + 2 * quantile**2) / (6 * count)


def _lower(gap: np.ndarray, q: np.ndarray, squares: np.ndarray) -> float:
    """A lower end for the root mean square of the error `e`, at a third of the risk each way.

    From its square, and from `|<e, v>| <= |e| |v|` with `v = 1` and `v = Q`: a mean of one sign stands out
    of the noise long before its square does.
    """
    quantile = -float(stdtrit(len(gap) - 1, _RISKS[1] / 3))

    def below(values: np.ndarray) -> float:
        mean, error = _mean(values)
        return max(abs(mean) - quantile * error, 0.0)

    whole = below(squares) if np.mean(squares) > 0 else 0.0
    size = rms(q)
    return max(math.sqrt(whole), below(gap), below(gap * q) / size if size > 0 else 0.0)
