"""Do the confidence intervals hold, also near the boundary, and what does the network save?

Run:     python benchmarks/intervals.py [--only coverage,distance,network] [--out benchmarks]
Writes:  intervals.json and INTERVALS.md (parts that are not run are kept as they are)

Coverage: at 200 random points, how often a 95 % interval covers the exact value (90 to 99 % are within the
noise of 200 points and of the intervals themselves). Distance: the same without a network, at 1,000 points
each of one distance to the boundary, where few walks make the mean. Network: the variance of the same walks
with and without it, and the speed: 1,000 points in twenty dimensions.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
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


def _varying(dim: int) -> qpde.Problem:
    """Diffusion, drift and killing that change from place to place; the solution is sin(2 x_1) + x_2^2."""

    def wanted(x: Any) -> Any:
        return jnp.sin(2 * x[0]) + x[1] ** 2

    def equation(x: Any, u: Any) -> Any:
        size, killing = 1 + 0.5 * jnp.sin(x[0]), x[1] ** 2
        grad, hessian = jax.grad(wanted)(x), jax.hessian(wanted)(x)
        source = size * jnp.trace(hessian) + jnp.dot(x, grad) - killing * wanted(x)
        return size * u.laplacian + u.along(x) - killing * u.value - source

    return qpde.Problem(qpde.Ball(dim), equation, wanted, exact=wanted)


def _near(problem: qpde.Problem, distance: float, count: int) -> np.ndarray:
    """Random points of a ball or box at one distance, in inradii, from the boundary."""
    random, domain = np.random.default_rng(24), problem.domain
    if isinstance(domain, qpde.Ball):
        z = random.standard_normal((count, problem.dim))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        return domain.centre + (1 - distance) * domain.inradius * z
    lower, upper = (np.asarray(end) for end in domain.enclosing_box)
    away = distance * domain.inradius
    points = random.uniform(lower + away, upper - away, (count, problem.dim))
    axis, side = random.integers(problem.dim, size=count), random.integers(2, size=count) == 1
    points[np.arange(count), axis] = np.where(side, upper[axis] - away, lower[axis] + away)
    return points


NEAR: dict[str, tuple[Any, int]] = {
    "survival, d = 3": (lambda: zoo.survival(3), 1_000),
    "survival with discount 20, d = 3": (lambda: zoo.survival(3, discount=20.0), 1_000),
    "poisson_sine on a box, d = 3": (lambda: zoo.poisson_sine(3), 1_000),
    "varying coefficients, d = 2": (lambda: _varying(2), 200),
    "drift, d = 10": (lambda: zoo.drift(10), 200),
}


def by_distance(name: str, distance: float, count: int = 1_000) -> dict[str, Any]:
    """Coverage at points of one distance, and half-widths over those of a normal law of known variance."""
    build, walks = NEAR[name]
    problem = build()
    points, exact = _near(problem, distance, count), problem.exact
    with jax.enable_x64(True):
        truth = np.asarray(jax.vmap(exact)(jnp.asarray(points)))
    found = qpde.feynman_kac(problem, points, walks=walks, seed=8, progress=False)
    half = 0.5 * (found.high - found.low)
    # The true errors, in the standard errors that were stated, tell what these should have been.
    true = np.sqrt(np.mean(((found.value - truth) / found.standard_error) ** 2))
    row = {
        "problem": name,
        "method": found.method,
        "walks": walks,
        "distance": distance,
        "coverage": float(np.mean((found.low <= truth) & (truth <= found.high))),
        "half_width_over_normal": float(np.median(half / (1.96 * true * found.standard_error))),
        "seconds": found.seconds,
    }
    print(row, flush=True)
    return row


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
    """The results as a page; parts that were not run are left out."""
    lines = ["# Do the confidence intervals hold?", "", "Written by `benchmarks/intervals.py`."]
    if "distance" in result:
        lines += [
            "",
            "Without a network, 1,000 points at each distance from the boundary (in inradii), 95 % "
            "intervals; half-width: the median over 1.96 true standard errors.",
            "",
            "| problem | method | walks a point | distance | coverage | half-width | s |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {row['problem']} | {row['method']} | {row['walks']:,} | {row['distance']:g} | "
            f"{row['coverage']:.1%} | {row['half_width_over_normal']:.2f} | {row['seconds']:.0f} |"
            for row in result["distance"]
        ]
    if "coverage" in result:
        lines += [
            "",
            "Networks of 2,000 steps, 200 uniform points, 95 % intervals.",
            "",
            "| problem | d | method | walks a point | coverage | median relative error | s |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {row['problem']} | {row['dim']} | {row['method']} | {row['walks']:,} | "
            f"{row['coverage']:.1%} | {row['median_relative_error']:.1e} | {row['seconds']:.0f} |"
            for row in result["coverage"]
        ]
    if "variance" in result:
        lines += _network_lines(result["variance"], result["speed"])
    return "\n".join(lines) + "\n"


def _network_lines(ratio: dict[str, Any], pace: dict[str, Any]) -> list[str]:
    return [
        "",
        "In twenty dimensions, with a network of 6,000 steps:",
        "",
        f"- variance without the network over variance with it, same walks, 100 points: median "
        f"{ratio['median']:.2g}, least {ratio['least']:.2g};",
        f"- 1,000 points in {pace['seconds']:.0f} s, compiling included ({pace['walks']:,} walks): median "
        f"relative error {pace['median_relative_error']:.1e} (the network alone: {pace['network']:.1e}), "
        f"coverage {pace['coverage']:.1%}.",
    ]


def main(only: str, out: str | None) -> None:
    """Run the parts that are asked for, print the page, write it."""
    old = Path(out, "intervals.json") if out is not None else None
    result = json.loads(old.read_text()) if old is not None and old.exists() else {}
    parts = only.split(",")
    if "coverage" in parts:
        sizes = [("survival", 10), ("survival", 20), ("drift", 10)]
        result["coverage"] = [coverage(name, dim, 400) for name, dim in sizes]
    if "distance" in parts:
        result["distance"] = [
            by_distance(name, distance) for name in NEAR for distance in (1e-1, 1e-2, 1e-3, 1e-4)
        ]
    if "network" in parts:
        solution = _solve(zoo.survival(20), 6_000)
        result |= {"variance": variance(solution), "speed": speed(solution)}
    page = markdown(result)
    print(page)
    if out is not None:
        Path(out, "intervals.json").write_text(json.dumps(result, indent=1) + "\n")
        Path(out, "INTERVALS.md").write_text(page)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="coverage,distance,network", help="parts, by comma")
    parser.add_argument("--out", help="folder to write to; none by default")
    main(**vars(parser.parse_args()))
