"""Euler-Maruyama for a diffusion with generator `A : Hess + b . grad`, stopped at the boundary.

    X <- X + b h + sigma sqrt(h) Z,        sigma sigma' = 2 A.

A walk seen only at discrete times leaves late: on average it overshoots by 0.5826 sqrt(h) |sigma' n|
(0.5826 = -zeta(1/2) / sqrt(2 pi)). The walk is therefore stopped that much before the boundary and counted
as having left at the nearest boundary point (Gobet and Menozzi 2010), which turns an error of order
sqrt(h) into a smaller one.

The length of a step is chosen where the walker is, by the coefficients there, and never by where the step
would lead, which would bias it:

    it crosses a 14th of the inradius: h <= inradius^2 / (2 tr A) / 200, and a 20th of it by drift;
    the boundary is four deviations away: h = (distance / 4 |sigma' n|)^2, and h |b . n| <= distance / 4;
    tr A changes by at most a fifth: h <= (tr A / 5 |sigma' grad tr A|)^2;
    killing that varies takes at most a tenth: h <= 1 / 10 c;
    the drift hardly turns: sqrt(2 tr A h / d) <= |b| / 4 |b'|, with the largest that random points show.

Where the last would make steps too short to be done, the walk is `too_coarse` for an interval.

Towards the boundary steps shrink until their deviation is the walk's `resolution`, which is a part of the
distance that it started at: starts close to the boundary are resolved as well as others.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._domain.base import AbstractDomain, Times
from .._equation.generator import Generator
from .._equation.operator import Operator
from .._precision import Numbers, key_from
from .pool import Step, directions, normals

_OVERSHOOT = 0.5826
# Standard deviations of a step between a walker and the boundary, unless the step is the shortest.
_MARGIN = 4.0
# Longest steps: this many cross the inradius by diffusion, that many by drift.
_CROSSING, _DRIFTING = 200.0, 20.0
# The largest changes within a step, of tr A and of the discount where killing varies.
_CHANGE, _KILLED = 0.2, 0.1
# The resolution: a part of the distance at the start, and at most a part of inradius / sqrt(d).
_NEAR, _FAR = 32.0, 226.0
_TINY = 1e-300
# Steps within the length on which a drift turns, and by what part of the longest they are shortened at most.
_TURNING, _FOLLOWED = 4.0, 50.0
_SAMPLE = 1_024
# Where A vanishes its relative change is without bound; it shortens a step to this part of the longest.
_LEAST = 1e-3


class Diffusion(eqx.Module):
    """One Euler step. A walk's `level` multiplies all its time steps.

    `longest` is a limit for all of them, `crossing` the number of steps that cross the inradius.
    """

    domain: AbstractDomain
    operator: Operator
    inradius: Numbers
    longest: Numbers
    crossing: Numbers
    factor: Numbers | None  # sigma where it is constant
    rate: Numbers  # the factor of u.dt; 1 where there is no time
    times: Times | None
    definite: bool = eqx.field(static=True)
    too_coarse: bool = eqx.field(static=True)

    def __init__(self, whole: AbstractDomain, generator: Generator, rate: float = 1.0):
        domain = whole.in_space
        self.domain, self.operator = domain, generator.operator
        self.times, self.rate = whole.times, np.asarray(rate)
        self.inradius = np.asarray(domain.inradius)
        longest = rate * longest_step(domain, generator)
        turning = rate * turning_step(whole, generator)
        self.too_coarse = turning < longest / _FOLLOWED
        self.longest = np.asarray(longest if self.too_coarse else min(longest, turning))
        self.crossing = np.asarray(_CROSSING)
        self.definite, self.factor = generator.definite, None
        if generator.matrix is not None:
            values, vectors = np.linalg.eigh(2.0 / rate * generator.matrix)
            self.factor = vectors * np.sqrt(np.maximum(values, 0.0))

    @property
    def coarsest(self) -> Numbers:
        """The deviation of the shortest steps of walks that start far from the boundary."""
        return np.asarray(self.inradius / (_FAR * np.sqrt(self.domain.dim)))

    def resolution(self, distance: np.ndarray) -> np.ndarray:
        """The deviation of the shortest steps of walks that start at these distances."""
        return np.minimum(distance / _NEAR, self.coarsest)

    def step(
        self,
        x: Float[Array, "p d"],
        level: Float[Array, " p"],
        resolution: Float[Array, " p"],
        key: PRNGKeyArray,
    ) -> Step:
        """Move every walker. Where it `ended`, the rest of the step means nothing."""
        place = x if self.times is None else x[:, :-1]
        distance, towards = jax.vmap(jax.value_and_grad(self.domain.distance))(place)
        inward = towards * jax.lax.rsqrt(jnp.sum(towards * towards, axis=1, keepdims=True))
        inward = jnp.nan_to_num(inward)  # no direction at the centre of a ball
        second, drift, killing = (
            part / self.rate for part in jax.vmap(self.operator.coefficients)(x)
        )
        sigma = self._sigma(second)
        spread = jnp.sqrt(jnp.sum(jnp.square(_across(sigma, inward)), axis=1))
        speed = jnp.abs(jnp.sum(drift * inward, axis=1))
        h = jnp.minimum(
            self._inside(x, sigma, drift, killing),
            _near(jnp.maximum(distance / _MARGIN, resolution), spread, speed),
        )
        h = level * h
        ended = distance <= _OVERSHOOT * jnp.sqrt(h) * spread
        exit = place - distance[:, None] * inward
        if self.times is not None:
            age = self.times.age(x[:, -1])
            h = jnp.minimum(h, age)
            over = age <= 0
            exit = jnp.append(jnp.where(over[:, None], place, exit), x[:, -1:], axis=1)
            ended = ended | over
        noise = _along(sigma, normals(key, *place.shape))
        moved = place + drift * h[:, None] + noise * jnp.sqrt(h)[:, None]
        if self.times is not None:
            moved = jnp.append(moved, self.times.at(age - h)[:, None], axis=1)  # pyright: ignore
        return Step(
            x=moved,
            decay=jnp.exp(-killing * h),
            # The integral of the discount over the step, also where the killing is quick.
            mass=jnp.where(
                jnp.abs(killing * h) > 1e-8,
                -jnp.expm1(-killing * h) / jnp.where(killing == 0, 1.0, killing),
                h,
            ),
            source=x,
            ended=ended,
            exit=exit,
            distance=distance,
        )

    def _inside(self, x: Array, sigma: Array, drift: Array, killing: Array) -> Array:
        """The longest step, by the coefficients where each walker is."""
        inradius, varies = self.inradius, self.operator.varies
        speed = jnp.sqrt(jnp.sum(drift * drift, axis=1))
        h = jnp.minimum(self.longest, inradius / (_DRIFTING * jnp.maximum(speed, _TINY)))
        if "c" in varies:
            h = jnp.minimum(h, _KILLED / jnp.maximum(jnp.abs(killing), _TINY))
        if "A" in varies:
            trace, slope = jax.vmap(jax.value_and_grad(self.operator.trace))(x)
            trace, slope = trace / self.rate, slope[:, : self.domain.dim] / self.rate
            # An infinite slope, as at a root of zero, is none that a step could follow.
            change = jnp.sqrt(jnp.sum(jnp.square(_across(sigma, jnp.nan_to_num(slope))), axis=1))
            h = jnp.minimum(h, inradius**2 / (2.0 * jnp.maximum(trace, _TINY)) / self.crossing)
            steady = jnp.square(_CHANGE * trace / jnp.maximum(change, _TINY))
            h = jnp.minimum(h, jnp.maximum(steady, _LEAST * self.longest))
        return h

    def _sigma(self, second: Array) -> Any:
        """`sigma`: a number a walker `(p, 1)`, one matrix `(d, d)`, or a matrix a walker `(p, d, d)`."""
        if self.factor is not None:
            return jnp.asarray(self.factor)
        if second.ndim == 1:
            return jnp.sqrt(jnp.maximum(2.0 * second, 0.0))[:, None]
        if self.definite:
            return jnp.linalg.cholesky(2.0 * second)
        values, vectors = jnp.linalg.eigh(2.0 * second)
        return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[:, None, :]


def _along(sigma: Array, z: Array) -> Array:
    """`sigma z` for every walker."""
    if sigma.ndim == 3:
        return jnp.einsum("pij,pj->pi", sigma, z)
    return sigma * z if sigma.shape[0] == z.shape[0] and sigma.shape[1] == 1 else z @ sigma.T


def _across(sigma: Array, n: Array) -> Array:
    """`sigma' n` for every walker."""
    if sigma.ndim == 3:
        return jnp.einsum("pij,pi->pj", sigma, n)
    return sigma * n if sigma.shape[0] == n.shape[0] and sigma.shape[1] == 1 else n @ sigma


def _near(length: Array, spread: Array, speed: Array) -> Array:
    """The step whose deviation across the boundary is `length`, and whose drift is no longer."""
    diffusive = jnp.square(length / jnp.maximum(spread, _TINY))
    return jnp.minimum(diffusive, length / jnp.maximum(speed, _TINY))


def longest_step(domain: AbstractDomain, generator: Generator) -> float:
    """`inradius^2 / (2 tr A) / 200`, or a twentieth of the time in which the drift crosses the inradius.

    With the largest coefficients that random points show; each step looks at those where it is.
    """
    diffusive = domain.inradius**2 / (2.0 * generator.largest_trace) / _CROSSING
    return min(diffusive, domain.inradius / (_DRIFTING * max(generator.largest_drift, _TINY)))


def turning_step(domain: AbstractDomain, generator: Generator) -> float:
    """The step in which the drift hardly turns; infinite where it does not vary."""
    if "b" not in generator.operator.varies or generator.largest_drift == 0:
        return math.inf
    slope = float(_slope(domain, generator.operator, key_from(6)))
    length = generator.largest_drift / max(slope, _TINY)
    spread = 2.0 * generator.largest_trace / domain.dim
    turns = length / _TURNING
    # A product, because Python's powers raise where the result is infinite: a drift that does not turn.
    return turns * turns / max(spread, _TINY)


@compiled(brief=True)
def _slope(domain: AbstractDomain, operator: Operator, key: PRNGKeyArray) -> Float[Array, ""]:
    """The largest change of the drift over a unit length, at random points in random directions."""
    points = domain.sample(key, _SAMPLE)

    def one(x: Array, v: Array) -> Array:
        _, change = jax.jvp(operator.drift, (x,), (v,))
        return jnp.sqrt(jnp.sum(change * change))

    changes = jax.vmap(one)(points, directions(jax.random.fold_in(key, 1), *points.shape))
    # An infinite slope, as at a jump, is none that a step could follow.
    return jnp.max(jnp.where(jnp.isfinite(changes), changes, 0.0))
