"""Evolution equations on bounded domains."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import real
from .._domain.base import as_dimension
from .._domain.round import Ball
from .._field.evolution import EvolutionJet
from .._precision import Numbers
from .._problem.problem import Problem
from ._linear import alternating
from ._recipe import recorded


class _Waves(eqx.Module):
    """`u = e^-t (1 - |x|^2) h`, `h = sin(a . x) + cos(2 b . x + t)`, and `u_t - Lap u` in closed form."""

    a: Numbers
    b: Numbers

    def solution(self, x: Array, t: Array) -> Array:
        h = jnp.sin(jnp.dot(self.a, x)) + jnp.cos(2.0 * jnp.dot(self.b, x) + t)
        return jnp.exp(-t) * (1.0 - jnp.dot(x, x)) * h

    def source(self, x: Array, t: Array) -> Array:
        eta, first, second = 1.0 - jnp.dot(x, x), jnp.dot(self.a, x), jnp.dot(self.b, x)
        sin, cos = jnp.sin(2.0 * second + t), jnp.cos(2.0 * second + t)
        h = jnp.sin(first) + cos
        bent = -jnp.sum(self.a**2) * jnp.sin(first) - 4.0 * jnp.sum(self.b**2) * cos
        along = first * jnp.cos(first) - 2.0 * second * sin  # x . grad h
        laplacian = eta * bent - 4.0 * along - 2.0 * x.size * h
        return jnp.exp(-t) * (-eta * h - eta * sin - laplacian)


class _WavesEquation(eqx.Module):
    waves: _Waves

    def __call__(self, x: Float[Array, " d"], t: Array, u: EvolutionJet) -> Float[Array, ""]:
        return u.laplacian - u.dt + self.waves.source(x, t)


class _WavesSolution(eqx.Module):
    waves: _Waves

    def __call__(self, x: Float[Array, " d"], t: Array) -> Float[Array, ""]:
        return self.waves.solution(x, t)


class _WavesStart(eqx.Module):
    waves: _Waves

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.waves.solution(x, jnp.zeros((), x.dtype))


@recorded
def heat_ball(dim: int = 10, *, time: float = 1.0) -> Problem:
    """The heat equation in the unit ball, with a solution that moves along two oblique directions.

    `u_t = Lap u + r(x, t)` in `|x| < 1`, `u = 0` on the sphere,
    `u = e^-t (1 - |x|^2) (sin(a . x) + cos(2 b . x + t))`, `|a| = 2`, `|b| = 1`.
    """
    a = 2.0 * alternating(as_dimension(dim))
    b = np.arange(1.0, dim + 1) / math.sqrt(dim * (dim + 1) * (2 * dim + 1) / 6)
    waves = _Waves(a, b)
    return Problem(
        Ball(dim),
        _WavesEquation(waves),
        time=time,
        initial=_WavesStart(waves),
        exact=_WavesSolution(waves),
        name="heat_ball",
    )


class _AbsorbedHeat(eqx.Module):
    def __call__(self, x: Float[Array, " d"], t: Array, u: EvolutionJet) -> Float[Array, ""]:
        return 0.5 * u.laplacian - u.dt


@recorded
def absorbed_heat(dim: int = 10, *, time: float = 0.1) -> Problem:
    """The chance that Brownian motion stays in the unit ball up to the time `t`.

    `u_t = Lap u / 2` in `|x| < 1`, `u = 0` on the sphere, `u = 1` at `t = 0`: data differ where they meet.
    At the centre, with the zeros `j_k` of the Bessel function `J_nu`, `nu = d/2 - 1`,
    `u(0, t) = sum_k j_k^(nu - 1) exp(-j_k^2 t / 2) / (2^(nu - 1) Gamma(nu + 1) J_(nu + 1)(j_k))`. Its Laplace
    transform is the stationary problem `survival`.
    """
    return Problem(
        Ball(dim),
        _AbsorbedHeat(),
        time=float(real("time", time, above=0.0)),
        initial=1.0,
        name="absorbed_heat",
    )
