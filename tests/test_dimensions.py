"""Tens of thousands of dimensions, tried out in tens: points that are drawn, used and forgotten."""

import jax
import numpy as np
import pytest

import qpde
from qpde import QLearning, Shallow, zoo
from qpde._precision import few_at_a_time, fitting
from qpde._problem.probe import _AT_ONCE
from qpde._rule.batch import chunk_size
from qpde._rule.schedule import as_schedule
from qpde._solve import stages
from qpde._train import polish

DIM = 60


def test_parts_fit_into_memory():
    assert fitting(2_048, 20) == 2_048
    assert fitting(2_048, 1_000_000) == 33
    assert fitting(64, 1_000_000, least=50) == 50
    assert fitting(10, 10**9) == 1
    assert chunk_size(as_schedule(1_000), 10, 1_000_000) == (-(-1_000 // 31), False)
    with jax.enable_x64(True):
        points = np.random.default_rng(0).standard_normal((7, 3))
        parts = jax.jit(lambda p: few_at_a_time(np.sum, p, 6))(points)  # pyright: ignore
    np.testing.assert_allclose(parts, points.sum(axis=1))
    assert _AT_ONCE // 1_000_000 == 4


@pytest.mark.parametrize("name", ["two_body_poisson", "two_body_allen_cahn"])
def test_the_output_layer_from_points_that_are_not_kept(name, monkeypatch):
    """`L f` tells the directions; the equation that is not linear is linearised a few times."""
    monkeypatch.setattr(stages, "MANY", DIM - 1)
    monkeypatch.setattr(polish, "MANY", DIM - 1)
    monkeypatch.setattr(polish, "_TOGETHER", DIM * 100)
    problem = getattr(zoo, name)(DIM)
    solution = qpde.solve(problem, progress=False)
    assert solution.rule == "stages"
    assert solution.stages[-1].name == "output layer"
    assert solution.score.skill < 0.5


def test_points_drawn_anew_do_as_well_as_points_kept(monkeypatch):
    problem = zoo.two_body_poisson(DIM)
    options = {"network": Shallow(16, aligned=1.0), "rule": QLearning(), "steps": 0}
    start = qpde.solve(problem, progress=False, **options)
    kept = qpde.polish(start)
    monkeypatch.setattr(polish, "MANY", DIM - 1)
    monkeypatch.setattr(polish, "_TOGETHER", DIM * 100)
    drawn = qpde.polish(start)
    # Other points of the same law, 1,000 of them for 16 coefficients.
    assert drawn.score.loss == pytest.approx(kept.score.loss, rel=0.05)
    assert drawn.score.loss < 0.9 * start.score.loss
