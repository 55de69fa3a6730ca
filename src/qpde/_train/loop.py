"""The compiled part of a run: blocks of steps, and the held-out loss between them."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._compiled import compiled
from .._machines.blocks import phase, stacked
from .._network.base import trainable
from .._precision import cast
from .._problem.measure import AbstractMeasure
from .._problem.trial import Trial
from .._rule.base import AbstractRule, Info
from .._rule.batch import Draw
from .._rule.schedule import Clock
from .._status import Status

# A run is stuck when every point was truncated for this many steps in a row, and has blown up when
# its loss is this many times the first one (or 1).
_STUCK, _BLOW_UP = 50, 1e12


class Loop(eqx.Module):
    """What a run carries from step to step. `params` are the trained arrays of the network."""

    params: PyTree
    state: PyTree
    best: PyTree
    best_error: Float[Array, ""]
    limit: Float[Array, ""]
    stuck: Int[Array, ""]
    step: Int[Array, ""]
    end: Int[Array, ""]

    @classmethod
    def start(cls, params: PyTree, state: PyTree, dtype: DTypeLike) -> "Loop":
        """Before the first step."""
        return cls(
            params=params,
            state=state,
            best=params,
            best_error=jnp.asarray(jnp.inf, dtype),
            limit=jnp.asarray(jnp.inf, dtype),
            stuck=jnp.asarray(0, jnp.int32),
            step=jnp.asarray(0, jnp.int32),
            end=jnp.asarray(0, jnp.int32),
        )


# What `Loop.end` means; 0 is "goes on".
ENDS = (
    None,
    Status.TOLERANCE,
    Status.NONFINITE,
    Status.DIVERGED,
    Status.TRUNCATED,
    Status.ZERO_GRADIENT,
)


def _end(info: Info, loop: Loop, tolerance: Any, damped: bool) -> tuple[Array, Array, Array]:
    """The index into `ENDS` after a step, the limit for the loss, and the stuck count."""
    limit = jnp.where(loop.step == 0, _BLOW_UP * jnp.maximum(info.loss, 1.0), loop.limit)
    stuck = jnp.where(info.active == 0, loop.stuck + 1, 0) if damped else loop.stuck
    flat = (info.gradient == 0) & (info.loss > 0)
    finite = jnp.isfinite(info.loss) & jnp.isfinite(info.gradient)
    conditions = [
        info.error < tolerance,
        ~finite,
        info.loss > limit,
        (stuck >= _STUCK) | (flat & (info.active == 0)),
        flat,
    ]
    end = jnp.select(conditions, [jnp.asarray(i) for i in range(1, 6)], jnp.asarray(0))
    return end.astype(jnp.int32), limit, stuck


@compiled(hot=True)
@functools.partial(eqx.debug.assert_max_traces, max_traces=None)
def block(
    rule: AbstractRule,
    measure: AbstractMeasure,
    trial: Trial,
    loop: Loop,
    key: PRNGKeyArray,
    sizes: Any,
    count: Any,
    total: Any,
    tolerance: Any,
    chunk: tuple[int, bool],
    track: bool,
) -> tuple[Loop, Float[Array, "k 3"]]:
    """At most `count` steps from `loop`; the log has a row (loss, gradient, truncated) a step.

    The step that ends a run still moves parameters and state: choosing between old and new in every step
    would cost more than the optimiser. `undone` takes that last move back; the rest of `loop` and the log
    are right as they are. With `track` the iterate with the smallest minibatch loss is kept.
    """
    arrays, fixed = eqx.partition(loop, eqx.is_array)

    def going(carry: tuple[Any, Any, Any]) -> Any:
        i, arrays, _ = carry
        return (i < count) & (arrays.end == 0)

    def advance(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        i, arrays, log = carry
        loop = eqx.combine(arrays, fixed)
        new, row = _one(rule, measure, trial, loop, key, sizes[i], total, tolerance, chunk, track)
        return i + 1, eqx.filter(new, eqx.is_array), log.at[i].set(row)

    log = jnp.full((sizes.shape[0], 3), jnp.nan, loop.best_error.dtype)
    _, arrays, log = jax.lax.while_loop(going, advance, (jnp.asarray(0), arrays, log))
    return eqx.combine(arrays, fixed), log


def _one(
    rule: AbstractRule,
    measure: AbstractMeasure,
    trial: Trial,
    loop: Loop,
    key: PRNGKeyArray,
    size: Any,
    total: Any,
    tolerance: Any,
    chunk: tuple[int, bool],
    track: bool,
) -> tuple[Loop, Float[Array, "3"]]:
    """One step, and its row of the log."""
    _, rest = trainable(trial.network)
    here = trial.with_network(eqx.combine(loop.params, rest))
    draw = Draw(measure, jr.fold_in(key, loop.step), size, *chunk, loop.best_error.dtype)
    moved, state, info = rule.step(here, loop.state, draw, Clock(loop.step, total))
    # A rule of the user's own may bring in float64 numbers: the run keeps its precision.
    params, info = cast((trainable(moved.network)[0], info), draw.dtype)
    end, limit, stuck = _end(info, loop, tolerance, rule.damped)
    # The loss belongs to the parameters before the step: so does the best iterate.
    better = info.error < loop.best_error
    new = Loop(
        params=params,
        state=state,
        best=_where(better, loop.params, loop.best) if track else loop.best,
        best_error=jnp.where(better, info.error, loop.best_error) if track else loop.best_error,
        limit=limit,
        stuck=stuck,
        step=loop.step + 1,
        end=end,
    )
    return new, jnp.stack([info.loss, info.gradient, jnp.maximum(1.0 - info.active, 0.0)])


def block_together(
    known: dict[Any, int | None],
    rule: AbstractRule,
    measure: AbstractMeasure,
    trial: Trial,
    loop: Loop,
    key: PRNGKeyArray,
    sizes: np.ndarray,
    count: Any,
    *rest: Any,
) -> tuple[Loop, Float[np.ndarray, "k 3"]]:
    """A `block` by several processes, step by step; `known` keeps how much shared work a step asks for."""
    log = np.full((len(sizes), 3), np.nan)
    for i in range(int(count)):
        loop, row = _one_together(
            known, (rule, measure, trial, loop, key, np.asarray(sizes[i]), *rest)
        )
        log[i] = np.asarray(row)
        if int(loop.end) != 0:
            break
    return loop, log


@compiled(hot=True)
def _part(arguments: tuple[Any, ...], results: tuple[Any, ...], index: Any) -> tuple[Any, Any]:
    return phase(_one, arguments, results, index)


def _one_together(known: dict[Any, int | None], arguments: tuple[Any, ...]) -> tuple[Loop, Array]:
    results: tuple[Any, ...] = ()
    while True:
        asked = (arguments[-2], len(results))  # the size of micro-batches decides
        if asked not in known:
            known[asked] = eqx.filter_eval_shape(
                _unbound, arguments, results, np.asarray(0, np.int32)
            )[1]
        count = known[asked]
        if count is None:
            return _part(arguments, results, np.asarray(0, np.int32))[0]
        rows = stacked(lambda item: _part(arguments, results, np.asarray(item, np.int32))[0], count)  # noqa: B023
        results = (*results, rows)


def _unbound(arguments: tuple[Any, ...], results: tuple[Any, ...], index: Any) -> tuple[Any, Any]:
    return phase(_one, arguments, results, index)


def undone(ended: Loop, before: Loop) -> Loop:
    """An ended run with the parameters and the state from before its last step, which `before` has."""
    return dataclasses.replace(ended, params=before.params, state=before.state)


def _where(condition: Any, yes: PyTree, no: PyTree) -> PyTree:
    def pick(a: Any, b: Any) -> Any:
        return jnp.where(condition, a, b) if eqx.is_array(a) else a

    return jax.tree.map(pick, yes, no)


@compiled
def held_out_loss(
    rule: AbstractRule, trial: Trial, params: PyTree, sample: tuple[Array, Array, Array | None]
) -> Array:
    """What decides between iterates, the mean of `(L Q)^2` unless the rule makes something else small, plus
    the rule's own loss where the boundary values are not exact.
    """
    points, weights, edge = sample
    moved = trial.with_network(eqx.combine(params, trainable(trial.network)[1]))
    residual, again = rule.residuals(moved, points)
    if residual is again:
        loss = rule.held_out_loss(residual, weights)
    else:  # the mean of a product of independent estimates, which chance may make negative
        loss = jnp.abs(jnp.mean(weights * residual * again))
    return loss if edge is None else loss + rule.boundary_loss(moved, edge)
