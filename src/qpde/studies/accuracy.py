"""How small the error gets, and how soon: every problem of the zoo with a target, several budgets and seeds.

A run with a small budget is the beginning of one with a larger budget, bit for bit, so each budget goes on
from the checkpoint of the last. Errors are those of the scoreboard's own metric.
"""

import dataclasses
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import zoo
from .._form import fresh
from .._measure import AbstractMeasure, Radial
from .._problem import Problem
from .._round import Ball
from .._rule import AbstractRule, DeepGalerkin, QLearning
from .._solution import Solution
from .._solve import solve
from ..zoo import TARGETS, Target
from . import _rivals
from ._machine import machine, today, versions

BUDGETS = (10.0, 60.0, 300.0)
ALONE = {"q-learning": QLearning, "deep-galerkin": DeepGalerkin}
ALONE_BUDGET = 60.0
# Points of the error, fewer where they would fill the memory.
_POINTS, _NUMBERS = 20_000, 1e8
_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy")
QUICK = ("survival:1", "survival:20", "cube_norm:100", "mean_ridge:100", "american_put:1")


@dataclasses.dataclass(frozen=True)
class Row:
    """One run: a method on a problem with a budget and a seed."""

    problem: str
    dim: int
    method: str
    budget: float | None
    seed: int
    seconds: float
    compile_seconds: float
    steps: int
    status: str
    error: float
    skill: float | None


def cases(only: str | None, *, quick: bool) -> list[Target]:
    """One target a problem, the first where it has several; by names such as `survival` or `survival:20`."""
    first: dict[tuple[str, int], Target] = {}
    for target in TARGETS:
        first.setdefault((target.problem, target.dim), target)
    if only is None and not quick:
        return list(first.values())
    names = list(QUICK) if only is None else [name.strip() for name in only.split(",")]
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
    *,
    budgets: Sequence[float] = BUDGETS,
    seeds: int = 3,
    alone: bool = True,
    peers: bool = True,
    done: Sequence[Row] = (),
    note: Callable[[str], Any] = lambda _: None,
    keep: Callable[[list[Row]], Any] = lambda _: None,
) -> dict[str, Any]:
    """Run what is not in `done`, call `keep` with all rows after every one, and sum up."""
    rows = list(done)
    have = {(row.problem, row.dim, row.method, row.budget, row.seed) for row in rows}

    def add(new: list[Row]) -> None:
        rows.extend(new)
        keep(rows)

    for target in targets:
        problem = build(target)
        here = (target.problem, target.dim)
        for seed in range(seeds):
            missing = [b for b in budgets if (*here, "default", b, seed) not in have]
            if missing:
                note(f"{target.problem} d={target.dim}, default, seed {seed}")
                add(_default(target, problem, budgets, seed))
        for name, rule in ALONE.items() if alone else ():
            if (*here, name, ALONE_BUDGET, 0) not in have and target.dim <= 1_000:
                note(f"{target.problem} d={target.dim}, {name}")
                add([_single(target, problem, name, rule())])
        if peers and here in _rivals.PROBLEMS and (*here, "deepxde", None, 0) not in have:
            note(f"{target.problem} d={target.dim}, DeepXDE")
            rival = _rivals.run(*here, points=_test_points(target, problem))
            error = _error(target, rival.values, _exact(target, problem)[0])
            outcome = Row(
                *here, "deepxde", None, 0, rival.seconds, 0.0, rival.steps, rival.words, error, None
            )
            ours = _scored(
                target, "default", rival.seconds, 0, solve(problem, budget=rival.seconds, **_QUIET)
            )
            add([outcome, dataclasses.replace(ours, method="default at DeepXDE's time")])
    about = {"date": today(), "machine": machine(), "versions": versions(*_PACKAGES)}
    return about | {"rows": [dataclasses.asdict(row) for row in rows], "summary": summary(rows)}


_QUIET: dict[str, Any] = {"progress": False, "throw": False}


def build(target: Target) -> Problem:
    """The problem of a target."""
    builder = zoo.CATALOGUE[target.problem].build
    return builder() if target.problem == "american_put" else builder(dim=target.dim)


def _default(target: Target, problem: Problem, budgets: Sequence[float], seed: int) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        solution, compiling = None, 0.0
        for budget in budgets:
            # A run that ended by itself ends so with every larger budget.
            if solution is None or solution.status.label == "budget":
                options = {"measure": _law(target, problem), "seed": seed, "checkpoint": folder}
                solution = solve(problem, budget=budget, **options, **_QUIET)
                compiling += solution.compile_seconds  # what the last call compiled is still there
            row = _scored(target, "default", budget, seed, solution)
            rows.append(dataclasses.replace(row, compile_seconds=compiling))
    return rows


def _single(target: Target, problem: Problem, name: str, rule: AbstractRule) -> Row:
    law = _law(target, problem)
    solution = solve(problem, rule=rule, budget=ALONE_BUDGET, measure=law, **_QUIET)
    return _scored(target, name, ALONE_BUDGET, 0, solution)


def _scored(target: Target, method: str, budget: float, seed: int, solution: Solution) -> Row:
    points = _test_points(target, solution.problem)
    exact, constant = _exact(target, solution.problem)
    error = _error(target, solution(points), exact)
    reference = _error(target, exact + constant, exact)
    return Row(
        target.problem,
        target.dim,
        method,
        budget,
        seed,
        solution.seconds,
        solution.compile_seconds,
        solution.steps,
        solution.status.label,
        error,
        error / reference if reference > 1e-12 else None,
    )


def _law(target: Target, problem: Problem) -> AbstractMeasure | None:
    """The law of training: where errors count radii of (0, 1) alike, the nearest one that is monotone."""
    if not _radial(target):
        return None
    assert isinstance(problem.domain, Ball)
    return Radial(problem.domain, 2.0)


def _radial(target: Target) -> bool:
    return "radius uniform" in target.metric


def _test_points(target: Target, problem: Problem) -> np.ndarray:
    """The points at which errors are taken: uniform, or of uniform radius where the target says so."""
    count = int(np.clip(_NUMBERS / target.dim, 1_000, _POINTS))
    with jax.enable_x64(True):
        points = np.array(problem.domain.sample(jr.key(123), count))
    if _radial(target):
        radius = np.random.default_rng(123).uniform(0.0, 1.0, (count, 1))
        points *= radius / np.linalg.norm(points, axis=1, keepdims=True)
    return points


def _exact(target: Target, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The solution at the test points, and the error of the best constant network there."""
    assert problem.exact is not None  # the zoo's have one
    points = _test_points(target, problem)
    parts = []
    with jax.enable_x64(True):
        for start in range(0, len(points), 512):
            part = _functions(fresh(problem), jnp.asarray(points[start : start + 512]))
            parts.append([np.asarray(column) for column in part])
    exact, eta, f = (np.concatenate(column) for column in zip(*parts, strict=True))
    return exact, np.dot(eta, exact - f) / np.dot(eta, eta) * eta + f - exact


@eqx.filter_jit
def _functions(problem: Problem, points: Any) -> tuple[Any, ...]:
    functions = (problem.exact, problem.domain.eta.value, problem.boundary.value)
    return tuple(jax.vmap(function)(points) for function in functions if function is not None)


def _error(target: Target, values: np.ndarray, exact: np.ndarray) -> float:
    gap = np.asarray(values, np.float64) - exact
    if target.metric == "largest error":
        return float(np.max(np.abs(gap)))
    return float(np.sqrt(np.mean(gap**2) / np.mean(exact**2)))


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For every problem: the median error of the default at each budget beside target and rivals."""
    lines = []
    for target in TARGETS:
        if target.metric == "error of the free boundary":
            continue  # `qpde reproduce` measures it
        here = [r for r in rows if (r.problem, r.dim) == (target.problem, target.dim)]
        ours = [r for r in here if r.method == "default"]
        if not ours:
            continue
        budgets = sorted({r.budget for r in ours if r.budget is not None})
        medians = {b: _median([r for r in ours if r.budget == b]) for b in budgets}
        reached = [b for b in budgets if medians[b][0] <= target.target]
        allowed = [b for b in reached if target.within is None or b <= target.within]
        lines.append(
            {
                "problem": target.problem,
                "dim": target.dim,
                "family": target.family,
                "target": target.target,
                "published": target.published,
                "hardware": target.hardware,
                "source": target.source,
                "default": {str(b): medians[b][0] for b in budgets},
                "seconds": {str(b): medians[b][1] for b in budgets},
                "skill": medians[budgets[-1]][2],
                "runs": len([r for r in ours if r.budget == budgets[-1]]),
                "met": bool(allowed),
                "alone": {r.method: r.error for r in here if r.method in (*ALONE, "deepxde")},
            }
        )
    return lines


def _median(rows: Sequence[Row]) -> tuple[float, float, float | None]:
    skills = [r.skill for r in rows if r.skill is not None]
    return (
        float(np.median([r.error for r in rows])),
        float(np.median([r.seconds + r.compile_seconds for r in rows])),
        float(np.median(skills)) if skills else None,
    )


def families(lines: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """Whether all members of a family are met; a problem with two targets needs one of them."""
    members: dict[tuple[str, str, int], bool] = {}
    for line in lines:
        key = (line["family"], line["problem"], line["dim"])
        members[key] = members.get(key, False) or line["met"]
    found: dict[str, bool] = {}
    for (family, _, _), met in members.items():
        found[family] = found.get(family, True) and met
    return found


def read_rows(path: Path) -> list[Row]:
    """The rows of an earlier study, none where there is no file."""
    if not path.exists():
        return []
    return [Row(**row) for row in json.loads(path.read_text())["rows"]]
