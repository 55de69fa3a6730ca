"""The page of a run folder: its result, figures and settings."""

import dataclasses
from pathlib import Path
from typing import Any

from .._files.whole import write_text
from .._plot.figures import FIGURES, suited
from .._plot.style import close, figure_of, svg
from .._problem.solution import Solution
from .._problem.verdict import Word
from .._runs.numbers import numbers_of
from .._runs.record import RUN, Record, read_record
from .._runs.run_folder import CERTIFICATE, HISTORY, PAGE, read_certificates
from .._runs.store import SOLUTION, load
from .._text import Verbatim, for_name
from .._trust.certificate import Norm
from .page import Figure, Judgement, Panel, Section, Table, render

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
_BOUNDED = {
    Norm.L2: "‖Q − u‖ in L2",
    Norm.SUP: "sup |Q − u|",
    Norm.H2: "‖Hess (Q − u)‖ in L2",
    Norm.LAST: "‖Q − u‖ in L2 at the last instant",
    Norm.VALUE: "|Q − u| at the starting point",
}


def write_page(folder: Path, *, trust: bool = False) -> Path:
    """Write `report.html` into a run folder, from the files that the folder holds, and return its path."""
    record, path = read_record(folder), folder / PAGE
    write_text(path, run_page(load(folder, trust=trust), record, folder))
    return path


def run_page(solution: Solution, record: Record, folder: Path) -> str:
    """The page of a solution; `record` is the content of `run.json`."""
    problem, numbers = solution.problem, numbers_of(solution)
    results = [[words, numbers[name]] for name, words in _NUMBERS.items()]
    spec = dataclasses.asdict(record.spec.relative_to(folder))
    asked = [[name, _words(value)] for name, value in spec.items()]
    used = [[name, Verbatim(version)] for name, version in record.versions.items()]
    links = {name: name for name in (RUN, HISTORY, SOLUTION) if (folder / name).exists()}
    sections = [
        Section(
            "Result",
            [
                f"{solution.rule}: {solution.status.value}",
                Table("", ("quantity", "value"), results, files=links),
                *_reasons(solution),
                *_remark_on_skill(numbers),
                *_certificates(folder),
            ],
        ),
        Section("Figures", _figures(solution, folder)),
        Section(
            "Settings",
            [
                *(Verbatim(line.strip().rstrip(".") + ".") for line in repr(problem).splitlines()),
                Table("What was asked; the rest are defaults.", ("option", "value"), asked),
                Table(
                    "Versions.",
                    ("package", "version"),
                    [*used, ["python", Verbatim(record.python)]],
                ),
            ],
        ),
    ]
    return render(
        f"{for_name(problem.name)}, d = {problem.space_dim}",
        kicker="qpde run",
        lead=[
            *_verdict(solution),
            f"Trained by {solution.rule}, seed {solution.seed}, {solution.precision}.",
        ],
        sections=sections,
        footer="Written by `qpde report`.",
    )


def _verdict(solution: Solution) -> list[str]:
    """Whether the problem is solved, and what to try where it is not: the first lines of the page."""
    verdict = solution.verdict
    if verdict is None:
        return ["Nobody has judged whether the problem is solved: `qpde.judge(solution)` does."]
    word, _, rest = str(verdict).partition(":")
    advice = [f"To try next: {verdict.advice}."] if verdict.advice else []
    return [f"**{word}:**{rest}", *advice]


def _reasons(solution: Solution) -> list[Table]:
    """The numbers behind the verdict."""
    if solution.verdict is None:
        return []
    good = {Word.SOLVED: True, Word.NOT_SOLVED: False, Word.ROUGHLY: None}
    rows = [
        [
            reason.name,
            reason.value,
            "–" if reason.word is None else Judgement(good[reason.word], str(reason.word)),
            reason.text,
        ]
        for reason in solution.verdict.reasons
    ]
    columns = ("number", "value", "says by itself", "what it is")
    return [Table("What the verdict rests on.", columns, rows, cards=True)]


def _remark_on_skill(numbers: dict[str, Any]) -> list[str]:
    """A paragraph where the errors are unknown, or where the network learned nothing."""
    if numbers["skill"] is None:
        return ["No exact solution is known, so that errors are not."]
    if numbers["skill"] >= 1:
        return [
            "**The best constant in place of the network does as well or better**: the error is small "
            "because the trial function is good here, not because the network learned."
        ]
    return []


def _certificates(folder: Path) -> list[Any]:
    """The bounds that `qpde certify` wrote into the folder, or a hint to call it."""
    found = read_certificates(folder)
    if not found:
        return ["No bound for the error yet: `qpde certify RUN` looks for one."]
    rows = [
        [
            _BOUNDED[Norm(name)],
            one["bound"],
            one["relative_bound"],
            Verbatim(one["kind"]),
            "–" if one["confidence"] is None else f"{100 * one['confidence']:g} %",
            Verbatim("; ".join(one["assumptions"])),
        ]
        for name, one in found.items()
    ]
    columns = ("norm", "bound", "relative bound", "kind", "confidence", "assumes")
    return [
        Table("Bounds for the error.", columns, rows, cards=True, files={CERTIFICATE: CERTIFICATE})
    ]


def _figures(solution: Solution, folder: Path) -> list[Figure]:
    """Every figure that suits the solution, with a link to its PNG where the folder has one."""
    figures = []
    for name, draw in suited(solution).items():
        figure = figure_of(draw(solution))
        image = folder / f"{name}.png"
        files = {"PNG": image.name} if image.exists() else {}
        figures.append(Figure(FIGURES[name].caption, [Panel(svg(figure), name, files)]))
        close(figure)
    return figures


def _words(value: Any) -> str:
    """An option of the spec as text."""
    if isinstance(value, dict):
        return Verbatim(", ".join(f"{name} = {number:g}" for name, number in value.items()) or "–")
    return Verbatim("–" if value is None else str(value))
