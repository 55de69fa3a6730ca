"""What is known of `L Q` for a solution: samples of it, and enclosures on cells."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._domain.base import AbstractDomain, drawn
from .._equation.cells import covering_box
from .._equation.roughness import field_roughness
from .._machines.blocks import shared
from .._monotone.in_time import Weight
from .._precision import by_chunks, cast, key_from
from .._problem.measure import AbstractMeasure, Radial, Uniform, Weighted, drawn_by
from .._problem.solution import Solution
from .._problem.trial import Trial
from .._program.interval import Unbounded, enclose, encloser

_CHUNK, _CHUNKS = 1_024, 100
# Numbers that an enclosure may compute unasked.
_WORK = 1e9
# Points of every chunk from which a search for larger values starts.
_WORST = 4
# Cells along an axis for enclosures, by dimension.
CELLS = {1: 16_384, 2: 192, 3: 32}
# `L Q ~ distance^-p` is square integrable for p < 1/2; measured powers are a little off.
POWER = 0.45


class Sample(NamedTuple):
    """`L Q` and `Q` at fresh points with their weights, and the points at which `|L Q|` is largest.

    `last` is the last coordinate of every point, time where there is one.
    """

    residual: np.ndarray
    value: np.ndarray
    weight: np.ndarray
    worst: np.ndarray
    last: np.ndarray

    def squares(self, weight: Weight | None = None) -> np.ndarray:
        """`(L Q)^2` with its weight, and that in time.

        Means of two neighbours, which are independent and of one law also where every second point is drawn
        in another way.
        """
        more = 1.0 if weight is None else weight.at(self.last[:, None])
        return pairs(more * self.weight * self.residual**2)


def pairs(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1, 2).mean(axis=1)


@compiled
def _chunk(trial: Trial, points: Any, weights: Any) -> tuple[Array, ...]:
    value, residual = jax.vmap(trial.value_and_residual)(points)
    _, worst = jax.lax.top_k(jnp.nan_to_num(jnp.abs(residual)), _WORST)
    return residual, value, weights, points[worst], points[:, -1]


class _Layered(AbstractMeasure):
    """The uniform law, by points that the domain places where `L Q` may be large."""

    domain: AbstractDomain

    def sample(
        self, key: PRNGKeyArray, n: int, dtype: DTypeLike = float
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        return self.domain.sample_layers(key, n, dtype)


def sample_residual(solution: Solution, measure: AbstractMeasure | None = None) -> Sample:
    """A sample under the law of training or a given one; neither training nor the score has seen it."""
    measure = solution.measure if measure is None else measure
    if isinstance(measure, Uniform):
        measure = _Layered(measure.domain)
    trial = cast(solution.trial, "float64")

    def part(i: int) -> tuple[Array, ...]:
        return _chunk(trial, *drawn_by(measure, key_from(solution.seed, 0xCE27, i), _CHUNK))

    parts = shared(part, _CHUNKS)
    sample = Sample(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    if not np.all(np.isfinite(sample.residual)):
        raise ValueError("L Q is not finite everywhere, so that no bound can be given.")
    return sample


def last_sizes(solution: Solution) -> np.ndarray:
    """`Q^2` at the last instant of an evolution problem, at uniform points."""
    domain = solution.problem.domain
    end = 0.0 if domain.times is None else domain.times.last
    trial = cast(solution.trial, "float64")
    keys = [key_from(solution.seed, 0x1A57, i) for i in range(_CHUNKS)]
    parts = [np.asarray(_last_chunk(trial, drawn(domain, key, _CHUNK), end)) for key in keys]
    return np.concatenate(parts) ** 2


@compiled
def _last_chunk(trial: Trial, points: Any, end: Any) -> Array:
    return jax.vmap(trial.value)(points.at[:, -1].set(end))


def largest_weight(solution: Solution) -> float | None:
    """The largest weight of a point, from the program of a density; None where it is not known."""
    measure = solution.measure
    if isinstance(measure, Uniform | Radial):
        return 2.0 if isinstance(measure, Uniform) else 1.0
    if not isinstance(measure, Weighted):
        return None
    try:
        (span,) = enclose(lambda x: jnp.asarray(measure.density(x)), measure.domain.enclosing_box)
    except Unbounded:
        return None
    return float(span.high) / float(measure.mean) if np.isfinite(span.high) else None


def mean_bounds(values: np.ndarray, largest: float, risk: float) -> tuple[float, float]:
    """Numbers between which the mean of a law on `[0, largest]` lies, each up to `risk`.

    Empirical Bernstein bounds (Maurer and Pontil 2009) for independent values: no assumption beside the
    range. What no value has seen costs `7 largest log(2 / risk) / (3 (n - 1))`.
    """
    n, log = len(values), math.log(2.0 / risk)
    spread = math.sqrt(2.0 * float(np.var(values, ddof=1)) * log / n)
    unseen = largest * cost_of_range(values, risk)
    centre = float(np.mean(values))
    return max(centre - spread - unseen, 0.0), centre + spread + unseen


def cost_of_range(values: np.ndarray, risk: float) -> float:
    """What one unit of the range costs in `mean_bounds`."""
    return 7.0 * math.log(2.0 / risk) / (3.0 * (len(values) - 1))


def rough_parts(trial: Trial, domain: AbstractDomain) -> list[str]:
    """The parts of `Q` that may have kinks or jumps inside the domain, which second derivatives do not see.

    Each field names the function whose program decides; formulas of ours are smooth.
    """
    parts = {"the boundary data": trial.boundary, "the network": trial.network}
    if trial.exact_boundary and domain.sloped_eta is None:  # nobody vouches for eta
        parts["the boundary factor eta"] = trial.eta
    return [name for name, field in parts.items() if field_roughness(field, domain)]


def growth(trial: Trial, domain: AbstractDomain) -> float:
    """The power `p` with which `|L Q| ~ distance^-p` grows at the boundary; square integrable below 1/2.

    The root mean square at 4,096 boundary points moved inwards by 1e-2, 1e-3 and 1e-4 of the inradius; the
    smaller of the two slopes.
    """
    steps = domain.inradius * np.array([1e-2, 1e-3, 1e-4])
    found = np.asarray(_sizes_inwards(cast(trial, "float64"), domain, steps, key_from(2)))
    return float(np.min(np.diff(np.log10(np.maximum(found, 1e-300)))))


@compiled
def _sizes_inwards(
    trial: Trial, domain: AbstractDomain, steps: Any, key: PRNGKeyArray
) -> Float[Array, " k"]:
    """The root mean square of `L Q` at boundary points moved inwards by each of the steps."""
    edge = domain.sample_boundary(key, 4_096)
    inwards = jax.vmap(jax.grad(domain.distance))(edge)
    points = edge[None] + steps[:, None, None] * inwards[None]
    return jnp.sqrt(jnp.mean(jax.vmap(jax.vmap(trial.residual))(points) ** 2, axis=1))


def value_range(solution: Solution) -> tuple[float, float]:
    """The smallest and largest value of `Q` and of the boundary data, at random points."""
    trial, domain = cast(solution.trial, "float64"), solution.problem.domain
    found = np.asarray(_some_values(trial, domain, key_from(0)))
    return float(found.min()), float(found.max())


@compiled
def _some_values(trial: Trial, domain: AbstractDomain, key: PRNGKeyArray) -> Float[Array, " n"]:
    inside = jax.vmap(trial.value)(domain.sample(key, 16_384))
    edge = jax.vmap(trial.boundary.value)(domain.sample_boundary(jr.fold_in(key, 1), 4_096))
    return jnp.concatenate([inside, edge])


class _Cells:
    """Cells that cover a domain, and the largest `|function|` on some of them."""

    def __init__(self, domain: AbstractDomain, function: Callable[[Array], Array]):
        lower, upper = covering_box(domain)
        count, dim = CELLS[domain.dim], domain.dim
        axes = [np.arange(count)] * dim
        self.index = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, dim)
        # Neighbours share an edge, to the bit: rounding leaves no gap between them.
        steps = np.arange(count + 1)[:, None]
        self._edges = np.where(steps == count, upper, lower + steps * ((upper - lower) / count))
        widest = np.max(np.diff(self._edges, axis=0), axis=0)
        self.share = math.exp(float(np.sum(np.log(widest))) - domain.log_volume)

        def both(x: Array) -> tuple[Array, Array]:
            return jax.vmap(function)(x), jax.vmap(domain.distance)(x)

        self._bounds = encloser(both, (_CHUNK, dim))

    def largest(self, cells: np.ndarray) -> np.ndarray:
        """The largest `|function|` on every one of `_CHUNK` cells, 0 where it lies outside."""
        low, high = (np.take_along_axis(self._edges, index, 0) for index in (cells, cells + 1))
        span, distance = self._bounds((low, high))
        most = np.maximum(np.abs(span.low), np.abs(span.high))
        return np.where(distance.high < 0, 0.0, most)


def cell_bounds(domain: AbstractDomain, function: Callable[[Array], Array]) -> tuple[Any, float]:
    """The largest `|function|` on cells that meet the domain, and a cell's share of the volume."""
    cells = _Cells(domain, function)
    return by_chunks(cells.largest, cells.index, _CHUNK, np.int64), cells.share


def proved_peak(solution: Solution, limit: float) -> float | None:
    """A proved bound for `|L Q|` up to three dimensions; None where that is above `limit`, or takes long."""
    domain, trial = solution.problem.domain, cast(solution.trial, "float64")
    if domain.dim not in CELLS:
        return None
    numbers = _numbers_in(trial.residual, domain.dim)
    if numbers * CELLS[domain.dim] ** domain.dim > _WORK:
        return None
    try:
        cells = _Cells(domain, trial.residual)
        most = 0.0
        # Cells in any order, so that one chunk mostly tells.
        order = np.random.default_rng(0).permutation(len(cells.index))
        for begin in range(0, len(order), _CHUNK):
            chosen = np.resize(order[begin : begin + _CHUNK], _CHUNK)
            most = max(most, float(np.max(cells.largest(cells.index[chosen]))))
            if not most <= limit:
                return None
    except Unbounded:
        return None
    return most


def _numbers_in(function: Callable[[Array], Array], dim: int) -> int:
    """How many numbers the program of a function of a point computes, calls counted once."""
    program = jax.make_jaxpr(function)(jnp.zeros(dim))
    return sum(math.prod(np.shape(var.aval)) for line in program.eqns for var in line.outvars)


def refuse_or_assume_smooth(solution: Solution, rigorous: bool, heuristic: bool) -> list[str]:
    """Refuse a Q that may have kinks, or for a heuristic name what is then assumed."""
    found = rough_parts(solution.trial, solution.problem.domain)
    if found and (rigorous or not heuristic):
        raise ValueError(
            f"No bound for the error: {' and '.join(found)} may have kinks or jumps inside the domain (abs, "
            "max, a choice, a root at zero), which L Q does not see. Write them smoothly, or extend boundary "
            "values by qpde.lift; certify(solution, heuristic=True) takes them as smooth."
        )
    return [f"{what} have no kinks or jumps inside, which L Q would not see" for what in found]


class NoEnclosure(ValueError):
    """Interval arithmetic does not bound `L Q`."""


def enclosed_residual(solution: Solution) -> tuple[np.ndarray, float]:
    """The largest `|L Q|` on cells that cover the domain, and a cell's share of the volume."""
    trial = cast(solution.trial, "float64")
    try:
        return cell_bounds(solution.problem.domain, trial.residual)
    except Unbounded as error:
        raise NoEnclosure(f"No rigorous bound: {error} Leave rigorous=True out.") from None
