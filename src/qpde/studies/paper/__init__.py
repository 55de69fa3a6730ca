"""The paper's experiments, reproduced: training runs, tables, figures, claims and a page."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._files.whole import write_text
from ..._plot.style import headless, write_forms
from ..._runs.run_folder import make_folder
from .._columns import read_columns, write_columns
from .._jobs import run_jobs
from .._machine import machine, today, versions
from .._names import chosen_names
from .claims import claims
from .figures import suited
from .page import page
from .parts import PARTS
from .runs import FULL, QUICK

_STUDY, _CLAIMS, _PAGE = "study.json", "claims.json", "index.html"
_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "matplotlib")


def open_study(folder: Path, *, quick: bool, resume: bool, force: bool) -> None:
    """Make the folder; `resume` keeps the runs of an earlier reproduction there, `force` removes them."""
    path, effort = folder / _STUDY, "quick" if quick else "full"
    there = json.loads(path.read_text())["effort"] if path.exists() else None
    if there is not None and not resume and not force:
        raise ValueError(
            f"{folder} already holds a reproduction. Add --resume to go on with it, --force to begin "
            "again, or choose another --out."
        )
    if there is not None and force:
        for name in ("runs", "data", "figures"):
            shutil.rmtree(folder / name, ignore_errors=True)
        path.unlink()
    elif there not in (None, effort):
        cure = "add --quick" if there == "quick" else "leave --quick out"
        raise ValueError(f"{folder} holds a {there} reproduction: {cure}, or choose another --out.")
    for name in ("data", "figures", "runs"):
        make_folder(folder / name)
    if not path.exists() or force:
        _write_study(path, effort)


def _write_study(path: Path, effort: str) -> None:
    record = {"effort": effort, "date": today(), "machine": machine()}
    write_text(path, json.dumps(record | {"versions": versions(*_PACKAGES)}, indent=2) + "\n")


def check_parts(only: str | None) -> list[str]:
    """The names of the parts to do; `only` lists some of them, with commas between."""
    return chosen_names(only, PARTS, "part")


def reproduce(
    folder: Path, names: Sequence[str], *, quick: bool, speed: Path | None, progress: bool
) -> dict[str, Any]:
    """Do the runs of the named parts that are missing, then write tables, figures, claims and the page.

    Figures, claims and page are those of every table in the folder. `speed` is the result of
    `qpde bench speed`, which has the time of a step the authors' way.
    """
    headless()
    effort = QUICK if quick else FULL
    jobs = [job for name in names for job in PARTS[name].jobs(effort)]
    outcomes = run_jobs(jobs, folder / "runs", progress=progress)
    for name in names:
        part, kept = PARTS[name], folder / "data" / f"{name}.csv"
        if part.measured and kept.exists():
            continue
        for table_name, columns in part.tables(effort, outcomes).items():
            write_columns(folder / "data" / f"{table_name}.csv", columns)
    tables = {path.stem: read_columns(path) for path in sorted((folder / "data").glob("*.csv"))}
    for name, drawing in suited(tables).items():
        write_forms(drawing.draw(tables[drawing.table]), folder / "figures" / name)
    study = json.loads((folder / _STUDY).read_text()) | _work(folder)
    found = claims(tables, _authors_ratio(speed))
    result = study | {"claims": [dataclasses.asdict(claim) for claim in found]}
    write_text(folder / _CLAIMS, json.dumps(result, indent=2) + "\n")
    write_text(folder / _PAGE, page(folder, tables, found, study))
    return result


def _work(folder: Path) -> dict[str, Any]:
    """The number of runs, and the seconds that they took; those on record where the runs are not kept."""
    numbers = [json.loads(path.read_text())["best"] for path in (folder / "runs").glob("*.json")]
    if not numbers and (folder / _CLAIMS).exists():
        kept = json.loads((folder / _CLAIMS).read_text())
        return {name: kept[name] for name in ("runs", "seconds", "compile_seconds")}
    training = sum(row["seconds"] for row in numbers)
    compiling = sum(row["compile_seconds"] for row in numbers)
    return {"runs": len(numbers), "seconds": training, "compile_seconds": compiling}


def _authors_ratio(speed: Path | None) -> float | None:
    """The time of a deep-Galerkin step over that of a Q-learning step, both the authors' way, if measured."""
    if speed is None:
        return None
    try:
        return json.loads(speed.read_text())["ratios"].get("authors_dgm_over_q_d20")
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{speed} is not a result of qpde bench speed ({error}).") from None
