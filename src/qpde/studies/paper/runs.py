"""The training runs of the reproduction, and the tables that all of its parts make of them."""

import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ... import activations, presets, zoo
from ..._network.shallow import Shallow
from ..._precision import cast, x64
from ..._problem.problem import Problem
from ..._problem.solution import Solution
from ..._rule.first_order import DeepGalerkin
from ..._rule.schedule import Decay
from .._columns import Columns, from_rows
from .._jobs import Job, Outcome

# The paper's learning rate, which its deep-Galerkin runs share.
RATE = Decay(0.5, 200)
BETAS, SCALES = (0.51, 0.6, 0.75, 0.9, 0.99), (0.25, 0.5, 1.0, 2.0)
_BINS = 200


class Effort(NamedTuple):
    """The sizes of the runs and the numbers of their seeds."""

    name: str
    steps: int  # of the paper's own two experiments
    seeds_1d: int
    seeds_20d: int
    short_1d: int  # steps of the further experiments
    short_20d: int
    batch_20d: int  # steps of the comparison of batches
    seeds: int  # seeds of the further experiments
    put: int  # steps of the American put
    rounds: int  # rounds of timing
    betas: tuple[float, ...] = BETAS
    scales: tuple[float, ...] = SCALES


FULL = Effort("full", 40_000, 5, 3, 10_000, 3_000, 6_000, 3, 20_000, 9)
QUICK = Effort("quick", 1_000, 2, 1, 300, 100, 100, 1, 1_000, 3, (0.51, 0.99), (0.5, 1.0))

Tables = dict[str, Columns]
Outcomes = dict[str, Outcome]


def paper_problem(dim: int) -> Problem:
    """The paper's test problem, with its discount in that dimension."""
    return zoo.survival(dim, discount=0.1 if dim == 1 else 0.2)


def paper_job(name: str, dim: int, steps: int, seed: int, **changes: Any) -> Job:
    """A run with the paper's settings, except for the `changes`."""
    problem = paper_problem(dim)
    options = presets.paper(problem) | {"steps": steps, "seed": seed} | changes
    return Job(f"{name}-{dim}d-seed{seed}", problem, options)


def paper_network(dim: int, **changes: Any) -> Shallow:
    """The network of the preset, except for the `changes`."""
    settings: dict[str, Any] = {"beta": 0.99, "scale": 1.0} | changes
    width = 64 if dim == 1 else 256
    return Shallow(width, activation=activations.sigmoid, normalise=False, **settings)


def main_jobs(dim: int, effort: Effort) -> list[Job]:
    """The paper's own runs: Q-PDE in both dimensions, deep Galerkin in 20."""
    seeds = effort.seeds_1d if dim == 1 else effort.seeds_20d
    jobs = [paper_job("q", dim, effort.steps, seed) for seed in range(seeds)]
    if dim == 20:
        jobs.append(paper_job("dgm", dim, effort.steps, 0, rule=DeepGalerkin(RATE)))
    return jobs


def in_float64(solution: Solution) -> Solution:
    """The same solution, evaluated in float64."""
    with x64():
        return dataclasses.replace(
            solution, trial=cast(solution.trial, "float64"), precision="float64"
        )


def exact_values(problem: Problem, x: np.ndarray) -> np.ndarray:
    """The exact solution at the points `x (n, d)`, in float64."""
    assert problem.exact is not None  # all problems here are of the zoo
    with x64():
        return np.asarray(jax.jit(jax.vmap(problem.exact))(jnp.asarray(x)))


def run_table(outcomes: list[Outcome]) -> Columns:
    """A row for every run, with the numbers of the best iterate beside those of the last."""
    rows = []
    for outcome in outcomes:
        best, last = outcome.numbers, outcome.last_numbers
        row = {"rule": best["rule"], "seed": best["seed"], "steps": best["steps"]}
        row["best_step"] = outcome.best_step
        for name in ("loss", "relative_l2_error", "max_relative_error", "skill"):
            row |= {name: best[name], f"last_{name}": last[name]}
        rows.append(row | {"seconds": best["seconds"], "compile_seconds": best["compile_seconds"]})
    return from_rows(rows)


def loss_curves(outcomes: list[Outcome]) -> Columns:
    """The minibatch losses in bins of steps: the median, the smallest and the largest of each bin."""
    rows = []
    for outcome in outcomes:
        loss = outcome.best.history.loss
        edges = np.unique(np.linspace(0, len(loss), _BINS + 1).astype(int))
        for start, stop in itertools.pairwise(edges):
            part = loss[start:stop]
            row = {"rule": outcome.numbers["rule"], "seed": outcome.numbers["seed"]}
            row |= {"step": (start + stop) / 2, "median": np.median(part)}
            rows.append(row | {"low": np.min(part), "high": np.max(part)})
    return from_rows(rows)


def named(outcomes: Outcomes, jobs: list[Job]) -> list[Outcome]:
    """The outcomes of the jobs, in their order."""
    return [outcomes[job.name] for job in jobs]
