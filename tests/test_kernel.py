"""The tangent kernel against quadrature in two dimensions, automatic differentiation and Monte Carlo."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import qpde
from qpde import activations
from qpde._limit.kernel import TangentKernel, finite_kernel


def points(count, dim, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, dim))
    return x / np.linalg.norm(x, axis=1, keepdims=True) * rng.uniform(0.1, 1, (count, 1))


def by_quadrature(activation, scale, nodes=90):
    """`A` of two points by Gauss-Hermite in two dimensions, as a JAX function."""
    g, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()

    def kernel(x, y):
        vx, vy = scale**2 * x @ x + 1, scale**2 * y @ y + 1
        c = scale**2 * x @ y + 1
        a = jnp.sqrt(vx) * g
        b = c / jnp.sqrt(vx) * g[:, None] + jnp.sqrt(vy - c**2 / vx) * g[None]
        (s, ds), (t, dt) = (activation.derivatives(z, 1) for z in (a, b))
        weight = w[:, None] * w[None]
        return jnp.sum(weight * s[:, None] * t) + (x @ y + 1) / 3 * jnp.sum(
            weight * ds[:, None] * dt
        )

    return kernel


@pytest.mark.parametrize("dim", [1, 20])
@pytest.mark.parametrize(("name", "tolerance"), [("sigmoid", 1e-12), ("tanh", 2e-6)])
def test_values_and_derivatives_against_quadrature_and_autodiff(dim, name, tolerance):
    """The quadrature in two dimensions is the less exact of the two for tanh."""
    activation = activations.BY_NAME[name]
    kernel, reference = TangentKernel(activation, scale=1.0), by_quadrature(activation, 1.0)
    x, y = points(2, dim), points(3, dim, seed=1)
    with jax.enable_x64(True):

        def everything(a, b):
            value, slope = jax.value_and_grad(reference)(a, b)
            return value, slope, jnp.trace(jax.hessian(reference)(a, b))

        pairs = jax.jit(jax.vmap(jax.vmap(everything, (None, 0)), (0, None)))
        value, slope, laplacian = pairs(jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(kernel(x, y), value, rtol=0, atol=tolerance)
    np.testing.assert_allclose(kernel.grad(x, y), slope, rtol=0, atol=tolerance)
    np.testing.assert_allclose(kernel.laplacian(x, y), laplacian, rtol=0, atol=5 * tolerance)


def test_it_is_right_where_both_points_are_the_same():
    """A(x, x) = E[sigma^2] + (|x|^2 + 1) E[sigma'^2] / 3, integrals in one dimension."""
    x = points(4, 5)
    g = np.linspace(-14, 14, 4_001)
    phi = np.exp(-0.5 * g**2) / np.sqrt(2 * np.pi) * (g[1] - g[0])
    z = np.sqrt(np.sum(x**2, axis=1) + 1)[:, None] * g[None]
    t = np.tanh(z)
    expected = t**2 @ phi + (np.sum(x**2, axis=1) + 1) / 3 * ((1 - t**2) ** 2 @ phi)
    np.testing.assert_allclose(np.diag(TangentKernel()(x, x)), expected, rtol=1e-10)
    assert np.all(np.isfinite(TangentKernel().laplacian(x, x)))


def test_finite_networks_approach_it_like_one_over_n():
    """E|A^N - A|^2 = C / N at width 2^6 ... 2^12: slope -1 (standard error of the fit about 0.04)."""
    domain, x, y = qpde.Ball(3), points(3, 3), points(4, 3, seed=1)
    exact = TangentKernel(activations.sigmoid, scale=1.0)(x, y)
    widths, errors = 2 ** np.arange(6, 13), []
    for width in widths:
        source = qpde.Shallow(
            int(width), activation=activations.sigmoid, scale=1.0, normalise=False
        )
        gaps = [
            np.mean((finite_kernel(source.build(domain, key=jr.key(seed)), x, y) - exact) ** 2)
            for seed in range(40)
        ]
        errors.append(np.mean(gaps))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert slope == pytest.approx(-1, abs=0.15)


def test_the_finite_kernel_is_the_product_of_gradients():
    domain, x, y = qpde.Ball(4), points(2, 4), points(3, 4, seed=1)
    source = qpde.Shallow(32, beta=0.7)
    with jax.enable_x64(True):
        network = source.build(domain, key=jr.key(0))

        def parts(network):
            return network.c, network.w, network.b

        def gradient(x):
            by = jax.grad(lambda p: eqx.tree_at(parts, network, p).value(x))(parts(network))
            return jnp.concatenate([part.ravel() for part in by])

        product = jax.vmap(gradient)(jnp.asarray(x)) @ jax.vmap(gradient)(jnp.asarray(y)).T
        np.testing.assert_allclose(finite_kernel(network, x, y), 32**0.4 * product, rtol=1e-10)


def test_wrong_use_and_variances_that_are_too_large():
    with pytest.raises(ValueError, match="does not converge at variance"):
        TangentKernel(scale=10.0)(points(2, 3), points(2, 3))
    with pytest.raises(ValueError, match="positive number"):
        TangentKernel(scale=0.0)
    with pytest.raises(ValueError, match=r"shapes \(n, d\)"):
        TangentKernel()(np.zeros(3), np.zeros((2, 3)))
