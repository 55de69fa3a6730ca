"""Equations of fourth order: derivatives, conditions, constants, solutions."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import zoo
from qpde._domain.squared import Cosines, Moved, Sines, Squared, SquaredSphere
from qpde._field.form import Identity
from qpde._field.jet import Jet, Product
from qpde._network.moved import MovedShallowAt
from qpde._problem.trial import Trial

WIDE: dict[str, Any] = {
    "network": qpde.Shallow(60, polynomial=True, beta=0.5, scale=2.0),
    "progress": False,
}


def laplacian(function):
    return jax.jit(lambda x: jnp.trace(jax.hessian(function)(x)))


def fields():
    """Fields with closed forms, in three dimensions."""
    network = qpde.Shallow(7, polynomial=True).build(qpde.Ball(3), key=jax.random.key(0))
    mlp = qpde.MLP([5, 4]).build(qpde.Ball(3), key=jax.random.key(1))
    box = qpde.Box([0.0, -1.0, 0.5], [1.0, 0.5, 2.0])
    lower, upper = box.enclosing_box
    sides = lower, upper - lower
    return {
        "shallow": network,
        "mlp": mlp,
        "sphere": SquaredSphere(np.array([0.1, 0.0, -0.2]), np.asarray(1.5)),
        "box": Squared(box.eta),
        "sines": Sines(*sides),
        "moved": Moved(network, Cosines(*sides)),
    }


@pytest.mark.daily("shallow", "sphere", "moved")
@pytest.mark.parametrize("name", ["shallow", "mlp", "sphere", "box", "sines", "moved"])
def test_derivatives_of_fourth_order(name):
    """Against the Laplacian of the Laplacian by automatic differentiation of the value."""
    with jax.enable_x64(True):
        field, x = fields()[name], jnp.asarray([0.3, -0.2, 0.9])
        lap = laplacian(field.value)
        np.testing.assert_allclose(field.trace(x, Identity()), lap(x), rtol=1e-9)
        hessian, grad = jax.jit(jax.hessian(field.value)), jax.jit(jax.grad(field.value))
        np.testing.assert_allclose(field.hessian(x), hessian(x), atol=1e-9)
        np.testing.assert_allclose(field.grad(x), grad(x), rtol=1e-9)
        np.testing.assert_allclose(field.laplacian_grad(x), jax.jit(jax.grad(lap))(x), rtol=1e-8)
        np.testing.assert_allclose(field.bilaplacian(x), laplacian(lap)(x), rtol=1e-8)
        parts = sum(scale * form.contract(jnp.eye(3)) for scale, form in field.hessian_parts(x))
        np.testing.assert_allclose(parts, lap(x), rtol=1e-9)


def test_a_shallow_network_in_other_coordinates():
    """The closed forms, polynomial and all, against automatic differentiation of the value."""
    with jax.enable_x64(True):
        moved, x = fields()["moved"], jnp.asarray([0.3, -0.2, 0.9])
        p = moved.inner.polynomial
        bent = eqx.tree_at(
            lambda f: (f.inner.polynomial.slope, f.inner.polynomial.curvature),
            moved,
            (p.slope + 0.7, p.curvature - 1.3),
        )
        at = MovedShallowAt(bent.inner, bent.coordinates, x)
        lap = laplacian(bent.value)
        np.testing.assert_allclose(at.trace(Identity()), lap(x), rtol=1e-9)
        np.testing.assert_allclose(at.laplacian_grad(), jax.jit(jax.grad(lap))(x), rtol=1e-8)
        np.testing.assert_allclose(at.bilaplacian(), laplacian(lap)(x), rtol=1e-8)


@pytest.mark.daily("sphere")
@pytest.mark.parametrize("name", ["sphere", "box"])
def test_the_product_rule_of_fourth_order(name):
    with jax.enable_x64(True):
        p, q, x = fields()[name], fields()["shallow"], jnp.asarray([0.3, -0.2, 0.9])
        found = jax.jit(lambda x: Jet(Product(Jet(p.at(x), x), Jet(q.at(x), x)), x).bilaplacian)(x)
        expected = laplacian(laplacian(lambda y: p.value(y) * q.value(y)))(x)
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def trial_of(problem, seed=0):
    network = qpde.Shallow(9).build(problem.domain, key=jax.random.key(seed))
    return Trial.of(problem, network, exact_boundary=True)


def test_clamped_and_supported_functions_satisfy_their_conditions():
    with jax.enable_x64(True):
        clamped = trial_of(zoo.clamped_load(3))
        edge = jnp.asarray([0.6, 0.0, -0.8])
        assert abs(clamped.value(edge)) < 1e-14
        assert jnp.max(jnp.abs(jax.jit(jax.grad(clamped.value))(edge))) < 1e-13
        supported = trial_of(zoo.supported_plate(2))
        bent, slope = laplacian(supported.value), jax.jit(jax.grad(supported.value))
        for face in ([0.0, 0.3], [1.0, 0.7], [0.2, 1.0]):
            x = jnp.asarray(face)
            assert abs(supported.value(x)) < 1e-14
            assert abs(bent(x)) < 1e-12
            assert jnp.max(jnp.abs(slope(x))) > 1e-2
        x = jnp.asarray([0.3, 0.6])
        found = jax.jit(lambda x: supported.jet(x).bilaplacian)(x)
        np.testing.assert_allclose(found, laplacian(bent)(x), rtol=1e-8)


def test_one_condition_is_not_enough():
    with pytest.raises(ValueError, match="needs two conditions"):
        qpde.Problem(qpde.Ball(2), lambda x, u: 1 - u.bilaplacian)
    with pytest.raises(ValueError, match="for equations of fourth order"):
        qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian, boundary=qpde.Clamped())
    with pytest.raises(ValueError, match="is for boxes"):
        qpde.Problem(qpde.Ball(2), lambda x, u: u.bilaplacian, boundary=qpde.SimplySupported())
    with pytest.raises(ValueError, match="must be smooth"):
        qpde.Problem(
            qpde.Ball(2), lambda x, u: u.bilaplacian, boundary=qpde.Clamped(lambda x: abs(x[0]))
        )


# The first eigenvalue of the clamped plate, from Bessel functions.
EIGENVALUES = {2: 104.3631055588, 3: 237.7210675311, 5: 769.9634832419, 10: 4853.3279666737}


def test_the_constant_is_below_the_first_eigenvalue():
    for dim, known in EIGENVALUES.items():
        found: Any = qpde.monotonicity(zoo.clamped_load(dim))
        assert found.kind is qpde.Ground.PROVED
        assert found.constant < known
        first = qpde.Ball(dim).first_eigenvalue.value
        np.testing.assert_allclose(found.constant, first**2, rtol=1e-9)
    box: Any = qpde.monotonicity(zoo.supported_plate(2))
    np.testing.assert_allclose(box.constant, (2 * np.pi**2) ** 2, rtol=1e-9)  # which is sharp


def test_terms_of_lower_order_count():
    """`-2 Lap^2 + a Lap - c` on the supported square: sharp, with the first eigenfunction."""
    first = 2 * np.pi**2
    for a, c in ((3.0, 5.0), (-4.0, 0.0)):
        problem = qpde.Problem(
            qpde.Box(0.0, 1.0, dim=2),
            lambda x, u, a=a, c=c: -2 * u.bilaplacian + a * u.laplacian - c * u.value + u.grad[0],
            boundary=qpde.SimplySupported(),
        )
        found: Any = qpde.monotonicity(problem)
        np.testing.assert_allclose(found.constant, 2 * first**2 + a * first + c, rtol=1e-9)
    buckled = qpde.Problem(
        qpde.Box(0.0, 1.0, dim=2),
        lambda x, u: -u.bilaplacian - 20 * u.laplacian,
        boundary=qpde.Clamped(),
    )
    assert not qpde.monotonicity(buckled).proved
    bent = qpde.Problem(
        qpde.Ball(2), lambda x, u: -u.bilaplacian - u.bilaplacian**3, boundary=qpde.Clamped()
    )
    assert not qpde.monotonicity(bent).proved


def test_either_sign_is_oriented():
    problem = qpde.Problem(qpde.Ball(2), lambda x, u: u.bilaplacian - 1, boundary=qpde.Clamped())
    assert (problem.orientation, problem.order) == (-1.0, 4)
    assert zoo.clamped_load(2).orientation == 1.0


@pytest.mark.trains
@pytest.mark.slow
def test_q_learning_and_the_output_layer_solve_a_clamped_plate():
    problem: Any = zoo.clamped_waves(4)
    start = qpde.solve(problem, steps=100, batch=100, precision="float64", **WIDE)
    solution = qpde.polish(start)
    assert solution.score.relative_l2_error < 0.3
    # It minimises the loss; the error has a factor for every frequency.
    assert solution.score.loss < start.score.loss
    bound = qpde.certify(solution)
    with jax.enable_x64(True):
        points = problem.domain.sample(jax.random.key(0), 4_000)
        exact = np.asarray(jax.vmap(problem.exact)(points))
    error = solution.score.relative_l2_error * np.sqrt(np.mean(exact**2))
    assert bound.kind is not qpde.Kind.HEURISTIC
    assert error < bound.bound < 100 * error


def test_explain_says_what_the_remark_covers():
    found = qpde.explain(zoo.clamped_load(2))
    (order,) = (finding for finding in found.findings if finding.name == "order")
    assert order.verdict is qpde.Answer.UNKNOWN
    assert "remark" in order.text
    (monotone,) = (finding for finding in found.findings if finding.name == "monotone")
    assert monotone.verdict is qpde.Answer.YES


def test_a_plate_comes_back_from_its_file(tmp_path):
    problem = zoo.clamped_load(2)
    solution = qpde.solve(problem, steps=20, batch=64, network=qpde.Shallow(8), progress=False)
    path = tmp_path / "plate.safetensors"
    qpde.save(solution, path)
    x = np.array([[0.1, 0.2], [-0.5, 0.3]])
    np.testing.assert_array_equal(qpde.load(path)(x), solution(x))
    other = qpde.Problem(
        qpde.Box(-1.0, 1.0, dim=2), lambda x, u: 1 - u.bilaplacian, boundary=qpde.Clamped()
    )
    with pytest.raises(ValueError, match="belongs to another problem"):
        qpde.load(path, problem=other)


def test_what_is_for_second_order_alone(solved):
    problem = zoo.clamped_load(2)
    with pytest.raises(ValueError, match="fourth order"):
        qpde.feynman_kac(problem, np.zeros(2), progress=False)
    with pytest.raises(ValueError, match="second order"):
        qpde.solve_limit(problem)
    with pytest.raises(ValueError, match="second condition"):
        qpde.solve(problem, rule=qpde.Penalty(), steps=1, progress=False)
    ball = solved("ball")
    plate = dataclasses.replace(ball, problem=zoo.clamped_load(3))
    with pytest.raises(ValueError, match="no maximum principle"):
        qpde.certify(plate, norm="sup")
