"""The paper's theorems as experiments: tables, fitted rates, figures, checks and a page."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..._files.whole import write_text
from ..._plot.style import headless, write_forms
from ..._runs.run_folder import make_folder
from ..._train.progress import StudyBars
from .._columns import Columns, read_columns, write_columns
from .._machine import machine, today, versions
from .._names import chosen_names
from . import longtime, widths
from .checks import Check
from .page import page

_RESULT, _PAGE = "theory.json", "index.html"
_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "numpy", "scipy", "matplotlib")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One experiment of the page: it computes a table, checks statements on it and may draw it."""

    run: Callable[[bool], Columns]  # told whether to be quick
    checks: Callable[[Columns], list[Check]]
    draw: Callable[[Columns], Any] | None
    work: float  # the time it takes, in a unit that all experiments share


EXPERIMENTS = {
    "kernel-rate": Experiment(widths.kernel_rate, widths.kernel_checks, widths.draw_kernel, 3),
    "start-rate": Experiment(widths.start_rate, widths.start_checks, widths.draw_start, 1),
    "training": Experiment(widths.training, widths.training_checks, widths.draw_training, 10),
    "kernel": Experiment(longtime.kernel, longtime.kernel_checks, longtime.draw_kernel, 1),
    "definite": Experiment(longtime.definite, longtime.definite_checks, None, 2),
    "spectrum": Experiment(longtime.spectrum, longtime.spectrum_checks, longtime.draw_spectrum, 3),
    "slow-end": Experiment(longtime.slow_end, longtime.slow_checks, longtime.draw_slow, 6),
    "path": Experiment(longtime.path, longtime.path_checks, longtime.draw_path, 1),
    "fixed-point": Experiment(longtime.fixed_point, longtime.fixed_checks, None, 5),
}


def check_names(only: str | None) -> list[str]:
    """The names of the experiments to do; `only` lists some of them, with commas between."""
    return chosen_names(only, EXPERIMENTS, "experiment")


def open_study(folder: Path, *, resume: bool, force: bool) -> None:
    """Make the folder; `resume` keeps the experiments of an earlier study there, `force` removes them."""
    if (folder / _RESULT).exists() and not (resume or force):
        raise ValueError(
            f"{folder} already holds a study of the theory. Add --resume to keep what is there, "
            "--force to begin again, or choose another --out."
        )
    for name in ("data", "figures"):
        make_folder(folder / name)
    if force:
        for path in (folder / "data").glob("*.csv"):
            path.unlink()


def study(folder: Path, names: Sequence[str], *, quick: bool, progress: bool) -> dict[str, Any]:
    """Do the named experiments whose tables are missing, then write figures, `theory.json` and the page.

    Figures, checks and page are those of every experiment whose table is in the folder.
    """
    headless()
    _run_missing(folder, names, quick=quick, progress=progress)
    tables = {
        name: read_columns(_csv(folder, name))
        for name in EXPERIMENTS
        if _csv(folder, name).exists()
    }
    checks = {name: EXPERIMENTS[name].checks(columns) for name, columns in tables.items()}
    for name, columns in tables.items():
        draw = EXPERIMENTS[name].draw
        if draw is not None:
            write_forms(draw(columns), folder / "figures" / name)
    about = {"effort": "quick" if quick else "full", "date": today(), "machine": machine()}
    about |= {"versions": versions(*_PACKAGES)}
    flat = [dataclasses.asdict(check) for found in checks.values() for check in found]
    result = about | {"findings": flat}
    write_text(folder / _RESULT, json.dumps(result, indent=2) + "\n")
    write_text(folder / _PAGE, page(folder, tables, checks, about))
    return result


def _run_missing(folder: Path, names: Sequence[str], *, quick: bool, progress: bool) -> None:
    missing = [name for name in names if not _csv(folder, name).exists()]
    work = float(sum(EXPERIMENTS[name].work for name in missing))
    with StudyBars(work, len(missing), progress) as bars:
        for name in missing:
            began = time.perf_counter()
            bars.begin(name, float(EXPERIMENTS[name].work))
            write_columns(_csv(folder, name), EXPERIMENTS[name].run(quick))
            bars.end(time.perf_counter() - began)


def _csv(folder: Path, name: str) -> Path:
    """The file with the table of an experiment."""
    return folder / "data" / f"{name}.csv"
