"""Do the confidence intervals hold, and what does the network save?

Run:     python benchmarks/intervals.py [--out benchmarks]
Writes:  intervals.json and INTERVALS.md

Coverage: at 200 random points, how often a 95 % interval covers the exact value (90 to 99 % are within the
noise of 200 points and of the intervals themselves). Variance: the same walks with and without the network.
Speed: 1,000 points in twenty dimensions.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

import qpde
from qpde import zoo


def _points(problem: qpde.Problem, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Uniform points and the exact values there."""
    exact: Any = problem.exact
    with jax.enable_x64(True):
        points = problem.domain.sample(jax.random.key(seed), count)
        return np.asarray(points), np.asarray(jax.vmap(exact)(points))


def _solve(problem: qpde.Problem, steps: int) -> qpde.Solution:
    return qpde.solve(problem, steps=steps, seed=1, progress=False)


def coverage(name: str, dim: int, walks: int, steps: int = 2_000) -> dict[str, Any]:
    """The share of 200 intervals that cover the exact value."""
    problem = zoo.CATALOGUE[name].build(dim)
    points, exact = _points(problem, 200, 21)
    found = qpde.feynman_kac(_solve(problem, steps), points, walks=walks, seed=5, progress=False)
    inside = (found.low <= exact) & (exact <= found.high)
    return {
        "problem": name,
        "dim": dim,
        "method": found.method,
        "walks": walks,
        "coverage": float(np.mean(inside)),
        "median_relative_error": float(np.median(np.abs(found.value / exact - 1))),
        "seconds": found.seconds,
    }


def variance(solution: qpde.Solution) -> dict[str, Any]:
    """Plain over corrected variance at 100 points, same seed and walks."""
    points, _ = _points(solution.problem, 100, 22)
    options: dict[str, Any] = {"walks": 500, "seed": 6, "progress": False}
    plain = qpde.feynman_kac(solution.problem, points, **options)
    corrected = qpde.feynman_kac(solution, points, **options)
    ratio = (plain.standard_error / corrected.standard_error) ** 2
    return {"median": float(np.median(ratio)), "least": float(ratio.min())}


def speed(solution: qpde.Solution) -> dict[str, Any]:
    """1,000 points with intervals."""
    points, exact = _points(solution.problem, 1_000, 23)
    found = qpde.feynman_kac(solution, points, accuracy=8e-4, seed=7, progress=False)
    network = np.abs(solution(points) / exact - 1)
    return {
        "seconds": found.seconds,
        "median_relative_error": float(np.median(np.abs(found.value / exact - 1))),
        "network": float(np.median(network)),
        "coverage": float(np.mean((found.low <= exact) & (exact <= found.high))),
        "walks": int(found.walks.sum()),
    }


def markdown(result: dict[str, Any]) -> str:
    """The results as a page."""
    lines = [
        "# Do the confidence intervals hold?",
        "",
        "Written by `benchmarks/intervals.py`: networks of 2,000 steps, 200 uniform points, 95 % intervals.",
        "",
        "| problem | d | method | walks a point | coverage | median relative error | s |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['problem']} | {row['dim']} | {row['method']} | {row['walks']:,} | {row['coverage']:.1%} | "
        f"{row['median_relative_error']:.1e} | {row['seconds']:.0f} |"
        for row in result["coverage"]
    ]
    ratio, pace = result["variance"], result["speed"]
    lines += [
        "",
        "In twenty dimensions, with a network of 6,000 steps:",
        "",
        f"- variance without the network over variance with it, same walks, 100 points: median "
        f"{ratio['median']:.2g}, least {ratio['least']:.2g};",
        f"- 1,000 points in {pace['seconds']:.0f} s, compiling included ({pace['walks']:,} walks): median "
        f"relative error {pace['median_relative_error']:.1e} (the network alone: {pace['network']:.1e}), "
        f"coverage {pace['coverage']:.1%}.",
    ]
    return "\n".join(lines) + "\n"


def main(out: str | None) -> None:
    """Run everything, print the page, write it."""
    rows = [
        coverage("survival", 10, 400),
        coverage("survival", 20, 400),
        coverage("drift", 10, 400),
    ]
    solution = _solve(zoo.survival(20), 6_000)
    result = {"coverage": rows, "variance": variance(solution), "speed": speed(solution)}
    page = markdown(result)
    print(page)
    if out is not None:
        Path(out, "intervals.json").write_text(json.dumps(result, indent=1) + "\n")
        Path(out, "INTERVALS.md").write_text(page)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="folder to write to; none by default")
    main(**vars(parser.parse_args()))
