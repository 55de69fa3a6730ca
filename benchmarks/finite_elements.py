"""Beside finite elements: error against seconds of qpde's default and of scikit-fem in a square.

Run:     pip install -e '.[bench]'
         python benchmarks/finite_elements.py [--times 3,10,30] [--out benchmarks]
Writes:  finite_elements.json, FINITE_ELEMENTS.md, finite_elements.png

Seconds of scikit-fem are those of mesh, assembly and solution; the source is read at the quadrature
points by a program compiled before. Seconds of qpde are those of the whole call, compiling included.
Both are scored by the relative L2 error over the same random points. Systems are solved by a direct
method.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harder
import jax
import jax.numpy as jnp
import numpy as np
import skfem  # pyright: ignore[reportMissingImports]
from skfem.models.poisson import laplace  # pyright: ignore[reportMissingImports]

import qpde
from qpde.studies._machine import machine, today, versions

PROBLEMS: dict[str, Callable[[], qpde.Problem]] = {
    "product": harder.product,
    "waves_six": lambda: harder.oscillating(6),
}
# Elements and cells a side.
_ELEMENTS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "P2": (skfem.ElementTriP2(), (8, 16, 32, 64, 128, 256)),
    "P4": (skfem.ElementTriP4(), (4, 8, 16, 32, 64, 128)),
}
_POINTS = 10_000


def _exact(problem: qpde.Problem, points: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.vmap(problem.exact))(jnp.asarray(points)))  # pyright: ignore[reportArgumentType]


def _error(values: np.ndarray, true: np.ndarray) -> float:
    return float(np.sqrt(np.mean((values - true) ** 2) / np.mean(true**2)))


def _source(problem: qpde.Problem) -> Callable[[np.ndarray], np.ndarray]:
    """Minus the Laplacian of the exact solution, at points in columns."""
    exact: Any = problem.exact

    @jax.jit
    def at(points: Any) -> Any:
        return -jax.vmap(lambda x: jnp.trace(jax.hessian(exact)(x)))(points)

    def columns(x: np.ndarray) -> np.ndarray:
        flat = x.reshape(len(x), -1).T
        # Slices of one shape, so that one program serves all meshes.
        count, size = len(flat), 65_536
        padded = np.concatenate([flat, np.zeros((-count % size, len(x)))])
        with jax.enable_x64(True):
            parts = [np.asarray(at(jnp.asarray(part))) for part in padded.reshape(-1, size, len(x))]
        return np.concatenate(parts)[:count].reshape(x.shape[1:])

    columns(np.full((problem.dim, 1), 0.5))
    return columns


def _finite_elements(
    element: Any, cells: int, source: Callable[[np.ndarray], np.ndarray]
) -> tuple[Any, np.ndarray, float]:
    """The basis, the coefficients and the seconds."""
    start = time.perf_counter()
    side = np.linspace(0.0, 1.0, cells + 1)
    basis = skfem.Basis(skfem.MeshTri.init_tensor(side, side), element)
    load = skfem.LinearForm(lambda v, w: source(w.x) * v)
    matrix, right = laplace.assemble(basis), load.assemble(basis)
    system = skfem.condense(matrix, right, D=basis.get_dofs())
    found: Any = skfem.solve(*system)
    return basis, found, time.perf_counter() - start


def elements(problem: qpde.Problem, points: np.ndarray, limit: float) -> list[dict[str, Any]]:
    """Rows of the finite element method, each finer, until one takes longer than the limit."""
    true, source = _exact(problem, points), _source(problem)
    rows: list[dict[str, Any]] = []
    for name, (element, sizes) in _ELEMENTS.items():
        for cells in sizes:
            basis, found, seconds = _finite_elements(element, cells, source)
            error = _error(basis.probes(points.T) @ found, true)
            rows.append({"method": name, "cells": cells, "seconds": seconds, "error": error})
            print(
                f"{problem.name:32s} {name} {cells:4d} cells a side: {error:.1e} in {seconds:.2f} s"
            )
            if seconds > limit:
                break
    return rows


def networks(problem: qpde.Problem, points: np.ndarray, times: list[float]) -> list[dict[str, Any]]:
    """Rows of the default: a call of its own for every budget, in one process."""
    true, rows = _exact(problem, points), []
    for budget in times:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = qpde.solve(problem, budget=budget, progress=False, throw=False)
        seconds = time.perf_counter() - start
        error = _error(solution(points), true)
        rows.append({"method": "qpde", "budget": budget, "seconds": seconds, "error": error})
        print(f"{problem.name:32s} qpde, budget {budget:g} s: {error:.1e} in {seconds:.1f} s")
        if solution.status is not qpde.Status.BUDGET:
            break
    return rows


def _seconds_for(rows: list[dict[str, Any]], goal: float) -> float | None:
    reached = [row["seconds"] for row in rows if row["error"] <= goal]
    return min(reached) if reached else None


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    about = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    here = result["machine"]
    text = [
        "# Beside finite elements",
        "",
        f"`python benchmarks/finite_elements.py`, {result['date']}: {here['processor']}, "
        f"{here['cores']} cores, Python {here['python']}; {about}.",
        "",
        "In the plane and simple shapes finite elements are what one would take. Seconds "
        "until a relative L2 error, of the whole call (qpde with compiling; scikit-fem with mesh, "
        "assembly, solution); none where it was not reached. A second call of qpde in a process "
        "finds most of its programs compiled.",
        "",
        "| problem | method | 1e-3 | 1e-6 | 1e-9 | best error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for entry in result["rows"].values():
        for method in dict.fromkeys(row["method"] for row in entry["rows"]):
            rows = [row for row in entry["rows"] if row["method"] == method]
            cells = [_seconds_for(rows, goal) for goal in (1e-3, 1e-6, 1e-9)]
            words = " | ".join("none" if cell is None else f"{cell:.2g}" for cell in cells)
            best = min(rows, key=lambda row: row["error"])
            last = f"{best['error']:.1e} in {best['seconds']:.2g} s"
            text.append(f"| {entry['problem']} | {method} | {words} | {last} |")
    return "\n".join([*text, "", "![error against seconds](finite_elements.png)", ""])


def figure(result: dict[str, Any], path: Path) -> None:
    """Errors against seconds, a panel a problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    entries = list(result["rows"].values())
    fig, axes = plt.subplots(1, len(entries), figsize=(4 * len(entries), 3.2), squeeze=False)
    for axis, entry in zip(axes[0], entries, strict=True):
        for method in dict.fromkeys(row["method"] for row in entry["rows"]):
            rows = [row for row in entry["rows"] if row["method"] == method]
            axis.loglog(
                [row["seconds"] for row in rows],
                [row["error"] for row in rows],
                "o-" if method == "qpde" else "s--",
                label=method,
            )
        axis.set_title(entry["problem"], fontsize=9)
        axis.set_xlabel("seconds of the whole call")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    axes[0][0].set_ylabel("relative L2 error")
    fig.tight_layout()
    fig.savefig(path, dpi=120)
    plt.close(fig)


def main(times: str, limit: float, out: Path) -> None:
    """Run, write, draw."""
    result: dict[str, Any] = {"date": today(), "machine": machine(), "rows": {}}
    result["versions"] = versions("qpde", "jax", "scikit-fem", "numpy", "scipy")
    for name, make in PROBLEMS.items():
        problem = make()
        points = np.random.default_rng(0).uniform(0.01, 0.99, (_POINTS, problem.dim))
        rows = elements(problem, points, limit)
        rows += networks(problem, points, [float(time) for time in times.split(",")])
        result["rows"][name] = {"problem": problem.name, "rows": rows}
        out.mkdir(parents=True, exist_ok=True)
        (out / "finite_elements.json").write_text(json.dumps(result, indent=1) + "\n")
        (out / "FINITE_ELEMENTS.md").write_text(markdown(result))
    figure(result, out / "finite_elements.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", default="3,10,30", help="budgets of qpde in seconds")
    parser.add_argument(
        "--limit", type=float, default=5.0, help="no finer mesh after these seconds"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    main(**vars(parser.parse_args()))
