"""`solve`: one rule for so many steps, or, where nothing is asked for, stages that need no tuning.

The stages: a short Q-learning run in float32 brings a network near the solution (its steps are cheap);
a second-order rule in float64 takes over and stops when the held-out loss stops falling; where the equation
is linear the output layer is then solved for. What is done depends on the problem, the seed and held-out
losses; the clock may end a stage, never choose one.
"""

import dataclasses
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ._measure import AbstractMeasure
from ._network import Shallow
from ._polish import polish, soon_polished
from ._problem import Problem
from ._rule import AbstractRule, QLearning
from ._second_order import GaussNewton
from ._solution import History, Solution, Stage
from ._status import Interrupted, SolveError, Status
from ._train import Keep, Plan, Progress, checked_budget, make_plan, train

BUDGET = 30.0  # seconds, where neither a rule nor steps are given


def solve(
    problem: Problem,
    *,
    network: Any = None,
    rule: AbstractRule | None = None,
    steps: int | None = None,
    batch: Any = None,
    tolerance: float | None = None,
    measure: AbstractMeasure | None = None,
    initial: Solution | None = None,
    budget: float | None = None,
    keep: Keep | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    precision: str | None = None,
    progress: bool = True,
    throw: bool = True,
) -> Solution:
    """Solve a problem by training a network.

        >>> solution = solve(zoo.survival(20))
        >>> solution(np.zeros(20))

    With neither `rule` nor `steps` the stages are chosen for the problem: a short Q-learning run,
    Gauss-Newton steps until the loss on held-out points stops falling, and for linear equations the output
    layer solved for. `solution.stages` tells what was done.

    **Arguments**

    - `network`: `Shallow`, `MLP`, or any `eqx.Module` from a point to a scalar. All its floating-point
      arrays are trained, except those wrapped in `qpde.Frozen`.
    - `rule`: `QLearning` (where only `steps` is given), `DeepGalerkin`, `Penalty`, `GaussNewton` or
      `ImplicitQLearning`.
    - `steps`: how many steps of the rule are done at most; 5,000 by default, 50 of a second-order rule.
    - `batch`: points a step, a number or a schedule such as `Linear(2_000, 10_000)`; 1,000 by default.
    - `tolerance`: stop when the mean of `psi(L Q)^2` over a batch is below this.
    - `measure`: the law of the points; uniform by default.
    - `initial`: a solution whose network is trained further.
    - `budget`: seconds of training (compiling not counted, those before a checkpoint counted) after
      which the run stops; it never changes what a step does. 30 where the stages are chosen for you,
      otherwise none.
    - `keep`: which iterate is returned.
    - `callback`: called with a `Progress` after every 100 steps (every step of a second-order rule);
      returning `True` stops the run.
    - `checkpoint`: a folder. The state of the run is kept there, at least every 10 seconds; the same
      call goes on from it after any kind of end, with the same bits as an undisturbed run.
    - `seed`: the same seed gives the same bits on the same machine.
    - `precision`: `"float32"` (the default of gradient rules) or `"float64"` (of the others).
    - `progress`: show a bar on a terminal.
    - `throw`: raise `SolveError` (with `.solution`) after a numerical failure. With `False` the
      status of the returned solution says what happened.
    """
    options = {"network": network, "measure": measure, "initial": initial, "seed": seed}
    own = {"batch": batch, "tolerance": tolerance, "keep": keep, "precision": precision}
    plans = plan_solve(problem, rule=rule, steps=steps, **options, **own)
    seconds = checked_budget(BUDGET if budget is None and len(plans) > 1 else budget)
    solution = _follow(plans, seconds, callback, checkpoint, progress)
    if throw and not solution.status.successful:
        raise (Interrupted if solution.status is Status.INTERRUPTED else SolveError)(solution)
    return solution


def plan_solve(
    problem: Problem,
    *,
    rule: AbstractRule | None = None,
    steps: int | None = None,
    budget: float | None = None,
    **options: Any,
) -> list[Plan]:
    """The checked plans of a run, one a stage; wrong options raise."""
    checked_budget(budget)
    given = {name: value for name, value in options.items() if value is not None}
    if rule is None and steps is None:
        named = [name for name in ("batch", "tolerance", "keep", "precision") if name in given]
        if named:
            raise ValueError(
                f"{named[0]} belongs to a rule; give rule= or steps= too. Without them the stages are "
                "chosen for the problem."
            )
        return _stages(problem, given)
    rule = QLearning() if rule is None else rule
    second_order = getattr(rule, "whole", False)
    given.setdefault("precision", "float64" if second_order else "float32")
    default = 50 if second_order else Plan.steps
    return [make_plan(problem, rule=rule, steps=default if steps is None else steps, **given)]


def _stages(problem: Problem, given: dict[str, Any]) -> list[Plan]:
    """What is done where nothing was asked for."""
    given = dict(given)
    if "network" not in given and "initial" not in given:
        width = 64 if problem.dim == 1 else 256
        given["network"] = Shallow(
            width,
            polynomial=True,
            beta=0.5,
            amplitude=width**-0.5,
            aligned=0.5,
            axes=0.0 if problem.dim == 1 else 0.25,
        )
    warm = make_plan(problem, rule=QLearning(0.01), steps=500, batch=1_000, **given)
    given.pop("network", None)
    # The network of the first stage is put in when it is there.
    finish = make_plan(
        problem,
        rule=GaussNewton(),
        steps=400,
        batch=_sample_size(problem.dim),
        patience=8,
        precision="float64",
        **given,
    )
    return [warm, finish]


def _sample_size(dim: int) -> int:
    """Points of a Gauss-Newton step: fewer where one axis is all, and where even they fill the memory."""
    return 300 if dim == 1 else int(np.clip(2e7 / dim, 200, 1_000))


def _follow(
    plans: list[Plan],
    budget: float,
    callback: Callable[[Progress], Any] | None,
    checkpoint: str | os.PathLike[str] | None,
    progress: bool,
) -> Solution:
    """Do the stages one after the other; a stage that ends the run is the last."""
    done: list[Solution] = []
    for number, plan in enumerate(plans, start=1):
        if done:
            plan = dataclasses.replace(plan, initial=done[-1], network=None)
        left = budget - sum(solution.seconds for solution in done)
        done.append(
            train(
                plan,
                budget=left,
                callback=callback,
                checkpoint=checkpoint,
                stage=number,
                progress=progress,
            )
        )
        if done[-1].status not in (Status.FINISHED, Status.SETTLED):
            break
    if len(plans) == 1:
        return done[0]
    last = done[-1]
    stages = [_stage(solution) for solution in done]
    ended = last.status in (Status.FINISHED, Status.SETTLED, Status.BUDGET)
    if ended and len(done) == len(plans) and soon_polished(last):
        began = time.perf_counter()
        better = polish(last)
        seconds = time.perf_counter() - began
        stages.append(Stage("output layer", 0, seconds, 0.0, better is not last))
        last = better
    return _joined(done, last, tuple(stages))


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
