"""Evolution problems in the whole space, whose points follow the diffusion that the equation generates."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._arguments import real
from .._boundary.around import SquareMean, exact_rule
from .._boundary.diffused import diffused, without_kinks
from .._boundary.payoff import of_one_number
from .._boundary.smear import Cubature, Smeared, Still, cubature
from .._compiled import compiled
from .._diffusion.law import AbstractLaw, EulerMaruyama, Gaussian, LogNormal
from .._domain.space import Paths
from .._equation.operator import Operator
from .._equation.roughness import roughness_in
from .._field.base import AbstractField, as_field
from .._field.jet import Jet, Quadratic
from .._field.radial import OfSquare
from .._precision import Numbers, like, number
from .._program.polynomial import degree
from .._program.program import JUMP
from .evolution import Data, Given, Parts, in_time, rate_at

# Points at which coefficients are compared with those of prices, and by how much they may be off.
_SEEN, _SAME = 64, 1e-9


class Reaction(eqx.Module):
    """The equation without derivatives as a function of the value of `u`, over the factor of `u.dt`."""

    equation: Callable[..., Any]
    point: Numbers
    scale: Numbers

    def __call__(self, value: Array) -> Array:
        z = jnp.asarray(self.point, value.dtype)
        zero, none = jnp.zeros_like(z), jnp.zeros((), z.dtype)
        return self.scale * like(z, self.equation(z, Jet(Quadratic(value, zero, none, zero), z)))


def _depends_on_values_alone(equation: Any, paths: Paths) -> bool:
    """Whether the reaction is the same at random points, for random values: it only has to be nearly so."""
    rng = np.random.default_rng(2)
    low, high = paths.frame_box
    points = low + (high - low) * rng.random((_SEEN, paths.dim))
    size = rng.standard_normal(8)
    found = np.asarray(_reactions(equation, points, np.append(size, 100.0 * size)))
    return bool(np.max(np.ptp(found, axis=0)) <= 1e-9 * np.max(np.abs(found)) > 0)


@compiled(brief=True)
def _reactions(equation: Any, points: Any, values: Any) -> Array:
    def at(z: Array) -> Array:
        return jax.vmap(Reaction(equation, z, jnp.ones(())))(values)  # pyright: ignore

    return jax.vmap(at)(points)


def whole_space(data: Data, given: Given) -> Parts:
    """A problem in the whole space: the diffusion that draws its points, and the data carried inside."""
    equation, exact, start = in_time(data, given)
    space: Any = given.domain
    boundary = given.boundary
    if callable(boundary) or np.any(np.asarray(boundary) != 0):
        raise ValueError("The whole space has no boundary: leave boundary out.")
    backward, dim = data.terminal is not None, space.dim
    end = real("time", data.time, above=0.0)
    paths = Paths(space, end, Gaussian(np.zeros(dim), np.eye(dim)), backward)
    operator = Operator.of(paths, equation, number(1.0))
    scale, law = _diffusion(operator, equation, paths)
    paths = Paths(space, end, law, backward)
    data_field = as_field(start)
    mean, smooth = carried(data_field, paths)
    reaction = Reaction(equation, np.asarray(paths.centre), number(scale))
    alone = _depends_on_values_alone(equation, paths)
    field = Smeared(
        mean=mean,
        data=data_field,
        end=end,
        box=np.stack(paths.wide_box),
        rate=without_kinks(reaction, float(_start_of(mean, paths.start))) if alone else None,
        backward=backward,
        smooth=smooth,
    )
    return Parts(paths, equation, field, exact)


def carried(data: AbstractField, paths: Paths) -> tuple[AbstractField, bool]:
    """The data carried inside by the diffusion, and whether they are smooth themselves."""
    law, end, backward = paths.law, paths.end, paths.backward
    box = paths.wide_box[0][:-1], paths.wide_box[1][:-1]
    rough = roughness_in(data, box)
    if not rough:
        if not law.exact:
            return Still(data), True
        if isinstance(data, OfSquare) and (mean := _of_square(data, paths)):
            return mean, True
        nodes, weights = cubature(law.noises)
        return Cubature(data, law, nodes, weights, end, backward), True
    one = of_one_number(data, law, np.asarray(paths.space.start), end, backward)
    if one is None and rough < JUMP:
        one = diffused(data, law, box, end, backward)
    if one is None:
        which = "terminal" if backward else "initial"
        raise ValueError(
            f"The {which} data may have jumps, or kinks of a kind that cannot be carried inside (a root at "
            "zero, a choice). Kinks of max, min, abs and clip can; so can any in data that depend on one "
            "linear function of x, or of the logarithms of prices. Write them so, or smoothly."
        )
    return one, False


def _of_square(data: OfSquare, paths: Paths) -> SquareMean | None:
    """The mean of a function of a distance, exactly, where the diffusion is the same in all directions."""
    law, dim = paths.law, paths.space.dim
    if data.centre.size != dim:
        raise ValueError(
            f"The data depend on the distance from a point of {data.centre.size} coordinates, the space has "
            f"{dim}: give OfSquare(profile, np.zeros({dim}))."
        )
    diffusion = law.isotropic if isinstance(law, Gaussian) else None
    if not diffusion or not isinstance(law, Gaussian):
        return None
    found = exact_rule(data, float(np.sqrt(2.0 * diffusion * paths.end)))
    if found is None:
        return None
    rule, miss = found
    return SquareMean(
        data, number(diffusion), law.drift, paths.end, paths.backward, rule, number(miss)
    )


@compiled(brief=True)
def _start_of(field: AbstractField, point: Any) -> Array:
    return field.value(point)


class Coefficients(eqx.Module):
    """Drift and second-order part of an equation `u_s = A : Hess u + b . grad u + ...`, at `(x, t)`."""

    operator: Operator
    scale: Numbers

    def __call__(self, x: Array, t: Any) -> tuple[Array, Array]:
        z = jnp.append(x, jnp.asarray(t, x.dtype))
        second, drift, _ = self.operator.coefficients(z)
        return self.scale * drift, self.scale * second

    def joined(self, z: Array) -> Array:
        """All of them as one array, of one array."""
        drift, second = self(z[:-1], z[-1])
        return jnp.concatenate([drift, jnp.ravel(second)])


def _diffusion(operator: Operator, equation: Any, paths: Paths) -> tuple[float, AbstractLaw]:
    """The factor that makes an equation `u_s = A : Hess u + b . grad u + ...`, and the diffusion's law."""
    rate = abs(rate_at(equation, paths))
    start = paths.space.start
    drift, matrix = _coefficients_at(Coefficients(operator, number(1.0)), start[None], np.zeros(1))
    scale = float(np.sign(np.trace(matrix[0]))) / rate if rate else 0.0
    if not {"A", "b"} & operator.varies:
        return scale, Gaussian(scale * drift[0], _root(scale * matrix[0]))
    coefficients = Coefficients(operator, number(scale))
    law = _log_normal(coefficients, start, float(paths.end))
    return scale, law or EulerMaruyama(coefficients, operator.space)


def _log_normal(coefficients: Coefficients, start: np.ndarray, end: float) -> LogNormal | None:
    """The law of prices where `b_i = rate_i x_i` and `A_ij = x_i x_j C_ij`.

    The program has to show that the coefficients are polynomials: such agree everywhere if they do at random
    points. Others, which may have a bump that no point meets, are simulated.
    """
    whole = np.append(start, 0.0)
    if not np.all(start > 0) or not np.isfinite(degree(coefficients.joined, whole)):
        return None
    rng = np.random.default_rng(0)
    points = start * np.exp(0.7 * rng.standard_normal((_SEEN, start.size)))
    points[0] = start
    drift, matrix = _coefficients_at(coefficients, points, end * rng.random(_SEEN))
    rates = drift / points
    shares = matrix / (points[:, :, None] * points[:, None, :])
    for each in (rates, shares):
        if not np.all(
            np.abs(each - each[0]) <= _SAME * max(float(np.max(np.abs(each[0]))), 1e-300)
        ):
            return None
    return LogNormal(rates[0], _root(shares[0]))


def _root(matrix: np.ndarray) -> np.ndarray:
    """`L` with `L L'` a positive semi-definite matrix; diagonal where that is."""
    if np.array_equal(matrix, np.diag(np.diag(matrix))):
        return np.diag(np.sqrt(np.maximum(np.diag(matrix), 0.0)))
    sizes, axes = np.linalg.eigh(matrix)
    return axes * np.sqrt(np.maximum(sizes, 0.0))[None, :]


def _coefficients_at(
    coefficients: Coefficients, points: np.ndarray, times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Drifts and matrices at some points."""
    drift, second = (np.asarray(part) for part in _at(coefficients, points, times))
    if second.ndim == 1:
        second = second[:, None, None] * np.eye(points.shape[1])
    return drift, second


@compiled(brief=True)
def _at(coefficients: Coefficients, points: Any, times: Any) -> tuple[Array, Array]:
    return jax.vmap(coefficients)(points, times)
