"""Bounds from both sides for what a payoff is worth, from fresh paths.

**From below.** Whoever follows a rule gets at most the value: `E e^(-r tau) payoff(X_tau) <= u` for any
stopping time. With a martingale `M` that starts at 0, `e^(-r tau) payoff(X_tau) - M_tau` has the same
mean and, where `M` is nearly that of the value, hardly any variance.

**From above.** For every martingale `u <= E max over dates of (e^(-r t) payoff(X_t) - M_t)`.

The martingale is that of the networks: between two dates `e^(-r t)` times the network's value, which solves
the linear equation there, so that its increment `e^(-r t') (phi(B_t') - E[phi(B_t') | B_t])` is the
stochastic integral of its gradient. Above, the network misses the value at a date by some `R`; the mean of
`R` from the date before is not known, and a few steps aside from there stand for it. What they add has mean
zero too, whatever their number: bounds hold without them, and are closer with them.
"""

import dataclasses
import functools
import time as clock
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from scipy import special

from .._arguments import a_seed, real, shown, whole
from .._compiled import compiled
from .._precision import keys_from, x64
from .._problem.points import as_rows
from .between import lost_between
from .solution import StoppingSolution, Waiting

# Paths of one call of a program, from below and from above.
_BELOW, _ABOVE = 2_048, 512


@dataclasses.dataclass(frozen=True)
class Bracket:
    """Bounds for the value at points, from below and from above, with confidence.

    The value lies in `[low, high]` with the given `confidence`, at each point by itself (asymptotically:
    means over paths are taken as normal). `rule` is the mean of what the rule earns, `dual` that of the
    martingale's bound, `rule_error` and `dual_error` are their standard errors: `low` and `high` lie so many
    of them below and above that each holds with `(1 + confidence) / 2`. `value` is the solution's own.
    `lost` is added to `high` where one may stop between dates (`_stopping/between.py`).
    `assumes` says what is taken for granted.
    """

    points: np.ndarray
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rule: np.ndarray
    rule_error: np.ndarray
    dual: np.ndarray
    dual_error: np.ndarray
    lost: float
    confidence: float
    paths: tuple[int, int]
    inner: int
    seconds: float
    assumes: tuple[str, ...]

    @property
    def width(self) -> np.ndarray:
        """`high - low`."""
        return np.asarray(self.high - self.low)

    def __repr__(self) -> str:
        low, high, value = (np.atleast_1d(part) for part in (self.low, self.high, self.value))
        lines = [f"Bracket at {low.size:,} points, {100 * self.confidence:g} % at each"]
        for i in range(min(low.size, 5)):
            width = f"{high[i] - low[i]:.2g}"
            if high[i] + low[i] > 0:
                width += f", {200 * (high[i] - low[i]) / (high[i] + low[i]):.2g} %"
            lines.append(f"  [{low[i]:.6g}, {high[i]:.6g}] (width {width}); network {value[i]:.6g}")
        lines.append(
            f"  {self.paths[0]:,} paths from below, {self.paths[1]:,} from above with {self.inner} steps "
            f"aside, {self.seconds:.1f} s"
        )
        return "\n".join([*lines, *(f"  assumes: {text}" for text in self.assumes)])


@x64()
def bracket(
    solution: Any,
    points: Any,
    *,
    paths: int = 16_384,
    inner: int = 8,
    confidence: float = 0.95,
    seed: int = 0,
) -> Bracket:
    """Bounds for the value of a stopping problem at states, from below and from above, with confidence.

        >>> bound = bracket(solve_stopping(problem), problem.start)
        >>> bound.low, bound.high

    **Arguments**

    - `solution`: of `qpde.solve_stopping`.
    - `points`: states `(d,)` or `(n, d)` at the time 0. Bounds hold everywhere, and are close near the start.
    - `paths`: fresh paths from each point for the bound from below; a quarter of them from above.
    - `inner`: steps aside for the bound from above, an even number; 0 for none.
    - `confidence`: that both bounds hold; `seed`: of the paths, others than those of the solution.
    """
    started = clock.perf_counter()
    if not isinstance(solution, StoppingSolution):
        raise ValueError(
            f"bracket takes a solution of qpde.solve_stopping, got {shown(solution)}. For other problems "
            "take qpde.certify or qpde.feynman_kac."
        )
    problem, waiting = solution.problem, solution.waiting
    rows = as_rows(points, problem.dim)
    below = whole("paths", paths, least=40)
    aside = whole("inner", inner)
    if aside % 2:
        raise ValueError(f"inner must be even: steps aside come in pairs, got {aside}.")
    sure = float(real("confidence", confidence, above=0.0, most=0.999999))
    first = np.stack([np.asarray(problem.frame.position(0.0, x)) for x in rows])
    # A seed's paths are others than those that its solution was fitted to.
    _, _, low_key, high_key = keys_from(a_seed(seed), 4)
    above = max(below // 4, 20)
    rule, rule_error = _means(_below, waiting, first, below, low_key, _BELOW)
    program = functools.partial(_above, aside)
    dual, dual_error = _means(program, waiting, first, above, high_key, _ABOVE)
    lost, assumes = 0.0, ()
    if problem.dates is None:
        lost, assumes = lost_between(problem, solution.times)
    quantile = float(special.ndtri(0.5 + 0.5 * sure))
    shape = np.shape(points)[:-1]
    low, high = rule - quantile * rule_error, dual + quantile * dual_error + lost
    columns = (solution(rows), low, high, rule, rule_error, dual, dual_error)
    return Bracket(
        np.asarray(points, np.float64),
        *(np.reshape(column, shape) for column in columns),
        lost=lost,
        confidence=sure,
        paths=(below, above),
        inner=aside,
        seconds=clock.perf_counter() - started,
        assumes=assumes,
    )


def _means(
    program: Any, waiting: Waiting, first: np.ndarray, count: int, key: PRNGKeyArray, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Means and their standard errors of what a program finds on `count` paths from each point."""
    rows = np.repeat(np.arange(len(first)), count)
    found = []
    for part, begin in enumerate(range(0, len(rows), size)):
        chosen = rows[begin : begin + size]
        filled = np.concatenate([chosen, np.repeat(chosen[-1:], size - len(chosen))])
        result = program(waiting, first[filled], jr.fold_in(key, part))
        found.append(np.asarray(result)[: len(chosen)])
    table = np.concatenate(found).reshape(len(first), count)
    return table.mean(axis=1), table.std(axis=1, ddof=1) / np.sqrt(count)


def _discounts(waiting: Waiting) -> Array:
    return jnp.exp(-waiting.problem.discount * jnp.asarray(waiting.times))


def _step(waiting: Waiting, i: Any, b: Array, key: PRNGKeyArray) -> Array:
    times = jnp.asarray(waiting.times)
    return b + jnp.sqrt(times[i + 1] - times[i]) * jr.normal(key, b.shape)


@compiled
def _below(waiting: Waiting, first: Any, key: PRNGKeyArray) -> Array:
    """What the rule earns on paths from some positions, less the martingale."""
    times, discounts = jnp.asarray(waiting.times), _discounts(waiting)
    last, first = len(times) - 1, jnp.asarray(first)

    def date(carry: Any, i: Array) -> tuple[Any, None]:
        b, gone, earned, stopped = carry
        payoff, worth, known = jax.vmap(lambda b: waiting.at_date(i, b))(b)
        now = waiting.stops(i, payoff, worth) & ~stopped
        earned = jnp.where(now, discounts[i] * payoff - gone, earned)
        moved = _step(waiting, i, b, jr.fold_in(key, i))
        then = jax.vmap(lambda b: waiting.known(i, times[i + 1], b))(moved)
        return (moved, gone + discounts[i + 1] * (then - known), earned, stopped | now), None

    zero = jnp.zeros(len(first))
    start = (first, zero, zero, zero > 0)
    (b, gone, earned, stopped), _ = jax.lax.scan(date, start, jnp.arange(last))
    payoff = jax.vmap(lambda b: waiting.problem.pays(waiting.problem.frame.place(times[last], b)))(
        b
    )
    return jnp.where(stopped, earned, discounts[last] * payoff - gone)


@compiled
def _above(inner: int, waiting: Waiting, first: Any, key: PRNGKeyArray) -> Array:
    """The largest of payoff less martingale, on paths from some positions."""
    times, discounts = jnp.asarray(waiting.times), _discounts(waiting)
    last, first = len(times) - 1, jnp.asarray(first)

    def missed(i: Array, b: Array) -> Array:
        payoff, worth, _ = waiting.at_date(i + 1, b)
        return jnp.maximum(payoff, worth) - waiting.known(i, times[i + 1], b)

    def date(carry: Any, i: Array) -> tuple[Any, None]:
        b, gone, most = carry
        payoff, _, known = jax.vmap(lambda b: waiting.at_date(i, b))(b)
        most = jnp.where(waiting.allowed(i), jnp.maximum(most, discounts[i] * payoff - gone), most)
        ahead, aside = jr.split(jr.fold_in(key, i))
        moved = _step(waiting, i, b, ahead)
        change = jax.vmap(lambda b: waiting.known(i, times[i + 1], b))(moved) - known
        if inner:
            noise = jr.normal(aside, (inner // 2, *b.shape)) * jnp.sqrt(times[i + 1] - times[i])
            others = b[None] + jnp.concatenate([noise, -noise])
            rest = jax.vmap(jax.vmap(lambda b: missed(i, b)))(others)
            change += jax.vmap(lambda b: missed(i, b))(moved) - jnp.mean(rest, axis=0)
        return (moved, gone + discounts[i + 1] * change, most), None

    start = (first, jnp.zeros(len(first)), jnp.full(len(first), -jnp.inf))
    (b, gone, most), _ = jax.lax.scan(date, start, jnp.arange(last))
    payoff = jax.vmap(lambda b: waiting.problem.pays(waiting.problem.frame.place(times[last], b)))(
        b
    )
    return jnp.maximum(most, discounts[last] * payoff - gone)
