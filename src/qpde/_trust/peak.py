"""What a sample of `L Q` may have missed: a search for larger values, and peaks of the equation's own terms.

The network's part of `L Q` is only known at points. The source and the coefficients are formulas: where
interval arithmetic over small cells bounds them well, what is larger than at all points is counted.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiled import compiled
from .._domain.base import AbstractDomain, drawn
from .._domain.random import directions
from .._equation.cells import cells
from .._equation.operator import Operator, Structure
from .._precision import cast, key_from
from .._problem.solution import Solution
from .._problem.trial import Trial
from .._program.interval import Unbounded, enclose
from .._program.program import dependencies
from .residual import CELLS, Sample

_STARTS, _ROUNDS = 64, 40
# Peaks are assumed to be at most this many times as high as the highest that was found.
MARGIN = 2.0
# An enclosure that exceeds what points have shown by less than this has shown nothing.
_SLACK = 1.5
# A source that may be this many times as large as at random points has a peak that they miss: by cells, and
# by one box, which may be far off by itself.
_PEAK, _LOOSE = 3.0, 50.0
# Enclosures of a source that is zero are not: operations widen them by 1e-300, whatever their size.
_ZERO = 1e-200
_RANDOM = 20_000


def search_peak(solution: Solution, sample: Sample) -> float:
    """The largest `|L Q|` that a search finds: uphill and in random directions from the worst points."""
    trial, domain = cast(solution.trial, "float64"), solution.problem.domain
    found = float(np.max(np.abs(sample.residual)))
    sizes = np.abs(np.asarray(_residuals(trial, sample.worst)))
    starts = sample.worst[np.argsort(sizes)[-_STARTS:]]
    steps = domain.inradius * np.geomspace(0.3, 1e-6, _ROUNDS)
    shape = (len(starts), _ROUNDS, domain.dim)
    random = np.asarray(directions(key_from(solution.seed, 0xCE28), shape))
    climbed = np.asarray(_climb(trial, domain, starts, steps, random))
    return float(np.max(np.nan_to_num(climbed, nan=np.inf), initial=found))


@compiled
def _residuals(trial: Trial, points: Any) -> Float[Array, " n"]:
    return jax.lax.map(trial.residual, points, batch_size=256)


@compiled
def _climb(
    trial: Trial, domain: AbstractDomain, starts: Any, steps: Any, random: Any
) -> Float[Array, " n"]:
    def size(x: Array) -> Array:
        return jnp.abs(trial.residual(x))

    def one(start: Array, random: Array) -> Array:
        def step_of(carry: tuple[Array, Array], given: tuple[Array, Array]) -> Any:
            x, best = carry
            step, chance = given
            for direction in (jax.grad(size)(x), chance):
                length = jnp.sqrt(jnp.sum(direction * direction))
                moved = x + step * direction / jnp.where(length > 0, length, 1.0)
                there = size(moved)
                better = domain.contains(moved) & (there > best)
                x, best = jnp.where(better, moved, x), jnp.where(better, there, best)
            return (x, best), None

        (_, best), _ = jax.lax.scan(step_of, (start, size(start)), (steps, random))
        return best

    return jax.vmap(one)(starts, random)


def hidden_peaks(solution: Solution, sample: Sample) -> float:
    """How much larger `|L Q|` may be than at any point because of peaks in the equation's own terms.

    Up to three dimensions, for linear and semilinear equations; zero where enclosures over cells exceed
    what the sample has seen by less than half. Beyond three dimensions they say too little.
    """
    operator = solution.problem.operator
    if solution.problem.dim not in CELLS or operator.structure is Structure.NONLINEAR:
        return 0.0
    source = _excess(_SourceSize(operator), operator)
    rates = _excess(_RateSize(operator), operator)
    return source + rates * _jet_size(solution, sample)


def unseen_source(operator: Operator) -> str:
    """What is to be said where the source may be far larger than any random point shows; else nothing.

    Random walks and samples of `L Q` see such a peak no more than these points do. Cells that are halved
    where the source is large bound it well in up to three dimensions; beyond, one box must do.
    """
    size = _SourceSize(operator)
    if not set().union(*dependencies(size, np.asarray(operator.domain.centre, np.float64))):
        return ""
    least = operator.least(_Minus(size))
    if not least.proved:
        return ""
    seen = float(np.max(np.asarray(_values(size, drawn(operator.domain, key_from(3), _RANDOM)))))
    most = -least.value
    if most <= _ZERO or most <= (_PEAK if operator.domain.dim in CELLS else _LOOSE) * seen:
        return ""
    return f"the source may rise to {most:.2g}, and at {_RANDOM:,} random points it is at most {seen:.2g}"


class _Minus(eqx.Module):
    function: Any

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return -self.function(x)


def _excess(size: Any, operator: Operator) -> float:
    """How far an enclosure of a function of the point exceeds its largest value at random points."""
    lower, upper = cells(operator.domain)
    try:
        (span,) = enclose(jax.vmap(size), (lower, upper))
    except Unbounded:
        return 0.0
    seen = float(np.max(np.asarray(_values(size, drawn(operator.domain, key_from(3), _RANDOM)))))
    most = float(np.max(span.high))
    return most - seen if most > _SLACK * seen else 0.0


@compiled
def _values(size: Any, points: Any) -> Float[Array, " n"]:
    return jax.vmap(size)(points)


def _jet_size(solution: Solution, sample: Sample) -> float:
    """The largest value, slope or curvature of `Q` at the worst points."""
    trial = cast(solution.trial, "float64")
    parts = [float(np.max(np.abs(np.asarray(part)))) for part in _jets(trial, sample.worst)]
    return max(parts)


@compiled
def _jets(trial: Trial, points: Any) -> tuple[Array, ...]:
    def at(x: Array) -> tuple[Array, ...]:
        jet = trial.jet(x)
        return jet.value, jet.grad, jet.laplacian

    return jax.lax.map(at, points, batch_size=256)


class _SourceSize(eqx.Module):
    """`|L 0|`."""

    operator: Operator

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.abs(self.operator.source(x))


class _RateSize(eqx.Module):
    """`|A| + |b| + |c|`, entries added up."""

    operator: Operator

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        total = jnp.zeros((), x.dtype)
        for part in self.operator.coefficients(x):
            total = total + jnp.sum(jnp.abs(part))
        return total
