"""A clamped plate, and how far it bends.

A plate of the shape of the unit disc, clamped along its rim, carries a load `r`; its deflection solves

    r(x) - Lap^2 u = 0,     u = du/dn = 0 on the rim.

With the load of `qpde.zoo.clamped_waves` the deflection is known. The certificate does not use it: it
divides the residual by the square of the first eigenvalue of the Laplacian.

Run:       python examples/clamped_plate.py [--steps 40]
Expected:  relative L2 error 9.5e-5, and a bound above the error.
"""

import argparse

import numpy as np

import qpde


def main(steps: int = 40) -> float:
    """Solve, certify, print; the relative L2 error."""
    problem = qpde.zoo.clamped_waves(2)
    solution = qpde.solve(
        problem,
        network=qpde.Shallow(64, polynomial=True, beta=0.5, amplitude=0.1),
        rule=qpde.GaussNewton(),
        precision="float64",
        batch=300,
        steps=steps,
        progress=False,
    )
    error = solution.score.relative_l2_error or 0.0
    print(f"relative L2 error  {error:.2e}")
    print(qpde.certify(solution))
    print(f"deflection in the middle: {solution(np.zeros(2)):.6f}")
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=40)
    main(parser.parse_args().steps)
