"""Values at points for equations that are nonlinear in `u` alone: between two linear problems.

In the whole space, for `L u = k u_r + A : Hess u + b . grad u + f(x, t, u)` with the time `r` along the
diffusion `X` and any smooth `Q` with the right data, Ito's formula gives

    u(x) - Q(x) = 1/k E int_0^T exp(int_0^r c / k) L Q dr,

where `c(X_r, r)` is a mean of `f_u` between `Q` and `u`. It is not known, but it lies between numbers `K_1`
and `K_2` that bound `f_u`. Hence

    E int min(e^(K_1 r / k) L Q, e^(K_2 r / k) L Q) dr / k  <=  u(x) - Q(x)  <=  the same with max.

Both ends are means over exact paths: an interval for the first from below and one for the second from above
hold `u(x)`. Their distance is `E int (e^(K_2 r / k) - e^(K_1 r / k)) |L Q| dr / k`, far below the bound of
`certify` at the point, and zero where the equation is linear. Without a bound from below `K_1` is minus
infinity.
"""

import itertools
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri, stdtrit

from .._compiled import compiled
from .._domain.random import normal, uniform
from .._equation.operator import Operator, Structure
from .._field.base import AbstractField, Constant
from .._precision import by_chunks, cast
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._problem.trial import Trial
from .._status import Status
from .estimate import Estimate
from .ledger import Ledger
from .tally import MOST, rms

# Paths that are looked at together, those that foresee how many are needed, and the fewest for an interval.
_PATHS, _PILOT, _FEWEST = 1_024, 1_024, 10
# Stands for no bound from below, where a weight may be as small as zero; exponents that say nothing.
_NONE, _MOST_GROWTH = -1e300, 600.0
# Parts of a range of values in each of which slopes are enclosed.
_PARTS = 16


class _Growth(eqx.Module):
    """`dF/du` at a point and a value of `u`."""

    operator: Operator

    def __call__(self, x: Float[Array, " d"], v: Any) -> Float[Array, ""]:
        return -self.operator.killing(x, v)


class Slopes(eqx.Module):
    """Bounds of `f_u / k`, and whether they are proved."""

    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)
    proved: bool = eqx.field(static=True)

    def words(self, values: tuple[float, float] | None) -> str:
        """How an interval came about."""
        text = "half the distance of two linear problems, "
        bounds = f"between {self.low:.4g} and {self.high:.4g}"
        text += f"with f_u {bounds if self.low > _NONE else f'at most {self.high:.4g}'}"
        if values is not None:
            text += f" (given that u and Q take values from {values[0]:.4g} to {values[1]:.4g})"
        return text if self.proved else f"{text}, as random points show"


def slopes_of(problem: Problem, values: tuple[float, float] | None) -> Slopes:
    """Bounds for the derivative of a semilinear equation in `u`; refused where there are none."""
    operator, rate = problem.operator, float(problem.rate)
    paths: Any = problem.domain
    if operator.structure is not Structure.SEMILINEAR or not problem.domain.follows_paths:
        raise ValueError(
            "Walks give values of linear equations, and in the whole space of those that are nonlinear in "
            "the value of u alone. For an error bound use qpde.certify(solution)."
        )
    if not paths.law.exact:
        raise ValueError(
            "Values of a nonlinear equation need paths whose law is known exactly: constant coefficients, or "
            "those of log-normal prices."
        )
    edges = np.array([-np.inf, np.inf]) if values is None else np.linspace(*values, _PARTS + 1)
    ranges = list(itertools.pairwise(edges))
    least = [operator.least(operator.killing, one) for one in ranges]
    most = [operator.least(_Growth(operator), one) for one in ranges]
    low = min(float(one.value) for one in most) / rate
    high = -min(float(one.value) for one in least) / rate
    if not high * float(paths.end) <= _MOST_GROWTH:
        raise ValueError(
            "The derivative of the equation in u is not bounded from above, or so large that an interval "
            "says nothing. A value_range=(low, high) between which you know u and Q to lie may help."
        )
    if not (np.isfinite(low) and all(one.proved for one in most)):
        low = _NONE
    return Slopes(low, high, all(one.proved for one in least))


def values_between(
    solution: Solution | Problem,
    points: np.ndarray,
    rows: np.ndarray,
    inside: np.ndarray,
    edge: np.ndarray,
    *,
    accuracy: float | None,
    walks: int,
    confidence: float,
    value_range: tuple[float, float] | None,
    key: PRNGKeyArray,
    report: Callable[[int], None],
) -> Estimate:
    """The estimate at `points`, whose rows are `rows`; `edge` are values at the instant of the data.

    With an accuracy, paths that are not counted say how many are needed.
    """
    begun = time.perf_counter()
    problem = solution if isinstance(solution, Problem) else solution.problem
    slopes = slopes_of(problem, value_range)
    trial = Trial.of(problem, Constant(0.0), exact_boundary=True)
    if isinstance(solution, Solution):
        trial = solution.trial
        if not trial.exact_boundary:
            raise ValueError("This solution leaves the data to a penalty: give the problem alone.")
    trial = cast(trial.by_values(), "float64")
    starts = rows[inside]
    base = np.asarray(by_chunks(lambda part: _values(trial, part), starts, _PATHS))
    ends = _Ends(trial, problem, slopes)
    each = np.full(len(starts), walks)
    if accuracy is not None:
        pilot = ends.walk(starts, np.full(len(starts), _PILOT), jr.fold_in(key, 1), report)
        aim = accuracy * rms(0.5 * (pilot[0].mean + pilot[1].mean) + base)
        room = np.maximum(aim - 0.5 * (pilot[1].mean - pilot[0].mean), 0.25 * aim)
        spread = np.maximum(pilot[0].deviation, pilot[1].deviation)
        needed = (float(ndtri(0.5 + 0.5 * confidence)) * spread / max(float(aim), 1e-300)) ** 2
        needed *= np.square(aim / np.maximum(room, 1e-300))
        each = np.clip(np.ceil(1.3 * needed), _PILOT, MOST).astype(np.int64)
    low, high = ends.walk(starts, each, jr.fold_in(key, 2), report)
    quantile = stdtrit(np.maximum(each - 1, 1), 0.5 + 0.5 * confidence)
    lower, upper = low.mean - quantile * low.error, high.mean + quantile * high.error
    few = (each < _FEWEST) | (low.error + high.error == 0)
    lower, upper = np.where(few, -np.inf, lower), np.where(few, np.inf, upper)

    def spread_out(inner: np.ndarray, rest: Any) -> np.ndarray:
        full = np.array(np.broadcast_to(np.asarray(rest, inner.dtype), inside.shape))
        full[inside] = inner
        return full.reshape(points.shape[:-1])

    value = spread_out(base + 0.5 * (low.mean + high.mean), edge)
    ends_at = [spread_out(base + end, edge) for end in (lower, upper)]
    half = np.maximum(ends_at[1] - value, value - ends_at[0])
    return Estimate(
        points=points,
        value=value,
        standard_error=spread_out(np.maximum(low.error, high.error), 0.0),
        low=ends_at[0],
        high=ends_at[1],
        confidence=confidence,
        bias=spread_out(0.5 * (high.mean - low.mean), 0.0),
        bias_source=slopes.words(value_range),
        walks=spread_out(each, 0),
        work=int(np.sum(each)),
        seconds=time.perf_counter() - begun,
        method="exact paths, between two linear problems",
        corrected=isinstance(solution, Solution),
        reached=None if accuracy is None else bool(np.all(half <= accuracy * rms(value))),
        with_network=spread_out(np.full(len(starts), isinstance(solution, Solution)), False),
        unfinished=spread_out(np.zeros(len(starts)), 0.0),
        status=Status.FINISHED,
    )


class _Ends(eqx.Module):
    """What is added up along a path."""

    trial: Trial
    problem: Problem
    slopes: Slopes

    def walk(
        self,
        starts: np.ndarray,
        walks: np.ndarray,
        key: PRNGKeyArray,
        report: Callable[[int], None],
    ) -> tuple[Ledger, Ledger]:
        """`walks[i]` paths from start `i`: the books of the lower and of the upper end."""
        count, ones = len(starts), np.ones(len(starts))
        low, high = (Ledger(starts, ones, ones, ones) for _ in range(2))
        which = np.repeat(np.arange(count), walks)
        ends = np.array([self.slopes.low, self.slopes.high])
        data = self.problem.data if self.problem.carried else None
        for part, begin in enumerate(range(0, len(which), _PATHS)):
            chosen = which[begin : begin + _PATHS]
            filled = np.concatenate([chosen, np.zeros(_PATHS - len(chosen), np.int64)])
            found = _ends(
                self.trial,
                self.problem.domain,
                data,
                self.problem.rate,
                ends,
                starts[filled],
                jr.fold_in(key, part),
            )
            for book, values in zip((low, high), found, strict=True):
                book.add(chosen, np.asarray(values)[: len(chosen)])
            report(begin + len(chosen))
        return low, high


@compiled
def _values(trial: Trial, points: Any) -> Array:
    return jax.vmap(trial.value)(points)


@compiled
def _ends(
    trial: Trial,
    paths: Any,
    data: AbstractField | None,
    rate: Any,
    ends: Any,
    starts: Any,
    key: PRNGKeyArray,
) -> tuple[Array, Array]:
    """Of every path the lower and the upper end; `data` where those of the trial are to be looked at."""
    times, law = paths.times, paths.law
    first, second = jr.split(key)
    age = times.age(starts[:, -1])
    run = age * uniform(first, age.shape)
    noise = normal(uniform(second, (2, len(age), law.noises)))

    def moved(place: Array, h: Array, noise: Array, left: Array) -> Array:
        where = jax.vmap(law.step)(place, starts[:, -1], h, noise)
        return jnp.concatenate([where, times.at(left)[:, None]], axis=1)

    there = moved(starts[:, :-1], run, noise[0], age - run)
    residual = age * jax.vmap(trial.residual)(there) / rate
    both = jnp.exp(run[:, None] * ends[None]) * residual[:, None]
    low, high = jnp.min(both, axis=1), jnp.max(both, axis=1)
    if data is None:
        return low, high
    last = moved(there[:, :-1], age - run, noise[1], jnp.zeros_like(age))
    gap = jax.vmap(data.value)(last) - jax.vmap(trial.value)(last)
    off = jnp.exp(age[:, None] * ends[None]) * gap[:, None]
    return low + jnp.min(off, axis=1), high + jnp.max(off, axis=1)
