"""Lower bounds for the smallest Dirichlet eigenvalue of `-Lap`, Poincaré's constant of a domain.

`||grad v||^2 >= lambda_1 ||v||^2` for every `v` with zero trace. A larger domain has a smaller `lambda_1`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import jv

# Roots are found to twelve digits and rounded down in the eleventh.
_SAFETY = 1.0 - 1e-11


class Eigenvalue(NamedTuple):
    """A lower bound for `lambda_1`, and where it comes from."""

    value: float
    how: str


def box_eigenvalue(lower: np.ndarray, upper: np.ndarray) -> float:
    """`pi^2 sum_i (upper_i - lower_i)^-2`, of the product of sines that vanishes on the faces."""
    return float(np.sum((math.pi / (upper - lower)) ** 2)) * _SAFETY


def ball_eigenvalue(dim: int, radius: float) -> float:
    """`(j / radius)^2` with the first zero `j` of the Bessel function of order `d/2 - 1`."""
    return (bessel_zero(0.5 * dim - 1.0) / radius) ** 2


def volume_eigenvalue(dim: int, log_volume: float) -> float:
    """`lambda_1` of the ball of this volume: no domain as large has a smaller one (Faber and Krahn)."""
    radius = math.exp((log_volume - log_unit_ball(dim)) / dim)
    return ball_eigenvalue(dim, radius)


def annulus_eigenvalue(dim: int, inner: float, outer: float) -> float:
    """A lower bound from the radial equation; exact for d = 1 and d = 3.

    The first eigenfunction is radial; `v = r^((1 - d)/2) w` turns its equation into
    `-w'' + (d - 1)(d - 3)/(4 r^2) w = lambda w` on `(inner, outer)`, whose potential is bounded below.
    """
    potential = 0.25 * (dim - 1) * (dim - 3)
    least = potential / (outer if potential > 0 else inner) ** 2
    return ((math.pi / (outer - inner)) ** 2 + least) * _SAFETY


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


def log_unit_ball(dim: int) -> float:
    """The logarithm of the volume of the unit ball, `pi^(d/2) / Gamma(d/2 + 1)`."""
    return 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim + 1.0)
