"""The words of the theory's page, for a reader who has not read the paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._report.page import Figure, Judgement, Panel, Section, Table, number, render
from .checks import Check

# Title, paragraphs and caption of every experiment, in the order of the page.
_SECTIONS: dict[str, tuple[str, Sequence[str], str]] = {
    "kernel-rate": (
        "A wide network is a kernel",
        [
            "The network is `S(x) = N^-β Σ c_i σ(w_i·x + b_i)`. Training moves its parameters a little; "
            "what `S` then does depends on the products of its gradients in the parameters at two points, "
            "`A^N(x, y) = N^(2β−1) ∇_θ S(x) · ∇_θ S(y)`. This is an average over the N units, so by "
            "the law of large numbers it tends to a fixed function, the tangent kernel `A(x, y)`, and its "
            "mean squared error falls like 1/N. The same is true of its derivatives, which matter here "
            "because the equation differentiates.",
            "`qpde.TangentKernel` computes `A` for any smooth activation in any dimension, with its "
            "gradient and Laplacian.",
        ],
        "Mean squared error of the kernel of random networks, and fitted powers of N.",
    ),
    "start-rate": (
        "Where training starts",
        [
            "The trial function `Q = S η + f` has the right boundary values whatever the network does, "
            "because η vanishes there. At the start the network is a sum of N independent terms of mean "
            "zero, scaled by `N^-β`: its mean square is exactly of order `N^(1−2β)`. For β > 1/2 a wide "
            "network starts at `Q_0 = f`, the extension of the boundary data.",
        ],
        "Mean squared H2 norm of `Q_0 − f` over random networks, and fitted powers of N.",
    ),
    "training": (
        "Wide networks follow the limit equation",
        [
            "Q-learning moves the parameters along `E[L Q(x) ∇_θ Q(x)]`, with `L Q` taken as a number. "
            "In the limit of infinite width the kernel stands still during training, and `Q` obeys a "
            "linear law with the kernel `B(x, y) = η(x) η(y) A(x, y)`: `dQ/dt = α B L Q`, `Q_0 = f`.",
            "Here networks of growing width are trained by the plain flow, with exact integrals in one "
            "dimension, and compared with the limit, which `qpde.solve_limit` computes without any network. "
            "The distance falls with N, in L2 and, with two derivatives, in H2; and the kernel moves "
            "less and less.",
        ],
        "Left: distance to the limit. Right: the largest change of the kernel. Means over seeds.",
    ),
    "kernel": (
        "What the kernel can reach",
        [
            "A flow along `B` can only reach what lies in the image of `B`. The paper proves that `B` is "
            "strictly positive definite and that its image is dense among the functions with zero "
            "boundary values. Its eigenvalues fall exponentially: smooth functions are reached with a few "
            "eigenfunctions, rough ones hardly.",
        ],
        "Eigenvalues of `B` in one dimension, and what is left of three functions outside its leading "
        "eigenfunctions.",
    ),
    "definite": (
        "No function is invisible to the kernel",
        [
            "If `B` had a zero eigenvalue, a part of the error could hide from training for ever. In exact "
            "arithmetic no matrix `B(x_i, x_j)` of different points has one. And `B` never stretches by "
            "more than its largest eigenvalue `λ`, which is what turns a decrease in the norm of `B` into "
            "one of the speed.",
        ],
        "",
    ),
    "spectrum": (
        "Why training is slow at the end",
        [
            "For a linear equation the flow is a sum of exponentials, one for each eigenvalue of `L B`. All "
            "lie in the left half plane where `L` is monotone, so everything converges; but they "
            "accumulate at zero. There is no slowest mode, no gap, and no exponential rate: every part of "
            "the error has its own, ever longer, time.",
        ],
        "Leading eigenvalues of the discretised `L B`.",
    ),
    "slow-end": (
        "Error against training time",
        [
            "The limit's error falls like a power of time, about one digit for every two decades. "
            "Networks of finite width do the same until the distance to the limit shows.",
        ],
        "Relative L2 error of the plain flow in one dimension, for finite widths beside the limit.",
    ),
    "path": (
        "Convergence, as far as it is proved",
        [
            "For monotone `L`, with constant `γ_L`, the squared norm of `L Q` in the kernel, `‖L Q_t‖_B²`, "
            "falls, and what it loses pays for the way: `∫ ‖B L Q_s‖² ds ≤ ‖L f‖_B² / (2 α γ_L)`. "
            "From this follows that `Q_t → u` in the mean over time, and outside a set of times of density "
            "zero. Both are checked along the whole computed path.",
        ],
        "Left: the squared error and its mean over time. Right: the integral and its bound.",
    ),
    "fixed-point": (
        "The end of the flow",
        [
            "A fixed point has `B L Q = 0`, and because `B` is strictly positive `L Q = 0`: it solves the "
            "equation. `qpde.solve_limit(problem, time=math.inf)` computes it by regularised least squares; "
            "the regularisation is the one with the smallest residual at points that are not nodes. "
            "In high dimension the number of nodes limits the accuracy.",
        ],
        "",
    ),
}


def page(
    folder: Path,
    tables: Mapping[str, Any],
    checks: Mapping[str, Sequence[Check]],
    about: dict[str, Any],
) -> str:
    """The page as HTML, with every experiment whose table is there; `about` tells of date and machine."""
    every = [check for found in checks.values() for check in found]
    sections = [Section("The statements", [_table(every)])]
    for name, (title, words, caption) in _SECTIONS.items():
        if name not in tables:
            continue
        blocks: list[Any] = list(words)
        picture = folder / "figures" / f"{name}.svg"
        if picture.exists():
            files = {"PDF": f"figures/{name}.pdf", "CSV": f"data/{name}.csv"}
            blocks.append(Figure(caption, [Panel(picture.read_bytes(), caption, files)]))
        if name == "fixed-point":
            blocks.append(_fixed(tables[name]))
        blocks += [_sentence(check) for check in checks[name]]
        sections.append(Section(title, blocks))
    sections.append(_about(about))
    held = sum(check.holds for check in every)
    lead = [
        "Neural Q-learning for solving PDEs (Cohen, Jiang and Sirignano, JMLR 24, 2023) proves that a wide "
        "network trained this way converges to the solution. This page walks through the proof, with each "
        f"statement as an experiment that could have failed. Of {len(every)}, {held} hold.",
    ]
    if about["effort"] == "quick":
        lead.append(
            "**This is a quick run:** narrower networks, fewer seeds and nodes. Leave `--quick` out for the "
            "whole."
        )
    return render(
        "The theory, as experiments",
        kicker="qpde theory",
        lead=lead,
        sections=sections,
        footer=f"Written by `qpde theory` on {about['date']}. Every figure is drawn from the CSV file that "
        "it links to.",
    )


def _value(check: Check) -> str:
    """The measured number, with its confidence interval if there is one."""
    if check.low is None or check.high is None:
        return number(check.value)
    return f"{check.value:.3f} [{check.low:.3f}, {check.high:.3f}]"


def _table(checks: Sequence[Check]) -> Table:
    rows = [(f.statement, f.theory, f"{_value(f)} ({f.measured})", _judgement(f)) for f in checks]
    return Table(
        "What the theory says and what was found. Intervals are 95 % confidence intervals of fitted slopes.",
        ("statement", "theory", "found", "verdict"),
        rows,
        cards=True,
        files={"theory.json": "theory.json"},
    )


def _judgement(check: Check) -> Judgement:
    return Judgement(check.holds, "holds" if check.holds else "does not hold")


def _sentence(check: Check) -> str:
    """A check in one sentence, below the figure of its experiment."""
    why = f" — {check.why}" if check.why else ""
    word = "holds" if check.holds else "**does not hold**"
    return f"{check.statement}: {_value(check)} ({check.measured}); {word}{why}."


def _fixed(columns: Any) -> Table:
    names = ("dim", "nodes", "error", "constant", "residual", "regularisation")
    heads = (
        "d",
        "nodes",
        "relative L2 error",
        "best constant network",
        "rms of L Q",
        "regularisation",
    )
    rows = [[float(v) for v in row] for row in zip(*(columns[n] for n in names), strict=True)]
    return Table(
        "The fixed point at points that are not nodes.",
        heads,
        rows,
        files={"CSV": "data/fixed-point.csv"},
    )


def _about(about: dict[str, Any]) -> Section:
    here = about["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return Section(
        "How this page was made",
        [
            f"On {about['date']}, {here['processor']}, {here['cores']} cores, {here['system']}, Python "
            f"{here['python']}; {versions}.",
            "Seeds are fixed: the same machine gives the same numbers. Again: "
            "`qpde theory --out docs/theory`, or `qpde theory --quick` for a look.",
        ],
    )
