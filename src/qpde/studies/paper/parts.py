"""The parts of the reproduction: which runs each needs, and the tables it makes of them."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.ndimage import median_filter, uniform_filter1d
from scipy.signal import find_peaks

from ... import activations, presets, zoo
from ..._form import Identity
from ..._network import Shallow, cast
from ..._problem import Problem
from ..._rule import DeepGalerkin, Flow, QLearning, Truncation
from ..._schedule import Decay
from ..._solution import Solution
from .. import speed
from .._jobs import Job, Outcome
from .._tables import Table, table

# The paper's learning rate, which its deep-Galerkin runs share; the plain flow's is ours.
_RATE = Decay(0.5, 200)
_ALPHA = 1.0
BETAS, SCALES = (0.51, 0.6, 0.75, 0.9, 0.99), (0.25, 0.5, 1.0, 2.0)
_BINS = 200


class Effort(NamedTuple):
    """How long the runs are and how many seeds they have."""

    name: str
    steps: int  # of the two experiments of the paper
    seeds_1d: int
    seeds_20d: int
    short_1d: int  # steps of the further experiments
    short_20d: int
    batch_20d: int  # steps of the comparison of batches
    seeds: int  # of the further experiments
    put: int  # steps
    rounds: int  # of timing
    betas: tuple[float, ...] = BETAS
    scales: tuple[float, ...] = SCALES


FULL = Effort("full", 40_000, 5, 3, 10_000, 3_000, 6_000, 3, 20_000, 9)
QUICK = Effort("quick", 1_000, 2, 1, 300, 100, 100, 1, 1_000, 3, (0.51, 0.99), (0.5, 1.0))

Tables = dict[str, Table]
Outcomes = dict[str, Outcome]


class Part(NamedTuple):
    """A part: the runs it needs, and its tables once they are done."""

    jobs: Callable[[Effort], list[Job]]
    tables: Callable[[Effort, Outcomes], Tables]
    measured: bool = False  # its tables hold timings, which a resumed study keeps


def _problem(dim: int) -> Problem:
    return zoo.survival(dim, discount=0.1 if dim == 1 else 0.2)


def _job(name: str, dim: int, steps: int, seed: int, **changes: Any) -> Job:
    """A run with the paper's settings but for the changes."""
    problem = _problem(dim)
    options = presets.paper(problem) | {"steps": steps, "seed": seed} | changes
    return Job(f"{name}-{dim}d-seed{seed}", problem, options)


def _network(dim: int, **changes: Any) -> Shallow:
    settings: dict[str, Any] = {"beta": 0.99, "scale": 1.0} | changes
    width = 64 if dim == 1 else 256
    return Shallow(width, activation=activations.sigmoid, normalise=False, **settings)


def _main(dim: int, effort: Effort) -> list[Job]:
    """The paper's own runs: Q-PDE in both dimensions, deep Galerkin in 20."""
    seeds = effort.seeds_1d if dim == 1 else effort.seeds_20d
    jobs = [_job("q", dim, effort.steps, seed) for seed in range(seeds)]
    if dim == 20:
        jobs.append(_job("dgm", dim, effort.steps, 0, rule=DeepGalerkin(_RATE)))
    return jobs


def wide(solution: Solution) -> Solution:
    """The same solution, evaluated in float64."""
    with jax.enable_x64(True):
        return dataclasses.replace(
            solution, trial=cast(solution.trial, "float64"), precision="float64"
        )


def _exact(problem: Problem, x: np.ndarray) -> np.ndarray:
    assert problem.exact is not None  # all problems here are of the zoo
    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.vmap(problem.exact))(jnp.asarray(x)))


def _runs(outcomes: list[Outcome]) -> Table:
    """A row for every run: the best iterate beside the last."""
    rows = []
    for outcome in outcomes:
        best, last = outcome.numbers, outcome.last_numbers
        row = {"rule": best["rule"], "seed": best["seed"], "steps": best["steps"]}
        row["best_step"] = outcome.best_step
        for name in ("loss", "relative_l2_error", "max_relative_error", "skill"):
            row |= {name: best[name], f"last_{name}": last[name]}
        rows.append(row | {"seconds": best["seconds"], "compile_seconds": best["compile_seconds"]})
    return table(rows)


def _loss_curves(outcomes: list[Outcome]) -> Table:
    """The minibatch losses in bins: median, smallest and largest."""
    rows = []
    for outcome in outcomes:
        loss = outcome.best.history.loss
        edges = np.unique(np.linspace(0, len(loss), _BINS + 1).astype(int))
        for start, stop in itertools.pairwise(edges):
            part = loss[start:stop]
            row = {"rule": outcome.numbers["rule"], "seed": outcome.numbers["seed"]}
            row |= {"step": (start + stop) / 2, "median": np.median(part)}
            rows.append(row | {"low": np.min(part), "high": np.max(part)})
    return table(rows)


def _named(outcomes: Outcomes, jobs: list[Job]) -> list[Outcome]:
    return [outcomes[job.name] for job in jobs]


def _survival_1d(effort: Effort, outcomes: Outcomes) -> Tables:
    chosen = _named(outcomes, _main(1, effort))
    x = np.linspace(-1.0, 1.0, 401)[1:-1]
    points, exact = x[:, None], _exact(_problem(1), x[:, None])
    solution: Table = {"x": x, "exact": exact}
    residual: Table = {"x": x}
    for outcome in chosen:
        seed, q = outcome.numbers["seed"], wide(outcome.best)(points)
        solution |= {f"q_seed{seed}": q, f"error_seed{seed}": np.abs(q / exact - 1)}
        residual |= {
            f"last_seed{seed}": wide(outcome.last).residual(points),
            f"best_seed{seed}": wide(outcome.best).residual(points),
        }
    runs = _runs(chosen)
    runs["grid_max_relative_error"] = np.array(
        [np.max(solution[f"error_seed{int(seed)}"]) for seed in runs["seed"]]
    )
    return {
        "loss-1d": _loss_curves(chosen),
        "residual-1d": residual,
        "solution-1d": solution,
        "runs-1d": runs,
    }


def _survival_20d(effort: Effort, outcomes: Outcomes) -> Tables:
    chosen = _named(outcomes, _main(20, effort))
    problem, rng = _problem(20), np.random.default_rng(0)
    radii = np.append(np.linspace(0.0, 0.975, 40), [0.99, 0.999])
    sphere = rng.standard_normal((len(radii), 100, 20))
    sphere /= np.linalg.norm(sphere, axis=2, keepdims=True)
    points = (radii[:, None, None] * sphere).reshape(-1, 20)
    exact = _exact(problem, points)
    rows = []
    for outcome in chosen:
        gap = (wide(outcome.best)(points) - exact).reshape(len(radii), 100)
        relative = np.abs(gap / exact.reshape(gap.shape))
        for i, r in enumerate(radii):
            row = {"rule": outcome.numbers["rule"], "seed": outcome.numbers["seed"], "r": r}
            row |= {"mean_squared_error": np.mean(gap[i] ** 2)}
            rows.append(row | {"max_relative_error": np.max(relative[i])})
    cloud = rng.standard_normal((400, 20))
    r = np.sort(rng.random(400))
    cloud *= (r / np.linalg.norm(cloud, axis=1))[:, None]
    scatter: Table = {"r": r, "exact": _exact(problem, cloud)}
    for outcome in (chosen[0], chosen[-1]):
        scatter[outcome.numbers["rule"]] = wide(outcome.best)(cloud)
    return {
        "loss-20d": _loss_curves(chosen),
        "radius-20d": table(rows),
        "scatter-20d": scatter,
        "runs-20d": _runs(chosen),
        "constant-20d": _best_constant(problem),
    }


def _best_constant(problem: Problem) -> Table:
    """What one number in place of the network reaches: the smallest error, and the smallest loss.

    `L(c eta) = r + c (L_0 eta)`, and both are quadratic in `c`; 100,000 uniform points.
    """
    domain = problem.domain
    with jax.enable_x64(True):
        x = domain.sample(jax.random.key(0, impl="threefry2x32"), 100_000)
        eta = np.asarray(jax.vmap(domain.eta.value)(x))
        second = np.asarray(jax.vmap(lambda y: domain.eta.trace(y, Identity()))(x))
    u = _exact(problem, np.asarray(x))
    equation: Any = problem.equation  # 1 - discount u + 1/2 Lap u
    moved = 0.5 * second - equation.discount * eta
    loss = np.mean((1.0 - np.mean(moved) / np.mean(moved**2) * moved) ** 2)
    gap = np.mean(eta * u) / np.mean(eta**2) * eta - u
    return table([{"loss": loss, "relative_l2_error": np.sqrt(np.mean(gap**2) / np.mean(u**2))}])


# A cycle is a peak of the loss that stands out by a factor of two from what surrounds it.
PROMINENCE = float(np.log10(2.0))
_SMOOTH, _TREND = 25, 2_001


def cycles(loss: np.ndarray, prominence: float = PROMINENCE) -> np.ndarray:
    """The heights (in decades) of the peaks of the detrended log loss.

    The loss is averaged over 25 steps, which takes minibatch noise below a hundredth of a decade, and
    divided by its running median over 2,001 steps.
    """
    log = np.log10(uniform_filter1d(loss, _SMOOTH, mode="nearest"))
    flat = log - median_filter(log, min(_TREND, len(log)), mode="nearest")
    return find_peaks(flat, prominence=prominence)[1]["prominences"]


def _flow_jobs(effort: Effort) -> list[Job]:
    flow = QLearning(optimiser=Flow(_ALPHA))
    return [_job("flow", dim, effort.steps, 0, rule=flow) for dim in (1, 20)]


def _cycles_jobs(effort: Effort) -> list[Job]:
    return [*_main(1, effort), *_main(20, effort), *_flow_jobs(effort)]


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
    return {"cycles": table(rows), "cycles-window": curves}


def _truncation_jobs(effort: Effort) -> list[Job]:
    forms = {"off": None, "psi-dpsi": Truncation(), "psi": Truncation(damped=False)}
    optimisers: dict[str, dict[str, Any]] = {
        "adam": {"rate": _RATE},
        "flow": {"optimiser": Flow(_ALPHA)},
    }
    return [
        _job(
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
    return {"truncation": table(rows)}


def _batch_jobs(effort: Effort) -> list[Job]:
    jobs = [*_main(1, effort)]
    jobs += [
        _job("constant", 1, effort.steps, seed, batch=1_500) for seed in range(effort.seeds_1d)
    ]
    for seed in range(effort.seeds):
        jobs.append(_job("growing", 20, effort.batch_20d, seed))
        jobs.append(_job("constant", 20, effort.batch_20d, seed, batch=6_000))
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
    return {"batches": table(rows)}


def _sensitivity_cases(effort: Effort) -> list[tuple[str, float, Job]]:
    """Parameter, value and run; the paper's own setting is one run under both parameters."""
    cases = []
    for dim, steps in ((1, effort.short_1d), (20, effort.short_20d)):
        for seed in range(effort.seeds_1d if dim == 1 else effort.seeds):
            for parameter, values in (("beta", effort.betas), ("scale", effort.scales)):
                for value in values:
                    network = _network(dim, **{parameter: value})
                    own = eqx.tree_equal(network, _network(dim))
                    name = "short" if own else f"{parameter}-{value:g}"
                    cases.append((parameter, value, _job(name, dim, steps, seed, network=network)))
    return cases


def _sensitivity(effort: Effort, outcomes: Outcomes) -> Tables:
    rows = []
    for parameter, value, job in _sensitivity_cases(effort):
        outcome = outcomes[job.name]
        row = {"dim": job.problem.dim, "parameter": parameter, "value": value}
        row |= {k: outcome.numbers[k] for k in ("seed", "steps", "status", "loss")}
        rows.append(row | {k: outcome.numbers[k] for k in ("relative_l2_error", "skill")})
    return {"sensitivity": table(rows)}


def _put_jobs(effort: Effort) -> list[Job]:
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


def _put(effort: Effort, outcomes: Outcomes) -> Tables:
    chosen = _named(outcomes, _put_jobs(effort))
    problem = chosen[0].job.problem
    exact: Any = problem.exact
    x = np.linspace(0.0, 1.0, 1_001)[1:-1]
    u = _exact(problem, x[:, None])
    curves: Table = {"x": x, "exact": u, "payoff": np.maximum(exact.strike - x, 0.0)}
    rows = []
    for outcome in chosen:
        solution = wide(outcome.best)
        q, found = solution(x[:, None]), free_boundary(solution)
        name, seed = outcome.numbers["rule"], outcome.numbers["seed"]
        if seed == 0:
            curves |= {name: q, f"residual_{name}": solution.residual(x[:, None])}
            curves[f"generator_{name}"] = _held(solution, x)
        row = {"rule": name, "seed": seed, "free_boundary": found}
        row |= {"free_boundary_error": abs(found - float(exact.free))}
        row |= {"sup_error": np.max(np.abs(q - u))}
        row |= {k: outcome.numbers[k] for k in ("loss", "relative_l2_error", "skill", "seconds")}
        rows.append(row)
    return {"put-curves": curves, "put-runs": table(rows)}


def _held(solution: Solution, x: np.ndarray) -> np.ndarray:
    """`1/2 volatility^2 x^2 Q'' + rate x Q' - rate Q`, the value of holding on."""
    equation: Any = solution.problem.equation
    points = x[:, None]
    second, first = solution.laplacian(points), solution.grad(points)[:, 0]
    rate, volatility = float(equation.rate), float(equation.volatility)
    return 0.5 * volatility**2 * x**2 * second + rate * x * first - rate * solution(points)


def free_boundary(solution: Solution) -> float:
    """Where exercising ends: `L Q` there jumps from `-rate strike` to zero; the middle of that.

    On the left of the free boundary `u = strike - x`, so that the generator gives `-rate strike`; on the
    right it vanishes. A network rounds the jump off.
    """
    equation: Any = solution.problem.equation
    level = -0.5 * float(equation.rate) * float(equation.strike)
    x = np.linspace(0.0, float(equation.strike), 5_001)[1:-1]
    below = np.flatnonzero(_held(solution, x) < level)
    return float(x[below[-1]]) if below.size else 0.0


def _timing(effort: Effort, outcomes: Outcomes) -> Tables:
    """A step of each method with our derivatives, timed in turn."""
    case = speed.CASES["d20"]
    rows: dict[str, Any] = {
        "q-learning": lambda: speed.ours(case, QLearning()),
        "deep-galerkin": lambda: speed.ours(case, DeepGalerkin()),
    }
    timings = speed.measure(rows, effort.rounds, lambda text: None)
    return {
        "timing": table(
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
    "survival-1d": Part(lambda effort: _main(1, effort), _survival_1d),
    "survival-20d": Part(lambda effort: _main(20, effort), _survival_20d),
    "cycles": Part(_cycles_jobs, _cycles),
    "truncation": Part(_truncation_jobs, _truncation),
    "batches": Part(_batch_jobs, _batches),
    "sensitivity": Part(
        lambda effort: [job for _, _, job in _sensitivity_cases(effort)], _sensitivity
    ),
    "put": Part(_put_jobs, _put),
}
