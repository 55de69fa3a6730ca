"""Truth: every exact solution has zero residual and the right boundary values."""

import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import hyp0f1
from truth import exact_values

from qpde import zoo
from qpde._boundary.fit import Smooth
from qpde._boundary.miss import Approximation
from qpde._field.base import Autodiff
from qpde._field.form import Identity
from qpde._field.jet import Jet
from qpde.zoo._linear import _SurvivalSolution
from qpde.zoo._semilinear import _TwoBodyEquation

CASES = [
    ("survival", 20),
    ("poisson_sine", 1),
    ("poisson_sine", 5),
    ("ellipsoid", 3),
    ("annulus", 2),
    ("annulus", 10),
    ("committor", 2),
    ("committor", 10),
    ("drift", 10),
    ("cube_cosines", 5),
    ("cube_products", 10),
    ("cube_norm", 3),
    ("cube_norm", 60),
    ("mean_ridge", 5),
    ("mean_ridge", 100),
    ("semilinear", 10),
    ("two_body_poisson", 100),
    ("two_body_allen_cahn", 30),
    ("two_body_sine_gordon", 30),
    ("exponential_ball", 10),
    ("van_der_pol", 20),
    ("control_bell", 10),
    ("control_sines", 3),
    ("lqr", 5),
    ("lqr_matrices", 5),
    ("lqr_diffusion", 5),
    ("eikonal", 5),
    ("rotated", 4),
    ("clamped_load", 5),
    ("clamped_waves", 4),
    ("supported_plate", 3),
    ("american_put", 1),
    ("heat_ball", 10),
    ("steered_bumps", 4),
    ("hjb_chain", 4),
]
# Those whose exact solution is known at points only; see test_evolution.py and test_space.py.
AT_POINTS = {
    "absorbed_heat",
    "allen_cahn_in_time",
    "semilinear_heat",
    "sine_gordon_in_time",
    "hjb_quadratic",
}
LONG = {
    ("annulus", 10),
    ("committor", 10),
    ("mean_ridge", 100),
    ("cube_norm", 60),
    ("steered_bumps", 4),
    ("rotated", 4),
}


@pytest.mark.daily(*(f"{name}-{dim}" for name, dim in CASES if (name, dim) not in LONG))
@pytest.mark.parametrize(("name", "dim"), CASES)
def test_exact_solutions_solve_their_equation(name, dim):
    """Derivatives by automatic differentiation, where the equations have closed forms."""
    with jax.enable_x64(True):
        problem = zoo.CATALOGUE[name].build(dim)
        assert problem.recipe is not None
        recipe = json.loads(problem.recipe)
        assert (problem.name, recipe["problem"], recipe["dim"]) == (name, name, dim)
        function = problem.exact
        assert function is not None
        exact = Autodiff(function)

        @jax.jit
        def gaps(inside, edge):
            residual = jax.vmap(lambda x: problem.equation(x, Jet(exact.at(x), x)))(inside)
            laplacian = jax.vmap(lambda x: exact.trace(x, Identity()))(inside)
            values = jax.vmap(function)(edge)
            return residual, laplacian, values, values - jax.vmap(problem.boundary.value)(edge)

        inside, edge = points(problem.domain)
        residual, laplacian, values, gap = gaps(inside, edge)
        np.testing.assert_allclose(residual, 0, atol=1e-12 * (1 + np.abs(laplacian).max()))
        np.testing.assert_allclose(gap, 0, atol=1e-11 * max(1, np.abs(values).max()))
        if name in ("cube_cosines", "cube_products", "cube_norm", "mean_ridge"):
            # A fit to boundary values finds these.
            assert isinstance(problem.boundary, Approximation)
            assert problem.boundary.exact
            assert isinstance(problem.boundary.field, Smooth)
            value = jax.jit(jax.vmap(problem.boundary.value))(inside)
            expected = exact_values(problem, inside)
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


@eqx.filter_jit
def points(domain):
    return domain.sample(jr.key(0), 50), domain.sample_boundary(jr.key(1), 50)


@pytest.mark.slow
def test_high_dimension_costs_little():
    """At d = 100,000 the equation at a point takes a few vectors, no matrix."""
    with jax.enable_x64(True):
        problem = zoo.two_body_sine_gordon(100_000)
        x = jnp.full(problem.dim, 0.5 / math.sqrt(problem.dim))

        def equation(x):
            return problem.equation(x, Jet(problem.boundary.at(x), x))

        memory = jax.jit(equation).lower(x).compile().memory_analysis()
        assert memory.temp_size_in_bytes < 50 * x.nbytes
        # At u = 0 the equation is minus the source.
        assert isinstance(problem.equation, _TwoBodyEquation)
        value, laplacian = problem.equation.exact.laplacian(x)
        np.testing.assert_allclose(equation(x), -laplacian - jnp.sin(value), rtol=1e-12)


def test_targets_are_for_problems_of_the_zoo():
    for target in zoo.TARGETS:
        assert target.problem in zoo.CATALOGUE
        assert target.target > 0
        assert target.source
        assert target.published is None or target.published > 0
    assert len({target.family for target in zoo.TARGETS}) == 12 + 5
    keys = [(t.problem, t.dim, t.metric, t.within) for t in zoo.TARGETS]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "dim", "message"),
    [
        ("cube_products", 3, "even dimensions, got 3"),
        ("van_der_pol", 2, "even dimensions from 4 up, got 2"),
        ("control_sines", 2, "from dimension 3 up, got 2"),
        ("committor", 1, "from dimension 2 up, got 1"),
        ("two_body_poisson", 1, "from dimension 2 up, got 1"),
    ],
)
def test_impossible_dimensions_are_refused(name, dim, message):
    with pytest.raises(ValueError, match=message):
        zoo.CATALOGUE[name].build(dim)


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match="seed must be a whole number"):
        zoo.two_body_poisson(3, seed=0.5)
    with pytest.raises(ValueError, match="effort positive"):
        zoo.van_der_pol(4, effort=0.0)


def test_every_problem_of_the_catalogue_is_tested():
    assert {name for name, _ in CASES} | AT_POINTS == set(zoo.CATALOGUE)


@pytest.mark.daily(every=5)
@pytest.mark.parametrize("discount", [0.0, 0.2, 1e4])
@pytest.mark.parametrize("dim", [1, 2, 20, 10_000])
def test_survival_solves_the_radial_equation(dim, discount):
    """1 - g u + 1/2 (u'' + (d - 1) u' / r) = 0, u(1) = 0, also at r = 0, where Lap u = d u''."""
    with jax.enable_x64(True):
        exact = _SurvivalSolution(dim, discount)

        def u(r):
            return exact(jnp.zeros(dim).at[0].set(r))

        def residual(r):
            first = jnp.where(r > 0, jax.grad(u)(r) / jnp.where(r > 0, r, 1.0), second(r))
            return 1 - discount * u(r) + 0.5 * (second(r) + (dim - 1) * first)

        second = jax.grad(jax.grad(u))
        r = jnp.array([0.0, 0.01, 0.3, 0.7, 0.95, 0.999])
        np.testing.assert_allclose(jax.jit(jax.vmap(residual))(r), 0, atol=3e-11)
        assert abs(u(1.0)) == 0
        assert u(0.0) > 0


@pytest.mark.parametrize("dim", [1, 2, 20])
def test_survival_is_the_bessel_quotient_of_the_paper(dim):
    with jax.enable_x64(True):
        gamma, r = 0.2, 0.4
        exact = _SurvivalSolution(dim, gamma)
        quotient = hyp0f1(dim / 2, gamma * r * r / 2) / hyp0f1(dim / 2, gamma / 2)
        x = jnp.full(dim, r / math.sqrt(dim))
        assert float(exact(x)) == pytest.approx((1 - quotient) / gamma, rel=1e-11)


def test_survival_in_one_dimension_is_the_cosh_of_the_paper():
    with jax.enable_x64(True):
        gamma = 0.1
        k = math.sqrt(2 * gamma)
        x = np.linspace(-0.99, 0.99, 31)[:, None]
        ours = exact_values(zoo.survival(1, discount=gamma), x)
        theirs = (1 - np.cosh(k * x[:, 0]) / math.cosh(k)) / gamma
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_survival_keeps_its_digits_in_float32_near_the_sphere():
    """What is left is the rounding of 1 - |x|^2, 6e-8 / 2e-3; the Bessel quotient loses 2e-4."""
    exact = zoo.survival(20).exact
    x = np.zeros(20)
    x[3] = 0.999
    single = float(exact(jnp.asarray(x, jnp.float32)))
    with jax.enable_x64(True):
        double = float(exact(jnp.asarray(np.float32(x), jnp.float64)))
    assert single == pytest.approx(double, rel=3e-5)


def test_survival_without_discount():
    with jax.enable_x64(True):
        x = jnp.array([0.3, -0.2, 0.5])
        value = zoo.survival(3, discount=0.0).exact(x)
        np.testing.assert_allclose(value, (1 - x @ x) / 3, rtol=1e-14)


@pytest.mark.parametrize("discount", [-0.1, float("nan"), float("inf"), 1e9])
def test_impossible_discounts_are_refused(discount):
    with pytest.raises(ValueError, match="discount must lie between 0 and 1e6"):
        zoo.survival(3, discount=discount)
