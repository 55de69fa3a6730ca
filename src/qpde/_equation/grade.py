"""How the diffusion of an equation grows along the axes of a box."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._domain.grade import Grade
from .._field.jet import Equation, Jet, Quadratic
from .._precision import like

# Axes along which the root of the diffusion changes by less than this factor are not graded.
_GRADED = 2.0
# Points that are looked at on every face, and the second derivatives: so large that nothing else counts.
_POINTS, _LARGE = 128, 1e12
# Up to this dimension.
_MOST = 20


def grade_of(equation: Equation, domain: AbstractDomain) -> Grade | None:
    """Coordinates of a box in which the diffusion along the axes varies less; None where it varies little."""
    if not domain.fills_box or not 1 < domain.dim <= _MOST:
        return None
    lower, upper = (np.asarray(end, np.float64) for end in domain.enclosing_box)
    axes = np.repeat(np.arange(domain.dim), _POINTS)
    points = np.random.default_rng(0).uniform(lower, upper, (axes.size, domain.dim))
    ratio = np.ones(domain.dim)
    ends = []
    for end in (lower, upper):
        on_face = points.copy()
        on_face[np.arange(axes.size), axes] = end[axes]
        ends.append(np.sqrt(np.asarray(_diffusions(equation, on_face, axes))))
    for i in range(domain.dim):
        low, high = (np.mean(roots[axes == i]) for roots in ends)
        if np.isfinite(low) and np.isfinite(high) and max(low, high) > 0:
            ratio[i] = np.inf if low == 0 else high / low
    graded = (ratio >= _GRADED) | (ratio <= 1.0 / _GRADED)
    return Grade(lower, upper, np.where(graded, ratio, 1.0)) if np.any(graded) else None


@compiled(brief=True)
def _diffusions(equation: Equation, points: Any, axes: Any) -> Float[Array, " n"]:
    return jax.vmap(lambda x, i: _diffusion(equation, x, i))(jnp.asarray(points), axes)


def _diffusion(equation: Equation, x: Float[Array, " d"], i: Array) -> Float[Array, ""]:
    """`a_ii` up to a common factor, of the operators that a maximum or a minimum chooses from.

    Of a maximum of operators large positive second derivatives choose one with diffusion, of a minimum
    negative ones.
    """
    zero, along = jnp.zeros((), x.dtype), jnp.zeros_like(x).at[i].set(1.0)

    def result(curvature: float, size: float) -> Array:
        source = Quadratic(zero, jnp.zeros_like(x), zero + curvature, size**0.5 * along)
        return like(x, equation(x, Jet(source, x)))

    up = result(0.0, _LARGE) - result(0.0, 0.0)
    down = result(-_LARGE, _LARGE) - result(-_LARGE, 0.0)
    return (jnp.abs(up) + jnp.abs(down)) / _LARGE
