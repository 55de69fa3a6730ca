"""The points of a step: batch sizes, micro-batches, and expectations over them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import real
from .._machines.blocks import added, is_shared, mapped
from .._machines.place import BLOCKS, here
from .._precision import cast, fitting
from .._problem.measure import AbstractMeasure
from .schedule import AbstractSchedule, Clock


class Batch(NamedTuple):
    """One micro-batch of a step."""

    points: Float[Array, "n d"]
    weights: Float[Array, " n"]  # those of a whole step sum to one on average
    equal: Float[Array, " n"]  # the same without importance weights: each point counts once
    key: PRNGKeyArray  # for further random numbers


class Draw(eqx.Module):
    """The random points of one step: `size` of them, in micro-batches of `chunk`.

    The number of micro-batches is dynamic and the last one is masked, so one compiled program
    serves every batch size exactly. `single` says that one is always enough.
    """

    measure: AbstractMeasure
    key: PRNGKeyArray
    size: Any
    chunk: int = eqx.field(static=True)
    single: bool = eqx.field(static=True, default=False)
    dtype: Any = eqx.field(static=True, default=float)

    def expect(self, function: Callable[[Batch], Any]) -> Any:
        """The sum of `function` over micro-batches.

        A sum `weights @ g(points)` inside the function becomes the estimate of `E_mu[g]`.
        """

        def part(i: Any) -> Any:
            return function(self._batch(i, i * self.chunk))

        count = (self.size + self.chunk - 1) // self.chunk
        if not is_shared():
            return part(0) if self.single else _total(part, 0, count)
        each = (count + BLOCKS - 1) // BLOCKS
        return added(
            mapped(lambda b: _total(part, b * each, jnp.minimum((b + 1) * each, count)), BLOCKS)
        )

    def whole(self, count: int) -> list[Batch]:
        """`count` independent batches, each with all points of the step."""
        return [self._batch(index, 0) for index in range(count)]

    def _batch(self, index: Any, before: Any) -> Batch:
        key = jr.fold_in(self.key, index)
        # A law of the user's own may sample in another precision.
        points, weights = cast(self.measure.sample(key, self.chunk, self.dtype), self.dtype)
        kept = before + jnp.arange(self.chunk) < self.size
        equal = kept.astype(weights.dtype) / self.size
        return Batch(points, weights * equal, equal, jr.fold_in(key, 1))


def _total(part: Callable[[Any], Any], start: Any, stop: Any) -> Any:
    """The sum of `part(i)` from `start` to `stop`."""
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(part, 0))
    return jax.lax.fori_loop(
        start, stop, lambda i, total: jax.tree.map(jnp.add, total, part(i)), zero
    )


# Micro-batches of about this many points: large enough to keep the matrix products busy, small enough
# that a layer of 256 units stays in the cache. Smaller ones where the batch changes during a run,
# because the last one of a step is filled up.
_CONSTANT, _CHANGING = 2_000, 1_000


def batch_sizes(batch: AbstractSchedule, start: int, stop: int, total: int) -> np.ndarray:
    """`M_t` for the steps from `start` to `stop`, rounded in float64 on the host."""
    sizes = [batch(Clock(np.float64(t), np.float64(total))) for t in range(start, stop)]
    return np.rint(np.asarray(sizes, np.float64)).astype(np.int32)


def largest_batch(batch: AbstractSchedule, step: int, total: int) -> float:
    """`M_t` at a step, as the schedule gives it; a schedule of the user's own may give anything."""
    found = batch(Clock(np.float64(step), np.float64(total)))
    return float(np.rint(real("A batch size", found)))


def chunk_size(
    batch: AbstractSchedule, total: int, dim: int = 1, *, whole_batch: bool = False
) -> tuple[int, bool]:
    """The size of a micro-batch for a run, and whether one is always enough.

    With `whole_batch` it is the size of the largest batch, because the rule takes all points at once.
    Otherwise the points of a micro-batch fit into memory in any dimension.
    """
    ends = [batch_sizes(batch, t, t + 1, total)[0] for t in (0, total - 1)]
    largest = int(max(ends))
    if whole_batch:
        return largest, True
    parts = max(1, round(largest / (_CONSTANT if ends[0] == ends[1] else _CHANGING)))
    parts = max(parts, -(-largest // fitting(largest, dim)))
    if here() is not None:  # as many for every block
        parts = BLOCKS * -(-parts // BLOCKS)
    return -(-largest // parts), parts == 1 and batch.monotone
