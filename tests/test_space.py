"""The whole space: the law of the points, the data carried inside, and the bound at the starting point."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import expm

import qpde
from qpde import zoo
from qpde._boundary.smear import cubature
from qpde._domain.space import Paths
from qpde._field.base import Autodiff
from qpde._field.form import Factor, Spatial
from qpde._field.jet import Jet
from qpde._field.radial import OfSquare


def bell(x):
    return 1 / (2 + 0.4 * jnp.sum(x * x))


def correlated(backward=True):
    """A diffusion with drift and correlation, and a reaction."""
    a, b = np.array([[1.0, 0.5], [0.5, 2.0]]), np.array([0.3, -1.0])
    sign = 1.0 if backward else -1.0

    def equation(x, t, u):
        return sign * 2 * u.dt + u.trace(a) + u.along(b) - u.value

    data: Any = {"terminal" if backward else "initial": bell}
    return qpde.Problem(qpde.Space(2, start=[0.5, 0.0]), equation, time=0.6, **data)


@pytest.mark.parametrize("backward", [True, False])
def test_points_follow_the_diffusion(backward):
    with jax.enable_x64(True):
        paths = correlated(backward).domain
        assert isinstance(paths, Paths)
        count = 40_000
        z = np.asarray(paths.sample(jax.random.key(0), count))
        run = z[:, 2] if backward else 0.6 - z[:, 2]
        # dX = b/2 dr + sqrt(2 A/2) dW from (0.5, 0), because the factor of u.dt is 2.
        away = z[:, :2] - [0.5, 0.0] - run[:, None] * [0.15, -0.5]
        # Four standard errors, 6e-5 of false alarms each.
        assert np.all(np.abs(away.mean(axis=0)) < 4 * away.std(axis=0) / np.sqrt(count))
        scaled = away / np.sqrt(run)[:, None]
        for i, j, wanted in ((0, 0, 1.0), (0, 1, 0.5), (1, 1, 2.0)):
            products = scaled[:, i] * scaled[:, j]
            assert abs(products.mean() - wanted) < 4 * products.std() / np.sqrt(count)
        edge = np.asarray(paths.sample_boundary(jax.random.key(1), 100))
        assert np.all(edge[:, 2] == (0.6 if backward else 0.0))
        np.testing.assert_allclose(jax.vmap(paths.eta.value)(jnp.asarray(edge)), 0, atol=1e-15)
        assert float(paths.eta.value(jnp.asarray(paths.start))) == 1.0


@pytest.mark.parametrize("dim", [1, 2, 7])
def test_the_cubature_is_exact_for_cubic_polynomials_and_for_the_radius(dim):
    points, weights = cubature(dim)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(weights @ points, 0, atol=1e-12)
    np.testing.assert_allclose((weights[:, None] * points).T @ points, np.eye(dim), atol=1e-12)
    third = np.einsum("k,ki,kj,kl->ijl", weights, points, points, points)
    np.testing.assert_allclose(third, 0, atol=1e-12)
    squares = np.sum(points**2, axis=1)
    assert weights @ squares**2 == pytest.approx(dim * (dim + 2))
    assert weights @ squares**3 == pytest.approx(dim * (dim + 2) * (dim + 4))


@pytest.mark.daily("False")
@pytest.mark.parametrize("backward", [True, False])
def test_the_data_carried_inside_have_the_derivatives_of_their_values(backward):
    with jax.enable_x64(True):
        problem = correlated(backward)
        field = problem.boundary
        slow, z = Autodiff(field.value), jnp.array([0.7, -0.2, 0.25])
        np.testing.assert_allclose(field.grad(z), slow.grad(z), rtol=1e-9)
        np.testing.assert_allclose(field.hessian(z), slow.hessian(z), rtol=1e-8, atol=1e-10)
        for form in (Spatial(), Factor(jnp.array([[1.0], [0.4], [0.0]]))):
            np.testing.assert_allclose(field.trace(z, form), slow.trace(z, form), rtol=1e-9)
        at_data = z.at[2].set(0.6 if backward else 0.0)
        assert float(field.value(at_data)) == pytest.approx(float(bell(z[:2])), rel=1e-12)


def test_the_data_are_carried_by_diffusion_and_reaction():
    """On a line, `u_t + u_xx / 2 - u / 3 = 0`: `e^(-s/3) E g(x + sqrt(s) N)`; the rest is small."""
    with jax.enable_x64(True):
        problem = qpde.Problem(
            qpde.Space(1),
            lambda x, t, u: u.dt + 0.5 * u.laplacian - u.value / 3,
            time=0.4,
            terminal=lambda x: jnp.cos(x[0]),
        )
        found = float(problem.boundary.value(jnp.array([0.3, 0.0])))
        assert found == pytest.approx(np.exp(-0.4 / 3 - 0.2) * np.cos(0.3), rel=1e-4)
        residual = problem.equation(z := jnp.array([0.3, 0.1]), Jet(problem.boundary.at(z), z))
        assert abs(float(residual)) < 1e-3


def test_functions_of_the_square_have_their_derivatives():
    with jax.enable_x64(True):
        field = OfSquare(lambda s: jnp.sin(s) / (1 + s), np.array([0.1, 0.2]))
        slow, x = Autodiff(field.value), jnp.array([0.7, -0.3])
        np.testing.assert_allclose(field.grad(x), slow.grad(x), rtol=1e-12)
        np.testing.assert_allclose(field.hessian(x), slow.hessian(x), rtol=1e-12)
        form = Factor(jnp.array([[1.0, 0.2], [0.3, 2.0]]))
        np.testing.assert_allclose(field.trace(x, form), slow.trace(x, form), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boundary": 1.0}, "has no boundary"),
        ({"equation": lambda x, t, u: u.laplacian - u.dt}, "wrong direction of time"),
        ({"time": None, "terminal": None}, "no uniform points"),
        ({"terminal": lambda x: jnp.where(x[0] * x[1] > 0, 1.0, 0.0)}, "jumps"),
    ],
)
def test_wrong_problems_are_refused(change, message):
    given: Any = {
        "domain": qpde.Space(2),
        "equation": lambda x, t, u: u.dt + u.laplacian,
        "time": 1.0,
        "terminal": bell,
    } | change
    if change.get("time", 1.0) is None:
        given["equation"] = lambda x, u: u.laplacian
    with pytest.raises(ValueError, match=message):
        qpde.Problem(**given)


@pytest.fixture(scope="module")
def solved():
    """A linear equation in a correlated diffusion, after three steps."""
    network = qpde.Shallow(16, polynomial=True, beta=0.5, amplitude=0.25)
    problem = correlated()
    return qpde.solve(
        problem, network=network, rule=qpde.GaussNewton(), steps=3, batch=100, progress=False
    )


def true_value():
    """`e^(-T/2) E g(X_T)` by quadrature of a Gaussian law in two dimensions."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    factor = np.linalg.cholesky(0.6 * np.array([[1.0, 0.5], [0.5, 2.0]]))
    n = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    x = [0.5, 0.0] + 0.6 * np.array([0.15, -0.5]) + n @ factor.T
    values = 1 / (2 + 0.4 * np.sum(x * x, axis=1))
    return np.exp(-0.3) * float(np.kron(weights, weights) @ values)


def test_the_bound_at_the_start_is_above_the_error(solved):
    found = qpde.certify(solved)
    error = abs(float(solved(solved.problem.domain.start)) - true_value())
    assert found.norm is qpde.Norm.VALUE
    assert found.kind is qpde.Kind.ASSUMING
    assert error <= found.bound < 1e-2
    # A network that adds 0.1 s / T at the start is off by that.
    with jax.enable_x64(True):
        more = solved.trial.network.polynomial.constant + 0.1
        trial = eqx.tree_at(lambda t: t.network.polynomial.constant, solved.trial, more)
    worse = dataclasses.replace(solved, trial=trial)
    assert qpde.certify(worse).bound >= 0.1 - found.bound
    with pytest.raises(ValueError, match="value"):
        qpde.certify(solved, norm="l2")
    constant = qpde.monotonicity(solved.problem)
    assert constant.constant is None
    assert "whole space" in constant.reason


@pytest.mark.slow
def test_the_bound_knows_how_an_equation_grows(solved):
    """The factor is `(1/k) int_0^T e^(K r / k) dr` at most, here `K = -1`, `k = 2`."""
    found = qpde.certify(solved)
    exact = quad(lambda r: np.exp(-r / 2) / 2, 0, 0.6)[0]
    assert found.factor == pytest.approx(0.3)
    assert exact <= found.factor
    with jax.enable_x64(True):
        z = np.asarray(solved.problem.domain.sample(jax.random.key(9), 50_000))
        residual = np.abs(solved.residual(z)) * np.exp(-z[:, 2] / 2)
    # Within five standard errors of the mean itself, plus what the bound adds for its confidence.
    spread = residual.std() / np.sqrt(50_000)
    assert residual.mean() - 5 * spread <= found.residual
    assert found.residual <= residual.mean() + 5 * spread + 2.1 * residual.std() / 32


def test_nonlinear_derivatives_have_no_bound():
    problem = zoo.hjb_quadratic(2)
    network = qpde.Shallow(8, polynomial=True, beta=0.5, amplitude=0.3)
    solution = qpde.solve(
        problem, network=network, rule=qpde.GaussNewton(), steps=2, batch=50, progress=False
    )
    with pytest.raises(ValueError, match="enter nonlinearly"):
        qpde.certify(solution)


def radial_value(dim, reaction, time=0.3):
    """The value at the origin by finite differences in the radius, an exponential integrator in time."""
    count, reach = 600, 12.0
    h = reach / count
    r = (np.arange(count) + 0.5) * h
    lap = np.zeros((count, count))
    for i in range(count):
        up, down = (r[i] + h / 2) ** (dim - 1), (r[i] - h / 2) ** (dim - 1)
        volume = ((r[i] + h / 2) ** dim - max(r[i] - h / 2, 0.0) ** dim) / dim
        if i + 1 < count:
            lap[i, i + 1], lap[i, i] = up / h / volume, lap[i, i] - up / h / volume
        if i > 0:
            lap[i, i - 1], lap[i, i] = down / h / volume, lap[i, i] - down / h / volume
    steps = 300
    u, half = 1 / (2 + 0.4 * r * r), expm(0.5 * time / steps * lap)
    for _ in range(steps):
        v = half @ u
        middle = v + 0.5 * time / steps * reaction(v)
        u = half @ (v + time / steps * reaction(middle))
    return float((9 * u[0] - u[1]) / 8)  # even in the radius


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reaction"),
    [
        ("allen_cahn_in_time", lambda y: y - y**3),
        ("semilinear_heat", lambda y: (1 - y * y) / (1 + y * y)),
        ("sine_gordon_in_time", np.sin),
    ],
)
def test_values_of_the_zoo_by_finite_differences(name, reaction):
    assert radial_value(10, reaction) == pytest.approx(zoo.VALUES[name][10], rel=2e-4)


@pytest.mark.parametrize("name", sorted(zoo.VALUES))
def test_the_carried_data_alone_come_near(name):
    """Without training: the flow of the reaction from the mean of the data, in 50 dimensions."""
    with jax.enable_x64(True):
        problem: Any = zoo.CATALOGUE[name].build(50)
        assert problem.recipe is not None
        assert isinstance(problem.domain, Paths)
        found = float(problem.boundary.value(jnp.asarray(problem.domain.start)))
    # The quadratic gradient of the last one is no part of what carries the data.
    off = 1e-2 if name == "hjb_quadratic" else 3e-3
    assert found == pytest.approx(zoo.VALUES[name][50], rel=off)
