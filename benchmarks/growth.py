"""What time buys: error and bound of the default against seconds of training.

Run:     python benchmarks/growth.py [--only waves_6,peak] [--times 3,10,30,100] [--out benchmarks]
Writes:  growth.json, GROWTH.md, growth.png; problems that are not run are kept from the last time.

One run a problem, stopped at each time and gone on with from its checkpoint, with the same bits as an
undisturbed run. Seconds are those of training; errors are relative L2 errors, bounds those of `certify`.
The slope is that of the logarithm of the error against that of the seconds, from the first time at which
anything was learned to the end of the run.
"""

import argparse
import json
import math
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harder
import numpy as np
import unseen

import qpde
from qpde import zoo
from qpde.studies._accuracy_runs import build, scored_run, training_law
from qpde.studies._machine import machine, today, versions

# One member of every family of the zoo's targets.
_ZOO = {
    f"{target.problem}_{target.dim}": target
    for target in reversed(zoo.TARGETS)
    if target.dim <= 1_000
}
_FAMILIES = {target.family: name for name, target in _ZOO.items()}


def problems() -> dict[str, Callable[[], qpde.Problem]]:
    """All problems by name: the unseen ones, the harder ones, and one of every family of the zoo."""
    found: dict[str, Callable[[], qpde.Problem]] = {**unseen.PROBLEMS, **harder.PROBLEMS}
    for name in _FAMILIES.values():
        found[name] = lambda name=name: build(_ZOO[name])
    return found


def run(name: str, times: list[float]) -> dict[str, Any]:
    """One problem at the times; fewer where the run ends by itself."""
    problem = problems()[name]()
    target = _ZOO.get(name)
    law = None if target is None else training_law(target, problem)
    looks: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for budget in times:
            solution = qpde.solve(
                problem,
                budget=budget,
                checkpoint=folder,
                measure=law,
                progress=False,
                throw=False,
            )
            looks.append(_look(solution, target, budget))
            print(f"{problem.name:36s}", _words(looks[-1]), flush=True)
            if solution.status is not qpde.Status.BUDGET:
                break
    return {"problem": problem.name, "looks": looks, "slope": _slope(looks)}


def _look(solution: qpde.Solution, target: Any, budget: float) -> dict[str, Any]:
    if target is None:
        score: Any = solution.score
        error, skill = score.relative_l2_error, score.skill
    else:
        scored = scored_run(target, "default", budget, 0, solution)
        error, skill = scored.error, scored.skill
    return {
        "budget": budget,
        "seconds": solution.seconds,
        "compiling": solution.compile_seconds,
        "error": error,
        "skill": skill,
        "bound": _bound(solution),
        "status": solution.status.label,
        "verdict": None if solution.verdict is None else solution.verdict.word.value,
        "stages": [str(stage) for stage in solution.stages],
    }


def _bound(solution: qpde.Solution) -> float | None:
    """The relative bound of a certificate; None where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return qpde.certify(solution).relative_bound
        except ValueError:
            return None


def _words(look: dict[str, Any]) -> str:
    bound = "none" if look["bound"] is None else f"{look['bound']:.1e}"
    return (
        f"at {look['budget']:5.0f} s: error {look['error']:.1e}, bound {bound}, "
        f"{look['seconds']:.0f} s and {look['compiling']:.0f} s of compiling, "
        f"{look['status']}, {look['verdict']}"
    )


def _slope(looks: list[dict[str, Any]]) -> float | None:
    """The power of the seconds by which the error falls."""
    points = [(look["seconds"], look["error"]) for look in looks if look["error"] > 0]
    if len(points) < 2 or points[-1][0] < 1.5 * points[0][0]:
        return None
    seconds, errors = np.log(np.asarray(points)).T
    return float(np.polyfit(seconds, errors, 1)[0])


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    about = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    here, rows = result["machine"], result["rows"]
    times = sorted({look["budget"] for row in rows.values() for look in row["looks"]})
    text = [
        "# What time buys",
        "",
        f"`python benchmarks/growth.py`, {result['date']}: {here['processor']}, {here['cores']} cores, "
        f"Python {here['python']}; {about}.",
        "",
        "Relative L2 error (the metric of the zoo's target, where there is one) of the default after so many "
        "seconds of training, and the relative bound of a certificate in brackets; one run a problem. A run "
        "that ends by itself leaves the later columns empty. Slope: the power of the seconds by which the "
        "error falls; none where the run ended at once.",
        "",
        "| problem | " + " | ".join(f"{time:g} s" for time in times) + " | slope | verdict |",
        "| --- |" + " --- |" * (len(times) + 2),
    ]
    for row in rows.values():
        looks = {look["budget"]: look for look in row["looks"]}
        cells = [_cell(looks.get(time)) for time in times]
        slope = "" if row["slope"] is None else f"{row['slope']:.1f}"
        verdict = row["looks"][-1]["verdict"] or ""
        text.append(f"| {row['problem']} | " + " | ".join(cells) + f" | {slope} | {verdict} |")
    return "\n".join([*text, "", "![error against seconds](growth.png)", ""])


def _cell(look: dict[str, Any] | None) -> str:
    if look is None:
        return ""
    bound = "" if look["bound"] is None else f" ({look['bound']:.1e})"
    return f"{look['error']:.1e}{bound}"


def figure(result: dict[str, Any], path: Path) -> None:
    """Errors against seconds, a line a problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = list(result["rows"].values())
    columns = 3
    lines = math.ceil(len(rows) / columns)
    fig, axes = plt.subplots(
        lines, columns, figsize=(3.6 * columns, 2.3 * lines), squeeze=False, sharex=True
    )
    for axis, row in zip(axes.flat, rows, strict=False):
        seconds = [look["seconds"] for look in row["looks"]]
        axis.loglog(seconds, [look["error"] for look in row["looks"]], "o-", label="error")
        bounds = [look["bound"] or math.nan for look in row["looks"]]
        axis.loglog(seconds, bounds, "s--", label="bound", alpha=0.7)
        axis.set_title(row["problem"], fontsize=8)
        axis.set_xlim(0.3, 500)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(rows) :]:
        axis.axis("off")
    for axis in axes[-1]:
        axis.set_xlabel("seconds of training")
    axes[0][0].legend(fontsize=7)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def main(only: str | None, times: str, out: Path) -> None:
    """Run, write, draw."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "growth.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    result |= {"date": today(), "machine": machine()}
    result["versions"] = versions("qpde", "jax", "jaxlib", "equinox", "numpy")
    for name in problems() if only is None else only.split(","):
        result["rows"][name] = run(name, [float(time) for time in times.split(",")])
        path.write_text(json.dumps(result, indent=1) + "\n")
        (out / "GROWTH.md").write_text(markdown(result))
    figure(result, out / "growth.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names, with commas: " + ", ".join(problems()))
    parser.add_argument("--times", default="3,10,30,100", help="seconds of training")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    main(**vars(parser.parse_args()))
