"""What a step consists of, and the study that times it."""

import json
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from qpde import DeepGalerkin, QLearning, Uniform, zoo
from qpde._field.form import Identity
from qpde._problem.trial import Trial
from qpde._rule.batch import Draw
from qpde._rule.schedule import Clock
from qpde.studies import speed

ROOT = Path(__file__).parents[1]


def equations(jaxpr):
    """All equations of a program, those of loops and calls included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


def program(rule, dim, width, chunk):
    problem = zoo.survival(dim)
    network = speed._network(width).build(problem.domain, key=jr.key(0))
    trial = Trial.of(problem, network, exact_boundary=True)
    arrays, fixed = eqx.partition(trial, eqx.is_inexact_array)

    def step(arrays, key):
        trial = eqx.combine(arrays, fixed)
        draw = Draw(measure, key, jnp.asarray(5 * chunk, jnp.int32), chunk)
        moved, _, info = rule.step(trial, rule.init(trial, key), draw, Clock(0, 10))
        return eqx.filter(moved, eqx.is_inexact_array), info

    measure = Uniform(problem.domain)
    return list(equations(jax.make_jaxpr(step)(arrays, jr.key(1)).jaxpr))


@pytest.mark.parametrize("rule", [QLearning(), DeepGalerkin()], ids=["q", "dgm"])
def test_no_array_over_points_units_and_coordinates(rule):
    dim, width, chunk = 31, 37, 41
    sizes = [v.aval.size for e in program(rule, dim, width, chunk) for v in e.outvars]
    assert max(sizes) <= chunk * max(width, dim + 1)


def test_the_q_step_evaluates_the_activation_once_and_multiplies_twice():
    """Products over points: forward and the way back."""
    dim, width, chunk = 31, 37, 41
    found = program(QLearning(), dim, width, chunk)
    big = {chunk * width, chunk * dim, width * dim}
    large = [e for e in found if any(v.aval.size in big for v in e.outvars)]
    assert [e.primitive.name for e in large].count("tanh") == 1
    products = [e for e in large if e.primitive.name == "dot_general"]
    contracted = [e for e in products if e.params["dimension_numbers"][0][0]]
    assert len(contracted) == 2


def test_the_control_and_the_closed_form_agree():
    problem = zoo.survival(5)
    field = speed._network(16).build(problem.domain, key=jr.key(0))
    x = problem.domain.sample(jr.key(1), 20)
    ours, control = (
        jax.jit(jax.vmap(lambda p, f=f: f.trace(p, Identity())))(x)
        for f in (field, speed._ByHessian(field))
    )
    np.testing.assert_allclose(ours, control, rtol=2e-4, atol=1e-6)


def test_timing_takes_ratios_within_rounds():
    """Two rows whose cost doubles from round to round, one three times the other."""
    slow = speed.Timing(0.0, [3.0, 6.0, 12.0])
    fast = speed.Timing(0.0, [1.0, 2.0, 4.0])
    assert speed.ratio(slow, fast) == 3.0
    assert slow.median == 6.0
    calls = []
    timings = speed.measure({"a": lambda: calls.append}, 3, lambda text: None)
    assert len(timings["a"].rounds) == 3
    assert calls[:3] == [1, 2, 2]
    assert len(set(calls[3:])) == 1


def test_steps_of_ours_are_steps_of_solve():
    steps = speed.ours(speed.Case(2, 8, 50), QLearning())
    steps(1)
    steps(150)  # more than a block
    assert speed.limit(speed.Case(2, 8, 50))(2) is None


def result():
    path = ROOT / "benchmarks" / "speed.json"
    return json.loads(path.read_text())


def test_results_are_written_by_the_script():
    """benchmarks/SPEED.md is the page of benchmarks/speed.json, and the README quotes it."""
    assert (ROOT / "benchmarks" / "SPEED.md").read_text() == speed.markdown(result())
    readme = (ROOT / "README.md").read_text()
    quoted = re.findall(r"\| `(\w+_over_\w+)` \| [^|]+ \| ([\d.]+) \|", readme)
    assert len(quoted) >= 5
    for name, number in quoted:
        assert number == f"{result()['ratios'][name]:.3g}", name


def test_the_figure_has_a_bar_for_every_row():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = speed.draw(result())
    bars = figure.axes[0].patches
    assert len(bars) == len(speed.ROWS)
    plt.close(figure)


@pytest.mark.slow
def test_promises_that_need_no_peers():
    """Measured anew; the peers' ratios are in benchmarks/SPEED.md."""
    found = speed.study(repeats=5, peers=False)
    assert found["ratios"]["limit_over_q_d20"] >= 0.45
    assert found["ratios"]["d10000_over_d1000"] <= 12
    assert found["ratios"]["mlp_hessian_over_engine_d20"] >= 1.3
    assert found["ratios"]["mlp_hessian_over_engine_d100"] >= 1.3
    assert found["memory_mb"] is None or found["memory_mb"] <= 300
