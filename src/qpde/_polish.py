"""The output layer of a solution, solved for: with hidden weights fixed, `L Q` is affine in it.

With `r_0` the residual when all output coefficients `a` are zero, `J` the residual's and `J_Q` the trial
function's derivative in them, `L Q = r_0 + J a`. Least squares minimises `E[(r_0 + J a)^2]` by a singular
value decomposition; Galerkin solves `E[J_Q' (r_0 + J a)] = 0`, the fixed point of Q-learning in `a`, whose
condition number is that of least squares squared.
"""

import dataclasses
import time
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ._form import fresh
from ._network import DeepField, ShallowField, cast
from ._nodes import nodes as place
from ._operator import Operator, Structure
from ._solution import Solution
from ._trial import Trial

_METHODS = ("least-squares", "galerkin")
# Singular values below this share of the largest count as zero; columns are scaled to length one.
_ROUNDING = 1e-14
_CHUNK, _FRESH = 1_024, 8_192
# Coefficients up to which the decomposition takes seconds; beyond, only who asks for it gets it.
_QUICK = 1_500


def soon_polished(solution: Solution) -> bool:
    """Whether `polish` knows what to do, and does it in seconds."""
    network = solution.trial.network
    if not isinstance(network, ShallowField | DeepField):
        return False
    if sum(leaf.size for leaf in jax.tree.leaves(_output_layer(network))) > _QUICK:
        return False
    return Operator.of(solution.problem).structure is Structure.LINEAR


def polish(
    solution: Solution, method: str = "least-squares", *, points: int | None = None
) -> Solution:
    """The solution with its output layer replaced by the best one, for an equation linear in `u`.

        >>> better = polish(solve(zoo.survival(1), network=Shallow(64, polynomial=True)))

    The output layer is `c` and the polynomial part of a `Shallow` network, or the last layer of an `MLP`.
    The result is in float64. Where independent points say that it is not better, the solution comes
    back as it was.

    **Arguments**

    - `method`: `"least-squares"` (default) or `"galerkin"`.
    - `points`: how many; four times the number of coefficients by default, at least 1,000.
      Gauss-Legendre nodes in one dimension, random points otherwise.
    """
    if not isinstance(solution, Solution):
        raise ValueError(f"polish takes a qpde.Solution, got {type(solution).__name__}.")
    if method not in _METHODS:
        raise ValueError(f"method is one of {', '.join(_METHODS)}, got {method!r}.")
    if Operator.of(solution.problem).structure is not Structure.LINEAR:
        raise ValueError(
            "polish is for equations linear in u, because only there L Q is affine in the output "
            "layer; for this one go on with solve(..., initial=solution, rule=qpde.GaussNewton())."
        )
    started = time.perf_counter()
    with jax.enable_x64(True):
        trial = cast(fresh(solution.trial), "float64")
        flat = _split(trial)[0]
        count = max(4 * flat.size, 1_000) if points is None else points
        if count < flat.size:
            raise ValueError(f"points must be at least {flat.size}, the number of coefficients.")
        coefficients = _solved(trial, flat, *_sample(solution, count), method)
        better = _with(trial, jnp.asarray(coefficients))
        key = jr.fold_in(jr.key(solution.seed, impl="threefry2x32"), 0x901150)
        judge = [_fresh_size(t, solution.measure, key, method) for t in (better, trial)]
    if not judge[0] < judge[1]:
        return solution
    return dataclasses.replace(
        solution,
        trial=better,
        rule=f"{solution.rule} + {method}",
        precision="float64",
        seconds=solution.seconds + time.perf_counter() - started,
    )


def _solved(
    trial: Trial, flat: Array, points: np.ndarray, weights: np.ndarray, method: str
) -> np.ndarray:
    """The output coefficients, refined twice with the residual of the last ones."""
    _, jacobian, values = _rows(trial, points)
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
        residual = roots[:, 0] * _rows(_with(trial, jnp.asarray(found)), points)[0]
        goal = residual if method == "least-squares" else test.T @ residual
        found = found - ((goal @ left) @ right) / scale
    return found


def _sample(solution: Solution, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights that sum to one."""
    domain = solution.problem.domain
    if domain.dim == 1:
        return place(domain, count)
    key = jr.fold_in(jr.key(solution.seed, impl="threefry2x32"), 0x901151)
    # As many as for the judgement where that will do: one program draws both.
    points, weights = _draw(solution.measure, key, max(count, _FRESH))
    return np.asarray(points)[:count], np.asarray(weights)[:count] / count


@eqx.filter_jit
def _draw(measure: Any, key: Any, count: int) -> tuple[Array, Array]:
    return measure.sample(key, count)


def _output_layer(network: Any) -> tuple[Any, ...]:
    if isinstance(network, DeepField):
        return network.weights[-1], network.biases[-1]
    p = network.polynomial
    return (network.c,) if p is None else (network.c, p.constant, p.slope, p.curvature)


def _split(trial: Trial) -> tuple[Array, Any]:
    """The output coefficients as one vector, and how to unravel it."""
    network: Any = trial.network
    if not isinstance(network, ShallowField | DeepField):
        raise ValueError(
            "polish knows the output layer of Shallow and MLP networks only, got "
            f"{type(getattr(network, 'function', network)).__name__}."
        )
    return jax.flatten_util.ravel_pytree(_output_layer(network))


def _with(trial: Trial, flat: Array) -> Trial:
    """The trial function with other output coefficients."""
    unravel = _split(trial)[1]
    return trial.with_network(eqx.tree_at(_output_layer, trial.network, unravel(flat)))


@eqx.filter_jit
def _chunk(trial: Trial, points: Any) -> tuple[Array, Array, Array]:
    flat = _split(trial)[0]

    def one(x: Array) -> tuple[Array, Array, Array]:
        (_, r), pullback = jax.vjp(lambda a: _with(trial, a).value_and_residual(x), flat)
        one, zero = jnp.ones_like(r), jnp.zeros_like(r)
        return r, pullback((zero, one))[0], pullback((one, zero))[0]

    return jax.vmap(one)(points)


def _rows(trial: Trial, points: np.ndarray) -> tuple[np.ndarray, ...]:
    """`L Q`, and the derivatives of `L Q` and of `Q` in the output coefficients, a row a point."""
    parts = []
    for start in range(0, len(points), _CHUNK):
        part = points[start : start + _CHUNK]
        padded = np.concatenate([part, np.repeat(part[:1], _CHUNK - len(part), axis=0)])
        parts.append([np.asarray(v)[: len(part)] for v in _chunk(trial, padded)])
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _fresh_size(trial: Trial, measure: Any, key: Any, method: str) -> float:
    """The mean of `(L Q)^2`, or the size of `E[L Q J_Q]`, at points that the solve has not seen."""
    points, weights = _draw(measure, key, _FRESH)
    residual, _, values = _rows(trial, np.asarray(points))
    weights = np.asarray(weights) / _FRESH
    if method == "least-squares":
        return float(np.dot(weights, residual * residual))
    return float(np.linalg.norm((weights * residual) @ values))
