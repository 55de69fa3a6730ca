"""A substance that diffuses and is used up, known on the boundary only.

In the unit ball of R^5 a concentration u spreads by diffusion and is consumed at the rate u^3:

    Lap u - u^3 = 0  in |x| < 1,     u = g  on |x| = 1.

The data `g` are measured on the sphere and mean nothing inside. `qpde.lift` extends them into the ball,
evaluating `g` on the sphere alone; the trial function `Q = S eta + f` then has these boundary values
exactly. Here `g(x) = sqrt(2) / (2 + k . x)` with a unit vector `k`; the same formula happens to solve the
equation inside, so the error is known.

Run:       python examples/semilinear.py [--steps 2000] [--out figure.png]
Expected:  relative L2 error 2.0e-4.
"""

import argparse

import jax.numpy as jnp
import numpy as np
from jax import Array

import qpde

DIM = 5
K = (-1.0) ** np.arange(DIM) / np.sqrt(DIM)


def concentration(x: Array) -> Array:
    """The data on the sphere, and the exact solution inside, at one point `(d,)`."""
    return jnp.sqrt(2.0) / (2.0 + jnp.dot(K, x))


def problem() -> qpde.Problem:
    """The problem itself."""
    ball = qpde.Ball(DIM)
    return qpde.Problem(
        domain=ball,
        equation=lambda x, u: u.laplacian - u.value**3,
        boundary=qpde.lift(concentration, ball),
        exact=concentration,
        name="semilinear",
    )


def main(steps: int = 2_000, out: str | None = None) -> float:
    """Solve, print, and return the relative L2 error."""
    solution = qpde.solve(problem(), steps=steps, progress=False)
    error = solution.score.relative_l2_error
    assert error is not None  # known, because the problem has an exact solution
    centre = solution(np.zeros(DIM))
    print(f"in the centre      {centre:.5f}   (exact {np.sqrt(2) / 2:.5f})")
    print(f"relative L2 error  {error:.2e}")
    print(f"seconds            {solution.seconds:.1f}")
    if out is not None:
        qpde.plot.radial(solution).figure.savefig(out)
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2_000)
    parser.add_argument("--out", help="where to write the figure; none by default")
    main(**vars(parser.parse_args()))
