"""`solve`: blocks of compiled steps, and what is looked at between them."""

import dataclasses
import enum
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ._measure import AbstractMeasure, Draw, Uniform, batch_sizes, chunk_size
from ._network import Shallow, as_network_field, cast, trainable
from ._problem import Problem
from ._progress import Bar
from ._rule import AbstractRule, Info, Penalty, QLearning
from ._schedule import AbstractSchedule, Clock, as_schedule
from ._solution import History, Solution
from ._status import Interrupted, SolveError, Status
from ._trial import Trial

# Steps in a compiled block. Between blocks Python looks at the clock, the keyboard and the held-out
# loss; the length is fixed, because the clock must not steer a run.
_BLOCK = 100
_HELD_OUT_POINTS = 2_048
# A run is stuck when every point was truncated for this many steps in a row, and has blown up when
# its loss is this many times the first one (or 1).
_STUCK, _BLOW_UP = 50, 1e12


class Keep(enum.Enum):
    """Which iterate a run returns."""

    HELD_OUT = "smallest loss on held-out points, looked at after every 100 steps"
    BEST_BATCH = "smallest minibatch loss, looked at in every step (the paper)"
    LAST = "the last one"


class Progress(NamedTuple):
    """What a callback is told after every block of steps; it stops the run by returning something true."""

    step: int
    loss: float
    held_out: float
    seconds: float


class _Loop(eqx.Module):
    """What a run carries from step to step. `params` are the trained arrays of the network."""

    params: PyTree
    state: PyTree
    best: PyTree
    best_error: Float[Array, ""]
    limit: Float[Array, ""]
    stuck: Int[Array, ""]
    step: Int[Array, ""]
    end: Int[Array, ""]


# What `_Loop.end` means; 0 is "goes on".
_ENDS = (
    None,
    Status.TOLERANCE,
    Status.NONFINITE,
    Status.DIVERGED,
    Status.TRUNCATED,
    Status.ZERO_GRADIENT,
)


def _end(info: Info, loop: _Loop, tolerance: Any, damped: bool) -> tuple[Array, Array, Array]:
    """The index into `_ENDS` after a step, the limit for the loss, and the stuck count."""
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
def _block(
    rule: AbstractRule,
    measure: AbstractMeasure,
    trial: Trial,
    loop: _Loop,
    key: PRNGKeyArray,
    sizes: Any,
    count: Any,
    total: Any,
    tolerance: Any,
    chunk: int,
    track: Any,
) -> tuple[_Loop, Float[Array, "k 3"]]:
    """At most `count` steps from `loop`; the log has a row (loss, gradient, truncated) a step."""
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
        draw = Draw(measure, jr.fold_in(key, loop.step), sizes[i], chunk)
        moved, state, info = rule.step(here, loop.state, draw, Clock(loop.step, total))
        end, limit, stuck = _end(info, loop, tolerance, damped)
        stay = end != 0
        # The loss belongs to the parameters before the step: so does the best iterate.
        better = (info.error < loop.best_error) & track
        new = _Loop(
            params=_where(stay, loop.params, trainable(moved.network)[0]),
            state=_where(stay, loop.state, state),
            best=_where(better, loop.params, loop.best),
            best_error=jnp.where(better, info.error, loop.best_error),
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


def _where(condition: Any, yes: PyTree, no: PyTree) -> PyTree:
    def pick(a: Any, b: Any) -> Any:
        return jnp.where(condition, a, b) if eqx.is_array(a) else a

    return jax.tree.map(pick, yes, no)


@eqx.filter_jit
def _held_out(
    trial: Trial, params: PyTree, sample: tuple[Array, Array, Array], weight: Any
) -> Array:
    """The mean of `(L Q)^2`, plus the penalty where the boundary values are not exact."""
    points, weights, edge = sample
    moved = trial.with_network(eqx.combine(params, trainable(trial.network)[1]))
    residual = jax.vmap(moved.residual)(points)
    loss = jnp.mean(weights * residual * residual)
    if trial.exact_boundary:
        return loss
    gap = jax.vmap(moved.value)(edge) - jax.vmap(trial.boundary.value)(edge)
    return loss + weight * jnp.mean(gap * gap)


def solve(
    problem: Problem,
    *,
    network: Any = None,
    rule: AbstractRule | None = None,
    steps: int = 5_000,
    batch: Any = 1_000,
    tolerance: float = 0.0,
    measure: AbstractMeasure | None = None,
    initial: Solution | None = None,
    budget: float | None = None,
    keep: Keep = Keep.HELD_OUT,
    callback: Callable[[Progress], Any] | None = None,
    seed: int = 0,
    precision: str = "float32",
    progress: bool = True,
    throw: bool = True,
) -> Solution:
    """Solve a problem by training a network.

        >>> solution = solve(zoo.survival(20))
        >>> solution(np.zeros(20))

    **Arguments**

    - `network`: `Shallow`, `MLP`, or any `eqx.Module` from a point to a scalar. All its floating-point
      arrays are trained, except those wrapped in `qpde.Frozen`.
    - `rule`: `QLearning` (default), `DeepGalerkin` or `Penalty`.
    - `steps`: how many steps are done at most.
    - `batch`: points a step, a number or a schedule such as `Linear(2_000, 10_000)`.
    - `tolerance`: stop when the mean of `psi(L Q)^2` over a batch is below this.
    - `measure`: the law of the points; uniform by default.
    - `initial`: a solution whose network is trained further.
    - `budget`: seconds of training (compiling not counted) after which the run stops; it never
      changes what a step does.
    - `keep`: which iterate is returned.
    - `callback`: called with a `Progress` after every 100 steps; returning `True` stops the run.
    - `seed`: the same seed gives the same bits on the same machine.
    - `precision`: `"float32"` or `"float64"`.
    - `progress`: show a bar on a terminal.
    - `throw`: raise `SolveError` (with `.solution`) after a numerical failure. With `False` the
      status of the returned solution says what happened.
    """
    if initial is not None and network is not None:
        raise ValueError("Give a network or an initial solution, whose network it takes, not both.")
    plan = Plan(
        problem=problem,
        network=Shallow() if network is None else network,
        rule=QLearning() if rule is None else rule,
        steps=steps,
        batch=as_schedule(batch),
        tolerance=tolerance,
        measure=Uniform(problem.domain) if measure is None else measure,
        initial=initial,
        keep=keep,
        seed=seed,
        precision=precision,
    )
    with jax.enable_x64(precision == "float64"):
        solution = _run(plan, _checked_budget(budget), callback, progress)
    if throw and not solution.status.successful:
        raise (Interrupted if solution.status is Status.INTERRUPTED else SolveError)(solution)
    return solution


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that decides the bits of a run."""

    problem: Problem
    network: Any
    rule: AbstractRule
    steps: int
    batch: AbstractSchedule
    tolerance: float
    measure: AbstractMeasure
    initial: Solution | None
    keep: Keep
    seed: int
    precision: str

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Problem):
            raise ValueError(f"problem must be a qpde.Problem, got {type(self.problem).__name__}.")
        if not isinstance(self.rule, AbstractRule):
            raise ValueError(f"rule must be a rule such as qpde.QLearning(), got {self.rule!r}.")
        if not isinstance(self.measure, AbstractMeasure):
            raise ValueError(
                f"measure must be one such as qpde.Uniform(domain), got {self.measure!r}."
            )
        if not isinstance(self.keep, Keep):
            raise ValueError(f"keep must be one of {', '.join(map(str, Keep))}, got {self.keep!r}.")
        for name, value in (("steps", self.steps), ("seed", self.seed)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
                raise ValueError(f"{name} must be a whole number, not negative, got {value!r}.")
        if self.seed >= 2**63:
            raise ValueError(f"seed must be less than 2^63, got {self.seed}.")
        if (
            min(batch_sizes(self.batch, t, t + 1, max(self.steps, 1))[0] for t in (0, self.steps))
            < 1
        ):
            raise ValueError("batch must be at least one point at every step.")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance must not be negative, got {self.tolerance!r}.")
        if self.precision not in ("float32", "float64"):
            raise ValueError(f'precision is "float32" or "float64", got {self.precision!r}.')
        if not eqx.tree_equal(self.measure.domain, self.problem.domain):
            raise ValueError(
                f"The measure lives on {self.measure.domain!r}, the problem on "
                f"{self.problem.domain!r}."
            )
        if self.initial is not None and not isinstance(self.initial, Solution):
            raise ValueError(f"initial must be a qpde.Solution, got {type(self.initial).__name__}.")
        if self.initial is not None and self.initial.problem.dim != self.problem.dim:
            raise ValueError(
                f"initial solves a problem in dimension {self.initial.problem.dim}, this one has "
                f"{self.problem.dim}."
            )


def _checked_budget(budget: float | None) -> float:
    if budget is None:
        return float("inf")
    if not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, got {budget!r}.")
    return float(budget)


def _run(
    plan: Plan, budget: float, callback: Callable[[Progress], Any] | None, progress: bool
) -> Solution:
    network_key, rule_key, train_key, held_key = jr.split(jr.key(plan.seed, impl="threefry2x32"), 4)
    source = plan.network if plan.initial is None else plan.initial.trial.network
    source = cast(source, plan.precision)
    network = as_network_field(source, plan.problem.domain, key=network_key, dtype=plan.precision)
    network = cast(network, plan.precision)
    trial = Trial.of(plan.problem, network, exact_boundary=plan.rule.exact_boundary)
    params, rest = trainable(network)
    loop = _Loop(
        params=params,
        state=plan.rule.init(trial, rule_key),
        best=params,
        best_error=jnp.asarray(jnp.inf, plan.precision),
        limit=jnp.asarray(jnp.inf, plan.precision),
        stuck=jnp.asarray(0, jnp.int32),
        step=jnp.asarray(0, jnp.int32),
        end=jnp.asarray(0, jnp.int32),
    )
    chunk = chunk_size(plan.batch, max(plan.steps, 1))
    held_key, edge_key = jr.split(held_key)
    edge = plan.problem.domain.sample_boundary(edge_key, _HELD_OUT_POINTS)
    sample = (*plan.measure.sample(held_key, _HELD_OUT_POINTS), edge)
    weight = plan.rule.weight if isinstance(plan.rule, Penalty) else None

    def advance(loop: _Loop, count: int) -> tuple[_Loop, np.ndarray]:
        step = int(loop.step)
        sizes = np.ones(_BLOCK, np.int32)
        sizes[:count] = batch_sizes(plan.batch, step, step + count, plan.steps)
        loop, log = _block(
            plan.rule,
            plan.measure,
            trial,
            loop,
            train_key,
            sizes,
            np.asarray(count, np.int32),
            np.asarray(max(plan.steps, 1), np.int32),
            np.asarray(plan.tolerance, np.float64),
            chunk,
            np.asarray(plan.keep is Keep.BEST_BATCH),
        )
        return loop, np.asarray(log)[: int(loop.step) - step]

    def look(loop: _Loop) -> tuple[_Loop, float]:
        held_out = _held_out(trial, loop.params, sample, weight)
        if plan.keep is Keep.HELD_OUT and held_out < loop.best_error:
            loop = dataclasses.replace(loop, best=loop.params, best_error=held_out)
        return loop, float(held_out)

    started = time.perf_counter()
    status = None
    logs, checks = [np.zeros((0, 3))], []
    with Bar(plan.steps, progress) as bar:
        loop, _ = advance(loop, 0)  # compiles, and does nothing else
        loop, held_out = look(loop)
        checks.append((0, held_out))
        compiled = time.perf_counter()
        try:
            while status is None:
                step, seconds = int(loop.step), time.perf_counter() - compiled
                loss = float(logs[-1][-1, 0]) if step else float("nan")
                bar.update(step, loss, seconds)
                seen = Progress(step, loss, held_out, seconds)
                if step and callback is not None and callback(seen):
                    status = Status.STOPPED
                elif step >= plan.steps:
                    status = Status.FINISHED
                elif seconds >= budget:
                    status = Status.BUDGET
                else:
                    loop, log = advance(loop, min(_BLOCK, plan.steps - step))
                    logs.append(log)
                    loop, held_out = look(loop)
                    checks.append((int(loop.step), held_out))
                    status = _ENDS[int(loop.end)]
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
    ended = time.perf_counter()

    last = plan.keep is Keep.LAST or status is Status.TOLERANCE or not np.isfinite(loop.best_error)
    chosen = loop.params if last else loop.best
    rows = np.concatenate(logs)
    checked = np.asarray(checks)
    return Solution(
        problem=plan.problem,
        trial=trial.with_network(eqx.combine(chosen, rest)),
        measure=plan.measure,
        status=status,
        steps=len(rows),
        history=History(
            rows[:, 0], rows[:, 1], rows[:, 2], checked[:, 0].astype(int), checked[:, 1]
        ),
        seconds=ended - compiled,
        compile_seconds=compiled - started,
        rule=plan.rule.name,
        seed=plan.seed,
        precision=plan.precision,
    )
