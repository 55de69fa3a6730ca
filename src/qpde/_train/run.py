"""`train`: blocks of compiled steps of one rule, and what is looked at between them."""

import dataclasses
import functools
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._field.base import Constant
from .._machines.place import agreed, handed, here, leads
from .._network.base import AbstractNetwork, as_network_field, trainable
from .._precision import cast, fitting, keys_from
from .._problem.measure import AbstractMeasure, drawn_by
from .._problem.solution import History, Solution
from .._problem.trial import Trial
from .._program.identity import identity_of
from .._rule.batch import batch_sizes, chunk_size
from .._status import Status
from .background import Background
from .checkpoint import INTERVAL, Checkpoint, Silent, Snapshot, digest
from .interrupt import Keyboard
from .loop import ENDS, Loop, block, block_together, held_out_loss, undone
from .plan import Keep, Plan, Progress
from .progress import Bar

_HELD_OUT_POINTS = 2_048

Callback = Callable[[Progress], Any]


def train(
    run: "Run",
    *,
    budget: float,
    callback: Callback | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    stage: int = 1,
    run_id: str | None = None,
    stop: tuple[int, Status] | None = None,
    progress: bool = True,
) -> Solution:
    """Follow a run to its end, whatever that is; `stop` ends it with a status after so many steps."""
    plan = run.plan
    store: Checkpoint | Silent | None = None
    if checkpoint is not None and leads():
        store = Checkpoint(checkpoint, plan.problem, run.identity(), stage, run_id)
    elif checkpoint is not None:
        store = Silent()
    with Bar(plan.steps, progress) as bar, Keyboard() as keyboard:
        course = _Course(run, store, budget, callback, bar, keyboard, stop)
        state, status = course.follow()
    return run.solution(state, status, course.compile_seconds)


def improved(history: History) -> bool:
    """Whether some iterate was better than the network that the run began with."""
    held_out = history.held_out
    return bool(np.any(held_out[1:] < held_out[:1]))


def warn_if_untrained(solution: Solution, plan: Plan) -> None:
    """Say that no iterate was better than the network that the run began with, where enough were tried."""
    held_out = solution.history.held_out
    tried = len(solution.history.loss) >= max(plan.rule.block, 5)
    if plan.keep is Keep.HELD_OUT and solution.status.successful and tried:
        warnings.warn(
            "Training made nothing better: the held-out loss began at "
            f"{held_out[0]:.3g} and ended at {held_out[-1]:.3g}, so the initial network is returned. "
            "Lower the learning rate; if the equation is not monotone, try "
            "rule=qpde.DeepGalerkin() (--rule deep-galerkin).",
            stacklevel=4,
        )


@compiled
def _held_out_sample(
    measure: AbstractMeasure, key: PRNGKeyArray, edge: bool, dtype: str
) -> tuple[Any, ...]:
    """Points inside, their weights, and points on the boundary where these are asked for."""
    count = fitting(_HELD_OUT_POINTS, measure.domain.dim)
    points, weights = cast(measure.sample(key, count, dtype), dtype)
    if not edge:
        return points, weights, None
    edge_key = jr.fold_in(key, 1)
    edge_points = measure.domain.sample_boundary(edge_key, count, dtype)
    return points, weights, edge_points.astype(dtype)


class _Start:
    """The trial function before there is a network: what a network may be fitted to."""

    def __init__(self, trial: Trial, measure: AbstractMeasure):
        self._trial = cast(trial.with_network(Constant(0.0)), "float64")
        self._measure = measure

    def residual(self) -> Callable[[Array], Array]:
        """`L f` as a function of one point."""
        return self._trial.residual

    def points(self, key: PRNGKeyArray, count: int) -> Float[Array, "n d"]:
        """Points of the law that will train the network."""
        return drawn_by(self._measure, key, count)[0]


class Run:
    """The parts of a run that stay the same from its first step to its last, in its precision."""

    def __init__(self, plan: Plan, *, began: float | None = None):
        self.began = time.perf_counter() if began is None else began
        network_key, rule_key, self._key, held_key = keys_from(plan.seed, 4)
        source = plan.network if plan.initial is None else plan.initial.trial.network
        field = as_network_field(source, plan.problem.domain, key=network_key, dtype=plan.precision)
        trial = Trial.of(plan.problem, field, exact_boundary=plan.rule.exact_boundary)
        if isinstance(source, AbstractNetwork):
            start = _Start(trial, plan.measure)
            field = source.adapt(field, start, key=jr.fold_in(network_key, 1))
        self.plan = plan
        self._rule, self._measure = cast((plan.rule, plan.measure), plan.precision)
        self.trial = cast(trial.with_network(field), plan.precision)
        params, _ = trainable(self.trial.network)
        # The numbers that are not trained stay as they are in the solution, whatever the run's precision is.
        self._rest = trainable(field)[1]
        self.start = Loop.start(params, self._rule.init(self.trial, rule_key), plan.precision)
        steps = max(plan.steps, 1)
        dim = plan.problem.dim
        self._known: dict[Any, int | None] = {}
        self._chunk = chunk_size(plan.batch, steps, dim, whole_batch=plan.rule.whole_batch)
        edge = not plan.rule.exact_boundary
        self._sample = _held_out_sample(self._measure, held_key, edge, plan.precision)

    def identity(self) -> dict[str, Any]:
        """The values that decide the bits of the run, in plain form, the problem left out."""
        plan, network = self.plan, self.trial.network
        point = jax.ShapeDtypeStruct((plan.problem.dim,), plan.precision)
        # As a program, because two functions of the user's may have the same name.
        program = identity_of(network.value, point)
        structure = (program.structure, program.literals)
        return plan.identity() | {"network": digest((plan.network, structure))}

    def compile(self) -> None:
        """Compile the programs of the run, side by side where there is more than one core."""
        state = self.begin()
        held_out = Background(functools.partial(self.check, state))
        self.advance(state, 0)
        held_out.wait()

    def begin(self) -> Snapshot:
        """The state before the first step."""
        return Snapshot(self.start, np.zeros((0, 3)), np.zeros((0, 2)), 0.0)

    def batch_factor(self, state: Snapshot) -> int:
        """By how much the batch of the next block is multiplied."""
        return self._rule.batch_factor(state.loop.state)

    def settled(self, state: Snapshot) -> bool:
        """Whether the rule says that the run has come to its end."""
        return self._rule.settled(state.loop.state)

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
        plan, step = self.plan, int(loop.step)
        factor, (chunk, single) = self._rule.batch_factor(loop.state), self._chunk
        sizes = np.ones(plan.rule.block, np.int32)
        sizes[:count] = factor * batch_sizes(plan.batch, step, step + count, plan.steps)
        blocks = block if here() is None else functools.partial(block_together, self._known)
        return blocks(
            self._rule,
            self._measure,
            self.trial,
            loop,
            self._key,
            sizes,
            np.asarray(count, np.int32),
            np.asarray(max(plan.steps, 1), np.int32),
            np.asarray(plan.tolerance, np.float64),
            (factor * chunk, single),
            plan.keep is Keep.BEST_BATCH,
        )

    def check(self, state: Snapshot) -> Snapshot:
        """Note the held-out loss, and the best iterate where it is chosen by that."""
        loop = state.loop
        held_out = held_out_loss(self._rule, self.trial, loop.params, self._sample)
        if self.plan.keep is Keep.HELD_OUT and float(held_out) < float(loop.best_error):
            loop = dataclasses.replace(loop, best=loop.params, best_error=held_out)
        checks = np.concatenate([state.checks, [[int(loop.step), float(held_out)]]])
        return dataclasses.replace(state, loop=loop, checks=checks)

    def solution(self, state: Snapshot, status: Status, compile_seconds: float) -> Solution:
        """What the run returns."""
        plan, loop = self.plan, state.loop
        unknown = not np.isfinite(loop.best_error)
        last = plan.keep is Keep.LAST or status is Status.TOLERANCE or unknown
        chosen = loop.params if last else loop.best
        loss, gradient, truncated = state.rows.T
        step, held_out = state.checks.T
        network = eqx.combine(chosen, self._rest)
        trial = Trial.of(plan.problem, network, exact_boundary=plan.rule.exact_boundary)
        return Solution(
            problem=plan.problem,
            trial=trial,
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
    """Whether the last `patience` checks have not made the loss smaller by a tenth."""
    if not patience or len(held_out) <= patience:
        return False
    before, last = held_out[:-patience], held_out[-patience:]
    return not np.nanmin(last) < 0.9 * np.nanmin(before)


def _handed(found: Snapshot | None, run: Run) -> Snapshot | None:
    """What process 0 has read, for all processes."""
    place = here()
    if place is None or place.count == 1:
        return found
    state = run.begin() if found is None else found
    there, rows, checks, seconds = (
        agreed(float(n))
        for n in (found is not None, len(state.rows), len(state.checks), state.seconds)
    )
    if not there:
        return None
    if not place.leads:
        rows, checks = np.zeros((int(rows), 3)), np.zeros((int(checks), 2))
        state = Snapshot(state.loop, rows, checks, 0.0)
    arrays, rest = eqx.partition((state.loop, state.rows, state.checks), eqx.is_array)
    loop, rows, checks = eqx.combine(handed(arrays), rest)
    loop = jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, loop)
    return Snapshot(loop, np.asarray(rows), np.asarray(checks), seconds)


class _Course:
    """The way of a run from its first block to its last: blocks, clock, keyboard and checkpoints.

    Between blocks Python looks at the clock, the keyboard and the held-out loss. The length of a block is
    the rule's, because the clock must not steer a run.
    """

    def __init__(
        self,
        run: Run,
        store: Checkpoint | Silent | None,
        budget: float,
        callback: Callback | None,
        bar: Bar,
        keyboard: Keyboard,
        stop: tuple[int, Status] | None,
    ):
        self._run, self._plan, self._store = run, run.plan, store
        self._last, self._stopped = (run.plan.steps, None) if stop is None else stop
        self._budget, self._callback = budget, callback
        self._bar, self._keyboard = bar, keyboard
        self._compiled, self._waited = run.began, 0.0
        self._before = 0.0  # seconds of training before this process
        self._pace = float("inf")  # seconds a step
        self._factor = 1

    @property
    def compile_seconds(self) -> float:
        """Seconds before the first step, and those of compiling for larger batches later."""
        return self._compiled - self._run.began + self._waited

    def follow(self) -> tuple[Snapshot, Status]:
        """The last state of the run, and how it ended."""
        state = self._begin()
        if self._store is not None:
            self._keyboard.arm()
        status = self._judge(state, None) or self._stop(state)
        try:
            while status is None:
                if agreed(self._keyboard.seen):
                    raise KeyboardInterrupt
                state, checked = self._advance(state)
                if checked:
                    status = self._judge(state, self._callback)
                status = status or self._stop(state)
                if self._store is not None and agreed(self._store.due):
                    self._store.write(state)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if self._store is not None:
            self._store.write(state)
        return state, status

    def _begin(self) -> Snapshot:
        """The state to start from, new or from a checkpoint; everything is compiled on the way."""
        found = (
            None if self._store is None else _handed(self._store.read(self._run.start), self._run)
        )
        state = self._run.begin() if found is None else found
        if int(state.loop.step) < min(self._plan.steps, self._last):
            self._run.compile()
        state = self._run.check(state) if found is None else state
        self._before, self._compiled = state.seconds, time.perf_counter()
        self._factor = self._run.batch_factor(state)
        return state

    def _advance(self, state: Snapshot) -> tuple[Snapshot, bool]:
        """One more block, and whether it was checked on held-out points: one cut short is not."""
        plan, step, length = self._plan, int(state.loop.step), self._plan.rule.block
        count = min(length - step % length, min(plan.steps, self._last) - step)
        if self._store is not None:
            # Shorter, where a whole block would leave too long a gap between checkpoints.
            count = min(count, max(1, int(0.5 * INTERVAL / agreed(self._pace))))
        began = time.perf_counter()
        if self._factor != (factor := self._run.batch_factor(state)):
            self._run.advance(state, 0)  # compiles for a batch of another size
            self._factor = factor
            self._waited += time.perf_counter() - began
            began = time.perf_counter()
        moved = self._run.advance(state, count)
        step, now = int(moved.loop.step), time.perf_counter()
        self._pace = (now - began) / count
        seconds = agreed(self._before + now - self._compiled - self._waited)
        moved = dataclasses.replace(moved, seconds=seconds)
        whole = step % length == 0 or step >= plan.steps or int(moved.loop.end) != 0
        return (self._run.check(moved) if whole else moved), whole

    def _stop(self, state: Snapshot) -> Status | None:
        """How a run ends that was asked for so many steps, once they are done."""
        return self._stopped if int(state.loop.step) >= self._last else None

    def _judge(self, state: Snapshot, callback: Callback | None) -> Status | None:
        """How the run ends here, or None where it goes on."""
        step = int(state.loop.step)
        loss = float(state.rows[-1, 0]) if step else float("nan")
        self._bar.update(step, loss, state.seconds)
        end = ENDS[int(state.loop.end)]
        if end is not None:
            return end
        seen = Progress(step, loss, float(state.checks[-1, 1]), state.seconds)
        if callback is not None and agreed(leads() and bool(callback(seen))):
            return Status.STOPPED
        if step >= self._plan.steps:
            return Status.FINISHED
        if _settled(state.checks[:, 1], self._plan.patience) or self._run.settled(state):
            return Status.SETTLED
        return Status.BUDGET if state.seconds >= self._budget else None
