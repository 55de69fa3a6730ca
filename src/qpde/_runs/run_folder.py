"""Run folders: the spec of a run, its numbers, history and certificates, for people and programs."""

import csv
import dataclasses
import importlib.metadata
import io
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

from .._files.archive import remove_leftovers, write_text
from .._plot.figures import FIGURES
from .._problem.solution import History, Solution
from .._train.checkpoint import checkpoint_file
from .numbers import numbers_of
from .spec import Spec
from .store import SOLUTION, save

RUN, HISTORY = "run.json", "history.csv"
CERTIFICATE, COMPARISON = "certificate.json", "compare.json"
_STAGES = (1, 2)  # the stages of a run that may leave a checkpoint
_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "optax", "numpy")


def open_run(folder: Path, *, force: bool = False) -> None:
    """Make a run folder. Where the folder holds a run already, raise, or with `force` remove that run."""
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


def write_record(folder: Path, spec: Spec, result: dict[str, Any] | None = None) -> None:
    """Write `run.json`: the spec, the versions in use, and the numbers of the result once they are known."""
    record = {
        "spec": dataclasses.asdict(spec),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "result": result,
    }
    write_text(folder / RUN, json.dumps(record, indent=2) + "\n")


def read_record(folder: Path) -> dict[str, Any]:
    """The content of `run.json`, as `write_record` wrote it."""
    if not (folder / RUN).is_file():
        raise ValueError(f"{folder} is not a run folder: it has no {RUN}.")
    try:
        record = json.loads((folder / RUN).read_text())
        Spec(**record["spec"])
        if not isinstance(record["result"], dict | None):
            raise ValueError("its result is not an object")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / RUN} is damaged or not ours ({error}).") from None
    return record


def read_spec(folder: Path) -> tuple[Spec, dict[str, Any] | None]:
    """The spec of a run, and the numbers of its result so far, None where it has none."""
    record = read_record(folder)
    return Spec(**record["spec"]), record["result"]


def write_run(folder: Path, spec: Spec, solution: Solution) -> None:
    """Write `solution.safetensors`, `history.csv`, and last `run.json`, which says that the rest is there."""
    save(solution, folder / SOLUTION)
    write_text(folder / HISTORY, _history_csv(solution.history))
    write_record(folder, spec, numbers_of(solution, run=folder))


def write_certificate(folder: Path, certificate: dict[str, Any]) -> None:
    """Put a certificate into `certificate.json`, which keeps the latest one of each norm."""
    write_text(
        folder / CERTIFICATE,
        json.dumps(read_certificates(folder) | {certificate["norm"]: certificate}, indent=2) + "\n",
    )


def read_certificates(folder: Path) -> dict[str, Any]:
    """The certificates of a run by norm; empty where there is no `certificate.json`."""
    path = folder / CERTIFICATE
    try:
        return json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}). Remove it and certify again.") from None


def open_comparison(folder: Path, *, force: bool) -> None:
    """Make the folder of a comparison. Where it holds another comparison already, raise unless `force`."""
    if (folder / COMPARISON).exists() and not force:
        raise ValueError(
            f"{folder} already holds a comparison. Choose another folder or add --force."
        )
    make_folder(folder)


def write_comparison(folder: Path, result: dict[str, Any]) -> None:
    """Write a comparison as `compare.json`, and its table of rules, without lists, as `compare.csv`."""
    write_text(folder / COMPARISON, json.dumps(result, indent=2) + "\n")
    buffer = io.StringIO()
    columns = [name for name, value in result["rules"][0].items() if not isinstance(value, list)]
    rows = csv.DictWriter(buffer, fieldnames=columns, extrasaction="ignore")
    rows.writeheader()
    rows.writerows(result["rules"])
    write_text((folder / COMPARISON).with_suffix(".csv"), buffer.getvalue())


def write_study(
    folder: Path, name: str, result: dict[str, Any], page: str, *, page_name: str
) -> None:
    """Write the result of a study as JSON, and its page."""
    write_text(folder / f"{name}.json", json.dumps(result, indent=2) + "\n")
    write_text(folder / page_name, page)


def _history_csv(history: History) -> str:
    """A row for each step, and one for the held-out loss after the last step."""
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
