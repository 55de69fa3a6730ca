"""How small the error gets, and how soon: every problem of the zoo with a target, several budgets and seeds.

A run with a small budget is the beginning of one with a larger budget, bit for bit, so each budget goes on
from the checkpoint of the last. Errors are taken in the metric of each target's source.
"""

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .._files.whole import write_text
from .._plot.style import figure_of, headless, write_figure
from .._problem.problem import Problem
from .._rule.base import AbstractRule
from .._runs.run_folder import make_folder, write_study
from .._solve.solve import solve
from ..zoo import TARGETS, Target
from . import _rivals
from ._accuracy_page import draw, markdown
from ._accuracy_runs import (
    ALONE,
    ALONE_BUDGET,
    ALONE_STEPS,
    ScoredRun,
    build,
    error_of,
    error_points,
    reference_values,
    scored_run,
    training_law,
)
from ._accuracy_summary import summary
from ._machine import machine, today, versions

BUDGETS = (10.0, 60.0, 300.0)
_QUICK_CASES = ("survival:1", "survival:20", "cube_norm:100", "mean_ridge:100", "american_put:1")
_NAME = "accuracy"
_RESULT, _PARTIAL = f"{_NAME}.json", f"{_NAME}.partial.json"
_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")
_QUIET: dict[str, Any] = {"progress": False, "throw": False}


@dataclasses.dataclass(frozen=True)
class Extent:
    """The runs that are done for each target."""

    budgets: Sequence[float] = BUDGETS
    seeds: int = 3
    alone: bool = True  # also Q-learning and deep Galerkin alone
    peers: bool = True  # also DeepXDE


QUICK = Extent((10.0,), seeds=1, alone=False, peers=False)


def cases(only: str | None, *, quick: bool) -> list[Target]:
    """The targets that `only` names (such as `survival` or `survival:20`, with commas between), or all.

    A problem with several targets is run once, for the first of them. `quick` names five problems.
    """
    first: dict[tuple[str, int], Target] = {}
    for target in TARGETS:
        first.setdefault((target.problem, target.dim), target)
    if only is None and not quick:
        return list(first.values())
    names = list(_QUICK_CASES) if only is None else [name.strip() for name in only.split(",")]
    found = []
    for name in names:
        problem, _, dim = name.partition(":")
        matching = [t for (p, d), t in first.items() if p == problem and dim in ("", str(d))]
        if not matching:
            known = sorted({t.problem for t in first.values()})
            raise ValueError(f"There is no target for {name!r}. There are: {', '.join(known)}.")
        found += matching
    return found


def study(
    targets: Sequence[Target],
    extent: Extent,
    *,
    folder: Path | None = None,
    resume: bool = False,
    note: Callable[[str], Any] = lambda _: None,
) -> dict[str, Any]:
    """Do the runs of every target, and sum them up.

    A `folder` keeps the runs on the way, so that a study that was stopped loses none; `resume` does only the
    runs that the folder does not have. `note` is told of every run before it begins.
    """
    if folder is not None:
        make_folder(folder)
    runs = _kept_runs(folder) if resume and folder is not None else []
    for target in targets:
        for new in _missing_runs(target, extent, tuple(runs), note):
            runs.extend(new)
            if folder is not None:
                write_text(folder / _PARTIAL, json.dumps({"rows": _plain(runs)}))
    about = {"date": today(), "machine": machine(), "versions": versions(*_PACKAGES)}
    return about | {"rows": _plain(runs), "summary": summary(runs)}


def write(folder: Path, result: dict[str, Any]) -> None:
    """Write `accuracy.json`, `RESULTS.md` and `accuracy.png`, in place of the runs kept on the way."""
    headless()
    write_study(folder, _NAME, result, markdown(result), page_name="RESULTS.md")
    write_figure(figure_of(draw(result)), folder / f"{_NAME}.png", dpi=120)
    (folder / _PARTIAL).unlink(missing_ok=True)


def _plain(runs: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(run) for run in runs]


def _kept_runs(folder: Path) -> list[ScoredRun]:
    """The runs that a folder has: of a study that was stopped, or else of one that ended."""
    found = [folder / name for name in (_PARTIAL, _RESULT) if (folder / name).exists()]
    rows = json.loads(found[0].read_text())["rows"] if found else []
    return [ScoredRun(**row) for row in rows]


def _missing_runs(
    target: Target, extent: Extent, done: Sequence[ScoredRun], note: Callable[[str], Any]
) -> Iterator[list[ScoredRun]]:
    """Do the runs of a target that are not `done`, and yield them as they end."""
    problem, here = build(target), (target.problem, target.dim)
    have = {(run.method, run.budget, run.seed) for run in done if (run.problem, run.dim) == here}
    name = f"{target.problem} d={target.dim}"
    for seed in range(extent.seeds):
        if any(("default", budget, seed) not in have for budget in extent.budgets):
            note(f"{name}, default, seed {seed}")
            yield _default(target, problem, extent.budgets, seed)
    for method, rule in ALONE.items() if extent.alone and target.dim <= 1_000 else ():
        if (method, ALONE_BUDGET, 0) not in have:
            note(f"{name}, {method}")
            yield [_single(target, problem, method, rule())]
    if extent.peers and here in _rivals.PROBLEMS and ("deepxde", None, 0) not in have:
        note(f"{name}, DeepXDE")
        yield _beside_deepxde(target, problem)


def _default(
    target: Target, problem: Problem, budgets: Sequence[float], seed: int
) -> list[ScoredRun]:
    """The default of `solve` with every budget, each going on from the last."""
    runs: list[ScoredRun] = []
    with tempfile.TemporaryDirectory() as folder:
        solution, compiling = None, 0.0
        for budget in budgets:
            # A run that ended by itself ends so with every larger budget.
            if solution is None or solution.status.label == "budget":
                options = {
                    "measure": training_law(target, problem),
                    "seed": seed,
                    "checkpoint": folder,
                }
                solution = solve(problem, budget=budget, **options, **_QUIET)
                compiling += (
                    solution.compile_seconds
                )  # programs of the last call are not compiled again
            run = scored_run(target, "default", budget, seed, solution)
            runs.append(dataclasses.replace(run, compile_seconds=compiling))
    return runs


def _single(target: Target, problem: Problem, method: str, rule: AbstractRule) -> ScoredRun:
    """One rule alone."""
    options = {
        "steps": ALONE_STEPS,
        "budget": ALONE_BUDGET,
        "measure": training_law(target, problem),
    }
    solution = solve(problem, rule=rule, **options, **_QUIET)
    return scored_run(target, method, ALONE_BUDGET, 0, solution)


def _beside_deepxde(target: Target, problem: Problem) -> list[ScoredRun]:
    """DeepXDE, and our default with the time that DeepXDE took as its budget."""
    here = (target.problem, target.dim)
    rival = _rivals.run(*here, points=error_points(target, problem))
    error = error_of(target, rival.values, reference_values(target, problem)[0])
    took = (rival.seconds, 0.0, rival.steps, rival.words)
    solution = solve(problem, budget=rival.seconds, **_QUIET)
    return [
        ScoredRun(*here, "deepxde", None, 0, *took, error, None),
        scored_run(target, "default at DeepXDE's time", rival.seconds, 0, solution),
    ]
