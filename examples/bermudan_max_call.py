"""A Bermudan max-call: the best of several prices over 100, at one of ten dates in three years.

Nobody knows its value in closed form. A network gives a rule when to take the payoff, which earns no more
than the value; the martingale of the same network gives a bound from above. Published: 26.159, between
26.138 and 26.174 with 95 % (Becker, Cheridito and Jentzen, JMLR 20, 2019).

Run:       python examples/bermudan_max_call.py [--dim 5] [--paths 16384]
Expected:  an interval about 0.1 % wide around 26.16.
"""

import argparse

import jax.numpy as jnp
import numpy as np

import qpde


def main(dim: int = 5, paths: int = 16_384, units: int = 150) -> qpde.Bracket:
    """Solve, bracket, print; the bracket."""
    problem = qpde.Stopping(
        payoff=lambda x: jnp.maximum(jnp.max(x) - 100.0, 0.0),
        motion=qpde.LogNormal(drift=0.05 - 0.10, sigma=0.2),  # a rate less dividends
        start=np.full(dim, 100.0),
        discount=0.05,
        dates=np.linspace(0.0, 3.0, 10),
    )
    solution = qpde.solve_stopping(problem, units=units)
    print(solution)
    bound = qpde.bracket(solution, problem.start, paths=paths, seed=1)
    print(bound)
    high = np.full(dim, 100.0)
    high[0] = 150.0
    print(f"take it after a year at {high[:3]}...? {bool(solution.stops(high, 1.0))}")
    return bound


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dim", type=int, default=5)
    parser.add_argument("--paths", type=int, default=16_384)
    options = parser.parse_args()
    main(options.dim, options.paths)
