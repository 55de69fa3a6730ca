"""Euler-Maruyama for a diffusion with generator `A : Hess + b . grad`, stopped at the boundary.

    X <- X + b h + sigma sqrt(h) Z,        sigma sigma' = 2 A.

A walk seen only at discrete times leaves late: on average it overshoots by 0.5826 sqrt(h) |sigma' n|
(0.5826 = -zeta(1/2) / sqrt(2 pi)). The walk is therefore stopped that much before the boundary and counted
as having left at the nearest boundary point (Gobet and Menozzi 2010), which turns an error of order
sqrt(h) into a smaller one. Steps shrink towards the boundary as `h = (distance / 4 |sigma' n|)^2`,
between two limits, so that starts close to the boundary are resolved too.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._domain import AbstractDomain
from ._form import Numbers
from ._jet import Coefficients
from ._linear import Affine, Linear
from ._pool import Step, normals

_OVERSHOOT = 0.5826
# Standard deviations of a step between a walker and the boundary, unless the step is the shortest.
_MARGIN = 4.0
# Longest steps: this many cross the inradius; shortest: that many of them make a longest one.
_CROSSING, _SHORTEST = 200, 256


class Diffusion(eqx.Module):
    """One Euler step. A walk's `level` multiplies all its time steps."""

    domain: AbstractDomain
    operator: Affine
    longest: Numbers
    factor: Numbers | None  # sigma where it is constant
    isotropic: bool = eqx.field(static=True)
    definite: bool = eqx.field(static=True)

    def __init__(self, domain: AbstractDomain, operator: Affine, linear: Linear):
        self.domain, self.operator = domain, operator
        self.longest = np.asarray(longest_step(domain, linear))
        self.isotropic, self.definite = linear.isotropic, linear.definite
        self.factor = None
        if linear.matrix is not None:
            values, vectors = np.linalg.eigh(2.0 * linear.matrix)
            self.factor = vectors * np.sqrt(np.maximum(values, 0.0))

    def step(self, x: Float[Array, "p d"], level: Float[Array, " p"], key: PRNGKeyArray) -> Step:
        """Move every walker. Where it `ended`, the rest of the step means nothing."""
        distance, towards = jax.vmap(jax.value_and_grad(self.domain.distance))(x)
        inward = towards * jax.lax.rsqrt(jnp.sum(towards * towards, axis=1, keepdims=True))
        inward = jnp.nan_to_num(inward)  # no direction at the centre of a ball
        at = jax.vmap(self.operator.at)(x)
        sigma = self._sigma(at)
        spread = jnp.sqrt(jnp.sum(jnp.square(_across(sigma, inward)), axis=1))
        wanted = jnp.square(distance / (_MARGIN * jnp.maximum(spread, 1e-300)))
        h = level * jnp.clip(wanted, self.longest / _SHORTEST, self.longest)
        noise = _along(sigma, normals(key, *x.shape))
        drift, killing = jax.vmap(self.operator.drift)(at), jax.vmap(self.operator.killing)(at)
        return Step(
            x=x + drift * h[:, None] + noise * jnp.sqrt(h)[:, None],
            decay=jnp.exp(-killing * h),
            # The integral of the discount over the step, also where the killing is quick.
            mass=jnp.where(
                killing * h > 1e-8, -jnp.expm1(-killing * h) / jnp.maximum(killing, 1e-300), h
            ),
            source=x,
            ended=distance <= _OVERSHOOT * jnp.sqrt(h) * spread,
            exit=x - distance[:, None] * inward,
        )

    def _sigma(self, at: Coefficients) -> Any:
        """`sigma`: a number a walker `(p, 1)`, one matrix `(d, d)`, or a matrix a walker `(p, d, d)`."""
        if self.factor is not None:
            return jnp.asarray(self.factor)
        dim = at.grad.shape[1]
        if self.isotropic:
            s = jax.vmap(lambda c: c.quadratic(jnp.eye(1, dim))[0])(at)
            return jnp.sqrt(jnp.maximum(2.0 * self.operator.orientation * s, 0.0))[:, None]
        a = 2.0 * self.operator.orientation * jax.vmap(lambda c: c.matrix(dim))(at)
        if self.definite:
            return jnp.linalg.cholesky(a)
        values, vectors = jnp.linalg.eigh(a)
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


def longest_step(domain: AbstractDomain, linear: Linear) -> float:
    """`inradius^2 / (2 tr A) / 200`, or a twentieth of the time in which the drift crosses the inradius."""
    diffusive = domain.inradius**2 / (2.0 * linear.trace) / _CROSSING
    return min(diffusive, 0.05 * domain.inradius / max(linear.drift, 1e-300))
