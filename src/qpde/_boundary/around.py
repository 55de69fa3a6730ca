"""Terminal data that depend on the distance from a point, carried into the whole space exactly.

With `g(x) = p(|x - c|^2)` and the same diffusion `a` in all directions, the mean in `smear.py` is

    m(x, s) = E p(|y + h N|^2),   y = x + b s - c,   h^2 = 2 a s:

a Gaussian variable along `y` and, across it, the square of `d - 1` others, for which rules of Gauss are exact
to many digits. Of a function of the distance, the derivative in `|y|^2` solves the equation of two more
dimensions, so that with `M_k = E_(d + 2 k) p^(k)` derivatives are means too,

    grad m = 2 M_1 y,   Lap m = 2 d M_1 + 4 |y|^2 M_2 = m_s / a     (b = 0).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiled import compiled
from .._field.base import AbstractField, Autodiff
from .._field.form import AbstractForm, Spatial
from .._field.radial import OfSquare
from .._precision import Numbers

# Nodes along and across that are tried, and those that they are compared with.
_RULES, _FINEST = ((8, 6), (12, 8), (20, 16)), (28, 22)
# The shortest rule that is exact up to the first of these shares is taken, else one below the second.
_EXACT, _ENOUGH = 2e-10, 1e-6
_ORDERS = 3
# Added to squares and times, so that their roots have derivatives at zero.
_TINY = 1e-30


def exact_rule(data: OfSquare, spread: float) -> tuple[tuple[int, int], float] | None:
    """The rules for data under Gaussian laws with deviations up to a spread, and what they miss.

    None where even the longest miss much.
    """
    dim = data.centre.size
    squares = spread * spread * np.array([0.0, 1.0, dim, 2.0 * dim, 4.0 * dim])
    means = [np.asarray(mean) for mean in _compared(data, squares, np.array([1.0, 0.3]) * spread)]
    size = np.maximum(np.max(np.abs(means[-1]), axis=-1, keepdims=True), 1e-300)
    gaps = [np.abs(mean - means[-1]) for mean in means[:-1]]
    for limit in (_EXACT, _ENOUGH):
        for rule, gap in zip(_RULES, gaps, strict=True):
            if np.max(gap / size) <= limit:
                return rule, float(np.max(gap))
    return None


@compiled(brief=True)
def _compared(data: OfSquare, squares: Any, deviations: Any) -> list[Array]:
    """The means by all rules at all pairs, derivatives in units of a deviation."""

    def of(rule: tuple[int, int]) -> Array:
        def one(square: Array, h: Array) -> Array:
            means = jnp.stack(_means(data.profile, data.centre.size, square, h, rule))
            return means * jnp.power(h * h, jnp.arange(_ORDERS))

        return jax.vmap(lambda h: jax.vmap(lambda q: one(q, h))(squares))(deviations)

    return [of(rule) for rule in (*_RULES, _FINEST)]


def _rule(dim: int, count: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes for a normal variable and for the sum of `dim - 1` squares of others, and weights of sum 1."""
    from scipy.special import roots_hermitenorm

    along, first = roots_hermitenorm(count[0])
    if dim == 1:
        return along, np.zeros_like(along), first / np.sum(first)
    halves, second = _laguerre(count[1], 0.5 * (dim - 1) - 1.0)
    weights = np.outer(first / np.sum(first), second)
    pairs = np.meshgrid(along, 2.0 * halves, indexing="ij")
    return pairs[0].ravel(), pairs[1].ravel(), weights.ravel()


def _laguerre(count: int, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss's rule for the density `x^power e^-x`, by eigenvalues: for powers beyond any gamma function."""
    i = np.arange(count)
    beside = np.sqrt(i[1:] * (i[1:] + power))
    matrix = np.diag(2.0 * i + power + 1.0) + np.diag(beside, 1) + np.diag(beside, -1)
    nodes, vectors = np.linalg.eigh(matrix)
    return nodes, vectors[0] ** 2


def _means(
    profile: Callable[..., Array], dim: int, square: Array, h: Array, count: tuple[int, int]
) -> list[Array]:
    """`M_0`, `M_1` and `M_2` where `|y|^2` is `square`."""
    found, root = list[Array](), jnp.sqrt(square + _TINY)
    for order in range(_ORDERS):
        along, across, weights = _rule(dim + 2 * order, count)
        squares = (root + h * along) ** 2 + h * h * across
        found.append(jnp.dot(weights, jax.vmap(profile)(squares)))
        profile = jax.grad(profile)
    return found


class SquareMean(AbstractField):
    """`E p(|y + sqrt(2 a s) N|^2)` at the points `(x, t)`, `s` the time since the data."""

    data: OfSquare
    diffusion: Numbers
    drift: Numbers
    end: Numbers
    backward: bool = eqx.field(static=True)
    rule: tuple[int, int] = eqx.field(static=True)
    miss: Numbers  # by how much the means are off, as a finer rule says

    def judged_by(self) -> Callable[..., Array]:
        return lambda z: self.data.value(z[:-1])

    def _at(self, z: Array) -> tuple[list[Array], Array, float]:
        """The means, `y`, and the derivative in `t` of the time since the data."""
        s, sign = (self.end - z[-1], -1.0) if self.backward else (z[-1], 1.0)
        y = z[:-1] + s * jnp.asarray(self.drift, z.dtype) - jnp.asarray(self.data.centre, z.dtype)
        h = jnp.sqrt(2.0 * self.diffusion * (s + _TINY))
        return _means(self.data.profile, y.size, jnp.dot(y, y), h, self.rule), y, sign

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self._at(x)[0][0]

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        (_, first, second), y, sign = self._at(x)
        in_time = self.diffusion * (2.0 * y.size * first + 4.0 * jnp.dot(y, y) * second)
        in_time = in_time + 2.0 * first * jnp.dot(jnp.asarray(self.drift, x.dtype), y)
        return jnp.append(2.0 * first * y, sign * in_time)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if not isinstance(form, Spatial):
            return Autodiff(self.value).trace(x, form)
        (_, first, second), y, _ = self._at(x)
        return 2.0 * y.size * first + 4.0 * jnp.dot(y, y) * second

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.jacfwd(self.grad)(x)
