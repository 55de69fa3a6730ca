"""Random walks in a pool: slots that take the next job as soon as theirs has ended.

A walk adds up `int exp(-int c) g(X) ds + exp(-int c) f(X_tau)` for functions `g`, `f` that need not be known
while it runs. Its contributions `w_k g(Y_k)` are replaced by `(sum w) g(Y_K)` where `K = k` with probability
`w_k / sum w`: the same mean given the walk, and one evaluation of `g`, which may be a network, per walk in
place of one per step. `K` is drawn as the walk goes on (reservoir sampling).

A job ends where the walk leaves the domain, where its discount has died, or where it first gets as far from
the boundary as the job's `ceiling`: there it is split (`splitting.py`).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .._compiled import compiled
from .._domain.random import bits, uniform

# Steps between two looks at the keyboard, steps that a pool takes at most, and steps without the end of any
# walk after which nothing more is expected of it.
_BLOCK, LIMIT, IDLE = 500, 2_000_000, 200_000
# A discount below this is replaced by it or by zero, at random, with the right mean. Where killing is slower
# than the way out, most of a walk comes after its discount has become small.
_SMALL = 0.1
_CHUNK = 2_048
# How a job ended. CUT: it has not, and what its walk would have added is not known.
LEFT, PASSED, CUT = 0, 1, 2


class Step(NamedTuple):
    """What a scheme says about one step of all walkers."""

    x: Float[Array, "p d"]  # after it
    decay: Float[Array, " p"]  # the discount over it
    mass: Float[Array, " p"]  # weight of the source point
    source: Float[Array, "p d"]
    ended: Any  # whether the walk had ended before it; the rest then means nothing
    exit: Float[Array, "p d"]  # where
    distance: Float[Array, " p"]  # to the boundary, before it


@runtime_checkable
class Scheme(Protocol):
    """How walkers move. `level` multiplies time steps, `resolution` is the length that counts as zero."""

    def step(
        self,
        x: Float[Array, "p d"],
        level: Float[Array, " p"],
        resolution: Float[Array, " p"],
        key: PRNGKeyArray,
    ) -> Step: ...


@runtime_checkable
class Payoff(Protocol):
    """What is added up along a walk, and at its end."""

    ends: bool

    def source(self, x: Float[Array, " d"]) -> Float[Array, ""]: ...
    def end(self, x: Float[Array, " d"]) -> Float[Array, ""]: ...


class Orders(NamedTuple):
    """How far and how finely a walk goes, one row a walk."""

    level: Any
    resolution: Any
    ceiling: Any


class Walkers(NamedTuple):
    """The slots."""

    x: Float[Array, "p d"]
    discount: Float[Array, " p"]
    mass: Float[Array, " p"]
    source: Float[Array, "p d"]
    orders: Orders
    job: Int[Array, " p"]


class Jobs(NamedTuple):
    """One row a walk: before it, where it starts; after it, its source point, weights, end and exit."""

    place: Float[Array, "j d"]
    orders: Orders
    mass: Float[Array, " j"]
    discount: Float[Array, " j"]
    exit: Float[Array, "j _"]
    how: Int[Array, " j"]


class Sums(NamedTuple):
    """What a walk has to show: `mass g(place) + discount f(exit)` is its sum."""

    place: Any
    mass: Any
    discount: Any
    exit: Any


class State(NamedTuple):
    walkers: Walkers
    jobs: Jobs
    begun: Int[Array, ""]
    done: Int[Array, ""]
    clock: Int[Array, ""]
    work: Int[Array, ""]


def directions(key: PRNGKeyArray, n: int, dim: int) -> Float[Array, "n d"]:
    """Uniform unit vectors."""
    z = normals(key, n, dim)
    return z * jax.lax.rsqrt(jnp.sum(z * z, axis=1, keepdims=True))


def normals(key: PRNGKeyArray, n: int, dim: int) -> Float[Array, "n d"]:
    """Standard normal numbers, in float64 from 2^23 levels (see `_random`): symmetric, variance 1 to 1e-6."""
    u = ((bits(key, n * dim) >> 9).astype(jnp.float32) + 0.5) * 2.0**-23
    return (2.0**0.5 * jax.lax.erf_inv(2.0 * u - 1.0)).astype(float).reshape(n, dim)


@compiled(hot=True, donate="all-except-first")
def _advance(fixed: tuple[Scheme, PRNGKeyArray, Any, Any], state: State) -> State:
    """Move all walkers until a block of steps is done, the limit is met, or no walk is left."""
    scheme, key, count, limit = fixed
    slots, rows = state.walkers.x.shape[0], state.jobs.mass.shape[0]
    until = jnp.minimum(state.clock + _BLOCK, limit)

    def go_on(state: State) -> Array:
        return (state.done < count) & (state.clock < until)

    def one(state: State) -> State:
        w, jobs = state.walkers, state.jobs
        now = jr.fold_in(key, state.clock)
        step = scheme.step(w.x, w.orders.level, w.orders.resolution, now)
        u = uniform(jr.fold_in(now, 2), (2, slots))
        active = w.job < rows
        left = step.ended | (w.discount == 0)
        ended = active & (left | (step.distance >= w.orders.ceiling))

        to = jnp.where(ended, w.job, rows)
        where = _where(left, step.exit, w.x)
        jobs = Jobs(
            place=jobs.place.at[to].set(w.source, mode="drop"),
            orders=jobs.orders,
            mass=jobs.mass.at[to].set(w.mass, mode="drop"),
            discount=jobs.discount.at[to].set(w.discount, mode="drop"),
            exit=jobs.exit.at[to].set(where[:, : jobs.exit.shape[1]], mode="drop"),
            how=jobs.how.at[to].set(jnp.where(left, LEFT, PASSED), mode="drop"),
        )

        added = w.discount * step.mass
        mass = w.mass + added
        taken = u[0] * mass < added
        discount = w.discount * step.decay
        small = discount < _SMALL
        kept = jnp.where(u[1] * _SMALL < discount, _SMALL, 0.0)
        moved = Walkers(
            x=step.x,
            discount=jnp.where(small, kept, discount),
            mass=mass,
            source=jnp.where(taken[:, None], step.source, w.source),
            orders=w.orders,
            job=w.job,
        )
        # Slots whose walk has ended take the next jobs in order; those that are left over wait.
        job = state.begun + jnp.cumsum(ended, dtype=w.job.dtype) - 1
        job = jnp.where(job < count, job, rows)
        row = jnp.minimum(job, rows - 1)
        new = _start(jobs.place[row], jax.tree.map(lambda a: a[row], jobs.orders), job)
        walkers = jax.tree.map(functools.partial(_where, ended), new, moved)
        finished = jnp.sum(ended, dtype=state.done.dtype)
        return State(
            walkers,
            jobs,
            jnp.minimum(state.begun + finished, count),
            state.done + finished,
            state.clock + 1,
            state.work + jnp.sum(active, dtype=state.work.dtype) - finished,
        )

    return jax.lax.while_loop(go_on, one, state)


@compiled(brief=True)
def _begin(starts: Any, orders: Orders, count: Any, exits: bool, slots: int) -> State:
    """The first jobs in the slots."""
    rows, dim = starts.shape
    slot = jnp.arange(slots)
    row = jnp.minimum(slot, rows - 1)
    zeros = jnp.zeros(rows)
    exit = jnp.zeros((rows, dim if exits else 0))
    jobs = Jobs(starts, orders, zeros, zeros, exit, jnp.full(rows, CUT))
    first = jax.tree.map(lambda a: a[row], orders)
    walkers = _start(starts[row], first, jnp.where(slot < count, slot, rows))
    none = jnp.zeros((), slot.dtype)
    return State(walkers, jobs, jnp.minimum(count, slots), none, none, none)


def _start(x: Array, orders: Orders, job: Array) -> Walkers:
    n = x.shape[0]
    return Walkers(x, jnp.ones(n), jnp.zeros(n), x, orders, job)


def _where(mask: Array, yes: Array, no: Array) -> Array:
    return jnp.where(mask.reshape((-1,) + (1,) * (yes.ndim - 1)), yes, no)


def do_jobs(
    scheme: Scheme,
    starts: np.ndarray,
    orders: Orders,
    slots: int,
    exits: bool,
    key: PRNGKeyArray,
    report: Callable[[int], None],
    *,
    rows: int,
) -> tuple[Sums, np.ndarray, int]:
    """One walk for every row of `starts`: its sums, how it ended, and the steps that all took.

    The buffer has `rows` rows, so that jobs of other numbers are done by the same program. Walks that are
    not done when the pool's steps are used up, or of which no more end, are CUT.
    """
    count = len(starts)
    fill = np.concatenate([np.arange(count), np.zeros(rows - count, np.int64)])
    fixed = (scheme, key, np.asarray(count), np.asarray(LIMIT))
    padded = jax.tree.map(lambda a: a[fill], orders)
    state = _begin(starts[fill], padded, np.asarray(count), exits, slots)
    done, at = 0, 0
    while done < count:
        state = _advance(fixed, state)
        if int(state.done) > done:
            done, at = int(state.done), int(state.clock)
            report(done)
        if int(state.clock) >= LIMIT or int(state.clock) >= at + IDLE:
            break
        report(done)
    jobs = jax.tree.map(lambda a: np.asarray(a)[:count], state.jobs)
    return Sums(jobs.place, jobs.mass, jobs.discount, jobs.exit), jobs.how, int(state.work)


@compiled
def _pay(payoff: Payoff, sums: Sums) -> Array:
    """The sum of every walk; `sums` has a whole number of chunks."""

    def one(sums: Sums) -> Array:
        total = sums.mass * payoff.source(sums.place)
        return total + sums.discount * payoff.end(sums.exit) if payoff.ends else total

    def split(a: Array) -> Array:
        return a.reshape(a.shape[0] // _CHUNK, _CHUNK, *a.shape[1:])

    return jax.lax.map(jax.vmap(one), jax.tree.map(split, sums)).reshape(-1)


def pay(payoff: Payoff, sums: Sums, rows: int) -> np.ndarray:
    """The sum of every walk, `rows` of them at a time."""
    if not payoff.ends:  # nothing looks at the exits
        sums = sums._replace(exit=sums.exit[:, :0])
    count = len(sums.mass)
    parts = []
    for begin in range(0, count, rows):
        index = np.arange(begin, begin + rows)
        index = np.where(index < count, index, begin)
        part = jax.tree.map(lambda a, index=index: a[index], sums)
        parts.append(np.asarray(_pay(payoff, part)))
    return np.concatenate(parts)[:count]
