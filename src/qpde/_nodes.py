"""Nodes and weights for integrals over a domain: Gauss-Legendre in one dimension, Sobol points otherwise."""

import warnings

import jax
import jax.random as jr
import numpy as np

from ._domain import AbstractDomain, Box, Interval
from ._round import Annulus, Ball, Ellipsoid


def nodes(domain: AbstractDomain, count: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`count` points inside the domain, `(count, d)`, and weights for means over it, of sum 1.

    In one dimension the rule is exact for polynomials of degree `2 count - 1`. Otherwise the points
    are scrambled Sobol points, mapped to the domain; on domains of your own they are drawn by its
    sampler.
    """
    if domain.dim == 1 and isinstance(domain, Interval | Box | Ball | Ellipsoid):
        z, weights = np.polynomial.legendre.leggauss(count)
        lower, upper = domain.enclosing_box
        half = 0.5 * (upper - lower)
        return (0.5 * (lower + upper) + half * z[:, None]), weights / weights.sum()
    return _spread(domain, count, seed), np.full(count, 1.0 / count)


def _spread(domain: AbstractDomain, count: int, seed: int) -> np.ndarray:
    if isinstance(domain, Interval | Box):
        lower, upper = domain.enclosing_box
        return lower + (upper - lower) * _sobol(domain.dim, count, seed)
    if isinstance(domain, Ball):
        return domain.midpoint + domain.radius * _shell(domain.dim, count, seed, hole=0.0)
    if isinstance(domain, Ellipsoid):
        return domain.midpoint + domain.axes * _shell(domain.dim, count, seed, hole=0.0)
    if isinstance(domain, Annulus):
        hole = float(domain.inner / domain.outer)
        return domain.midpoint + domain.outer * _shell(domain.dim, count, seed, hole=hole)
    with jax.enable_x64(True):
        return np.asarray(domain.sample(jr.key(seed), count), np.float64)


def _shell(dim: int, count: int, seed: int, hole: float) -> np.ndarray:
    """Points of `hole < |x| < 1`: a direction from normal coordinates, a radius by its law."""
    from scipy.special import ndtri

    u = _sobol(dim + 1, count, seed)
    z = ndtri(u[:, 1:])
    rest = hole**dim
    radius = (rest + (1.0 - rest) * u[:, :1]) ** (1.0 / dim)
    return radius * z / np.linalg.norm(z, axis=1, keepdims=True)


def _sobol(dim: int, count: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points inside the open cube."""
    from scipy.stats import qmc

    with warnings.catch_warnings():
        # Balance needs a power of two; any other number is a prefix of the next.
        warnings.simplefilter("ignore", UserWarning)
        points = qmc.Sobol(dim, rng=seed).random(count)
    return np.clip(points, 2.0**-40, 1.0 - 2.0**-40)
