"""What a Gauss-Newton step costs, and its parts.

Run:     python benchmarks/steps.py [--only "survival, d = 20"] [--out benchmarks]
Writes:  steps.json and STEPS.md.

Width 256, 1,000 points, float64; milliseconds, the least of several runs after the first. Of a constant
matrix the step is also done with an explicit Jacobian.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

import qpde
from qpde import zoo
from qpde._network.base import trainable
from qpde._problem.trial import Trial
from qpde._rule import gauss_newton
from qpde._rule.batch import Draw
from qpde._rule.schedule import Clock
from qpde._rule.trials import Steps
from qpde._tangent.damped import solve_damped
from qpde._tangent.jacobian import AbstractTangent, explicit
from qpde._tangent.tangent import tangent
from qpde.studies._machine import machine, today, versions

_POINTS, _TIMES, _LONGEST = 1_000, 8, 10.0


def lifted_ball() -> qpde.Problem:
    """A ball in six dimensions with boundary values that no smooth fit meets."""
    domain = qpde.Ball(6)

    def values(x: Any) -> Array:
        return jnp.sin(3.0 * x[0]) * jnp.cos(2.0 * x[1]) + jnp.exp(x[1] * x[2])

    return qpde.Problem(domain, _reaction, boundary=qpde.lift(values, domain))


def lifted_box() -> qpde.Problem:
    """A box in four dimensions with boundary values that are interpolated between its faces."""
    domain = qpde.Box(0.0, 1.0, dim=4)

    def values(x: Any) -> Array:
        return jnp.sin(3.0 * x[0] * x[1]) + jnp.exp(x[0] * x[1] * x[2])

    return qpde.Problem(domain, _reaction, boundary=qpde.lift(values, domain))


def _reaction(x: Any, u: Any) -> Any:
    return u.laplacian - u.value + jnp.sin(jnp.sum(x))


def correlated() -> qpde.Problem:
    """A constant matrix without structure, d = 20."""
    root = np.random.default_rng(0).standard_normal((20, 20))
    a = root @ root.T / 20 + 0.2 * np.eye(20)
    return qpde.Problem(qpde.Ball(20), lambda x, u: u.trace(a) - u.value + jnp.sin(x[0]))


PROBLEMS: dict[str, Callable[[], qpde.Problem]] = {
    "survival, d = 10": functools.partial(zoo.survival, 10),
    "survival, d = 20": functools.partial(zoo.survival, 20),
    "survival, d = 1,000": functools.partial(zoo.survival, 1_000),
    "lifted boundary, ball, d = 6": lifted_ball,
    "lifted boundary, box, d = 4": lifted_box,
    "constant matrix, d = 20": correlated,
}


@eqx.filter_jit
def _step(rule: Any, trial: Trial, state: Any, measure: Any, key: Array) -> tuple[Any, ...]:
    return rule.step(trial, state, _draw(measure, key), Clock(np.asarray(0), np.asarray(10)))


@eqx.filter_jit
def _explicit_step(
    rule: Any, trial: Trial, state: Any, measure: Any, key: Array
) -> tuple[Any, ...]:
    return rule.step(trial, state, _draw(measure, key), Clock(np.asarray(0), np.asarray(10)))


def _draw(measure: Any, key: Array) -> Draw:
    return Draw(measure, key, np.asarray(_POINTS, np.int32), _POINTS, True, "float64")


@eqx.filter_jit
def _batches(measure: Any, key: Array) -> list[Any]:
    return _draw(measure, key).whole(2)


@eqx.filter_jit
def _tangent(trial: Trial, batch: Any) -> AbstractTangent:
    return tangent(trial, batch.points, batch.weights)


@eqx.filter_jit
def _lower(here: AbstractTangent) -> Array:
    return here.lower()


@eqx.filter_jit
def _solved(here: AbstractTangent, dampings: Any) -> tuple[Array, Array]:
    return solve_damped(here, dampings)


@eqx.filter_jit
def _pulled(here: AbstractTangent, rows: Array) -> Any:
    return jax.vmap(here.pull)(rows)


@eqx.filter_jit
def _tried(steps: Steps, trial: Trial, batch: Any) -> Array:
    return steps.losses(trial, trainable(trial.network)[1], batch)


def _least(program: Callable[[], Any]) -> float:
    """Milliseconds of a program, compiled before."""
    jax.block_until_ready(eqx.filter(program(), eqx.is_array))
    found, began = [], time.perf_counter()
    while len(found) < _TIMES and time.perf_counter() - began < _LONGEST:
        start = time.perf_counter()
        jax.block_until_ready(eqx.filter(program(), eqx.is_array))
        found.append(time.perf_counter() - start)
    return 1e3 * min(found)


def measured(problem: qpde.Problem, *, against_explicit: bool) -> dict[str, float]:
    """The step and its parts."""
    with jax.enable_x64(True):
        network = qpde.Shallow(256, polynomial=True, beta=0.5, amplitude=1 / 16)
        field = network.build(problem.domain, key=jr.key(0))
        trial = Trial.of(problem, field, exact_boundary=True)
        measure = qpde.Uniform(problem.domain)
        rule = qpde.GaussNewton(doublings=0)
        state, key = rule.init(trial, jr.key(0)), jr.key(1)
        own, second = _batches(measure, key)
        here = _tangent(trial, own)
        dampings = 1e-6 * np.asarray([1e-4, 0.1, 1.0, 10.0])
        solutions, _ = _solved(here, dampings)
        rows = jnp.concatenate([solutions, here.residual[None]])
        directions = jax.tree.map(lambda v: v[:-1], _pulled(here, rows))
        which, lengths = (
            jnp.asarray([0, 0, 0, 1, 1, 2, 2, 3, 3]),
            jnp.asarray([0.0] + [1.0, 0.3] * 4),
        )
        steps = Steps(trainable(field)[0], directions, which, lengths)
        found = {
            "step": _least(lambda: _step(rule, trial, state, measure, key)),
            "points": _least(lambda: _batches(measure, key)),
            "tangent": _least(lambda: _tangent(trial, own)),
            "products": _least(lambda: _lower(here)),
            "products and systems": _least(lambda: _solved(here, dampings)),
            "directions": _least(lambda: _pulled(here, rows)),
            "trial steps": _least(lambda: _tried(steps, trial, second)),
        }
        if against_explicit:

            def jacobian(trial: Trial, points: Array, weights: Array) -> AbstractTangent:
                return explicit(trial, points, jnp.sqrt(weights))

            with mock.patch.object(gauss_newton, "tangent", jacobian):
                found["explicit"] = _least(lambda: _explicit_step(rule, trial, state, measure, key))
    return found


def markdown(result: dict[str, Any]) -> str:
    """The page."""
    about = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    here, rows = result["machine"], result["rows"]
    columns = [
        *("step", "points", "tangent", "products", "products and systems"),
        *("directions", "trial steps"),
    ]
    text = [
        "# The cost of a Gauss-Newton step",
        "",
        f"`python benchmarks/steps.py`, {result['date']}: {here['processor']}, {here['cores']} cores, "
        f"Python {here['python']}; {about}.",
        "",
        "256 units, 1,000 points, milliseconds. The parts are programs of their own.",
        "",
        "| problem | " + " | ".join(columns) + " |",
        "| --- |" + " --- |" * len(columns),
    ]
    for name, row in rows.items():
        text.append(f"| {name} | " + " | ".join(f"{row[column]:.1f}" for column in columns) + " |")
    ends = [rows.get(f"survival, d = {dim}") for dim in ("10", "1,000")]
    if None not in ends:
        text += ["", f"d = 1,000 over d = 10: **{ends[1]['step'] / ends[0]['step']:.1f}**."]
    for name, row in rows.items():
        if "explicit" in row:
            ratio = row["explicit"] / row["step"]
            text += [
                "",
                f"{name}, with an explicit Jacobian: {row['explicit']:.0f} ms, "
                f"**{ratio:.1f}** times as long.",
            ]
    return "\n".join([*text, ""])


def main(only: str | None, out: Path) -> None:
    """Measure, write the results, print the page."""
    path = out / "steps.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"rows": {}}
    result |= {"date": today(), "machine": machine()}
    result["versions"] = versions("qpde", "jax", "jaxlib", "equinox", "numpy")
    for name in PROBLEMS if only is None else [only]:
        alone = name.startswith("constant")
        result["rows"][name] = measured(PROBLEMS[name](), against_explicit=alone)
        path.write_text(json.dumps(result, indent=1) + "\n")
        (out / "STEPS.md").write_text(markdown(result))
    print(markdown(result), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="one of " + "; ".join(PROBLEMS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    main(**vars(parser.parse_args()))
