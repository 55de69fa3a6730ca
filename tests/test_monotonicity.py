"""Monotonicity constants: right where they can be computed, refused where they cannot."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import jn_zeros

import qpde
from qpde import zoo
from qpde._domain.eigenvalue import bessel_zero
from qpde._monotone.laws import radial_eigenvalue, suggest_measure
from qpde._monotone.monotonicity import monotonicity
from qpde._precision import x64


def equation(function, dim=3, **options):
    return qpde.Problem(qpde.Ball(dim), function, **options)


def known(found):
    """The constant, which must have been found."""
    assert found.constant is not None
    return found.constant


def hidden(x, u):
    """A killing rate `1 + x_1^2` behind an operation that interval arithmetic does not know."""
    rate = jax.lax.digamma(3.0 + 0.0 * x[0]) * 0.0 + 1.0 + x[0] ** 2
    return u.laplacian - rate * u.value


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("order", [0.0, 1.0, 9.0, 49.0])
def test_zeros_of_bessel_functions(order):
    assert bessel_zero(order) == pytest.approx(jn_zeros(int(order), 1)[0], rel=2e-11)
    assert bessel_zero(order) < jn_zeros(int(order), 1)[0]


def test_zeros_of_half_order():
    """J_{-1/2} is a cosine, J_{1/2} a sine: the next root would be four times too big in d = 1."""
    assert qpde.Ball(1).first_eigenvalue.value == pytest.approx((np.pi / 2) ** 2, rel=1e-10)
    assert bessel_zero(0.5) == pytest.approx(np.pi, rel=1e-10)
    assert bessel_zero(4999.0) == pytest.approx(5030.79, abs=0.01)


def rayleigh(domain, count=200_000):
    """The quotient of eta, an upper bound for lambda_1."""
    with jax.enable_x64(True):
        x = domain.sample(jax.random.key(0), count)
        slope = jax.vmap(domain.eta.grad)(x)
        return float(jnp.sum(slope**2) / jnp.sum(jax.vmap(domain.eta.value)(x) ** 2))


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    "domain",
    [
        qpde.Ball(3, radius=2.0),
        qpde.Box(0.0, [1.0, 2.0]),
        qpde.Ellipsoid([0.5, 1.0, 2.0]),
        qpde.Annulus(2, inner=1.0, outer=2.0),
        qpde.Annulus(10, inner=1.0, outer=2.0),
    ],
)
def test_eigenvalues_are_lower_bounds_and_not_far_off(domain):
    """Below the quotient of eta (3 standard errors of which are under 2 %), above a third of it."""
    bound, quotient = domain.first_eigenvalue.value, rayleigh(domain)
    assert quotient / 3 < bound < 1.02 * quotient


def test_the_annulus_against_its_exact_eigenvalue():
    """d = 3: w = r v is a sine, so lambda_1 = pi^2 / (outer - inner)^2."""
    domain = qpde.Annulus(3, inner=1.0, outer=1.5)
    assert domain.first_eigenvalue.value == pytest.approx(4 * np.pi**2, rel=1e-9)


def test_the_radial_law():
    ball = qpde.Ball(10)
    assert radial_eigenvalue(qpde.Radial(ball, 10.0)).value == pytest.approx(
        ball.first_eigenvalue.value
    )
    assert radial_eigenvalue(qpde.Radial(ball, 2.0)).value == pytest.approx(5.783186, rel=1e-6)
    found = monotonicity(zoo.survival(10), measure=qpde.Radial(ball, 3.0))
    assert found.kind == "proved"
    assert known(found) < known(monotonicity(zoo.survival(10)))
    line = qpde.Ball(1)
    assert radial_eigenvalue(qpde.Radial(line, 1.0)).value == pytest.approx((np.pi / 2) ** 2)
    with pytest.raises(ValueError, match="needs 2 <= k"):
        qpde.Radial(ball, 1.0)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    ("build", "dim", "constant"),
    [
        (zoo.survival, 1, 0.2 + np.pi**2 / 8),
        (zoo.survival, 20, 89.3687),
        (partial(zoo.survival, discount=0.0), 20, 89.1687),
        (zoo.survival, 1_000, 132_020.6),
        (zoo.poisson_sine, 5, 5 * np.pi**2),
        (zoo.drift, 10, 0.5 - 5 + 28.79147),
        (zoo.semilinear, 10, 57.58294),
    ],
)
def test_constants_of_known_problems(build, dim, constant):
    found = monotonicity(build(dim))
    assert found.kind == "proved"
    assert found.constant == pytest.approx(constant, rel=1e-5)
    parts = found.discount, found.drift, found.poincare
    assert sum(part for part in parts if part is not None) == pytest.approx(constant, rel=1e-5)


def test_the_sign_of_an_equation_does_not_matter():
    found = monotonicity(equation(lambda x, u: -u.laplacian + u.value - 1))
    assert found.constant == pytest.approx(1 + np.pi**2)


def test_variable_coefficients():
    """a = 1 + x_i^2 on the diagonal: alpha = 1, c = 1, -div div A / 2 = -3."""
    found = monotonicity(equation(lambda x, u: u.trace(jnp.diag(1 + x**2)) - u.value + 1))
    assert found.kind == "proved"
    assert found.constant == pytest.approx(np.pi**2 - 2, rel=1e-3)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x, u: u.laplacian + 20 * u.value + 1, "refuted on a sample"),
        (lambda x, u: 0.5 * u.laplacian - 20 * jnp.dot(x, u.grad) + 1, "refuted on a sample"),
        (lambda x, u: u.laplacian + jnp.sin(u.value), "proved"),
        (lambda x, u: u.laplacian + u.value**2 - 1, "unknown"),
        (lambda x, u: u.laplacian - jnp.sum(u.grad**2) - u.value + 1, "unknown"),
        (
            lambda x, u: (
                u.laplacian - jax.lax.fori_loop(0, 3, lambda i, s: s + x[0] ** 2, 1.0) * u.value
            ),
            "proved",
        ),
        (hidden, "sampled"),
    ],
)
def test_kinds(function, kind):
    found = monotonicity(equation(function))
    assert found.kind == kind
    if kind == "refuted on a sample":
        assert found.constant is None
        assert found.witness.quotient < 0
    assert "Monotonicity constant" in repr(found)


def test_a_range_of_values_makes_a_conditional_constant():
    found = monotonicity(
        equation(lambda x, u: u.laplacian + u.value**2 - 1), value_range=(-1.0, 1.0)
    )
    assert found.kind == "conditional"
    assert found.constant == pytest.approx(np.pi**2 - 2)
    assert "from -1 to 1" in repr(found)


def test_bounds_that_the_user_knows():
    found = monotonicity(equation(hidden), potential=1.0)
    assert found.kind == "proved"
    assert found.constant == pytest.approx(1 + np.pi**2)


def test_the_stationary_law_of_a_gradient_drift():
    """dX = -8 X dt + dW: not monotone under the uniform law, monotone under N(0, 1/16)."""
    problem = equation(lambda x, u: 1 + u.generator(-8.0 * x, 1.0))
    assert monotonicity(problem).kind == "refuted on a sample"
    law = suggest_measure(problem)
    with jax.enable_x64(True):
        x = jnp.array([0.3, -0.2, 0.5])
        assert law.density(x) == pytest.approx(np.exp(-8 * 0.38), rel=1e-12)
    assert monotonicity(problem, measure=law).constant > 0


def test_no_law_is_suggested_where_none_is_known():
    turning = jnp.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert suggest_measure(equation(lambda x, u: 1 + u.generator(turning @ x, 1.0))) is None
    assert suggest_measure(zoo.survival(3)) is None


@pytest.mark.slow
def test_quadratic_forms_under_a_weight():
    """The lower bound holds for random functions of zero trace under a weighted law, d = 2."""
    law = qpde.Weighted(qpde.Ball(2), lambda x: jnp.exp(x[0] - x[1] ** 2))
    problem = equation(lambda x, u: u.laplacian + u.grad[0] - 0.3 * u.value, dim=2)
    constant = known(monotonicity(problem, measure=law))
    assert constant > 0

    from qpde._monotone.witness import find_witness

    with x64():
        witness = find_witness(problem, law)
    assert constant < witness.quotient + 3 * witness.standard_error
    assert witness.quotient < 1.5 * constant  # and the bound is not far off


@pytest.mark.slow
def test_a_law_that_is_not_the_stationary_one_is_not_taken_for_it():
    inwards, outwards = (
        equation(lambda x, u, k=k: 1 + u.generator(k * x, 1.0)) for k in (-8.0, 8.0)
    )
    found = monotonicity(inwards, measure=suggest_measure(outwards))
    assert found.kind != "proved"
    shaken = equation(lambda x, u: u.laplacian - 40 * jnp.sin(60 * x[0]) * u.grad[0])
    assert suggest_measure(shaken) is None  # its integral is too rough for the quadrature


def test_wrong_arguments():
    problem = zoo.survival(3)
    with pytest.raises(ValueError, match="low < high"):
        monotonicity(problem, value_range=(1.0, -1.0))
    with pytest.raises(ValueError, match="The measure lives on"):
        monotonicity(problem, measure=qpde.Uniform(qpde.Ball(3, radius=2.0)))
