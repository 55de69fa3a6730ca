"""Arguments: every public call answers nonsense with its own sentence, and common slips get the cure.

`pytest -m slow tests/test_arguments.py -s` prints the counts.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import qpde
from qpde._arguments import (
    a_function,
    a_range,
    a_seed,
    an_instance,
    flag,
    one_of,
    real,
    reals,
    shown,
    whole,
)

SLIPS = {
    "NumPy": (lambda x, u: u.laplacian + np.sin(x[0]), "Use that of jax.numpy: jnp.sin"),
    "math": (lambda x, u: u.laplacian + math.sin(x[0]), "use jnp.sin in place of math.sin"),
    "float": (lambda x, u: u.laplacian + float(x[0]), r"as float\(\), int\(\)"),
    "if": (lambda x, u: u.laplacian if x[0] > 0 else -u.laplacian, "use jnp.where"),
    "a call": (lambda x, u: u.laplacian(), r"are no methods: leave out \(\)"),
    "1 - u": (lambda x, u: u.laplacian + 1 - u, "u is a jet, not a number: write u.value"),
    "sin(u)": (lambda x, u: u.laplacian + jnp.sin(u), "write u.value"),
    "swapped": (lambda u, x: u.laplacian + x[0], r"are \(x, u\), in this order"),
    "a batch": (lambda x, u: u.laplacian + x[:, 0], r"one point of shape \(d,\): x\[0\]"),
    "None": (lambda x, u: None, "returned None. Does it lack a `return`"),
    "a tuple": (lambda x, u: (u.laplacian,), "returned tuple; it must return a number"),
    "one argument": (lambda x: x, r"must take \(x, u\)"),
    "a missing parameter": (
        lambda x, u, k: k * u.laplacian,
        r"Problem\(parameters=\{...\}\) gives",
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_slips_in_equations_get_the_cure(name):
    equation, words = SLIPS[name]
    with pytest.raises(ValueError, match=words):
        qpde.Problem(qpde.Ball(2), equation)


@pytest.mark.parametrize(
    ("boundary", "words"),
    [
        (lambda x: x[:, 0], r"one point of shape \(d,\)"),
        (lambda x: np.cos(x[0]), "Use that of jax.numpy"),
        (lambda x: None, "The boundary function returned None"),
        (lambda x, y: x[0], r"must take one point \(x\)"),
        ("zero", "boundary must be a number or a function"),
        (1j, "real and finite, got 1j"),
    ],
)
def test_slips_in_boundary_functions(boundary, words):
    with pytest.raises(ValueError, match=words):
        qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian, boundary=boundary)


def test_a_users_own_error_comes_through():
    class Mine(Exception):
        pass

    def equation(x, u):
        raise Mine

    with pytest.raises(Mine):
        qpde.Problem(qpde.Ball(2), equation)


def test_an_optimiser_that_searches_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"optax.lbfgs and its like.*rule=qpde.GaussNewton"):
        qpde.QLearning(optimiser=optax.lbfgs())
    for good in (optax.adam(0.1), optax.sgd(0.1), qpde.Flow(1.0), optax.chain(optax.adam(0.1))):
        qpde.QLearning(optimiser=good)


def test_arguments_of_other_libraries_get_the_cure():
    problem = qpde.zoo.survival(2)
    for call, words in (
        (
            lambda: qpde.QLearning(optimizer=optax.adam(0.1)),  # pyright: ignore[reportArgumentType]
            "no argument 'optimizer'. Write optimiser=",
        ),
        (
            lambda: qpde.solve(problem, optimizer=optax.adam(0.1)),  # pyright: ignore[reportArgumentType]
            "It belongs to a rule: rule=qpde.QL",
        ),
        (lambda: qpde.solve(problem, lr=0.1), "The learning rate belongs to a rule"),  # pyright: ignore[reportArgumentType]
        (lambda: qpde.solve(problem, epochs=3), "Write steps="),  # pyright: ignore[reportArgumentType]
        (lambda: qpde.Penalty(wait=3), "It takes weight, rate and optimiser"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(TypeError, match=words):
            call()


def test_the_layer_itself():
    assert real("a", 2, above=0.0) == 2.0
    assert whole("n", np.int64(3)) == 3
    assert a_seed(2**63 - 1) == 2**63 - 1
    assert a_range("r", [0, 1]) == (0.0, 1.0)
    assert one_of("n", "a", ("a", "b")) == "a"
    assert flag("f", np.True_) is True
    assert reals("a", [1, 2.5]).tolist() == [1.0, 2.5]
    for call, words in (
        (lambda: real("a", 10**400), "a must be a number, real and finite, got an integer of more"),
        (lambda: real("a", -1.0, least=0.0), "a number, not negative, got -1.0"),
        (lambda: real("a", [1.0]), r"a must be a number, got \[1.0\]"),
        (lambda: real("a", True), "got True"),
        (lambda: whole("n", 2.0), "n must be a whole number, not negative, got 2.0"),
        (lambda: whole("n", 2**40), "n must be at most 2,147,483,647"),
        (lambda: whole("n", 2**40, least=4, most=99), "n must be a whole number from 4 to 99, got"),
        (lambda: a_seed(10**400), r"seed must be less than 2\^63, got an integer of more"),
        (lambda: a_seed(-1), "seed must be a whole number, not negative, got -1"),
        (lambda: a_range("r", (2, 1)), r"r is \(low, high\) with finite low < high, got \(2, 1\)"),
        (lambda: one_of("n", np.zeros(2), ("a", "b")), r'n is "a" or "b", got array\('),
        (lambda: flag("f", 1), "f must be True or False, got 1"),
        (
            lambda: an_instance("d", qpde.Ball, qpde.Ball, "qpde.Ball(2)"),
            "got the class Ball itself",
        ),
        (
            lambda: a_function("g", qpde.Ball, "a function"),
            "g must be a function, got the class Ball",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            call()

    class Silent:
        def __repr__(self):
            raise RuntimeError

    assert "its repr raises RuntimeError" in shown(Silent())


def test_wrong_functions_of_a_point_get_the_cure():
    """The same sentences wherever a function of one point is taken."""
    domain, problem = qpde.Ball(2), qpde.zoo.survival(2)
    for takes in (
        lambda function: qpde.lift(function, domain),
        lambda function: qpde.Weighted(domain, function),
        lambda function: qpde.explain(problem, network=function),
    ):
        for function, words in (
            (lambda x: np.cos(x[0]), "Use that of jax.numpy"),
            (lambda x: None, "returned None. Does it lack a `return`"),
            (lambda x, y: x[0], r"must take one point \(x\); it takes \(x, y\)"),
            (lambda x: x, r"must return a scalar of shape \(\), got \(2,\)"),
        ):
            with pytest.raises(ValueError, match=words):
                takes(function)


def fuzzed(count, seed):
    """What a process without the tests' own type checks answers."""
    script = str(Path(__file__).with_name("fuzz_calls.py"))
    words = [sys.executable, script, str(count), str(seed)]
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true"}
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    return found["counts"]


def test_fuzzed_calls():
    counts = fuzzed(400, 1)
    assert sum(counts.values()) == 400
    assert counts["a sentence"] > 300


@pytest.mark.slow
def test_twenty_thousand_fuzzed_calls():
    print("\n", fuzzed(20_000, 3))
