"""`lift`: an extension of boundary values into the domain, from boundary values only.

Round domains: a smooth function `p` is fitted to samples of `g` on the boundary; what it misses,
`m = g - p`, is small and is carried inside along the rays from the centre. Boxes: `g` is
interpolated between the faces. Either way the result is `g` on the boundary and has bounded second
derivatives inside, so that `L Q` is square integrable.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._domain import AbstractDomain, Box, Interval
from ._field import AbstractField, Autodiff
from ._form import AbstractForm, Factor, Identity, Numbers
from ._jet import widely
from ._round import Annulus, Ball, Ellipsoid
from .activations import tanh

# Random ridges beside the polynomial, and boundary samples per fitted coefficient.
_RIDGES, _SAMPLES = 128, 6
# Up to this dimension the polynomial has all products x_i x_j, beyond only the squares.
_PRODUCTS = 16
# Coordinates of boundary points that a box evaluates at a time, a bound on memory.
_COORDINATES = 16_384


def lift(g: Callable[..., Any], domain: AbstractDomain, *, seed: int = 0) -> AbstractField:
    """Extend boundary values `g` into a ball, ellipsoid, annulus, box or interval.

        >>> Problem(domain, equation, boundary=lift(lambda x: jnp.sin(3 * x[0]), domain))

    `g` maps a point `(d,)` of the boundary to a scalar; it is never evaluated elsewhere. The values
    of the extension on the boundary are exact up to rounding.

    - Ball, ellipsoid: `f = p + rho^4 m(projection)`, with `rho` the scaled distance from the centre.
    - Annulus: `f = p + (1 - t) m(inner projection) + t m(outer projection)`.
    - Interval: the line through the values at the ends.
    - Box: `f = sum_(i<k) w_ik (P_i + P_k - P_i P_k) g`, where `P_i` interpolates linearly between the
      two faces across axis `i`, and `w_ik` is proportional to `1 / (D_i D_k)` and sums to 1, with
      `D_i = u_i (1 - u_i)` and `u` the coordinates scaled to (0, 1). In the plane this is Coons'
      patch. `g` must be smooth on each face and continuous across the edges. One value takes
      `2 d^2` evaluations of `g`, a Laplacian `2 d^3` second derivatives: up to d = 20 or so.
    """
    kinds = (Ball, Ellipsoid, Annulus, Box, Interval)
    if type(domain) not in kinds:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise ValueError(
            f"lift knows {names}, not {type(domain).__name__}. Give a function on the closure."
        )
    point = jax.ShapeDtypeStruct((domain.dim,), jnp.float32)
    shape = jax.eval_shape(lambda x: jnp.asarray(g(x)), point).shape
    if shape != ():
        raise ValueError(f"lift takes g from a point (d,) to a scalar of shape (), got {shape}.")
    features = _Features.of(domain, seed)
    with jax.enable_x64(True):
        matrix, values = (np.asarray(a) for a in _evaluate(features, g, domain, jr.key(seed)))
    if not np.all(np.isfinite(values)):
        raise ValueError("The boundary values are not finite everywhere on the boundary.")
    if isinstance(domain, Box | Interval):
        return _BoxLift(g, *domain.enclosing_box)
    return _RoundLift(Autodiff(g), _Smooth.fit(features, matrix, values), _sheets(domain))


@eqx.filter_jit
def _evaluate(
    features: "_Features", g: Callable[..., Any], domain: AbstractDomain, key: PRNGKeyArray
) -> tuple[Float[Array, "s n"], Float[Array, " s"]]:
    """Features and values at random points of the boundary."""
    edge = domain.sample_boundary(key, _SAMPLES * features.count)
    values = jax.vmap(lambda x: jnp.asarray(g(x), x.dtype))(edge)
    return jax.vmap(features)(edge), values


class _Features(eqx.Module):
    """`1, y, y_i y_j` and random ridges `tanh(w . y + b)` in the scaled coordinates `y`."""

    centre: Numbers
    half: Numbers
    w: Numbers
    b: Numbers

    @classmethod
    def of(cls, domain: AbstractDomain, seed: int) -> "_Features":
        lower, upper = domain.enclosing_box
        rng = np.random.default_rng(seed)
        return cls(
            centre=0.5 * (lower + upper),
            half=0.5 * (upper - lower),
            w=2.0 / np.sqrt(domain.dim) * rng.standard_normal((_RIDGES, domain.dim)),
            b=rng.standard_normal(_RIDGES),
        )

    @property
    def products(self) -> tuple[np.ndarray, np.ndarray]:
        """The `i` and the `j` of the products."""
        d = self.centre.size
        return np.triu_indices(d) if d <= _PRODUCTS else (np.arange(d), np.arange(d))

    @property
    def count(self) -> int:
        return 1 + self.centre.size + self.products[0].size + self.b.size

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " n"]:
        y = (x - self.centre) / self.half
        rows, columns = self.products
        ridges = jnp.tanh(self.w @ y + self.b)
        return jnp.concatenate([jnp.ones((1,), y.dtype), y, y[rows] * y[columns], ridges])


class _Smooth(AbstractField):
    """`p = constant + slope . y + y' curvature y / 2 + height . tanh(w y + b)`, `y = x - centre`."""

    centre: Numbers
    constant: Numbers
    slope: Numbers
    curvature: Numbers
    height: Numbers
    w: Numbers
    b: Numbers

    @classmethod
    def fit(cls, features: _Features, matrix: np.ndarray, values: np.ndarray) -> "_Smooth":
        """Least squares on the boundary."""
        # The samples lie on the boundary only. A combination of features that is small there may be
        # large inside; rcond leaves such combinations out, at the price of a larger mismatch.
        weights = np.linalg.lstsq(matrix, values, rcond=1e-4)[0]
        d, half = features.centre.size, features.half
        constant, slope, products, height = np.split(
            weights, [1, 1 + d, weights.size - features.b.size]
        )
        curvature = np.zeros((d, d))
        curvature[features.products] = products
        return cls(
            centre=features.centre,
            constant=np.asarray(constant[0]),
            slope=slope / half,
            curvature=(curvature + curvature.T) / np.outer(half, half),
            height=height,
            w=features.w / half,
            b=features.b,
        )

    def _ridges(self, x: Float[Array, " d"], order: int) -> Float[Array, " n"]:
        """`height` times a derivative of every ridge."""
        return self.height * tanh.derivatives(self.w @ (x - self.centre) + self.b, order)[order]

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        y = x - self.centre
        polynomial = self.constant + jnp.dot(self.slope + 0.5 * (self.curvature @ y), y)
        return polynomial + jnp.sum(self._ridges(x, 0))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.slope + self.curvature @ (x - self.centre) + self._ridges(x, 1) @ self.w

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        ridges = jnp.dot(self._ridges(x, 2), form.quadratic(jnp.asarray(self.w, x.dtype)))
        return form.contract(jnp.asarray(self.curvature, x.dtype)) + ridges

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return self.curvature + (self.w.T * self._ridges(x, 2)) @ self.w

    def bend(self, x: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, " d"]:
        """`Hess v`."""
        return self.curvature @ v + (self._ridges(x, 2) * (self.w @ v)) @ self.w


class _Sheet(eqx.Module):
    """The surface `|y| = 1`, `y = (x - centre) / axes`, and the factor `q` of what it carries inside.

    With `rho = |y|`, `q = constant + linear rho + quartic rho^4`.
    """

    centre: Numbers
    axes: Numbers
    constant: float = eqx.field(static=True, converter=float)
    linear: float = eqx.field(static=True, converter=float)
    quartic: float = eqx.field(static=True, converter=float)

    def project(self, x: Float[Array, " d"]) -> tuple[Array, Array, Array]:
        """The point of the surface on the ray through `x`; the direction `z = y / rho`; `rho`."""
        y = (x - self.centre) / self.axes
        # At the centre any direction will do: its factor is zero.
        start = jnp.zeros_like(y).at[0].set(1e-15)
        y = jnp.where(jnp.sum(y * y) > 1e-30, y, start)
        rho = jnp.sqrt(jnp.sum(y * y))
        return self.centre + self.axes * (y / rho), y / rho, rho

    def factor(self, rho: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """`q`, `q'`, `q''`."""
        return (
            self.constant + self.linear * rho + self.quartic * rho**4,
            self.linear + 4.0 * self.quartic * rho**3,
            12.0 * self.quartic * rho**2,
        )


def _sheets(domain: AbstractDomain) -> tuple[_Sheet, ...]:
    if isinstance(domain, Annulus):
        inner, outer, size = domain.inner, domain.outer, np.ones(domain.dim)
        width = outer - inner
        return (
            _Sheet(domain.centre, inner * size, outer / width, -inner / width, 0.0),
            _Sheet(domain.centre, outer * size, -inner / width, outer / width, 0.0),
        )
    lower, upper = domain.enclosing_box
    return (_Sheet(domain.centre, 0.5 * (upper - lower), 0.0, 0.0, 1.0),)


class _RoundLift(AbstractField):
    """`p + sum q(rho) m(projection)` over the sheets, `m = g - p`."""

    g: Autodiff
    smooth: _Smooth
    sheets: tuple[_Sheet, ...]

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        total = self.smooth.value(x)
        for sheet in self.sheets:
            point, _, rho = sheet.project(x)
            total += sheet.factor(rho)[0] * (self.g.value(point) - self.smooth.value(point))
        return total

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        total = self.smooth.grad(x)
        for sheet in self.sheets:
            point, z, rho = sheet.project(x)
            q, dq, _ = sheet.factor(rho)
            m = self.g.value(point) - self.smooth.value(point)
            slope = sheet.axes * (self.g.grad(point) - self.smooth.grad(point))
            along = slope - jnp.dot(slope, z) * z
            total += (dq * m * z + q / rho * along) / sheet.axes
        return total

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        total = self.smooth.trace(x, form)
        for sheet in self.sheets:
            total += self._carried(sheet, x, form)
        return total

    def _carried(self, sheet: _Sheet, x: Float[Array, " d"], form: AbstractForm) -> Array:
        """`a : Hess (q M)` with `M = m(projection)`, by the chain rule in the coordinates `y`.

        With `T = I - z z'` and `s`, `H` the gradient and Hessian of `m`,
        `rho^2 Hess M = T H T - (s . z) T - z (T s)' - (T s) z'`.
        """
        point, z, rho = sheet.project(x)
        q, dq, ddq = sheet.factor(rho)
        m = self.g.value(point) - self.smooth.value(point)
        slope = sheet.axes * (self.g.grad(point) - self.smooth.grad(point))
        normal = jnp.dot(slope, z)
        # a z, z'a z and the trace of a, all in the coordinates y.
        az = form.apply(z / sheet.axes) / sheet.axes
        zaz = jnp.dot(z, az)
        flat = jnp.sum(form.diagonal(x.size) / (sheet.axes * sheet.axes)) - zaz
        cross = jnp.dot(az, slope) - normal * zaz
        # The part of H along the surface.
        v = sheet.axes * z
        hz = sheet.axes * (jax.jvp(self.g.grad, (point,), (v,))[1] - self.smooth.bend(point, v))
        second = self.g.trace(point, form) - self.smooth.trace(point, form)
        tht = second - 2.0 * jnp.dot(az, hz) + zaz * jnp.dot(z, hz)
        return (
            m * (ddq * zaz + dq / rho * flat)
            + 2.0 * dq / rho * cross
            + q / (rho * rho) * (tht - normal * flat - 2.0 * cross)
        )

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.jacfwd(self.grad)(x)


class _BoxLift(AbstractField):
    """`sum_(i<k) w_ik (P_i + P_k - P_i P_k) g` (see `lift`).

    On a face only the pairs with its axis have weight, and each of them is `g` there. For a smooth
    function `G` that is `g` on the boundary, `f - G = -sum w_ik D_i D_k h_ik` with `h_ik` smooth (the
    divided difference of `G` at 0, 1, u along both axes). The factors `w_ik D_i D_k` are smooth
    where no three faces meet; there they are homogeneous of degree 2 in `D`, hence with bounded
    second derivatives. The rounding of `g` enters these over the square of the third smallest `D`.
    """

    g: Callable[..., Any]
    lower: Numbers
    upper: Numbers

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return widely(self._value, x)

    def _value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        ends = jnp.stack([jnp.asarray(end, x.dtype) for end in (self.lower, self.upper)])
        u = (x - ends[0]) / (ends[1] - ends[0])
        hats = jnp.stack([1.0 - u, u])
        axes = jnp.arange(x.size)

        def total(*columns: Array) -> Array:
            """The sum of `weight g(x with x_i = first, x_k = second)`."""

            def term(row: tuple[Array, ...]) -> Array:
                i, k, first, second, weight = row
                y = jnp.where(axes == i, first, jnp.where(axes == k, second, x))
                return weight * jnp.asarray(self.g(y), x.dtype)

            rows = tuple(column.ravel() for column in jnp.broadcast_arrays(*columns))
            if rows[0].size * x.size <= _COORDINATES:
                return jnp.sum(jax.vmap(term)(rows))
            return jnp.sum(jax.lax.map(term, rows, batch_size=max(1, _COORDINATES // x.size)))

        if x.size == 1:
            return total(axes, axes, ends, ends, hats)
        i, k, pair = _pair_weights(u)
        single = jnp.zeros_like(x).at[i].add(pair).at[k].add(pair)
        corner = pair[None, None] * hats[:, None, i] * hats[None, :, k]
        faces = total(axes, axes, ends, ends, single[None] * hats)
        return faces - total(i, k, ends[:, None, i], ends[None, :, k], corner)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return Autodiff(self._value).grad(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if isinstance(form, Identity):
            directions = np.eye(x.size)
        elif isinstance(form, Factor):
            directions = form.sigma.T
        else:
            return Autodiff(self._value).trace(x, form)

        def along(v: Float[Array, " d"]) -> Array:
            def slope(y: Array) -> Array:
                return jax.jvp(self.value, (y,), (v,))[1]

            return jax.jvp(slope, (x,), (v,))[1]

        # Forward mode keeps no intermediate values, one direction at a time is enough work.
        with jax.enable_x64(True):
            return jnp.sum(jax.lax.map(along, jnp.asarray(directions, x.dtype)))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return Autodiff(self._value).hessian(x)


def _pair_weights(u: Float[Array, " d"]) -> tuple[Array, Array, Array]:
    """Axes `i`, `k` and weights `1 / (D_i D_k)` over their sum, for every pair.

    The pairs are in the order of `D`, and all weights are multiplied by its two smallest entries.
    These then stand in no denominator: nothing is singular where only two faces meet.
    """
    distance = u * (1.0 - u) + jnp.finfo(u.dtype).eps
    order = jnp.argsort(jax.lax.stop_gradient(distance))
    sort = distance[order]
    i, k = np.triu_indices(u.size, 1)
    near = jnp.concatenate([sort[1:2], sort[:1], sort[0] * sort[1] / sort[2:]])
    weight = jnp.where(k == 1, 1.0, near[i] / sort[k])
    return order[i], order[k], weight / jnp.sum(weight)
