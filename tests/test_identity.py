"""Which problem a file belongs to, by the programs of its functions: no other problem is accepted."""

import itertools
import random
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import Ball, Problem, Shallow
from qpde._precision import x64
from qpde._program.identity import identity_of

SMALL: dict[str, Any] = {"network": Shallow(4), "batch": 8, "steps": 0, "progress": False}


def first(x, u):
    return 1.0 + u.laplacian


# Each agrees with `first` at all 16 points of the fingerprint.
OTHERS = {
    "a small disc": lambda x, u: 1.0 + 50.0 * (jnp.sum(x * x) < 1e-4) + u.laplacian,
    "large values": lambda x, u: 1.0 + jnp.where(u.value > 5.0, u.value, 0.0) + u.laplacian,
    "steep places": lambda x, u: (
        1.0 + jnp.maximum(jnp.sum(u.grad * u.grad) - 1e4, 0.0) + u.laplacian
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("identity")
    solution = qpde.solve(Problem(Ball(2), first), checkpoint=folder / "run", **SMALL)
    qpde.save(solution, folder / "a.safetensors")
    return folder


@pytest.mark.parametrize("name", OTHERS)
def test_a_term_that_is_silent_at_all_sampled_points_counts(saved, name):
    other = Problem(Ball(2), OTHERS[name])
    words = "belongs to another problem: the equation differs. It computes something else"
    with pytest.raises(ValueError, match=words):
        qpde.load(saved / "a.safetensors", problem=other)
    with pytest.raises(ValueError, match=words):
        qpde.solve(other, checkpoint=saved / "run", **SMALL)


def test_the_same_program_is_accepted_whoever_wrote_it(saved):
    """Another function object, another way to write the number."""
    again = Problem(Ball(2), lambda x, u: np.float64(1.0) + u.laplacian)
    assert qpde.load(saved / "a.safetensors", problem=again).steps == 0
    qpde.solve(again, checkpoint=saved / "run", **SMALL)


def test_numbers_may_differ_by_rounding_in_a_file_and_not_in_a_checkpoint(saved):
    near = Problem(Ball(2), lambda x, u: 1.0 + 2e-16 + u.laplacian)
    assert qpde.load(saved / "a.safetensors", problem=near).steps == 0
    with pytest.raises(
        ValueError, match="has the number 1 where the problem given has 1.0000000000000002"
    ):
        qpde.solve(near, checkpoint=saved / "run", **SMALL)


def test_arrays_that_a_function_closes_over_are_part_of_it():
    with x64():
        table = np.arange(4.0)
        first = identity_of(lambda x: jnp.dot(table, x), table)
        second = identity_of(lambda x: jnp.dot(table + (table == 3), x), table)
        assert first.structure == second.structure
        assert first.digest != second.digest

        @jax.custom_jvp
        def rule(x):
            return x * x

        def other(x):
            return x * x

        rule.defjvp(lambda given, tangent: (given[0] ** 2, 2 * given[0] * tangent[0]))
        assert identity_of(rule, 1.0).structure != identity_of(other, 1.0).structure


def test_another_version_is_compared_at_points_with_a_note(saved, monkeypatch):
    monkeypatch.setattr("qpde._files.fingerprint._versions", lambda: {"qpde": "9", "jax": "9"})
    with pytest.warns(UserWarning, match="was made with jax .*compared at sample points only"):
        qpde.load(saved / "a.safetensors", problem=Problem(Ball(2), first))


count = itertools.count(1)
IMPURE = {
    "a counter": lambda: next(count),
    "NumPy's random numbers": lambda: np.random.default_rng().normal(),
    "Python's random numbers": lambda: random.random(),
    "a clock": lambda: time.perf_counter(),
}


@pytest.mark.parametrize("name", IMPURE)
def test_functions_that_change_are_refused_by_name(name):
    draw = IMPURE[name]
    with pytest.raises(
        ValueError, match="The equation is not the same function each time it is call"
    ):
        Problem(Ball(2), lambda x, u: u.laplacian + draw())
    with pytest.raises(
        ValueError, match="The boundary function is not the same function each time"
    ):
        Problem(Ball(2), first, boundary=lambda x: x[0] * draw())
    with pytest.raises(ValueError, match="The exact solution is not the same function each time"):
        Problem(Ball(2), first, exact=lambda x: x[0] * draw())
