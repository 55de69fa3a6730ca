"""Sampling laws `mu`, and expectations under them by micro-batches.

`measure.sample(key, n)` gives points and weights; the mean of `weight * g(point)` is `E_mu[g]`. Uniform
points, importance weights and quadrature are the same thing to the rest of the library.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ._domain import AbstractDomain
from ._form import Numbers
from ._jet import widely
from ._round import Ball, unit_ball
from ._schedule import AbstractSchedule, Clock, Fixed, Linear


class AbstractMeasure(eqx.Module):
    """A probability on a domain."""

    domain: eqx.AbstractVar[AbstractDomain]

    @abstractmethod
    def sample(self, key: PRNGKeyArray, n: int) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        """`n` points and their weights."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.domain!r})"


class Uniform(AbstractMeasure):
    """The uniform law on the domain."""

    domain: AbstractDomain

    def sample(self, key: PRNGKeyArray, n: int) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        points = self.domain.sample(key, n)
        return points, jnp.ones((n,), points.dtype)


class Radial(AbstractMeasure):
    """On a ball: uniform direction, radius `R U^(1/k)`. More weight at the centre for `k < d`.

    `k = d` is the uniform law. The Laplacian stays monotone for `2 <= k <= 2 d - 2` only; the
    uniform radius `k = 1`, common in other codes, makes it unbounded below and is refused (in
    d = 1 it is the uniform law, and the only choice).
    """

    domain: AbstractDomain
    k: Numbers

    def __init__(self, ball: Ball, k: float):
        if not isinstance(ball, Ball):
            raise ValueError(f"A radial law lives on a qpde.Ball, got {ball!r}.")
        low, high = (1, 1) if ball.dim == 1 else (2, 2 * ball.dim - 2)
        if not low <= k <= high:
            raise ValueError(
                f"A radial law U^(1/k) in dimension {ball.dim} needs {low} <= k <= {high}, got "
                f"{k}: outside, the Laplacian is not known to be monotone under it, and for "
                f"k < 2 it is not. k = {ball.dim} is the uniform law."
            )
        self.domain, self.k = ball, np.asarray(k, np.float64)

    def __repr__(self) -> str:
        return f"Radial({self.domain!r}, k={self.k:g})"

    def sample(self, key: PRNGKeyArray, n: int) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        unit = unit_ball(key, n, self.domain.dim, self.k)
        centre, radius = self.domain.enclosing_ball
        return centre[None] + radius * unit, jnp.ones((n,), unit.dtype)


class Weighted(AbstractMeasure):
    """A law with a given density, not necessarily normalised, by importance weights.

    Points are uniform, weights are the density divided by its mean, which is found once, from
    2^17 points (so to a relative error of 0.003 times
    the density's coefficient of variation).

        >>> Weighted(Ball(3), lambda x: jnp.exp(-jnp.sum(x * x)))
    """

    domain: AbstractDomain
    density: Callable[..., Any]
    mean: Numbers

    def __init__(self, domain: AbstractDomain, density: Callable[..., Any]):
        self.domain, self.density = domain, density
        with jax.enable_x64(True):
            values = [
                np.asarray(_densities(density, domain, jr.fold_in(jr.key(0), i))) for i in range(16)
            ]
        values = np.concatenate(values)
        if not np.all(np.isfinite(values)) or np.any(values < 0) or not np.any(values > 0):
            raise ValueError("A density must be finite and not negative, and positive somewhere.")
        self.mean = np.asarray(np.mean(values))

    def sample(self, key: PRNGKeyArray, n: int) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
        points = self.domain.sample(key, n)
        return points, jax.vmap(lambda x: widely(self.density, x))(points) / self.mean


@eqx.filter_jit
def _densities(density: Callable[..., Any], domain: AbstractDomain, key: PRNGKeyArray) -> Array:
    values = jax.vmap(density)(domain.sample(key, 2**13))
    if values.shape != (2**13,):
        raise ValueError(f"A density maps a point to a scalar, got shape {values.shape[1:]}.")
    return values


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

    def expect(self, function: Callable[[Batch], Any]) -> Any:
        """The sum of `function` over micro-batches.

        A sum `weights @ g(points)` inside the function becomes the estimate of `E_mu[g]`.
        """

        def part(i: Any) -> Any:
            return function(self._batch(i, i * self.chunk))

        if self.single:
            return part(0)
        zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(part, 0))
        count = (self.size + self.chunk - 1) // self.chunk
        return jax.lax.fori_loop(
            0, count, lambda i, total: jax.tree.map(jnp.add, total, part(i)), zero
        )

    def whole(self, index: int) -> Batch:
        """All points of the step in one batch of `chunk`; every index gives an independent one."""
        return self._batch(index, 0)

    def _batch(self, index: Any, before: Any) -> Batch:
        key = jr.fold_in(self.key, index)
        points, weights = self.measure.sample(key, self.chunk)
        kept = before + jnp.arange(self.chunk) < self.size
        equal = kept.astype(weights.dtype) / self.size
        return Batch(points, weights * equal, equal, jr.fold_in(key, 1))


# Micro-batches of about this many points: large enough to keep the matrix products busy, small enough
# that a layer of 256 units stays in the cache. Smaller ones where the batch changes during a run,
# because the last one of a step is filled up.
_CONSTANT, _CHANGING = 2_000, 1_000


def batch_sizes(batch: AbstractSchedule, start: int, stop: int, total: int) -> np.ndarray:
    """`M_t` for the steps from `start` to `stop`, rounded in float64 on the host."""
    sizes = [batch(Clock(np.float64(t), np.float64(total))) for t in range(start, stop)]
    return np.rint(np.asarray(sizes, np.float64)).astype(np.int32)


def chunk_size(batch: AbstractSchedule, total: int, *, whole: bool = False) -> tuple[int, bool]:
    """The size of a micro-batch for a run, and whether one is always enough.

    With `whole` it is that of the largest batch, because the rule takes all points at once.
    """
    ends = [batch_sizes(batch, t, t + 1, total)[0] for t in (0, total - 1)]
    largest = int(max(ends))
    if whole:
        return largest, True
    parts = max(1, round(largest / (_CONSTANT if ends[0] == ends[1] else _CHANGING)))
    return -(-largest // parts), parts == 1 and isinstance(batch, Fixed | Linear)
