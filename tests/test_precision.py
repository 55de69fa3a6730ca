"""One mode for all programs: integers, own networks, both precisions, whatever mode the caller has set."""

import ast
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import qpde
from qpde import Ball, Problem
from qpde._precision import as_called, by_chunks, cast, copied, is_x64, key_from, keys_from, x64

SOURCE = Path(qpde.__file__).parent


class Waves(eqx.Module):
    """A network of one's own that closes over nothing and indexes with an array."""

    a: jax.Array
    c: jax.Array

    def __init__(self, key):
        self.a, self.c = jr.normal(key, (8, 2)), jnp.zeros(8)

    def __call__(self, x):
        rows = jnp.sin(self.a @ x)
        return self.c @ rows[jnp.argsort(jax.lax.stop_gradient(rows))]


TABLE = np.array([1.0, 2.0, 4.0])


def source(x):
    """Integers of three kinds: `argmax`, an index into a NumPy array, `piecewise`."""
    which = jnp.argmax(jnp.stack([x[0] + 3.0, x[1] - 3.0, 0.0 * x[0]]))
    index = jnp.floor(0.0 * x[0]).astype(int)
    step = jnp.piecewise(x[1], [x[1] < 2.0], [lambda s: s, lambda s: -s])
    return jnp.asarray(TABLE)[which] + jnp.arange(3.0)[index] + step


def edge(x):
    return source(x) * x[0]


def equation(x, u):
    return u.laplacian - TABLE[1] * u.value + source(x)


RULES = [
    (qpde.QLearning(), "float32"),
    (qpde.QLearning(truncation=qpde.Truncation(2.0)), "float64"),
    (qpde.DeepGalerkin(), "float32"),
    (qpde.DeepGalerkin(), "float64"),
    (qpde.Penalty(), "float32"),
    (qpde.Penalty(), "float64"),
    (qpde.GaussNewton(), "float64"),
    (qpde.ImplicitQLearning(), "float64"),
]


@pytest.fixture(scope="module")
def problems():
    """The same problem, built in either mode; equal in all that programs see."""
    built = []
    for mode in (False, True):
        with jax.enable_x64(mode):
            built.append(Problem(Ball(2), equation, boundary=edge))
    return built


@pytest.mark.daily(
    *("q-learning-float32-False", "q-learning-float64-False", "deep-galerkin-float32-True"),
    *("penalty-float64-False", "gauss-newton-float64-True", "implicit-q-learning-float64-False"),
)
@pytest.mark.parametrize(
    ("rule", "precision", "own"),
    [
        *((*pair, False) for pair in RULES),
        *((*pair, True) for pair in RULES[2::2]),
        *(pytest.param(*pair, True, marks=pytest.mark.slow) for pair in (*RULES[:2], *RULES[3::2])),
    ],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_integers_in_functions_and_the_callers_mode(rule, precision, own, problems):
    network = Waves(jr.PRNGKey(0)) if own else qpde.Shallow(8)
    losses = []
    for mode, problem in zip((False, True), problems, strict=True):
        with jax.enable_x64(mode):
            options = {"steps": 3, "batch": 32, "precision": precision, "progress": False}
            solution = qpde.solve(problem, network=network, rule=rule, **options)
            assert is_x64() is mode
            x = np.zeros((2, 2)) + 0.1
            assert solution(x).dtype == precision
            losses.append([*solution.history.loss, *solution(x), *solution.grad(x)[0]])
            leaves = jax.tree.leaves(eqx.filter(solution.trial.network, eqx.is_inexact_array))
            assert all(leaf.dtype == precision for leaf in leaves if isinstance(leaf, jax.Array))
    np.testing.assert_array_equal(*losses)
    assert np.all(np.isfinite(losses))


def test_a_float32_step_holds_no_float64_array_but_the_users_own():
    """A NumPy float64 number that slipped into a step would widen everything after it."""
    problem = qpde.zoo.survival(3)
    seen: set[str] = set()

    def walk(program):
        for line in program.eqns:
            seen.update(
                str(v.aval) for v in line.outvars if "float64" in str(v.aval) and v.aval.shape
            )
            for value in line.params.values():
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    walk(inner)

    from qpde._train.plan import make_plan
    from qpde._train.run import Run

    with x64():
        run = Run(make_plan(problem, rule=qpde.DeepGalerkin(), network=qpde.Shallow(8), batch=16))
        rule = cast(run.plan.rule, "float32")
        draw = qpde.Draw(cast(run.plan.measure, "float32"), key_from(0), 16, 16, True, "float32")

        def step(trial, state):
            return rule.step(trial, state, draw, qpde.Clock(jnp.int32(1), jnp.int32(9)))[1:]

        arrays, rest = eqx.partition((run.trial, run.start.state), eqx.is_array)
        program = jax.make_jaxpr(lambda a: eqx.filter(step(*eqx.combine(a, rest)), eqx.is_array))
        walk(program(arrays).jaxpr)
    assert not seen


def test_a_callback_runs_in_the_mode_of_its_caller():
    seen = []
    options = {"network": qpde.Shallow(4), "steps": 2, "batch": 8, "progress": False}
    for mode in (False, True):
        with jax.enable_x64(mode):
            qpde.solve(qpde.zoo.survival(1), **options, callback=lambda _: seen.append(is_x64()))
    assert seen == [False, True]
    with jax.enable_x64(True):
        inner = as_called(is_x64)
    assert inner() is True
    assert is_x64() is False


def test_casts_copies_and_chunks():
    tree = {"a": np.ones(2), "b": jnp.ones(2, jnp.float32), "n": np.arange(2), "f": len}
    narrow = cast(tree, "float32")
    assert (narrow["a"].dtype, narrow["b"].dtype, narrow["n"].dtype) == ("float32", "float32", int)
    assert copied(tree)["a"] is not tree["a"]
    assert copied(tree)["f"] is len
    for count in (0, 1, 5, 8, 9):
        rows = np.arange(3.0 * count).reshape(count, 3)
        shapes = set()

        def program(part, shapes=shapes):
            shapes.add(part.shape)
            return part.sum(axis=1), part[:, 0]

        total, first = by_chunks(program, rows, 4)
        np.testing.assert_array_equal(total, rows.sum(axis=1))
        np.testing.assert_array_equal(first, rows[:, 0])
        assert shapes == {(4, 3)}


def test_keys_do_not_depend_on_the_mode_or_the_default_generator():
    plain = [jr.key_data(k).tolist() for k in (key_from(3, 1), *keys_from(2**70, 2))]
    with jax.enable_x64(True), jax.default_prng_impl("rbg"):
        wide = [jr.key_data(k).tolist() for k in (key_from(3, 1), *keys_from(2**70, 2))]
    assert plain == wide


def test_the_rituals_live_in_one_file():
    for path in SOURCE.rglob("*.py"):
        if path.name == "_precision.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert node.attr != "enable_x64", f"{path}:{node.lineno}"
            if isinstance(node, ast.Constant):
                assert node.value != "threefry2x32", f"{path}:{node.lineno}"
