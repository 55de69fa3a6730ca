"""Smooth functions fitted to boundary values by least squares, with derivatives in closed form.

The fit sees values on the boundary, and derivatives *along* the boundary, which those values determine.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.polynomial import chebyshev

from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._field.base import AbstractField
from .._field.form import AbstractForm, Identity
from .._precision import Numbers, key_from
from ..activations import tanh

# A fit that misses less than this, relative to the largest value, is exact up to rounding.
EXACT = 1e-10
# Random ridges, boundary samples per fitted coefficient, columns of the polynomials in one coordinate and
# in two.
_RIDGES, _SAMPLES, _COLUMNS = 128, 4, 1_200
# The largest degrees of polynomials in one coordinate and in a direction.
_DEGREE, _FREE = 16, 48
# Points at which gradients look for a direction.
_SLOPES = 64
# Beyond these dimensions there are no products.
_PRODUCTS_ROUND, _PRODUCTS_BOX = 32, 256

Series = tuple[Numbers, Numbers, Numbers]


class Smooth(AbstractField):
    """`constant + sum_i A_i(y_i) + y' C y / 2 + sum_r R_r(a_r . y) + height . tanh(w y + b)`.

    `y = (x - centre) / half`. `A_i` and `R_r` are Chebyshev series, held with their first and second
    derivatives; `C` is None where there are no products. The cost is that of the coefficients.
    """

    centre: Numbers
    half: Numbers
    constant: Numbers
    axes: Series  # (degree + 1, d)
    curvature: Numbers | None
    directions: Numbers  # (r, d), with sum |a_i| = 1
    profiles: Series  # (degree + 1, r)
    height: Numbers
    w: Numbers
    b: Numbers

    def _scaled(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return (x - self.centre) / self.half

    def _along(self, y: Float[Array, " d"], order: int) -> Float[Array, " r"]:
        return _series(self.profiles[order], jnp.asarray(self.directions, y.dtype) @ y)

    def _ridges(self, y: Float[Array, " d"], order: int) -> Float[Array, " n"]:
        """`height` times a derivative of every ridge."""
        return self.height * tanh.derivatives(self.w @ y + self.b, order)[order]

    def _bent(self, y: Float[Array, " d"]) -> Float[Array, " d"]:
        """`C y`."""
        return jnp.zeros_like(y) if self.curvature is None else self.curvature @ y

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        y = self._scaled(x)
        total = self.constant + jnp.sum(_series(self.axes[0], y)) + 0.5 * jnp.dot(self._bent(y), y)
        return total + jnp.sum(self._along(y, 0)) + jnp.sum(self._ridges(y, 0))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        y = self._scaled(x)
        total = _series(self.axes[1], y) + self._bent(y) + self._along(y, 1) @ self.directions
        return (total + self._ridges(y, 1) @ self.w) / self.half

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        y, half = self._scaled(x), jnp.asarray(self.half, x.dtype)
        total = jnp.dot(_series(self.axes[2], y), form.diagonal(x) / (half * half))
        total += jnp.dot(self._along(y, 2), form.quadratic(self.directions / half[None]))
        total += jnp.dot(self._ridges(y, 2), form.quadratic(self.w / half[None]))
        if self.curvature is None or isinstance(form, Identity):  # C has no diagonal
            return total
        return total + form.contract(self.curvature / (half[:, None] * half[None]))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.vmap(lambda v: self.bend(x, v))(jnp.eye(x.size, dtype=x.dtype))

    def bend(self, x: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, " d"]:
        """`Hess v`."""
        y, u = self._scaled(x), v / self.half
        total = _series(self.axes[2], y) * u + self._bent(u)
        total += (self._along(y, 2) * (self.directions @ u)) @ self.directions
        return (total + (self._ridges(y, 2) * (self.w @ u)) @ self.w) / self.half


def _series(coefficients: Numbers, t: Float[Array, " n"]) -> Float[Array, " n"]:
    """`sum_k c_k T_k(t)` for every column, by Clenshaw's recurrence."""
    c = jnp.asarray(coefficients, t.dtype)
    one = two = jnp.zeros_like(t)
    for k in range(c.shape[0] - 1, 0, -1):
        one, two = c[k] + 2.0 * t * one - two, one
    return c[0] + t * one - two


class _Basis(NamedTuple):
    """The functions of a fit, in scaled coordinates."""

    degree: int
    free: int  # the degree of polynomials in the directions
    pairs: tuple[np.ndarray, np.ndarray]
    directions: np.ndarray
    w: np.ndarray
    b: np.ndarray

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        d = self.w.shape[1]
        along = self.directions.shape[0] * self.free
        return 1, d * self.degree, self.pairs[0].size, along, self.b.size

    def matrix(self, y: np.ndarray) -> np.ndarray:
        """The functions at the rows of `y`, as columns."""
        rows = y.shape[0]
        one = np.moveaxis(chebyshev.chebvander(y, self.degree)[..., 1:], 2, 1)
        free = np.moveaxis(chebyshev.chebvander(y @ self.directions.T, self.free)[..., 1:], 2, 1)
        products = y[:, self.pairs[0]] * y[:, self.pairs[1]]
        ridges = np.tanh(y @ self.w.T + self.b[None])
        parts = (
            np.ones((rows, 1)),
            one.reshape(rows, -1),
            products,
            free.reshape(rows, -1),
            ridges,
        )
        return np.concatenate(parts, axis=1)

    def smooth(self, weights: np.ndarray, centre: np.ndarray, half: np.ndarray) -> Smooth:
        d = centre.size
        constant, one, products, free, height = np.split(weights, np.cumsum(self.counts)[:-1])
        curvature = np.zeros((d, d))
        curvature[self.pairs] = products
        return Smooth(
            centre=centre,
            half=half,
            constant=np.asarray(constant[0]),
            axes=_derivatives(one.reshape(self.degree, d)),
            curvature=curvature + curvature.T if products.size else None,
            directions=self.directions,
            profiles=_derivatives(free.reshape(self.free, -1)),
            height=height,
            w=self.w,
            b=self.b,
        )


def _derivatives(weights: np.ndarray) -> Series:
    """The series with no constant and these weights, its first and its second derivative.

    Degrees that carry nothing but rounding, which second derivatives would enlarge, are cut off.
    """
    size = np.max(np.abs(weights), axis=1, initial=0.0)
    used = np.flatnonzero(size > 1e-15 * np.max(size, initial=0.0))
    weights = weights[: max(2, used[-1] + 1 if used.size else 0)]
    series = np.concatenate([np.zeros((1, weights.shape[1])), weights])
    return series, chebyshev.chebder(series, 1), chebyshev.chebder(series, 2)


def fit(
    g: Callable[..., Any], domain: AbstractDomain, seed: int, *, enough: float, ridges: bool
) -> tuple[Smooth, float]:
    """The function that fits best, and the largest miss at other boundary points over the largest value.

    Bases are tried from small to large until one misses less than `enough`. On round domains: squares and
    products of coordinates. On a box: these; a polynomial in one direction, found from gradients along
    the faces; polynomials in every coordinate; both. If `ridges`, random ones as well in the end.
    """
    lower, upper = domain.enclosing_box
    centre, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
    edge = np.array(_sample(domain, key_from(seed), _enough_points(domain)))
    if domain.fills_box:
        bases = _box_bases(g, domain, edge[: max(_SLOPES, 256 // domain.dim)])
        edge = _towards_corners(domain, edge, bases[-1].directions, seed)
    else:
        bases = _round_bases(domain)
    if ridges:
        rng = np.random.default_rng(seed)
        w = 2.0 / np.sqrt(domain.dim) * rng.standard_normal((_RIDGES, domain.dim))
        bases.append(bases[-1]._replace(w=w, b=rng.standard_normal(_RIDGES)))
    values = np.asarray(_values(g, edge))
    if not np.all(np.isfinite(values)):
        raise ValueError("The boundary values are not finite everywhere on the boundary.")
    y, scale = (edge - centre[None]) / half[None], np.abs(values).max() or 1.0
    # Every third point is kept for the test, and a small basis needs fewer for the fit.
    held = np.arange(values.size) % 3 == 2
    best: tuple[float, float, np.ndarray, _Basis] | None = None
    for basis in bases:
        rows = np.flatnonzero(~held)[: _SAMPLES * sum(basis.counts) + 64]
        # The samples lie on the boundary only. A combination of ridges that is small there may be
        # large inside; the cut leaves such combinations out, at the price of a larger miss.
        weights = _least_squares(
            basis.matrix(y[rows]), values[rows], 1e-4 if basis.b.size else 1e-6
        )
        miss = np.abs(basis.matrix(y[held]) @ weights - values[held]) / scale
        rms, most = float(np.sqrt(np.mean(miss**2))), float(np.max(miss))
        if best is None or rms < best[0]:
            best = rms, most, weights, basis
        if most <= enough:
            break
    assert best is not None  # there is a first basis
    _, most, weights, basis = best
    return basis.smooth(weights, centre, half), most


@compiled
def _values(g: Callable[..., Any], points: Any) -> Float[Array, " n"]:
    def value(x: Array) -> Array:
        return jnp.asarray(g(x), x.dtype)

    return jax.lax.map(value, points, batch_size=4096)


@compiled
def _sample(domain: AbstractDomain, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
    return domain.sample_boundary(key, n)


def _enough_points(domain: AbstractDomain) -> int:
    """Points for the largest basis and half as many to test it; on a box each is used twice."""
    d = domain.dim
    if domain.fills_box:
        pairs = min(d * (d - 1) // 2, _COLUMNS)
        count = d * _degree(d) + pairs + _FREE + _RIDGES
        return 3 * _SAMPLES * count // 4 + _SLOPES
    pairs = d * (d - 1) // 2 if d <= _PRODUCTS_ROUND else 0
    return 3 * _SAMPLES * (2 * d + pairs + _RIDGES) // 2 + _SLOPES


def _degree(dim: int) -> int:
    """The degree of the polynomials in one coordinate, less where there are many coordinates."""
    return int(np.clip(_COLUMNS // dim, 2, _DEGREE))


def _least_squares(matrix: np.ndarray, values: np.ndarray, cut: float) -> np.ndarray:
    """The weights, without the combinations of columns smaller than `cut` times the largest.

    From the eigenvectors of the normal equations, much sooner than from singular values; solving again
    for what is left of the values restores the digits that squaring costs.
    """
    size, vectors = np.linalg.eigh(matrix.T @ matrix)
    kept = size > cut**2 * size[-1]
    size, vectors = size[kept], vectors[:, kept]
    weights = np.zeros(matrix.shape[1])
    for _ in range(3):
        weights += vectors @ ((vectors.T @ (matrix.T @ (values - matrix @ weights))) / size)
    return weights


def _towards_corners(
    domain: AbstractDomain, edge: np.ndarray, directions: np.ndarray, seed: int
) -> np.ndarray:
    """The points of the boundary, and as many drawn towards corners of the box.

    In high dimension `a . y` stays near 0 at uniform points, far from its values at corners. Half of the
    corners are those at which the direction of a fit is largest.
    """
    rng = np.random.default_rng(seed)
    corner = np.where(rng.random(edge.shape) < 0.5, -1.0, 1.0)
    if directions.size:
        chosen = directions[rng.integers(directions.shape[0], size=edge.shape[0])]
        half_of_them = rng.random((edge.shape[0], 1)) < 0.5
        corner = np.where(half_of_them, np.where(chosen < 0, -1.0, 1.0), corner)
    lower, upper = domain.enclosing_box
    centre, half = domain.centre[None], 0.5 * (upper - lower)[None]
    t = rng.uniform(-1.0, 1.0, (edge.shape[0], 1))
    drawn = centre + t * half * corner + (1.0 - np.abs(t)) * (edge - centre)
    return rng.permutation(np.concatenate([edge, np.where(_on_face(domain, edge), edge, drawn)]))


def _on_face(domain: AbstractDomain, x: np.ndarray) -> np.ndarray:
    lower, upper = domain.enclosing_box
    return (x == lower[None]) | (x == upper[None])


def _round_bases(domain: AbstractDomain) -> list[_Basis]:
    d = domain.dim
    pairs = np.triu_indices(d if d <= _PRODUCTS_ROUND else 0, 1)
    return [_Basis(2, _DEGREE, pairs, np.zeros((0, d)), np.zeros((0, d)), np.zeros(0))]


def _box_bases(g: Callable[..., Any], domain: AbstractDomain, edge: np.ndarray) -> list[_Basis]:
    lower, upper = domain.enclosing_box
    d, half, along = domain.dim, 0.5 * (upper - lower), ~_on_face(domain, edge)
    free = _direction(np.asarray(_slopes(g, edge)) * half[None], along) if d > 2 else None
    pairs = np.triu_indices(0, 1)
    if d <= _PRODUCTS_BOX:
        few = max(8, 256 // d)  # enough to meet, for each pair, a face across a third axis
        bent = np.asarray(_hessians(g, edge[:few])) * (half[:, None] * half[None])[None]
        pairs = _products(bent, along[:few])
    directions = [(np.zeros((0, d)), _DEGREE)]
    directions += [] if free is None else [(free, _DEGREE), (free, _FREE)]
    return [
        _Basis(degree, power, pairs, direction, np.zeros((0, d)), np.zeros(0))
        for degree in (2, _degree(d))
        for direction, power in directions
    ]


@compiled
def _slopes(g: Callable[..., Any], points: Any) -> Float[Array, "n d"]:
    return jax.vmap(jax.grad(lambda x: jnp.asarray(g(x), x.dtype)))(points)


@compiled
def _hessians(g: Callable[..., Any], points: Any) -> Float[Array, "n d d"]:
    return jax.lax.map(jax.hessian(lambda x: jnp.asarray(g(x), x.dtype)), points)


def _direction(slopes: np.ndarray, known: np.ndarray) -> np.ndarray | None:
    """The direction `(1, d)` of which all gradients are multiples, if there is one.

    The component of a gradient across its face is no boundary value, hence unknown. `slopes = m a'` is
    solved for `m` and `a` in turn, by least squares over the components that are known.
    """
    slopes = np.where(known, slopes, 0.0)
    size = np.abs(slopes).max()
    if not np.isfinite(size) or size == 0:
        return None
    a = slopes[np.argmax(np.sum(slopes**2, axis=1))][None]
    for _ in range(100):
        m = np.sum(slopes * a, axis=1, keepdims=True) / np.maximum(known @ a.T**2, 1e-300)
        a = np.sum(slopes * m, axis=0, keepdims=True) / np.maximum((m**2).T @ known, 1e-300)
        a /= np.sum(np.abs(a))
    m = np.sum(slopes * a, axis=1, keepdims=True) / (known @ a.T**2)
    return a if np.abs(np.where(known, m * a, 0.0) - slopes).max() < 1e-11 * size else None


def _products(hessians: np.ndarray, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of coordinates with a mixed derivative along a face; the largest, if these are many."""
    known = along[:, :, None] & along[:, None, :]
    size = np.max(np.abs(np.where(known, hessians, 0.0)), axis=0)
    dim = size.shape[0]
    if not np.all(np.isfinite(size)):
        return np.triu_indices(0, 1)
    if dim == 2:  # no face has both coordinates along it
        return np.triu_indices(2, 1)
    i, k = np.nonzero(np.triu(size, 1) > 1e-9 * size.max())
    if i.size > _COLUMNS:
        largest = np.argsort(size[i, k])[-2 * dim :]
        i, k = i[largest], k[largest]
    return i, k
