"""The paper's theorems as experiments: tables, fitted rates, figures, findings and a page."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..._archive import write_bytes, write_text
from ..._progress import Stages
from ..._store import make_folder
from ..._style import figure_of, svg, write_figure
from .._machine import machine, today, versions
from .._tables import Table, read_table, write_table
from . import longtime, widths
from .findings import Finding
from .page import page

_RESULT, _PAGE = "theory.json", "index.html"
_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "numpy", "scipy", "matplotlib")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What is computed, what follows from it, and how it is drawn."""

    run: Callable[[bool], Table]
    findings: Callable[[Table], list[Finding]]
    draw: Callable[[Table], Any] | None
    work: float  # its share of the time


EXPERIMENTS = {
    "kernel-rate": Experiment(widths.kernel_rate, widths.kernel_findings, widths.draw_kernel, 3),
    "start-rate": Experiment(widths.start_rate, widths.start_findings, widths.draw_start, 1),
    "training": Experiment(widths.training, widths.training_findings, widths.draw_training, 10),
    "kernel": Experiment(longtime.kernel, longtime.kernel_findings, longtime.draw_kernel, 1),
    "definite": Experiment(longtime.definite, longtime.definite_findings, None, 2),
    "spectrum": Experiment(
        longtime.spectrum, longtime.spectrum_findings, longtime.draw_spectrum, 3
    ),
    "slow-end": Experiment(longtime.slow_end, longtime.slow_findings, longtime.draw_slow, 6),
    "path": Experiment(longtime.path, longtime.path_findings, longtime.draw_path, 1),
    "fixed-point": Experiment(longtime.fixed_point, longtime.fixed_findings, None, 5),
}


def check_names(only: str | None) -> list[str]:
    """The experiments that were asked for, by name."""
    names = list(EXPERIMENTS) if only is None else [name.strip() for name in only.split(",")]
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(
                f"There is no experiment {name!r}. There are: {', '.join(EXPERIMENTS)}."
            )
    return names


def open_study(folder: Path, *, resume: bool, force: bool) -> None:
    """Make the folder; one that holds a study is gone on with only if that is said."""
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
    """Do the named experiments that are not there yet, and write figures, `theory.json` and the page."""
    import time

    import matplotlib

    matplotlib.use("Agg")
    missing = [name for name in names if not (folder / "data" / f"{name}.csv").exists()]
    work = float(sum(EXPERIMENTS[name].work for name in missing))
    with Stages(work, len(missing), progress) as stages:
        for name in missing:
            began = time.perf_counter()
            stages.begin(name, float(EXPERIMENTS[name].work))
            write_table(folder / "data" / f"{name}.csv", EXPERIMENTS[name].run(quick))
            stages.end(time.perf_counter() - began)
    tables = {
        name: read_table(folder / "data" / f"{name}.csv")
        for name in EXPERIMENTS
        if (folder / "data" / f"{name}.csv").exists()
    }
    findings = {name: EXPERIMENTS[name].findings(columns) for name, columns in tables.items()}
    for name, columns in tables.items():
        _draw(folder / "figures" / name, EXPERIMENTS[name].draw, columns)
    about = {"effort": "quick" if quick else "full", "date": today(), "machine": machine()}
    about |= {"versions": versions(*_PACKAGES)}
    flat = [dataclasses.asdict(finding) for found in findings.values() for finding in found]
    result = about | {"findings": flat}
    write_text(folder / _RESULT, json.dumps(result, indent=2) + "\n")
    write_text(folder / _PAGE, page(folder, tables, findings, about))
    return result


def _draw(stem: Path, draw: Callable[[Table], Any] | None, columns: Table) -> None:
    if draw is None:
        return
    import matplotlib.pyplot as plt

    figure = figure_of(draw(columns))
    write_bytes(stem.with_suffix(".svg"), svg(figure))
    for form in (".pdf", ".png"):
        write_figure(figure, stem.with_suffix(form), dpi=160)
    plt.close(figure)
