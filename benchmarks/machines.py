"""What one more process brings, and what communication costs: benchmarks/MACHINES.md.

    python benchmarks/machines.py [gather,q-learning,walks,gauss-newton]

One process and two, each pinned to a core of its own, do the same work: the step of Q-learning at 100,000
points, the step of Gauss-Newton at 4,000, walks. Ratios are of work a second. The constants of the model in
docs/machines.md are measured beside them: seconds to gather blocks of numbers of two sizes.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import qpde
from qpde._machines.place import BLOCKS, gathered
from qpde._precision import x64

HERE = Path(__file__).parent
# Numbers that are gathered: a small block, whose time is latency, and a large one, whose time is bandwidth.
SIZES = (16, 2**22)
HOSTS = (1, 2, 4, 16, 64, 256, 1_000)
STEPS = {"q-learning": 4, "gauss-newton": 1}
CASES = ["gather", "q-learning", "walks", "gauss-newton"]


def seconds_a_step(rule: Any, batch: int, steps: int, **network: Any) -> float:
    """Of a run from its first step to its last, compilation left out."""
    problem = qpde.zoo.survival(20)
    options: dict[str, Any] = {"network": qpde.Shallow(256, **network), "progress": False}
    solution = qpde.solve(problem, rule=rule, batch=batch, steps=steps, **options)
    return solution.seconds / steps


def seconds_of_walks() -> float:
    """Walks from 64 points, 500 each, by programs that are compiled already."""
    problem = qpde.zoo.survival(20)
    points = np.random.default_rng(0).uniform(-0.1, 0.1, (64, 20))
    qpde.feynman_kac(problem, points, walks=2, progress=False)
    began = time.perf_counter()
    qpde.feynman_kac(problem, points, walks=500, progress=False)
    return time.perf_counter() - began


@x64()
def seconds_to_gather(size: int) -> float:
    """The median of nine."""
    block = np.zeros(size)
    taken = []
    for _ in range(10):
        began = time.perf_counter()
        gathered(block)
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[1:]))


def work(file: Path, cases: list[str]) -> None:
    """What every process does; process 0 writes the times."""
    with qpde.distributed() as place:
        os.sched_setaffinity(0, {place.index % (os.cpu_count() or 1)})
        times: dict[str, float] = {}
        if "gather" in cases:
            times |= {f"gather {size}": seconds_to_gather(size) for size in SIZES}
        if "q-learning" in cases:
            times["q-learning"] = seconds_a_step(qpde.QLearning(), 100_000, STEPS["q-learning"])
        if "walks" in cases:
            times["walks"] = seconds_of_walks()
        if "gauss-newton" in cases:
            rule, steps = qpde.GaussNewton(), STEPS["gauss-newton"]
            options = {"beta": 0.5, "amplitude": 0.06, "polynomial": True}
            times["gauss-newton"] = seconds_a_step(rule, 4_000, steps, **options)
        if place.leads:
            file.write_text(json.dumps(times))


def measured(count: int, cases: list[str]) -> dict[str, float]:
    """The times with so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times.json"
        command = [sys.executable, "-m", "qpde.cli", "launch", "-n", str(count)]
        subprocess.run([*command, __file__, str(file), ",".join(cases)], check=True)
        return json.loads(file.read_text())


def predicted(times: dict[str, float], parameters: int, seconds: float, hosts: int) -> float:
    """Seconds of a step with fixed work on so many hosts, each sending its blocks to all.

    `BLOCKS` grows with the number of hosts where that is larger; the gather is a ring.
    """
    small, large = (times[f"gather {size}"] for size in SIZES)
    a_number = max(large - small, 0.0) / (SIZES[1] - SIZES[0])
    blocks = max(BLOCKS, hosts)
    return seconds / hosts + small * np.log2(max(hosts, 2)) + a_number * blocks * parameters


def table(one: dict[str, float], two: dict[str, float]) -> list[str]:
    """The page, from the times that there are."""
    names = [name for name in CASES if name in one]
    lines = [
        "# One process and two, each on a core of its own",
        "",
        f"Made by `python benchmarks/machines.py`. {platform.machine()}, {os.cpu_count()} cores, JAX "
        f"{jax.__version__}, float32 (Q-learning) and float64; d = 20, 256 units.",
        "",
        "| work | seconds, one process | two | ratio |",
        "|---|---|---|---|",
        *(f"| {n} | {one[n]:.3g} | {two[n]:.3g} | {one[n] / two[n]:.2f} |" for n in names),
    ]
    if f"gather {SIZES[0]}" not in two or "q-learning" not in one:
        return lines
    found = {n: predicted(two, 22 * 256, one["q-learning"], n) for n in HOSTS}
    return [
        *lines,
        "",
        f"Gathering {SIZES[0]} numbers from two processes takes {two[f'gather {SIZES[0]}']:.2g} s, "
        f"{SIZES[1]:,} numbers {two[f'gather {SIZES[1]}']:.2g} s.",
        "",
        "Predicted from these for Q-learning at 100,000 points (docs/machines.md has the model):",
        "",
        "| hosts | seconds a step | times as fast |",
        "|---|---|---|",
        *(f"| {n} | {s:.3g} | {one['q-learning'] / s:.3g} |" for n, s in found.items()),
    ]


def main(cases: list[str]) -> None:
    file = HERE / "machines.json"
    times: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}
    for case in cases:
        for name, count in (("one", 1), ("two", 2)):
            times[name] = times.get(name, {}) | measured(count, [case])
        file.write_text(json.dumps(times, indent=1) + "\n")
    lines = table(times["one"], times["two"])
    (HERE / "MACHINES.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        work(Path(sys.argv[1]), sys.argv[2].split(","))
    else:
        chosen = sys.argv[1].split(",") if len(sys.argv) == 2 else CASES
        main(chosen)
