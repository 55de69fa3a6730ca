"""`solve`: one rule for a number of steps or, where the caller asks for nothing, stages without tuning."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

from .._arguments import Nothing, a_function, an_instance, flag, no_others, shown
from .._precision import x64
from .._problem.measure import AbstractMeasure
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._rule.base import AbstractRule
from .._status import Interrupted, SolveError, Status
from .._train.plan import Keep, Plan, Progress, checked_budget, make_plan
from .accuracy import Goal
from .pointwise import PointGoal
from .stages import choose_stages, follow_plans


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
    accuracy: float | None = None,
    norm: str | None = None,
    at: Any = None,
    keep: Keep | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    precision: str | None = None,
    progress: bool = True,
    throw: bool = True,
    **unknown: Nothing,
) -> Solution:
    """Solve a problem by training a network.

        >>> solution = solve(zoo.survival(20))
        >>> solution(np.zeros(20))

    With neither `rule` nor `steps` the stages are chosen for the problem: a short Q-learning run,
    Gauss-Newton steps until the loss on held-out points stops falling, and for linear equations the output
    layer solved for. `solution.stages` tells what was done, and `solution.verdict` whether the problem is
    solved.

    **Arguments**

    - `network`: `Shallow`, `MLP`, or any `eqx.Module` from a point to a scalar. All its floating-point
      arrays are trained, except those wrapped in `qpde.Frozen`.
    - `rule`: `QLearning` (where only `steps` is given), `DeepGalerkin`, `Penalty`, `GaussNewton` or
      `ImplicitQLearning`.
    - `steps`: the largest number of steps; by default the rule's own, 5,000 or, of second order, 50.
    - `batch`: points a step, a number or a schedule such as `Ramp(2_000, 10_000)`; 1,000 by default.
    - `tolerance`: stop when the mean of `psi(L Q)^2` over a batch is below this.
    - `measure`: the law of the points; uniform by default.
    - `initial`: a solution whose network is trained further. With neither `rule` nor `steps` this is done
      by Gauss-Newton steps in float64, and where fresh points find nothing better `initial` comes back.
    - `budget`: seconds of training (compiling not counted, those before a checkpoint counted) after
      which the run stops; it never changes what a step does. 30 where the stages are chosen for you,
      otherwise none.
    - `accuracy`: go on until a certificate (see `certify`) bounds the relative error by this: status
      `ACCURATE`. `solution.accuracy` tells the bound or, where it was not reached, what limits it. Without
      a `budget` the run ends when nothing brings it further.
    - `norm`: of that error, `"l2"` (default) or `"sup"`; of an evolution problem also `"last"`, and in the
      whole space `"value"`, at the start.
    - `at`: points `(n, d)` whose values are all that is wanted, to `accuracy` of their root mean square. The
      equation is linear; the network is trained only as far as random walks need it, and
      `solution.estimate` has the values with 95 % intervals.
    - `keep`: which iterate is returned.
    - `callback`: called with a `Progress` after every 100 steps (every step of a second-order rule);
      returning `True` stops the run.
    - `checkpoint`: a folder. The state of the run is kept there, at least every 10 seconds; the same
      call goes on from it after any kind of end, with the same bits as an undisturbed run.
    - `seed`: the same seed gives the same bits on the same machine.
    - `precision`: `"float32"` or `"float64"`; by default the rule's own.
    - `progress`: show a bar on a terminal.
    - `throw`: raise `SolveError` (with `.solution`) after a numerical failure. With `False` the
      status of the returned solution says what happened.
    """
    no_others("solve", unknown, "network, rule, steps, budget, seed and more: help(qpde.solve)")
    _check_calls(callback, checkpoint, progress, throw)
    options = {"network": network, "measure": measure, "initial": initial, "seed": seed}
    options |= {"accuracy": accuracy, "norm": norm, "at": at}
    own = {"batch": batch, "tolerance": tolerance, "keep": keep, "precision": precision}
    plans = plan_solve(problem, rule=rule, steps=steps, **options, **own)
    solution = follow_plans(plans, budget, callback, checkpoint, progress)
    if throw and not solution.status.successful:
        raise (Interrupted if solution.status is Status.INTERRUPTED else SolveError)(solution)
    return solution


def _check_calls(callback: Any, checkpoint: Any, progress: Any, throw: Any) -> None:
    if callback is not None:
        a_function("callback", callback, "a function of a qpde.Progress")
    if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(f"checkpoint must be a folder, got {shown(checkpoint)}.")
    flag("progress", progress)
    flag("throw", throw)


def plan_solve(
    problem: Problem,
    *,
    rule: AbstractRule | None = None,
    steps: int | None = None,
    budget: float | None = None,
    accuracy: float | None = None,
    norm: str | None = None,
    at: Any = None,
    **options: Any,
) -> list[Plan]:
    """The checked plans of a run, one a stage; wrong options raise."""
    an_instance("problem", problem, Problem, "qpde.Problem(domain, equation)")
    checked_budget(budget)
    given = {name: value for name, value in options.items() if value is not None}
    goal = _goal(problem, accuracy, norm, at)
    if goal is not None and (rule is not None or steps is not None):
        raise ValueError(
            "accuracy= chooses the stages itself: leave rule= and steps= out, or ask qpde.certify "
            "what a run of one rule has reached."
        )
    if rule is not None or steps is not None:
        return [make_plan(problem, rule=rule, steps=steps, **given)]
    named = [name for name in ("batch", "tolerance", "keep", "precision") if name in given]
    if named:
        raise ValueError(
            f"{named[0]} belongs to a rule; give rule= or steps= too. Without them the stages are "
            "chosen for the problem."
        )
    first, *others = choose_stages(problem, given)
    return [dataclasses.replace(first, goal=goal), *others]


def _goal(problem: Problem, accuracy: Any, norm: Any, at: Any) -> Goal | PointGoal | None:
    """What ends the run, besides its budget."""
    if accuracy is None:
        for name, value in (("norm", norm), ("at", at)):
            if value is not None:
                raise ValueError(f"{name} says what an accuracy is of: give accuracy= too.")
        return None
    if at is None:
        usual = "value" if problem.domain.follows_paths else "l2"
        return Goal.of(accuracy, norm or usual, problem)
    if norm is not None:
        raise ValueError(
            "norm is of an error over the domain, at= of one at points: give one of them."
        )
    with x64():
        return PointGoal.of(accuracy, at, problem)
