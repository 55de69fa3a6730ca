"""Run folders: what a run was, what it gave, in files that other programs can read."""

import csv
import dataclasses
import importlib.metadata
import io
import json
import math
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from ._solution import Solution
from ._spec import Spec

_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "optax", "numpy")


def report(solution: Solution, *, run: Path | None = None) -> dict[str, Any]:
    """The numbers of a solve, under the keys that the command line prints."""
    score = solution.score
    numbers = {
        "problem": solution.problem.name,
        "dim": solution.problem.dim,
        "rule": solution.rule,
        "steps": solution.steps,
        "seed": solution.seed,
        "status": solution.status.label,
        "loss": score.loss,
        "best_batch_loss": solution.best_batch_loss,
        "seconds": solution.seconds,
        "compile_seconds": solution.compile_seconds,
        "relative_l2_error": score.relative_l2_error,
        "max_relative_error": score.max_relative_error,
        "skill": score.skill,
        "run": None if run is None else str(run),
    }
    return {key: _json_safe(value) for key, value in numbers.items()}


def open_run(folder: Path, *, force: bool) -> None:
    """Make a run folder; one that holds a run is kept unless `force`."""
    if (folder / "run.json").exists() and not force:
        raise ValueError(f"{folder} already holds a run. Choose another folder or add --force.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"Cannot write to {folder}: {error.strerror}.") from None


def write_run(folder: Path, spec: Spec, solution: Solution) -> None:
    """Write `run.json` and `history.csv`."""
    record = {
        "spec": dataclasses.asdict(spec),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "result": report(solution, run=folder),
    }
    write_text(folder / "run.json", json.dumps(record, indent=2) + "\n")
    history = solution.history
    held_out = dict(zip(history.checked_step.tolist(), history.held_out.tolist(), strict=True))
    buffer = io.StringIO()
    rows = csv.writer(buffer)
    rows.writerow(["step", "loss", "gradient", "truncated", "held_out"])
    for step, row in enumerate(zip(history.loss, history.gradient, history.truncated, strict=True)):
        # The held-out loss after `step` steps belongs to the same parameters as this row's loss.
        rows.writerow([step, *(f"{value:.9g}" for value in row), held_out.get(step, "")])
    last = len(history.loss)
    if last in held_out:
        rows.writerow([last, "", "", "", held_out[last]])
    write_text(folder / "history.csv", buffer.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write a file in one piece: a reader sees the old content or the new, never half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name, path)


def _json_safe(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
