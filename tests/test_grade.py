"""Coordinates that are finer where diffusion is small, and what is built on them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde._boundary.rounded import Rounded
from qpde._domain.grade import Grade
from qpde._equation.grade import grade_of
from qpde._field.base import Autodiff
from qpde._field.form import Factor, Identity, Matrix
from qpde._network.base import Frozen, trainable
from qpde._network.ridge import RidgeField
from qpde._precision import x64

MARKET = qpde.Box([0.2, 1.0], [3.0, 2.5])


def prices(x, u):
    return u.generator(0.05 * x, jnp.diag(jnp.array([0.3, 0.4]) * x)) - 0.05 * u.value


def test_logarithms_for_prices():
    """Of a diffusion `(volatility x)^2 / 2` they are logarithms, and the diffusion in them is constant."""
    with x64():
        grade: Any = grade_of(prices, MARKET)
        points: Any = np.asarray(MARKET.sample(jax.random.key(0), 50))
        lower, upper = MARKET.enclosing_box
        expected = np.log(points / lower) / np.log(upper / lower)
        np.testing.assert_allclose(jax.vmap(grade)(points), expected, atol=1e-12)
        roots = jax.vmap(grade.slope)(points) * points
        np.testing.assert_allclose(roots, np.broadcast_to(roots[0], roots.shape), rtol=1e-12)


@pytest.mark.parametrize("ratio", [[5.0, 0.2], [1.0, 3.0], [1e9, 1e-9]])
def test_derivatives_of_a_grade(ratio):
    grade = Grade(np.array([0.2, 1.0]), np.array([3.0, 2.0]), np.array(ratio))
    with x64():
        x = jnp.array([0.7, 1.8])
        slopes = jax.jacfwd(grade)(x)
        np.testing.assert_allclose(slopes, np.diag(grade.slope(x)), rtol=1e-10, atol=1e-14)
        bends = np.diag(jax.jacfwd(grade.slope)(x))
        np.testing.assert_allclose(grade.bend(x), bends, rtol=1e-9, atol=1e-12)
        ends = jnp.stack([grade(jnp.array([0.2, 1.0])), grade(jnp.array([3.0, 2.0]))])
        np.testing.assert_allclose(ends, [[0, 0], [1, 1]], atol=1e-12)


@pytest.mark.parametrize(
    "equation",
    [
        lambda x, u: jnp.maximum(prices(x, u), 1.0 - u.value),
        lambda x, u: jnp.minimum(-prices(x, u), u.value - 1.0),
        lambda x, u: jnp.minimum(prices(x, u), 1.0 - u.value),
        lambda x, u: -prices(x, u) + u.value**3,
    ],
)
def test_the_grade_of_a_choice_is_that_of_what_diffuses(equation):
    with x64():
        one, other = grade_of(prices, MARKET), grade_of(equation, MARKET)
    np.testing.assert_allclose(one.ratio, other.ratio, rtol=1e-6)


def test_what_varies_little_is_not_graded():
    with x64():
        assert grade_of(lambda x, u: u.laplacian - u.value, MARKET) is None
        assert grade_of(prices, qpde.Ball(2)) is None
        assert grade_of(prices, qpde.Box([1.0] * 2, [1.5] * 2)) is None
    assert qpde.Problem(MARKET, prices).grade is not None


@pytest.mark.parametrize("quadratic", [True, False])
def test_derivatives_of_a_graded_ridge_network(quadratic):
    """Closed forms against automatic differentiation; the grade is not trained."""
    rng = np.random.default_rng(1)
    with x64():
        grade: Any = grade_of(prices, MARKET)
        field = RidgeField.empty(MARKET, 6, Frozen(np.eye(2)), quadratic=quadratic, grade=grade)
        field = field.with_units(rng.standard_normal((2, 6)), rng.standard_normal(6))
        params, rest = trainable(field)
        assert all(
            leaf.shape != (2,) or leaf is field.polynomial.slope for leaf in jax.tree.leaves(params)
        )
        params = jax.tree.map(lambda p: jnp.asarray(rng.standard_normal(p.shape)), params)
        field = eqx.combine(params, rest)
        plain, x = Autodiff(field.value), jnp.array([0.4, 1.7])
        np.testing.assert_allclose(field.grad(x), plain.grad(x), rtol=1e-10)
        np.testing.assert_allclose(field.hessian(x), plain.hessian(x), rtol=1e-9)
        a = rng.standard_normal((2, 2))
        for form in (Identity(), Factor(jnp.asarray(a)), Matrix(jnp.asarray(a + a.T))):
            assert field.trace(x, form) == pytest.approx(float(plain.trace(x, form)), rel=1e-9)


def test_kinks_are_rounded_in_graded_coordinates():
    """Boundary values keep their bound; widths grow quickly away from a face with little diffusion."""
    market = qpde.Box([0.2] * 2, [3.0] * 2)
    put = lambda x: jnp.maximum(1.0 - jnp.mean(x), 0.0)  # noqa: E731
    problem: Any = qpde.Problem(market, prices, put)
    own: Any = qpde.Problem(market, prices, qpde.lift(put, market))
    assert isinstance(problem.boundary.field, Rounded)
    assert problem.boundary.field.grade is not None
    assert own.boundary.field.grade is None
    with x64():
        edge = market.sample_boundary(jax.random.key(0), 4_000)
        off = jax.vmap(problem.boundary.value)(edge) - jax.vmap(put)(edge)
        assert float(jnp.max(jnp.abs(off))) <= problem.miss
        # There s = (0.150, 0.811), u = (0.036, 0.571); the widths 0.01 + 2 t (1 - t) along the axes
        # are 0.265 and 0.316, or 0.079 and 0.500, and (sum w^-4)^(-1/4) of them 0.240 and 0.079.
        widths = [one.boundary.field.width(jnp.array([0.3, 1.8])) for one in (problem, own)]
        np.testing.assert_allclose(widths, [0.240, 0.079], rtol=0.01)


def test_a_graded_network_in_a_file(tmp_path):
    """A solution with units along logarithms comes back with the same bits, and the grade with it."""
    problem = qpde.Problem(MARKET, prices, lambda x: x[0])
    solution = qpde.solve(
        problem,
        network=qpde.Ridge(20, ratio=[15.0, 2.0]),
        rule=qpde.LeastDeviations(),
        batch=100,
        steps=2,
        progress=False,
    )
    qpde.save(solution, tmp_path / "graded.safetensors")
    loaded: Any = qpde.load(tmp_path / "graded.safetensors", problem=problem)
    points = np.random.default_rng(0).uniform([0.2, 1.0], [3.0, 2.0], (50, 2))
    np.testing.assert_array_equal(loaded(points), solution(points))
    np.testing.assert_array_equal(loaded.trial.network.frame.grade.ratio, [15.0, 2.0])
    # `x_1` itself is the solution here, because the drift is the rate: nothing is to be learnt.
    np.testing.assert_allclose(solution(points), points[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("domain", "ratio"), [(MARKET, [2.0]), (MARKET, [1.0, -1.0]), (qpde.Ball(2), [2.0, 2.0])]
)
def test_bad_ratios(domain, ratio):
    with pytest.raises(ValueError, match="ratio"):
        qpde.Ridge(10, ratio=ratio).build(domain, key=jax.random.key(0))
