"""The page and the figure of the accuracy benchmark."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._plot.style import COMPUTED, CYCLE, EXACT, new_figure
from ._accuracy_runs import ALONE, ALONE_BUDGET, ALONE_STEPS, ScoredRun
from ._accuracy_summary import families


def markdown(result: dict[str, Any]) -> str:
    """The results as a page in Markdown."""
    lines, here = result["summary"], result["machine"]
    budgets = sorted({b for line in lines for b in line["default"]}, key=float)
    met = families(lines)
    words = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    text = [
        "# Accuracy",
        "",
        f"`qpde bench accuracy` on {result['date']}: {here['processor']}, {here['cores']} cores, Python "
        f"{here['python']}; {words}. The default of `qpde.solve`, without tuning, medians over seeds. "
        "Seconds are those of training and compiling (the first seed of a problem compiles, the others go "
        "without), on a machine that others share. Q-learning and deep "
        f"Galerkin alone: {ALONE_STEPS:,} steps, at most {ALONE_BUDGET:g} s. Errors are relative "
        "L2 over uniform points; for two_body over points of uniform radius, and points of radius sqrt(U) "
        "train it; for american_put the largest error; in the whole space the relative error of the value at "
        "the start, and skill is over that of the carried data alone.",
        "",
        f"Families with all targets met, among what was run: **{sum(met.values())} of {len(met)}** "
        f"({', '.join(name for name, yes in met.items() if yes) or 'none'}).",
        "",
        "| problem | d | "
        + " | ".join(f"error, {float(b):g} s" for b in budgets)
        + " | runs | seconds | skill | Q-learning alone | deep Galerkin alone | published | target | met |",
        "|---|---|" + "---|" * (len(budgets) + 8),
    ]
    for line in lines:
        errors = [_number(line["default"].get(b)) for b in budgets]
        seconds = line["seconds"][max(line["seconds"], key=float)]
        cells = [
            line["problem"],
            str(line["dim"]),
            *errors,
            str(line["runs"]),
            f"{seconds:.0f}",
            _number(line["skill"]),
        ]
        cells += [_number(line["alone"].get(name)) for name in ALONE]
        published = _number(line["published"])
        if line["hardware"] != "not stated":
            published += f" ({line['hardware']})"
        cells += [published, _number(line["target"]), "yes" if line["met"] else "no"]
        text.append("| " + " | ".join(cells) + " |")
    text += ["", *_rivals([ScoredRun(**row) for row in result["rows"]]), *_skills(lines)]
    text += ["![error against time](accuracy.png)", ""]
    return "\n".join(text)


def _rivals(rows: Sequence[ScoredRun]) -> list[str]:
    """The paragraph about DeepXDE, none where it was not run."""
    theirs = [row for row in rows if row.method == "deepxde"]
    if not theirs:
        return []
    text = [
        "## Beside DeepXDE",
        "",
        "Adam, then L-BFGS, 5,000 steps each in two dimensions, 1,000 in more; three hidden layers of 50 "
        "units, float64 (`studies/_rivals.py`). Our default had DeepXDE's finishing time as its budget.",
        "",
        "| problem | d | DeepXDE, s | its error | our error | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for row in theirs:
        ours = next(
            other
            for other in rows
            if (other.problem, other.dim) == (row.problem, row.dim)
            and other.method == "default at DeepXDE's time"
        )
        text.append(
            f"| {row.problem} | {row.dim} | {row.seconds:.0f} | {_number(row.error)} | "
            f"{_number(ours.error)} | {row.error / ours.error:.1e} |"
        )
    return [*text, ""]


def _skills(lines: Sequence[dict[str, Any]]) -> list[str]:
    """A sentence about the problems on which the network is worse than a constant."""
    poor = [line for line in lines if line["skill"] is not None and line["skill"] > 1.0]
    if not poor:
        return ["No skill is above 1.", ""]
    names = ", ".join(f"{line['problem']} d={line['dim']} ({line['skill']:.2g})" for line in poor)
    return [f"Skill above 1 (worse than the best constant network): {names}.", ""]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1e}"


def draw(result: dict[str, Any]) -> Any:
    """Errors against seconds, a small picture for each problem: the default in blue, the others beside it."""
    rows = [ScoredRun(**row) for row in result["rows"]]
    names = list(dict.fromkeys((row.problem, row.dim) for row in rows))
    columns = 4
    count = -(-len(names) // columns)
    axes = new_figure((11.0, 2.4 * count), count, columns)
    colours = {
        "default": COMPUTED,
        "q-learning": CYCLE[1],
        "deep-galerkin": CYCLE[2],
        "deepxde": EXACT,
    }
    targets = {(line["problem"], line["dim"]): line["target"] for line in result["summary"]}
    for index, (ax, name) in enumerate(zip(axes, names, strict=False)):
        for method, colour in colours.items():
            here = [r for r in rows if (r.problem, r.dim) == name and r.method == method]
            seconds = [r.seconds + r.compile_seconds for r in here]
            ax.loglog(seconds, [r.error for r in here], "o", color=colour, ms=3.5, label=method)
        if name in targets:
            ax.axhline(targets[name], color=EXACT, lw=0.6, ls="--", label="target")
        ax.set_xlim(0.7, 1_000.0)
        # Without room above and below, one point near the target would fill the picture.
        low, high = ax.get_ylim()
        ax.set_ylim(low / 3.0, high * 3.0)
        ax.set_xlabel("seconds")
        if index % columns == 0:
            ax.set_ylabel("relative L2 error" if name[0] != "american_put" else "largest error")
        ax.set_title(f"{name[0]}, d = {name[1]:,}", fontsize=ax.xaxis.label.get_size())
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    axes[0].figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    return np.asarray(axes, object)
