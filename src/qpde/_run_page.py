"""The page of a run folder: what was solved, how well, and the figures."""

import json
from pathlib import Path
from typing import Any

from . import plot
from ._archive import write_text
from ._page import Figure, Panel, Section, Table, render
from ._solution import Solution
from ._store import CERTIFICATE, HISTORY, RUN, SOLUTION, load, read_certificates, report
from ._style import figure_of, svg

PAGE = "report.html"
_CAPTIONS = {
    "history": "The loss during training: every minibatch, and the held-out points.",
    "profile": "Values along a line through the domain.",
    "radial": "Values at random points against the distance from the centre.",
    "slice": "A plane through the domain.",
    "scatter": "Computed against exact values at random points.",
}
_NUMBERS = {
    "loss": "loss, mean of (L Q)^2 on 100,000 fresh points",
    "best_batch_loss": "smallest minibatch loss",
    "relative_l2_error": "relative L2 error",
    "max_relative_error": "largest relative error, 1 % away from the boundary",
    "skill": "skill: error / error of the best constant network (1: nothing was learned)",
    "steps": "steps",
    "seconds": "seconds of training",
    "compile_seconds": "seconds of compiling",
}


def write_page(folder: Path) -> Path:
    """Write `report.html` into a run folder, from what is in it."""
    solution = load(folder)
    record = json.loads((folder / RUN).read_text())
    path = folder / PAGE
    write_text(path, run_page(solution, record, folder))
    return path


def run_page(solution: Solution, record: dict[str, Any], folder: Path) -> str:
    """The page of a solution; `record` is the content of `run.json`."""
    problem, numbers = solution.problem, report(solution)
    results = [[words, numbers[name]] for name, words in _NUMBERS.items()]
    asked = [[name, _words(value)] for name, value in record["spec"].items()]
    used = [[name, version] for name, version in record["versions"].items()]
    links = {name: name for name in (RUN, HISTORY, SOLUTION) if (folder / name).exists()}
    sections = [
        Section(
            "Result",
            [
                f"{solution.rule}: {solution.status.value}",
                Table("", ("quantity", "value"), results, files=links),
                *_judgement(numbers),
                *_certificates(folder),
            ],
        ),
        Section("Figures", _figures(solution, folder)),
        Section(
            "Settings",
            [
                f"{problem!r}.",
                Table("What was asked; the rest are defaults.", ("option", "value"), asked),
                Table("Versions.", ("package", "version"), [*used, ["python", record["python"]]]),
            ],
        ),
    ]
    return render(
        f"{problem.name}, d = {problem.dim}",
        kicker="qpde run",
        lead=[f"Solved by {solution.rule}, seed {solution.seed}, {solution.precision}."],
        sections=sections,
        footer="Written by `qpde report`.",
    )


def _judgement(numbers: dict[str, Any]) -> list[str]:
    if numbers["skill"] is None:
        return ["No exact solution is known, so that errors are not."]
    if numbers["skill"] >= 1:
        return [
            "**The best constant in place of the network does as well or better**: the error is small "
            "because the trial function is good here, not because the network learned."
        ]
    return []


def _certificates(folder: Path) -> list[Any]:
    """What `qpde certify` found, where it was asked."""
    found = read_certificates(folder)
    if not found:
        return [f"No bound for the error yet: `qpde certify {folder.name}` looks for one."]
    rows = [
        [
            {"l2": "‖Q − u‖ in L2", "sup": "sup |Q − u|"}[name],
            one["bound"],
            one["relative_bound"],
            one["kind"],
            "–" if one["confidence"] is None else f"{100 * one['confidence']:g} %",
            "; ".join(one["assumptions"]),
        ]
        for name, one in found.items()
    ]
    columns = ("norm", "bound", "relative bound", "kind", "confidence", "assumes")
    return [
        Table("Bounds for the error.", columns, rows, cards=True, files={CERTIFICATE: CERTIFICATE})
    ]


def _figures(solution: Solution, folder: Path) -> list[Figure]:
    import matplotlib.pyplot as plt

    figures = []
    for name, draw in plot.suited(solution).items():
        figure = figure_of(draw(solution))
        image = folder / f"{name}.png"
        files = {"PNG": image.name} if image.exists() else {}
        figures.append(Figure(_CAPTIONS[name], [Panel(svg(figure), name, files)]))
        plt.close(figure)
    return figures


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {number:g}" for name, number in value.items()) or "–"
    return "–" if value is None else str(value)
