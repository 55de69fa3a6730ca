"""Heat in a ball: an equation in time in five dimensions, with a bound for the error and a film.

A ball with the temperature zero on its surface is heated by sources that turn round:

    u_t = Lap u + r(x, t)  in |x| < 1, 0 < t <= 1,     u = 0 on |x| = 1,     u = u0 at t = 0.

The sources of `qpde.zoo.heat_ball` are chosen such that the temperature is known. The certificate does not
use it: a weight in time and the first eigenvalue of the ball bound the error by the residual.

Run:       python examples/heat_in_a_ball.py [--steps 30] [--out film.png]
Expected:  relative L2 error 2.6e-4, and bounds above the errors.
"""

import argparse

import numpy as np

import qpde

DIM = 5


def main(steps: int = 30, out: str | None = None) -> float:
    """Solve, certify, print; the relative L2 error over space and time."""
    problem = qpde.zoo.heat_ball(DIM)
    solution = qpde.solve(
        problem,
        network=qpde.Shallow(128, polynomial=True, beta=0.5, amplitude=0.09, aligned=0.5),
        rule=qpde.GaussNewton(),
        batch=600,
        steps=steps,
        progress=False,
    )
    error = solution.score.relative_l2_error or 0.0
    print(f"relative L2 error  {error:.2e}")
    print(qpde.certify(solution))
    print(qpde.certify(solution, norm="last"))
    centre = np.zeros(DIM)
    for t in (0.0, 0.5, 1.0):
        print(f"in the centre at t = {t:g}: {solution(centre, t):.6f}")
    if out is not None:
        qpde.plot.save(qpde.plot.film(solution), out)
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--out", help="where to write a film; none by default")
    main(**vars(parser.parse_args()))
