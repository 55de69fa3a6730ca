"""Networks of finite width under the plain flow of the theory, with exact integrals in one dimension.

    d theta / dt = N^(2 beta - 1) sum_i m_i L Q(x_i) grad_theta Q(x_i)

on Gauss-Legendre nodes, by the classical Runge-Kutta method of order four. The truncation of the paper
does nothing here: `|L Q|` stays below its level.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import activations, zoo
from ..._compiled import compiled
from ..._limit.kernel import finite_kernel
from ..._network.base import trainable
from ..._network.shallow import Shallow, ShallowField
from ..._precision import cast, x64
from ..._problem.problem import Problem
from ..._problem.trial import Trial

NODES = 40  # integrals of functions as smooth as these are exact to rounding


@functools.cache
def problem() -> Problem:
    """The test problem of the experiments: one dimension, discount 0.1."""
    return zoo.survival(1, discount=0.1)


def network(width: int, beta: float = 0.75) -> Shallow:
    """The paper's network: sigmoids, `w ~ N(0, 1)`."""
    return Shallow(width, activation=activations.sigmoid, beta=beta, scale=1.0, normalise=False)


def draw(width: int, beta: float, seed: int) -> ShallowField:
    """A network at its start, in float64."""
    with x64():
        built = network(width, beta).build(problem().domain, key=jr.key(seed))
        return cast(built, "float64")


@dataclasses.dataclass(frozen=True)
class Moment:
    """A trained network at one time: `Q`, `Q'`, `Q''` at the nodes, its kernel, its parameters' size."""

    time: float
    jets: np.ndarray  # (3, nodes)
    kernel: np.ndarray
    size: float  # mean of |c| + |w| + |b|


def follow(width: int, beta: float, seed: int, times: Sequence[float], step: float) -> list[Moment]:
    """A network at the given times, from its start on."""
    trial = Trial.of(problem(), draw(width, beta, seed), exact_boundary=True)
    points, weights = problem().domain.nodes(NODES)
    few = np.linspace(-0.8, 0.8, 5)[:, None]
    moments, now = [], 0.0
    with x64():
        for time in times:
            count = max(round((time - now) / step), 1) if time > now else 0
            length = (time - now) / count if count else 0.0
            trial = _advance(trial, points, weights, np.asarray(count), np.asarray(length))
            now = time
            net: Any = trial.network
            size = sum(float(jnp.mean(jnp.abs(v))) for v in (net.c, net.w, net.b))
            jets = np.asarray(jets_at(trial, jnp.asarray(points)))
            moments.append(Moment(time, jets, finite_kernel(net, few, few), size))
    return moments


@compiled
def jets_at(trial: Trial, points: Any) -> Any:
    def one(x: Any) -> Any:
        jet = trial.jet(x)
        return jnp.stack([jet.value, jet.grad[0], jet.laplacian])

    return jax.vmap(one)(points).T


@compiled(hot=True)
def _advance(trial: Trial, points: Any, weights: Any, count: Any, step: Any) -> Trial:
    """`count` steps of Runge and Kutta."""
    params, rest = trainable(trial.network)
    net: Any = trial.network
    rate = float(net.width) ** (2.0 * net.beta.array - 1.0)

    def slope(params: Any) -> Any:
        def forward(params: Any) -> tuple[Any, Any]:
            moved = trial.with_network(eqx.combine(params, rest))
            return jax.vmap(moved.value_and_residual)(points)

        _, pullback, residual = jax.vjp(forward, params, has_aux=True)
        return pullback(rate * weights * residual)[0]

    def moved(params: Any, slope: Any, length: Any) -> Any:
        return jax.tree.map(lambda p, s: p + length * s, params, slope)

    def one(_: Any, params: Any) -> Any:
        k1 = slope(params)
        k2 = slope(moved(params, k1, 0.5 * step))
        k3 = slope(moved(params, k2, 0.5 * step))
        k4 = slope(moved(params, k3, step))
        total = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
        return moved(params, total, step)

    return trial.with_network(eqx.combine(jax.lax.fori_loop(0, count, one, params), rest))


def h2_squared(jets: np.ndarray, weights: np.ndarray) -> float:
    """The squared norm of H2 from value, first and second derivative at the nodes."""
    return float(np.sum(np.square(jets) @ weights))


def l2_squared(jets: np.ndarray, weights: np.ndarray) -> float:
    """The squared norm of L2."""
    return float(np.square(jets[0]) @ weights)
