"""Plates: the biharmonic equation, clamped in a ball and simply supported in a box."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import a_seed, real
from .._boundary.conditions import Clamped, SimplySupported
from .._domain.base import as_dimension
from .._domain.box import Box
from .._domain.round import Ball
from .._domain.squared import SquaredSphere
from .._field.base import AbstractField
from .._field.form import AbstractForm, Factor, Identity
from .._field.jet import Jet, Product
from .._precision import Numbers
from .._problem.problem import Problem
from ._recipe import recorded


class _Bowl(eqx.Module):
    """`(1 - |x|^2)^2 / (8 d (d + 2))`."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.square(1.0 - jnp.sum(x * x)) / (8.0 * x.size * (x.size + 2.0))


class _Load(eqx.Module):
    """`1 - Lap^2 u`."""

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return 1.0 - u.bilaplacian


@recorded
def clamped_load(dim: int = 2) -> Problem:
    """A clamped plate under a constant load: `1 - Lap^2 u = 0` in the unit ball, `u = du/dn = 0`.

    `u = (1 - |x|^2)^2 / (8 d (d + 2))`: one constant is the exact network, so that this is a check, no
    benchmark.
    """
    return Problem(Ball(dim), _Load(), boundary=Clamped(), exact=_Bowl(), name="clamped_load")


def _wave(p: Float[Array, " 2"]) -> Float[Array, ""]:
    return jnp.sin(p[0] + jnp.cos(p[1]) + p[1] * jnp.cos(p[0]))


def _lap(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The Laplacian of a function of two variables."""

    def laplacian(p: Array) -> Array:
        def second(v: Array) -> Array:
            return jax.jvp(lambda q: jax.jvp(f, (q,), (v,))[1], (p,), (v,))[1]

        first, other = jnp.eye(2, dtype=p.dtype)
        return second(first) + second(other)

    return laplacian


class _Waves(AbstractField):
    """`sum_i c_i wave(x_i, x_(i+1))`: derivatives by automatic differentiation in two variables."""

    c: Numbers

    def _pairs(self, x: Float[Array, " d"]) -> Float[Array, "k 2"]:
        return jnp.stack([x[:-1], x[1:]], axis=1)

    def _sum(self, f: Callable[[Array], Array], x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.dot(jnp.asarray(self.c, x.dtype), jax.vmap(f)(self._pairs(x)))

    def _slope(self, f: Callable[[Array], Array], x: Float[Array, " d"]) -> Float[Array, " d"]:
        slopes = jnp.asarray(self.c, x.dtype)[:, None] * jax.vmap(jax.grad(f))(self._pairs(x))
        return jnp.zeros_like(x).at[:-1].add(slopes[:, 0]).at[1:].add(slopes[:, 1])

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self._sum(_wave, x)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self._slope(_wave, x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        if isinstance(form, Identity):
            return self._sum(_lap(_wave), x)
        if not isinstance(form, Factor) or form.sigma.shape[1] != 1:
            return form.contract(self.hessian(x))
        v = self._pairs(form.sigma[:, 0])
        bent = jax.vmap(jax.hessian(_wave))(self._pairs(x))
        return jnp.dot(jnp.asarray(self.c, x.dtype), jnp.einsum("ki,kij,kj->k", v, bent, v))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.hessian(self.value)(x)

    def laplacian_grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self._slope(_lap(_wave), x)

    def bilaplacian(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self._sum(_lap(_lap(_wave)), x)


class _WavesEquation(eqx.Module):
    """`Lap^2 v - Lap^2 u` with the value `v`."""

    waves: _Waves

    def exact(self, x: Float[Array, " d"]) -> Jet:
        factor = SquaredSphere(np.zeros(x.size), np.ones(()))
        return Jet(Product(Jet(factor.at(x), x), Jet(self.waves.at(x), x)), x)

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return self.exact(x).bilaplacian - u.bilaplacian


class _WavesSolution(eqx.Module):
    """`(1 - |x|^2)^2 sum_i c_i wave(x_i, x_(i+1))`."""

    waves: _Waves

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.square(1.0 - jnp.sum(x * x)) * self.waves.value(x)


@recorded
def clamped_waves(dim: int = 10, *, seed: int = 0) -> Problem:
    """A clamped plate whose deflection is no function of the radius: `r(x) - Lap^2 u = 0`, `u = du/dn = 0`.

    In the unit ball, with the load `r` for which
    `u = (1 - |x|^2)^2 sum_i c_i sin(x_i + cos x_(i+1) + x_(i+1) cos x_i)`, normal random numbers `c`.
    """
    if as_dimension(dim) < 2:
        raise ValueError(f"clamped_waves is defined from dimension 2 up, got {dim}.")
    c = np.random.default_rng(a_seed(seed)).standard_normal(dim - 1)
    waves = _Waves(c)
    return Problem(
        Ball(dim),
        _WavesEquation(waves),
        boundary=Clamped(),
        exact=_WavesSolution(waves),
        name="clamped_waves",
    )


class _Supported(eqx.Module):
    """`prod_i sin(pi x_i) exp(tilt cos(pi x_i))`."""

    tilt: Numbers

    def side(self, t: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sin(math.pi * t) * jnp.exp(self.tilt * jnp.cos(math.pi * t))

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.prod(jax.vmap(self.side)(x))


class _SupportedEquation(eqx.Module):
    """`Lap^2 v - Lap^2 u` with the value `v`, whose load is a sum of products."""

    exact: _Supported

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        def twice(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
            return jax.grad(jax.grad(f))

        sides = (self.exact.side, twice(self.exact.side), twice(twice(self.exact.side)))
        values, second, fourth = (jax.vmap(side)(x) for side in sides)
        load, places = jnp.zeros((), x.dtype), jnp.arange(x.size)
        for i in range(x.size):
            load = load + jnp.prod(jnp.where(places == i, fourth, values))
            for j in range(i):
                pair = (places == i) | (places == j)
                load = load + 2.0 * jnp.prod(jnp.where(pair, second, values))
        return load - u.bilaplacian


@recorded
def supported_plate(dim: int = 3, *, tilt: float = 0.5) -> Problem:
    """A simply supported plate: `r(x) - Lap^2 u = 0` in the unit box, `u = Lap u = 0` on its faces.

    With the load for which `u = prod sin(pi x_i) exp(tilt cos(pi x_i))`, whose sine series does not end. Up
    to dimension 8.
    """
    if as_dimension(dim) > 8:
        raise ValueError(f"supported_plate is defined up to dimension 8, got {dim}.")
    exact = _Supported(real("tilt", tilt))
    return Problem(
        Box(0.0, 1.0, dim=dim),
        _SupportedEquation(exact),
        boundary=SimplySupported(),
        exact=exact,
        name="supported_plate",
    )
