"""Verdicts beside true errors: the zoo, the unseen problems, and runs that are bad on purpose.

`python benchmarks/verdicts.py` writes verdicts.json and VERDICTS.md beside this file. A verdict may be vague,
never wrong: no *solved* with a relative L2 error above 10 %, no *not solved* below 0.1 %. Errors are those of
`solution.score`, on points that the verdict has not seen.
"""

import argparse
import dataclasses
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import qpde
from qpde import zoo

sys.path.insert(0, str(Path(__file__).parent))
import unseen

HERE = Path(__file__).parent
# Relative errors above which no problem may be called solved, and below which none not solved.
ABOVE, BELOW = 0.1, 1e-3
SMALL = qpde.Shallow(16)


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem, the options of `solve`, and what is done to the network afterwards."""

    group: str
    name: str
    problem: Callable[[], qpde.Problem]
    options: dict[str, Any]
    spoil: Callable[[Any], Any] | None = None


@dataclasses.dataclass(frozen=True)
class Row:
    """One run: what was said, and what is true."""

    group: str
    name: str
    problem: str
    dim: int
    error: float
    word: str
    text: str
    residual: float | None
    learned: float | None

    @property
    def false(self) -> bool:
        """Whether the word is wrong."""
        solved, unsolved = self.word == "solved", self.word == "not solved"
        # An error that is not finite is no small one.
        return (solved and not self.error <= ABOVE) or (unsolved and self.error < BELOW)


def scaled(factor: float) -> Callable[[Any], Any]:
    """Multiply all arrays of a network."""
    return lambda network: jax.tree.map(
        lambda leaf: factor * leaf if eqx.is_inexact_array(leaf) else leaf, network
    )


def output(factor: float) -> Callable[[Any], Any]:
    """Multiply the output layer."""
    return lambda network: eqx.tree_at(
        lambda n: n.output_layer(), network, tuple(factor * a for a in network.output_layer())
    )


def kinked(strength: float) -> qpde.Problem:
    """`Lap u = 0` with the solution `x`, and data whose extension inside has a kink that `L Q` cannot see."""
    return qpde.Problem(
        qpde.Interval(-1.0, 1.0),
        lambda x, u: u.laplacian,
        lambda x: x[0] + strength * jnp.maximum(1.0 - 2.0 * jnp.abs(x[0]), 0.0),
        exact=lambda x: x[0],
        name="kinked",
    )


def metastable(noise: float) -> qpde.Problem:
    """A drift towards the centre and little noise: exits are rare, and residuals say little.

    `noise Lap u - x . grad u = 0` with `u = (x_1 + 1)^2` on the boundary, solved on a line by quadrature.
    """
    t = np.linspace(-1.0, 1.0, 20_001)
    slope = np.exp(0.5 * (t**2 - 1.0) / noise)
    mass = np.concatenate([[0.0], np.cumsum(0.5 * (slope[1:] + slope[:-1]) * np.diff(t))])
    values = 4.0 * mass / mass[-1]
    return qpde.Problem(
        qpde.Interval(-1.0, 1.0),
        lambda x, u: noise * u.laplacian - u.along(x),
        lambda x: (x[0] + 1.0) ** 2,
        exact=lambda x: jnp.interp(x[0], t, values),
        name=f"metastable, noise {noise:g}",
    )


def good(budget: float) -> list[Case]:
    """The default on the zoo, in small dimensions, and on the unseen problems."""
    dims: dict[str, int] = {
        "survival": 20,
        "poisson_sine": 3,
        "ellipsoid": 4,
        "annulus": 3,
        "committor": 10,
        "drift": 5,
        "cube_cosines": 5,
        "cube_products": 4,
        "cube_norm": 10,
        "mean_ridge": 10,
        "semilinear": 5,
        "two_body_poisson": 20,
        "two_body_allen_cahn": 20,
        "two_body_sine_gordon": 20,
        "exponential_ball": 10,
        "van_der_pol": 6,
        "control_bell": 6,
        "control_sines": 4,
        "american_put": 1,
        "lqr": 5,
        "lqr_matrices": 4,
        "lqr_diffusion": 3,
        "eikonal": 5,
        "rotated": 4,
        "clamped_load": 5,
        "clamped_waves": 4,
        "supported_plate": 2,
        "heat_ball": 3,
        "absorbed_heat": 3,
        "allen_cahn_in_time": 10,
        "semilinear_heat": 10,
        "sine_gordon_in_time": 10,
        "hjb_quadratic": 10,
    }
    assert set(dims) == set(zoo.CATALOGUE)
    options = {"budget": budget}
    cases = [
        Case("zoo", name, lambda name=name, dim=dim: zoo.CATALOGUE[name].build(dim), options)
        for name, dim in dims.items()
    ]
    return cases + [Case("unseen", name, build, options) for name, build in unseen.PROBLEMS.items()]


def bad() -> list[Case]:
    """Runs that are bad on purpose."""

    def case(name: str, problem: Any, spoil: Any = None, **options: Any) -> Case:
        return Case("bad", name, problem, {"network": SMALL, "batch": 128} | options, spoil)

    ball, line = (lambda: zoo.survival(5)), (lambda: zoo.survival(1))
    penalty, wild = qpde.Penalty(), qpde.QLearning(3.0)
    return [
        case("no steps", ball, steps=0),
        case("ten steps", ball, steps=10),
        case("hundred steps", ball, steps=100),
        case("wild learning rate", ball, steps=100, rule=wild, keep=qpde.Keep.LAST),
        case("network of zero", ball, output(0.0), steps=100),
        case("half the network", ball, output(0.5), steps=300),
        case("nine tenths of the network", ball, output(0.9), steps=300),
        case("weights doubled", ball, scaled(2.0), steps=300),
        case("one unit", lambda: zoo.poisson_sine(2), network=qpde.Shallow(1), steps=300),
        case("penalty, few steps", ball, steps=30, rule=penalty),
        case("penalty, boundary lost", lambda: zoo.annulus(2), steps=100, rule=penalty),
        case("few steps, drift", lambda: zoo.drift(3), steps=20),
        case("few steps, fast waves", unseen.PROBLEMS["fast"], steps=200),
        case("few steps, variable matrix", unseen.PROBLEMS["variable_box"], steps=20),
        case("semilinear, no steps", lambda: zoo.semilinear(3), steps=0),
        case("semilinear, wild", lambda: zoo.semilinear(3), output(20.0), steps=50),
        case("squared gradient, few steps", unseen.PROBLEMS["squared_gradient"], steps=10),
        case("control, few steps", lambda: zoo.control_bell(4), steps=5),
        case("Allen-Cahn, no steps", lambda: zoo.two_body_allen_cahn(10), steps=0),
        case("American put, few steps", zoo.american_put, steps=20),
        case("kink in the data", lambda: kinked(1.0), steps=50),
        case("rare exits", lambda: metastable(0.1), steps=200),
        case("rarer exits", lambda: metastable(0.05), steps=200),
        case("a line, two steps", line, steps=2),
    ]


def run(case: Case) -> Row:
    """Solve, spoil, judge and compare."""
    problem = case.problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = qpde.solve(problem, progress=False, throw=False, **case.options)
        if case.spoil is not None:
            trial = solution.trial.with_network(case.spoil(solution.trial.network))
            solution = dataclasses.replace(solution, trial=trial)
    verdict = solution.verdict or qpde.judge(solution)
    error: Any = solution.score.relative_l2_error
    words = (str(verdict.word), verdict.text, verdict.value("residual"), verdict.value("learned"))
    return Row(case.group, case.name, problem.name, problem.dim, error, *words)


def page(rows: list[Row]) -> str:
    """The rows as a table, and what they say."""
    false = [row for row in rows if row.false]
    lines = [
        "# Verdicts beside true errors",
        "",
        f"{len(rows)} runs, {len(false)} wrong words: *solved* with a relative L2 error above {ABOVE:.0%}, "
        f"or *not solved* with one below {BELOW:.1%}. Made by `python benchmarks/verdicts.py`.",
        "",
        "| runs | run | d | verdict | true error | L Q over terms | why |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        residual = "–" if row.residual is None else f"{row.residual:.1e}"
        lines.append(
            f"| {row.group} | {row.name} | {row.dim} | **{row.word}** | {row.error:.1e} | {residual} | "
            f"{row.text} |"
        )
    counts = {word: [row for row in rows if row.word == word] for word in map(str, qpde.Word)}
    lines += ["", "| verdict | runs | smallest error | largest error |", "|---|---|---|---|"]
    for word, some in counts.items():
        if some:
            errors = [row.error for row in some]
            lines.append(f"| {word} | {len(some)} | {min(errors):.1e} | {max(errors):.1e} |")
    return "\n".join(lines) + "\n"


def main(only: str | None, groups: str, budget: float) -> None:
    """Run the cases, print and write. What was run before and is not asked for is kept."""
    file = HERE / "verdicts.json"
    kept = [Row(**row) for row in json.loads(file.read_text())] if file.exists() else []
    cases = [case for case in good(budget) + bad() if case.group in groups.split(",")]
    if only is not None:
        cases = [case for case in cases if case.name in only.split(",")]
    for case in cases:
        row = run(case)
        wrong = "WRONG " if row.false else ""
        print(f"{wrong}{row.name:34s} {row.word:10s} error {row.error:.1e}  {row.text}", flush=True)
        kept = [old for old in kept if (old.group, old.name) != (row.group, row.name)] + [row]
        file.write_text(json.dumps([dataclasses.asdict(one) for one in kept], indent=1) + "\n")
        (HERE / "VERDICTS.md").write_text(page(kept))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", help="names of runs, with commas")
    parser.add_argument("--groups", default="zoo,unseen,bad")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of training")
    main(**vars(parser.parse_args()))
