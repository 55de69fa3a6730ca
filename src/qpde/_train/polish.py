"""The output layer of a solution, solved for: with hidden weights fixed, `L Q` is affine in it.

With `r_0` the residual when all output coefficients `a` are zero, `J` the residual's and `J_Q` the trial
function's derivative in them, `L Q = r_0 + J a`. Least squares minimises `E[(r_0 + J a)^2]` by a singular
value decomposition; Galerkin solves `E[J_Q' (r_0 + J a)] = 0`, the fixed point of Q-learning in `a`, whose
condition number is that of least squares squared.

In tens of thousands of dimensions points are drawn, used and forgotten a few at a time, and drawn again by
their keys where they are needed again. An equation that is not linear is then linearised a few times.
"""

import dataclasses
import functools
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._arguments import an_instance, one_of, whole
from .._compiled import compiled
from .._equation.operator import Structure
from .._network.base import OutputLayer
from .._precision import by_chunks, cast, fitting, key_from, x64
from .._problem.measure import AbstractMeasure, drawn_by
from .._problem.solution import Solution
from .._problem.trial import Trial

_METHODS = ("least-squares", "galerkin")
# Singular values below this share of the largest count as zero; columns are scaled to length one.
_ROUNDING = 1e-14
# The largest matrix that is made where a caller names the number of points: a gigabyte.
_ENTRIES = 2**27
# The most nodes of Gauss and Legendre, which are eigenvalues of a matrix of their number.
_NODES = 8_192
# Points of a compiled chunk, and those on which the result is judged.
_CHUNK, _FRESH = 1_024, 8_192
# The largest number of coefficients whose decomposition takes seconds, so that `solve` may do it unasked.
_QUICK = 1_500
# Beyond this dimension points are not kept. Numbers of the points that are in memory together, and of all
# points of a solve, at least four for each coefficient; and how often an equation is linearised.
MANY = 20_000
_TOGETHER, _ALL, _LINEARISED = 2**23, 2**26, 4


def is_quickly_polished(solution: Solution) -> bool:
    """Whether `polish` applies to a solution, and takes no more than seconds."""
    network = solution.trial.network
    if not isinstance(network, OutputLayer):
        return False
    if sum(leaf.size for leaf in network.output_layer()) > _QUICK:
        return False
    return solution.problem.dim > MANY or _is_linear(solution)


def _is_linear(solution: Solution) -> bool:
    return solution.problem.operator.structure is Structure.LINEAR


class _Drawn(eqx.Module):
    """Points of a law that are drawn anew, a few at a time, whenever they are gone through."""

    measure: AbstractMeasure
    key: PRNGKeyArray
    count: int
    size: int

    @classmethod
    def of(cls, measure: AbstractMeasure, key: PRNGKeyArray, count: int, least: int) -> "_Drawn":
        dim = measure.domain.dim
        size = fitting(_CHUNK, dim, numbers=_TOGETHER)
        count = fitting(count, dim, least=least, numbers=_ALL)
        return cls(measure, key, -(-count // size) * size, size)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        for i in range(self.count // self.size):
            yield drawn_by(self.measure, jr.fold_in(self.key, i), self.size)

    def weights(self) -> np.ndarray:
        """The weights of all points."""
        keys = [jr.fold_in(self.key, i) for i in range(self.count // self.size)]
        return np.concatenate([np.asarray(_weights(self.measure, k, self.size)) for k in keys])


@compiled(brief=True)
def _weights(measure: AbstractMeasure, key: PRNGKeyArray, count: int) -> Array:
    """Weights alone: where they do not depend on the points, none are drawn."""
    return measure.sample(key, count)[1]


@x64()
def polish(
    solution: Solution, method: str = "least-squares", *, count: int | None = None
) -> Solution:
    """The solution with its output layer replaced by the best one, for an equation linear in `u`.

        >>> better = polish(solve(zoo.survival(1), network=Shallow(64, polynomial=True)))

    The output layer is `c` and the polynomial part of a `Shallow` network, or the last layer of an `MLP`.
    The result is in float64. Where independent points say that it is not better, the solution comes
    back as it was.

    **Arguments**

    - `method`: `"least-squares"` (default) or `"galerkin"`.
    - `count`: the number of points; four times the number of coefficients by default, at least 1,000.
      They are Gauss-Legendre nodes in one dimension, random points otherwise.
    """
    an_instance("solution", solution, Solution, "qpde.solve(problem)")
    one_of("method", method, _METHODS)
    if not _is_linear(solution):
        raise ValueError(
            "polish is for equations linear in u, because only there L Q is affine in the output "
            "layer; for this one go on with solve(..., initial=solution, rule=qpde.GaussNewton())."
        )
    started = time.perf_counter()
    better = polished(solution, method, count=count)
    if better is None:
        return solution
    return dataclasses.replace(
        solution,
        trial=better,
        rule=f"{solution.rule} + {method}",
        precision="float64",
        seconds=solution.seconds + time.perf_counter() - started,
    )


def polished(
    solution: Solution, method: str = "least-squares", *, count: int | None = None
) -> Trial | None:
    """The trial function with the best output layer, or None where fresh points see no gain."""
    trial = cast(solution.trial, "float64")
    flat = _split(trial)[0]
    count = _checked_count(count, flat.size, solution.problem.dim)
    points, weights = _sample(solution, count)
    better = trial
    for _ in range(1 if _is_linear(solution) else _LINEARISED):
        found = _solved(better, _split(better)[0], points, weights, method)
        better = _with(trial, jnp.asarray(found))
    key = key_from(solution.seed, 0x901150)
    sizes = [_fresh_size(each, solution.measure, key, method) for each in (better, trial)]
    return better if sizes[0] < sizes[1] else None


def _checked_count(count: Any, size: int, dim: int) -> int:
    """The number of points for so many coefficients, not more than memory holds rows of."""
    usual = max(4 * size, 1_000)
    if count is None:
        return usual
    most = min(_ENTRIES // size, _NODES if dim == 1 else _ENTRIES)
    if whole("count", count, most=max(most, usual)) < size:
        raise ValueError(f"count must be at least {size}, the number of coefficients, got {count}.")
    return int(count)


def _solved(
    trial: Trial, flat: Array, points: "np.ndarray | _Drawn", weights: np.ndarray, method: str
) -> np.ndarray:
    """The output coefficients, refined twice with the residual of the last ones; where points are drawn anew,
    with the affine one.
    """
    start, jacobian, values = _rows(trial, points)

    def residual_of(found: np.ndarray) -> np.ndarray:
        if isinstance(points, _Drawn):
            return start + jacobian @ (found - np.asarray(flat))
        return _rows(_with(trial, jnp.asarray(found)), points)[0]

    roots = np.sqrt(weights)[:, None]
    test = roots * (jacobian if method == "least-squares" else values)
    matrix = roots * jacobian
    scale = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
    test = test / np.maximum(np.linalg.norm(test, axis=0), 1e-300)
    if method == "galerkin":
        matrix = test.T @ matrix
    left, sizes, right = np.linalg.svd(matrix / scale, full_matrices=False)
    kept = sizes > _ROUNDING * sizes[0]
    left, right = left[:, kept] / sizes[kept], right[kept]
    found = np.zeros(flat.size)
    for _ in range(3):
        residual = roots[:, 0] * residual_of(found)
        goal = residual if method == "least-squares" else test.T @ residual
        found = found - ((goal @ left) @ right) / scale
    return found


def _sample(solution: Solution, count: int) -> "tuple[np.ndarray | _Drawn, np.ndarray]":
    """Points and weights that sum to one."""
    domain = solution.problem.domain
    if domain.dim == 1:
        return domain.nodes(count)
    if domain.dim > MANY:
        least = 4 * _split(solution.trial)[0].size
        points = _Drawn.of(solution.measure, key_from(solution.seed, 0x901151), count, least)
        weights = points.weights()
        return points, weights / points.count
    # As many as for the judgement where that will do: one program draws both.
    key = key_from(solution.seed, 0x901151)
    points, weights = drawn_by(solution.measure, key, max(count, _FRESH))
    return np.asarray(points)[:count], np.asarray(weights)[:count] / count


def _split(trial: Trial) -> tuple[Array, Any]:
    """The output coefficients as one vector, and how to unravel it."""
    network = trial.network
    if not isinstance(network, OutputLayer):
        raise ValueError(
            "polish knows the output layer of Shallow and MLP networks only, got "
            f"{type(getattr(network, 'function', network)).__name__}."
        )
    return jax.flatten_util.ravel_pytree(network.output_layer())


def _with(trial: Trial, flat: Array) -> Trial:
    """The trial function with other output coefficients."""
    unravel, network = _split(trial)[1], trial.network
    return trial.with_network(eqx.tree_at(lambda n: n.output_layer(), network, unravel(flat)))


@compiled
def _chunk(trial: Trial, points: Any) -> tuple[Array, Array, Array]:
    flat = _split(trial)[0]

    def one(x: Array) -> tuple[Array, Array, Array]:
        (_, r), pullback = jax.vjp(lambda a: _with(trial, a).value_and_residual(x), flat)
        one, zero = jnp.ones_like(r), jnp.zeros_like(r)
        return r, pullback((zero, one))[0], pullback((one, zero))[0]

    return jax.vmap(one)(points)


def _rows(trial: Trial, points: "np.ndarray | _Drawn") -> tuple[np.ndarray, ...]:
    """`L Q`, and the derivatives of `L Q` and of `Q` in the output coefficients, a row a point."""
    if isinstance(points, _Drawn):
        parts = [tuple(map(np.asarray, _chunk(trial, some))) for some, _ in points]
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return by_chunks(functools.partial(_chunk, trial), points, _CHUNK)


def _fresh_size(trial: Trial, measure: AbstractMeasure, key: PRNGKeyArray, method: str) -> float:
    """The mean of `(L Q)^2`, or the size of `E[L Q J_Q]`, at points that the solve has not seen."""
    if measure.domain.dim > MANY:
        points = _Drawn.of(measure, key, _FRESH, 32)
        weights = points.weights()
        residual, _, values = _rows(trial, points)
    else:
        points, weights = drawn_by(measure, key, _FRESH)
        residual, _, values = _rows(trial, np.asarray(points))
    weights = np.asarray(weights) / len(residual)
    if method == "least-squares":
        return float(np.dot(weights, residual * residual))
    return float(np.linalg.norm((weights * residual) @ values))
