"""The paper's experiments, reproduced: runs, tables, figures, claims and a page."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._archive import write_bytes, write_text
from ..._store import make_folder
from ..._style import figure_of, svg, write_figure
from .._jobs import run_jobs
from .._machine import machine, today, versions
from .._tables import read_table, write_table
from .claims import claims
from .figures import suited
from .page import page
from .parts import FULL, PARTS, QUICK, Tables

_STUDY, _CLAIMS, _PAGE = "study.json", "claims.json", "index.html"
_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "matplotlib")


def open_study(folder: Path, *, quick: bool, resume: bool, force: bool) -> None:
    """Make the folder of a reproduction; one that is there is gone on with only if that is said."""
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
    """The parts that were asked for, by name."""
    names = list(PARTS) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in PARTS:
            raise ValueError(f"There is no part {name!r}. There are: {', '.join(PARTS)}.")
    return names


def reproduce(
    folder: Path, names: Sequence[str], *, quick: bool, speed: Path | None, progress: bool
) -> dict[str, Any]:
    """Do what is left of the named parts, and write figures, claims and the page of all that is there.

    `speed` is the result of `qpde bench speed`, from which the authors' time is taken.
    """
    import matplotlib

    matplotlib.use("Agg")
    effort = QUICK if quick else FULL
    jobs = [job for name in names for job in PARTS[name].jobs(effort)]
    outcomes = run_jobs(jobs, folder / "runs", progress=progress)
    for name in names:
        part, kept = PARTS[name], folder / "data" / f"{name}.csv"
        if part.measured and kept.exists():
            continue
        for table_name, columns in part.tables(effort, outcomes).items():
            write_table(folder / "data" / f"{table_name}.csv", columns)
    tables = {path.stem: read_table(path) for path in sorted((folder / "data").glob("*.csv"))}
    _draw(folder, tables)
    study = json.loads((folder / _STUDY).read_text()) | _work(folder / "runs")
    found = claims(tables, _authors_ratio(speed))
    result = study | {"claims": [dataclasses.asdict(claim) for claim in found]}
    write_text(folder / _CLAIMS, json.dumps(result, indent=2) + "\n")
    write_text(folder / _PAGE, page(folder, tables, found, study))
    return result


def _work(folder: Path) -> dict[str, Any]:
    """How many runs the folder holds, and the seconds they took."""
    numbers = [json.loads(path.read_text())["best"] for path in folder.glob("*.json")]
    training = sum(row["seconds"] for row in numbers)
    compiling = sum(row["compile_seconds"] for row in numbers)
    return {"runs": len(numbers), "seconds": training, "compile_seconds": compiling}


def _draw(folder: Path, tables: Tables) -> None:
    import matplotlib.pyplot as plt

    for name, drawing in suited(tables).items():
        figure = figure_of(drawing.draw(tables[drawing.table]))
        stem = folder / "figures" / name
        write_bytes(stem.with_suffix(".svg"), svg(figure))
        for form in (".pdf", ".png"):
            write_figure(figure, stem.with_suffix(form), dpi=160)
        plt.close(figure)


def _authors_ratio(speed: Path | None) -> float | None:
    """Time of deep Galerkin over that of Q-learning, the authors' way, from a speed benchmark."""
    if speed is None:
        return None
    try:
        return json.loads(speed.read_text())["ratios"].get("authors_dgm_over_q_d20")
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{speed} is not a result of qpde bench speed ({error}).") from None
