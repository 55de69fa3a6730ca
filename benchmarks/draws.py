"""Second derivatives from a few coordinates: seconds a step, variance and error of `MLP([64, 64])`.

    python benchmarks/draws.py 1000 10000

For each dimension: the step of Q-learning on 100 points with 16 draws and, up to 1,000 dimensions, exact; the
variance of `L Q` at a point over its draws for several numbers of them; and the error after a run.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

import qpde
from qpde._domain.base import drawn
from qpde._precision import cast, key_from, x64
from qpde._rule.estimates import halves

HERE = Path(__file__).parent
DRAWS, POINTS, STEPS, EXACT = (4, 16, 64), 100, 300, 1_000


def run(problem: qpde.Problem, draws: int | None, steps: int) -> qpde.Solution:
    options: dict[str, Any] = {"network": qpde.MLP([64, 64]), "batch": POINTS, "progress": False}
    return qpde.solve(problem, rule=qpde.QLearning(1e-3, draws=draws), steps=steps, **options)


@x64()
def variances(solution: qpde.Solution) -> dict[str, float]:
    """Of the mean of two halves of the draws, over the square of `L Q`; the mean over eight points."""
    trial = cast(solution.trial, "float64")
    points = drawn(solution.problem.domain, key_from(0, 0xD4), 8)

    def of(draws: int) -> float:
        def one(x: jax.Array, key: Any) -> jax.Array:
            _, first, second = halves(trial, x, key, draws)
            return 0.5 * (first + second)

        keys = jr.split(key_from(1), 64)
        found = jax.jit(lambda: jax.lax.map(lambda x: jax.vmap(lambda k: one(x, k))(keys), points))
        values = np.asarray(found())
        return float(np.mean(np.var(values, axis=1, ddof=1)) / np.mean(values**2))

    return {str(draws): of(draws) for draws in DRAWS}


@x64()
def error(solution: qpde.Solution) -> float:
    """The relative L2 error at 1,000 points."""
    points = np.asarray(drawn(solution.problem.domain, key_from(0, 0xE4), 1_000))
    exact = np.asarray(jax.jit(jax.vmap(solution.problem.exact))(points))  # pyright: ignore[reportArgumentType]
    return float(np.linalg.norm(solution(points) - exact) / np.linalg.norm(exact))


def main(dims: list[int]) -> None:
    file = HERE / "draws.json"
    rows = json.loads(file.read_text()) if file.exists() else {}
    for dim in dims:
        began = time.perf_counter()
        problem = qpde.zoo.two_body_poisson(dim)
        row: dict[str, Any] = {"dim": dim}
        sampled = run(problem, 16, STEPS)
        row["seconds a step, 16 draws"] = sampled.seconds / STEPS
        row["error, 16 draws"] = error(sampled)
        if dim <= EXACT:
            exact = run(problem, None, 20)
            row["seconds a step, exact"] = exact.seconds / 20
        row["variance over square"] = variances(sampled)
        row["seconds in all"] = time.perf_counter() - began
        rows[str(dim)] = row
        file.write_text(json.dumps(rows, indent=1) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1_000, 10_000])
