"""Extensions from boundary values only: exact on the boundary, square integrable inside."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from qpde import Annulus, Ball, Box, Ellipsoid, Interval, Problem, lift
from qpde._form import Identity


def wavy(x):
    return jnp.sin(3.0 * x[0] + 1.0) + jnp.sum(x) ** 2 * jnp.exp(-x[-1])


DOMAINS = [
    Ball(3, centre=0.2, radius=1.5),
    Ellipsoid([0.5, 1.0, 2.0], centre=-0.3),
    Annulus(3, inner=0.5, outer=1.5),
    Interval(-1.0, 2.0),
    Ball(20),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_boundary_values_are_exact_and_inside_is_never_read(domain):
    with jax.enable_x64(True):

        def only_on_the_boundary(x):
            near = jnp.abs(domain.distance(x)) < 1e-9
            return jnp.where(near, wavy(x), jnp.nan)

        field = lift(only_on_the_boundary, domain)
        edge = domain.sample_boundary(jr.key(5), 300)
        np.testing.assert_allclose(
            jax.jit(jax.vmap(field.value))(edge), jax.vmap(wavy)(edge), atol=1e-10
        )
        inside = domain.sample(jr.key(6), 300)
        values = np.asarray(jax.jit(jax.vmap(field.value))(inside))
        assert np.all(np.isfinite(values))
        scale = np.abs(np.asarray(jax.vmap(wavy)(edge))).max()
        assert np.abs(values).max() < 5 * scale


@pytest.mark.parametrize("domain", [Ball(3), Ellipsoid([0.5, 1.0, 2.0])], ids=repr)
def test_second_derivatives_are_bounded_up_to_the_centre(domain):
    """Refinement towards the centre, where the projection is singular: |Lap patch| falls."""
    with jax.enable_x64(True):
        patch = lift(wavy, domain).function.patch
        laplacian = jax.jit(jax.vmap(lambda x: jnp.trace(jax.hessian(lambda y: patch(wavy, y))(x))))
        edge = domain.sample_boundary(jr.key(0), 100)
        sizes = [float(jnp.abs(laplacian(s * edge)).max()) for s in (1e-1, 1e-2, 1e-3)]
        assert sizes[0] > sizes[1] > sizes[2]
        assert np.isfinite(lift(wavy, domain).value(jnp.zeros(3)))


@pytest.mark.parametrize("domain", DOMAINS[:3], ids=repr)
def test_the_residual_of_the_extension_is_square_integrable(domain):
    """The largest (Lap f)^2 of 10 and of 10,000 points differ little: the integrand is bounded."""
    with jax.enable_x64(True):
        field = lift(wavy, domain)
        laplacian = jax.jit(jax.vmap(lambda x: field.trace(x, Identity())))
        square = np.asarray(laplacian(domain.sample(jr.key(1), 10_000))) ** 2
        assert square.max() < 20 * np.sort(square[:1_000])[-10:].mean()


def test_a_smooth_fit_alone_is_nearly_right():
    """Quadratic data are nearly reproduced, so the patch carries little."""
    with jax.enable_x64(True):
        domain = Annulus(5, inner=0.5, outer=1.0)
        field = lift(lambda x: 1.0 + x[0] - 2.0 * x[1] * x[2], domain)
        x = domain.sample(jr.key(0), 100)
        expected = 1.0 + x[:, 0] - 2.0 * x[:, 1] * x[:, 2]
        np.testing.assert_allclose(jax.vmap(field.value)(x), expected, atol=2e-3)


def test_a_lift_is_a_boundary_function():
    domain = Ball(3)
    problem = Problem(domain, lambda x, u: u.laplacian, boundary=lift(wavy, domain))
    assert problem.orientation == 1


def test_wrong_use():
    with pytest.raises(ValueError, match=r"scalar of shape \(\), got \(3,\)"):
        lift(lambda x: x, Ball(3))
    with pytest.raises(ValueError, match="not finite everywhere on the boundary"):
        lift(lambda x: jnp.log(x[0]), Ball(3))
    with pytest.raises(
        ValueError, match="lift knows Ball.*not Box. Give a function on the closure"
    ):
        lift(wavy, Box(0.0, 1.0, dim=2))
