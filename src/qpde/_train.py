"""`train`: blocks of compiled steps of one rule, and what is looked at between them."""

import dataclasses
import enum
import os
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from . import _checkpoint
from ._aligned import align
from ._checkpoint import Checkpoint, Snapshot, digest
from ._form import fresh
from ._interrupt import Keyboard
from ._loop import ENDS, Loop, block, held_out_loss, undone
from ._measure import AbstractMeasure, Uniform, batch_sizes, chunk_size
from ._network import Shallow, as_network_field, cast, trainable
from ._problem import Problem
from ._progress import Bar
from ._rule import AbstractRule, Penalty, QLearning
from ._schedule import AbstractSchedule, as_schedule
from ._solution import History, Solution
from ._status import Status
from ._trial import Trial

_HELD_OUT_POINTS = 2_048


class Keep(enum.Enum):
    """Which iterate a run returns."""

    HELD_OUT = "smallest loss on held-out points, looked at after every block of steps"
    BEST_BATCH = "smallest minibatch loss, looked at in every step (the paper)"
    LAST = "the last one"


class Progress(NamedTuple):
    """What a callback is told after every block of steps; it stops the run by returning something true."""

    step: int
    loss: float
    held_out: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that decides the bits of a run."""

    problem: Problem
    network: Any
    rule: AbstractRule
    batch: AbstractSchedule
    measure: AbstractMeasure
    initial: Solution | None = None
    steps: int = 5_000
    tolerance: float = 0.0
    patience: int = 0  # looks without progress after which a run ends; 0: never
    keep: Keep = Keep.HELD_OUT
    seed: int = 0
    precision: str = "float32"

    def __post_init__(self) -> None:
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
        if self.steps >= 2**31:
            raise ValueError(f"steps must be less than 2^31, got {self.steps}.")
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

    def identity(self) -> dict[str, Any]:
        """The plan in plain values, problem and network left out."""
        return {
            "rule": self.rule.name,
            "setting of the rule": digest(self.rule),
            "batch": digest(self.batch),
            "measure": digest(self.measure),
            "steps": int(self.steps),
            "tolerance": float(self.tolerance),
            **({"patience": self.patience} if self.patience else {}),
            "initial": None if self.initial is None else digest(self.initial.trial.network),
            "keep": self.keep.name,
            "seed": int(self.seed),
            "precision": self.precision,
        }


def make_plan(
    problem: Problem,
    *,
    network: Any = None,
    rule: AbstractRule | None = None,
    batch: Any = 1_000,
    measure: AbstractMeasure | None = None,
    initial: Solution | None = None,
    **plain: Any,
) -> Plan:
    """A checked plan from the options of `solve`."""
    if initial is not None and network is not None:
        raise ValueError("Give a network or an initial solution, whose network it takes, not both.")
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be a qpde.Problem, got {type(problem).__name__}.")
    return Plan(
        problem=problem,
        network=Shallow() if network is None else network,
        rule=QLearning() if rule is None else rule,
        batch=as_schedule(batch),
        measure=fresh(Uniform(problem.domain) if measure is None else measure),
        initial=initial,
        **plain,
    )


def checked_budget(budget: float | None) -> float:
    """The budget in seconds; None is none."""
    if budget is None:
        return float("inf")
    if not budget > 0:
        raise ValueError(f"budget must be a positive number of seconds, got {budget!r}.")
    return float(budget)


def train(
    plan: Plan,
    *,
    budget: float,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    stage: int = 1,
    progress: bool = True,
) -> Solution:
    """Run a plan to its end, whatever that is."""
    with jax.enable_x64(plan.precision == "float64"):
        solution = _run(plan, budget, callback, checkpoint, stage, progress)
    if plan.keep is Keep.HELD_OUT and solution.status.successful and stage == 1:
        _warn_if_untrained(solution.history, plan.rule)
    return solution


def _warn_if_untrained(history: History, rule: AbstractRule) -> None:
    """Say so when no iterate was better than the network that the run began with."""
    held_out = history.held_out
    if len(history.loss) >= max(rule.block, 5) and not np.nanmin(held_out[1:]) < held_out[0]:
        warnings.warn(
            "Training made nothing better: the held-out loss began at "
            f"{held_out[0]:.3g} and ended at {held_out[-1]:.3g}, so the initial network is returned. "
            "Lower the learning rate; if the equation is not monotone, try "
            "rule=qpde.DeepGalerkin() (--rule deep-galerkin).",
            stacklevel=3,
        )


@eqx.filter_jit
def _held_out_sample(measure: AbstractMeasure, key: PRNGKeyArray, edge: bool) -> tuple[Any, ...]:
    """Points inside, their weights, and points on the boundary where these are asked for."""
    points, weights = measure.sample(key, _HELD_OUT_POINTS)
    if not edge:
        return points, weights, None
    return points, weights, measure.domain.sample_boundary(jr.fold_in(key, 1), _HELD_OUT_POINTS)


def keys(seed: int) -> list[PRNGKeyArray]:
    """The keys of a run: network, rule, training points, held-out points."""
    words = np.random.SeedSequence(seed).generate_state(8).reshape(4, 2)
    return [jr.wrap_key_data(jnp.asarray(pair), impl="threefry2x32") for pair in words]


class Run:
    """The parts of a run that stay the same from its first step to its last."""

    def __init__(self, plan: Plan):
        network_key, rule_key, self._key, held_key = keys(plan.seed)
        source = plan.network if plan.initial is None else plan.initial.trial.network
        source = cast(source, plan.precision)
        network = as_network_field(
            source, plan.problem.domain, key=network_key, dtype=plan.precision
        )
        network = cast(network, plan.precision)
        self._plan = plan
        trial = Trial.of(plan.problem, network, exact_boundary=plan.rule.exact_boundary)
        if isinstance(source, Shallow):
            trial = align(trial, source.aligned, plan.measure, jr.fold_in(network_key, 1))
        self.trial = trial
        params, self._rest = trainable(trial.network)
        self.start = Loop.start(params, plan.rule.init(self.trial, rule_key), plan.precision)
        self._chunk = chunk_size(plan.batch, max(plan.steps, 1), whole=plan.rule.whole)
        self._sample = _held_out_sample(plan.measure, held_key, edge=not plan.rule.exact_boundary)
        self._weight = plan.rule.weight if isinstance(plan.rule, Penalty) else None

    def identity(self) -> dict[str, Any]:
        """What decides the bits of the run, in plain values, the problem left out."""
        network = self.trial.network
        point = jax.ShapeDtypeStruct((self._plan.problem.dim,), self._plan.precision)
        # As a program, because two functions of the user's may have the same name.
        program = str(jax.make_jaxpr(network.value)(point))
        return self._plan.identity() | {"network": digest((self._plan.network, program))}

    def begin(self) -> Snapshot:
        """The state before the first step."""
        return Snapshot(self.start, np.zeros((0, 3)), np.zeros((0, 2)), 0.0)

    def advance(self, state: Snapshot, count: int) -> Snapshot:
        """The state after `count` more steps, or fewer where the run comes to an end."""
        step = int(state.loop.step)
        loop, log = self._block(state.loop, count)
        done = int(loop.step) - step
        if int(loop.end) != 0:
            loop = undone(loop, self._block(state.loop, done - 1)[0])
        rows = np.concatenate([state.rows, np.asarray(log)[:done]])
        return dataclasses.replace(state, loop=loop, rows=rows)

    def _block(self, loop: Loop, count: int) -> tuple[Loop, Any]:
        plan, step = self._plan, int(loop.step)
        larger, (chunk, single) = plan.rule.enlargement(loop.state), self._chunk
        sizes = np.ones(plan.rule.block, np.int32)
        sizes[:count] = larger * batch_sizes(plan.batch, step, step + count, plan.steps)
        return block(
            plan.rule,
            plan.measure,
            self.trial,
            loop,
            self._key,
            sizes,
            np.asarray(count, np.int32),
            np.asarray(max(plan.steps, 1), np.int32),
            np.asarray(plan.tolerance, np.float64),
            (larger * chunk, single),
            plan.keep is Keep.BEST_BATCH,
        )

    def look(self, state: Snapshot) -> Snapshot:
        """Note the held-out loss, and the best iterate where it is chosen by that."""
        loop = state.loop
        held_out = held_out_loss(self.trial, loop.params, self._sample, self._weight)
        if self._plan.keep is Keep.HELD_OUT and held_out < loop.best_error:
            loop = dataclasses.replace(loop, best=loop.params, best_error=held_out)
        checks = np.concatenate([state.checks, [[int(loop.step), float(held_out)]]])
        return dataclasses.replace(state, loop=loop, checks=checks)

    def solution(self, state: Snapshot, status: Status, compile_seconds: float) -> Solution:
        """What the run returns."""
        plan, loop = self._plan, state.loop
        unknown = not np.isfinite(loop.best_error)
        last = plan.keep is Keep.LAST or status is Status.TOLERANCE or unknown
        chosen = loop.params if last else loop.best
        loss, gradient, truncated = state.rows.T
        step, held_out = state.checks.T
        return Solution(
            problem=plan.problem,
            trial=self.trial.with_network(eqx.combine(chosen, self._rest)),
            measure=plan.measure,
            status=status,
            steps=len(state.rows),
            history=History(loss, gradient, truncated, step.astype(int), held_out),
            seconds=state.seconds,
            compile_seconds=compile_seconds,
            rule=plan.rule.name,
            seed=plan.seed,
            precision=plan.precision,
        )


def _settled(held_out: np.ndarray, patience: int) -> bool:
    """Whether the last looks have not made the loss smaller by a tenth."""
    if not patience or len(held_out) <= patience:
        return False
    before, last = held_out[:-patience], held_out[-patience:]
    return not np.nanmin(last) < 0.9 * np.nanmin(before)


def _run(
    plan: Plan,
    budget: float,
    callback: Callable[[Progress], Any] | None,
    folder: str | os.PathLike[str] | None,
    stage: int,
    progress: bool,
) -> Solution:
    started = time.perf_counter()
    run = Run(plan)
    store = None if folder is None else Checkpoint(folder, plan.problem, run.identity(), stage)

    def judge(state: Snapshot, callback: Callable[[Progress], Any] | None) -> Status | None:
        step = int(state.loop.step)
        loss = float(state.rows[-1, 0]) if step else float("nan")
        bar.update(step, loss, state.seconds)
        end = ENDS[int(state.loop.end)]
        if end is not None:
            return end
        seen = Progress(step, loss, float(state.checks[-1, 1]), state.seconds)
        if callback is not None and callback(seen):
            return Status.STOPPED
        if step >= plan.steps:
            return Status.FINISHED
        if _settled(state.checks[:, 1], plan.patience):
            return Status.SETTLED
        return Status.BUDGET if state.seconds >= budget else None

    with Bar(plan.steps, progress) as bar, Keyboard() as keyboard:
        state = None if store is None else store.read(run.start)
        fresh = state is None
        if state is None:
            state = run.begin()
        if int(state.loop.step) < plan.steps:
            run.advance(state, 0)  # compiles, and does nothing else
        state = run.look(state) if fresh else state
        before, compiled = state.seconds, time.perf_counter()
        status = judge(state, None)
        pace = float("inf")  # seconds a step
        # Between blocks of this many steps Python looks at the clock, the keyboard and the held-out
        # loss; the number is fixed, because the clock must not steer a run.
        length, larger = plan.rule.block, plan.rule.enlargement(state.loop.state)
        waited = 0.0
        try:
            while status is None:
                if keyboard.seen:
                    raise KeyboardInterrupt
                step = int(state.loop.step)
                count = min(length - step % length, plan.steps - step)
                if store is not None:
                    # Shorter, where a whole block would leave too long a gap between checkpoints.
                    count = min(count, max(1, int(0.5 * _checkpoint.INTERVAL / pace)))
                began = time.perf_counter()
                if larger != (larger := plan.rule.enlargement(state.loop.state)):
                    run.advance(state, 0)  # compiles for a batch of another size
                    waited += time.perf_counter() - began
                    began = time.perf_counter()
                moved = run.advance(state, count)
                step = int(moved.loop.step)
                now = time.perf_counter()
                pace = (now - began) / count
                moved = dataclasses.replace(moved, seconds=before + now - compiled - waited)
                whole = step % length == 0 or step >= plan.steps or int(moved.loop.end) != 0
                state = run.look(moved) if whole else moved
                if whole:
                    status = judge(state, callback)
                if store is not None and store.due:
                    store.write(state)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if store is not None:
            store.write(state)
    return run.solution(state, status, compiled - started + waited)
