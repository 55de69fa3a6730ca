"""Problems that look alike in all directions: networks of a distance, and data carried exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import qpde
from qpde import zoo
from qpde._boundary.around import SquareMean, exact_rule
from qpde._field.base import Autodiff
from qpde._field.form import Factor, Identity, Matrix, Spatial
from qpde._network.distance import DistanceField
from qpde._solve.growth import _Grower
from qpde._train.plan import make_plan

BALL = qpde.Ball(3, centre=[0.2, 0.0, -0.1])


@pytest.mark.parametrize("domain", [BALL, qpde.Cylinder(BALL, 0.4)], ids=["space", "time"])
def test_the_network_has_the_derivatives_of_its_values(domain):
    with jax.enable_x64(True):
        field = qpde.Distance(12).build(domain, key=jr.key(0))
        rng = np.random.default_rng(0)
        inner = field.inner
        inner = eqx.tree_at(
            lambda f: (f.c, f.polynomial.slope, f.polynomial.curvature),
            inner,
            tuple(
                jnp.asarray(rng.standard_normal(part.shape))
                for part in (inner.c, inner.polynomial.slope, inner.polynomial.curvature)
            ),
        )
        field = eqx.tree_at(lambda f: f.inner, field, inner)
        slow, x = Autodiff(field.value), jnp.asarray([0.3, -0.4, 0.2, 0.1][: domain.dim])
        sigma = jnp.asarray(rng.standard_normal((domain.dim, 2)))
        forms = [Identity(), Factor(sigma), Matrix(sigma @ sigma.T)]
        forms += [Spatial()] if domain.times is not None else []

        @jax.jit
        def derivatives(x):
            return [
                (f.grad(x), f.hessian(x), [f.trace(x, form) for form in forms])
                for f in (field, slow)
            ]

        mine, true = derivatives(x)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), mine, true
        )


def test_domains_that_differ_by_direction_are_refused():
    with pytest.raises(ValueError, match="look the same in every direction"):
        qpde.Distance(8).build(qpde.Box(0.0, [1.0, 1.0]), key=jr.key(0))
    drifting = qpde.Problem(
        qpde.Space(2),
        lambda x, t, u: u.dt + u.laplacian + u.grad[0],
        time=1.0,
        terminal=lambda x: jnp.cos(x[0]),
    )
    assert drifting.domain.pivot is None


def test_data_of_the_distance_are_carried_exactly():
    """A Gaussian bell: `E exp(-k |y + h N|^2) = (1 + 2 k h^2)^(-d/2) exp(-k |y|^2 / (1 + 2 k h^2))`."""
    with jax.enable_x64(True):
        dim, k, end, a = 5, 0.3, 0.4, 0.7
        drift, centre = np.array([0.2, 0.0, 0.0, 0.1, 0.0]), np.linspace(0.0, 0.5, dim)
        data = qpde.OfSquare(lambda s: jnp.exp(-k * s), centre)
        found = exact_rule(data, float(np.sqrt(2 * a * end)))
        assert found is not None
        rule, miss = found
        assert miss < 1e-9
        field = SquareMean(
            data, np.asarray(a), drift, np.asarray(end), True, rule, np.asarray(miss)
        )

        def true(z):
            s = end - z[-1]
            y, wide = z[:-1] + s * drift - centre, 1 + 4 * k * a * s
            return wide ** (-dim / 2) * jnp.exp(-k * jnp.dot(y, y) / wide)

        slow = Autodiff(true)
        for z in (jnp.array([0.3, -0.2, 0.5, 0.1, 0.9, 0.15]), jnp.append(centre, end)):
            assert float(field.value(z)) == pytest.approx(float(true(z)), rel=1e-9)
            for form in (Spatial(),):
                np.testing.assert_allclose(field.trace(z, form), slow.trace(z, form), rtol=1e-8)
            np.testing.assert_allclose(field.grad(z), slow.grad(z), rtol=1e-8, atol=1e-9)
        # A pole beside the real line is not: its data are carried by a cubature.
        steep = qpde.OfSquare(lambda s: 1 / (1e-3 + s), np.zeros(1))
        assert exact_rule(steep, 1.0) is None


@pytest.mark.daily("absorbed_heat-True", "heat_ball-False")
@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("absorbed_heat", True),
        ("allen_cahn_in_time", True),
        ("heat_ball", False),
        ("survival", False),  # without time the other networks serve
    ],
)
def test_problems_that_look_alike_in_all_directions_are_seen(name, alike):
    """By their programs at work: data, equation and domain; a wave in a ball does not."""
    with jax.enable_x64(True):
        found = _Grower(make_plan(zoo.CATALOGUE[name].build(3)))._by_distance()
        assert isinstance(found, DistanceField) is alike


def test_saved_and_loaded(tmp_path):
    """The same bits, for networks of the distance and of pairs."""
    rule = qpde.VariableProjection()
    options = {"rule": rule, "batch": 300, "steps": 1, "progress": False}
    problem = zoo.absorbed_heat(3)
    for network in (qpde.Distance(8), qpde.Pairs([(0, 1), (1, 3)], degree=2)):
        solution = qpde.solve(problem, network=network, **options)
        qpde.save(solution, tmp_path / "one.safetensors")
        loaded = qpde.load(tmp_path / "one.safetensors")
        points = np.random.default_rng(0).uniform(-0.5, 0.5, (10, 3))
        np.testing.assert_array_equal(loaded(points, 0.05), solution(points, 0.05))
