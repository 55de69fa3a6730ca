"""Problems that the default was not made for: moved and stretched domains, drifts, variable coefficients,
waves without symmetry, data on the boundary, nonlinear terms, d from 2 to 1,000.

Each has a chosen solution `u = g + eta h`; its source makes the equation true, and only `g` is told to the
solver, as the boundary function. `python benchmarks/unseen.py` solves all with the default and prints
the errors.
"""

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import qpde
from qpde._field.base import Autodiff
from qpde._field.jet import Jet

Function = Callable[[Any], Any]


def manufactured(
    name: str,
    domain: Any,
    operator: Callable[[Any, Any], Any],
    inside: Function,
    boundary: Function | None = None,
) -> qpde.Problem:
    """The problem with the solution `boundary + eta inside`."""
    eta = domain.eta.value

    def exact(x: Any) -> Any:
        return eta(x) * inside(x) + (0.0 if boundary is None else boundary(x))

    field = Autodiff(exact)
    return qpde.Problem(
        domain=domain,
        equation=lambda x, u: operator(x, u) - operator(x, Jet(field.at(x), x)),
        boundary=0.0 if boundary is None else boundary,
        exact=exact,
        name=name,
    )


def _wave(rng: np.random.Generator, dim: int, number: float) -> np.ndarray:
    """A vector of the given length in a random direction."""
    v = rng.standard_normal(dim)
    return number * v / np.linalg.norm(v)


def waves(dim: int, number: float = 3.0) -> qpde.Problem:
    """Two plane waves in a ball; the source by hand, for autodiff is slow in a thousand dimensions."""
    rng = np.random.default_rng(dim)
    a, b = _wave(rng, dim, number), _wave(rng, dim, number)

    def exact(x: Any) -> Any:
        wave = jnp.sin(jnp.dot(a, x)) + 0.5 * jnp.cos(jnp.dot(b, x) + 1.0)
        return (1.0 - jnp.dot(x, x)) * wave

    def equation(x: Any, u: Any) -> Any:
        ax, bx = jnp.dot(a, x), jnp.dot(b, x)
        sine, cosine = jnp.sin(ax), 0.5 * jnp.cos(bx + 1.0)
        towards = ax * jnp.cos(ax) - 0.5 * bx * jnp.sin(bx + 1.0)
        squared = -(number**2) * (sine + cosine)
        eta = 1.0 - jnp.dot(x, x)
        laplacian = eta * squared - 4.0 * towards - 2.0 * dim * (sine + cosine)
        return u.laplacian - laplacian - 0.5 * (u.value - eta * (sine + cosine))

    return qpde.Problem(qpde.Ball(dim), equation, 0.0, exact=exact, name=f"waves, d = {dim}")


def moved_ball() -> qpde.Problem:
    """A ball far from the origin, with drift, variable discount and data on its boundary."""
    centre, drift = np.array([3.0, -2.0, 1.0]), np.array([1.0, -1.0, 0.5])
    return manufactured(
        "moved ball, drift, d = 3",
        qpde.Ball(3, centre=centre, radius=2.0),
        lambda x, u: u.laplacian + u.along(drift) - (1.0 + 0.1 * jnp.dot(x, x)) * u.value,
        lambda x: jnp.cos(x[0] - 2.0 * x[2]),
        lambda x: x[0] - 0.5 * x[1] * x[2],
    )


def stretched() -> qpde.Problem:
    """An ellipsoid with half axes from 0.5 to 3 and a drift towards its centre."""
    return manufactured(
        "ellipsoid, drift, d = 6",
        qpde.Ellipsoid(np.linspace(0.5, 3.0, 6)),
        lambda x, u: 1.0 + 0.5 * u.laplacian - u.along(x) - 0.3 * u.value,
        lambda x: jnp.sin(3.0 * x[0] + x[5]) + x[2] * x[4],
        lambda x: 0.2 * x[3],
    )


def variable_box() -> qpde.Problem:
    """A long box with a matrix that varies, and a drift."""

    def operator(x: Any, u: Any) -> Any:
        matrix = jnp.diag(1.0 + 0.5 * jnp.sin(x) ** 2) + 0.1
        return u.trace(matrix) + u.along(x) - u.value

    return manufactured(
        "box, variable matrix, d = 3",
        qpde.Box([0.0, 0.0, 0.0], [1.0, 2.0, 4.0]),
        operator,
        lambda x: jnp.exp(x[0]) * jnp.cos(x[1] + x[2]),
    )


def squared_gradient() -> qpde.Problem:
    """A Hamilton-Jacobi term and a cubic one."""
    return manufactured(
        "squared gradient, cubic, d = 4",
        qpde.Ball(4),
        lambda x, u: u.laplacian - jnp.dot(u.grad, u.grad) - u.value**3,
        lambda x: jnp.exp(-x[0]) * jnp.cos(2.0 * x[1]),
    )


def shell() -> qpde.Problem:
    """An annulus and a solution that is not radial."""
    return manufactured(
        "annulus, d = 3",
        qpde.Annulus(3, inner=1.0, outer=2.0),
        lambda x, u: u.laplacian - u.value,
        lambda x: jnp.sin(2.0 * x[0]) * x[1],
        lambda x: x[2],
    )


def fast() -> qpde.Problem:
    """Twelve bumps in a square."""
    return manufactured(
        "fast waves in a square, d = 2",
        qpde.Box([0.0, 0.0], [1.0, 1.0]),
        lambda x, u: u.laplacian,
        lambda x: jnp.sin(4.0 * jnp.pi * x[0]) * jnp.sin(3.0 * jnp.pi * x[1]),
    )


def stiff() -> qpde.Problem:
    """A discount of 50: layers along the boundary."""
    return manufactured(
        "strong discount, d = 10",
        qpde.Ball(10),
        lambda x, u: u.laplacian - 50.0 * u.value,
        lambda x: jnp.cos(3.0 * x[0]) + x[1] * x[2],
        lambda x: x[0] - x[3] * x[4],
    )


def quadratic(dim: int) -> qpde.Problem:
    """A quadratic form of full rank, and an exponential, in a ball."""
    rng = np.random.default_rng(dim)
    matrix = rng.standard_normal((dim, dim)) / np.sqrt(dim)
    a = _wave(rng, dim, 2.0)
    return manufactured(
        f"quadratic form, d = {dim}",
        qpde.Ball(dim),
        lambda x, u: u.laplacian - u.value**3,
        lambda x: jnp.dot(x, matrix @ x) + jnp.exp(jnp.dot(a, x)),
    )


def separable(dim: int) -> qpde.Problem:
    """A sum of functions of one coordinate each."""
    phases = np.linspace(0.0, 3.0, dim)
    return manufactured(
        f"sum of sines, d = {dim}",
        qpde.Ball(dim),
        lambda x, u: u.laplacian - u.value,
        lambda x: jnp.sum(jnp.sin(3.0 * x + phases)),
    )


PROBLEMS: dict[str, Callable[[], qpde.Problem]] = {
    "waves_5": lambda: waves(5),
    "waves_20": lambda: waves(20),
    "waves_100": lambda: waves(100),
    "waves_1000": lambda: waves(1_000, 6.0),
    "moved_ball": moved_ball,
    "stretched": stretched,
    "variable_box": variable_box,
    "squared_gradient": squared_gradient,
    "shell": shell,
    "fast": fast,
    "stiff": stiff,
    "separable_20": lambda: separable(20),
    "quadratic_30": lambda: quadratic(30),
    "quadratic_100": lambda: quadratic(100),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run of the default."""

    problem: str
    seed: int
    error: float
    skill: float
    seconds: float
    compile_seconds: float
    status: str


def solve(name: str, *, budget: float, seed: int) -> Outcome:
    """Solve one of the problems with the default."""
    problem = PROBLEMS[name]()
    solution = qpde.solve(problem, budget=budget, seed=seed, progress=False, throw=False)
    score: Any = solution.score
    return Outcome(
        problem.name,
        seed,
        score.relative_l2_error,
        score.skill,
        solution.seconds,
        solution.compile_seconds,
        solution.status.label,
    )


def main(only: str | None, budget: float, seeds: int) -> None:
    """Solve and print."""
    for name in PROBLEMS if only is None else only.split(","):
        for seed in range(seeds):
            found = solve(name, budget=budget, seed=seed)
            print(
                f"{found.problem:32s} seed {seed}  error {found.error:.1e}  skill {found.skill:.1e}  "
                f"{found.seconds:.0f} s and {found.compile_seconds:.0f} s of compiling, {found.status}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names, with commas: " + ", ".join(PROBLEMS))
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of training")
    parser.add_argument("--seeds", type=int, default=1)
    main(**vars(parser.parse_args()))
