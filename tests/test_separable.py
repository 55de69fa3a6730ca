"""Separable networks: derivatives, and the start along lines of the residual."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde._field.form import Factor, Identity


def test_derivatives():
    """Against automatic differentiation of the value."""
    with jax.enable_x64(True):
        box = qpde.Box([0.0, -1.0, 2.0], [1.0, 3.0, 2.5])
        field = qpde.Separable(3, degree=4).build(box, key=jax.random.key(0))
        field = type(field)(a=jnp.asarray([0.5, -1.0, 2.0]), c=field.c, frame=field.frame)
        x, sigma = jnp.asarray([0.3, 0.4, 2.2]), jnp.asarray(np.arange(6.0).reshape(3, 2))
        hessian = jax.hessian(field.value)(x)
        np.testing.assert_allclose(field.grad(x), jax.grad(field.value)(x), rtol=1e-11)
        np.testing.assert_allclose(field.hessian(x), hessian, atol=1e-10)
        np.testing.assert_allclose(field.trace(x, Identity()), jnp.trace(hessian), rtol=1e-11)
        expected = jnp.sum((hessian @ sigma) * sigma)
        np.testing.assert_allclose(field.trace(x, Factor(sigma)), expected, rtol=1e-11)


@pytest.mark.trains
def test_a_product_of_sines_is_found():
    """In five dimensions, from the lines of the residual."""
    problem = qpde.zoo.poisson_sine(5)
    options = {"rule": qpde.GaussNewton(), "precision": "float64", "batch": 300, "steps": 8}
    found = qpde.solve(problem, network=qpde.Separable(2, degree=8), progress=False, **options)
    assert found.score.skill < 0.02


@pytest.mark.trains
@pytest.mark.parametrize("name", ["separable", "pairs"])
def test_files_hold_networks_of_polynomials(name, tmp_path):
    """They come back from their files alone, with the same bits."""
    network = qpde.Separable(2, degree=3) if name == "separable" else qpde.Pairs([(2, 0)], degree=3)
    options = {"rule": qpde.GaussNewton(), "precision": "float64", "batch": 40, "steps": 1}
    found = qpde.solve(qpde.zoo.poisson_sine(3), network=network, progress=False, **options)
    path = tmp_path / "found.safetensors"
    qpde.save(found, path)
    back = qpde.load(path)
    x = np.random.default_rng(0).random((5, 3))
    np.testing.assert_array_equal(back(x), found(x))
    assert type(back.trial.network) is type(found.trial.network)
