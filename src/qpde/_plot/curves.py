"""Curves of the loss during training."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._arguments import flag, shown
from .._problem.problem import Problem
from .._problem.solution import Solution, Stage
from .._text import for_figure
from .style import COMPUTED, CYCLE, QUIET, finish, new_axes
from .words import boundary_note, checked, title


def history(solution: Solution, ax: Any = None) -> Any:
    """The loss during training, on every minibatch and on the held-out points.

        >>> ax = history(solution)

    It is drawn against steps; for a run of several stages, whose steps differ in length, against seconds.
    """
    past = checked(solution).history
    ax = new_axes(ax)
    many, staged = len(past.loss) > 5_000, len(solution.stages) > 1
    steps, checks = np.arange(len(past.loss)), past.checked_step
    if staged:
        steps, checks = _seconds(solution, steps), _seconds(solution, checks)
    ax.plot(steps, past.loss, color=QUIET, lw=0.6, label="minibatch", rasterized=many)
    style = {"color": COMPUTED, "marker": "" if many else "o", "ms": 3}
    ax.plot(checks, past.held_out, label="held-out points" + boundary_note(solution), **style)
    label = "training time (s)" if staged else "step"
    ax.set(xlabel=label, ylabel=r"mean of $(\mathcal{L} Q)^2$", yscale="log")
    if staged:
        _mark_stages(ax, _stepping(solution))
    return finish(ax, title(solution))


def _mark_stages(ax: Any, stages: Sequence[Stage]) -> None:
    """Draw a dotted line where each stage begins, and its name upright: a short stage has no room for it."""
    place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    start, upright = 0.0, {"rotation": 90, "va": "bottom"}
    for stage in stages:
        ax.axvline(start, color=QUIET, lw=0.8, ls=":")
        ax.annotate(stage.name, (start, 0.02), xytext=(3, 0), color=QUIET, **place, **upright)
        start += stage.seconds


def _stepping(solution: Solution) -> list[Stage]:
    """The stages that took steps; the solve for the output layer takes none."""
    return [stage for stage in solution.stages if stage.steps]


def _seconds(solution: Solution, steps: np.ndarray) -> np.ndarray:
    """The seconds of training after each number of steps.

    The history keeps no clock: within a stage, every step counts as equally long.
    """
    stages = _stepping(solution)
    if not stages:
        return steps * solution.seconds / max(solution.steps, 1)
    ends = np.cumsum([0, *(stage.steps for stage in stages)])
    return np.interp(steps, ends, np.cumsum([0.0, *(stage.seconds for stage in stages)]))


def _problem(solution: Any) -> Problem:
    return checked(solution).problem


def compare(solutions: Sequence[Solution], ax: Any = None, *, seconds: bool = False) -> Any:
    """The held-out loss of several solutions of one problem, against steps or seconds of training.

    >>> ax = compare([solve(problem), solve(problem, rule=DeepGalerkin())], seconds=True)
    """
    flag("seconds", seconds)
    if not isinstance(solutions, Sequence) or isinstance(solutions, str | bytes):
        raise ValueError(
            f"compare takes a list of solutions such as [solution], got {shown(solutions)}."
        )
    problems = sorted({f"{for_figure(p.name)}, d = {p.dim}" for p in map(_problem, solutions)})
    if len(problems) != 1:
        got = "; ".join(problems) or "no solution"
        raise ValueError(f"Losses are compared between solutions of one problem, got {got}.")
    ax = new_axes(ax)
    rules = [solution.rule for solution in solutions]
    for i, solution in enumerate(solutions):
        seed = f", seed {solution.seed}" if rules.count(solution.rule) > 1 else ""
        label = solution.rule + seed + boundary_note(solution)
        style = {"color": CYCLE[i % len(CYCLE)], "ls": ("-", "--", "-.", ":")[i % 4]}
        x, y = solution.history.checked_step, solution.history.held_out
        x = _seconds(solution, x) if seconds else x
        ax.plot(x, y, lw=1.5, label=label, **style)
    label = "training time (s)" if seconds else "step"
    ax.set(xlabel=label, ylabel=r"held-out mean of $(\mathcal{L} Q)^2$", yscale="log")
    return finish(ax, problems[0])
