"""Prices with default risk in 100 dimensions: the value, and an interval that holds it.

    python benchmarks/default_risk.py --budget 60

The equation is nonlinear in `u` (a default rate that depends on the value), the payoff the smallest of
100 prices. No exact value is known; the multilevel Picard value of the literature is 57.300.
`feynman_kac` gives a two-sided interval, from two linear problems, without training and with a network.
"""

import argparse
import time

import jax.numpy as jnp
import numpy as np

import qpde

RECOVERY, RATE, VOLATILITY, DRIFT = 2 / 3, 0.02, 0.2, 0.02
# The default rate falls from 0.2 where the value is below 50 to 0.02 where it is above 70.
LOW, HIGH, OFTEN, SELDOM = 50.0, 70.0, 0.2, 0.02


def default_rate(value):
    """Linear between two values, constant beyond."""
    return jnp.clip(OFTEN + (value - LOW) * (SELDOM - OFTEN) / (HIGH - LOW), SELDOM, OFTEN)


def equation(x, t, u):
    """`u_t + mu x . grad u + s^2 / 2 sum x_i^2 u_ii - (1 - delta) Q(u) u - R u`."""
    moved = DRIFT * u.along(x) + u.trace(jnp.diag(0.5 * VOLATILITY**2 * x * x))
    return u.dt + moved - (1 - RECOVERY) * default_rate(u.value) * u.value - RATE * u.value


def problem(dim: int = 100) -> qpde.Problem:
    """The problem of the literature: prices from 100, one year."""
    return qpde.Problem(
        qpde.Space(dim, start=100.0),
        equation,
        time=1.0,
        terminal=lambda x: jnp.min(x),
        name="default_risk",
    )


def row(what: str, found: qpde.Estimate, seconds: float) -> str:
    """One line of the table."""
    half = 0.5 * float(found.high - found.low)
    return (
        f"{what}: {float(found.value):.4f}, {100 * found.confidence:g} % interval "
        f"[{float(found.low):.4f}, {float(found.high):.4f}], half-width {half:.4f} "
        f"(of it {float(found.bias):.4f} from f_u); {seconds:.0f} s"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--walks", type=int, default=20_000)
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of training; 0: none")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    options = {"walks": given.walks, "value_range": (0.0, 200.0), "seed": given.seed}
    start = np.full(given.dim, 100.0)
    began = time.perf_counter()
    built = problem(given.dim)
    found = qpde.feynman_kac(built, start, 0.0, progress=False, **options)
    print(row("without a network", found, time.perf_counter() - began), flush=True)
    if given.budget:
        solution = qpde.solve(built, budget=given.budget, seed=given.seed, progress=False)
        found = qpde.feynman_kac(solution, start, 0.0, progress=False, **options)
        print(row("with a network", found, time.perf_counter() - began), flush=True)
