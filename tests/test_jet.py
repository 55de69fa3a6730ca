"""Contract: every engine agrees with the brute-force Hessian; asks are recorded; coefficients are right."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from qpde import MLP, Ball, Box, Shallow, activations
from qpde._field.base import Autodiff, as_field
from qpde._field.form import Factor, Identity, Matrix
from qpde._field.jet import Jet, Product, Quadratic, Sum
from qpde._field.linearise import asks, linearise

ACTIVATIONS = ["sigmoid", "tanh", "sin", "gelu", "softplus", "erf"]
NETWORKS = {"shallow": Shallow, "deep": lambda n, activation: MLP([n, n], activation=activation)}


def forms(key, dim):
    a, b, c = jr.split(key, 3)
    return [
        Identity(),
        Factor(jr.normal(a, (dim, 1))),
        Factor(jr.normal(b, (dim, 3))),
        Matrix(jr.normal(c, (dim, dim))),
    ]


@eqx.filter_jit
def answers(field, x, forms):
    """What a field's jet answers, and the same by plain automatic differentiation."""
    jet = Jet(field.at(x), x)
    hessian = jax.hessian(field.value)(x)
    ours = (jet.value, jet.grad, jet.hessian, [jet.contract(form) for form in forms])
    traces = [form.contract(hessian) for form in forms]
    return ours, (field.value(x), jax.grad(field.value)(x), hessian, traces)


def assert_field_is_right(field, x, tolerance=1e-10):
    every = forms(jr.key(7), x.size)
    ours, brute = answers(field, x, every)
    size = 1.0 + np.abs(brute[2]).max()
    np.testing.assert_allclose(ours[0], brute[0], atol=tolerance)
    np.testing.assert_allclose(ours[1], brute[1], atol=tolerance * size)
    np.testing.assert_allclose(ours[2], brute[2], atol=tolerance * size)
    for form, trace, expected in zip(every, ours[3], brute[3], strict=True):
        weight = 1.0 + np.abs(form.diagonal(jnp.asarray(x))).sum()
        np.testing.assert_allclose(trace, expected, atol=tolerance * size * weight)


# Every activation in both networks in two dimensions; other dimensions need no other activation.
CLOSED_FORMS = [(kind, name, 2) for kind in NETWORKS for name in ACTIVATIONS]
CLOSED_FORMS += [("shallow", "tanh", 1), ("deep", "tanh", 20)]


@pytest.mark.parametrize(("kind", "activation", "dim"), CLOSED_FORMS)
def test_closed_forms_agree_with_the_hessian(kind, activation, dim):
    with jax.enable_x64(True):
        network = NETWORKS[kind](12, activation=getattr(activations, activation))
        domain = Ball(dim, centre=0.3, radius=1.7)
        field = network.build(domain, key=jr.key(1))
        assert_field_is_right(field, domain.sample(jr.key(2), 1)[0])


@pytest.mark.parametrize("dim", [1, 5])
def test_autodiff_and_the_product_rule_agree_with_the_hessian(dim):
    with jax.enable_x64(True):
        p = Autodiff(lambda x: jnp.sin(jnp.sum(x)) * jnp.exp(-jnp.sum(x * x)))
        q = Shallow(9).build(Box(-1.0, 1.0, dim=dim), key=jr.key(0))
        x = jr.uniform(jr.key(3), (dim,))
        assert_field_is_right(p, x)
        every = forms(jr.key(4), dim)

        @jax.jit
        def both(x):
            combined = Jet(Product(Jet(p.at(x), x), Jet(q.at(x), x)), x)
            combined = Jet(Sum(combined, Jet(p.at(x), x)), x)
            whole = jax.hessian(lambda x: p.value(x) * q.value(x) + p.value(x))(x)
            traces = [combined.contract(form) - form.contract(whole) for form in every]
            return combined.hessian - whole, traces

        for gap in jax.tree.leaves(both(x)):
            np.testing.assert_allclose(gap, 0, atol=1e-9)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_derivatives_up_to_the_fifth(name):
    activation = getattr(activations, name)
    with jax.enable_x64(True):
        z = jnp.linspace(-4, 4, 41)
        numeric = activations.Elementwise(lambda z: activation(z)).derivatives(z, 5)
        for ours, theirs in zip(activation.derivatives(z, 5), numeric, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-10)
    reference = {"gelu": lambda z: jax.nn.gelu(z, approximate=False), "sin": jnp.sin}
    known = reference.get(name) or getattr(jax.nn, name, None) or getattr(jax.lax, name)
    np.testing.assert_allclose(activation(jnp.float32(0.7)), known(jnp.float32(0.7)), rtol=1e-6)


def test_asks_are_answered_once_and_what_is_not_asked_costs_nothing():
    calls = []

    class Source:
        def value(self):
            calls.append("value")
            return jnp.asarray(2.0)

        def grad(self):
            calls.append("grad")
            return jnp.ones(3)

        def trace(self, form):
            calls.append(type(form).__name__)
            return jnp.asarray(1.0)

        def hessian(self):
            raise AssertionError("never asked")

    u, v = Jet(Source(), jnp.zeros(3)), jnp.arange(3.0)
    for _ in range(2):
        assert u.value == 2
        assert u.along(v) == 3
        _ = u.laplacian, u.second(v), u.trace(EYE), u.generator(v, 2.0)
    assert calls == ["value", "grad", "Identity", "Factor", "Matrix"]


EYE = np.eye(3)


def test_generator_is_drift_and_half_the_diffusion():
    with jax.enable_x64(True):
        field = Autodiff(lambda x: jnp.prod(jnp.sin(x)) + x[0] ** 3)
        x, drift = jnp.array([0.3, 0.8]), jnp.array([1.0, -2.0])
        sigma = jnp.array([[1.0, 0.5, 0.0], [0.2, 0.0, 1.0]])
        u = Jet(field.at(x), x)
        hessian = field.hessian(x)
        expected = drift @ field.grad(x) + 0.5 * jnp.trace(sigma @ sigma.T @ hessian)
        np.testing.assert_allclose(u.generator(drift, sigma), expected, rtol=1e-12)
        expected = drift @ field.grad(x) + 0.5 * 9.0 * jnp.trace(hessian)
        np.testing.assert_allclose(u.generator(drift, 3.0), expected, rtol=1e-12)


def test_wrong_asks_say_what_was_expected():
    u = Jet(as_field(1.0).at(jnp.zeros(3)), jnp.zeros(3))
    with pytest.raises(AttributeError, match=r"no 'laplace'. An equation can ask for u.value"):
        _ = u.laplace
    with pytest.raises(ValueError, match=r"u.along\(v\) takes a vector of shape \(3,\), got shape"):
        u.along(jnp.ones(2))
    with pytest.raises(ValueError, match=r"u.trace\(a\) takes a matrix of shape \(3, 3\)"):
        u.trace(jnp.ones((2, 2)))
    with pytest.raises(ValueError, match=r"For a diagonal diffusion pass jnp.diag"):
        u.generator(jnp.ones(3), jnp.ones(3))


def equation(x, u):
    """Nonlinear, with a form that depends on the jet itself."""
    return u.second(u.grad) * u.value + jnp.sin(u.laplacian) + u.trace(MATRIX) - x[0] * u.along(x)


MATRIX = np.array([[2.0, 0.3], [0.1, 1.0]])


def test_coefficients_are_the_derivative_of_the_equation_in_its_jet():
    with jax.enable_x64(True):
        x = jnp.array([0.4, -0.2])
        field = Autodiff(lambda x: jnp.sin(x[0]) * jnp.cosh(2 * x[1]) + 1.0)
        bump = Autodiff(lambda x: jnp.exp(x[0] - 0.5 * x[1] ** 2))
        at = eqx.filter_jit(lambda x: linearise(equation, x, Jet(field.at(x), x)))(x)
        first = at.value * bump.value(x) + at.grad @ bump.grad(x)
        for scale, form in zip(at.traces, at.forms, strict=True):
            first += scale * bump.trace(x, form)

        def shifted(t):
            return equation(x, Jet(Autodiff(lambda x: field.value(x) + t * bump.value(x)).at(x), x))

        value, slope = jax.jit(jax.value_and_grad(shifted))(0.0)
        np.testing.assert_allclose(at.residual, value, rtol=1e-12)
        np.testing.assert_allclose(first, slope, rtol=1e-10)


def test_coefficients_with_a_full_hessian():
    with jax.enable_x64(True):
        x = jnp.array([0.4, -0.2])
        source = Quadratic(jnp.array(1.0), x, jnp.array(0.5), jnp.array([1.0, 2.0]))
        at = linearise(lambda x, u: jnp.linalg.det(u.hessian) + 3 * u.value, x, Jet(source, x))
        cofactor = jnp.array([[4.5, -2.0], [-2.0, 1.5]])  # of 0.5 I + v v'
        assert at.hessian is not None
        np.testing.assert_allclose(at.hessian, cofactor, rtol=1e-12)
        np.testing.assert_allclose(at.quadratic(jnp.eye(2)), [4.5, 1.5], rtol=1e-12)
        assert at.value == 3
        assert not np.any(at.grad)


def test_recording_lists_what_an_equation_asks():
    x = jnp.zeros(2)
    source = Quadratic(jnp.array(0.0), x, jnp.array(0.0), x)
    record, _ = asks(equation, x, Jet(source, x))
    assert record.asked == ["grad", "trace", "value", "laplacian"]
    assert [type(form).__name__ for form in record.forms] == ["Factor", "Identity", "Matrix"]


def test_no_square_array_unless_asked_for():
    """At d = 300 the compiled Laplacian of every engine holds no 300 x 300 array."""
    dim = 300
    domain = Ball(dim)
    fields = [
        Shallow(8).build(domain, key=jr.key(0)),
        MLP([8, 8]).build(domain, key=jr.key(0)),
        Autodiff(lambda x: jnp.sin(jnp.sum(x * x))),
        domain.eta,
        Box(0.0, 1.0, dim=dim).eta,
    ]
    for field in fields:
        text = jax.jit(lambda x, f=field: f.trace(x, Identity())).lower(jnp.zeros(dim)).as_text()
        assert f"{dim}x{dim}x" not in text, field
