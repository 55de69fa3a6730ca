"""Random walks in a pool: slots that take the next job as soon as theirs has ended.

A walk adds up `int exp(-int c) g(X) ds + exp(-int c) f(X_tau)` for functions `g`, `f` that need not be known
while it runs. Its contributions `w_k g(Y_k)` are replaced by `(sum w) g(Y_K)` where `K = k` with probability
`w_k / sum w`: the same mean given the walk, and one evaluation of `g`, which may be a network, per walk in
place of one per step. `K` is drawn as the walk goes on (reservoir sampling).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ._random import bits, uniform

# Walkers that move together, in large runs and in small ones. They fit into a processor's cache.
_SLOTS, _FEW = 2_048, 256
# Jobs in one buffer, numbers in its points, steps between two looks at the keyboard, steps of a walk.
_JOBS, _NUMBERS, _BLOCK, LIMIT = 2**17, 2**23, 500, 100_000
# A discount below this is replaced by it or by zero, at random, with the right mean.
_SMALL = 0.01
_CHUNK = 2_048


class Step(NamedTuple):
    """What a scheme says about one step of all walkers."""

    x: Float[Array, "p d"]  # after it
    decay: Float[Array, " p"]  # the discount over it
    mass: Float[Array, " p"]  # weight of the source point
    source: Float[Array, "p d"]
    ended: Any  # whether the walk had ended before it; the rest then means nothing
    exit: Float[Array, "p d"]  # where


@runtime_checkable
class Scheme(Protocol):
    """How walkers move."""

    def step(
        self, x: Float[Array, "p d"], level: Float[Array, " p"], key: PRNGKeyArray
    ) -> Step: ...


@runtime_checkable
class Payoff(Protocol):
    """What is added up along a walk, and at its end."""

    ends: bool

    def source(self, x: Float[Array, " d"]) -> Float[Array, ""]: ...
    def end(self, x: Float[Array, " d"]) -> Float[Array, ""]: ...


class Walkers(NamedTuple):
    """The slots."""

    x: Float[Array, "p d"]
    discount: Float[Array, " p"]
    mass: Float[Array, " p"]
    source: Float[Array, "p d"]
    level: Float[Array, " p"]
    job: Int[Array, " p"]
    age: Int[Array, " p"]


class Jobs(NamedTuple):
    """One row a walk: before it, where it starts; after it, its source point, weights and exit."""

    place: Float[Array, "j d"]
    level: Float[Array, " j"]
    mass: Float[Array, " j"]
    discount: Float[Array, " j"]
    exit: Float[Array, "j _"]


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


@eqx.filter_jit(donate="all-except-first")
def _advance(fixed: tuple[Scheme, PRNGKeyArray, Any, Any], state: State) -> State:
    """Move all walkers until a block of steps is done or no walk is left."""
    scheme, key, count, limit = fixed
    slots, rows = state.walkers.x.shape[0], state.jobs.level.shape[0]
    until = state.clock + _BLOCK

    def go_on(state: State) -> Array:
        return (state.done < count) & (state.clock < until) & (jnp.max(state.walkers.age) <= limit)

    def one(state: State) -> State:
        w, jobs = state.walkers, state.jobs
        now = jr.fold_in(key, state.clock)
        step = scheme.step(w.x, w.level, now)
        u = uniform(jr.fold_in(now, 2), (2, slots))
        active = w.job < rows
        ended = active & (step.ended | (w.discount == 0))

        to = jnp.where(ended, w.job, rows)
        jobs = Jobs(
            place=jobs.place.at[to].set(w.source, mode="drop"),
            level=jobs.level,
            mass=jobs.mass.at[to].set(w.mass, mode="drop"),
            discount=jobs.discount.at[to].set(w.discount, mode="drop"),
            exit=jobs.exit.at[to].set(step.exit[:, : jobs.exit.shape[1]], mode="drop"),
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
            level=w.level,
            job=w.job,
            age=jnp.where(active, w.age + 1, 0),
        )
        # Slots whose walk has ended take the next jobs in order; those that are left over wait.
        job = state.begun + jnp.cumsum(ended, dtype=w.job.dtype) - 1
        job = jnp.where(job < count, job, rows)
        row = jnp.minimum(job, rows - 1)
        start = jobs.place[row]
        new = _start(start, jobs.level[row], job)
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


@eqx.filter_jit
def _begin(starts: Any, levels: Any, count: Any, exits: bool, slots: int) -> State:
    """The first jobs in the slots."""
    rows, dim = starts.shape
    slot = jnp.arange(slots)
    row = jnp.minimum(slot, rows - 1)
    zeros = jnp.zeros(rows)
    jobs = Jobs(starts, levels, zeros, zeros, jnp.zeros((rows, dim if exits else 0)))
    walkers = _start(starts[row], levels[row], jnp.where(slot < count, slot, rows))
    none = jnp.zeros((), slot.dtype)
    return State(walkers, jobs, jnp.minimum(count, slots), none, none, none)


def _start(x: Array, level: Array, job: Array) -> Walkers:
    n = x.shape[0]
    return Walkers(x, jnp.ones(n), jnp.zeros(n), x, level, job, jnp.zeros(n, job.dtype))


def _where(mask: Array, yes: Array, no: Array) -> Array:
    return jnp.where(mask.reshape((-1,) + (1,) * (yes.ndim - 1)), yes, no)


@eqx.filter_jit
def _pay(payoff: Payoff, jobs: Jobs) -> Array:
    """The sum of every walk."""

    def one(job: Jobs) -> Array:
        total = job.mass * payoff.source(job.place)
        return total + job.discount * payoff.end(job.exit) if payoff.ends else total

    def split(a: Array) -> Array:
        return a.reshape(a.shape[0] // _CHUNK, _CHUNK, *a.shape[1:])

    parts = jax.tree.map(split, jobs)
    return jax.lax.map(jax.vmap(one), parts).reshape(-1)


class Ledger:
    """The number of walks from every start, the moments of their sums, and the steps they took."""

    def __init__(self, starts: np.ndarray, levels: np.ndarray):
        self.starts, self.levels = starts, levels
        self.count = np.zeros(len(starts), np.int64)
        self.work = 0
        # Sums of powers, about a number near the mean so that nothing cancels.
        self._about, self._powers = np.zeros(len(starts)), np.zeros((4, len(starts)))

    def add(self, which: np.ndarray, values: np.ndarray, work: int) -> None:
        """Enter the sums of some walks, each with the number of its start."""
        n = len(self.starts)
        count = np.bincount(which, minlength=n)
        first = np.bincount(which, values, n) / np.maximum(count, 1)
        self._about = np.where(self.count == 0, first, self._about)
        centred = values - self._about[which]
        self._powers += [np.bincount(which, centred**k, n) for k in (1, 2, 3, 4)]
        self.count += count
        self.work += work

    @property
    def mean(self) -> np.ndarray:
        """The mean over the walks from every start."""
        return self._about + self._moments[0]

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of one walk, from every start."""
        m, m2 = self._moments[:2]
        unbiased = self.count / np.maximum(self.count - 1, 1)
        return np.sqrt(unbiased * np.maximum(m2 - m * m, 0.0))

    @property
    def kurtosis(self) -> np.ndarray:
        """The fourth central moment divided by the squared variance, 3 where that is zero."""
        m, m2, m3, m4 = self._moments
        variance = m2 - m * m
        fourth = m4 - 4 * m * m3 + 6 * m * m * m2 - 3 * m**4
        safe = np.where(variance > 0, variance, 1.0) ** 2
        return np.where((variance > 0) & (safe > 0), fourth / np.maximum(safe, 1e-300), 3.0)

    @property
    def _moments(self) -> np.ndarray:
        return self._powers / np.maximum(self.count, 1)


def run(
    scheme: Scheme,
    payoff: Payoff,
    ledger: Ledger,
    walks: np.ndarray,
    key: PRNGKeyArray,
    tell: Callable[[int], None],
) -> None:
    """Do so many `walks` from every start and enter them; `tell` hears how many have ended."""
    dim = ledger.starts.shape[1]
    most = max(_CHUNK, min(_JOBS, _NUMBERS // dim) // _CHUNK * _CHUNK)
    which = np.repeat(np.arange(len(walks)), walks)
    before = 0
    for part, begin in enumerate(range(0, len(which), most)):
        chosen = which[begin : begin + most]
        rows = _CHUNK
        while rows < len(chosen):
            rows = min(8 * rows, most)  # few shapes, so few programs
        padded = np.concatenate([chosen, np.zeros(rows - len(chosen), np.int64)])
        values, work = _segment(
            scheme,
            payoff,
            ledger.starts[padded],
            ledger.levels[padded],
            len(chosen),
            jr.fold_in(key, part),
            lambda done, before=before: tell(before + done),
        )
        ledger.add(chosen, values, work)
        before += len(chosen)


def _segment(
    scheme: Scheme,
    payoff: Payoff,
    starts: np.ndarray,
    levels: np.ndarray,
    count: int,
    key: PRNGKeyArray,
    tell: Callable[[int], None],
) -> tuple[np.ndarray, int]:
    """The sums of the first `count` of some walks, and how many steps these took."""
    fixed = (scheme, key, np.asarray(count), np.asarray(LIMIT))
    slots = _SLOTS if count >= 4 * _SLOTS else _FEW
    state = _begin(starts, levels, np.asarray(count), payoff.ends, slots)
    while int(state.done) < count:
        state = _advance(fixed, state)
        tell(int(state.done))
        if np.asarray(state.walkers.age).max() > LIMIT:
            raise RuntimeError(
                f"A random walk had not left the domain after {LIMIT:,} steps. Check that the "
                "diffusion does not vanish and that domain.distance falls to zero at the boundary."
            )
    return np.asarray(_pay(payoff, state.jobs))[:count], int(state.work)
