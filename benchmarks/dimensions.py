"""`two_body_poisson` in 100,000 and 1,000,000 dimensions: seconds, memory, and what simple networks reach.

    python benchmarks/dimensions.py 100000

Beside the error of the solution stand those of the best constant and of the best affine network in the same
trial function. The latter has one coefficient a dimension, in closed form: under the law with density
`(1 - |x|^2)^2`, two coordinates have a density that is a power of `1 - p^2 - q^2`.
"""

import json
import resource
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import qpde
from qpde._domain.base import drawn
from qpde._precision import fitting, key_from, x64

HERE = Path(__file__).parent
NODES, ANGLES, NUMBERS = 24, 64, 2**26


def best_affine(c: np.ndarray) -> tuple[float, np.ndarray]:
    """The constant and the slopes of the best affine network, by quadrature over two coordinates."""
    d = len(c) + 1
    tau, weight = np.polynomial.laguerre.laggauss(NODES)
    angle = 2.0 * np.pi * np.arange(ANGLES) / ANGLES
    r = np.sqrt(-np.expm1(-tau / (0.5 * d + 2.0)))[:, None]
    p, q = r * np.cos(angle), r * np.sin(angle)
    wave = np.sin(p + np.cos(q) + q * np.cos(p))

    def mean(values: np.ndarray) -> float:
        return float(weight @ values.mean(axis=1))

    zero = np.zeros(1)
    slopes = mean(wave * p) * np.concatenate([c, zero]) + mean(wave * q) * np.concatenate([zero, c])
    return mean(wave) * float(np.sum(c)), (d + 6.0) * slopes


@x64()
def simple_errors(problem: qpde.Problem) -> tuple[float, float]:
    """The relative errors of the best constant and of the best affine network, at uniform points."""
    exact = problem.exact
    constant, slopes = best_affine(np.asarray(exact.c))  # pyright: ignore[reportOptionalMemberAccess, reportFunctionMemberAccess]
    size = fitting(512, problem.dim, numbers=2**22)
    count = fitting(1_024, problem.dim, least=32, numbers=NUMBERS)

    @jax.jit
    def at(points: jax.Array, slopes: jax.Array) -> jax.Array:
        eta = 1.0 - jnp.sum(points * points, axis=1)
        values = jax.vmap(exact)(points)  # pyright: ignore[reportArgumentType]
        return jnp.stack([values, eta, eta * (points @ slopes)], axis=1)

    keys = [key_from(0, 0xAFF1, i) for i in range(-(-count // size))]
    rows = [np.asarray(at(drawn(problem.domain, key, size), slopes)) for key in keys]
    u, eta, line = np.concatenate(rows).T
    best = np.dot(eta, u) / np.dot(eta, eta)  # as in the score
    errors = [np.sqrt(np.mean((u - q) ** 2)) for q in (best * eta, constant * eta + line)]
    return tuple(float(e / np.sqrt(np.mean(u * u))) for e in errors)  # pyright: ignore[reportReturnType]


def main(dim: int) -> None:
    began = time.perf_counter()
    problem = qpde.zoo.two_body_poisson(dim)
    solution = qpde.solve(problem, progress=False)
    score = solution.score
    row = {
        "dim": dim,
        "seconds": time.perf_counter() - began,
        "peak GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "relative L2 error": score.relative_l2_error,
        "skill": score.skill,
    }
    print(json.dumps(row), flush=True)
    row["best constant"], row["best affine network"] = simple_errors(problem)
    file = HERE / "dimensions.json"
    rows = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(rows | {str(dim): row}, indent=1) + "\n")
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
