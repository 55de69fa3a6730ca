"""Poincaré constants: the smallest Dirichlet eigenvalue of `-Lap`, or a lower bound for it.

`||grad v||^2 >= lambda_1 ||v||^2` for every `v` with zero trace.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import jv

from ._domain import AbstractDomain, Box, Interval
from ._measure import Radial
from ._round import Annulus, Ball

# Roots are found to twelve digits and rounded down in the eleventh.
_SAFETY = 1.0 - 1e-11


class Eigenvalue(NamedTuple):
    """A lower bound for `lambda_1`, and where it comes from."""

    value: float
    how: str


def bessel_zero(order: float) -> float:
    """The first positive zero of `J_order`, for `order >= -1/2`, rounded down."""
    if order == -0.5:  # J is a cosine
        return 0.5 * math.pi * _SAFETY
    # Below the zero J is positive, and the zero lies beyond sqrt(order (order + 2)). The second one is
    # more than four steps away from the first.
    start = math.sqrt(max(order * (order + 2.0), 0.0)) if order > 0 else 1e-3
    step = 0.25 + 0.2 * max(order, 0.0) ** (1.0 / 3.0)
    end = start + step
    while jv(order, end) > 0:
        start, end = end, end + step
    root: Any = brentq(lambda x: float(jv(order, x)), start, end, xtol=1e-13)
    return float(root) * _SAFETY


def smallest_eigenvalue(domain: AbstractDomain) -> Eigenvalue:
    """`lambda_1` of a ball, a box or an interval; elsewhere the best of several lower bounds."""
    if isinstance(domain, Ball):
        return Eigenvalue((_first(domain.dim) / float(domain.radius)) ** 2, "exact for a ball")
    box = _box_eigenvalue(*domain.enclosing_box)
    if isinstance(domain, Box | Interval):
        return Eigenvalue(box, "exact for a box")
    # Equal volume: omega_d R^d = volume.
    ball = 0.5 * domain.dim * math.log(math.pi) - math.lgamma(0.5 * domain.dim + 1.0)
    radius = math.exp((domain.log_volume - ball) / domain.dim)
    bounds = [
        Eigenvalue(box, "enclosing box"),
        Eigenvalue((_first(domain.dim) / float(domain.enclosing_ball[1])) ** 2, "enclosing ball"),
        Eigenvalue((_first(domain.dim) / radius) ** 2, "Faber-Krahn, ball of equal volume"),
    ]
    if isinstance(domain, Annulus):
        bounds.append(_annulus(domain))
    return max(bounds)


def _first(dim: int) -> float:
    return bessel_zero(0.5 * dim - 1.0)


def _box_eigenvalue(lower: np.ndarray, upper: np.ndarray) -> float:
    return float(np.sum((math.pi / (upper - lower)) ** 2)) * _SAFETY


def _annulus(domain: Annulus) -> Eigenvalue:
    """From the radial equation.

    The first eigenfunction is radial; `v = r^((1 - d)/2) w` turns its equation into
    `-w'' + (d - 1)(d - 3)/(4 r^2) w = lambda w` on `(inner, outer)`, whose potential is bounded below.
    """
    d, inner, outer = domain.dim, float(domain.inner), float(domain.outer)
    potential = 0.25 * (d - 1) * (d - 3)
    least = potential / (outer if potential > 0 else inner) ** 2
    value = ((math.pi / (outer - inner)) ** 2 + least) * _SAFETY
    return Eigenvalue(value, "radial equation of the annulus")


def radial_eigenvalue(measure: Radial) -> Eigenvalue:
    """The constant of the law `r = R U^(1/k)`: `-<v, Lap v>_mu >= lambda ||v||_mu^2`.

    With the density `r^(k - d)` and `v = r^((1 - k)/2) w` the radial equation is Bessel's with
    `nu^2 = (k - 2)(2 d - 2 - k)/4`; angular dependence only adds to it. `k = d` is the uniform law.
    """
    d, k = measure.domain.dim, float(measure.k)
    order = math.sqrt(max((k - 2.0) * (2.0 * d - 2.0 - k), 0.0)) / 2.0 if d > 1 else -0.5
    radius = float(measure.domain.enclosing_ball[1])
    return Eigenvalue((bessel_zero(order) / radius) ** 2, f"radial law with k = {k:g}")
