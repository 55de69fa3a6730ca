"""One value of an equation in 100 dimensions, with a bound for its error.

    u_t + Lap u + u - u^3 = 0  for t < 0.3,     u(x, 0.3) = 1 / (2 + 0.4 |x|^2),     u(0, 0) = ?

in the whole space. The terminal values depend on the distance from the origin alone, and so does the
solution: `qpde.OfSquare` says so, which lets their mean under the diffusion be taken exactly; the network
then has two variables (`qpde.Distance`). What is left to learn is small; the answer without any training, the
flow of `y' = y - y^3` from that mean, is printed beside it. The bound needs no exact solution: it is the mean
of the residual along the diffusion, and holds where the equation grows at most at the rate 1 in `u`.

Run:       python examples/allen_cahn.py [--steps 4]
Expected:  the value 0.0527813574, and a bound above its error.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import qpde

DIM = 100
EXACT = qpde.zoo.VALUES["allen_cahn_in_time"][DIM]  # from the equation in the radius


def problem() -> qpde.Problem:
    """The problem itself."""
    return qpde.Problem(
        qpde.Space(DIM, start=0.0),
        lambda x, t, u: u.dt + u.laplacian + u.value - u.value**3,
        time=0.3,
        terminal=qpde.OfSquare(lambda s: 1 / (2 + 0.4 * s), np.zeros(DIM)),
        name="allen_cahn",
    )


def main(steps: int = 4) -> float:
    """Solve, certify, print; the relative error of the value."""
    allen_cahn = problem()
    solution = qpde.solve(
        allen_cahn,
        network=qpde.Distance(128),
        rule=qpde.VariableProjection(),
        batch=1_500,
        steps=steps,
        progress=False,
    )
    value, bound = float(solution(np.zeros(DIM), 0.0)), qpde.certify(solution)
    with jax.enable_x64(True):
        carried = float(allen_cahn.boundary.value(jnp.zeros(DIM + 1)))
    error = abs(value / EXACT - 1)
    print(f"value {value:.10f}, exact {EXACT:.10f}; without training {carried:.10f}")
    print(f"relative error  {error:.2e}")
    print(bound)
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=4)
    main(parser.parse_args().steps)
