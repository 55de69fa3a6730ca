"""The numbers of a solution, in the form that commands print and run folders keep."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from .._problem.solution import Solution


def numbers_of(solution: Solution, *, run: Path | None = None) -> dict[str, Any]:
    """The numbers of a solution by the keys of the command's JSON; `run` is the folder that keeps it.

    A number that is infinite or NaN becomes None.
    """
    score = solution.score
    numbers = {
        "problem": solution.problem.name,
        "dim": solution.problem.space_dim,
        "rule": solution.rule,
        "steps": solution.steps,
        "seed": solution.seed,
        "status": solution.status.label,
        "verdict": None if solution.verdict is None else str(solution.verdict.word),
        "loss": score.loss,
        "best_batch_loss": solution.best_batch_loss,
        "seconds": solution.seconds,
        "compile_seconds": solution.compile_seconds,
        "relative_l2_error": score.relative_l2_error,
        "max_relative_error": score.max_relative_error,
        "skill": score.skill,
        "run": None if run is None else str(run),
    }
    if score.control_error is not None:
        numbers["control_error"] = score.control_error
    if solution.verdict is not None:
        plain = solution.verdict.as_dict()
        numbers |= {f"verdict_{name}": plain[name] for name in ("text", "reasons", "advice")}
    if solution.stages:
        numbers["stages"] = [dataclasses.asdict(stage) for stage in solution.stages]
    return {key: _json_safe(value) for key, value in numbers.items()}


def _json_safe(value: Any) -> Any:
    """The value, or None in place of a float that JSON does not know."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
