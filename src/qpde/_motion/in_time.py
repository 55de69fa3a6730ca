"""Walks in space and time.

For `L u = A : Hess u + b . grad u - c u + r - k u_s`, `s` the time since the data, a walk runs towards the
data: `s` falls. With `X` the diffusion of `(A : Hess + b . grad) / k` and `tau` the time at which it meets
the data or the side,

    u(x, s) = Q(x, s) + E[ exp(-int c / k) (f - Q)(X_tau, s - tau) + int_0^tau exp(-int c / k) L Q / k dr ].

**The whole space** where the law of `X` is known and `c` is a number: one step to the data, no time step. The
integral is the mean of its integrand at a uniform time, at a place of the same path.

**A multiple of the Laplacian** with constant `c` on a domain: the walk on moving spheres (Deaconu and
Herrmann 2013), no time step. Let `v` be the variance of a coordinate after the time 1 and `p_r` the density
of `X_r` about `x`. The heat ball `{p_r(y) >= kappa}` lasts until `end = kappa^(-2/d) / (2 pi v)`, and its
radius at `r` is `sqrt(d v r log(end / r))`, at most `sqrt(d v end / e)`. On it the density of the path that
has not left is `p_r(y) - kappa`, because a constant solves the same equation. Its integral is
`P(tau > r) = P(G < (d/2) log(end / r))` with `G` of the gamma law of shape `d/2 + 1`, so that

    tau = end exp(-2 G / d),     |X_tau - x| = sqrt(2 v tau G),    its direction uniform.

`p_r(y) - kappa` is a mixture of the indicators of smaller heat balls, which last `end U`; a uniform point of
one has the time `end U exp(-G' / (d/2 + 1))` and a uniform place in the ball at that time. The mean of `tau`
is `end (d / (d + 2))^(d/2 + 1)`. Close to the data, where the boundary is so far that a path gets there once
in 10^13 times, one step goes to them.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.stats import chi2

from .._diffusion.law import AbstractLaw
from .._domain.base import AbstractDomain, Times
from .._domain.random import normal, uniform
from .._domain.space import STEPS
from .._equation.operator import Operator
from .._precision import Numbers
from .pool import Step

# Half the chance of a path to leave the ball around it in a step that takes no notice of that.
_MISSED = 5e-14


class Leap(eqx.Module):
    """One exact step from any place of the whole space to the data."""

    law: AbstractLaw
    times: Times
    killing: Numbers  # c / k

    def step(
        self,
        x: Float[Array, "p d"],
        level: Float[Array, " p"],
        resolution: Float[Array, " p"],
        key: PRNGKeyArray,
    ) -> Step:
        """Move every walker to the data; it has `ended` when it is there."""
        age, count = self.times.age(x[:, -1]), x.shape[0]
        share = uniform(jax.random.fold_in(key, 3), (count,))
        noise = normal(uniform(key, (2, count, self.law.noises)))
        moved = jax.vmap(self.law.step)
        first = share * age
        there = moved(x[:, :-1], x[:, -1], first, noise[0])
        end = moved(there, x[:, -1], age - first, noise[1])
        return Step(
            x=_joined(end, self.times.at(jnp.zeros_like(age))),
            decay=jnp.exp(-self.killing * age),
            mass=age * jnp.exp(-self.killing * first),
            source=_joined(there, self.times.at(age - first)),
            ended=age <= 0,
            exit=x,
            distance=age,
        )


class Steps(eqx.Module):
    """Many steps in the whole space: where the discount varies, or the law is not known."""

    law: AbstractLaw
    times: Times
    operator: Operator
    rate: Numbers

    def step(
        self,
        x: Float[Array, "p d"],
        level: Float[Array, " p"],
        resolution: Float[Array, " p"],
        key: PRNGKeyArray,
    ) -> Step:
        """Move every walker by a part of the horizon, at most to the data."""
        age = self.times.age(x[:, -1])
        h = jnp.minimum(level * self.times.end / STEPS, age)
        noise = normal(uniform(key, (x.shape[0], self.law.noises)))
        place = jax.vmap(self.law.step)(x[:, :-1], x[:, -1], h, noise)
        moved = _joined(place, self.times.at(age - h))
        # The rule of trapezia for the discount along the step.
        before, after = (jax.vmap(self.operator.killing)(z) / self.rate for z in (x, moved))
        decay = jnp.exp(-0.5 * h * (before + after))
        # And for the source: one of its ends, by chance.
        late = uniform(jax.random.fold_in(key, 3), age.shape) < 0.5
        return Step(
            x=moved,
            decay=decay,
            mass=jnp.where(late, h * decay, h),
            source=jnp.where(late[:, None], moved, x),
            ended=age <= 0,
            exit=x,
            distance=age,
        )


class MovingSpheres(eqx.Module):
    """One step of the walk on moving spheres for `diffusivity Lap - killing - u_s`."""

    domain: AbstractDomain  # in space
    times: Times
    variance: Numbers  # of a coordinate after the time 1
    killing: Numbers
    far: Numbers  # squares of distances, in variances of a coordinate, that a path hardly ever goes

    def __init__(self, domain: AbstractDomain, times: Times, diffusivity: float, killing: float):
        self.domain, self.times = domain, times
        self.variance, self.killing = np.asarray(2.0 * diffusivity), np.asarray(killing)
        # A path leaves a ball at most twice as often as its end lies outside (Levy).
        self.far = np.asarray(float(chi2.isf(_MISSED, domain.dim)))

    def step(
        self,
        x: Float[Array, "p d"],
        level: Float[Array, " p"],
        resolution: Float[Array, " p"],
        key: PRNGKeyArray,
    ) -> Step:
        """Move every walker. It has `ended` at the data, or within `resolution` of the side."""
        dim, count = self.domain.dim, x.shape[0]
        place, age = x[:, :-1], self.times.age(x[:, -1])
        distance = jax.vmap(self.domain.distance)(place)
        noise = normal(uniform(key, (2, count, dim)))
        u = uniform(jax.random.fold_in(key, 3), (4, count))
        square = jnp.square(jnp.maximum(distance, 0.0))
        last = jnp.minimum(math.e * square / (dim * self.variance), age)
        to_data = square >= self.far * self.variance * age
        size = jnp.sum(noise * noise, axis=2)
        along = noise * jax.lax.rsqrt(size)[:, :, None]
        gamma = 0.5 * size - jnp.log(u[:2])
        # Onto the moving sphere, or to the data.
        tau = jnp.where(to_data, age, last * jnp.exp(-2.0 * gamma[0] / dim))
        far = jnp.where(to_data, size[0], 2.0 * gamma[0])
        moved = place + jnp.sqrt(self.variance * tau * far)[:, None] * along[0]
        # A point of the path on the way.
        shorter, span = last * u[2], gamma[1] / (0.5 * dim + 1.0)
        when = jnp.where(to_data, age * u[2], shorter * jnp.exp(-span))
        reach = jnp.where(to_data, size[1], dim * span * u[3] ** (2.0 / dim))
        there = place + jnp.sqrt(self.variance * when * reach)[:, None] * along[1]
        mean = jnp.where(to_data, age, last * (dim / (dim + 2.0)) ** (0.5 * dim + 1.0))
        return Step(
            x=_joined(moved, self.times.at(age - tau)),
            decay=jnp.exp(-self.killing * tau),
            mass=mean * jnp.exp(-self.killing * when),
            source=_joined(there, self.times.at(age - when)),
            ended=(distance <= resolution) | (age <= 0),
            exit=x,
            distance=distance,
        )


def _joined(place: Array, t: Array) -> Array:
    return jnp.concatenate([place, t[:, None]], axis=1)
