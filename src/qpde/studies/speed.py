"""What a training step costs, beside other codes: all rows measured in one run, in turn.

The problem is the paper's survival problem. A row of the table is timed by a function that does steps. The
rows of a case take turns, round after round, and a ratio is the median over rounds of the ratio within a
round, so that a machine that slows down for a while slows both sides.
"""

import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import activations, presets, zoo
from .._compiled import compiled
from .._field.base import AbstractField
from .._field.form import AbstractForm, Identity
from .._network.mlp import MLP
from .._network.shallow import Shallow, ShallowField
from .._plot.style import headless, write_figure
from .._rule.base import AbstractRule
from .._rule.batch import chunk_size
from .._rule.first_order import DeepGalerkin, QLearning
from .._rule.schedule import as_schedule
from .._runs.run_folder import write_study
from .._solve.solve import plan_solve, solve
from .._train.run import Run
from . import _peers, _speed_page
from ._machine import machine, today, versions

_DISCOUNT = 0.2
# A sample lasts at least this many seconds, so that the clock and the call do not count.
_SAMPLE = 0.15


class Case(NamedTuple):
    """Dimension, hidden units, points a step."""

    dim: int
    width: int
    points: int


CASES = {"d1": Case(1, 64, 1_500), "d20": Case(20, 256, 6_000), "d100": Case(100, 256, 2_000)}
SCALING = {f"d{dim}": Case(dim, 256, 256) for dim in (10, 100, 1_000, 10_000)}

Stepper = Callable[[int], None]  # does that many steps

# The rows by name, in the words of the tables.
ROWS = {
    "q": "qpde, Q-learning",
    "dgm": "qpde, deep Galerkin",
    "hessian": "qpde, Q-learning with trace(jax.hessian)",
    "limit": "unavoidable work alone",
    "authors": "authors' way (PyTorch), Q-learning",
    "authors_dgm": "authors' way (PyTorch), deep Galerkin",
    "deepxde": "DeepXDE (PyTorch)",
}


class _ByHessian(AbstractField):
    """A network whose Laplacian is the trace of `jax.hessian`, as a control."""

    inner: ShallowField

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.inner.value(x)

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.inner.grad(x)

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return form.contract(self.hessian(x))

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return jax.hessian(self.inner.value)(x)


def _network(width: int) -> Shallow:
    return Shallow(width, activation=activations.sigmoid, beta=0.99, scale=1.0, normalise=False)


def ours(case: Case, rule: AbstractRule, *, by_hessian: bool = False) -> Stepper:
    """Steps of one of our rules, through the same compiled block as in `solve`."""
    problem = zoo.survival(case.dim, discount=_DISCOUNT)
    network: Any = _network(case.width)
    if by_hessian:
        network = _ByHessian(network.build(problem.domain, key=jr.key(0)))
    (plan,) = plan_solve(problem, network=network, rule=rule, batch=case.points, steps=10**6)
    run = Run(plan)
    state = run.begin()

    def steps(count: int) -> None:
        nonlocal state
        while count > 0:
            part = min(count, 100)
            state = run.advance(state, part)
            count -= part

    return steps


@compiled
def _unavoidable(
    domain: Any, w: Array, key: PRNGKeyArray, count: Any, chunk: int, parts: int
) -> Array:
    """`count` times: points, a product with the weights, an activation, a product back."""

    def part(i: Any, total: Array) -> Array:
        x = domain.sample(jr.fold_in(key, i), chunk)
        return total + activations.sigmoid(w @ x.T) @ x

    return jax.lax.fori_loop(0, count * parts, part, jnp.zeros_like(w))


def limit(case: Case) -> Stepper:
    """The work that every step of this method needs, alone, in micro-batches of the same size."""
    domain = zoo.survival(case.dim).domain
    w = jr.normal(jr.key(0), (case.width, case.dim))
    chunk, _ = chunk_size(as_schedule(case.points), 1)
    parts = -(-case.points // chunk)

    def steps(count: int) -> None:
        jax.block_until_ready(
            _unavoidable(domain, w, jr.key(1), np.asarray(count, np.int32), chunk, parts)
        )

    return steps


def _one_by_one(step: Callable[[], None]) -> Stepper:
    def steps(count: int) -> None:
        for _ in range(count):
            step()

    return steps


def steppers(case: Case, *, peers: bool) -> dict[str, Callable[[], Stepper]]:
    """The rows of a case by name; calling one builds it."""
    dim, width, points = case
    shared: dict[str, Any] = {"discount": _DISCOUNT, "seed": 0}
    rows: dict[str, Callable[[], Stepper]] = {
        "q": lambda: ours(case, QLearning()),
        "dgm": lambda: ours(case, DeepGalerkin()),
        "hessian": lambda: ours(case, QLearning(), by_hessian=True),
        "limit": lambda: limit(case),
    }
    if peers:
        rows |= {
            "authors": lambda: _one_by_one(_peers.authors(dim, width, points, dgm=False, **shared)),
            "authors_dgm": lambda: _one_by_one(
                _peers.authors(dim, width, points, dgm=True, **shared)
            ),
            "deepxde": lambda: _one_by_one(_peers.deepxde(dim, width, points, **shared)),
        }
    return rows


class Timing(NamedTuple):
    """The seconds until the first step was done, and the seconds per step of every round."""

    first: float
    rounds: list[float]

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)


def measure(
    rows: dict[str, Callable[[], Stepper]], repeats: int, note: Callable[[str], None]
) -> dict[str, Timing]:
    """Build the rows, then time them in turn for `repeats` rounds."""
    made, counts, first = {}, {}, {}
    for name, make in rows.items():
        note(f"{name}: compiling")
        began = time.perf_counter()
        made[name] = make()
        made[name](1)
        first[name] = time.perf_counter() - began
        made[name](2)  # caches and allocators have settled
        began = time.perf_counter()
        made[name](2)
        pace = (time.perf_counter() - began) / 2
        counts[name] = int(np.clip(_SAMPLE / pace, 1, 1_000))
    rounds: dict[str, list[float]] = {name: [] for name in rows}
    for repeat in range(repeats):
        note(f"round {repeat + 1} of {repeats}")
        for name, steps in made.items():
            began = time.perf_counter()
            steps(counts[name])
            rounds[name].append((time.perf_counter() - began) / counts[name])
    return {name: Timing(first[name], rounds[name]) for name in rows}


def ratio(above: Timing, below: Timing) -> float:
    """The median over rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(above.rounds, below.rounds, strict=True))


@compiled
def _laplacians(field: AbstractField, points: Array, closed: bool) -> Array:
    def one(x: Array) -> Array:
        return field.trace(x, Identity()) if closed else jnp.trace(jax.hessian(field.value)(x))

    return jax.vmap(one)(points)


def deep(dim: int, *, closed: bool) -> Stepper:
    """Laplacians of a 2 x 256 tanh network at 500 points, by our engine or by `jax.hessian`."""
    domain = zoo.survival(dim).domain
    field = MLP([256, 256]).build(domain, key=jr.key(0))
    points = domain.sample(jr.key(1), 500)

    def steps(count: int) -> None:
        for _ in range(count):
            jax.block_until_ready(_laplacians(field, points, closed))

    return steps


# Run in a process of its own: the peak of memory while a step of 10,000 points is compiled and run, less the
# memory just before. Linux forgets the peak so far when a 5 is written to clear_refs.
_MEMORY = """
from pathlib import Path
from qpde import QLearning
from qpde.studies import speed
def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024
steps = speed.ours(speed.Case(20, 256, 10_000), QLearning())
Path("/proc/self/clear_refs").write_text("5")
idle = status("VmRSS")
steps(20)
print(status("VmHWM") - idle)
"""


def memory() -> float | None:
    """Megabytes that compiling and running a step (d=20, N=256, M=10,000) takes, None outside Linux."""
    if platform.system() != "Linux":
        return None
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def study(
    *, repeats: int = 9, peers: bool = True, note: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """The whole benchmark as one dictionary of plain values; `note` is told of every measurement."""
    here = machine()  # first, while the load is that of other programs alone
    used = versions("qpde", "jax", "jaxlib") | (_peers.versions() if peers else {})
    note("start-up")
    startup = _startup_seconds()
    timings = _measure_all(repeats, peers, note)
    note("memory")
    return {
        "date": today(),
        "machine": here,
        "versions": used,
        "repeats": repeats,
        "ratios": _ratios(timings),
        "rows": [
            _row(name, CASES[name], row, timing)
            for name in CASES
            for row, timing in timings[name].items()
        ],
        "scaling": [
            _row(name, SCALING[name], "q", timing) for name, timing in timings["scaling"].items()
        ],
        "deep": {name: 1e3 * timing.median for name, timing in timings["deep"].items()},
        "startup_seconds": startup,
        "memory_mb": memory(),
    }


def _startup_seconds() -> float:
    """Seconds of compiling for a run with the paper's settings."""
    problem = zoo.survival(20)
    options: dict[str, Any] = presets.paper(problem) | {"steps": 200, "progress": False}
    return solve(problem, **options).compile_seconds


def _measure_all(
    repeats: int, peers: bool, note: Callable[[str], None]
) -> dict[str, dict[str, Timing]]:
    """The timings of all rows: of every case by its name, of "scaling" and of "deep"."""
    groups = {name: steppers(case, peers=peers) for name, case in CASES.items()}
    groups["scaling"] = {
        name: lambda case=case: ours(case, QLearning()) for name, case in SCALING.items()
    }
    groups["deep"] = {
        f"{kind}_d{dim}": lambda dim=dim, closed=closed: deep(dim, closed=closed)
        for dim in (20, 100)
        for kind, closed in (("engine", True), ("hessian", False))
    }
    words = {"scaling": "dimension", "deep": "deep network"}
    return {
        name: measure(
            rows, repeats, lambda text, name=name: note(f"{words.get(name, name)}, {text}")
        )
        for name, rows in groups.items()
    }


# The ratios by name: case and row of the numerator, case and row of the denominator.
_RATIOS = {
    "dgm_over_q_d20": (("d20", "dgm"), ("d20", "q")),
    "hessian_over_q_d20": (("d20", "hessian"), ("d20", "q")),
    "limit_over_q_d20": (("d20", "limit"), ("d20", "q")),
    "d10000_over_d1000": (("scaling", "d10000"), ("scaling", "d1000")),
    "mlp_hessian_over_engine_d20": (("deep", "hessian_d20"), ("deep", "engine_d20")),
    "mlp_hessian_over_engine_d100": (("deep", "hessian_d100"), ("deep", "engine_d100")),
    "authors_over_q_d20": (("d20", "authors"), ("d20", "q")),
    "deepxde_over_q_d20": (("d20", "deepxde"), ("d20", "q")),
    "deepxde_over_dgm_d20": (("d20", "deepxde"), ("d20", "dgm")),
    "authors_dgm_over_q_d20": (("d20", "authors_dgm"), ("d20", "authors")),
    "authors_over_q_d1": (("d1", "authors"), ("d1", "q")),
}


def _ratios(timings: dict[str, dict[str, Timing]]) -> dict[str, float]:
    """The ratios whose rows were timed; without the peers theirs are left out."""
    return {
        name: ratio(timings[case][row], timings[other_case][other])
        for name, ((case, row), (other_case, other)) in _RATIOS.items()
        if row in timings[case]
    }


def _row(name: str, case: Case, row: str, timing: Timing) -> dict[str, Any]:
    """One row of the table, in plain values."""
    return {
        "case": name,
        **case._asdict(),
        "row": row,
        "milliseconds": 1e3 * timing.median,
        "fastest": 1e3 * min(timing.rounds),
        "slowest": 1e3 * max(timing.rounds),
        "first_seconds": timing.first,
    }


def write(folder: Path, result: dict[str, Any]) -> None:
    """Write `speed.json`, `SPEED.md` and `speed.png`."""
    headless()
    write_study(folder, "speed", result, markdown(result), page_name="SPEED.md")
    write_figure(draw(result), folder / "speed.png", dpi=160)


def markdown(result: dict[str, Any]) -> str:
    """The page of a result, in Markdown."""
    return _speed_page.markdown(result, ROWS)


def draw(result: dict[str, Any]) -> Any:
    """The figure of a result."""
    return _speed_page.draw(result, ROWS)
