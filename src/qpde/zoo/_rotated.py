"""A Bellman equation that chooses among rotated matrices, for Cordes' condition."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import real
from .._control.actions import FiniteActions
from .._control.control import Control
from .._domain.base import as_dimension
from .._domain.box import Box
from .._domain.squared import Sines
from .._precision import Numbers
from .._problem.problem import Problem
from ._recipe import recorded

_ROTATIONS = 3


class _Chosen(eqx.Module):
    """The factor `sigma` of the action's number."""

    factors: Numbers

    def __call__(self, x: Float[Array, " d"], a: Float[Array, " 1"]) -> Float[Array, "d d"]:
        return jnp.asarray(self.factors, x.dtype)[a[0].astype(int)]


def _still(x: Float[Array, " d"], a: Float[Array, " 1"]) -> Float[Array, " d"]:
    """No drift."""
    return jnp.zeros_like(x)


class _Gap(eqx.Module):
    """`-A_a : Hess v + gap_a(x)`: no gap for the first action, that of a parabola for the others."""

    factors: Numbers
    value: Sines

    def __call__(self, x: Float[Array, " d"], a: Float[Array, " 1"]) -> Float[Array, ""]:
        which = a[0].astype(int)
        sigma = jnp.asarray(self.factors, x.dtype)[which]
        bent = 0.5 * jnp.sum((self.value.hessian(x) @ sigma) * sigma)
        return jnp.where(which == 0, 0.0, jnp.square(x[0] - 0.25 * a[0])) - bent


class _Product(eqx.Module):
    """`prod sin(pi x_i)`."""

    sines: Sines

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.sines.value(x)


@recorded
def rotated(dim: int = 4, *, stretch: float = 2.0) -> Problem:
    """A Bellman equation with three matrices: `min_a [A_a : Hess u + l_a(x)] = 0` in the unit box, `u = 0`.

    The matrices have the eigenvalues from 1 to `stretch` in equal steps and differ by rotations in the
    planes of two neighbouring coordinates. The costs make `u = prod sin(pi x_i)` the value. Cordes'
    condition holds where `|A|^2 / (tr A)^2 < 1 / (d - 1)`: in four dimensions up to a stretch of about 7.87.
    """
    size, top = as_dimension(dim), float(real("stretch", stretch, above=0.0))
    roots = np.sqrt(2.0 * np.linspace(1.0, top, size))
    factors = []
    for number in range(_ROTATIONS):
        angle, turn = number * math.pi / 5, np.eye(size)
        for i in range(0, size - 1, 2):
            cosine, sine = math.cos(angle), math.sin(angle)
            turn[i : i + 2, i : i + 2] = [[cosine, -sine], [sine, cosine]]
        factors.append(turn * roots[None, :])
    stacked, value = np.stack(factors), Sines(np.zeros(size), np.ones(size))
    control = Control(
        actions=FiniteActions(np.arange(_ROTATIONS, dtype=np.float64)),
        drift=_still,
        sigma=_Chosen(stacked),
        cost=_Gap(stacked, value),
    )
    return Problem(Box(0.0, 1.0, dim=dim), control, exact=_Product(value), name="rotated")
