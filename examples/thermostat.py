"""A thermostat: heat four rooms with two heaters, cheaply, in noise.

The temperatures `x` of four rooms in a row, as deviations from what is wanted, leak into each other and
outside; heaters stand in the first and the last room:

    dX = (A X + B a) dt + s dW,     cost |x|^2 + 0.1 |a|^2, discounted at the rate 1.

The loop is stopped at |x| = 1, at what it would cost to go on. Riccati's equation gives the value `x' K x +
c` and the best feedback, so that the errors of both are known.

Run:       python examples/thermostat.py [--steps 6] [--out figure.png]
Expected:  after six steps a relative L2 error of 3.6e-2, of the control 0.16; the cost of the policy that was
found, simulated, is above the value. More steps make both smaller.
"""

import argparse

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array

import qpde

ROOMS, NOISE, DISCOUNT, EFFORT = 4, 0.3, 1.0, 0.1
LEAK = np.eye(ROOMS, k=1) + np.eye(ROOMS, k=-1) - 2.5 * np.eye(ROOMS)
HEATERS = np.eye(ROOMS)[:, [0, -1]]
RICCATI = scipy.linalg.solve_continuous_are(
    LEAK - 0.5 * DISCOUNT * np.eye(ROOMS), HEATERS, np.eye(ROOMS), EFFORT * np.eye(2)
)
BASE = NOISE**2 * np.trace(RICCATI) / DISCOUNT


def value(x: Array) -> Array:
    """The exact value at one point `(d,)`."""
    return jnp.dot(x, jnp.asarray(RICCATI) @ x) + BASE


def main(steps: int = 6, out: str | None = None) -> float:
    """Solve, simulate, print; the relative L2 error."""
    control = qpde.Control(
        actions=qpde.FreeActions(2),
        drift=lambda x, a: jnp.asarray(LEAK) @ x + jnp.asarray(HEATERS) @ a,
        sigma=NOISE,
        cost=lambda x, a: jnp.dot(x, x) + EFFORT * jnp.dot(a, a),
        discount=DISCOUNT,
    )
    # The formula of the value would give the solution away inside; `lift` looks at the sphere only.
    domain = qpde.Ball(ROOMS)
    problem = qpde.Problem(domain, control, boundary=qpde.lift(value, domain), exact=value)
    network = qpde.Shallow(64, polynomial=True, beta=0.5, amplitude=0.1)
    solution = qpde.solve(
        problem,
        network=network,
        rule=qpde.PolicyIteration(),
        batch=300,
        steps=steps,
        progress=False,
    )
    error = solution.score.relative_l2_error or 0.0
    print(f"relative L2 error  {error:.2e}, of the control {solution.score.control_error:.2e}")
    start = np.array([0.5, 0.0, -0.3, 0.2])
    print(f"at {start}: heat with {solution.policy(start)}")
    loop = qpde.simulate(solution, start, walks=200, progress=False)
    print(loop)
    if out is not None:
        qpde.plot.save(qpde.plot.paths(loop), out)
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--out")
    options = parser.parse_args()
    main(options.steps, options.out)
