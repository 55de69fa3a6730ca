"""The blocks of `docs/extending.md`, run in order, and the numbers that they must give."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

pytestmark = pytest.mark.trains

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()


@pytest.fixture(scope="module")
def page():
    scope: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 6
    for block in blocks:
        exec(compile(block, "extending.md", "exec"), scope)
    return scope


def test_a_network_of_ones_own_learns(page):
    """The exact solution is eta itself: the best constant network has no error."""
    solution = page["solution"]
    assert solution.score.loss < 0.5 * solution.history.held_out[0]


def test_a_field_of_ones_own_is_the_solution(page):
    x = np.array([[0.1, 0.2, 0.3], [0.0, -0.5, 0.5]])
    flat = page["flat"]
    start = page["qpde"].solve(page["harmonic"], **(page["options"] | {"steps": 0}))
    gap = np.abs(flat(x) - x @ [1.0, 0.0, 2.0]).max()
    assert gap < np.abs(start(x) - x @ [1.0, 0.0, 2.0]).max()
    np.testing.assert_allclose(page["plane"].value(x[0]), 0.7)


def test_a_rule_of_ones_own_descends(page):
    signs = page["signs"]
    assert signs.rule == "sign-descent"
    assert signs.score.loss < 1e-2 * signs.history.held_out[0]


def test_schedules_of_ones_own(page):
    saw = page["Saw"](np.array(2.0), 2)
    clock = page["qpde"].Clock
    assert [float(saw(clock(t, 8))) for t in (0, 2, 4, 6)] == [2.0, 1.0, 2.0, 1.0]
    assert page["sawn"].steps == page["grown"].steps == 50


def test_a_law_of_ones_own_has_the_right_weights(page):
    """E|x|^2 = 3/5 in the unit ball of three dimensions; 2e5 points, five standard errors of 7e-4."""
    law = page["weighted"].measure
    with jax.enable_x64(True):
        points, weights = map(np.asarray, law.sample(jax.random.key(0), 200_000))
    assert abs(np.mean(weights) - 1.0) < 5e-3
    assert abs(np.mean(weights * np.sum(points**2, axis=1)) - 0.6) < 4e-3
