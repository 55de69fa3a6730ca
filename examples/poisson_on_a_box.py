"""The temperature of a heated box whose faces are kept cold.

A block with sides 1, 1.5 and 2 is heated inside at the rate `q(x)`; its faces are held at zero. The
steady temperature solves Poisson's equation

    Lap u + q(x) = 0  in the box,     u = 0  on its faces.

With heat concentrated in the middle, `q = c prod sin(pi x_i / a_i)` and `c = pi^2 sum 1 / a_i^2`, the
temperature is `u = prod sin(pi x_i / a_i)`. It is given to qpde only to report errors.

Run:       python examples/poisson_on_a_box.py [--steps 5000] [--out figure.png]
Expected:  relative L2 error 1.0e-4.
"""

import argparse

import jax.numpy as jnp
import numpy as np
from jax import Array

import qpde

SIDES = np.array([1.0, 1.5, 2.0])


def temperature(x: Array) -> Array:
    """The exact solution at one point `(d,)`."""
    return jnp.prod(jnp.sin(jnp.pi * x / SIDES))


def heating(x: Array) -> Array:
    """The source at one point."""
    return jnp.pi**2 * np.sum(1 / SIDES**2) * temperature(x)


def problem() -> qpde.Problem:
    """The problem itself."""
    return qpde.Problem(
        domain=qpde.Box(0.0, SIDES),
        equation=lambda x, u: u.laplacian + heating(x),
        boundary=0.0,
        exact=temperature,
        name="Poisson on a box",
    )


def main(steps: int = 5_000, out: str | None = None) -> float:
    """Solve, print, and return the relative L2 error."""
    solution = qpde.solve(problem(), steps=steps, progress=False)
    error = solution.score.relative_l2_error
    assert error is not None  # known, because the problem has an exact solution
    print(f"in the middle      {solution(SIDES / 2):.5f}   (exact 1)")
    print(f"relative L2 error  {error:.2e}")
    print(f"seconds            {solution.seconds:.1f}")
    if out is not None:
        qpde.plot.history(solution).figure.savefig(out)
    return error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--out", help="where to write the figure; none by default")
    main(**vars(parser.parse_args()))
