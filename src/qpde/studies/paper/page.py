"""The words of the reproduction's page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._page import Figure, Panel, Section, Table, Verdict, number, render
from .._tables import where
from .claims import Claim
from .figures import FIGURES
from .parts import PROMINENCE, Tables

_NOTES = Path(__file__).parents[4] / "docs" / "paper-notes.md"


def page(folder: Path, tables: Tables, claims: Sequence[Claim], study: dict[str, Any]) -> str:
    """The page as HTML, of all the parts that are there."""
    builder = _Builder(folder, tables)
    sections = [
        builder.claims(claims, study["effort"]),
        builder.settings(),
        *builder.one_dimension(),
        *builder.twenty_dimensions(),
        *builder.cycles(),
        *builder.best_or_last(),
        *builder.truncation(),
        *builder.batches(),
        *builder.sensitivity(),
        *builder.put(),
        *builder.timing(),
        builder.corrections(),
        _about(study),
    ]
    held = sum(claim.holds is True for claim in claims)
    lead = [
        "The experiments of Neural Q-learning for solving PDEs (Cohen, Jiang and Sirignano, JMLR 24, "
        "2023), section 6 and appendix, run again with qpde, and what the paper says but does not "
        f"show. Of {len(claims)} claims, {held} hold here; the table says which do not, and why."
    ]
    if study["effort"] == "quick":
        lead.append(
            "**This is a quick run:** far fewer steps and seeds than the paper's. Its numbers show that "
            "everything works, not what the method reaches. Leave `--quick` out for the whole."
        )
    return render(
        "The paper, reproduced",
        kicker="qpde reproduce",
        lead=lead,
        sections=sections,
        footer=f"Written by `qpde reproduce` on {study['date']}. Every figure is drawn from the CSV file "
        "that it links to.",
    )


class _Builder:
    """Makes sections; each is empty where its part was not run."""

    def __init__(self, folder: Path, tables: Tables):
        self._folder, self._tables = folder, tables

    def _panels(self, *names: str) -> list[Panel]:
        return [
            Panel(
                (self._folder / "figures" / f"{name}.svg").read_bytes(),
                FIGURES[name].words,
                {
                    "CSV": f"data/{FIGURES[name].table}.csv",
                    **{form.upper(): f"figures/{name}.{form}" for form in ("svg", "pdf", "png")},
                },
            )
            for name in names
        ]

    def _table(self, caption: str, name: str, columns: dict[str, str], rows: Any = None) -> Table:
        source = self._tables[name] if rows is None else rows
        values = [
            [_plain(source[column][i]) for column in columns]
            for i in range(len(next(iter(source.values()))))
        ]
        return Table(caption, list(columns.values()), values, files={"CSV": f"data/{name}.csv"})

    def claims(self, claims: Sequence[Claim], effort: str) -> Section:
        words = {True: "holds", False: "does not", None: "no number"}
        rows = [
            [
                claim.statement,
                claim.paper,
                _range(claim),
                number(claim.skill) if claim.skill is not None else "",
                Verdict(claim.holds if effort == "full" else None, words[claim.holds]),
                f"{claim.measured}. {claim.why}".strip(),
            ]
            for claim in claims
        ]
        caption = (
            "Ours: median over runs, with the range in brackets. **Skill** is the error divided by that "
            "of the best constant in place of the network: 1 means that nothing was learned beyond one "
            "number."
        )
        columns = ("the paper says", "its number", "ours", "skill", "here", "what was measured")
        return Section(
            "Claims",
            [Table(caption, columns, rows, cards=True, files={"JSON": "claims.json"})],
        )

    def settings(self) -> Section:
        rows = [
            ["1", "Q-PDE", "1", "64", "sigmoid", "Adam", "1,000 to 2,000", "0.1", "not given"],
            ["20", "Q-PDE", "1", "256", "sigmoid", "Adam", "2,000 to 10,000", "0.2", "40,000"],
            ["20", "DGM", "1", "256", "sigmoid", "Adam", "2,000 to 10,000", "0.2", "40,000"],
        ]
        columns = ("d", "method", "layers", "units", "activation", "optimiser", "points a step")
        return Section(
            "Settings",
            [
                "The test problem is the discounted survival time of Brownian motion in the unit ball: "
                "`1 - gamma u + 1/2 Lap u = 0` inside, `u = 0` on the sphere; `Q = S (1 - |x|^2)`.",
                Table("The paper's settings.", (*columns, "gamma", "steps"), rows),
                "Initially `c ~ U[-1, 1]`, `w ~ N(0, I)`, `b ~ N(0, 1)`; learning rate "
                "`0.5 / (1 + t/200)`; the number of points grows linearly with the step.",
                "What `qpde.presets.paper` adds, because the paper does not say it:",
                [
                    "`beta = 0.99` in the factor `N^-beta` (see the sensitivity below);",
                    "40,000 steps in one dimension;",
                    "no truncation, which halts Adam (see below), and no tolerance;",
                    "the iterate with the smallest minibatch loss, as the paper's text reports, where its "
                    "Algorithm 1 returns the last one.",
                ],
            ],
        )

    def one_dimension(self) -> list[Section]:
        if "runs-1d" not in self._tables:
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
        if "runs-20d" not in self._tables:
            return []
        constant = self._tables["constant-20d"]
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
        if "cycles" not in self._tables:
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
        names = [name for name in ("runs-1d", "runs-20d") if name in self._tables]
        rows = []
        for name in names:
            runs = self._tables[name]
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
        if "truncation" not in self._tables:
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
        if "batches" not in self._tables:
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
        if "sensitivity" not in self._tables:
            return []
        rows = []
        table = self._tables["sensitivity"]
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
        if "put-runs" not in self._tables:
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
        if "timing" not in self._tables:
            return []
        ratio = float(np.median(self._tables["timing"]["ratio"]))
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

    def corrections(self) -> Section:
        where_to = "`docs/paper-notes.md` of the source"
        if _NOTES.exists():
            where_to = f"[the notes on the paper]({Path(os.path.relpath(_NOTES, self._folder)).as_posix()})"
        return Section(
            "Corrections",
            [
                "Reading the paper closely gave a few corrections, with derivations in "
                f"{where_to}. In short:",
                [
                    "the adjoint term of the monotonicity lemma lacks the factor 1/2 of the "
                    "Fokker-Planck equation, and the exponential-density lemma a term;",
                    "the kernel `A^N` carries the factor `N^(2 beta - 1)`, and some derivatives in the "
                    "appendix lack a term;",
                    "the example of a truncation is not Lipschitz uniformly in the width;",
                    "monotonicity is needed for differences in H2 with zero trace;",
                    "the published notebooks differ from the text: layers, optimiser, learning rate.",
                ],
            ],
        )


def _about(study: dict[str, Any]) -> Section:
    here = study["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in study["versions"].items())
    minutes = study["seconds"] / 60
    return Section(
        "How this page was made",
        [
            f"On {study['date']}, {here['processor']}, {here['cores']} cores, {here['system']}, Python "
            f"{here['python']}; {versions}.",
            f"{study['runs']} training runs, {minutes:.1f} minutes of training and "
            f"{study['compile_seconds'] / 60:.1f} of compiling on a machine that others share. The same "
            "seeds give the same bits on the same machine.",
            "Again: `qpde reproduce --out docs/paper`, or `qpde reproduce --quick` for a look.",
        ],
    )


def _plain(value: Any) -> Any:
    """A cell of a table as a plain value."""
    if isinstance(value, str):
        return str(value)
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < 1e9 else value


def _range(claim: Claim) -> str:
    if claim.runs == 1:
        return number(claim.median)
    return f"{number(claim.median)} [{number(claim.low)}, {number(claim.high)}]"
