"""The perpetual American put of the authors' notebooks: its value and its free boundary."""

from typing import Any

import numpy as np

from ... import zoo
from ..._problem.solution import Solution
from ..._rule.first_order import DeepGalerkin, QLearning
from .._columns import Columns, from_rows
from .._jobs import Job
from .runs import Effort, Outcomes, Tables, exact_values, in_float64, named


def put_jobs(effort: Effort) -> list[Job]:
    """Runs of both methods with the default network."""
    problem = zoo.american_put()
    return [
        Job(
            f"put-{rule.name}-seed{seed}",
            problem,
            {"rule": rule(), "steps": effort.put, "seed": seed},
        )
        for rule in (QLearning, DeepGalerkin)
        for seed in range(effort.seeds)
    ]


def put_tables(effort: Effort, outcomes: Outcomes) -> Tables:
    """The curves of seed 0, and a row for every run."""
    chosen = named(outcomes, put_jobs(effort))
    problem = chosen[0].job.problem
    exact: Any = problem.exact
    x = np.linspace(0.0, 1.0, 1_001)[1:-1]
    u = exact_values(problem, x[:, None])
    curves: Columns = {"x": x, "exact": u, "payoff": np.maximum(exact.strike - x, 0.0)}
    rows = []
    for outcome in chosen:
        solution = in_float64(outcome.best)
        q, found = solution(x[:, None]), free_boundary(solution)
        name, seed = outcome.numbers["rule"], outcome.numbers["seed"]
        if seed == 0:
            curves |= {name: q, f"residual_{name}": solution.residual(x[:, None])}
            curves[f"generator_{name}"] = _generator(solution, x)
        row = {"rule": name, "seed": seed, "free_boundary": found}
        row |= {"free_boundary_error": abs(found - float(exact.free))}
        row |= {"sup_error": np.max(np.abs(q - u))}
        row |= {k: outcome.numbers[k] for k in ("loss", "relative_l2_error", "skill", "seconds")}
        rows.append(row)
    return {"put-curves": curves, "put-runs": from_rows(rows)}


def _generator(solution: Solution, x: np.ndarray) -> np.ndarray:
    """The generator `1/2 volatility^2 x^2 Q'' + rate x Q' - rate Q`, zero where one holds the option."""
    equation: Any = solution.problem.equation
    points = x[:, None]
    second, first = solution.laplacian(points), solution.grad(points)[:, 0]
    rate, volatility = float(equation.rate), float(equation.volatility)
    return 0.5 * volatility**2 * x**2 * second + rate * x * first - rate * solution(points)


def free_boundary(solution: Solution) -> float:
    """The point below which one exercises: the last one where the generator is below `-rate strike / 2`.

    On the left of the free boundary `u = strike - x`, so that the generator gives `-rate strike`; on the
    right it vanishes. A network rounds the jump off, so that half of it is taken as the place.
    """
    equation: Any = solution.problem.equation
    level = -0.5 * float(equation.rate) * float(equation.strike)
    x = np.linspace(0.0, float(equation.strike), 5_001)[1:-1]
    below = np.flatnonzero(_generator(solution, x) < level)
    return float(x[below[-1]]) if below.size else 0.0
