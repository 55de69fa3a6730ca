"""Polynomials of pairs of coordinates: closed forms, the pairs that a problem needs, what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import qpde
from qpde._field.form import Factor, Identity
from qpde._network.pairs import Pairs, PairsField
from qpde._precision import x64
from qpde._solve.growth import _Grower
from qpde._train.plan import make_plan

pytestmark = pytest.mark.trains


def test_closed_forms_are_derivatives():
    """Against automatic differentiation, to rounding, with coefficients at random."""
    domain = qpde.Box([0.0, -1.0, 2.0], [1.0, 3.0, 2.5])
    rng = np.random.default_rng(2)
    with x64():
        empty = Pairs([(0, 2), (1, 2)], degree=4).build(domain, key=jr.key(1))
        outputs = [jnp.asarray(rng.standard_normal(a.shape)) for a in empty.output_layer()]
        network = eqx.tree_at(lambda n: n.output_layer(), empty, tuple(outputs))
        x = jnp.asarray([0.3, 1.2, 2.1])
        hessian = jax.hessian(network.value)(x)
        np.testing.assert_allclose(network.grad(x), jax.grad(network.value)(x), rtol=1e-11)
        np.testing.assert_allclose(network.hessian(x), hessian, rtol=1e-11, atol=1e-10)
        for form in (Identity(), Factor(jnp.asarray(rng.standard_normal((3, 2))))):
            np.testing.assert_allclose(network.trace(x, form), form.contract(hessian), rtol=1e-10)


def test_a_full_quadratic_form_is_exact():
    """`u = (1 - |x|^2) x' B x`: degree two has it, and least squares finds it."""
    matrix = np.random.default_rng(3).standard_normal((5, 5))

    def inside(x):
        return jnp.dot(x, matrix @ x)

    def exact(x):
        return (1.0 - jnp.dot(x, x)) * inside(x)

    def equation(x, u):
        laplacian = (1 - jnp.dot(x, x)) * 2 * np.trace(matrix) - 18.0 * inside(x)
        return u.laplacian - laplacian

    solution = qpde.solve(
        qpde.Problem(qpde.Ball(5), equation, exact=exact),
        network=Pairs(),
        rule=qpde.VariableProjection(),
        batch=200,
        steps=1,
        progress=False,
    )
    assert solution.score.relative_l2_error < 1e-10


def test_pairs_that_interact_are_seen():
    """In the second derivatives of the source: a chain has `d - 1` of them, and no others are taken."""

    def source(x):
        return jnp.sum(x[:-1] * x[1:]) + 0.1 * jnp.sum(x**3)

    problem = qpde.Problem(qpde.Ball(8), lambda x, u: u.laplacian - u.value + source(x))
    with x64():
        field = _Grower(make_plan(problem))._in_few_pairs()
    assert isinstance(field, PairsField)
    found = {tuple(map(int, pair)) for pair in np.asarray(field.pairs)}
    assert found == {(i, i + 1) for i in range(7)}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(0, 0)], "two different coordinates"),
        ([(0, 1, 2)], "two different"),
        (3, "a list such as"),
    ],
)
def test_wrong_pairs(pairs, message):
    with pytest.raises(ValueError, match=message):
        Pairs(pairs)


def test_pairs_outside_the_domain():
    with pytest.raises(ValueError, match="counted from 0 to 1"):
        qpde.solve(qpde.zoo.survival(2), network=Pairs([(0, 2)]), steps=1, progress=False)
