"""How wrong is the answer? A bound of every kind, and values with intervals.

Three problems show the three kinds of `qpde.certify` (rigorous, statistical, heuristic) and
`qpde.feynman_kac`, which corrects single values by random walks:

1. survival time in one dimension: rigorous, by interval arithmetic;
2. the same in twenty dimensions: statistical, and values with 95 % intervals;
3. the perpetual American put, for which no constant is known: heuristic only.

Run:       python examples/how_wrong_is_it.py [--steps 2000]
Expected:  every bound above the true error printed beside it.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import qpde


def errors(solution: qpde.Solution) -> tuple[float, float]:
    """Root mean square and largest error on 50,000 points, from the exact solution."""
    exact: Any = solution.problem.exact
    with jax.enable_x64(True):
        points = solution.problem.domain.sample(jax.random.key(5), 50_000)
        gap = solution(np.asarray(points)) - np.asarray(jax.vmap(exact)(points))
    return float(np.sqrt(np.mean(gap**2))), float(np.max(np.abs(gap)))


def show(title: str, solution: qpde.Solution, **options: Any) -> qpde.Certificate:
    """Print a certificate beside the true error."""
    certificate = qpde.certify(solution, **options)
    mean, largest = errors(solution)
    true = largest if certificate.norm == "sup" else mean
    print(
        f"# {title}\n{certificate}\n  true error {true:.3g}, bound / error {certificate.bound / true:.1f}\n"
    )
    return certificate


def main(steps: int = 2_000) -> list[float]:
    """Print everything; return the ratios bound / error of the two L2 bounds that are proved."""
    line = qpde.solve(qpde.zoo.survival(1), steps=steps, progress=False)
    rigorous = show("d = 1, rigorous", line, rigorous=True)
    show("d = 1, rigorous, largest error", line, rigorous=True, norm="sup")

    ball = qpde.solve(qpde.zoo.survival(20), steps=steps, progress=False)
    statistical = show("d = 20, statistical", ball)
    points = np.zeros((3, 20))
    points[1, 0], points[2, :2] = 0.5, (0.6, 0.7)
    found = qpde.feynman_kac(ball, points, walks=2_000, progress=False)
    exact: Any = ball.problem.exact
    print(f"# Single values\n{found}")
    with jax.enable_x64(True):
        for i, x in enumerate(points):
            print(
                f"  network {ball(x):.6f}  corrected {found.value[i]:.6f} in "
                f"[{found.low[i]:.6f}, {found.high[i]:.6f}]  exact {float(exact(jnp.asarray(x))):.6f}"
            )
    put = qpde.solve(qpde.zoo.american_put(), steps=steps, progress=False)
    try:
        qpde.certify(put)
    except ValueError as error:
        print(f"\n# No constant\n{error}\n")
    show("American put, heuristic", put, heuristic=True)
    return [
        rigorous.bound / errors(line)[0],
        statistical.bound / errors(ball)[0],
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2_000)
    main(**vars(parser.parse_args()))
