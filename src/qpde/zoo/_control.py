"""Control and stopping: Hamilton-Jacobi-Bellman equations, the control eliminated in closed form."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._boundary.lift import lift
from .._domain.base import as_dimension
from .._domain.box import Box, Interval
from .._domain.eta import others
from .._domain.round import Ball
from .._field.jet import Jet
from .._precision import Numbers
from .._problem.problem import Problem
from ._recipe import recorded


class _CoupledValue(eqx.Module):
    """`size |x|^2 - coupling sum_i (y_i y_{i+1} + z_i z_{i+1})`, cyclic in the halves of `x = (y, z)`."""

    size: Numbers
    coupling: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        halves = x.reshape(2, -1)
        pairs = jnp.sum(halves * jnp.roll(halves, -1, axis=1))
        return self.size * jnp.sum(x * x) - self.coupling * pairs

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        halves = x.reshape(2, -1)
        near = jnp.roll(halves, -1, axis=1) + jnp.roll(halves, 1, axis=1)
        return 2.0 * self.size * x - self.coupling * near.ravel()


class _VanDerPolEquation(eqx.Module):
    """`Lap u + b . grad u - |grad_z u|^2 / (4 effort) - discount u + w`, `b = (z, (1 - y^2) z - y)`.

    The running cost `w` is that for which the value `v` is known; all terms are written as differences
    to those of `v`.
    """

    exact: _CoupledValue
    effort: Numbers
    discount: Numbers

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        y, z = x.reshape(2, -1)
        drift = jnp.concatenate([z, (1.0 - y * y) * z - y])
        known = self.exact.grad(x)
        steered, optimal = u.grad[y.size :], known[y.size :]
        control = jnp.dot(steered, steered) - jnp.dot(optimal, optimal)
        return (
            u.laplacian
            - 2.0 * self.exact.size * x.size
            + jnp.dot(drift, u.grad - known)
            - control / (4.0 * self.effort)
            - self.discount * (u.value - self.exact(x))
        )


@recorded
def van_der_pol(
    dim: int = 20,
    *,
    size: float = 1.0,
    coupling: float = 0.1,
    effort: float = 1.0,
    discount: float = 1.0,
) -> Problem:
    """Control of coupled stochastic Van der Pol oscillators, stopped at the unit sphere.

    With positions `y` and velocities `z`, `x = (y, z)`, `d = 2 n`, n >= 2,
    `Lap u + z . grad_y u + ((1 - y^2) z - y) . grad_z u + inf_a (effort |a|^2 + a . grad_z u) + w(x)
    - discount u = 0`; the infimum is `-|grad_z u|^2 / (4 effort)`. The running cost `w` makes
    `u = size |x|^2 - coupling sum_i (y_i y_{i+1} + z_i z_{i+1})` (cyclic) the value. The data are
    extended from boundary values only.

    Source: Zhou, Han and Lu, Actor-critic method for high dimensional static Hamilton-Jacobi-Bellman
    partial differential equations based on neural networks, SIAM J. Sci. Comput. 43 (2021).
    """
    if as_dimension(dim) < 4 or dim % 2:
        raise ValueError(f"van_der_pol is defined in even dimensions from 4 up, got {dim}.")
    numbers = {"size": size, "coupling": coupling, "effort": effort, "discount": discount}
    if not all(np.isfinite(number) for number in numbers.values()) or effort <= 0:
        raise ValueError(f"The settings must be finite and effort positive, got {numbers}.")
    exact = _CoupledValue(np.asarray(size, np.float64), np.asarray(coupling, np.float64))
    domain = Ball(dim)
    return Problem(
        domain=domain,
        equation=_VanDerPolEquation(
            exact, np.asarray(effort, np.float64), np.asarray(discount, np.float64)
        ),
        boundary=lift(exact, domain),
        exact=exact,
        name="van_der_pol",
    )


class _Bell(eqx.Module):
    """`exp(-|x|^2)`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.exp(-jnp.sum(x * x))


class _BellEquation(eqx.Module):
    """See `control_bell`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        s = jnp.sum(x * x)
        v = jnp.exp(-s)
        p = x * (u.grad + 2.0 * v * x)
        control = jnp.sum(jnp.square(jnp.maximum(jnp.abs(p) - 1.0, 0.0)))
        second = u.laplacian - (4.0 * s - 2.0 * x.size) * v
        return 0.5 * second - (u.value - v) + jnp.dot(x, p) - 0.25 * control


@recorded
def control_bell(dim: int = 10) -> Problem:
    """A controlled diffusion in the unit ball with a control a coordinate and a price on using it.

    With `v = exp(-|x|^2)` and `p_i = x_i d_i(u - v)`,
    `1/2 Lap(u - v) - (u - v) + sum_i (x_i p_i + inf_a (a p_i + |a| + a^2)) = 0`, `u = 1/e` on the sphere;
    the infimum is `-max(|p_i| - 1, 0)^2 / 4`. The value is `v`.

    Source: Cohen, Hebner, Jiang and Sirignano, Neural actor-critic methods for Hamilton-Jacobi-Bellman
    PDEs (2025), problem 1.
    """
    return Problem(
        domain=Ball(dim),
        equation=_BellEquation(),
        boundary=math.exp(-1.0),
        exact=_Bell(),
        name="control_bell",
    )


class _SinesValue(eqx.Module):
    """`1 + |x|^2 prod sin(pi x_i)`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return 1.0 + jnp.sum(x * x) * jnp.prod(jnp.sin(math.pi * x))


class _SinesEquation(eqx.Module):
    """See `control_sines`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        s, sines = jnp.sum(x * x), jnp.sin(math.pi * x)
        product = jnp.prod(sines)
        slope = math.pi * jnp.cos(math.pi * x) * others(sines)  # the gradient of the product
        along = 2.0 * s * product + s * jnp.dot(x, slope)
        bend = 2.0 * x.size * product + 4.0 * jnp.dot(x, slope) - x.size * math.pi**2 * s * product
        p = u.along(x) - along
        optimal = x[0] * jnp.sin(math.pi * x[2]) + x[1]
        gap = u.value - 1.0 - s * product
        return 0.5 * (u.laplacian - bend) - gap + optimal * p - 0.25 * p * p


@recorded
def control_sines(dim: int = 10) -> Problem:
    """A controlled diffusion in a box whose value oscillates.

    With `v = 1 + |x|^2 prod sin(pi x_i)`, `p = x . grad(u - v)` and `b = x_1 sin(pi x_3) + x_2`,
    `1/2 Lap(u - v) - (u - v) + b p + inf_a (a p + a^2) = 0` in (-1, 1)^d, `u = 1` on the boundary; the
    infimum is `-p^2 / 4`. The value is `v`. For d >= 3.

    Source: Cohen, Hebner, Jiang and Sirignano, Neural actor-critic methods for Hamilton-Jacobi-Bellman
    PDEs (2025), problem 5.
    """
    if as_dimension(dim) < 3:
        raise ValueError(f"control_sines is defined from dimension 3 up, got {dim}.")
    return Problem(
        domain=Box(-1.0, 1.0, dim=dim),
        equation=_SinesEquation(),
        boundary=1.0,
        exact=_SinesValue(),
        name="control_sines",
    )


class _PutEquation(eqx.Module):
    """`max(1/2 volatility^2 x^2 u'' + rate x u' - rate u, (strike - x)^+ - u)`."""

    strike: Numbers
    rate: Numbers
    volatility: Numbers

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        s = x[0]
        held = u.generator(self.rate * x, self.volatility * s) - self.rate * u.value
        return jnp.maximum(held, jnp.maximum(self.strike - s, 0.0) - u.value)


class _PutSolution(eqx.Module):
    """`strike - x` up to the free boundary, then `(strike - free) (x / free)^-power`."""

    strike: Numbers
    free: Numbers
    power: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        s = jnp.maximum(x[0], self.free)
        held = (self.strike - self.free) * (s / self.free) ** -self.power
        return jnp.where(x[0] > self.free, held, self.strike - x[0])


class _Straight(eqx.Module):
    """The line through two values, at 0 and at 1."""

    left: Numbers
    right: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.left + (self.right - self.left) * x[0]


@recorded
def american_put(
    dim: int = 1, *, strike: float = 0.5, rate: float = 0.05, volatility: float = 0.25
) -> Problem:
    """The perpetual American put, an obstacle problem with a free boundary.

    `max(1/2 volatility^2 x^2 u'' + rate x u' - rate u, (strike - x)^+ - u) = 0` in (0, 1), with the
    exact values at both ends. With `m = 2 rate / volatility^2` one exercises below
    `strike m / (1 + m)` (0.307692 by default); all coefficients vanish at `x = 0`.

    Source: the notebooks beside Cohen, Jiang and Sirignano, JMLR 24 (2023).
    """
    if as_dimension(dim) != 1:
        raise ValueError(f"american_put is defined in dimension 1, got {dim}.")
    numbers = {"strike": strike, "rate": rate, "volatility": volatility}
    for name, number in numbers.items():
        if not (np.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be a positive number, got {number}.")
    if strike >= 1:
        raise ValueError(f"strike must lie inside the domain (0, 1), got {strike}.")
    power = 2.0 * rate / volatility**2
    exact = _PutSolution(*(np.asarray(v) for v in (strike, strike * power / (1 + power), power)))
    return Problem(
        domain=Interval(0.0, 1.0),
        equation=_PutEquation(*(np.asarray(v, np.float64) for v in numbers.values())),
        boundary=_Straight(
            np.asarray(strike), np.asarray((exact.strike - exact.free) * exact.free**exact.power)
        ),
        exact=exact,
        name="american_put",
    )
