"""Accuracy at points: values by walks, with a network that is trained as far as they need it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import Status
from qpde._solve import pointwise

pytestmark = pytest.mark.trains


def exact(x):
    return jnp.exp(x[0]) * jnp.sin(x[1])  # harmonic


def smooth():
    return qpde.Problem(
        qpde.Ball(3),
        lambda x, u: u.laplacian - u.value + exact(x),
        boundary=lambda x: exact(x),
        exact=exact,
    )


POINTS = np.random.default_rng(1).uniform(-0.5, 0.5, (8, 3))
TRUTH = np.exp(POINTS[:, 0]) * np.sin(POINTS[:, 1])


def test_a_loose_accuracy_needs_no_network():
    """Half-widths are as asked; all eight miss with a chance below 1e-10."""
    solution = qpde.solve(smooth(), accuracy=0.1, at=POINTS, progress=False)
    estimate = solution.estimate
    assert solution.status is Status.ACCURATE
    assert solution.steps == 0
    assert not estimate.corrected
    half = 0.5 * (estimate.high - estimate.low)
    assert np.all(half <= 0.1 * np.sqrt(np.mean(estimate.value**2)) * (1 + 1e-9))
    assert np.any((estimate.low <= TRUTH) & (estimate.high >= TRUTH))
    assert repr(solution).startswith("Accurate at the points, asked 0.1: ")
    assert solution.verdict is None


def test_a_finer_one_trains_first(monkeypatch):
    """Where walks alone are made dear, a stage is trained, and its network makes them cheap."""
    monkeypatch.setattr(pointwise, "_FREE", 3e5)
    solution = qpde.solve(smooth(), accuracy=1e-3, at=POINTS, progress=False)
    estimate = solution.estimate
    assert solution.status is Status.ACCURATE
    assert estimate.reached
    assert estimate.corrected
    assert solution.steps > 0
    assert solution.stages[-1].name == "walks"
    # Six standard deviations of a normal law are 3 half-widths: none of 8 is off by that, but once in 1e8.
    half = 0.5 * (estimate.high - estimate.low)
    assert np.all(np.abs(estimate.value - TRUTH) <= 3.0 * half)
    assert solution.accuracy.bound <= 1e-3 * (1 + 1e-9)


def test_what_is_out_of_reach_is_said(monkeypatch):
    """Partial values with their intervals, the limit and a forecast; never ACCURATE."""
    monkeypatch.setattr(pointwise, "_FREE", 1.0)
    monkeypatch.setattr(pointwise, "_GROWS", 1.0)
    solution = qpde.solve(smooth(), accuracy=1e-9, at=POINTS, budget=0.01, progress=False)
    assert solution.status is not Status.ACCURATE
    assert not solution.accuracy.met
    assert "steps more, some" in solution.accuracy.limit
    assert np.all(np.isfinite(solution.estimate.value))
    assert solution.accuracy.bound > 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": POINTS}, "give accuracy= too"),
        ({"at": POINTS, "accuracy": 1e-2, "norm": "l2"}, "give one of them"),
        ({"at": POINTS[:, :2], "accuracy": 1e-2}, "shape"),
        ({"at": POINTS[:0], "accuracy": 1e-2}, "at least one point"),
        ({"at": POINTS, "accuracy": 2.0}, "below 1"),
    ],
)
def test_wrong_use(options, message):
    with pytest.raises(ValueError, match=message):
        qpde.solve(smooth(), progress=False, **options)


def test_nonlinear_equations_are_refused():
    problem = qpde.Problem(qpde.Ball(3), lambda x, u: u.laplacian - u.value**3 + 1)
    with pytest.raises(ValueError, match="the equation is not linear"):
        qpde.solve(problem, accuracy=1e-2, at=POINTS, progress=False)


def test_the_same_seed_gives_the_same_values():
    with jax.enable_x64(False):
        found = [
            qpde.solve(smooth(), accuracy=0.1, at=POINTS, progress=False).estimate.value
            for _ in range(2)
        ]
    np.testing.assert_array_equal(*found)
