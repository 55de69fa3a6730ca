"""Evolution problems in the whole space, whose points follow the diffusion that the equation generates."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._arguments import real
from .._boundary.around import SmearedSquare, exact_rule
from .._boundary.smear import Smeared, cubature
from .._domain.space import Paths
from .._equation.operator import Operator
from .._field.base import AbstractField, as_field
from .._field.jet import Jet, Quadratic
from .._field.radial import OfSquare
from .._precision import Numbers, like, number
from .._program.program import dependencies
from .evolution import Data, Given, Parts, in_time, rate_at


class Reaction(eqx.Module):
    """The equation without derivatives as a function of the value of `u`, over the factor of `u.dt`."""

    equation: Callable[..., Any]
    point: Numbers
    scale: Numbers

    def __call__(self, value: Array) -> Array:
        z = jnp.asarray(self.point, value.dtype)
        zero, none = jnp.zeros_like(z), jnp.zeros((), z.dtype)
        return self.scale * like(z, self.equation(z, Jet(Quadratic(value, zero, none, zero), z)))


class _ReactionAt(eqx.Module):
    """The equation without derivatives as a function of the point and the value."""

    equation: Callable[..., Any]

    def __call__(self, z: Any, value: Any) -> Array:
        return Reaction(self.equation, z, jnp.ones(()))(jnp.asarray(value))


def whole_space(data: Data, given: Given) -> Parts:
    """A problem in the whole space: the diffusion that draws its points, and the data carried inside."""
    equation, exact, start = in_time(data, given)
    space: Any = given.domain
    boundary = given.boundary
    if callable(boundary) or np.any(np.asarray(boundary) != 0):
        raise ValueError("The whole space has no boundary: leave boundary out.")
    backward, dim = data.terminal is not None, space.dim
    end = real("time", data.time, above=0.0)
    paths = Paths(space, end, np.zeros(dim), np.eye(dim), backward)
    operator = Operator.of(paths, equation, number(1.0))
    if {"A", "b"} & operator.varies:
        raise ValueError(
            "In the whole space points follow the diffusion that the equation generates. It is known where "
            "the coefficients of first and second derivatives are constant; here they change with x or t."
        )
    scale, drift, factor = _diffusion(operator, equation, paths)
    paths = Paths(space, end, drift, factor, backward)
    reaction = Reaction(equation, np.asarray(paths.centre), number(scale))
    seen = dependencies(_ReactionAt(equation), paths.centre, np.zeros(()))
    carried = {
        "drift": drift,
        "end": end,
        "box": np.stack(paths.wide_box),
        "rate": reaction if set().union(*seen) == {1} else None,
        "backward": backward,
    }
    return Parts(paths, equation, _carried(as_field(start), factor, carried), exact)


def _carried(start: AbstractField, factor: np.ndarray, carried: dict[str, Any]) -> AbstractField:
    """The data carried inside: exactly where they and the diffusion are the same in all directions."""
    matrix, dim = factor @ factor.T, len(factor)
    if isinstance(start, OfSquare) and start.centre.size != dim:
        raise ValueError(
            f"The data depend on the distance from a point of {start.centre.size} coordinates, the space has "
            f"{dim}: give OfSquare(profile, np.zeros({dim}))."
        )
    diffusion = float(matrix[0, 0])
    alike = np.allclose(matrix, diffusion * np.eye(dim), rtol=1e-12, atol=0.0)
    if isinstance(start, OfSquare) and alike and diffusion > 0:
        rule = exact_rule(start, float(np.sqrt(2.0 * diffusion * carried["end"])))
        if rule is not None:
            return SmearedSquare(data=start, diffusion=number(diffusion), rule=rule, **carried)
    nodes, weights = cubature(dim)
    nodes = np.sqrt(2.0) * nodes @ factor.T
    return Smeared(data=start, nodes=nodes, weights=weights, **carried)


def _diffusion(
    operator: Operator, equation: Any, paths: Paths
) -> tuple[float, np.ndarray, np.ndarray]:
    """The factor that makes an equation `u_s = A : Hess u + b . grad u + ...`, `b`, and `L` in `A = L L'`."""
    rate, second = abs(rate_at(equation, paths)), operator.constant(operator.second)
    matrix = second * np.eye(operator.space) if second.ndim == 0 else second
    scale = float(np.sign(np.trace(matrix))) / rate if rate else 0.0
    sizes, axes = np.linalg.eigh(scale * matrix)
    factor = axes * np.sqrt(np.maximum(sizes, 0.0))[None, :]
    return scale, np.asarray(scale * operator.constant(operator.drift), np.float64), factor
