"""Windows of time: values, and the bound that is carried over, on a problem with a known solution."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde._solve.carried import _mean_square


def wave(x, t):
    return (1 + 0.5 * jnp.sin(2 * t)) * jnp.sin(jnp.pi * x[0]) + 0.1 * t * x[0]


def equation(x, t, u):
    """`u_t = 0.1 u_xx + u + r`, which grows in `u`: errors do not simply add up."""
    change = jnp.cos(2 * t) * jnp.sin(jnp.pi * x[0]) + 0.1 * x[0]
    bent = -(jnp.pi**2) * (wave(x, t) - 0.1 * t * x[0])
    return 0.1 * u.laplacian + u.value - u.dt + change - 0.1 * bent - wave(x, t)


def problem(**more):
    given = {"time": 3.0, "initial": lambda x: wave(x, 0.0), "exact": wave} | more
    return qpde.Problem(qpde.Interval(0.0, 1.0), equation, lambda x, t: 0.1 * t * x[0], **given)


@pytest.fixture(scope="module")
def solved():
    network = qpde.Shallow(16, polynomial=True, beta=0.5, amplitude=0.25)
    options = {"rule": qpde.GaussNewton(), "steps": 4, "batch": 100, "progress": False}
    return qpde.solve_windows(problem(), 3, network=network, **options)


def errors(solution, low, high):
    rng = np.random.default_rng(0)
    x, t = rng.random((4_000, 1)), low + (high - low) * rng.random(4_000)
    return solution(x, t) - np.array(wave(x.T, t))


@pytest.mark.slow
def test_windows_are_one_function(solved):
    assert len(solved.windows) == 3
    assert solved.length == 1.0
    x = np.linspace(0.1, 0.9, 5)[:, None]
    # Where windows meet they have the same values, by construction.
    np.testing.assert_allclose(solved(x, 1.0), solved(x, 1.0 + 1e-9), atol=1e-6)
    np.testing.assert_array_equal(solved.at(2.5)(x), solved(x, 2.5))
    assert solved(x[0], 2.5).shape == ()
    step = 1e-5
    slope = (solved(x + step, 1.7) - solved(x - step, 1.7)) / (2 * step)
    np.testing.assert_allclose(solved.grad(x, 1.7)[:, 0], slope, atol=1e-7)
    in_time = (solved(x, 1.7 + step) - solved(x, 1.7 - step)) / (2 * step)
    np.testing.assert_allclose(solved.dt(x, 1.7), in_time, atol=1e-7)
    edge = np.array([[0.0], [1.0]])
    np.testing.assert_allclose(solved(edge, 2.3), [0.0, 0.23], atol=1e-12)
    assert "to t = 2:" in repr(solved)
    assert np.sqrt(np.mean(errors(solved, 0.0, 3.0) ** 2)) < 0.1


@pytest.mark.slow
def test_the_bound_is_carried_over(solved):
    last = qpde.certify_windows(solved)
    error = np.sqrt(np.mean(errors(solved, 3.0, 3.0) ** 2))
    assert error <= last.bound < 100 * error
    assert last.norm is qpde.Norm.LAST
    over = qpde.certify_windows(solved, norm="l2")
    error = np.sqrt(np.mean(errors(solved, 0.0, 3.0) ** 2))
    assert error <= over.bound < 100 * error
    assert last.kind is over.kind is qpde.Kind.STATISTICAL
    # A first window that is off carries that to the end, grown by e^(-gamma_F h / k) in each later window.
    first = solved.windows[0]
    trial = eqx.tree_at(lambda s: s.network.c, first.trial, np.zeros(16))
    off = dataclasses.replace(first, trial=trial)
    worse = dataclasses.replace(solved, windows=(off, *solved.windows[1:]))
    spatial = qpde.monotonicity(first.problem).spatial
    assert spatial is not None
    assert spatial == pytest.approx(0.1 * np.pi**2 - 1)
    more = qpde.certify(off, confidence=1 - 0.01 / 3, norm="last").bound
    more -= qpde.certify(first, confidence=1 - 0.01 / 3, norm="last").bound
    grown = np.exp(-2 * spatial) * more
    assert qpde.certify_windows(worse).bound == pytest.approx(last.bound + grown, rel=1e-9)


def test_the_mean_of_an_exponential():
    s = (np.arange(100_000) + 0.5) / 100_000
    for x in (-2.0, 0.0, 3.0):
        assert _mean_square(x) == pytest.approx(np.mean(np.exp(-x * s)), rel=1e-8)


def test_other_problems_are_refused():
    for one in (qpde.zoo.survival(2), qpde.zoo.absorbed_heat(2), qpde.zoo.hjb_quadratic(2)):
        with pytest.raises(ValueError, match="Windows are for evolution problems"):
            qpde.solve_windows(one, 3)
    with pytest.raises(ValueError, match="solve_windows"):
        qpde.certify_windows(qpde.zoo.survival(2))
