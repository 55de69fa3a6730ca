"""Ten more problems that the default was not made for: waves, layers, peaks, correlated diffusion, kinks.

As in `unseen.py`, each has a chosen solution `u = g + eta h` and a source that makes the equation true.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from unseen import manufactured

import qpde

_SQUARE = qpde.Box([0.0, 0.0], [1.0, 1.0])


def oscillating(half_waves: int) -> qpde.Problem:
    """Two plane waves across the square, not along its axes; the exact values are the boundary data."""
    size = np.pi * half_waves
    a, b = size * np.array([np.cos(0.4), np.sin(0.4)]), size * np.array([np.cos(2.0), np.sin(2.0)])

    def inside(x: Any) -> Any:
        return jnp.sin(jnp.dot(a, x) + 0.3) + jnp.cos(jnp.dot(b, x))

    return manufactured(
        f"{half_waves} half-waves a side, d = 2", _SQUARE, lambda x, u: u.laplacian, inside
    )


def product() -> qpde.Problem:
    """`sin(pi x) sin(pi y)`, the first example of every course."""

    def exact(x: Any) -> Any:
        return jnp.sin(jnp.pi * x[0]) * jnp.sin(jnp.pi * x[1])

    return qpde.Problem(
        _SQUARE,
        lambda x, u: u.laplacian + 2 * jnp.pi**2 * exact(x),
        exact=exact,
        name="product of sines, d = 2",
    )


def correlated() -> qpde.Problem:
    """A constant matrix without structure, and a wave."""
    rng = np.random.default_rng(10)
    root = rng.standard_normal((10, 10))
    matrix = root @ root.T / 10 + 0.2 * np.eye(10)
    wave = 2.0 * rng.standard_normal(10) / np.sqrt(10)
    return manufactured(
        "correlated diffusion, d = 10",
        qpde.Ball(10),
        lambda x, u: u.trace(matrix) - u.value,
        lambda x: jnp.sin(jnp.dot(wave, x) + 0.5),
    )


def layer() -> qpde.Problem:
    """Little diffusion and a wind: a layer of width 0.05 at the far side."""
    wind = np.array([1.0, 0.5])

    def inside(x: Any) -> Any:
        return 4.0 * jnp.exp(-(1.0 - x[0]) / 0.05) * jnp.cos(x[1]) + x[1]

    return manufactured(
        "layer in a wind, d = 2",
        _SQUARE,
        lambda x, u: 0.05 * u.laplacian + u.along(wind) - u.value,
        inside,
    )


def peak() -> qpde.Problem:
    """A bump of width 0.1 away from the centre."""
    place = np.array([0.3, -0.2, 0.1])
    return manufactured(
        "narrow bump, d = 3",
        qpde.Ball(3),
        lambda x, u: u.laplacian - u.value,
        lambda x: jnp.exp(-jnp.sum((x - place) ** 2) / (2 * 0.1**2)),
    )


def exponential() -> qpde.Problem:
    """`Lap u - exp(u)` in a moved box."""
    return manufactured(
        "exponential reaction, d = 3",
        qpde.Box([1.0, 0.0, -1.0], [2.0, 2.0, 0.5]),
        lambda x, u: u.laplacian - jnp.exp(u.value),
        lambda x: jnp.sin(x[0] * x[1]) + x[2],
    )


def stretched_coefficients() -> qpde.Problem:
    """An ellipsoid, a scalar coefficient that varies, a drift that turns."""

    def operator(x: Any, u: Any) -> Any:
        drift = jnp.roll(x, 1) - x
        return (1.0 + 0.5 * jnp.cos(jnp.sum(x))) * u.laplacian + u.along(drift) - 0.5 * u.value

    return manufactured(
        "turning drift in an ellipsoid, d = 8",
        qpde.Ellipsoid(np.linspace(0.6, 1.8, 8)),
        operator,
        lambda x: jnp.cos(2.0 * x[0] + x[7]) * jnp.exp(0.5 * x[3]),
    )


def cone() -> qpde.Problem:
    """A third power of the radius, whose third derivatives jump at the centre."""
    return manufactured(
        "third power of the radius, d = 4",
        qpde.Ball(4),
        lambda x, u: u.laplacian - u.value,
        lambda x: (jnp.dot(x, x) + 1e-30) ** 1.5 + 0.5 * x[0],
    )


def chain() -> qpde.Problem:
    """Neighbouring coordinates interact."""

    def inside(x: Any) -> Any:
        return jnp.sum(jnp.sin(x[:-1] + x[1:] * x[:-1]))

    return manufactured(
        "chain of neighbours, d = 20",
        qpde.Ball(20),
        lambda x, u: u.laplacian - u.value**3,
        inside,
    )


PROBLEMS: dict[str, Callable[[], qpde.Problem]] = {
    "waves_six": lambda: oscillating(6),
    "waves_twenty": lambda: oscillating(20),
    "product": product,
    "correlated": correlated,
    "layer": layer,
    "peak": peak,
    "exponential": exponential,
    "turning": stretched_coefficients,
    "cone": cone,
    "chain": chain,
}
