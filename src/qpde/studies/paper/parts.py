"""The parts of the reproduction: the training runs that each needs, and the tables it makes of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.ndimage import median_filter, uniform_filter1d
from scipy.signal import find_peaks

from ..._field.form import Identity
from ..._precision import key_from, x64
from ..._problem.problem import Problem
from ..._rule.first_order import DeepGalerkin, Flow, QLearning, Truncation
from .. import speed
from .._columns import Columns, from_rows
from .._jobs import Job
from .put import put_jobs, put_tables
from .runs import (
    RATE,
    Effort,
    Outcomes,
    Tables,
    exact_values,
    in_float64,
    loss_curves,
    main_jobs,
    named,
    paper_job,
    paper_network,
    paper_problem,
    run_table,
)

_ALPHA = 1.0  # the rate of the plain flow, which the paper does not give


class Part(NamedTuple):
    """A part: the training runs that it needs, and the tables that it makes of their outcomes."""

    jobs: Callable[[Effort], list[Job]]
    tables: Callable[[Effort, Outcomes], Tables]
    measured: bool = False  # its tables hold timings; a resumed study does not measure them again


def _survival_1d(effort: Effort, outcomes: Outcomes) -> Tables:
    chosen = named(outcomes, main_jobs(1, effort))
    x = np.linspace(-1.0, 1.0, 401)[1:-1]
    points, exact = x[:, None], exact_values(paper_problem(1), x[:, None])
    solution: Columns = {"x": x, "exact": exact}
    residual: Columns = {"x": x}
    for outcome in chosen:
        seed, q = outcome.numbers["seed"], in_float64(outcome.best)(points)
        solution |= {f"q_seed{seed}": q, f"error_seed{seed}": np.abs(q / exact - 1)}
        residual |= {
            f"last_seed{seed}": in_float64(outcome.last).residual(points),
            f"best_seed{seed}": in_float64(outcome.best).residual(points),
        }
    runs = run_table(chosen)
    runs["grid_max_relative_error"] = np.array(
        [np.max(solution[f"error_seed{int(seed)}"]) for seed in runs["seed"]]
    )
    return {
        "loss-1d": loss_curves(chosen),
        "residual-1d": residual,
        "solution-1d": solution,
        "runs-1d": runs,
    }


def _survival_20d(effort: Effort, outcomes: Outcomes) -> Tables:
    chosen = named(outcomes, main_jobs(20, effort))
    problem, rng = paper_problem(20), np.random.default_rng(0)
    radii = np.append(np.linspace(0.0, 0.975, 40), [0.99, 0.999])
    sphere = rng.standard_normal((len(radii), 100, 20))
    sphere /= np.linalg.norm(sphere, axis=2, keepdims=True)
    points = (radii[:, None, None] * sphere).reshape(-1, 20)
    exact = exact_values(problem, points)
    rows = []
    for outcome in chosen:
        gap = (in_float64(outcome.best)(points) - exact).reshape(len(radii), 100)
        relative = np.abs(gap / exact.reshape(gap.shape))
        for i, r in enumerate(radii):
            row = {"rule": outcome.numbers["rule"], "seed": outcome.numbers["seed"], "r": r}
            row |= {"mean_squared_error": np.mean(gap[i] ** 2)}
            rows.append(row | {"max_relative_error": np.max(relative[i])})
    cloud = rng.standard_normal((400, 20))
    r = np.sort(rng.random(400))
    cloud *= (r / np.linalg.norm(cloud, axis=1))[:, None]
    scatter: Columns = {"r": r, "exact": exact_values(problem, cloud)}
    for outcome in (chosen[0], chosen[-1]):
        scatter[outcome.numbers["rule"]] = in_float64(outcome.best)(cloud)
    return {
        "loss-20d": loss_curves(chosen),
        "radius-20d": from_rows(rows),
        "scatter-20d": scatter,
        "runs-20d": run_table(chosen),
        "constant-20d": _best_constant(problem),
    }


def _best_constant(problem: Problem) -> Columns:
    """The smallest error and the smallest loss of a constant `c` in place of the network.

    `L(c eta) = r + c (L_0 eta)`, so that both are quadratic in `c`. Means are over 100,000 uniform points.
    """
    domain = problem.domain
    with x64():
        x = domain.sample(key_from(0), 100_000)
        eta = np.asarray(jax.vmap(domain.eta.value)(x))
        second = np.asarray(jax.vmap(lambda y: domain.eta.trace(y, Identity()))(x))
    u = exact_values(problem, np.asarray(x))
    equation: Any = problem.equation  # 1 - discount u + 1/2 Lap u
    moved = 0.5 * second - equation.discount * eta
    loss = np.mean((1.0 - np.mean(moved) / np.mean(moved**2) * moved) ** 2)
    gap = np.mean(eta * u) / np.mean(eta**2) * eta - u
    return from_rows(
        [{"loss": loss, "relative_l2_error": np.sqrt(np.mean(gap**2) / np.mean(u**2))}]
    )


# A cycle is a peak of the loss that stands out by a factor of two from the losses around it.
PROMINENCE = float(np.log10(2.0))
_SMOOTH, _TREND = 25, 2_001


def cycles(loss: np.ndarray, prominence: float = PROMINENCE) -> np.ndarray:
    """The heights, in decades, of the peaks of a loss above its trend.

    The loss is averaged over 25 steps, which brings the noise of minibatches below a hundredth of a decade,
    and divided by its running median over 2,001 steps, the trend.
    """
    log = np.log10(uniform_filter1d(loss, _SMOOTH, mode="nearest"))
    flat = log - median_filter(log, min(_TREND, len(log)), mode="nearest")
    return find_peaks(flat, prominence=prominence)[1]["prominences"]


def _flow_jobs(effort: Effort) -> list[Job]:
    flow = QLearning(optimiser=Flow(_ALPHA))
    return [paper_job("flow", dim, effort.steps, 0, rule=flow) for dim in (1, 20)]


def _cycles_jobs(effort: Effort) -> list[Job]:
    return [*main_jobs(1, effort), *main_jobs(20, effort), *_flow_jobs(effort)]


def _cycles(effort: Effort, outcomes: Outcomes) -> Tables:
    rows, curves = [], {}
    for job in _cycles_jobs(effort):
        outcome = outcomes[job.name]
        loss = outcome.best.history.loss
        heights, plain = cycles(loss), job.name.startswith("flow")
        row = {"optimiser": "plain flow" if plain else "Adam", "rule": outcome.numbers["rule"]}
        row |= {"dim": job.problem.dim, "seed": outcome.numbers["seed"], "steps": len(loss)}
        row |= {"peaks": len(heights), "per_1000_steps": 1e3 * len(heights) / len(loss)}
        row |= {"largest_factor": 10 ** float(np.max(cycles(loss, 0.0), initial=0.0))}
        rows.append(row | {k: outcome.numbers[k] for k in ("loss", "relative_l2_error", "skill")})
        if job.problem.dim == 20 and outcome.numbers["seed"] == 0:
            start, stop = len(loss) // 4, len(loss) // 4 + min(4_000, len(loss) // 2)
            part = loss[start:stop][: (stop - start) // 10 * 10].reshape(-1, 10)
            curves["step"] = start + 10 * np.arange(len(part)) + 5
            name = "plain flow" if plain else f"Adam, {outcome.numbers['rule']}"
            curves[name] = np.mean(part, axis=1)
    return {"cycles": from_rows(rows), "cycles-window": curves}


def _truncation_jobs(effort: Effort) -> list[Job]:
    forms = {"off": None, "psi-dpsi": Truncation(), "psi": Truncation(damped=False)}
    optimisers: dict[str, dict[str, Any]] = {
        "adam": {"rate": RATE},
        "flow": {"optimiser": Flow(_ALPHA)},
    }
    return [
        paper_job(
            f"truncation-{optimiser}-{form}",
            20,
            effort.short_20d,
            0,
            rule=QLearning(**options, truncation=truncation),
        )
        for optimiser, options in optimisers.items()
        for form, truncation in forms.items()
    ]


def _truncation(effort: Effort, outcomes: Outcomes) -> Tables:
    rows = []
    for job in _truncation_jobs(effort):
        outcome = outcomes[job.name]
        _, optimiser, form = job.name.removesuffix("-20d-seed0").split("-", 2)
        row = {"optimiser": {"adam": "Adam", "flow": "plain flow"}[optimiser]}
        row |= {"form": {"off": "off", "psi-dpsi": "psi psi'", "psi": "psi"}[form]}
        row |= {k: outcome.numbers[k] for k in ("status", "steps")}
        row |= {"truncated_at_the_end": outcome.best.history.truncated[-1]}
        row |= {k: outcome.last_numbers[k] for k in ("loss", "relative_l2_error", "skill")}
        rows.append(row)
    return {"truncation": from_rows(rows)}


def _batch_jobs(effort: Effort) -> list[Job]:
    jobs = [*main_jobs(1, effort)]
    jobs += [
        paper_job("constant", 1, effort.steps, seed, batch=1_500) for seed in range(effort.seeds_1d)
    ]
    for seed in range(effort.seeds):
        jobs.append(paper_job("growing", 20, effort.batch_20d, seed))
        jobs.append(paper_job("constant", 20, effort.batch_20d, seed, batch=6_000))
    return jobs


def _batches(effort: Effort, outcomes: Outcomes) -> Tables:
    rows = []
    for job in _batch_jobs(effort):
        outcome = outcomes[job.name]
        kind = "constant" if job.name.startswith("constant") else "growing"
        row = {"dim": job.problem.dim, "batch": kind, "seed": outcome.numbers["seed"]}
        row |= {"steps": outcome.numbers["steps"]}
        row |= {k: outcome.numbers[k] for k in ("loss", "relative_l2_error", "skill", "seconds")}
        rows.append(row)
    return {"batches": from_rows(rows)}


def _sensitivity_cases(effort: Effort) -> list[tuple[str, float, Job]]:
    """Parameter, value and run; the run with the paper's own setting stands under both parameters."""
    cases = []
    for dim, steps in ((1, effort.short_1d), (20, effort.short_20d)):
        for seed in range(effort.seeds_1d if dim == 1 else effort.seeds):
            for parameter, values in (("beta", effort.betas), ("scale", effort.scales)):
                for value in values:
                    network = paper_network(dim, **{parameter: value})
                    own = eqx.tree_equal(network, paper_network(dim))
                    name = "short" if own else f"{parameter}-{value:g}"
                    cases.append(
                        (parameter, value, paper_job(name, dim, steps, seed, network=network))
                    )
    return cases


def _sensitivity(effort: Effort, outcomes: Outcomes) -> Tables:
    rows = []
    for parameter, value, job in _sensitivity_cases(effort):
        outcome = outcomes[job.name]
        row = {"dim": job.problem.dim, "parameter": parameter, "value": value}
        row |= {k: outcome.numbers[k] for k in ("seed", "steps", "status", "loss")}
        rows.append(row | {k: outcome.numbers[k] for k in ("relative_l2_error", "skill")})
    return {"sensitivity": from_rows(rows)}


def _timing(effort: Effort, outcomes: Outcomes) -> Tables:
    """The time of a step of each method with our derivatives, the two measured in turn."""
    case = speed.CASES["d20"]
    rows: dict[str, Any] = {
        "q-learning": lambda: speed.ours(case, QLearning()),
        "deep-galerkin": lambda: speed.ours(case, DeepGalerkin()),
    }
    timings = speed.measure(rows, effort.rounds, lambda text: None)
    return {
        "timing": from_rows(
            {
                "round": i,
                "q_learning_ms": 1e3 * q,
                "deep_galerkin_ms": 1e3 * dgm,
                "ratio": dgm / q,
            }
            for i, (q, dgm) in enumerate(
                zip(timings["q-learning"].rounds, timings["deep-galerkin"].rounds, strict=True)
            )
        )
    }


PARTS: dict[str, Part] = {
    "timing": Part(lambda effort: [], _timing, measured=True),
    "survival-1d": Part(lambda effort: main_jobs(1, effort), _survival_1d),
    "survival-20d": Part(lambda effort: main_jobs(20, effort), _survival_20d),
    "cycles": Part(_cycles_jobs, _cycles),
    "truncation": Part(_truncation_jobs, _truncation),
    "batches": Part(_batch_jobs, _batches),
    "sensitivity": Part(
        lambda effort: [job for _, _, job in _sensitivity_cases(effort)], _sensitivity
    ),
    "put": Part(put_jobs, put_tables),
}
