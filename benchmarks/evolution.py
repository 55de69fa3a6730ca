"""Equations in time: errors, skill and bounds within a budget, a row a problem.

    python benchmarks/evolution.py --only allen_cahn_in_time-100 --budget 30

The error is relative L2 over space-time where the exact solution is known there, that of one value elsewhere,
and of hjb_chain relative L2 at t = 0 over uniform points of the unit ball.
The skill is the error over the smallest of those without training: of the carried data alone, in the whole
space the flow of the reaction from the mean of the terminal values, and of that mean.
"""

import argparse
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq
from scipy.special import gamma, jv

import qpde
from qpde import zoo
from qpde._boundary.smear import Smeared


class Case(NamedTuple):
    """A problem, its settings, and what has been published of it."""

    name: str
    dim: int
    settings: dict[str, float] = {}  # noqa: RUF012 - never changed
    value: float | None = None  # where the zoo has none
    published: str = ""
    radial: bool = False  # points of radius R sqrt(U), for values at the centre


_BSDE = "E, Han, Jentzen 2017; not confirmed"
_STDE = "Shi and others 2024, A100, the smallest error seen, against a reference that is off by 3e-4 to 1e-3"
CASES = (
    Case("heat_ball", 10),
    Case("absorbed_heat", 10, radial=True),
    Case("allen_cahn_in_time", 10),
    Case("allen_cahn_in_time", 100, published=f"3.0e-3 in 647 s ({_BSDE})"),
    Case("semilinear_heat", 10, published=f"7.0e-5 ({_STDE})"),
    Case("sine_gordon_in_time", 10, published=f"4.2e-5 ({_STDE})"),
    Case("hjb_quadratic", 10, {"weight": 10.0}, 0.9912631689),
    Case("hjb_chain", 100, published="5.5e-2 (SCaSML, 2025, after 47 to 63 s of correction)"),
    Case("hjb_quadratic", 100, published=f"1.7e-3 in 330 s ({_BSDE})"),
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


def reference(problem: qpde.Problem, case: Case) -> tuple[np.ndarray, float]:
    """A point of space-time and the exact value there."""
    if case.name == "absorbed_heat":
        return np.append(np.zeros(case.dim), 0.1), absorbed(case.dim, 0.1)
    point = np.asarray(problem.domain.start)  # pyright: ignore[reportAttributeAccessIssue]
    return point, zoo.VALUES[case.name][case.dim] if case.value is None else case.value


def measured(
    problem: qpde.Problem, case: Case, solution: qpde.Solution
) -> tuple[float, float | None]:
    """The relative error, and the skill."""
    if case.name == "hjb_chain":  # at t = 0 in the unit ball
        return _beside_carried(problem, solution, *_in_unit_ball(problem, case.dim))
    if problem.exact is not None:
        score = solution.score
        return score.relative_l2_error or 0.0, score.skill
    point, exact = reference(problem, case)
    return _beside_carried(problem, solution, point[None], np.array([exact]))


def _in_unit_ball(problem: qpde.Problem, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Uniform points at the time zero, and the exact values."""
    exact: Any = problem.exact
    with jax.enable_x64(True):
        x = np.asarray(qpde.Ball(dim).sample(jax.random.key(1), 1_000))
        points = np.concatenate([x, np.zeros((len(x), 1))], axis=1)
        return points, np.asarray(jax.jit(jax.vmap(exact))(points))


def _beside_carried(
    problem: qpde.Problem, solution: qpde.Solution, points: np.ndarray, exact: np.ndarray
) -> tuple[float, float]:
    """The relative error at points, and over the smallest of the answers without a network."""
    field = problem.boundary
    trivial = [field, field.mean] if isinstance(field, Smeared) else [field]
    with jax.enable_x64(True):
        known = [np.asarray(jax.jit(jax.vmap(f.value))(jnp.asarray(points))) for f in trivial]
    errors = [float(np.linalg.norm(values - exact)) for values in (solution(points), *known)]
    return errors[0] / float(np.linalg.norm(exact)), errors[0] / min(errors[1:])


def row(case: Case, budget: float, seed: int) -> str:
    """One problem, solved and certified."""
    began = time.perf_counter()
    problem = zoo.CATALOGUE[case.name].build(case.dim, **case.settings)
    law = qpde.Radial(problem.domain, 2.0) if case.radial else None
    solution = qpde.solve(problem, budget=budget, seed=seed, measure=law, progress=False)
    seconds = time.perf_counter() - began
    error, skill = measured(problem, case, solution)
    try:
        bound = qpde.certify(solution).relative_bound
    except ValueError as refusal:
        words = str(refusal).split(". ")[0]
    else:
        words = (
            "bound of no use" if bound is None else f"bound {bound:.2e}, {bound / error:.3g} times"
        )
    whole = time.perf_counter() - began
    settings = "".join(f" {name}={value:g}" for name, value in case.settings.items())
    published = f"; published {case.published}" if case.published else ""
    notes = "".join(f"\n  note: {note}" for note in problem.notes)
    return (
        f"{case.name} d={case.dim}{settings} seed {seed}: error {error:.2e}, skill {skill:.2g}, {words}; "
        f"{solution.steps} steps, {seconds:.0f} s, {whole:.0f} s with the bound{published}{notes}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names such as heat_ball-10, with commas")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of training each")
    parser.add_argument("--seeds", default="0", help="with commas")
    given = parser.parse_args()
    chosen = [
        case
        for case in CASES
        if not given.only or f"{case.name}-{case.dim}" in given.only.split(",")
    ]
    for case in chosen:
        for seed in given.seeds.split(","):
            print(row(case, given.budget, int(seed)), flush=True)
