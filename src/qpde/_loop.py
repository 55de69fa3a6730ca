"""The compiled part of a run: blocks of steps, and the held-out loss between them."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ._measure import AbstractMeasure, Draw
from ._network import trainable
from ._rule import AbstractRule, Info
from ._schedule import Clock
from ._status import Status
from ._trial import Trial

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
    def start(cls, params: PyTree, state: PyTree, dtype: Any) -> "Loop":
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


@eqx.filter_jit
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

    A step that ends the run is done all the same: `loop` and `log` are right, but for parameters and
    state, which `undone` gives. Choosing between old and new in every step would cost more than the
    optimiser. With `track` the iterate with the smallest minibatch loss is kept.
    """
    _, rest = trainable(trial.network)
    damped = getattr(getattr(rule, "truncation", None), "damped", False)
    arrays, fixed = eqx.partition(loop, eqx.is_array)

    def going(carry: tuple[Any, Any, Any]) -> Any:
        i, arrays, _ = carry
        return (i < count) & (arrays.end == 0)

    def advance(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        i, arrays, log = carry
        loop = eqx.combine(arrays, fixed)
        here = trial.with_network(eqx.combine(loop.params, rest))
        draw = Draw(measure, jr.fold_in(key, loop.step), sizes[i], *chunk)
        moved, state, info = rule.step(here, loop.state, draw, Clock(loop.step, total))
        end, limit, stuck = _end(info, loop, tolerance, damped)
        # The loss belongs to the parameters before the step: so does the best iterate.
        better = info.error < loop.best_error
        new = Loop(
            params=trainable(moved.network)[0],
            state=state,
            best=_where(better, loop.params, loop.best) if track else loop.best,
            best_error=jnp.where(better, info.error, loop.best_error) if track else loop.best_error,
            limit=limit,
            stuck=stuck,
            step=loop.step + 1,
            end=end,
        )
        row = jnp.stack([info.loss, info.gradient, jnp.maximum(1.0 - info.active, 0.0)])
        return i + 1, eqx.filter(new, eqx.is_array), log.at[i].set(row)

    log = jnp.full((sizes.shape[0], 3), jnp.nan)
    _, arrays, log = jax.lax.while_loop(going, advance, (jnp.asarray(0), arrays, log))
    return eqx.combine(arrays, fixed), log


def undone(ended: Loop, before: Loop) -> Loop:
    """The end of a run whose last step does not count: `before` has the parameters it started from."""
    return dataclasses.replace(ended, params=before.params, state=before.state)


def _where(condition: Any, yes: PyTree, no: PyTree) -> PyTree:
    def pick(a: Any, b: Any) -> Any:
        return jnp.where(condition, a, b) if eqx.is_array(a) else a

    return jax.tree.map(pick, yes, no)


@eqx.filter_jit
def held_out_loss(
    trial: Trial, params: PyTree, sample: tuple[Array, Array, Array | None], weight: Any
) -> Array:
    """The mean of `(L Q)^2`, plus the penalty where the boundary values are not exact."""
    points, weights, edge = sample
    moved = trial.with_network(eqx.combine(params, trainable(trial.network)[1]))
    residual = jax.vmap(moved.residual)(points)
    loss = jnp.mean(weights * residual * residual)
    if edge is None:
        return loss
    gap = jax.vmap(moved.value)(edge) - jax.vmap(trial.boundary.value)(edge)
    return loss + weight * jnp.mean(gap * gap)
