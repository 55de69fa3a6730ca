"""Points for integrals over simple domains: Gauss-Legendre on the line, Sobol points elsewhere."""

import warnings

import numpy as np


def gauss_legendre(
    lower: np.ndarray, upper: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Points `(count, 1)` of an interval and weights of sum 1, exact up to degree `2 count - 1`."""
    z, weights = np.polynomial.legendre.leggauss(count)
    half = 0.5 * (upper - lower)
    return (0.5 * (lower + upper) + half * z[:, None]), weights / weights.sum()


def fill_shell(dim: int, count: int, seed: int, hole: float) -> np.ndarray:
    """Points of `hole < |x| < 1`: a direction from normal coordinates, a radius by its law."""
    from scipy.special import ndtri

    u = fill_cube(dim + 1, count, seed)
    z = ndtri(u[:, 1:])
    rest = hole**dim
    radius = (rest + (1.0 - rest) * u[:, :1]) ** (1.0 / dim)
    return radius * z / np.linalg.norm(z, axis=1, keepdims=True)


def fill_cube(dim: int, count: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points inside the open cube."""
    from scipy.stats import qmc

    with warnings.catch_warnings():
        # Balance needs a power of two; any other number is a prefix of the next.
        warnings.simplefilter("ignore", UserWarning)
        points = qmc.Sobol(dim, rng=seed).random(count)
    return np.clip(points, 2.0**-40, 1.0 - 2.0**-40)
