"""Terminal data carried into the whole space: by the diffusion, then by the flow of the reaction.

For `u_t + A : Hess u + b . grad u + rho(u) = 0` with terminal data `g` and the time `s` left, the field is

    f(x, s) = flow_s( m(x, s) ),   m(x, s) = E g(x + b s + sqrt(2 s) L N),   A = L L',

where `flow` solves `y' = rho(y)`. It has the right terminal values, and where `u` varies little along the
paths it is nearly the solution: all that is left to learn are fluctuations. The expectation is a cubature of
points `N = +-r e` along randomly rotated axes `e`, with radii of a Gauss rule for `|N|^2`: exact for
polynomials of degree three whatever their number, so that `L f` stays bounded as `s` goes to zero. It only
has to be good, because the network learns what it misses.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._field.base import AbstractField, Autodiff
from .._field.form import AbstractForm, Identity, Spatial
from .._precision import Numbers

# Points of the cubature, at least one rotation of the axes, and steps of the flow.
_POINTS, _STEPS = 240, 12
# Radii up to a dimension: in high dimension the radius hardly varies, and there are many axes.
_RADII = ((30, 3), (200, 2), (math.inf, 1))
# Added to the time, so that its root has a derivative at zero.
TINY = 1e-30


def cubature(dim: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points `(k, dim)` in opposite pairs and weights of sum 1 for a standard normal law."""
    from scipy.special import roots_genlaguerre
    from scipy.stats import ortho_group

    radii_count = next(count for most, count in _RADII if dim <= most)
    halves, weights = roots_genlaguerre(radii_count, 0.5 * dim - 1.0)
    radii, weights = np.sqrt(2.0 * halves), weights / np.sum(weights)
    turns = max(1, _POINTS // (2 * dim * radii_count))
    rng = np.random.default_rng(seed)
    axes = [ortho_group.rvs(dim, random_state=rng) if dim > 1 else np.eye(1) for _ in range(turns)]
    directions = np.concatenate([sign * each for each in axes for sign in (1.0, -1.0)])
    points = (radii[:, None, None] * directions[None]).reshape(-1, dim)
    return points, np.repeat(weights / len(directions), len(directions))


def flow(rate: Callable[..., Array] | None, value: Array, s: Array) -> Array:
    """`y(s)` from `y(0) = value` with `y' = rate(y)`, by the method of Runge and Kutta."""
    if rate is None:
        return value
    step = s / _STEPS

    def one(y: Array, _: None) -> tuple[Array, None]:
        a = rate(y)
        b = rate(y + 0.5 * step * a)
        c = rate(y + 0.5 * step * b)
        d = rate(y + step * c)
        return y + step / 6.0 * (a + 2.0 * b + 2.0 * c + d), None

    return jax.lax.scan(one, value, None, length=_STEPS)[0]


class Smeared(AbstractField):
    """`flow_s(E g(x + drift s + sqrt(2 s) factor N))` at the points `(x, t)`, `s` the time since the data."""

    data: AbstractField
    nodes: Numbers  # sqrt(2) factor N
    weights: Numbers
    drift: Numbers
    end: Numbers
    box: Numbers  # two corners of space-time
    rate: Callable[..., Array] | None  # the reaction rho
    backward: bool = eqx.field(static=True)

    def judged_by(self) -> Callable[..., Array]:
        return self.of_data

    def of_data(self, z: Float[Array, " d"]) -> Array:
        """What tells how smooth the field is: the data, and the reaction at their values."""
        value = self.data.value(z[:-1])
        return value if self.rate is None else value + self.rate(value)

    def judged_on(self) -> list[tuple[Any, Any]]:
        """Fifty deviations around the paths; the diffusion is farther away once in 10^500 times."""
        return [(self.box[0], self.box[1])]

    def _age(self, z: Array) -> tuple[Array, float]:
        """The time since the data, and its derivative in `t`."""
        return (self.end - z[-1], -1.0) if self.backward else (z[-1], 1.0)

    def _places(self, z: Array) -> tuple[Array, Array]:
        """The points of the cubature, and their derivative in the time since the data."""
        s, _ = self._age(z)
        root, nodes = jnp.sqrt(s + TINY), jnp.asarray(self.nodes, z.dtype)
        drift = jnp.asarray(self.drift, z.dtype)[None]
        return z[None, :-1] + s * drift + root * nodes, drift + nodes / (2.0 * root)

    def _mean(self, z: Array) -> Array:
        return jnp.dot(self.weights, jax.vmap(self.data.value)(self._places(z)[0]))

    def _flow(self, value: Array, s: Array) -> Array:
        return flow(self.rate, value, s)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self._flow(self._mean(x), self._age(x)[0])

    def _first(self, z: Array) -> tuple[Array, Array, Array]:
        """`m`, its gradient in space, and its derivative in the time since the data."""
        places, moved = self._places(z)
        slopes = jax.vmap(self.data.grad)(places)
        in_time = jnp.dot(self.weights, jnp.sum(slopes * moved, axis=1))
        return self._mean(z), self.weights @ slopes, in_time

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        s, sign = self._age(x)
        mean, slope, in_time = self._first(x)
        by_mean, by_time = jax.grad(self._flow, argnums=(0, 1))(mean, s)
        last = sign * (by_mean * in_time + by_time)
        return jnp.append(by_mean * slope, last)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if not isinstance(form, Spatial):
            return Autodiff(self.value).trace(x, form)
        s, _ = self._age(x)
        mean, slope, _ = self._first(x)
        places, _ = self._places(x)
        bent = jnp.dot(self.weights, jax.vmap(lambda y: self.data.trace(y, Identity()))(places))
        first = jax.grad(self._flow)
        by_mean, curved = first(mean, s), jax.grad(first)(mean, s)
        return by_mean * bent + curved * jnp.dot(slope, slope)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.jacfwd(self.grad)(x)
