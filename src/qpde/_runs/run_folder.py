"""Run folders: the spec of a run, its numbers, history and certificates, for people and programs."""

import csv
import dataclasses
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .._files.damage import ANYTHING, COUNT, NUMBER, RUN_ID, DamagedFile, one_of
from .._files.document import read_document, write_document
from .._files.lock import FolderLock
from .._files.whole import flush_folder, remove_leftovers, write_text
from .._plot.figures import FIGURES
from .._problem.solution import History, Solution
from .._text import for_csv
from .._train.checkpoint import checkpoint_file
from .._trust.certificate import Certificate, Kind, Norm
from .numbers import numbers_of
from .record import RUN, Record, check_same_run, digest_of, read_record, write_record
from .store import SOLUTION, write_solution

HISTORY, PAGE = "history.csv", "report.html"
CERTIFICATE, COMPARISON = "certificate.json", "compare.json"
STAGES = (1, 2)  # the stages of a run that may leave a checkpoint
_ASIDE = "earlier-"
_FIELDS = {
    "bound": NUMBER,
    "relative_bound": (NUMBER, None),
    "norm": one_of(*Norm),
    "kind": one_of(*Kind),
    "confidence": (NUMBER, None),
    "residual": (NUMBER, None),
    "factor": (NUMBER, None),
    "assumptions": [str],
    "sample_size": (COUNT, None),
    "monotonicity": ({"constant": NUMBER, "kind": str}, None),
    "boundary": (NUMBER, None),
    "stronger": str,
}
_KNOWN = {
    one.name: _FIELDS.get(one.name, ANYTHING)
    for one in dataclasses.fields(Certificate)
    if one.name != "weight"  # which `factor` contains
}
_CERTIFICATES = {f"{norm}?": _KNOWN for norm in Norm}


def open_run(folder: Path, *, force: bool = False) -> None:
    """Make a run folder. Where it holds a run already, raise, or with `force` move that run aside.

    The caller holds the folder's lock. What is moved goes to a folder `earlier-1`, `earlier-2`, ... inside.
    """
    ours = [RUN, SOLUTION, HISTORY, CERTIFICATE, *map(checkpoint_file, STAGES)]
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
    remove_leftovers(folder)
    move_aside(folder, [*ours, PAGE, *(f"{figure}.png" for figure in FIGURES)])


def move_aside(folder: Path, names: list[str]) -> Path | None:
    """Rename files of a folder into a new folder inside it, and return that; None where there are none."""
    there = [name for name in names if (folder / name).exists()]
    if not there:
        return None
    number = 1
    while (folder / f"{_ASIDE}{number}").exists():
        number += 1
    aside = folder / f"{_ASIDE}{number}"
    try:
        aside.mkdir()
        for name in there:  # run.json first: what is half moved is no run
            os.replace(folder / name, aside / name)
        flush_folder(aside)
        flush_folder(folder)
    except OSError as error:
        raise OSError(f"Cannot write to {aside}: {error.strerror}.") from None
    return aside


def make_folder(folder: Path) -> None:
    """Make a folder, and make sure that it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"Cannot write to {folder}: {error.strerror}.") from None


def write_run(folder: Path, record: Record, solution: Solution) -> None:
    """Write `solution.safetensors`, `history.csv`, and last `run.json`, which says that the rest is there."""
    assert record.run_id is not None  # every run that is written has one
    write_solution(solution, folder / SOLUTION, record.run_id)
    write_text(folder / HISTORY, history_csv(solution.history))
    files = {HISTORY: digest_of(folder / HISTORY)}
    result = numbers_of(solution, run=folder)
    write_record(folder, dataclasses.replace(record, result=result, files=files))


def write_certificate(folder: Path, certificate: dict[str, Any]) -> None:
    """Put a certificate into `certificate.json`, which keeps the latest one of each norm.

    Where another process writes into the folder, it raises: the certificate would be another solution's.
    """
    with FolderLock(folder):
        known = read_certificates(folder) | {certificate["norm"]: certificate}
        run_id = read_record(folder).run_id if (folder / RUN).is_file() else None
        write_document(folder / CERTIFICATE, {"run": run_id, "certificates": known})


def read_certificates(folder: Path) -> dict[str, Any]:
    """The certificates of a run by norm; empty where there is no `certificate.json`."""
    path = folder / CERTIFICATE
    if not path.exists():
        return {}
    schema = {"run": (RUN_ID, None), "certificates": _CERTIFICATES}
    try:
        found = read_document(path, schema, _CERTIFICATES)
    except DamagedFile as error:
        raise DamagedFile(path, f": {error.why} Remove it and certify again.") from None
    if "certificates" not in found:
        return found
    check_same_run(path, found["run"], folder)
    return found["certificates"]


def open_comparison(folder: Path, *, force: bool) -> None:
    """Make the folder of a comparison. Where it holds another comparison already, raise unless `force`."""
    if (folder / COMPARISON).exists() and not force:
        raise ValueError(
            f"{folder} already holds a comparison. Choose another folder or add --force."
        )
    make_folder(folder)
    move_aside(folder, [COMPARISON, "compare.csv", "compare.png"])


def write_comparison(folder: Path, result: dict[str, Any]) -> None:
    """Write a comparison as `compare.json`, and its table of rules, without lists, as `compare.csv`."""
    write_text(folder / COMPARISON, json.dumps(result, indent=2) + "\n")
    buffer = io.StringIO()
    columns = [name for name, value in result["rules"][0].items() if not isinstance(value, list)]
    rows = csv.DictWriter(buffer, fieldnames=columns, extrasaction="ignore")
    rows.writeheader()
    rows.writerows({k: for_csv(v) for k, v in row.items()} for row in result["rules"])
    write_text((folder / COMPARISON).with_suffix(".csv"), buffer.getvalue())


def write_study(
    folder: Path, name: str, result: dict[str, Any], page: str, *, page_name: str
) -> None:
    """Write the result of a study as JSON, and its page."""
    write_text(folder / f"{name}.json", json.dumps(result, indent=2) + "\n")
    write_text(folder / page_name, page)


def history_csv(history: History) -> str:
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
