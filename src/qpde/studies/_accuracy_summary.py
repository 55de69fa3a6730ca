"""The runs of the accuracy benchmark summed up: medians over seeds, beside the targets."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..zoo import TARGETS
from ._accuracy_runs import ALONE, ScoredRun


def summary(runs: Sequence[ScoredRun]) -> list[dict[str, Any]]:
    """A line for every target: the median error of the default at each budget, beside target and rivals."""
    lines = []
    for target in TARGETS:
        if target.metric == "error of the free boundary":
            continue  # `qpde reproduce` measures it
        here = [r for r in runs if (r.problem, r.dim) == (target.problem, target.dim)]
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


def _median(runs: Sequence[ScoredRun]) -> tuple[float, float, float | None]:
    """The medians of error, seconds and skill."""
    skills = [r.skill for r in runs if r.skill is not None]
    return (
        float(np.median([r.error for r in runs])),
        float(np.median([r.seconds + r.compile_seconds for r in runs])),
        float(np.median(skills)) if skills else None,
    )


def families(lines: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """Whether every problem of a family meets its target; of two targets for one problem, one is enough."""
    members: dict[tuple[str, str, int], bool] = {}
    for line in lines:
        key = (line["family"], line["problem"], line["dim"])
        members[key] = members.get(key, False) or line["met"]
    found: dict[str, bool] = {}
    for (family, _, _), met in members.items():
        found[family] = found.get(family, True) and met
    return found
