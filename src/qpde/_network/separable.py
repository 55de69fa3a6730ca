"""`Separable`: a short sum of products of functions of one coordinate each.

    S(x) = sum_r a_r prod_i phi_ri(y_i),   phi_ri a polynomial (Chebyshev's) of y_i.

Products of many oscillating factors are what a hidden layer learns worst: in ten dimensions the product of
ten sines is nearly orthogonal to every ridge function, and its sign changes in 2^10 boxes. Random factors
find it no better, because a product of nine wrong factors is orthogonal to it too. The residual `r_0 = L f`
of the trial function without network knows the factors, though: where it is a product, its restriction to a
line along the coordinate `i` is the factor `i` times a number. The factors therefore start as such
restrictions, along the lines through points at which `|r_0|` is large (a cross approximation with one pivot
a term), and the numbers `a_r` as zero.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import whole
from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._domain.eta import others
from .._field.base import SourcedField
from .._field.form import AbstractForm, Identity
from .base import AbstractNetwork, Frame, Start, generator

# Points among which the pivots are found, rounds of moving a pivot along its lines, and by how much the
# factors of a second term on the same pivot differ.
_POINTS, _ROUNDS, _SPREAD = 4_096, 2, 0.05


class Separable(AbstractNetwork):
    """Sums of products of functions of single coordinates: `S(x) = sum_r a_r prod_i phi_ri(y_i)`.

        >>> Separable(8, degree=12)

    For solutions that are nearly products, however much they oscillate; `rank` is the number of products,
    `degree` that of the polynomials `phi`. It starts along lines of `L f` through points where that is
    large. For `GaussNewton`, with more points a step than half its `rank x d x degree` parameters.
    """

    rank: int = eqx.field(static=True)
    degree: int = eqx.field(static=True)

    def __init__(self, rank: int = 6, *, degree: int = 12):
        self.rank = whole("rank", rank, least=1, most=10_000)
        self.degree = whole("degree", degree, least=1, most=200)

    def build(self, domain: AbstractDomain, *, key: PRNGKeyArray) -> "SeparableField":
        rng = generator(key)
        # Nearly constant factors: what is nowhere a product starts like an ordinary network of low degree.
        c = 0.3 * rng.standard_normal((self.rank, domain.dim, self.degree + 1))
        c = c / (1.0 + np.arange(self.degree + 1)) ** 2
        c[:, :, 0] += 1.0
        return SeparableField(
            a=jnp.zeros(self.rank), c=jnp.asarray(c), frame=Frame.of(domain, normalise=True)
        )

    def adapt(
        self, field: "SeparableField", start: Start, *, key: PRNGKeyArray
    ) -> "SeparableField":
        residual, points = start.residual(), start.points(key, _POINTS)
        sizes = np.abs(np.asarray(_values(residual, points)))
        if not np.all(np.isfinite(sizes)) or not np.ptp(sizes) > 1e-9 * np.max(sizes):
            return field
        nodes = np.cos(np.pi * (np.arange(2 * self.degree + 2) + 0.5) / (2 * self.degree + 2))
        chosen = np.asarray(points)[np.argsort(-sizes, kind="stable")[: self.rank]]
        frame = field.frame
        ends = frame.centre.array[:, None] + frame.half.array[:, None] * nodes[None, :]
        lines = np.asarray(_lines(residual, jnp.asarray(chosen), jnp.asarray(ends)))
        if not np.all(np.isfinite(lines)):
            return field
        top = np.max(np.abs(lines), axis=2, keepdims=True)
        basis = np.polynomial.chebyshev.chebvander(nodes, self.degree)
        factors = np.linalg.lstsq(
            basis, (lines / np.where(top > 0, top, 1.0)).reshape(-1, nodes.size).T, rcond=None
        )[0]
        c = factors.T.reshape(self.rank, -1, self.degree + 1)
        noise = generator(key).standard_normal(c.shape) / (1.0 + np.arange(self.degree + 1)) ** 2
        new = jnp.asarray(c + _SPREAD * noise, field.c.dtype)
        return eqx.tree_at(lambda f: f.c, field, new)


@compiled(brief=True)
def _values(residual: Any, points: Array) -> Array:
    return jax.lax.map(residual, points, batch_size=256)


@compiled(brief=True)
def _lines(residual: Any, pivots: Float[Array, "r d"], ends: Float[Array, "d k"]) -> Array:
    """The residual on the lines through every pivot, after the pivots were moved to where it is large."""

    def on_line(pivot: Array, i: Array) -> Array:
        return jax.vmap(lambda t: residual(pivot.at[i].set(t)))(ends[i])

    def moved(pivot: Array, i: Array) -> tuple[Array, None]:
        values = jnp.abs(on_line(pivot, i))
        return pivot.at[i].set(ends[i][jnp.argmax(values)]), None

    axes = jnp.arange(ends.shape[0])

    def one(pivot: Array) -> Array:
        pivot, _ = jax.lax.scan(moved, pivot, jnp.tile(axes, _ROUNDS))
        return jax.lax.map(lambda i: on_line(pivot, i), axes)

    return jax.lax.map(one, pivots)


class SeparableField(SourcedField):
    """The network of `Separable` with its parameters."""

    a: Float[Array, " r"]
    c: Float[Array, "r d k"]
    frame: Frame

    def judged_by(self) -> None:
        return None

    def output_layer(self) -> tuple[Any, ...]:
        return (self.a,)

    def at(self, x: Float[Array, " d"]) -> "SeparableAt":
        return SeparableAt(self, x)


class SeparableAt:
    """A separable network at one point."""

    def __init__(self, field: SeparableField, x: Float[Array, " d"]):
        self._a, self._half = field.a, field.frame.half.array
        basis = _chebyshev(field.frame(x), field.c.shape[2])
        # Derivatives that nobody asks for are removed by the compiler.
        self._v = tuple(jnp.einsum("rdk,dk->rd", field.c, b) for b in basis)
        self._others = jax.vmap(others)(self._v[0])

    def value(self) -> Float[Array, ""]:
        return jnp.dot(self._a, jnp.prod(self._v[0], axis=1))

    def grad(self) -> Float[Array, " d"]:
        return (self._a @ (self._v[1] * self._others)) / self._half

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        if not isinstance(form, Identity):
            return form.contract(self.hessian())
        return jnp.sum((self._a @ (self._v[2] * self._others)) / (self._half * self._half))

    def hessian(self) -> Float[Array, "d d"]:
        """Row i holds the factors with the derivative in place i; the product of all but the entry j."""
        v, first, second = self._v
        identity = jnp.eye(v.shape[1], dtype=v.dtype)

        def term(v: Array, first: Array) -> Array:
            once = jnp.where(identity > 0, first[None, :], v[None, :])
            rows = jax.vmap(others)(once)
            return first[None, :] * rows * (1.0 - identity)

        mixed = jnp.tensordot(self._a, jax.vmap(term)(v, first), axes=1)
        straight = jnp.diag(self._a @ (second * self._others))
        return (mixed + straight) / (self._half[:, None] * self._half[None, :])


def _chebyshev(y: Float[Array, " d"], count: int) -> tuple[Array, Array, Array]:
    """Chebyshev's polynomials at every coordinate, `(d, count)`, with first and second derivatives."""
    one, zero = jnp.ones_like(y), jnp.zeros_like(y)
    rows = [(one, zero, zero), (y, one, zero)]
    for _ in range(2, count):
        (t, t1, t2), (p, p1, p2) = rows[-1], rows[-2]
        rows.append((2 * y * t - p, 2 * t + 2 * y * t1 - p1, 4 * t1 + 2 * y * t2 - p2))
    first, second, third = zip(*rows[:count], strict=True)
    return jnp.stack(first, axis=1), jnp.stack(second, axis=1), jnp.stack(third, axis=1)
