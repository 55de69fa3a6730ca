"""Walk on spheres for `1/2 Lap - gamma`: Brownian motion seen on the largest spheres that fit.

From the centre of a ball of radius `rho`, the exit point is uniform on the sphere, the mean of
`exp(-gamma tau)` is `1 / F(1)`, and the expected discounted time near `y`, `|y - x| = t rho`, is the Green
function of the ball. With `kappa = gamma rho^2 / 2`, `F(t) = 0F1(; d/2; kappa t^2)` is the radial solution
with `F(0) = 1`, and reduction of order gives the other one that vanishes at `t = 1`:

    G_gamma(t) = const  F(t) int_t^1 s^(1-d) F(s)^-2 ds,        G_0(t) = const int_t^1 s^(1-d) ds,

with the same constant, because both have the same singularity at the centre. Hence

    G_gamma / G_0 = F(t) E[ F(S)^-2 ],       S in (t, 1) with density proportional to s^(1-d).

The harmonic Green density, of mass `rho^2 / d`, is that of a uniform point in a ball whose radius has the
density `2 s`; so `t = sqrt(U1) U2^(1/d)`. The screening factor is not tabulated but drawn: `F(t) / F(S)^2`
is at most 1 and has the right mean, in every dimension and for every `gamma`.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._domain.base import AbstractDomain
from .._domain.random import uniform
from .._precision import Numbers
from .pool import Step, directions

# Spheres are kept so small that kappa is at most this: the series of F is short, and the harmonic law of the
# source points not too far from the screened one.
_KAPPA = 4.0


class Spheres(eqx.Module):
    """One step of the walk: a source point in the sphere, and a jump onto it."""

    domain: AbstractDomain
    gamma: Numbers
    largest: Numbers  # radius
    series: Numbers  # coefficients of 0F1(; d/2; z)
    screened: bool = eqx.field(static=True)

    def __init__(self, domain: AbstractDomain, gamma: float):
        self.domain, self.gamma = domain, np.asarray(gamma)
        self.screened = gamma > 0
        cap = math.sqrt(2 * _KAPPA / gamma) if gamma > 0 else math.inf
        self.largest = np.asarray(min(cap, domain.inradius))
        self.series = hypergeometric(domain.dim, 0.5 * gamma * float(self.largest) ** 2)

    def step(
        self,
        x: Float[Array, "p d"],
        level: Float[Array, " p"],
        resolution: Float[Array, " p"],
        key: PRNGKeyArray,
    ) -> Step:
        """Move every walker. It has `ended` within `resolution` of the boundary; there is no time step."""
        n, dim = x.shape
        distance = jax.vmap(self.domain.distance)(x)
        rho = jnp.clip(distance, 0.0, self.largest)
        omega, u = directions(key, n, dim), uniform(jax.random.fold_in(key, 1), (3, n))
        t = jnp.sqrt(u[0]) * u[1] ** (1.0 / dim)
        mass = rho * rho / dim
        decay = jnp.ones_like(mass)
        if self.screened:
            kappa = 0.5 * self.gamma * rho * rho
            s = beyond(t, u[2], dim)
            mass = mass * self.radial(kappa * t * t) / jnp.square(self.radial(kappa * s * s))
            decay = 1.0 / self.radial(kappa)
        # The jump and the source point share their direction. The sum over the walk is linear in the
        # contributions, and the mean of each depends on the law of its own source point given
        # where the walk is, not on how it hangs together with the jump.
        move = rho[:, None] * omega
        return Step(
            x=x + move,
            decay=decay,
            mass=mass,
            source=x + t[:, None] * move,
            ended=distance <= resolution,
            exit=x,
            distance=distance,
        )

    def radial(self, z: Any) -> Any:
        """`0F1(; d/2; z)` for `z` up to the largest kappa: a sum of positive terms."""
        return jnp.polyval(jnp.asarray(self.series), z)


def beyond(t: Any, q: Any, dim: int) -> Any:
    """A radius `S` in `(t, 1)` of density proportional to `s^(1-d)`, from a uniform number `q`."""
    if dim == 2:
        return t**q
    # s^(2-d) is uniform between 1 and t^(2-d), which may overflow: t^(2-d) is taken out.
    power = dim - 2
    return t * (q + (1.0 - q) * t**power) ** (-1.0 / power)


def hypergeometric(dim: int, largest: float) -> np.ndarray:
    """Coefficients of `0F1(; d/2; z)`, highest power first, exact to rounding for `0 <= z <= largest`."""
    count = 8
    while True:
        k = np.arange(1, count)
        logs = np.concatenate([[0.0], -np.cumsum(np.log(k) + np.log(0.5 * dim + k - 1))])
        terms = logs + np.arange(count) * math.log(max(largest, 1e-300))
        if terms[-1] < np.max(terms) - 40:
            return np.exp(logs)[::-1]
        count *= 2
