"""A solution is a function: types, shapes, bits, score."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import qpde
from qpde import Ball, Interval, Problem, Shallow, zoo
from qpde._problem import score as _score

QUICK: dict[str, Any] = {"network": Shallow(16), "batch": 128, "steps": 50, "progress": False}


@pytest.fixture(scope="module")
def solution(solved):
    return solved("ball")


@pytest.fixture(scope="module")
def double(solved):
    return solved("ball in float64")


def solve(problem, **options):
    return qpde.solve(problem, **(QUICK | options))


def points(n, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (n, 3))


def test_shapes_and_types(solution, double):
    x = points(7)
    assert solution(x).shape == solution.laplacian(x).shape == solution.residual(x).shape == (7,)
    assert solution.grad(x).shape == (7, 3)
    assert solution(x[0]).shape == ()
    assert solution.grad(x[0]).shape == (3,)
    assert isinstance(solution(x), np.ndarray)
    assert solution(x).dtype == np.float32
    assert double(x).dtype == np.float64
    assert solution(x.tolist()).shape == (7,)
    assert solution(x[:0]).shape == (0,)
    assert isinstance(solution(jnp.asarray(x)), jax.Array)
    assert double(jnp.asarray(x)).dtype == jnp.float64


def test_derivatives_agree_with_finite_differences(double):
    x, h = points(5), 1e-4
    steps = h * np.eye(3)
    up, down = (np.stack([double(x + s * e) for e in steps], axis=1) for s in (1, -1))
    np.testing.assert_allclose(double.grad(x), (up - down) / (2 * h), atol=1e-7)
    laplacian = ((up + down - 2 * double(x)[:, None]) / h**2).sum(axis=1)
    np.testing.assert_allclose(double.laplacian(x), laplacian, atol=1e-6)
    expected = 1 - 0.2 * double(x) + 0.5 * double.laplacian(x)
    np.testing.assert_allclose(double.residual(x), expected, atol=1e-12)


def test_the_residual_has_the_users_sign():
    problem = Problem(Ball(3), lambda x, u: -u.laplacian - 2 + u.value)
    solution = solve(problem, precision="float64")
    x = points(4)
    expected = -solution.laplacian(x) - 2 + solution(x)
    np.testing.assert_allclose(solution.residual(x), expected, atol=1e-12)


def test_boundary_values_are_exact():
    problem = Problem(Ball(3), lambda x, u: u.laplacian - u.value, boundary=lambda x: 1 + x[0])
    solution = solve(problem)
    edge = np.asarray(problem.domain.sample_boundary(jr.key(0), 200))
    np.testing.assert_allclose(solution(edge), 1 + edge[:, 0], atol=3e-6)


def test_a_solution_can_be_differentiated_and_compiled(solution, double):
    x = jnp.asarray(points(4), jnp.float32)
    grad = jax.jit(jax.vmap(jax.grad(solution)))(x)
    np.testing.assert_allclose(grad, solution.grad(np.asarray(x)), atol=1e-5)
    with pytest.raises(ValueError, match=r"with jax.enable_x64\(True\)"):
        jax.grad(double)(x[0])
    with jax.enable_x64(True):
        grad = jax.grad(double)(jnp.asarray(points(4))[0])
    np.testing.assert_allclose(grad, double.grad(points(4)[0]), atol=1e-12)


def test_a_loop_around_a_solution_leaves_it_intact(solved):
    """JAX remembers NumPy numbers that a loop closed over, in the mode of the loop (see `_precision`)."""
    used, other = solved("ball"), solved("ball")
    start = jnp.full(3, 0.1)
    looped = jax.lax.fori_loop(0, 3, lambda i, x: x + used(x), start)
    expected = np.asarray(start)
    for _ in range(3):
        expected = expected + other(expected)
    np.testing.assert_allclose(looped, expected, rtol=1e-5)
    x = points(50)
    for name in ("__call__", "grad", "laplacian", "residual"):
        np.testing.assert_array_equal(getattr(used, name)(x), getattr(other, name)(x))
    assert used.score == other.score


def test_bits_do_not_depend_on_how_many_points_are_asked(solution):
    x = points(2_500)
    whole = solution(x)
    np.testing.assert_array_equal(np.array([solution(p) for p in x[:5]]), whole[:5])
    np.testing.assert_array_equal(solution(x[1_000:1_100]), whole[1_000:1_100])
    np.testing.assert_array_equal(solution(x[::-1])[::-1], whole)


@pytest.mark.parametrize("shape", [(2,), (5, 2), (3, 3, 3), ()])
def test_points_of_the_wrong_shape(solution, shape):
    with pytest.raises(ValueError, match=r"have shape \(3,\) or \(n, 3\), got"):
        solution(np.zeros(shape))


def test_points_in_one_dimension_need_two_axes():
    problem = Problem(Interval(0.0, 1.0), lambda x, u: u.laplacian + 1)
    solution = solve(problem, steps=0)
    with pytest.raises(ValueError, match=r"In one dimension write points\[:, None\]"):
        solution(np.linspace(0, 1, 5))
    assert solution(np.linspace(0, 1, 5)[:, None]).shape == (5,)


def test_nan_and_outside_points(solution):
    x = points(6)
    x[2, 1] = np.nan
    with pytest.raises(ValueError, match="1 of the points contain NaN"):
        solution(x)
    x[2] = 3.0
    with pytest.warns(UserWarning, match=r"1 of 6 points lie outside Ball\(3\)"):
        assert np.all(np.isfinite(solution(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution(np.array([[1.0, 0.0, 0.0]]))  # on the boundary


def test_score_against_quadrature_by_hand(solution):
    """Radial integrals in d = 3 by Gauss-Legendre; Monte Carlo with 1e5 points, 5 sigma."""
    problem, score = solution.problem, solution.score
    r, w = np.polynomial.legendre.leggauss(60)
    r, w = 0.5 * (r + 1), 1.5 * w * (0.5 * (r + 1)) ** 2  # density 3 r^2 on (0, 1)
    u = np.asarray(jax.vmap(problem.exact)(jnp.asarray(r[:, None] * np.eye(3)[0])))
    eta = 1 - r * r
    constant = np.dot(w, eta * u) / np.dot(w, eta * eta)
    trivial = np.sqrt(np.dot(w, (constant * eta - u) ** 2) / np.dot(w, u * u))
    assert score.relative_l2_error / score.skill == pytest.approx(trivial, rel=0.03)
    x = points(20_000, seed=3) * 2
    x = x[np.linalg.norm(x, axis=1) < 1]
    exact = np.asarray(jax.vmap(problem.exact)(jnp.asarray(x)))
    error = np.sqrt(np.mean((solution(x) - exact) ** 2) / np.mean(exact**2))
    assert score.relative_l2_error == pytest.approx(error, rel=0.1)
    assert score.loss == pytest.approx(np.mean(solution.residual(x) ** 2), rel=0.2)
    margin = np.linalg.norm(x, axis=1) <= 0.99
    largest = np.max(np.abs(solution(x) - exact)[margin] / exact[margin])
    assert score.max_relative_error == pytest.approx(largest, rel=0.3)


def test_very_high_dimension_prints(monkeypatch):
    """In 3,000 dimensions no random point is 1 % away from the sphere."""
    monkeypatch.setattr(_score, "_POINTS", 1_024)
    solution = solve(zoo.survival(3_000), steps=0, network=Shallow(4))
    assert solution.score.max_relative_error is None
    assert "relative L2 error" in str(solution)


def test_no_error_without_an_exact_solution():
    problem = Problem(Ball(3), lambda x, u: u.laplacian + 1)
    score = solve(problem, steps=0).score
    assert score.relative_l2_error is None
    assert score.skill is None
    assert np.isfinite(score.loss)


def test_skill_is_null_where_one_constant_is_exact():
    problem = Problem(
        Ball(3), lambda x, u: u.laplacian + 6, exact=lambda x: 1 - jnp.sum(x * x), name="parabola"
    )
    solution = solve(problem)
    assert solution.score.skill is None
    assert "parabola" in repr(solution)


def test_summary_reads_well(solution):
    text = str(solution)
    for part in ("Ball(3)", "300 steps", "seed 0", "relative L2 error", "skill", "All steps were"):
        assert part in text
