"""`lift`: an extension of boundary values into the domain, from boundary values only.

A smooth function `p` is fitted to samples of `g` on the boundary (see `_fit`). Where it is exact up to
rounding it is the extension. Elsewhere, on a round domain, what it misses is carried inside along the
rays from the centre; on a box `g` itself is interpolated between the faces (see `_coons`). Either way the
result is `g` on the boundary and has bounded second derivatives inside, so that `L Q` is square integrable.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._coons import Coons
from ._domain import AbstractDomain, Box, Interval
from ._field import AbstractField, Autodiff
from ._fit import EXACT, Smooth, fit
from ._form import AbstractForm, Numbers
from ._round import Annulus, Ball, Ellipsoid

# Beyond this dimension the patch of a box costs too much to be put in unasked.
_PATCHED = 40


def lift(
    g: Callable[..., Any], domain: AbstractDomain, *, seed: int = 0, patch: bool | None = None
) -> AbstractField:
    """Extend boundary values `g` into a ball, ellipsoid, annulus, box or interval.

        >>> Problem(domain, equation, boundary=lift(lambda x: jnp.sin(3 * x[0]), domain))

    `g` maps a point `(d,)` of the boundary to a scalar; it is never evaluated elsewhere.

    First a smooth `p` is fitted to samples of `g`. Where it misses less than 1e-10 of the largest value, at
    boundary points that the fit did not see, it is the extension: smooth up to the edges, and as
    cheap as its coefficients. This happens for polynomials of degree 2, and on boxes for sums of smooth
    functions of one coordinate plus products of two, and for smooth functions of one `a . x`.
    Elsewhere a patch makes the boundary values exact up to rounding:

    - Ball, ellipsoid: `f = p + rho^4 m(projection)`, with `m = g - p` and `rho` the scaled distance from
      the centre.
    - Annulus: `f = p + (1 - t) m(inner projection) + t m(outer projection)`.
    - Interval: the line through the values at the ends.
    - Box: `f = sum_(i<k) w_ik (P_i + P_k - P_i P_k) g`, where `P_i` interpolates linearly between the
      two faces across axis `i`, and `w_ik` is proportional to `1 / (D_i D_k)` and sums to 1, with
      `D_i = u_i (1 - u_i)` and `u` the coordinates scaled to (0, 1). In the plane this is Coons'
      patch. `g` must be smooth on each face and continuous across the edges. At edges and corners second
      derivatives are bounded but jump; interpolation between single faces would make them grow like
      1/distance. One value takes `2 d^2` evaluations of `g`, a Laplacian `2 d^3` second derivatives.

    On a box `p` is used alone or not at all. Beside the patch, which then carries `g - p`, it was tried on
    waves, bells and products in 3 to 10 dimensions: from twice as good to fifty times as bad as the patch
    of `g`, at several times the cost. (It was thousands of times better for functions of one `a . x`,
    and these the fit now finds by itself.)

    `patch=True` always patches; `patch=False` never, and boundary values are then off by what the fit,
    with random ridges added, misses. Beyond d = 40 a box needs one of the two where no fit is exact.
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
    if domain.dim == 1 and isinstance(domain, Box | Interval):
        return _line(g, domain)
    box = isinstance(domain, Box)
    if box and patch:
        return Coons(g, *domain.enclosing_box)
    dear = box and domain.dim > _PATCHED
    smooth, miss = fit(g, domain, seed, enough=EXACT, ridges=not box or dear or patch is False)
    if patch is False or (patch is None and miss <= EXACT):
        return smooth
    if dear:
        raise ValueError(
            f"The fit to the boundary values misses up to {miss:.1e} of the largest, and a Laplacian of "
            f"the patch that is exact takes {2 * domain.dim**3:,} second derivatives of g. Pass "
            "patch=False to go without, patch=True to pay, or give a function on the closure."
        )
    if box:
        return Coons(g, *domain.enclosing_box)
    return _RoundLift(Autodiff(g), smooth, _sheets(domain))


def _line(g: Callable[..., Any], domain: AbstractDomain) -> AbstractField:
    lower, upper = domain.enclosing_box
    with jax.enable_x64(True):
        ends = np.asarray([g(jnp.asarray(end)) for end in (lower, upper)])
    if not np.all(np.isfinite(ends)):
        raise ValueError("The boundary values are not finite everywhere on the boundary.")
    return Coons(g, lower, upper)


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
    smooth: Smooth
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
