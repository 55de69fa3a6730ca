"""`L Q` at points where the kernel and its derivatives are known: the compiled programs of the limit.

Points, kernel, coefficients and the numbers of the problem are arguments, so that another problem with the
same functions and shapes runs the same programs.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiled import compiled
from .._field.base import Constant
from .._precision import Numbers, x64
from .._problem.problem import Problem
from .._problem.trial import Trial
from .field import KnownField
from .kernel import Values

# Points whose slopes are computed at a time.
_CHUNK = 256


class Rows(eqx.Module):
    """Points, and the kernel between them and the nodes."""

    points: Numbers  # (n, d)
    known: Values  # (n, m) each
    nodes: Numbers  # (m, d), in the frame
    centre: Numbers
    half: Numbers

    def part(self, start: int) -> "Rows":
        """The rows of one chunk of points."""
        points, known = jax.tree.map(
            lambda rows: rows[start : start + _CHUNK], (self.points, self.known)
        )
        return Rows(points, known, self.nodes, self.centre, self.half)

    def map(self, function: Callable[[KnownField, Any], Any], weights: Any) -> Any:
        """`function(S, x)` at all points, where `S` is the network whose nodes have these weights."""

        def one(x: Any, known: Values) -> Any:
            return function(KnownField(weights, known, self.nodes, self.centre, self.half), x)

        return jax.vmap(one)(jnp.asarray(self.points), self.known)


def extension(problem: Problem) -> Trial:
    """The trial function `Q = f`, of network zero: a problem without the parts that programs do not need."""
    return Trial.of(problem, Constant(0.0), exact_boundary=True)


@compiled
@functools.partial(eqx.debug.assert_max_traces, max_traces=None)
def residuals(start: Trial, rows: Rows, weights: Any) -> Float[Array, " n"]:
    """`L Q` at the points; `weights` are those of the nodes."""
    return rows.map(lambda network, x: start.with_network(network).residual(x), weights)


@compiled
@functools.partial(eqx.debug.assert_max_traces, max_traces=None)
def _slopes(
    start: Trial, rows: Rows, weights: Any
) -> tuple[Float[Array, " n"], Float[Array, "n m"]]:
    def by_weights(network: KnownField, x: Any) -> Any:
        def residual(weights: Any) -> Any:
            moved = eqx.tree_at(lambda field: field.weights, network, weights)
            return start.with_network(moved).residual(x)

        return jax.value_and_grad(residual)(network.weights)

    return rows.map(by_weights, weights)


def linearise(start: Trial, rows: Rows, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`L Q` at the points, `(n,)`, and its derivative in the weights of the nodes, `(n, m)`."""
    values, slopes = [], []
    for begin in range(0, len(rows.points), _CHUNK):
        with x64():
            value, slope = _slopes(start, rows.part(begin), weights)
        values.append(np.asarray(value))
        slopes.append(np.asarray(slope))
    return np.concatenate(values), np.concatenate(slopes)


@compiled
@functools.partial(eqx.debug.assert_max_traces, max_traces=None)
def _map(function: Callable[..., Any], x: Any) -> Array:
    return jax.vmap(function)(x)


def at_points(function: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    """The values of a function of one point."""
    with x64():
        return np.asarray(_map(function, jnp.asarray(x)))
