"""Evolution equations in the whole space, with a value at the origin that is known to ten digits.

The data of all but the last are functions of `|x|^2`, so that the values follow from equations in one
dimension of space; they are not the ones that papers compare with, some of which are wrong in the fourth
digit. In high dimension `|X|^2` hardly varies, and the flow of the reaction from `E g(X_T)` alone wins most
published tables: the extension of the data is that flow, and what counts is how much better a solution is.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import real
from .._domain.base import as_dimension
from .._domain.space import Space
from .._field.base import AbstractField
from .._field.evolution import EvolutionJet
from .._field.form import AbstractForm, Identity
from .._field.radial import OfSquare
from .._precision import Numbers, number
from .._problem.problem import Problem
from ._recipe import recorded

# Values at the origin by dimension, at the time that the problems have by default.
VALUES: dict[str, dict[int, float]] = {
    "allen_cahn_in_time": {
        10: 0.3165127134,
        50: 0.0990811707,
        100: 0.0527813574,
        200: 0.0272434992,
        1_000: 0.0055888830,
    },
    "semilinear_heat": {
        10: 0.4695498714,
        50: 0.3444434766,
        100: 0.3166278076,
        200: 0.3009607604,
        1_000: 0.2874683916,
    },
    "sine_gordon_in_time": {
        10: 0.3229263853,
        50: 0.0992692933,
        100: 0.0528094354,
        200: 0.0272473317,
        1_000: 0.0055889159,
    },
    "hjb_quadratic": {
        2: 0.3998170051,
        10: 2.1570224648,
        20: 2.9210147357,
        50: 3.8820066822,
        100: 4.5901617246,
        1_000: 6.9062551579,
    },
}


class _Reacting(eqx.Module):
    """`u_t + Lap u + rho(u)`."""

    reaction: Callable[..., Array] = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"], t: Array, u: EvolutionJet) -> Float[Array, ""]:
        return u.dt + u.laplacian + self.reaction(u.value)


def _cubic(y: Array) -> Array:
    return y - y**3


def _bounded(y: Array) -> Array:
    return (1.0 - y * y) / (1.0 + y * y)


def _bell(s: Array) -> Array:
    return 1.0 / (2.0 + 0.4 * s)


def _logarithm(s: Array) -> Array:
    return jnp.log(0.5 * (1.0 + s))


def _reacting(name: str, dim: int, reaction: Callable[..., Array], time: float) -> Problem:
    return Problem(
        Space(as_dimension(dim)),
        _Reacting(reaction),
        time=real("time", time, above=0.0),
        terminal=OfSquare(_bell, np.zeros(dim)),
        name=name,
    )


@recorded
def allen_cahn_in_time(dim: int = 100, *, time: float = 0.3) -> Problem:
    """The Allen-Cahn equation in the whole space: `u_t + Lap u + u - u^3 = 0`, `u(T) = 1 / (2 + 0.4 |x|^2)`.

    Source: E, Han and Jentzen, Deep learning-based numerical methods for high-dimensional parabolic partial
    differential equations and backward stochastic differential equations, 2017.
    """
    return _reacting("allen_cahn_in_time", dim, _cubic, time)


@recorded
def semilinear_heat(dim: int = 10, *, time: float = 0.3) -> Problem:
    """`u_t + Lap u + (1 - u^2) / (1 + u^2) = 0`, `u(T) = 1 / (2 + 0.4 |x|^2)`.

    Source: Beck, Becker, Cheridito, Jentzen and Neufeld, Deep splitting method for parabolic PDEs, 2021.
    """
    return _reacting("semilinear_heat", dim, _bounded, time)


@recorded
def sine_gordon_in_time(dim: int = 10, *, time: float = 0.3) -> Problem:
    """`u_t + Lap u + sin u = 0`, `u(T) = 1 / (2 + 0.4 |x|^2)`; source as for `semilinear_heat`."""
    return _reacting("sine_gordon_in_time", dim, jnp.sin, time)


class _Quadratic(eqx.Module):
    """`u_t + Lap u - weight |grad u|^2`."""

    weight: Numbers

    def __call__(self, x: Float[Array, " d"], t: Array, u: EvolutionJet) -> Float[Array, ""]:
        return u.dt + u.laplacian - self.weight * jnp.dot(u.grad, u.grad)


@recorded
def hjb_quadratic(dim: int = 100, *, weight: float = 1.0, time: float = 1.0) -> Problem:
    """A Hamilton-Jacobi-Bellman equation in the whole space.

    `u_t + Lap u - weight |grad u|^2 = 0`, `u(T) = log((1 + |x|^2) / 2)`, so that
    `u(x, t) = -log E exp(-weight g(x + sqrt(2 (T - t)) N)) / weight`. Source as for `allen_cahn_in_time`.
    """
    return Problem(
        Space(as_dimension(dim)),
        _Quadratic(number(real("weight", weight, above=0.0))),
        time=real("time", time, above=0.0),
        terminal=OfSquare(_logarithm, np.zeros(dim)),
        name="hjb_quadratic",
    )


class _ChainLogarithm(AbstractField):
    """`log((1 + |R x|^2) / 2)`."""

    root: Numbers

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        y = self.root @ x
        return _logarithm(jnp.dot(y, y))

    def _parts(self, x: Array) -> tuple[Array, Array, Array]:
        y = self.root @ x
        first = 1.0 / (1.0 + jnp.dot(y, y))
        return y @ self.root, 2.0 * first, -4.0 * first * first

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        y, first, _ = self._parts(x)
        return first * y

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        y, first, second = self._parts(x)
        if isinstance(form, Identity):
            return first * jnp.sum(jnp.square(self.root)) + second * jnp.dot(y, y)
        return form.contract(self.hessian(x))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        y, first, second = self._parts(x)
        root = jnp.asarray(self.root, x.dtype)
        return first * (root.T @ root) + second * jnp.outer(y, y)


class _ChainSolution(eqx.Module):
    """`-log E 2 / (1 + Y)` with `Y = X' M X`, by `1 / (1 + Y) = int_0^inf e^(-s (1 + Y)) ds`."""

    sizes: Numbers  # the eigenvalues of M
    axes: Numbers  # its eigenvectors
    end: Numbers
    places: Numbers  # of s
    weights: Numbers

    def __call__(self, x: Float[Array, " d"], t: Array) -> Float[Array, ""]:
        sizes, places = self.sizes[None, :], self.places[:, None]
        wide = 1.0 + 4.0 * (self.end - t) * sizes * places
        squares = sizes * ((x @ self.axes) ** 2)[None, :]
        inner = -places * squares / wide - 0.5 * jnp.log(wide)
        terms = jnp.log(2.0 * self.weights) - self.places + jnp.sum(inner, axis=1)
        return -jax.scipy.special.logsumexp(terms)


@recorded
def hjb_chain(dim: int = 100, *, time: float = 1.0, seed: int = 0) -> Problem:
    """A Hamilton-Jacobi-Bellman equation in the whole space that looks different in every direction.

    `u_t + Lap u - |grad u|^2 = 0`, `u(T) = log((1 + sum_i a_i (x_i - x_(i+1))^2 + b_i x_(i+1)^2) / 2)` with
    `a` and `b` uniform between 1/2 and 3/2. Source: the control problem of Simulation-Calibrated Scientific
    Machine Learning (SCaSML), 2025.
    """
    size = as_dimension(dim)
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0.5, 1.5, (2, max(size - 1, 0)))
    steps = np.eye(size)[:-1] - np.eye(size)[1:]
    matrix = steps.T @ (a[:, None] * steps) + np.diag(np.append(0.0, b))
    sizes, axes = np.linalg.eigh(matrix)
    # The trapezoidal rule in the logarithm of s, which is exact up to rounding.
    logs = np.linspace(-40.0, 8.0, 481)
    places = np.exp(logs)
    end = real("time", time, above=0.0)
    return Problem(
        Space(size),
        _Quadratic(number(1.0)),
        time=end,
        terminal=_ChainLogarithm(np.sqrt(np.maximum(sizes, 0.0))[:, None] * axes.T),
        exact=_ChainSolution(sizes, axes, end, places, 0.1 * places),
        name="hjb_chain",
    )
