"""What `qpde.solve(problem)` does where nothing is tuned.

Run:     python benchmarks/default.py [--only survival,unseen,step,walks,rules] [--out benchmarks]
Writes:  default.json and DEFAULT.md; parts that are not run are kept from the last time.

survival  errors on the paper's problem, with the seconds of the whole call in a new process
unseen    the problems of unseen.py
step      what a Gauss-Newton step costs in 1,000 dimensions, over 10
walks     `feynman_kac` at 100 points with the default solution as control variate
rules     Gauss-Newton against implicit Q-learning as the finishing rule
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
import unseen

import qpde
from qpde import zoo
from qpde.studies._machine import machine, today, versions

_CALL = """
import sys, time
import qpde
began = time.perf_counter()
solution = qpde.solve(qpde.zoo.survival(int(sys.argv[1])), progress=False)
seconds = time.perf_counter() - began
print(seconds, solution.seconds, solution.compile_seconds, solution.score.relative_l2_error)
"""


def survival() -> list[dict[str, Any]]:
    """Errors and seconds of the call, in new processes."""
    rows = []
    for dim, least in ((1, 1e-12), (2, 1e-5), (10, 1e-5), (20, 2e-6), (100, 1e-7)):
        done = subprocess.run(
            [sys.executable, "-c", _CALL, str(dim)], check=True, capture_output=True, text=True
        )
        call, training, compiling, error = map(float, done.stdout.split())
        row = {"dim": dim, "error": error, "asked": least, "seconds": call, "training": training}
        rows.append(row | {"compiling": compiling})
    return rows


def unseen_problems() -> list[dict[str, Any]]:
    """The problems of unseen.py with the usual budget."""
    return [dataclasses.asdict(unseen.solve(name, budget=30.0, seed=0)) for name in unseen.PROBLEMS]


def step() -> list[dict[str, Any]]:
    """Seconds of a Gauss-Newton step, width 256, 1,000 points; the least of twelve steps."""
    rows = []
    for dim in (10, 100, 1_000):
        times: list[float] = []
        network = qpde.Shallow(256, polynomial=True, beta=0.5, amplitude=1 / 16)

        def note(_: Any, times: list[float] = times) -> None:
            times.append(time.perf_counter())

        qpde.solve(
            zoo.survival(dim),
            network=network,
            rule=qpde.GaussNewton(doublings=0),
            steps=14,
            batch=1_000,
            callback=note,
            progress=False,
            throw=False,
        )
        rows.append({"dim": dim, "seconds": float(np.min(np.diff(times)[1:]))})
    return rows


def walks() -> list[dict[str, Any]]:
    """Relative errors of `feynman_kac` at 100 uniform points, d = 20."""
    problem = zoo.survival(20)
    solution = qpde.solve(problem, progress=False)
    exact: Any = problem.exact
    with jax.enable_x64(True):
        points = np.asarray(problem.domain.sample(jr.key(7), 100))
        values = np.asarray(jax.vmap(exact)(points))
    began = time.perf_counter()
    found = qpde.feynman_kac(solution, points, walks=1_000, seed=3, progress=False)
    error = np.abs(found.value / values - 1.0)
    inside = np.mean((found.low <= values) & (values <= found.high))
    network = np.abs(solution(points) / values - 1.0)
    return [
        {
            "median": float(np.median(error)),
            "network": float(np.median(network)),
            "largest": float(error.max()),
            "covered": float(inside),
            "seconds": time.perf_counter() - began,
        }
    ]


_RULES: dict[str, Callable[[], Any]] = {
    "gauss-newton": qpde.GaussNewton,
    "implicit": qpde.ImplicitQLearning,
}
_COMPARED: dict[str, Callable[[], qpde.Problem]] = {
    "survival, d = 20": lambda: zoo.survival(20),
    "control bell, d = 10": lambda: zoo.control_bell(10),
    "exponential ball, d = 50": lambda: zoo.exponential_ball(50),
    "American put": zoo.american_put,
    **{
        name: unseen.PROBLEMS[name]
        for name in ("waves_5", "waves_20", "stretched", "squared_gradient", "stiff")
    },
}


def rules() -> list[dict[str, Any]]:
    """Both rules from the same start, 10 seconds, two seeds: both errors."""
    rows = []
    for name, build in _COMPARED.items():
        problem = build()
        row: dict[str, Any] = {"problem": problem.name if name in unseen.PROBLEMS else name}
        for rule, make in _RULES.items():
            errors = []
            for seed in range(2):
                warm = qpde.solve(
                    problem,
                    network=qpde.Shallow(
                        256, polynomial=True, beta=0.5, amplitude=1 / 16, aligned=0.5
                    ),
                    rule=qpde.QLearning(0.01),
                    steps=500,
                    seed=seed,
                    progress=False,
                )
                solution = qpde.solve(
                    problem,
                    initial=warm,
                    rule=make(),
                    steps=10_000,
                    batch=1_000,
                    budget=10.0,
                    seed=seed,
                    progress=False,
                    throw=False,
                )
                errors.append(solution.score.relative_l2_error)
            row[rule] = errors
        rows.append(row)
    return rows


PARTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "survival": survival,
    "unseen": unseen_problems,
    "step": step,
    "walks": walks,
    "rules": rules,
}


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    about = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    here = result["machine"]
    text = [
        "# The default",
        "",
        f"`python benchmarks/default.py`, {result['date']}: {here['processor']}, {here['cores']} cores, "
        f"Python {here['python']}; {about}. Timings on a machine that others share.",
        "",
    ]
    for part, lines in _SECTIONS.items():
        if part in result:
            text += [*lines(result[part]), ""]
    return "\n".join(text)


def _section(title: str, words: str, columns: list[str], rows: list[list[str]]) -> list[str]:
    """A heading, a sentence and a table."""
    table = [columns, ["---"] * len(columns), *rows]
    return [f"## {title}", "", words, "", *("| " + " | ".join(row) + " |" for row in table)]


def _survival_lines(rows: list[dict[str, Any]]) -> list[str]:
    return _section(
        "The paper's problem",
        "`qpde.solve(qpde.zoo.survival(d))` in a new process, nothing cached. Seconds are those of the whole "
        "call.",
        ["d", "relative L2 error", "asked", "seconds", "training", "compiling"],
        [
            [str(r["dim"]), f"{r['error']:.1e}", f"{r['asked']:.0e}"]
            + [f"{r[key]:.1f}" for key in ("seconds", "training", "compiling")]
            for r in rows
        ],
    )


def _unseen_lines(rows: list[dict[str, Any]]) -> list[str]:
    return _section(
        "Problems it was not made for",
        "`benchmarks/unseen.py`, at most 30 seconds of training. Skill 1 is the best constant network.",
        ["problem", "error", "skill", "training, s", "compiling, s"],
        [
            [r["problem"], f"{r['error']:.1e}", f"{r['skill']:.1e}"]
            + [f"{r[key]:.0f}" for key in ("seconds", "compile_seconds")]
            for r in rows
        ],
    )


def _step_lines(rows: list[dict[str, Any]]) -> list[str]:
    least = {r["dim"]: r["seconds"] for r in rows}
    times = ", ".join(f"{seconds:.3f} s (d = {dim:,})" for dim, seconds in least.items())
    return [
        "## A Gauss-Newton step",
        "",
        f"256 units, 1,000 points, no Jacobian: {times}. d = 1,000 over d = 10: "
        f"**{least[1_000] / least[10]:.1f}**.",
    ]


def _walk_lines(rows: list[dict[str, Any]]) -> list[str]:
    (r,) = rows
    return [
        "## A second opinion from random walks",
        "",
        "`feynman_kac(solution, points)` with the default solution of `survival`, d = 20, as control "
        f"variate, 100 points: median relative error {r['median']:.1e} (of the network "
        f"alone {r['network']:.1e}), largest {r['largest']:.1e}, {r['covered']:.0%} of the intervals cover, "
        f"{r['seconds']:.0f} s.",
    ]


def _rule_lines(rows: list[dict[str, Any]]) -> list[str]:
    text = _section(
        "Gauss-Newton against implicit Q-learning",
        "The same start, 10 seconds of steps: relative L2 errors of two seeds.",
        ["problem", "Gauss-Newton", "implicit Q-learning"],
        [
            [row["problem"], *(", ".join(f"{error:.1e}" for error in row[rule]) for rule in _RULES)]
            for row in rows
        ],
    )
    wins = sum(max(row["gauss-newton"]) <= max(row["implicit"]) for row in rows)
    return [*text, "", f"Gauss-Newton has the smaller worst error on {wins} of {len(rows)}."]


_SECTIONS: dict[str, Callable[[list[dict[str, Any]]], list[str]]] = {
    "survival": _survival_lines,
    "unseen": _unseen_lines,
    "step": _step_lines,
    "walks": _walk_lines,
    "rules": _rule_lines,
}


def main(only: str | None, out: Path) -> None:
    """Run the parts, write the results, print the page."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "default.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    result |= {"date": today(), "machine": machine()}
    result["versions"] = versions("qpde", "jax", "jaxlib", "equinox", "numpy")
    for part in PARTS if only is None else only.split(","):
        result[part] = PARTS[part]()
        path.write_text(json.dumps(result, indent=1) + "\n")
        (out / "DEFAULT.md").write_text(markdown(result))
        print("\n".join(_SECTIONS[part](result[part])), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="parts, with commas: " + ", ".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    main(**vars(parser.parse_args()))
