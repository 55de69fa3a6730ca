"""Semilinear equations on the unit ball, and Poisson's equation with the same solution."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._boundary.lift import lift
from .._domain.base import as_dimension
from .._domain.round import Ball
from .._field.jet import Jet
from .._precision import Numbers
from .._problem.problem import Problem
from ._linear import alternating
from ._recipe import recorded


class _WaveSolution(eqx.Module):
    """`1 + sin(k . x) / 2`."""

    k: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return 1.0 + 0.5 * jnp.sin(jnp.dot(self.k, x))


class _CubicEquation(eqx.Module):
    """`Lap u - u^3 + r`, with `r` such that `u = 1 + sin(k . x) / 2`."""

    k: Numbers

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        wave = 0.5 * jnp.sin(jnp.dot(self.k, x))
        return u.laplacian - u.value**3 + (1.0 + wave) ** 3 + jnp.sum(self.k**2) * wave


@recorded
def semilinear(dim: int = 10) -> Problem:
    """A semilinear equation with non-zero boundary data, extended from boundary values only.

    `Lap u - u^3 + r(x) = 0` in the unit ball, `u = 1 + sin(k . x) / 2` with `|k| = 2`.
    """
    domain, k = Ball(dim), 2.0 * alternating(dim)
    return Problem(
        domain=domain,
        equation=_CubicEquation(k),
        boundary=lift(_WaveSolution(k), domain),
        exact=_WaveSolution(k),
        name="semilinear",
    )


class _TwoBody(eqx.Module):
    """`u = (1 - |x|^2) h`, `h = sum_i c_i sin t_i`, `t_i = x_i + cos x_{i+1} + x_{i+1} cos x_i`."""

    c: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        left, right = x[:-1], x[1:]
        waves = jnp.sin(left + jnp.cos(right) + right * jnp.cos(left))
        return (1.0 - jnp.sum(x * x)) * jnp.dot(self.c, waves)

    def laplacian(self, x: Float[Array, " d"]) -> tuple[Array, Array]:
        """`u` and `Lap u = (1 - |x|^2) Lap h - 4 x . grad h - 2 d h`, at the cost of some values.

        A term depends on two coordinates, `p = x_i` and `q = x_{i+1}`. With `t_p = 1 - q sin p` and
        `t_q = cos p - sin q` its derivatives are `t_p cos t` and `t_q cos t`, its Laplacian is
        `-(t_p^2 + t_q^2) sin t - (q cos p + cos q) cos t`.
        """
        p, q = x[:-1], x[1:]
        sin_p, cos_p, sin_q, cos_q = jnp.sin(p), jnp.cos(p), jnp.sin(q), jnp.cos(q)
        t = p + cos_q + q * cos_p
        wave, slope = jnp.sin(t), jnp.cos(t)
        by_p, by_q = 1.0 - q * sin_p, cos_p - sin_q
        h = jnp.dot(self.c, wave)
        outward = jnp.dot(self.c, slope * (p * by_p + q * by_q))
        bend = -(by_p**2 + by_q**2) * wave - (q * cos_p + cos_q) * slope
        eta = 1.0 - jnp.sum(x * x)
        return eta * h, eta * jnp.dot(self.c, bend) - 4.0 * outward - 2.0 * x.size * h


class _TwoBodyEquation(eqx.Module):
    """`Lap u + N(u) - r`, with `r` such that the two-body function solves it."""

    exact: _TwoBody
    reaction: Callable[[Array], Array] | None = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        value, laplacian = self.exact.laplacian(x)
        if self.reaction is None:
            return u.laplacian - laplacian
        return u.laplacian - laplacian + self.reaction(u.value) - self.reaction(value)


def _double_well(u: Float[Array, ""]) -> Float[Array, ""]:
    return u - u**3


def _two_body(
    name: str, reaction: Callable[[Array], Array] | None, dim: int, seed: int | float
) -> Problem:
    if as_dimension(dim) < 2:
        raise ValueError(f"{name} is defined from dimension 2 up, got {dim}.")
    if seed != int(seed) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to 2^32 - 1, got {seed}.")
    # The generator of the published problem.
    exact = _TwoBody(np.random.RandomState(int(seed)).standard_normal(dim - 1))
    return Problem(
        domain=Ball(dim), equation=_TwoBodyEquation(exact, reaction), exact=exact, name=name
    )


@recorded
def two_body_poisson(dim: int = 100, *, seed: int | float = 0) -> Problem:
    """Poisson's equation in the unit ball with a solution in which neighbours interact.

    `Lap u = r(x)`, `u = 0` on the sphere,
    `u = (1 - |x|^2) sum_i c_i sin(x_i + cos x_{i+1} + x_{i+1} cos x_i)` with normal `c` from the seed.
    The source `r` costs O(d). Published errors are over points of uniform radius, which weigh the
    centre more than uniform points do.

    Source: Hu, Shukla, Karniadakis and Kawaguchi, Tackling the curse of dimensionality with
    physics-informed neural networks, Neural Networks 176 (2024); Shi, Hu, Lin and Kawaguchi, Stochastic
    Taylor derivative estimator, NeurIPS 2024.
    """
    return _two_body("two_body_poisson", None, dim, seed)


@recorded
def two_body_allen_cahn(dim: int = 100, *, seed: int | float = 0) -> Problem:
    """The Allen-Cahn equation `Lap u + u - u^3 = r(x)` with the solution of `two_body_poisson`.

    Source: as there.
    """
    return _two_body("two_body_allen_cahn", _double_well, dim, seed)


@recorded
def two_body_sine_gordon(dim: int = 100, *, seed: int | float = 0) -> Problem:
    """The sine-Gordon equation `Lap u + sin u = r(x)` with the solution of `two_body_poisson`.

    Source: as there.
    """
    return _two_body("two_body_sine_gordon", jnp.sin, dim, seed)


class _Exponential(eqx.Module):
    """`exp(|x|^2)`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.exp(jnp.sum(x * x))


class _ExponentialEquation(eqx.Module):
    """`Lap u - 2 u (2 |x|^2 + d) + sin(exp(2 |x|^2) - u^2)`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        s = jnp.sum(x * x)
        growth = u.laplacian - 2.0 * u.value * (2.0 * s + x.size)
        return growth + jnp.sin(jnp.exp(2.0 * s) - u.value**2)


@recorded
def exponential_ball(dim: int = 50) -> Problem:
    """A semilinear equation with a radial solution that grows from 1 to e.

    `Lap u - 2 u (2 |x|^2 + d) + sin(exp(2 |x|^2) - u^2) = 0` in the unit ball, `u = e` on the sphere,
    `u = exp(|x|^2)`.

    Source: Nuesken and Richter, Interpolating between BSDEs and PINNs, Journal of Machine Learning 2
    (2023).
    """
    return Problem(
        domain=Ball(dim),
        equation=_ExponentialEquation(),
        boundary=math.e,
        exact=_Exponential(),
        name="exponential_ball",
    )
