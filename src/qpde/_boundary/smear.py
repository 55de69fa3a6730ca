"""Terminal data carried into the whole space: by the diffusion, then by the flow of the reaction.

For `u_t + A : Hess u + b . grad u + rho(u) = 0` with terminal data `g` and the time `s` left, the field is

    f(x, s) = flow_s( m(x, s) ),   m(x, s) = E g(X_s) with X_0 = x,

where `X` is the diffusion and `flow` solves `y' = rho(y)`. It has the right terminal values, and where `u`
varies little along the paths it is nearly the solution: all that is left to learn are fluctuations.

For smooth data and a law that is known, `m` is a cubature of the noise, of points `N = +-r e` along randomly
rotated axes `e`, with radii of a Gauss rule for `|N|^2`: exact for polynomials of degree three whatever their
number, so that `L f` stays bounded as `s` goes to zero. It only has to be good, because the network learns
what it misses. Data with kinks are carried by `payoff.py` and `diffused.py`; where the law is not known,
smooth data stay as they are.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._diffusion.law import AbstractLaw
from .._field.base import AbstractField, Autodiff
from .._field.form import AbstractForm, Factor, Identity, Matrix, in_space, without_time
from .._precision import Numbers

# Points of the cubature, at least one rotation of the axes, and steps of the flow.
_POINTS, _STEPS = 240, 12
# Radii up to a dimension: in high dimension the radius hardly varies, and there are many axes.
_RADII = ((30, 3), (200, 2), (math.inf, 1))


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


class Cubature(AbstractField):
    """`E g(X_T | X_t = x)` at the points `(x, t)`, by a cubature of the noise of one step."""

    data: AbstractField
    law: AbstractLaw
    nodes: Numbers  # of the noise
    weights: Numbers
    end: Numbers
    backward: bool = eqx.field(static=True)

    def judged_by(self) -> Callable[..., Array]:
        return lambda z: self.data.value(z[:-1])

    def _age(self, z: Array) -> tuple[Array, float]:
        """The time since the data, and its derivative in `t`."""
        return (self.end - z[-1], -1.0) if self.backward else (z[-1], 1.0)

    def _places(self, z: Array) -> Array:
        s, _ = self._age(z)
        return jax.vmap(lambda n: self.law.step(z[:-1], z[-1], s, n))(self._noise(z))

    def _noise(self, z: Array) -> Array:
        return jnp.asarray(self.nodes, z.dtype)

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.dot(self.weights, jax.vmap(self.data.value)(self._places(x)))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        def moved(z: Array, slope: Array, noise: Array) -> Array:
            def along(z: Array) -> Array:
                return jnp.dot(slope, self.law.step(z[:-1], z[-1], self._age(z)[0], noise))

            return jax.grad(along)(z)

        slopes = jax.vmap(self.data.grad)(self._places(x))
        return self.weights @ jax.vmap(lambda g, n: moved(x, g, n))(slopes, self._noise(x))

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if not in_space(form):
            return Autodiff(self.value).trace(x, form)
        stretch = self.law.stretch(x[:-1])
        inner = without_time(form, x[:-1])[0]

        def bent(y: Array) -> Array:
            scaled = inner if isinstance(stretch, float) else _stretched(inner, y * stretch)
            return self.data.trace(y, scaled)

        return jnp.dot(self.weights, jax.vmap(bent)(self._places(x)))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.jacfwd(self.grad)(x)


def _stretched(form: AbstractForm, by: Array) -> AbstractForm:
    """The form of a function of `by * x`, for derivatives in `x`."""
    if isinstance(form, Factor):
        return Factor(by[:, None] * form.sigma)
    if isinstance(form, Identity):
        return Factor(jnp.diag(by))
    whole = jax.vmap(form.apply)(jnp.eye(by.size, dtype=by.dtype))
    return Matrix(by[:, None] * whole * by[None, :])


class Still(AbstractField):
    """Data at every time as they are at theirs."""

    data: AbstractField

    def judged_by(self) -> Callable[..., Array]:
        return self.value

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.data.value(x[:-1])

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return jnp.append(self.data.grad(x[:-1]), jnp.zeros((), x.dtype))

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return self.data.trace(x[:-1], without_time(form, x[:-1])[0])

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jnp.pad(self.data.hessian(x[:-1]), ((0, 1), (0, 1)))


class Smeared(AbstractField):
    """`flow_s(m(x, t))`, with `s` the time since the data."""

    mean: AbstractField
    data: AbstractField  # as given, functions of space
    end: Numbers
    box: Numbers  # two corners of space-time
    rate: Callable[..., Array] | None  # the reaction rho, without its kinks
    backward: bool = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)  # whether the data are

    def judged_by(self) -> Callable[..., Array] | None:
        return self.of_data if self.smooth else None

    def of_data(self, z: Float[Array, " d"]) -> Array:
        """What tells how smooth the field is: the data, and the reaction at their values."""
        value = self.data.value(z[:-1])
        return value if self.rate is None else value + self.rate(value)

    def judged_on(self) -> list[tuple[Any, Any]]:
        """Fifty deviations around the paths; the diffusion is farther away once in 10^500 times."""
        return [(self.box[0], self.box[1])]

    @property
    def as_given(self) -> AbstractField:
        """The data, as a function of space-time."""
        return Still(self.data)

    def _age(self, z: Array) -> tuple[Array, float]:
        """The time since the data, and its derivative in `t`."""
        return (self.end - z[-1], -1.0) if self.backward else (z[-1], 1.0)

    def _flow(self, value: Array, s: Array) -> Array:
        """`y(s)` from `y(0) = value`, by the method of Runge and Kutta."""
        rho = self.rate
        if rho is None:
            return value
        step = s / _STEPS

        def one(y: Array, _: None) -> tuple[Array, None]:
            a = rho(y)
            b = rho(y + 0.5 * step * a)
            c = rho(y + 0.5 * step * b)
            d = rho(y + step * c)
            return y + step / 6.0 * (a + 2.0 * b + 2.0 * c + d), None

        return jax.lax.scan(one, value, None, length=_STEPS)[0]

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self._flow(self.mean.value(x), self._age(x)[0])

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        s, sign = self._age(x)
        by_mean, by_time = jax.grad(self._flow, argnums=(0, 1))(self.mean.value(x), s)
        return (by_mean * self.mean.grad(x)).at[-1].add(sign * by_time)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if not in_space(form):
            return Autodiff(self.value).trace(x, form)
        s, _ = self._age(x)
        mean, slope = self.mean.value(x), self.mean.grad(x)
        first = jax.grad(self._flow)
        by_mean, curved = first(mean, s), jax.grad(first)(mean, s)
        return by_mean * self.mean.trace(x, form) + curved * form.quadratic(slope)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.jacfwd(self.grad)(x)
