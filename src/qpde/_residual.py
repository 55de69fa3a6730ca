"""What is known of `L Q` for a solution: samples of it, and enclosures on cells."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from . import activations
from ._domain import AbstractDomain
from ._enclosure import encloser, roughness_over
from ._field import AbstractField, Constant
from ._form import fresh
from ._kernel_field import KernelField
from ._measure import AbstractMeasure, Uniform
from ._network import DeepField, ShallowField, cast
from ._round import Annulus
from ._solution import Solution
from ._trial import Trial

_CHUNK, _CHUNKS = 1_024, 100
# Cells along an axis for enclosures, by dimension.
CELLS = {1: 16_384, 2: 192, 3: 32}
# `L Q ~ distance^-p` is square integrable for p < 1/2; measured powers are a little off.
POWER = 0.45


@eqx.filter_jit
def _chunk(trial: Trial, measure: AbstractMeasure, key: Any) -> tuple[Array, Array]:
    points, weights = measure.sample(key, _CHUNK)
    value, residual = jax.vmap(trial.value_and_residual)(points)
    return weights * residual * residual, weights * value * value


class _Layered(AbstractMeasure):
    """The uniform law on an annulus, by points half of which have a uniform radius.

    In ten dimensions one uniform point in a thousand lies near the inner sphere, where `L Q` is largest;
    weights below 2 make up for the difference.
    """

    domain: AbstractDomain

    def sample(self, key: Any, n: int) -> tuple[Array, Array]:
        domain, dim = self.domain, self.domain.dim
        assert isinstance(domain, Annulus)
        points = domain.sample(key, n)
        centre = domain.midpoint[None]
        r = jnp.sqrt(jnp.sum((points - centre) ** 2, axis=1))
        width = domain.outer - domain.inner
        even = domain.inner + width * jr.uniform(jr.fold_in(key, 1), (n,), r.dtype)
        moved = jnp.where(jnp.arange(n) % 2 == 0, even, r)
        points = centre + (points - centre) * (moved / r)[:, None]
        # Density of a uniform radius over that of a uniform point, at radius `moved`.
        hole = (domain.inner / domain.outer) ** dim
        ratio = (1.0 - hole) * domain.outer / (dim * width) * (domain.outer / moved) ** (dim - 1)
        return points, 2.0 / (1.0 + ratio)


def sample_residual(solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """`(L Q)^2` and `Q^2` at fresh points, weighted; neither training nor the score has seen them."""
    key = jr.fold_in(jr.key(solution.seed, impl="threefry2x32"), 0xCE27)
    measure = solution.measure
    if isinstance(measure, Uniform) and isinstance(measure.domain, Annulus):
        measure = _Layered(measure.domain)
    with jax.enable_x64(True):
        trial = cast(solution.trial, "float64")
        parts = [
            [np.asarray(v) for v in _chunk(trial, measure, jr.fold_in(key, i))]
            for i in range(_CHUNKS)
        ]
    squares, sizes = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not np.all(np.isfinite(squares)):
        raise ValueError("L Q is not finite everywhere, so that no bound can be given.")
    return squares, sizes


def mean(values: np.ndarray, z: float) -> float:
    """The mean, moved by `z` standard errors."""
    return float(np.mean(values) + z * np.std(values) / math.sqrt(len(values)))


def rough_parts(trial: Trial, domain: AbstractDomain) -> list[str]:
    """What may have kinks or jumps inside the domain, where second derivatives do not see them.

    Ours are smooth; functions of the user's are judged by their programs.
    """
    found, box = [], domain.enclosing_box
    data: Any = getattr(trial.boundary, "g", trial.boundary)  # what a lift extends
    data = getattr(data, "function", data.value if isinstance(data, AbstractField) else data)
    if not isinstance(trial.boundary, Constant) and roughness_over(data, box)[0].get(0, 0):
        found.append("the boundary data")
    network = trial.network
    known = {type(activation) for activation in activations.BY_NAME.values()}
    ours = isinstance(network, ShallowField | DeepField) and type(network.activation) in known
    ours = ours or isinstance(network, KernelField)  # polynomials of smooth functions
    if not ours and roughness_over(network.value, box)[0].get(0, 0):
        found.append("the network")
    return found


def growth(trial: Trial, domain: AbstractDomain) -> float:
    """The power `p` with which `|L Q| ~ distance^-p` grows at the boundary; square integrable below 1/2.

    The root mean square at 4,096 boundary points moved inwards by 1e-2, 1e-3 and 1e-4 of the inradius; the
    smaller of the two slopes.
    """
    domain = fresh(domain)

    @eqx.filter_jit
    def sizes(trial: Trial, key: Any) -> Array:
        edge = domain.sample_boundary(key, 4_096)
        inwards = jax.vmap(jax.grad(domain.distance))(edge)
        steps = domain.inradius * jnp.array([1e-2, 1e-3, 1e-4])
        points = edge[None] + steps[:, None, None] * inwards[None]
        return jnp.sqrt(jnp.mean(jax.vmap(jax.vmap(trial.residual))(points) ** 2, axis=1))

    with jax.enable_x64(True):
        found = np.asarray(sizes(cast(trial, "float64"), jr.key(2, impl="threefry2x32")))
    return float(np.min(np.diff(np.log10(np.maximum(found, 1e-300)))))


def value_range(solution: Solution) -> tuple[float, float]:
    """The smallest and largest value of `Q` and of the boundary data, at random points."""
    domain, key = fresh(solution.problem.domain), jr.key(0, impl="threefry2x32")

    @eqx.filter_jit
    def values(trial: Trial, key: Any) -> Array:
        inside = jax.vmap(trial.value)(domain.sample(key, 16_384))
        edge = jax.vmap(trial.boundary.value)(domain.sample_boundary(jr.fold_in(key, 1), 4_096))
        return jnp.concatenate([inside, edge])

    with jax.enable_x64(True):
        found = np.asarray(values(cast(solution.trial, "float64"), key))
    return float(found.min()), float(found.max())


def cell_bounds(solution: Solution, function: Callable[[Array], Array]) -> tuple[np.ndarray, float]:
    """The largest `|function|` on cells that meet the domain, and a cell's share of the volume."""
    domain = fresh(solution.problem.domain)
    lower, upper = (np.asarray(end) for end in domain.enclosing_box)
    count, dim = CELLS[domain.dim], domain.dim
    index = np.stack(np.meshgrid(*[np.arange(count)] * dim, indexing="ij"), -1).reshape(-1, dim)
    step, width = 1_024, (upper - lower) / count

    def both(x: Array) -> tuple[Array, Array]:
        return jax.vmap(function)(x), jax.vmap(domain.distance)(x)

    bounds, largest = encloser(both, (step, dim)), []
    for start in range(0, len(index), step):
        part = index[start : start + step]
        padded = np.concatenate([part, np.repeat(part[:1], step - len(part), axis=0)])
        low = lower + padded * width
        # Rounding must not leave gaps between cells.
        span, distance = bounds((low - 1e-12 * width, low + (1 + 1e-12) * width))
        most = np.maximum(np.abs(span.low), np.abs(span.high))
        largest.append(np.where(distance.high < 0, 0.0, most)[: len(part)])
    share = math.exp(float(np.sum(np.log(width))) - domain.log_volume)
    return np.concatenate(largest), share


def edge_gap(solution: Solution) -> float:
    domain = fresh(solution.problem.domain)

    @eqx.filter_jit
    def gaps(trial: Trial, key: Any) -> Array:
        def gap(x: Array) -> Array:
            return trial.value(x) - trial.boundary.value(x)

        return jnp.abs(jax.vmap(gap)(domain.sample_boundary(key, 10_000)))

    with jax.enable_x64(True):
        key = jr.key(1, impl="threefry2x32")
        return float(jnp.max(gaps(cast(solution.trial, "float64"), key)))
