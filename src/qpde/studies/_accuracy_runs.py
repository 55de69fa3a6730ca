"""A run of the accuracy benchmark, and its error by the metric that its target's source uses."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import zoo
from .._compiled import compiled
from .._precision import x64
from .._problem.measure import AbstractMeasure, Radial
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._rule.first_order import DeepGalerkin, QLearning
from ..zoo import AT_START, Target

# Rules that are run alone, beside the default.
ALONE = {"q-learning": QLearning, "deep-galerkin": DeepGalerkin}
ALONE_STEPS, ALONE_BUDGET = 5_000, 60.0
# Points at which an error is taken, fewer where their coordinates would fill the memory.
_POINTS, _NUMBERS = 20_000, 1e8


@dataclasses.dataclass(frozen=True)
class ScoredRun:
    """One run: a method on a problem with a budget and a seed, and its error."""

    problem: str
    dim: int
    method: str
    budget: float | None
    seed: int
    seconds: float
    compile_seconds: float
    steps: int
    status: str
    error: float
    skill: float | None


def build(target: Target) -> Problem:
    """The problem of a target."""
    builder = zoo.CATALOGUE[target.problem].build
    return builder() if target.problem == "american_put" else builder(dim=target.dim)


def scored_run(
    target: Target, method: str, budget: float, seed: int, solution: Solution
) -> ScoredRun:
    """A solution with its error, and its skill: that error over the error of the best constant network."""
    points = error_points(target, solution.problem)
    exact, constant = reference_values(target, solution.problem)
    error = error_of(target, solution(points), exact)
    reference = error_of(target, exact + constant, exact)
    return ScoredRun(
        target.problem,
        target.dim,
        method,
        budget,
        seed,
        solution.seconds,
        solution.compile_seconds,
        solution.steps,
        solution.status.label,
        error,
        error / reference if reference > 1e-12 else None,
    )


def training_law(target: Target, problem: Problem) -> AbstractMeasure | None:
    """The law of the training points, None for the uniform one.

    Where the metric counts all radii alike, points of radius sqrt(U) are the nearest law that is monotone.
    """
    if not _radial(target):
        return None
    return Radial(problem.domain, 2.0)


def _start(problem: Problem) -> np.ndarray:
    """The point of space-time from which the paths of a problem in the whole space start."""
    paths: Any = problem.domain
    return np.asarray(paths.start)


def _radial(target: Target) -> bool:
    """Whether the metric takes points of uniform radius."""
    return "radius uniform" in target.metric


def error_points(target: Target, problem: Problem) -> np.ndarray:
    """The points at which the error is taken: uniform, or of uniform radius where the metric says so."""
    if target.metric == AT_START:
        return _start(problem)[None]
    count = int(np.clip(_NUMBERS / target.dim, 1_000, _POINTS))
    with x64():
        points = np.array(problem.domain.sample(jr.key(123), count))
    if _radial(target):
        radius = np.random.default_rng(123).uniform(0.0, 1.0, (count, 1))
        points *= radius / np.linalg.norm(points, axis=1, keepdims=True)
    return points


def reference_values(target: Target, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The exact solution at the points of the error, and the error of the best constant network there.

    Where one value is known, the second is the error of the data carried to it, without a network.
    """
    if target.metric == AT_START:
        exact = np.array([zoo.VALUES[target.problem][target.dim]])
        with x64():
            carried = _functions(problem, jnp.asarray(_start(problem)[None]))[-1]
        return exact, np.asarray(carried) - exact
    assert problem.exact is not None  # the zoo's have one
    points = error_points(target, problem)
    parts = []
    with x64():
        for start in range(0, len(points), 512):
            part = _functions(problem, jnp.asarray(points[start : start + 512]))
            parts.append([np.asarray(column) for column in part])
    exact, eta, f = (np.concatenate(column) for column in zip(*parts, strict=True))
    return exact, np.dot(eta, exact - f) / np.dot(eta, eta) * eta + f - exact


@compiled
def _functions(problem: Problem, points: Any) -> tuple[Any, ...]:
    """The exact solution, `eta` and `f` at the points."""
    functions = (problem.exact, problem.factor.value, problem.boundary.value)
    return tuple(jax.vmap(function)(points) for function in functions if function is not None)


def error_of(target: Target, values: np.ndarray, exact: np.ndarray) -> float:
    """The error by the target's metric: the largest one, or the relative L2 error."""
    gap = np.asarray(values, np.float64) - exact
    if target.metric == "largest error":
        return float(np.max(np.abs(gap)))
    return float(np.sqrt(np.mean(gap**2) / np.mean(exact**2)))
