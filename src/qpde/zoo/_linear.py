"""Linear equations on balls, ellipsoids and annuli."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._domain.base import as_dimension
from .._domain.round import Annulus, Ball, Ellipsoid
from .._field.jet import Jet
from .._precision import Numbers
from .._problem.problem import Problem
from ._recipe import recorded


class _SurvivalEquation(eqx.Module):
    """`1 - discount u + 1/2 Lap u`."""

    discount: Numbers

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return 1.0 - self.discount * u.value + 0.5 * u.laplacian


class _SurvivalSolution(eqx.Module):
    """`(1 - s) sum_j tails_j s^j`, `s = |x|^2`: only positive terms, so nothing cancels.

    With `a_m = (g/2)^m / (m! (d/2)_m)` the Bessel quotient of the paper is
    `u = sum_{m>=1} (a_m / g)(1 - s^m) / sum_{m>=0} a_m`. Since `1 - s^m = (1 - s)(1 + ... + s^(m-1))`, the
    coefficient of `(1 - s) s^j` is `tails_j = sum_{m>j} (a_m / g) / sum a`.
    """

    tails: Numbers

    def __init__(self, dim: int, discount: float):
        # Terms fall once m (d/2 + m) > discount / 2; four times the root of that is plenty beyond
        # the first twenty. The length is a power of two, so that few different shapes occur.
        count = 2 ** math.ceil(math.log2(20 + 4 * math.sqrt(discount)))
        m = np.arange(1, count + 1)
        # log(a_m / g) = log((g/2)^(m-1) / 2 / (m! (d/2)_m)); the division by g is done by hand.
        power = (m - 1) * math.log(discount / 2) if discount > 0 else np.where(m == 1, 0.0, -np.inf)
        log_terms = power - math.log(2) - np.cumsum(np.log(m) + np.log(dim / 2 + m - 1))
        top = max(0.0, float(np.max(log_terms)))
        terms = np.exp(log_terms - top)
        total = math.exp(-top) + discount * float(np.sum(terms))
        self.tails = np.cumsum(terms[::-1])[::-1] / total

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        s = jnp.sum(x * x)
        return (1.0 - s) * jnp.polyval(jnp.asarray(self.tails)[::-1], s)


@recorded
def survival(dim: int = 20, *, discount: float = 0.2) -> Problem:
    """Discounted survival time of Brownian motion in the unit ball, the paper's test problem.

    `1 - discount u + 1/2 Lap u = 0` in `|x| < 1`, `u = 0` on the sphere.

    Source: Cohen, Jiang and Sirignano, Neural Q-learning for solving PDEs, JMLR 24 (2023), section 6.2.
    """
    if not (np.isfinite(discount) and 0 <= discount <= 1e6):
        raise ValueError(f"discount must lie between 0 and 1e6, got {discount}.")
    return Problem(
        domain=Ball(dim),
        equation=_SurvivalEquation(np.asarray(discount, np.float64)),
        boundary=0.0,
        exact=_SurvivalSolution(dim, float(discount)),
        name="survival",
    )


class _EllipsoidEquation(eqx.Module):
    """`Lap u - u + r` with `r` such that `u = eta exp(k . x)`, `eta = 1 - sum (x_i / a_i)^2`."""

    axes: Numbers
    k: Numbers

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        y = x / self.axes**2
        eta = 1.0 - jnp.dot(x, y)
        lap_eta, k_grad_eta = -2.0 * jnp.sum(1.0 / self.axes**2), -2.0 * jnp.dot(self.k, y)
        grown = lap_eta + 2.0 * k_grad_eta + (jnp.sum(self.k**2) - 1.0) * eta
        return u.laplacian - u.value - grown * jnp.exp(jnp.dot(self.k, x))


class _EllipsoidSolution(eqx.Module):
    axes: Numbers
    k: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return (1.0 - jnp.sum((x / self.axes) ** 2)) * jnp.exp(jnp.dot(self.k, x))


@recorded
def ellipsoid(dim: int = 3) -> Problem:
    """A non-radial problem on an ellipsoid with semi-axes from 1/2 to 2.

    `Lap u - u + r(x) = 0`, `u = 0` on the boundary, `u = (1 - sum (x_i / a_i)^2) exp(k . x)`, where `k` has
    alternating signs and length 1.
    """
    domain = Ellipsoid(np.linspace(0.5, 2.0, dim) if dim > 1 else [1.0])
    k = alternating(domain.dim)
    return Problem(
        domain=domain,
        equation=_EllipsoidEquation(domain.axes, k),
        exact=_EllipsoidSolution(domain.axes, k),
        name="ellipsoid",
    )


def alternating(dim: int) -> np.ndarray:
    """A unit vector with entries of one size and alternating signs."""
    return (-1.0) ** np.arange(dim) / math.sqrt(dim)


class Laplace(eqx.Module):
    """`Lap u`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return u.laplacian


class _DipoleSolution(eqx.Module):
    """`(1 - r^-d) x_1`, harmonic away from the origin."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return x[0] * (1.0 - jnp.sum(x * x) ** (-0.5 * x.size))


class _DipoleData(eqx.Module):
    """`x_1 (1 - 2^-d)(r^2 - 1) / 3`: zero on `r = 1`, the solution's values on `r = 2`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return x[0] * (1.0 - 2.0**-x.size) * (jnp.sum(x * x) - 1.0) / 3.0


@recorded
def annulus(dim: int = 3) -> Problem:
    """Laplace's equation between two spheres, with data that depend on the direction.

    `Lap u = 0` in `1 < |x| < 2`; `u = 0` on the inner sphere, `u = (1 - 2^-d) x_1` on the outer;
    `u = (1 - |x|^-d) x_1`.
    """
    if as_dimension(dim) < 2:
        raise ValueError(f"annulus is defined from dimension 2 up, got {dim}.")
    return Problem(
        domain=Annulus(dim, inner=1.0, outer=2.0),
        equation=Laplace(),
        boundary=_DipoleData(),
        exact=_DipoleSolution(),
        name="annulus",
    )


class _CommittorSolution(eqx.Module):
    """`(1 - r^(2 - d)) / (1 - 2^(2 - d))`; `log r / log 2` in the plane."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        t, rate = 0.5 * jnp.log(jnp.sum(x * x)), 2.0 - x.size
        if rate == 0:
            return t / math.log(2.0)
        return jnp.expm1(rate * t) / math.expm1(rate * math.log(2.0))


class _Rise(eqx.Module):
    """`(r^2 - 1) / 3`: 0 on `r = 1` and 1 on `r = 2`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return (jnp.sum(x * x) - 1.0) / 3.0


@recorded
def committor(dim: int = 10) -> Problem:
    """The chance of Brownian motion between two spheres to leave through the outer one.

    `Lap u = 0` in `1 < |x| < 2`; `u = 0` on the inner sphere, `u = 1` on the outer;
    `u = (1 - |x|^(2-d)) / (1 - 2^(2-d))`. The data are extended by `(|x|^2 - 1) / 3`.

    Source: Nam, Berner and Anandkumar, Solving Poisson equations using neural walk-on-spheres, ICML 2024;
    earlier Nuesken and Richter (see `exponential_ball`).
    """
    if as_dimension(dim) < 2:
        raise ValueError(f"committor is defined from dimension 2 up, got {dim}.")
    return Problem(
        domain=Annulus(dim, inner=1.0, outer=2.0),
        equation=Laplace(),
        boundary=_Rise(),
        exact=_CommittorSolution(),
        name="committor",
    )


class _DriftEquation(eqx.Module):
    """`1/2 Lap u - x . grad u - u / 2 + r`, with `r` such that `u = eta cos(k . x)`."""

    centre: Numbers
    k: Numbers

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        y, phase = x - self.centre, jnp.dot(self.k, x)
        eta, c, s = 1.0 - jnp.sum(y * y), jnp.cos(phase), jnp.sin(phase)
        # grad u = -2 y c - eta s k;  Lap u = -2 d c + 4 (k . y) s - |k|^2 eta c.
        laplacian = -2.0 * x.size * c + 4.0 * jnp.dot(self.k, y) * s - jnp.sum(self.k**2) * eta * c
        drift = 2.0 * jnp.dot(x, y) * c + eta * s * phase
        source = 0.5 * laplacian + drift - 0.5 * eta * c
        return u.generator(-x, 1.0) - 0.5 * u.value - source


class _DriftSolution(eqx.Module):
    centre: Numbers
    k: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        y = x - self.centre
        return (1.0 - jnp.sum(y * y)) * jnp.cos(jnp.dot(self.k, x))


@recorded
def drift(dim: int = 10) -> Problem:
    """An Ornstein-Uhlenbeck process, killed at rate 1/2, in a ball off the centre of its drift.

    `1/2 Lap u - x . grad u - u/2 + r(x) = 0` in `|x - c| < 1`, `|c| = 1/2`, `u = 0` on the boundary,
    `u = (1 - |x - c|^2) cos(k . x)` with `|k| = 2`.
    """
    domain = Ball(dim, centre=np.full(as_dimension(dim), 0.5 / math.sqrt(dim)))
    k = 2.0 * alternating(dim)
    return Problem(
        domain=domain,
        equation=_DriftEquation(domain.midpoint, k),
        exact=_DriftSolution(domain.midpoint, k),
        name="drift",
    )
