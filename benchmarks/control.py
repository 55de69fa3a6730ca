"""The figures of docs/control.md and docs/plates.md: run it with the name of a part, or with none for all.

python benchmarks/control.py [regulators] [literature] [sines] [horizon] [newton] [simulated] [cordes]
                             [plates]
python benchmarks/control.py newton=eikonal                 one problem of a part; regulators=lqr-20 too
"""

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

import qpde
from qpde import zoo

# Seconds of training of the runs that are compared, and steps for each point of a diagonal.
BUDGETS, HORIZON = (1.0, 3.0, 8.0), 16
WIDTH: dict[str, Any] = {"beta": 0.5, "polynomial": True, "amplitude": 0.06}


def shallow(width: int = 256, **more: Any) -> qpde.Shallow:
    """The network of the second-order rules."""
    return qpde.Shallow(width, **(WIDTH | more))


def line(name: str, solution: qpde.Solution, seconds: float) -> None:
    """One row of a table."""
    score = solution.score
    control = "" if score.control_error is None else f"   control {score.control_error:.2e}"
    skill = "" if score.skill is None else f"   skill {score.skill:.2e}"
    print(
        f"{name:38s} value {score.relative_l2_error:.2e}{control}{skill}   loss {score.loss:.1e}   "
        f"{solution.steps} steps, {solution.seconds:.1f} s of training, {seconds:.1f} s in all",
        flush=True,
    )


def regulators(only: str = "") -> None:
    """Riccati's values and feedbacks."""
    _solved(
        only,
        ("lqr", 20, 8),
        ("lqr", 100, 8),
        ("lqr_matrices", 20, 20),
        ("lqr_diffusion", 5, 60),
        ("lqr_diffusion", 10, 60),
        ("lqr_diffusion", 20, 60),
    )


def literature(only: str = "") -> None:
    """Static problems of the literature."""
    _solved(only, ("van_der_pol", 20, 10), ("eikonal", 5, 30), ("control_bell", 10, 30))


def _solved(only: str, *cases: tuple[str, int, int]) -> None:
    """Each problem by so many Gauss-Newton steps."""
    for name, dim, steps in cases:
        if only not in ("", name, f"{name}-{dim}"):
            continue
        began = time.perf_counter()
        problem = zoo.CATALOGUE[name].build(dim)
        width, batch = (64, 300) if name.startswith("lqr") else (256, 1_000)
        solution = qpde.solve(
            problem,
            network=shallow(width),
            rule=qpde.GaussNewton(),
            precision="float64",
            steps=steps,
            batch=batch,
            progress=False,
        )
        line(f"{name}, d = {dim}", solution, time.perf_counter() - began)


RIVALS = {
    "lqr_diffusion": 5,
    "van_der_pol": 10,
    "eikonal": 5,
    "control_bell": 10,
    "rotated": 2,
}


def newton(only: str = "") -> None:
    """Policy iteration against Gauss-Newton on the whole equation: errors after so many seconds of training.

    Each cell is a run of its own with that budget; the first of a rule compiles, which is not counted.
    """
    print("| problem | rule | " + " | ".join(f"{budget:g} s" for budget in BUDGETS) + " | steps |")
    for name, dim in RIVALS.items():
        if only and name != only:
            continue
        problem = zoo.CATALOGUE[name].build(dim)
        for rule in (qpde.GaussNewton(), qpde.PolicyIteration(change=0.0)):
            cells, steps = list[str](), list[str]()
            for budget in BUDGETS:
                solution = qpde.solve(
                    problem,
                    network=shallow(96, amplitude=0.1),
                    rule=rule,
                    precision="float64",
                    steps=2_000,
                    batch=400,
                    budget=budget,
                    progress=False,
                    throw=False,
                )
                score = solution.score
                action = "" if not score.control_error else f", {score.control_error:.1e}"
                cells.append(f"{score.relative_l2_error:.1e}{action}")
                steps.append(str(solution.steps))
            row = " | ".join(cells)
            print(
                f"| `{name}`, $d = {dim}$ | {rule.name} | {row} | {', '.join(steps)} |", flush=True
            )


def horizon(only: str = "") -> None:
    """Two problems with a horizon: the value on the diagonal, solved for at each of its points."""
    places = np.linspace(-1.0, 1.0, 5)
    for noise in (0.2, 0.1):
        if only not in ("", str(noise)):
            continue
        found = []
        for place in places:
            problem: Any = zoo.steered_bumps(10, noise=noise, place=place)
            solution = qpde.solve(
                problem,
                network=shallow(200, axes=0.5),
                rule=qpde.GaussNewton(),
                precision="float64",
                steps=HORIZON,
                batch=600,
                progress=False,
            )
            start = np.append(np.full(10, place), 0.0)
            with jax.enable_x64(True):
                exact = float(problem.exact(jnp.asarray(start)))
                carried = float(problem.boundary.value(jnp.asarray(start)))
            values = float(solution(start)), expected(noise, place), carried
            found.append([abs(exact), *(abs(value - exact) for value in values)])
            print(
                f"    at {place:+.1f}: relative error {found[-1][1] / found[-1][0]:.1e}, "
                f"{solution.steps} steps, {solution.seconds:.0f} s of training",
                flush=True,
            )
        size, *errors = np.sum(found, axis=0)
        ours, plain, carried = (error / size for error in errors)
        print(
            f"steered_bumps, d = 10, noise {noise}: relative L1 error on the diagonal {ours:.2e}; of the "
            f"mean E g {plain:.2e}, of the carried data {carried:.2e}",
            flush=True,
        )


def expected(noise: float, place: float) -> float:
    """`E g(X_T)` without control, by a trapezoidal rule."""
    nodes = 0.02 * np.arange(-450, 451)
    weights = np.exp(-0.5 * nodes**2)
    y = place + noise * math.sqrt(2.0) * nodes
    bumps = np.sin(y - 0.5 * np.pi) + np.sin(1.0 / (0.3 / np.pi + y * y))
    return float(np.dot(weights, bumps) / np.sum(weights))


def simulated() -> None:
    """Intervals for the cost of a feedback, against Lyapunov's equation; the gap of a solved problem."""
    problem = zoo.lqr_matrices(3, actions=2, seed=1)
    control: qpde.Control = problem.equation  # pyright: ignore[reportAssignmentType]
    gain = np.array([[0.7, 0.8, 0.0], [-0.4, -1.9, -1.2]])
    a = control.drift.by_state - control.drift.by_action @ gain  # pyright: ignore
    cost = control.cost.state + gain.T @ control.cost.action @ gain  # pyright: ignore
    print(f"the loop's eigenvalues have real parts up to {np.max(np.linalg.eigvals(a).real):.3f}")
    shifted = a - 0.5 * float(control.discount) * np.eye(3)  # pyright: ignore
    m = scipy.linalg.solve_continuous_lyapunov(shifted.T, -cost)
    c = np.trace(control.sigma @ control.sigma.T @ m) / float(control.discount)  # pyright: ignore
    loop = qpde.Problem(
        problem.domain, control, boundary=lambda x: jnp.dot(x, jnp.asarray(m) @ x) + c
    )
    start = np.tile([0.3, 0.1, -0.2], (200, 1))
    found = qpde.simulate(
        loop, start, policy=lambda x: -jnp.asarray(gain) @ x, walks=150, paths=0, progress=False
    )
    exact = start[0] @ m @ start[0] + c
    inside = np.mean((found.low <= exact) & (exact <= found.high))
    print(
        f"Lyapunov's cost {exact:.6f}; 95 % intervals that contain it: {100 * inside:.1f} % of 200"
    )
    solution = qpde.solve(
        zoo.eikonal(5),
        network=shallow(128),
        rule=qpde.GaussNewton(),
        precision="float64",
        steps=15,
        batch=500,
        progress=False,
    )
    print(qpde.simulate(solution, np.full(5, 0.2), walks=2_000, progress=False))


def cordes() -> None:
    """Three rotated matrices inside and outside the condition."""
    for stretch in (2.0, 7.8, 7.95):
        print(f"stretch {stretch}: {qpde.cordes(zoo.rotated(4, stretch=stretch))!r}")
    began = time.perf_counter()
    solution = qpde.solve(
        zoo.rotated(4),
        network=shallow(192, scale=1.0),
        rule=qpde.GaussNewton(),
        precision="float64",
        steps=60,
        batch=700,
        progress=False,
    )
    line("rotated, d = 4", solution, time.perf_counter() - began)
    for norm in ("l2", "h2"):
        print(qpde.certify(solution, norm=norm))


def plates(only: str = "") -> None:
    """Clamped balls and a simply supported box, with certificates."""
    newton, chain = qpde.GaussNewton(), [(i, i + 1) for i in range(9)]
    cases: list[tuple[str, int, Any, Any, int, int]] = [
        ("clamped_load", 100, shallow(16), newton, 50, 3),
        ("supported_plate", 3, shallow(96), newton, 500, 60),
        ("clamped_waves", 10, qpde.Pairs(chain, degree=9), qpde.VariableProjection(), 2_500, 2),
        ("clamped_waves", 10, qpde.Pairs(chain, degree=12), qpde.VariableProjection(), 4_000, 2),
    ]
    for name, dim, network, rule, batch, steps in cases:
        if only not in ("", name):
            continue
        began = time.perf_counter()
        problem = zoo.CATALOGUE[name].build(dim)
        solution = qpde.solve(
            problem,
            network=network,
            rule=rule,
            precision="float64",
            steps=steps,
            batch=batch,
            progress=False,
        )
        line(f"{name}, d = {dim}", solution, time.perf_counter() - began)
        if rule is newton:
            solution = qpde.polish(solution)
            line("    and the output layer solved for", solution, time.perf_counter() - began)
        bound = qpde.certify(solution)
        print(f"    bound {bound.bound:.2e} (relative {bound.relative_bound}), {bound.kind}")


def sines() -> None:
    """The product of ten sines, by a separable network."""
    began = time.perf_counter()
    solution = qpde.solve(
        zoo.control_sines(10),
        network=qpde.Separable(4, degree=10),
        rule=qpde.GaussNewton(),
        precision="float64",
        steps=40,
        batch=1_000,
        budget=60.0,
        progress=False,
    )
    line("control_sines, d = 10", solution, time.perf_counter() - began)


PARTS: dict[str, Callable[..., None]] = {
    "regulators": regulators,
    "literature": literature,
    "sines": sines,
    "horizon": horizon,
    "newton": newton,
    "simulated": simulated,
    "cordes": cordes,
    "plates": plates,
}


def main() -> None:
    """The parts that were asked for."""
    for word in sys.argv[1:] or PARTS:
        name, _, only = word.partition("=")
        print(f"== {word}", flush=True)
        PARTS[name](*[only] * bool(only))


if __name__ == "__main__":
    main()
