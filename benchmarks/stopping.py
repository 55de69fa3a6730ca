"""Stopping problems: bounds from both sides beside published values, a row a problem.

    python benchmarks/stopping.py --only max_call-5-100
    python benchmarks/stopping.py --only put

`max_call-d-S`: the Bermudan max-call in d dimensions from S. Beside the interval stand the point estimate and
the 95 % interval of Becker, Cheridito and Jentzen (JMLR 20, 2019, table 1, on a GPU). Seconds are those of
the whole call, compilation included.

`put`: the American put with a rate of 0.05 and a volatility of 0.25, for a year: the largest error of the
network at 200 prices against finite differences, and at how many of them a 95 % bracket holds.
"""

import argparse
import time

import numpy as np

import qpde
from qpde.zoo import MAX_CALL, bermudan_max_call, put_in_time

MAX_CALLS = [(dim, start) for dim in (2, 5, 20) for start in (90, 100, 110)]
RATE, SIGMA = 0.05, 0.25


def max_call(dim: int, start: int, seed: int, paths: int) -> str:
    """One max-call."""
    began = time.perf_counter()
    problem = bermudan_max_call(dim, start=float(start))
    solution = qpde.solve_stopping(problem, seed=seed)
    solved = time.perf_counter() - began
    bound = qpde.bracket(solution, problem.start, paths=paths, seed=seed + 1)
    seconds = time.perf_counter() - began
    _, _, point, low, high = MAX_CALL[dim, start]
    inside = "yes" if bound.low <= point <= bound.high else "NO"
    width = 100 * float(bound.width) / point
    return (
        f"| {dim} | {start} | [{bound.low:.3f}, {bound.high:.3f}] | {width:.2f} % | {point:.3f} | {inside} | "
        f"[{low:.3f}, {high:.3f}] | {solved:.0f} | {seconds:.0f} |"
    )


def differences(
    time: float, *, nodes: int = 800, steps: int = 600
) -> tuple[np.ndarray, np.ndarray]:
    """Prices and values of the put with strike 1 by finite differences in the logarithm of the price.

    Crank and Nicolson's steps after four short implicit ones; the complementarity problem of a step is solved
    by elimination from high prices down and substitution upwards with the obstacle (Brennan and Schwartz),
    which is exact for a put: one stops below one price.
    """
    y = np.linspace(-4.0, 4.0, 2 * nodes + 1)
    dy, obstacle = y[1] - y[0], np.maximum(1.0 - np.exp(y), 0.0)
    second, first = 0.5 * SIGMA**2 / dy**2, (RATE - 0.5 * SIGMA**2) / (2 * dy)
    lower, middle, upper = second - first, -2 * second - RATE, second + first
    value, h = obstacle.copy(), time / steps
    for length, share in [(h / 4, 1.0)] * 4 + [(h, 0.5)] * (steps - 1):
        right = value.copy()
        moved = lower * value[:-2] + middle * value[1:-1] + upper * value[2:]
        right[1:-1] += (1 - share) * length * moved
        right[0], right[-1] = obstacle[0], 0.0
        low, mid, up = (-share * length * part for part in (lower, middle, upper))
        pivots = np.full(y.size, 1.0 + mid)
        pivots[0] = pivots[-1] = 1.0
        for i in range(y.size - 2, 0, -1):
            factor = up / pivots[i + 1]
            pivots[i] -= factor * (low if i + 1 < y.size - 1 else 0.0)
            right[i] -= factor * right[i + 1]
        value = obstacle.copy()
        for i in range(1, y.size - 1):
            value[i] = max((right[i] - low * value[i - 1]) / pivots[i], obstacle[i])
    return np.exp(y), value


def put(seed: int, paths: int) -> str:
    """The American put at 200 prices."""
    prices = np.linspace(0.7, 1.4, 200)
    ends = prices[:: len(prices) // 12]
    grid, values = differences(1.0)
    exact = np.interp(np.log(prices), np.log(grid), values)
    problem = put_in_time(ends, rate=RATE, volatility=SIGMA)
    began = time.perf_counter()
    solution = qpde.solve_stopping(problem, seed=seed)
    error = np.max(np.abs(solution(prices[:, None]) - exact))
    solved = time.perf_counter() - began
    bound = qpde.bracket(solution, prices[:, None], paths=paths, inner=0, seed=seed + 1)
    held = np.sum((bound.low <= exact) & (exact <= bound.high))
    return (
        f"| {error:.1e} | {held} of 200 | {np.median(bound.width):.1e} | {bound.lost:.1e} | "
        f"{solved:.0f} | {time.perf_counter() - began:.0f} |"
    )


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="one row: max_call-d-S or put")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--paths", type=int, help="from each point: 16,384, for the puts 400")
    options = parser.parse_args()
    names = [f"max_call-{dim}-{start}" for dim, start in MAX_CALLS] + ["put"]
    if options.only is not None and options.only not in names:
        parser.error(f"--only takes one of {', '.join(names)}, got {options.only}.")
    for name in names if options.only is None else [options.only]:
        kind, *numbers = name.split("-")
        if kind == "max_call":
            print(
                max_call(int(numbers[0]), int(numbers[1]), options.seed, options.paths or 16_384),
                flush=True,
            )
        else:
            print(put(options.seed, options.paths or 400), flush=True)


if __name__ == "__main__":
    main()
