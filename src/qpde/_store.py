"""Solutions as files, and run folders: what a run was and what it gave, for people and programs."""

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

import jax
import jax.random as jr
import numpy as np

from . import activations
from ._archive import (
    Groups,
    arrays_of,
    read_archive,
    remove_leftovers,
    with_arrays,
    write_archive,
    write_text,
)
from ._checkpoint import FILE as CHECKPOINT
from ._checkpoint import checkpoint_file
from ._fingerprint import check_fingerprint, fingerprint
from ._kernel_field import KernelField
from ._measure import AbstractMeasure, Radial, Uniform
from ._network import MLP, DeepField, Shallow, ShallowField, as_network_field, cast
from ._problem import Problem
from ._round import Ball
from ._solution import History, Solution, Stage
from ._spec import Spec, problem_from
from ._status import Status
from ._trial import Trial

SOLUTION, RUN, HISTORY = "solution.safetensors", "run.json", "history.csv"
COMPARISON, CERTIFICATE = "compare.json", "certificate.json"
FIGURES = ("history", "radial", "profile", "slice", "scatter")
_STAGES = (1, 2)
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
    if solution.stages:
        numbers["stages"] = [dataclasses.asdict(stage) for stage in solution.stages]
    return {key: _json_safe(value) for key, value in numbers.items()}


def save(solution: Solution, path: str | os.PathLike[str]) -> None:
    """Write a solution to a file, in one piece.

        >>> save(solution, "ball.safetensors")

    The file holds the network's numbers, the history, how to build a problem of the zoo again, and a
    fingerprint of the problem. It holds no code.
    """
    if not isinstance(solution, Solution):
        raise ValueError(f"save takes a qpde.Solution, got {type(solution).__name__}.")
    problem, network = solution.problem, solution.trial.network
    marks = fingerprint(problem)
    groups = {
        "network": arrays_of(network),
        "problem": marks,
        "values": {"inside": solution(marks["inside"])},
        "history": {f.name: getattr(solution.history, f.name) for f in dataclasses.fields(History)},
    }
    header = {
        "recipe": problem.recipe,
        "name": problem.name,
        "network": _describe_network(network),
        "measure": _describe_measure(solution.measure),
        "exact_boundary": solution.trial.exact_boundary,
        "status": solution.status.name,
        "stages": [dataclasses.asdict(stage) for stage in solution.stages],
        **{name: getattr(solution, name) for name in _PLAIN},
    }
    write_archive(Path(path), "solution", header, groups)


def load(
    path: str | os.PathLike[str],
    *,
    problem: Problem | None = None,
    network: Any = None,
    measure: AbstractMeasure | None = None,
) -> Solution:
    """Read a solution from a file or a run folder; its values have the same bits as before.

        >>> load("ball.safetensors")
        >>> load("mine.safetensors", problem=my_problem)

    **Arguments**

    - `problem`: needed where the problem is made of your own functions, which no file can hold. It is
      compared with the file's fingerprint, and a difference is named.
    - `network`, `measure`: needed where they are your own classes: objects of the same structure,
      whose numbers are replaced.
    """
    if problem is not None and not isinstance(problem, Problem):
        raise ValueError(f"problem must be a qpde.Problem, got {type(problem).__name__}.")
    path = Path(path)
    if path.is_dir() and (path / CHECKPOINT).exists() and not (path / SOLUTION).exists():
        raise ValueError(f"{path} is a run without a solution yet. Go on with: qpde resume {path}")
    path = path / SOLUTION if path.is_dir() else path
    header, groups = read_archive(path, "solution")
    problem = _rebuild_problem(header, problem, path)
    check_fingerprint(problem, groups["problem"], path)
    precision = header["precision"]
    with jax.enable_x64(precision == "float64"):
        description = _rebuild_network(header["network"], network, path, problem.dim)
        field = as_network_field(description, problem.domain, key=jr.key(0), dtype=precision)
        field = with_arrays(cast(field, precision), groups["network"], "the network")
        trial = Trial.of(problem, field, exact_boundary=header["exact_boundary"])
    solution = Solution(
        problem=problem,
        trial=trial,
        measure=_rebuild_measure(header["measure"], measure, problem, path),
        status=Status[header["status"]],
        history=History(**groups["history"]),
        stages=tuple(Stage(**stage) for stage in header.get("stages", ())),
        **{name: header[name] for name in _PLAIN},
    )
    if network is not None:
        _check_values(solution, groups, path)
    return solution


def _check_values(solution: Solution, groups: Groups, path: Path) -> None:
    """A network of the caller's own may have the right shapes and yet be another function."""
    there, here = groups["values"]["inside"], solution(groups["problem"]["inside"])
    if not np.allclose(here, there, rtol=0.0, atol=1e-4 * float(np.max(np.abs(there)))):
        raise ValueError(
            f"{path} holds another network: with the one given, values differ by up to "
            f"{np.max(np.abs(here - there)):.3g} from those that were saved."
        )


_PLAIN = ("steps", "seconds", "compile_seconds", "rule", "seed", "precision")


def _rebuild_problem(header: dict[str, Any], problem: Problem | None, path: Path) -> Problem:
    if problem is not None:
        return problem
    if header["recipe"] is None:
        raise ValueError(
            f"{path} holds a solution of {header['name']!r}, a problem made of functions that a file "
            "cannot hold. Pass it: load(path, problem=...)."
        )
    return problem_from(header["recipe"])


def _describe_network(network: Any) -> dict[str, Any]:
    known: dict[type, str] = {
        type(activation): name for name, activation in activations.BY_NAME.items()
    }
    name = known.get(type(getattr(network, "activation", None)))
    if isinstance(network, ShallowField) and name:
        words = {"kind": "shallow", "width": network.width, "activation": name}
        return words if network.polynomial is None else words | {"polynomial": True}
    if isinstance(network, DeepField) and name:
        widths = [weight.shape[0] for weight in network.weights[:-1]]
        return {"kind": "mlp", "widths": widths, "activation": name}
    if isinstance(network, KernelField):
        return {"kind": "limit", "tables": list(network.tables.shape), "round": network.round}
    return {"kind": type(getattr(network, "function", network)).__name__}


def _rebuild_network(words: dict[str, Any], network: Any, path: Path, dim: int) -> Any:
    if network is not None:
        return network
    kind = words["kind"]
    if kind == "shallow":
        return Shallow(
            words["width"],
            activation=activations.BY_NAME[words["activation"]],
            polynomial=words.get("polynomial", False),
        )
    if kind == "mlp":
        return MLP(words["widths"], activation=activations.BY_NAME[words["activation"]])
    if kind == "limit":
        return KernelField.empty(words["tables"], dim, words["round"])
    raise ValueError(
        f"{path} holds a network of your own ({kind}). Pass one of the same structure: "
        "load(path, network=...)."
    )


def _describe_measure(measure: AbstractMeasure) -> dict[str, Any]:
    if isinstance(measure, Radial):
        return {"kind": "radial", "k": float(measure.k)}
    return {"kind": "uniform" if isinstance(measure, Uniform) else type(measure).__name__}


def _rebuild_measure(
    words: dict[str, Any], measure: AbstractMeasure | None, problem: Problem, path: Path
) -> AbstractMeasure:
    if measure is not None:
        return measure
    if words["kind"] == "uniform":
        return Uniform(problem.domain)
    if words["kind"] == "radial" and isinstance(problem.domain, Ball):
        return Radial(problem.domain, words["k"])
    raise ValueError(
        f"{path} was trained under a law of your own ({words['kind']}). Pass it: "
        "load(path, measure=...)."
    )


def open_run(folder: Path, *, force: bool = False) -> None:
    """Make a run folder; one that holds a run is kept unless `force`."""
    ours = [RUN, SOLUTION, HISTORY, CERTIFICATE, *map(checkpoint_file, _STAGES)]
    there = [name for name in (*ours, COMPARISON) if (folder / name).exists()]
    if RUN in there and not force:
        raise ValueError(
            f"{folder} already holds a run. Choose another folder, add --force to replace it, or "
            f"go on with: qpde resume {folder}"
        )
    if there and not force:
        raise ValueError(
            f"{folder} already holds {', '.join(there)}. Choose another folder, or add --force to "
            "replace what a run writes."
        )
    make_folder(folder)
    remove_leftovers(folder)
    for name in (*ours, *(f"{figure}.png" for figure in FIGURES)):
        (folder / name).unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder, and make sure that it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"Cannot write to {folder}: {error.strerror}.") from None


def write_spec(folder: Path, spec: Spec, result: dict[str, Any] | None = None) -> None:
    """Write `run.json`: what was asked, with what versions, and what came of it (None: not yet)."""
    record = {
        "spec": dataclasses.asdict(spec),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "result": result,
    }
    write_text(folder / RUN, json.dumps(record, indent=2) + "\n")


def read_spec(folder: Path) -> tuple[Spec, dict[str, Any] | None]:
    """What was asked of a run, and what came of it so far."""
    if not (folder / RUN).is_file():
        raise ValueError(f"{folder} is not a run folder: it has no {RUN}.")
    try:
        record = json.loads((folder / RUN).read_text())
        if not isinstance(record["result"], dict | None):
            raise ValueError("its result is not an object")
        return Spec(**record["spec"]), record["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / RUN} is damaged or not ours ({error}).") from None


def write_run(folder: Path, spec: Spec, solution: Solution) -> None:
    """Write what a run gave: `solution.safetensors`, `history.csv`, and last `run.json`."""
    save(solution, folder / SOLUTION)
    write_text(folder / HISTORY, _history_csv(solution.history))
    write_spec(folder, spec, report(solution, run=folder))


def write_certificate(folder: Path, certificate: dict[str, Any]) -> None:
    """Write `certificate.json`: a bound of each norm, the last one that was asked for."""
    write_text(
        folder / CERTIFICATE,
        json.dumps(read_certificates(folder) | {certificate["norm"]: certificate}, indent=2) + "\n",
    )


def read_certificates(folder: Path) -> dict[str, Any]:
    """The certificates of a run by norm, none where there is no file."""
    path = folder / CERTIFICATE
    try:
        return json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}). Remove it and certify again.") from None


def open_comparison(folder: Path, *, force: bool) -> None:
    """Make the folder of a comparison; one that holds another is kept unless `force`."""
    if (folder / COMPARISON).exists() and not force:
        raise ValueError(
            f"{folder} already holds a comparison. Choose another folder or add --force."
        )
    make_folder(folder)


def write_comparison(folder: Path, result: dict[str, Any]) -> None:
    """Write `compare.json`, and its rows as `compare.csv`."""
    write_text(folder / COMPARISON, json.dumps(result, indent=2) + "\n")
    buffer = io.StringIO()
    rows = csv.DictWriter(buffer, fieldnames=list(result["rules"][0]))
    rows.writeheader()
    rows.writerows(result["rules"])
    write_text((folder / COMPARISON).with_suffix(".csv"), buffer.getvalue())


def write_study(
    folder: Path, name: str, result: dict[str, Any], page: str, *, page_name: str
) -> None:
    """Write what a study found as JSON, and its page."""
    write_text(folder / f"{name}.json", json.dumps(result, indent=2) + "\n")
    write_text(folder / page_name, page)


def _history_csv(history: History) -> str:
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
    return buffer.getvalue()


def _json_safe(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
