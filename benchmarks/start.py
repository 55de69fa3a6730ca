"""What a new process compiles for one solve, with the settings of `_compiled.py` and without."""

import json
import os
import subprocess
import sys

RUN = """
import json, time, jax
if not {settings}:
    jax.__version_info__ = (0, 0, 0)  # a version that gets none
seconds = {{"compile": 0.0}}
def note(name, duration, **_):
    if name == "/jax/core/compile/backend_compile_duration":
        seconds["compile"] += duration
jax.monitoring.register_event_duration_secs_listener(note)
import qpde
start = time.perf_counter()
solution = qpde.solve(qpde.zoo.{problem}, progress=False, **dict({options}))
seconds["call"] = time.perf_counter() - start
seconds["training"] = solution.seconds
print(json.dumps(seconds))
"""
CASES = {
    "survival(20), default": ("survival(20)", ""),
    "semilinear(10), default": ("semilinear(10)", ""),
    "survival(20), 10,000 steps of Q-learning": (
        "survival(20)",
        "rule=qpde.QLearning(), steps=10_000",
    ),
    "survival(20), 10,000 steps, MLP": (
        "survival(20)",
        "rule=qpde.QLearning(), steps=3_000, batch=256, network=qpde.MLP((64, 64))",
    ),
}
ROUNDS = 2


def measured(problem: str, options: str, settings: bool) -> dict[str, float]:
    code = RUN.format(problem=problem, options=options, settings=settings)
    environment = os.environ | {"QPDE_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    print("seconds with / without settings, the least of", ROUNDS)
    for name, (problem, options) in CASES.items():
        # In turn, so that what else the machine does falls on both.
        runs = [
            (measured(problem, options, True), measured(problem, options, False))
            for _ in range(ROUNDS)
        ]
        words = []
        for key in ("compile", "training", "call"):
            ours, theirs = (min(run[i][key] for run in runs) for i in (0, 1))
            words.append(f"{key} {ours:.2f} / {theirs:.2f} ({ours / theirs:.2f})")
        print(f"{name}: {', '.join(words)}")


if __name__ == "__main__":
    main()
