"""Equations in time: errors, skill and bounds within a budget, a row a problem.

    python benchmarks/evolution.py --only allen_cahn_in_time-100 --budget 30

On bounded domains the error is relative L2 over space-time, elsewhere that of the value at the start.
The skill is the error over that of the carried data alone, without training; in the whole space that is the
flow of the reaction from the mean of the terminal values.
"""

import argparse
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import gamma, jv

import qpde
from qpde import zoo

CASES = (
    ("heat_ball", 10),
    ("absorbed_heat", 10),
    ("allen_cahn_in_time", 10),
    ("allen_cahn_in_time", 100),
    ("semilinear_heat", 10),
    ("sine_gordon_in_time", 10),
    ("hjb_quadratic", 10),
    ("hjb_quadratic", 100),
)


def absorbed(dim: int, t: float) -> float:
    """The exact value of `absorbed_heat` at the centre, by its series."""
    order, total, z = 0.5 * dim - 1.0, 0.0, 1e-3
    while z < 60.0:
        if jv(order, z) * jv(order, z + 0.1) < 0:
            root: Any = brentq(lambda s: float(jv(order, s)), z, z + 0.1)
            j = float(root)
            total += j ** (order - 1) * math.exp(-j * j * t / 2) / jv(order + 1, j)
        z += 0.1
    return float(total / (2 ** (order - 1) * gamma(order + 1)))


def reference(problem: qpde.Problem, name: str, dim: int) -> tuple[np.ndarray, float]:
    """A point of space-time and the exact value there."""
    if name in zoo.VALUES:
        point = np.asarray(problem.domain.start)  # pyright: ignore[reportAttributeAccessIssue]
        return point, zoo.VALUES[name][dim]
    return np.append(np.zeros(dim), 0.1), absorbed(dim, 0.1)


def row(name: str, dim: int, budget: float, seed: int) -> str:
    """One problem, solved and certified."""
    began = time.perf_counter()
    problem = zoo.CATALOGUE[name].build(dim)
    solution = qpde.solve(problem, budget=budget, seed=seed, progress=False)
    seconds = time.perf_counter() - began
    if problem.exact is not None:
        score = solution.score
        error, skill = score.relative_l2_error or 0.0, score.skill
    else:
        point, exact = reference(problem, name, dim)
        error = abs(float(solution(point)) / exact - 1)
        with jax.enable_x64(True):
            start = abs(float(problem.boundary.value(jnp.asarray(point))) / exact - 1)
        skill = error / start
    try:
        bound = qpde.certify(solution).relative_bound
    except ValueError as refusal:
        words = str(refusal).split(". ")[0]
    else:
        words = (
            "bound of no use" if bound is None else f"bound {bound:.2e}, {bound / error:.3g} times"
        )
    whole = time.perf_counter() - began
    return (
        f"{name} d={dim}: error {error:.2e}, skill {skill:.2g}, {words}; {solution.steps} steps, "
        f"{seconds:.0f} s, {whole:.0f} s with the bound"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names such as heat_ball-10, with commas")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of training each")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chosen = [
        case for case in CASES if not given.only or f"{case[0]}-{case[1]}" in given.only.split(",")
    ]
    for name, dim in chosen:
        print(row(name, dim, given.budget, given.seed), flush=True)
