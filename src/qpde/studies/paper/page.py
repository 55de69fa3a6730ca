"""The page of the reproduction: the claims first, then settings, experiments and corrections."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._report.page import Judgement, Section, Table, number, render
from .claims import Claim
from .runs import Tables
from .sections import experiment_sections

_NOTES = Path(__file__).parents[4] / "docs" / "paper-notes.md"


def page(folder: Path, tables: Tables, claims: Sequence[Claim], study: dict[str, Any]) -> str:
    """The page as HTML, with every part whose tables are there; `study` tells when and where it was run."""
    sections = [
        _claims(claims, study["effort"]),
        _settings(),
        *experiment_sections(folder, tables),
        _corrections(folder),
        _about(study),
    ]
    held = sum(claim.holds is True for claim in claims)
    empty = sum(claim.verdict.startswith("holds,") for claim in claims)
    lead = [
        "The experiments of Neural Q-learning for solving PDEs (Cohen, Jiang and Sirignano, JMLR 24, "
        "2023), section 6 and appendix, run again with qpde, and what the paper says but does not "
        f"show. Of {len(claims)} claims, {held} hold here, {empty} of them of runs that are no better than a "
        "constant; the table says which do not, and why."
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


def _claims(claims: Sequence[Claim], effort: str) -> Section:
    """A table of the claims; a quick run judges none of them."""
    rows = [
        [
            claim.statement,
            claim.paper,
            _range(claim),
            number(claim.skill) if claim.skill is not None else "",
            Judgement(claim.holds if effort == "full" else None, claim.verdict),
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


def _settings() -> Section:
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


def _corrections(folder: Path) -> Section:
    where_to = "`docs/paper-notes.md` of the source"
    if _NOTES.exists():
        where_to = f"[the notes on the paper]({Path(os.path.relpath(_NOTES, folder)).as_posix()})"
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


def _range(claim: Claim) -> str:
    """The median over runs, and the range of several."""
    if claim.runs == 1:
        return number(claim.median)
    return f"{number(claim.median)} [{number(claim.low)}, {number(claim.high)}]"
