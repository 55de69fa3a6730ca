"""The stages of a run whose caller asked for nothing.

A short Q-learning run in float32 brings a network near the solution (its steps are cheap); a second-order
rule in float64 takes over and stops when the held-out loss stops falling; where the equation is linear the
output layer is then solved for. A solution to go on from is near already: the first stage is left out. The
problem, the seed and held-out losses decide between stages; the clock may end a stage, never choose one.
"""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._compiled import compiled
from .._control.control import Control
from .._equation.choices import chooses
from .._network.shallow import Shallow
from .._precision import as_called, cast, key_from, x64
from .._problem.measure import AbstractMeasure
from .._problem.problem import Problem
from .._problem.solution import History, Solution, Stage
from .._problem.trial import Trial
from .._rule.first_order import QLearning
from .._rule.gauss_newton import GaussNewton
from .._status import Status
from .._train.background import Background
from .._train.checkpoint import holding
from .._train.memory import make_room
from .._train.plan import Plan, Progress, checked_budget, make_plan
from .._train.polish import MANY, is_quickly_polished, polished
from .._train.run import Run, improved, train, warn_if_untrained
from .accuracy import Looks
from .growth import Course, attempts, best_of
from .pointwise import PointGoal, PointLooks
from .verdict import verdict_of

# Seconds of training, where the caller names neither a rule nor steps nor a budget.
BUDGET = 30.0
# Whether networks of fixed units are tried too.
GROWS = True
# Blocks without progress after which the second-order stage ends.
_PATIENCE = 8
# Hidden units in tens of thousands of dimensions, all along gradients of the equation.
_UNITS = 32
# Points on which a new solution is compared with the one it began with.
_FRESH = 8_192
# Where a run is to end: after so many steps of all stages, or each stage after so many with a status.
Stops = int | Sequence[tuple[int, Status]] | None


def choose_stages(problem: Problem, given: dict[str, Any]) -> list[Plan]:
    """The plans of the stages; `given` holds the options that the caller did name."""
    given = dict(given)
    if "initial" in given:
        return [_finish(problem, given)]
    if problem.dim > MANY:
        return [_few_points(problem, given)]
    # On a line the network of the stages does as well, unless second derivatives jump.
    grows = GROWS and "network" not in given and (problem.dim > 1 or chooses(problem.operator))
    if "network" not in given:
        width = 64 if problem.dim == 1 else 256
        given["network"] = Shallow(
            width,
            polynomial=True,
            beta=0.5,
            amplitude=width**-0.5,
            aligned=0.5,
            axes=0.0 if problem.dim == 1 else 0.25,
        )
    if problem.order == 4 or _chooses_diffusion(problem):
        # First-order steps are for conditions that are not squared, and for residuals that are not huge:
        # where the action enters sigma there may be no best one far from the solution.
        return [_finish(problem, given)]
    warm = make_plan(problem, rule=QLearning(0.01), steps=500, batch=1_000, grows=grows, **given)
    given.pop("network", None)
    # The network of the first stage is put in when it is there.
    return [warm, _finish(problem, given)]


def _chooses_diffusion(problem: Problem) -> bool:
    """Whether it is a control problem whose action enters the diffusion."""
    control = problem.equation
    return isinstance(control, Control) and control.form(jnp.asarray(problem.domain.centre)).spread


def _finish(problem: Problem, given: dict[str, Any]) -> Plan:
    """The plan of the second-order stage."""
    size = _sample_size(problem.dim)
    return make_plan(
        problem, rule=GaussNewton(), steps=400, batch=size, patience=_PATIENCE, **given
    )


def _few_points(problem: Problem, given: dict[str, Any]) -> Plan:
    """The plan in tens of thousands of dimensions: a start, whose output layer is then solved for.

    `L Q` at a point is one number, and steps on fewer points than dimensions do not find a direction. The
    gradient of `L f` at a point is one already.
    """
    given.setdefault("network", Shallow(_UNITS, aligned=1.0))
    return make_plan(problem, rule=QLearning(), steps=0, batch=_UNITS, patience=1, **given)


def are_chosen(plans: list[Plan]) -> bool:
    """Whether the stages were chosen for the problem: only such plans end by patience."""
    return plans[-1].patience > 0


def _sample_size(dim: int) -> int:
    """Points of a Gauss-Newton step: 1,000; 300 on a line; fewer in so many dimensions that memory fills."""
    return 300 if dim == 1 else int(np.clip(2e7 / dim, 200, 1_000))


def follow_plans(
    plans: list[Plan],
    budget: float | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
    *,
    run_id: str | None = None,
    stops: Stops = None,
) -> Solution:
    """Do the planned stages one after the other; a stage that ends the run is the last.

    What the caller had chosen, one rule, is returned as that rule left it. Where the stages were chosen for
    the problem, the solution has its score, and is no worse than the one that the run began with. Either
    has its verdict. `stops` ends stages after so many steps (see `Stops`); the files of the run carry
    `run_id`.
    """
    chosen = are_chosen(plans)
    goal = plans[0].goal
    usual = BUDGET if chosen and goal is None else None
    allowed = checked_budget(usual if budget is None else budget)
    looks = _looks(plans[0], progress)
    watch = None if callback is None else as_called(callback)
    make_room(plans[0].problem)
    with x64(), holding(checkpoint):
        train_stage = functools.partial(
            train, callback=watch, checkpoint=checkpoint, run_id=run_id, progress=progress
        )
        done = _follow(plans, allowed, train_stage, stops, looks)
        if not any(improved(solution.history) for solution in done):
            warn_if_untrained(done[-1], plans[len(done) - 1])
        if isinstance(looks, PointLooks):
            return _at_points(done, looks, allowed)
        solution = done[0]
        if looks is not None and looks.outcome().met:
            solution = _accurate(done)
        elif chosen:
            solution = _better(_finished(plans, done), plans[0])
        if chosen:
            solution = solution.with_score(solution.score)
        if looks is not None:
            solution = solution.with_accuracy(looks.outcome())
        return solution.with_verdict(verdict_of(solution))


def _looks(plan: Plan, progress: bool) -> Looks | PointLooks | None:
    """The looks of a run that has a goal."""
    if isinstance(plan.goal, PointGoal):
        return PointLooks(plan.goal, plan.problem, plan.seed, progress)
    return None if plan.goal is None else Looks(plan.goal)


def _at_points(done: list[Solution], looks: PointLooks, allowed: float) -> Solution:
    """The best network, and the values that walks have found with it; what is left is walked now."""
    if done[-1].status is not Status.INTERRUPTED:
        looks.close(allowed - sum(solution.seconds for solution in done) - looks.seconds)
    best = best_of(done)[0]
    if looks.reached:
        best = dataclasses.replace(best, status=Status.ACCURATE)
    walks = Stage("walks", 0, looks.seconds, 0.0, looks.reached)
    stages = (*(_stage(solution) for solution in done), walks)
    solution = _joined(done, best, stages).with_estimate(looks.estimate)
    solution = solution.with_accuracy(looks.outcome())
    # The network of a goal that was reached is a control variate, and not judged as a solution.
    return solution if looks.reached else solution.with_verdict(verdict_of(solution))


def _accurate(done: list[Solution]) -> Solution:
    """The solution that the last look has certified, as it is."""
    best = dataclasses.replace(best_of(done)[0], status=Status.ACCURATE)
    return _joined(done, best, tuple(_stage(solution) for solution in done))


def _follow(
    plans: list[Plan],
    budget: float,
    train_stage: Callable[..., Solution],
    stops: Stops,
    looks: Looks | PointLooks | None,
) -> list[Solution]:
    """The solutions of the stages of a run."""
    done: list[Solution] = []
    ahead: Background | None = None
    course = attempts(plans) if plans[0].grows else _one_by_one(plans)
    plan = next(course)
    while plan is not None:
        began = time.perf_counter()
        if ahead is not None:
            ahead.wait()
        run, ahead = Run(plan, began=began), None
        if plan is plans[0] and len(plans) > 1:
            ahead = Background(functools.partial(_compile_next, run, plans[1]))
        left = budget - sum(solution.seconds for solution in done)
        number = len(done) + 1
        if number == 1 and isinstance(looks, PointLooks) and looks.met_at_once():
            return [train_stage(run, budget=left, stage=1, stop=(0, Status.ACCURATE))]
        done.append(train_stage(run, budget=left, stage=number, stop=_stop(stops, done)))
        if looks is not None and done[-1].status.successful:
            best, loss = best_of(done)
            if looks.met(best, loss, sum(solution.seconds for solution in done)):
                break
        if done[-1].status not in (Status.FINISHED, Status.SETTLED):
            break
        if not isinstance(stops, int | None) and len(done) == len(stops):
            break
        try:
            plan = course.send(done[-1])
        except StopIteration:
            break
    return done


def _one_by_one(plans: list[Plan]) -> Course:
    """The plans, each begun with the network of the one before."""
    solution = yield plans[0]
    for plan in plans[1:]:
        solution = yield dataclasses.replace(plan, initial=solution, network=None)


def _stop(stops: Stops, done: list[Solution]) -> tuple[int, Status] | None:
    """Where the next stage ends."""
    if isinstance(stops, int):
        return max(stops - sum(solution.steps for solution in done), 0), Status.BUDGET
    return None if stops is None else stops[len(done)]


def _finished(plans: list[Plan], done: list[Solution]) -> Solution:
    """The best solution, its output layer solved for where the equation is linear."""
    last = best_of(done)[0] if plans[0].grows else done[-1]
    # A start without steps is no stage of its own.
    stages = [_stage(solution) for solution in done[plans[0].steps == 0 :]]
    ended = done[-1].status in (Status.FINISHED, Status.SETTLED, Status.BUDGET)
    through = plans[0].grows or len(done) == len(plans)
    if ended and through and is_quickly_polished(last):
        began = time.perf_counter()
        better = polished(last)
        seconds = time.perf_counter() - began
        stages.append(Stage("output layer", 0, seconds, 0.0, better is not None))
        if better is not None:
            last = dataclasses.replace(last, trial=better, precision="float64")
    last = dataclasses.replace(last, status=done[-1].status)
    return _joined(done, last, tuple(stages))


def _better(found: Solution, plan: Plan) -> Solution:
    """What was found, or what the run began with where fresh points do not prefer the new one."""
    if plan.initial is None:
        return found
    before = plan.initial.trial
    trial = Trial.of(plan.problem, before.network, exact_boundary=before.exact_boundary)
    key = key_from(plan.seed, 0xBE77E2)
    new, old = (float(_loss(cast(t, "float64"), plan.measure, key)) for t in (found.trial, trial))
    if new < old:
        return found
    stages = tuple(dataclasses.replace(stage, kept=False) for stage in found.stages)
    status = Status.NOTHING_BETTER if found.status.successful else found.status
    precision = plan.initial.precision
    return dataclasses.replace(
        found, trial=trial, status=status, precision=precision, stages=stages
    )


@compiled
def _loss(trial: Trial, measure: AbstractMeasure, key: PRNGKeyArray) -> Array:
    """The mean of `(L Q)^2` at fresh points, and of `(Q - f)^2` on the boundary where that is soft."""
    points, weights = measure.sample(key, _FRESH)
    loss = jnp.mean(weights * jax.vmap(trial.residual)(points) ** 2)
    if trial.exact_boundary:
        return loss
    edge = measure.domain.sample_boundary(jr.fold_in(key, 1), _FRESH)
    return loss + jnp.mean(
        (jax.vmap(trial.value)(edge) - jax.vmap(trial.boundary.value)(edge)) ** 2
    )


def _compile_next(run: Run, plan: Plan) -> None:
    """Compile the programs of the stage after `run` while that still trains; only its shapes matter."""
    start = run.solution(run.begin(), Status.FINISHED, 0.0)
    Run(dataclasses.replace(plan, initial=start, network=None)).compile()


def _stage(solution: Solution) -> Stage:
    return Stage(solution.rule, solution.steps, solution.seconds, solution.compile_seconds, True)


def _joined(done: list[Solution], last: Solution, stages: tuple[Stage, ...]) -> Solution:
    """One solution with the history of all stages."""
    histories = [solution.history for solution in done]
    offsets = np.cumsum([0] + [solution.steps for solution in done])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(history, name) for history in histories])

    checked = [history.checked_step + o for history, o in zip(histories, offsets, strict=False)]
    return dataclasses.replace(
        last,
        history=History(
            joined("loss"),
            joined("gradient"),
            joined("truncated"),
            np.concatenate(checked),
            joined("held_out"),
        ),
        steps=int(offsets[-1]),
        seconds=sum(stage.seconds for stage in stages),
        compile_seconds=sum(stage.compile_seconds for stage in stages),
        rule="stages",
        stages=stages,
    )
