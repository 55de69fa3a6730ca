"""From the last date to the first: the value at each date as a network whose earlier values are known."""

import math
import time as clock
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import a_seed, real, shown, whole
from .._compiled import compiled
from .._precision import keys_from, x64
from .kinks import payoff_kinks, strikes
from .problem import Stopping
from .solution import Rest, StoppingSolution, Waiting
from .units import Units, draw_units

# Paths start around a start, by this part of the deviation up to the next date, and move by so much more than
# the state does: networks are fitted a little beyond where fresh paths go.
_AROUND, _WIDER = 0.5, 1.2
# Rows of a design matrix at a time.
_ROWS = 2_048
# Added to the diagonals of the scaled normal equations: of known units, and of the others.
_RIDGE, _RIDGE_LINE, _RIDGE_REST = 1e-6, 1e-11, 1e-6


@x64()
def solve_stopping(
    problem: Any,
    *,
    units: int | None = None,
    paths: int | None = None,
    size: float = 2.0,
    rest: int | None = None,
    steps: int | None = None,
    seed: int = 0,
) -> StoppingSolution:
    """Solve a stopping problem backward over its dates.

        >>> solution = solve_stopping(problem)
        >>> solution(problem.start)

    At a date the value, the larger one of the payoff and of what waiting is worth, is known at the states of
    some paths. A network of units whose later means are known (`_stopping/units.py`) is fitted to it by least
    squares over its output layer; its mean, seen from the date before, is what waiting is worth there. What
    the network leaves is fitted at the date before by units of the ordered state and the payoff.

    **Arguments**

    - `problem`: a `qpde.Stopping`.
    - `units`: random units of a date; by default 60 in one dimension, 150 in more.
    - `paths`: paths whose states are fitted; by default 4,096 in one dimension, 12,288 in more.
    - `size`: how strongly units bend, in deviations of the state.
    - `rest`: units for what the others leave; 0 for none.
    - `steps`: for problems with `time=`: dates that stand for all times.
    - `seed`: of paths and units.
    """
    started = clock.perf_counter()
    if not isinstance(problem, Stopping):
        raise ValueError(f"solve_stopping takes a qpde.Stopping, got {shown(problem)}.")
    dim = problem.dim
    count = whole("units", (60 if dim == 1 else 150) if units is None else units, least=4)
    number = whole("paths", (4_096 if dim == 1 else 12_288) if paths is None else paths, least=100)
    spare = whole("rest", 200 if rest is None else rest)
    draw, more = keys_from(a_seed(seed), 2)
    rng = np.random.default_rng([int(word) for word in np.ravel(jr.key_data(more))])
    size = float(real("size", size, above=0.0))
    times = _dates(problem, steps)
    if dim == 1 and rest is None and len(times) > 20:
        spare = 0
    positions = _walk(problem, times, number, draw, rng)
    return _Backward(problem, times, positions, rng, count, spare, size).run(started)


def _dates(problem: Stopping, steps: int | None) -> np.ndarray:
    """The dates with 0 before them."""
    if problem.dates is None:
        number = whole(
            "steps", (400 if problem.dim == 1 else 100) if steps is None else steps, least=1
        )
        return np.linspace(0.0, float(problem.time), number + 1)
    if steps is not None:
        raise ValueError("steps= is for problems with time=; this one has its dates.")
    dates = problem.dates
    return dates if dates[0] == 0 else np.concatenate([[0.0], dates])


def _walk(
    problem: Stopping, times: np.ndarray, number: int, key: PRNGKeyArray, rng: np.random.Generator
) -> np.ndarray:
    """Positions `(N + 1, n, d)` of paths from around the starts, each start in turn."""
    frame = problem.frame
    first = np.stack([np.asarray(frame.position(0.0, x)) for x in problem.starts])
    rows = first[np.arange(number) % len(first)]
    rows = rows + _AROUND * np.sqrt(times[1]) * rng.normal(size=rows.shape)
    noise = _WIDER * rng.normal(size=(len(times) - 1, number, problem.dim))
    steps = np.sqrt(np.diff(times))[:, None, None] * noise
    return np.concatenate([rows[None], rows[None] + np.cumsum(steps, axis=0)])


class _Backward:
    """One pass backward."""

    def __init__(
        self,
        problem: Stopping,
        times: np.ndarray,
        positions: np.ndarray,
        rng: np.random.Generator,
        count: int,
        spare: int,
        size: float,
    ):
        self.problem, self.times, self.positions, self.rng = problem, times, positions, rng
        self.count, self.size = count, size
        rows = min(len(positions[0]), 2_000)
        levels = np.asarray(_levels(problem, times, positions[:, :rows]))
        self.levels = levels
        self.spread = np.maximum(levels.std(axis=1), 1e-12)
        payoffs = np.asarray(_payoffs(problem, times[-1], positions[-1]))
        self.least = np.min(payoffs)
        scale = max(float(np.std(payoffs)), 1e-300)
        w = rng.normal(size=(spare, problem.dim + 1)) / math.sqrt(3.0)
        self.rest = Rest(
            directions=w,
            shifts=rng.normal(size=spare),
            middle=levels.mean(axis=1),
            spread=self.spread,
            scale=np.asarray(scale),
            ordered=_exchangeable(problem, levels[-1], rng),
        )
        self.last = payoffs
        self.sign = _extremes(problem, levels[-1], payoffs[:rows])
        self.kinks = payoff_kinks(problem, levels[-1])

    def run(self, started: float) -> StoppingSolution:
        times, dates = self.times, len(self.times) - 1
        value, layers, outers, rests, misfits = self.last, [], [], [], []
        most = float(np.max(value))  # no value is above all payoffs
        for i in range(dates - 1, -1, -1):
            units = self._units(i + 1)
            outer, left = self._fitted(units, i + 1, value)
            discount = math.exp(-float(self.problem.discount) * (times[i + 1] - times[i]))
            known = np.asarray(
                _evaluated(self.problem, units, outer, times[i], _padded(self.positions[i]))
            )[: len(left)]
            payoff = np.asarray(_payoffs(self.problem, times[i], self.positions[i]))
            more, added = self._left(i, discount * left, payoff)
            worth = discount * known + added
            most = max(most, float(np.max(payoff)))
            value = np.maximum(payoff, np.minimum(worth, most))
            self.least = min(self.least, np.min(payoff))
            layers.append(units)
            outers.append(outer)
            rests.append(more)
            misfits.append(float(np.sqrt(np.mean(left**2))))
        least = self.least if self.least >= 0 else -math.inf
        waiting = Waiting(
            problem=self.problem,
            times=times,
            units=jax.tree.map(lambda *leaves: np.stack(leaves), *reversed(layers)),
            outer=np.stack(outers[::-1]),
            rest=self.rest,
            rests=np.stack(rests[::-1]),
            least=np.asarray(least),
        )
        return StoppingSolution(
            self.problem, waiting, np.asarray(misfits[::-1]), clock.perf_counter() - started
        )

    def _units(self, i: int) -> Units:
        found = strikes(self.problem, self.levels[i], self.kinks)
        frame, at = self.problem.frame, self.positions[i]
        return draw_units(
            self.rng, frame, self.times[i], at, self.count, found, self.size, self.sign
        )

    def _fitted(self, units: Units, i: int, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The output layer of the network of a date, and what it leaves at the paths."""
        rows = _padded(self.positions[i])
        weights = np.zeros(len(rows))
        weights[: len(value)] = 1.0
        targets = np.concatenate([value, np.zeros(len(rows) - len(value))])
        gram, right = _sums(self.problem, units, self.times[i], rows, targets, weights)
        ridge = _RIDGE_LINE if self.problem.dim == 1 else _RIDGE
        outer = _solved(np.asarray(gram), np.asarray(right), ridge)
        found = np.asarray(_evaluated(self.problem, units, outer, self.times[i], rows))
        return outer, value - found[: len(value)]

    def _left(
        self, i: int, left: np.ndarray, payoff: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | float]:
        """The mean at the date `i` of what the network of the next one leaves."""
        size = self.problem.dim + 2 + len(self.rest.shifts)
        if i == 0 or len(self.rest.shifts) == 0:
            return np.zeros(size), 0.0
        design = np.asarray(
            _rests(self.problem, self.rest, i, self.times[i], self.positions[i], payoff)
        )
        found = _solved(design.T @ design, design.T @ left, _RIDGE_REST)
        return found, design @ found


def _padded(rows: np.ndarray) -> np.ndarray:
    """Rows to a multiple of a block, the last one repeated."""
    missing = -len(rows) % _ROWS
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])


def _solved(gram: np.ndarray, right: np.ndarray, ridge: float) -> np.ndarray:
    """The solution of normal equations in the units' own scales."""
    sizes = np.sqrt(np.diag(gram))
    scale = 1.0 / np.maximum(sizes, 1e-9 * np.max(sizes))
    system = scale[:, None] * gram * scale
    system[np.diag_indices_from(system)] += ridge * max(1.0, float(np.max(np.diag(system))))
    return scale * np.linalg.solve(system, scale * right)


def _exchangeable(problem: Stopping, levels: np.ndarray, rng: np.random.Generator) -> bool:
    """Whether coordinates may change places, as far as their law and 64 payoffs tell."""
    frame, dim = problem.frame, problem.dim
    covariance = frame.factor @ frame.factor.T
    off = covariance[~np.eye(dim, dtype=bool)]
    same = np.ptp(np.diag(covariance)) + (np.ptp(off) if off.size else 0.0)
    if dim == 1 or same > 1e-12 * covariance[0, 0] or np.ptp(frame.speed) > 1e-12:
        return False
    rows = levels[:64]
    mixed = rng.permuted(rows, axis=1)
    states = [np.exp(part) if frame.prices else part for part in (rows, mixed)]
    first, second = (np.asarray(jax.vmap(problem.pays)(jnp.asarray(part))) for part in states)
    return bool(np.allclose(first, second, rtol=1e-12, atol=1e-12 * np.max(np.abs(first))))


def _extremes(problem: Stopping, levels: np.ndarray, payoffs: np.ndarray) -> int:
    """1 where the payoff follows the largest of independent coordinates, -1 the smallest, 0 neither."""
    factor = problem.frame.factor
    if problem.dim == 1 or np.any(factor != np.diag(np.diag(factor))) or np.std(payoffs) == 0:
        return 0
    ends = (np.max(levels, axis=1), np.min(levels, axis=1), np.mean(levels, axis=1))
    largest, smallest, mean = (abs(float(np.corrcoef(end, payoffs)[0, 1])) for end in ends)
    return (1 if largest > smallest else -1) if max(largest, smallest) > mean else 0


@compiled(brief=True)
def _levels(problem: Stopping, times: Any, positions: Any) -> Array:
    level = jax.vmap(problem.frame.level, (None, 0))
    return jax.vmap(level)(jnp.asarray(times), jnp.asarray(positions))


@compiled(brief=True)
def _payoffs(problem: Stopping, t: Any, positions: Any) -> Array:
    return jax.vmap(lambda b: problem.pays(problem.frame.place(t, b)))(jnp.asarray(positions))


@compiled
def _rests(problem: Stopping, rest: Rest, i: Any, t: Any, positions: Any, payoff: Any) -> Array:
    def one(b: Array, paid: Array) -> Array:
        return rest.values(i, problem.frame.level(t, b), paid)

    return jax.vmap(one)(jnp.asarray(positions), jnp.asarray(payoff))


@compiled
def _sums(
    problem: Stopping, units: Units, t: Any, rows: Any, targets: Any, weights: Any
) -> tuple[Float[Array, "u u"], Float[Array, " u"]]:
    """The normal equations, block by block."""

    def add(sums: Any, block: tuple[Array, Array, Array]) -> tuple[Any, None]:
        b, y, weight = block
        design = (
            jax.vmap(
                lambda b: units.means(
                    problem.frame,
                    problem.frame.level(t, b) + problem.frame.speed * (units.date - t),
                    units.date - t,
                )
            )(b)
            * weight[:, None]
        )
        return (sums[0] + design.T @ design, sums[1] + design.T @ y), None

    level = jax.ShapeDtypeStruct((problem.dim,), jnp.float64)
    size = jax.eval_shape(lambda y: units.means(problem.frame, y, jnp.ones(())), level).size
    blocks = (
        jnp.asarray(rows).reshape(-1, _ROWS, problem.dim),
        jnp.asarray(targets).reshape(-1, _ROWS),
        jnp.asarray(weights).reshape(-1, _ROWS),
    )
    return jax.lax.scan(add, (jnp.zeros((size, size)), jnp.zeros(size)), blocks)[0]


@compiled
def _evaluated(
    problem: Stopping, units: Units, outer: Any, t: Any, rows: Any
) -> Float[Array, " n"]:
    def block(b: Array) -> Array:
        design = jax.vmap(
            lambda b: units.means(
                problem.frame,
                problem.frame.level(t, b) + problem.frame.speed * (units.date - t),
                units.date - t,
            )
        )(b)
        return design @ jnp.asarray(outer)

    blocks = jnp.asarray(rows).reshape(-1, _ROWS, problem.dim)
    return jax.lax.map(block, blocks).reshape(-1)
