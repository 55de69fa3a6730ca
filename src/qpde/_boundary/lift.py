"""`lift`: an extension of boundary values into the domain, from boundary values only.

A smooth function `p` is fitted to samples of `g` on the boundary (see `fit`). Where it is exact up to
rounding it is the extension. Elsewhere, on a round domain, what it misses is carried inside along the
rays from the centre; on a box `g` itself is interpolated between the faces (see `coons`). Either way the
result is `g` on the boundary and has bounded second derivatives inside, so that `L Q` is square integrable.
Values that may have kinks on the boundary are rounded off by a stated amount (see `rounded`).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import a_function, a_seed, an_instance, flag, real
from .._domain.base import AbstractDomain
from .._domain.sheet import Sheet
from .._equation.roughness import rough_on
from .._field.base import AbstractField, Autodiff, Constant
from .._field.form import AbstractForm
from .._field.slips import check_signature, expect_scalar
from .._precision import x64
from .coons import Coons, faces
from .fit import EXACT, Smooth, fit
from .miss import Approximation, largest_inside, largest_miss, largest_value
from .rounded import round_off

# Beyond this dimension the patch of a box costs too much to be put in unasked.
_PATCHED = 40


# Rough values that a fit misses by more than this, relative to the largest, are refused.
_ROUGHLY = 0.05
# Boundary values below this share of those inside are zero up to rounding.
_NOTHING = 1e-10
# Points of a fit may be off by this much more where a search looks.
_SEARCHED = 10 * EXACT


@x64()
def lift(
    g: Callable[..., Any],
    domain: AbstractDomain,
    *,
    seed: int = 0,
    patch: bool | None = None,
    smoothing: float = 0.01,
) -> AbstractField:
    """Extend boundary values `g` into a ball, ellipsoid, annulus, box or interval.

        >>> Problem(domain, equation, boundary=lift(lambda x: jnp.sin(3 * x[0]), domain))

    `g` maps a point `(d,)` of the boundary to a scalar; only its values there matter.

    First a smooth `p` is fitted to samples of `g`. Where it misses less than 1e-10 of the largest value, at
    boundary points that the fit did not see, it is the extension: smooth up to the edges, and as
    cheap as its coefficients. This happens for polynomials of degree 2, and on boxes for sums of smooth
    functions of one coordinate plus products of two, and for smooth functions of one `a . x`. A search
    over the boundary looks for more that it may miss; what it finds is `lift(...).miss`, which every
    bound for the error takes into account.
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

    **Kinks.** Where `g` may have kinks on the boundary (`abs`, `max` and the like in its program), these
    are rounded off: by `smoothing` times the change of their operands over an inradius on the boundary, and
    by about the distance to it inside, on any domain. The result is smooth, and `lift(...).miss` says how far
    its boundary values are off. Kinks that cannot be rounded off (of a choice) are fitted smoothly, or
    refused where the fit misses more than 5 % of the largest value.
    """
    _check(g, domain, seed, patch, smoothing)
    if domain.fills_box and domain.dim == 1:
        return _line(g, domain)
    if _may_be_rough(g, domain):
        return _smoothed(g, domain, seed, smoothing)
    return _smooth_lift(g, domain, seed, patch)


def _check(g: Any, domain: Any, seed: Any, patch: Any, smoothing: Any) -> None:
    a_function("g", g, "a function from a point (d,) of the boundary to a number")
    an_instance("domain", domain, AbstractDomain, "qpde.Ball(20)")
    check_signature("The boundary function", g, "one point (x)", 1)
    point = jax.ShapeDtypeStruct((domain.dim,), jnp.float32)
    expect_scalar("The boundary function", g, point, "It takes one point (d,), not a batch.")
    a_seed(seed)
    if patch is not None:
        flag("patch", patch)
    if not 0 < real("smoothing", smoothing) <= 1:
        raise ValueError(f"smoothing is a share of the inradius in (0, 1], got {smoothing!r}.")


def _may_be_rough(g: Callable[..., Any], domain: AbstractDomain) -> bool:
    """Whether the program of `g` may have kinks or jumps on the boundary."""
    if not domain.fills_box:
        return bool(rough_on(g, domain.enclosing_box))
    return any(rough_on(g, face) for face in faces(*domain.enclosing_box))


def _smooth_lift(
    g: Callable[..., Any], domain: AbstractDomain, seed: int, patch: bool | None
) -> AbstractField:
    """The extension of smooth boundary values."""
    box = domain.fills_box
    if not box and not domain.sheets:
        raise ValueError(
            "lift knows boxes and domains that name the sheets of their boundary (balls, ellipsoids, "
            f"annuli), not {type(domain).__name__}. Give a function on the closure."
        )
    if box and patch:
        return Coons(g, *domain.enclosing_box)
    dear = box and domain.dim > _PATCHED
    smooth, miss = fit(g, domain, seed, enough=EXACT, ridges=not box or dear or patch is False)
    if patch is False or (patch is None and miss <= EXACT):
        fitted = _fitted(g, smooth, domain, seed)
        if patch is False or fitted.exact:
            return fitted
    if dear:
        raise ValueError(
            f"The fit to the boundary values misses up to {miss:.1e} of the largest, and a Laplacian of "
            f"the patch that is exact takes {2 * domain.dim**3:,} second derivatives of g. Pass "
            "patch=False to go without, patch=True to pay, or give a function on the closure."
        )
    if box:
        return Coons(g, *domain.enclosing_box)
    return RoundLift(Autodiff(g), smooth, domain.sheets)


def _smoothed(
    g: Callable[..., Any], domain: AbstractDomain, seed: int, smoothing: float
) -> Approximation:
    """The extension of boundary values that may have kinks."""
    size, inside = largest_value(g, domain, seed), largest_inside(g, domain, seed)
    if not math.isfinite(size):
        raise ValueError("The boundary values are not finite everywhere on the boundary.")
    if size <= _NOTHING * inside:  # zero on the boundary, whatever the function does inside
        zero = Constant(0.0)
        miss, _ = largest_miss(g, zero, domain, seed)
        return Approximation(zero, g, miss, proved=False, how="zero on the boundary", exact=True)
    smooth, miss = fit(g, domain, seed, enough=EXACT, ridges=False)
    if miss <= EXACT:  # no kink shows on the boundary
        fitted = _fitted(g, smooth, domain, seed)
        if fitted.exact:
            return fitted
    rounded = round_off(g, domain, smoothing)
    if rounded is not None:
        return rounded
    smooth, miss = fit(g, domain, seed, enough=EXACT, ridges=True)
    fitted = _fitted(g, smooth, domain, seed)
    if float(fitted.miss) > _ROUGHLY * size:
        raise ValueError(
            "The boundary values may have kinks or jumps that cannot be rounded off (a choice, a sign, a "
            f"sort), and a smooth fit misses {float(fitted.miss) / size:.0%} of the largest value. Write "
            "them with max, min and abs, or smoothly; Problem(..., blind_to_kinks=True) takes them as given."
        )
    return fitted


def _fitted(
    g: Callable[..., Any], smooth: Smooth, domain: AbstractDomain, seed: int
) -> Approximation:
    miss, _ = largest_miss(g, smooth, domain, seed)
    exact = miss <= _SEARCHED * _largest(g, domain, seed)
    how = "a smooth fit to boundary values"
    return Approximation(smooth, g, miss, proved=False, how=how, exact=exact)


def _largest(g: Callable[..., Any], domain: AbstractDomain, seed: int) -> float:
    """The size of the boundary values at random points, 1 where they are zero."""
    return largest_value(g, domain, seed) or 1.0


def _line(g: Callable[..., Any], domain: AbstractDomain) -> AbstractField:
    lower, upper = domain.enclosing_box
    ends = np.asarray([g(jnp.asarray(end)) for end in (lower, upper)])
    if not np.all(np.isfinite(ends)):
        raise ValueError("The boundary values are not finite everywhere on the boundary.")
    return Coons(g, lower, upper)


class RoundLift(AbstractField):
    """`p + sum q(rho) m(projection)` over the sheets, `m = g - p`."""

    g: Autodiff
    smooth: Smooth
    sheets: tuple[Sheet, ...]

    def judged_by(self) -> Callable[..., Any]:
        return self.g.function

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

    def _carried(self, sheet: Sheet, x: Float[Array, " d"], form: AbstractForm) -> Array:
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
        flat = jnp.sum(form.diagonal(x) / (sheet.axes * sheet.axes)) - zaz
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
