"""The sections of the reproduction's page that show its experiments."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from ..._report.page import Figure, Panel, Section, Table, number
from .._columns import where
from .figures import FIGURES
from .parts import PROMINENCE
from .runs import Tables


def experiment_sections(folder: Path, tables: Tables) -> list[Section]:
    """The sections of all experiments whose tables are there, in the order of the page."""
    made = _Sections(folder, tables)
    parts = (made.one_dimension, made.twenty_dimensions, made.cycles, made.best_or_last)
    parts += (made.truncation, made.batches, made.sensitivity, made.put, made.timing)
    return [section for part in parts for section in part()]


@dataclasses.dataclass(frozen=True)
class _Sections:
    """Makes the sections; a method gives none where its part was not run."""

    folder: Path
    tables: Tables

    def _panels(self, *names: str) -> list[Panel]:
        """Figures by name, with links to their files."""
        return [
            Panel(
                (self.folder / "figures" / f"{name}.svg").read_bytes(),
                FIGURES[name].words,
                {
                    "CSV": f"data/{FIGURES[name].table}.csv",
                    **{form.upper(): f"figures/{name}.{form}" for form in ("svg", "pdf", "png")},
                },
            )
            for name in names
        ]

    def _table(self, caption: str, name: str, columns: dict[str, str]) -> Table:
        """Some columns of a table, given by their names and their headings."""
        source = self.tables[name]
        values = [
            [_plain(source[column][i]) for column in columns]
            for i in range(len(next(iter(source.values()))))
        ]
        return Table(caption, list(columns.values()), values, files={"CSV": f"data/{name}.csv"})

    def one_dimension(self) -> list[Section]:
        if "runs-1d" not in self.tables:
            return []
        return [
            Section(
                "One dimension",
                [
                    Figure(
                        "**Figure 1.** Left: the loss during training, median and range within 200 "
                        "windows of steps, all seeds. Right: the operator error at the end, `L Q_T(x)`.",
                        self._panels("loss-1d", "residual-1d"),
                    ),
                    Figure(
                        "**Figure 2.** Left: the solution of seed 0 beside the exact one. Right: the "
                        "relative error of the iterate with the smallest loss, all seeds.",
                        self._panels("solution-1d", "error-1d"),
                    ),
                    self._runs("runs-1d"),
                ],
            )
        ]

    def _runs(self, name: str) -> Table:
        """The training runs of a part, one a row."""
        columns = {
            "rule": "rule",
            "seed": "seed",
            "loss": "loss",
            "relative_l2_error": "rel. L2 error",
            "max_relative_error": "max rel. error",
            "skill": "skill",
            "seconds": "seconds",
        }
        caption = (
            "The runs. Loss and errors are those of the best iterate on 100,000 fresh points, in float64; "
            "the largest relative error keeps 1 % away from the boundary."
        )
        return self._table(caption, name, columns)

    def twenty_dimensions(self) -> list[Section]:
        if "runs-20d" not in self.tables:
            return []
        constant = self.tables["constant-20d"]
        return [
            Section(
                "Twenty dimensions",
                [
                    Figure(
                        "**Figure 3.** Left: the loss of both methods during training. Right: the mean "
                        "squared error at 100 random points of each sphere.",
                        self._panels("loss-20d", "mse-20d"),
                    ),
                    Figure(
                        "**Figure 4.** Left: the largest relative error on each sphere. Right: values at "
                        "random points against the radius, with the exact curve.",
                        self._panels("max-error-20d", "scatter-20d"),
                    ),
                    self._runs("runs-20d"),
                    "In twenty dimensions nearly all points lie next to the sphere, where "
                    "`Q = S (1 - |x|^2)` is nearly right whatever the network does: the best constant in "
                    f"its place has a relative L2 error of {number(constant['relative_l2_error'][0])} "
                    f"and a loss of {number(constant['loss'][0])}. Read the errors beside their skill.",
                ],
            )
        ]

    def cycles(self) -> list[Section]:
        if "cycles" not in self.tables:
            return []
        columns = {
            "optimiser": "optimiser",
            "rule": "rule",
            "dim": "d",
            "seed": "seed",
            "peaks": "peaks",
            "per_1000_steps": "per 1,000 steps",
            "largest_factor": "largest factor",
            "loss": "loss",
            "skill": "skill",
        }
        return [
            Section(
                "Cycles",
                [
                    "The paper sees cycles of the loss under Adam and none under plain gradient descent. "
                    "Here a cycle is a peak of the loss, averaged over 25 steps and divided by its running "
                    f"median over 2,001, that stands out by a factor of {10**PROMINENCE:.0f} or more.",
                    Figure(
                        "Part of the training in twenty dimensions, means over 10 steps.",
                        self._panels("cycles"),
                    ),
                    self._table("Peaks of the loss.", "cycles", columns),
                ],
            )
        ]

    def best_or_last(self) -> list[Section]:
        names = [name for name in ("runs-1d", "runs-20d") if name in self.tables]
        rows = []
        for name in names:
            runs = self.tables[name]
            for i, rule in enumerate(runs["rule"]):
                row = [1 if name == "runs-1d" else 20, str(rule), _plain(runs["seed"][i])]
                row += [_plain(runs["best_step"][i] / runs["steps"][i])]
                for quantity in ("loss", "relative_l2_error"):
                    row += [_plain(runs[q][i]) for q in (quantity, f"last_{quantity}")]
                rows.append(row)
        if not rows:
            return []
        columns = ("d", "rule", "seed", "tau / T", "loss, best", "last", "error, best", "last")
        return [
            Section(
                "The best iterate and the last",
                [
                    "Algorithm 1 of the paper returns the last iterate; its figures show the one with the "
                    "smallest minibatch loss, at step tau.",
                    Table("Loss and relative L2 error of both.", columns, rows),
                ],
            )
        ]

    def truncation(self) -> list[Section]:
        if "truncation" not in self.tables:
            return []
        columns = {
            "optimiser": "optimiser",
            "form": "force",
            "status": "end",
            "steps": "steps",
            "truncated_at_the_end": "truncated",
            "loss": "loss",
            "relative_l2_error": "rel. L2 error",
            "skill": "skill",
        }
        return [
            Section(
                "Truncation",
                [
                    "The theory multiplies the gradient by `psi psi'(L Q)`, which falls to zero where "
                    "`|L Q|` exceeds the level `N^delta` by 3 or more. The force `psi` alone is bounded as "
                    "well, which is all that the proofs use, and never vanishes.",
                    self._table(
                        "Shorter runs in twenty dimensions, last iterate. `truncated` is the share of "
                        "truncated points in the last step.",
                        "truncation",
                        columns,
                    ),
                ],
            )
        ]

    def batches(self) -> list[Section]:
        if "batches" not in self.tables:
            return []
        return [
            Section(
                "Growing batches",
                [
                    "Batches that grow as in the paper against constant ones with the same total number "
                    "of points, otherwise the same settings.",
                    Figure(
                        "Dots are seeds, the bar is their median.",
                        self._panels("batches"),
                    ),
                ],
            )
        ]

    def sensitivity(self) -> list[Section]:
        if "sensitivity" not in self.tables:
            return []
        rows = []
        table = self.tables["sensitivity"]
        for dim in (1, 20):
            for parameter in ("beta", "scale"):
                chosen = where(table, dim=dim, parameter=parameter)
                for value in np.unique(chosen["value"]):
                    runs = where(chosen, value=value)
                    errors = runs["relative_l2_error"]
                    row = [dim, parameter, value, _plain(runs["steps"][0]), len(errors)]
                    row += [np.median(runs["loss"]), np.median(errors), errors.min(), errors.max()]
                    rows.append([_plain(cell) for cell in [*row, np.median(runs["skill"])]])
        columns = ("d", "parameter", "value", "steps", "seeds", "median loss")
        columns += ("median error", "smallest", "largest", "median skill")
        return [
            Section(
                "Sensitivity",
                [
                    "Shorter runs with the paper's settings but for one: `beta`, which the paper leaves "
                    "open in (1/2, 1), and the initial scale of `w`, which is 1 in the paper.",
                    Figure(
                        "Relative L2 error. Dots are seeds, the bar is their median; the preset in blue.",
                        self._panels("beta", "scale"),
                    ),
                    Table(
                        "Medians and ranges over seeds.",
                        columns,
                        rows,
                        files={"CSV": "data/sensitivity.csv"},
                    ),
                ],
            )
        ]

    def put(self) -> list[Section]:
        if "put-runs" not in self.tables:
            return []
        columns = {
            "rule": "rule",
            "seed": "seed",
            "free_boundary": "free boundary",
            "free_boundary_error": "its error",
            "sup_error": "largest error",
            "relative_l2_error": "rel. L2 error",
            "loss": "loss",
            "skill": "skill",
            "seconds": "seconds",
        }
        return [
            Section(
                "The perpetual American put",
                [
                    "A problem of the authors' notebooks: `max(L u, (K - x)^+ - u) = 0` on (0, 1) with "
                    "`L u = 1/2 sigma^2 x^2 u'' + r x u' - r u`, K = 0.5, r = 0.05, sigma = 0.25. One "
                    "exercises below 0.307692. Solved with the default network.",
                    Figure(
                        "Left: the value. Right: the generator applied to it, `-r K` where one exercises "
                        "and 0 where one holds; the free boundary is taken where it crosses half of that.",
                        self._panels("put-value", "put-boundary"),
                    ),
                    self._table("The runs.", "put-runs", columns),
                ],
            )
        ]

    def timing(self) -> list[Section]:
        if "timing" not in self.tables:
            return []
        ratio = float(np.median(self.tables["timing"]["ratio"]))
        return [
            Section(
                "Time",
                [
                    "The paper's deep Galerkin takes 5 times as long as Q-PDE, because it "
                    "differentiates through `L`. With closed-form derivatives, which both methods share "
                    f"here, the ratio is {number(ratio)} (d = 20, 256 units, 6,000 points, steps timed in "
                    "turn); the claims have the authors' way too, where a speed benchmark was found.",
                    self._table(
                        "Milliseconds a step, by round.",
                        "timing",
                        {
                            "round": "round",
                            "q_learning_ms": "Q-PDE",
                            "deep_galerkin_ms": "DGM",
                            "ratio": "ratio",
                        },
                    ),
                ],
            )
        ]


def _plain(value: Any) -> Any:
    """A cell of a table as a plain value."""
    if isinstance(value, str):
        return str(value)
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < 1e9 else value
