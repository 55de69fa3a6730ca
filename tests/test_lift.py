"""Extensions from boundary values only: exact on the boundary, square integrable inside."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from qpde import Annulus, Ball, Box, Ellipsoid, Interval, Problem, lift
from qpde._boundary import lift as _lift
from qpde._boundary.fit import Smooth
from qpde._boundary.miss import Approximation
from qpde._field.form import Factor, Identity, Matrix
from qpde._precision import cast, x64


def wavy(x):
    return jnp.sin(3.0 * x[0] + 1.0) + jnp.sum(x) ** 2 * jnp.exp(-x[-1])


CACHE = {}


def lifted(domain):
    """The extension of `wavy`, which is not a number off the boundary; made once a domain."""

    def only_on_the_boundary(x):
        near = jnp.abs(domain.distance(x)) < (1e-9 if x.dtype == jnp.float64 else 1e-5)
        return jnp.where(near, wavy(x), jnp.nan)

    if repr(domain) not in CACHE:
        # What `lift` does for smooth data; that these are smooth the program cannot tell.
        CACHE[repr(domain)] = _lift._smooth_lift(only_on_the_boundary, domain, 0, None)
    return CACHE[repr(domain)]


@eqx.filter_jit
def points(domain):
    """300 points on the boundary and 300 inside."""
    return domain.sample_boundary(jr.key(5), 300), domain.sample(jr.key(6), 300)


DOMAINS = [
    Ball(3, centre=0.2, radius=1.5),
    Ellipsoid([0.5, 1.0, 2.0], centre=-0.3),
    Annulus(3, inner=0.5, outer=1.5),
    Interval(-1.0, 2.0),
    Ball(20),
    Box([0.0, -1.0], [1.0, 2.0]),
    Box(-0.5, 1.0, dim=3),
    Box(0.0, 1.0, dim=10),
]


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
def test_boundary_values_are_exact_and_inside_is_never_read(domain):
    with jax.enable_x64(True):
        field = lifted(domain)
        edge, inside = points(domain)
        value = jax.jit(jax.vmap(field.value))
        np.testing.assert_allclose(value(edge), jax.vmap(wavy)(edge), atol=1e-10)
        values = np.asarray(value(inside))
        assert np.all(np.isfinite(values))
        scale = np.abs(np.asarray(jax.vmap(wavy)(edge))).max()
        assert np.abs(values).max() < 5 * scale


@pytest.mark.daily("Annulus(3, inner=0.5, outer=1.5)", "Box([-0.5, -0.5, -0.5], [1, 1, 1])")
@pytest.mark.parametrize("domain", [*DOMAINS[:4], DOMAINS[6]], ids=repr)
def test_derivatives_agree_with_plain_autodiff_of_the_value(domain):
    with jax.enable_x64(True):
        field, d = lifted(domain), domain.dim
        sigma = np.random.default_rng(1).normal(size=(d, 2))
        full = np.random.default_rng(2).normal(size=(d, d))

        @jax.jit
        @jax.vmap
        def both(x):
            h = jax.hessian(field.value)(x)
            ours = field.grad(x), field.hessian(x), field.trace(x, Identity())
            ours += (
                field.trace(x, Factor(jnp.asarray(sigma))),
                field.trace(x, Matrix(jnp.asarray(full + full.T))),
            )
            plain = jax.grad(field.value)(x), h, jnp.trace(h)
            plain += jnp.sum(h * (sigma @ sigma.T)), jnp.sum(h * (full + full.T))
            return ours, plain

        for ours, plain in zip(*both(points(domain)[1][:20]), strict=True):
            np.testing.assert_allclose(ours, plain, rtol=1e-10, atol=1e-8)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("domain", [Ball(3), Ellipsoid([0.5, 1.0, 2.0])], ids=repr)
def test_second_derivatives_are_bounded_up_to_the_centre(domain):
    """Refinement towards the centre, where the projection is singular: |Lap patch| falls like r^2."""
    with jax.enable_x64(True):
        field = lifted(domain)
        patch = jax.vmap(lambda x: field.trace(x, Identity()) - field.smooth.trace(x, Identity()))
        edge, _ = points(domain)
        patch = jax.jit(patch)
        sizes = np.array([jnp.abs(patch(s * edge)).max() for s in (1e-1, 1e-2, 1e-3)])
        np.testing.assert_allclose(sizes[:-1] / sizes[1:], 100.0, rtol=1e-3)


def near_corners(d, codim, size):
    """400 points of the unit cube at a distance of `size / 10` to `size` from `codim` faces."""
    rng = np.random.default_rng(codim)
    x = rng.uniform(size=(400, d))
    axes = np.argsort(rng.uniform(size=x.shape), axis=1)[:, :codim]
    s = size * 10.0 ** -rng.uniform(size=axes.shape)
    np.put_along_axis(x, axes, np.where(rng.uniform(size=s.shape) < 0.5, s, 1.0 - s), axis=1)
    return x


@pytest.mark.daily("Box([0, -1], [1, 2])")
@pytest.mark.parametrize("domain", [*DOMAINS[5:], Box(0.0, 1.0, dim=5)], ids=repr)
def test_second_derivatives_in_a_box_are_bounded_up_to_edges_and_corners(domain):
    """Refinement towards faces, edges and corners: the largest |Lap f| of 400 points does not grow.

    A singularity 1/distance would multiply it by 1,000. It stays near that of `wavy` itself.
    """
    with jax.enable_x64(True):
        field, d = lifted(domain), domain.dim
        codims = sorted({1, 2, min(3, d), d})
        sizes = (1e-1, 1e-2, 1e-3, 1e-4)
        unit = np.stack([[near_corners(d, c, s) for s in sizes] for c in codims]).reshape(-1, d)
        x = domain.lower[None] + (domain.upper - domain.lower)[None] * unit

        @jax.jit
        def laplacians(points):
            def both(x):
                return field.trace(x, Identity()), jnp.trace(jax.hessian(wavy)(x))

            return jax.lax.map(both, points, batch_size=400)

        ours, plain = (np.abs(a).reshape(len(codims), len(sizes), -1) for a in laplacians(x))
        largest = ours.max(axis=2)
        assert np.all(largest < 1.3 * largest[:, :1]), largest
        assert np.all(largest < 2.0 * plain.max(axis=2)), largest / plain.max(axis=2)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("domain", [Ball(3), Box(-1.0, 1.0, dim=3)], ids=repr)
def test_everything_is_finite_on_faces_edges_and_corners_and_at_the_centre(domain, precision):
    """At all points with coordinates -1, 0, 1; for the ball at those on the axes and in the centre."""
    points = np.stack(np.meshgrid(*[[-1, 0, 1]] * domain.dim), -1).reshape(-1, domain.dim)
    if isinstance(domain, Ball):
        points = points[np.abs(points).sum(1) <= 1]
    with x64():
        field = cast(lifted(domain), precision)

        @jax.jit
        @jax.vmap
        def answers(x):
            return field.value(x), field.grad(x), field.trace(x, Identity()), field.hessian(x)

        x = jnp.asarray(points, precision)
        values, *derivatives = answers(x)
        assert values.dtype == precision
        on = np.abs(points).max(1) == 1
        expected = np.asarray(jax.vmap(wavy)(x))
        np.testing.assert_allclose(values[on], expected[on], atol=200 * np.finfo(precision).eps)
        for answer in (values, *derivatives):
            assert np.all(np.isfinite(answer))


def test_a_box_reproduces_what_no_two_axes_bend():
    """Exact where the fourth derivatives d_iikk vanish: quadratics, functions of one coordinate times
    linear ones. The curvature of the data then costs nothing, in any dimension.
    """
    with jax.enable_x64(True):
        domain = Box(-1.0, 2.0, dim=6)

        def data(x):
            return (
                jnp.dot(x, jnp.arange(36.0).reshape(6, 6) @ x) + jnp.sin(5.0 * x[0]) * x[1] * x[2]
            )

        field, x = lift(data, domain), np.random.default_rng(0).uniform(-1.0, 2.0, (100, 6))
        np.testing.assert_allclose(jax.jit(jax.vmap(field.value))(x), jax.vmap(data)(x), rtol=1e-12)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("domain", DOMAINS[:3], ids=repr)
def test_the_residual_of_the_extension_is_square_integrable(domain):
    """The largest (Lap f)^2 of 10 and of 10,000 points differ little: the integrand is bounded."""
    with jax.enable_x64(True):
        field = lifted(domain)
        laplacian = jax.jit(jax.vmap(lambda x: field.trace(x, Identity())))
        square = np.asarray(laplacian(domain.sample(jr.key(1), 10_000))) ** 2
        assert square.max() < 20 * np.sort(square[:1_000])[-10:].mean()


@pytest.mark.slow
def test_a_smooth_fit_alone_is_nearly_right():
    """Quadratic data are nearly reproduced, so the patch carries little."""
    with jax.enable_x64(True):
        domain = Annulus(5, inner=0.5, outer=1.0)
        field = lift(lambda x: 1.0 + x[0] - 2.0 * x[1] * x[2], domain)
        x = domain.sample(jr.key(0), 100)
        expected = 1.0 + x[:, 0] - 2.0 * x[:, 1] * x[:, 2]
        np.testing.assert_allclose(jax.jit(jax.vmap(field.value))(x), expected, atol=2e-3)


def test_a_lift_is_a_boundary_function():
    domain = Ball(3)
    problem = Problem(domain, lambda x, u: u.laplacian, boundary=lift(wavy, domain))
    assert problem.orientation == 1


DIRECTION = np.array([1.0, -2.0, 0.5, 0.0, 1.5])
FITTED = {
    "sum": lambda x: jnp.sum(jnp.cos(2.0 * x) * jnp.arange(1.0, 6.0)) + x[0] * x[3],
    "direction": lambda x: jnp.sin(2.0 * jnp.dot(DIRECTION, x)) + jnp.dot(DIRECTION, x) ** 2,
    "both": lambda x: jnp.exp(x[1]) + x[0] * x[1] - 2.0 * x[2] * x[4],
}


@pytest.mark.daily("both")
@pytest.mark.parametrize("kind", FITTED)
def test_a_box_needs_no_patch_where_the_fit_is_exact(kind):
    """Values of the fit, and its derivatives in closed form, are those of the data, also at corners."""
    with jax.enable_x64(True):
        domain, data = Box(-0.5, [1.0, 1.0, 2.0, 1.0, 1.0]), FITTED[kind]
        field = lift(data, domain)
        assert isinstance(field, Approximation)
        assert isinstance(field.field, Smooth)
        assert 0 < float(field.miss) < 1e-10
        full = np.random.default_rng(2).normal(size=(5, 5))
        form = Matrix(jnp.asarray(full + full.T))
        u = np.random.default_rng(1).uniform(size=(40, 5))
        u[20:] = np.round(u[20:])
        x = domain.lower[None] + (domain.upper - domain.lower)[None] * u

        @jax.jit
        @jax.vmap
        def both(x):
            h = jax.hessian(data)(x)
            traces = field.trace(x, Identity()), field.trace(x, form)
            ours = field.value(x), field.grad(x), *traces, field.hessian(x)
            return ours, (data(x), jax.grad(data)(x), jnp.trace(h), jnp.sum(h * form.a), h)

        for (ours, plain), digits in zip(zip(*both(x), strict=True), (11, 9, 7, 7, 7), strict=True):
            size = np.abs(plain).max()
            np.testing.assert_allclose(ours, plain, rtol=0, atol=10.0**-digits * size)


@pytest.mark.slow
def test_derivatives_across_the_boundary_are_not_used():
    """Data that differ off the boundary only, in the derivative across it as well, give the same fit."""
    with jax.enable_x64(True):
        domain = Box(0.0, 1.0, dim=4)

        def other(x):
            return jnp.sin(jnp.sum(x)) + 5.0 * jnp.prod(x * (1.0 - x)) + 3.0 * domain.distance(x)

        one, two = lift(lambda x: jnp.sin(jnp.sum(x)), domain), lift(other, domain)
        assert isinstance(one, Approximation)
        assert isinstance(one.field, Smooth)
        x = np.random.default_rng(0).uniform(size=(50, 4))
        value = [jax.vmap(field.value)(jnp.asarray(x)) for field in (one, two)]
        np.testing.assert_allclose(*value, rtol=1e-11)


def test_a_box_asks_before_it_gets_expensive(monkeypatch):
    with jax.enable_x64(True):
        domain = Box(0.0, 1.0, dim=8)

        def data(x):
            return jnp.exp(-jnp.dot(x, x) / 8) * (1.0 + x[0] * x[1])

        monkeypatch.setattr(_lift, "_PATCHED", 7)
        with pytest.raises(ValueError, match=r"misses up to .* 1,024 second derivatives.*patch=F"):
            lift(data, domain)
        field = lift(data, domain, patch=False)
        edge, _ = points(domain)
        gap = np.asarray(jax.jit(jax.vmap(field.value))(edge) - jax.vmap(data)(edge))
        assert 1e-10 < np.abs(gap).max() < 0.1


def test_a_patch_can_be_asked_for():
    with jax.enable_x64(True):
        domain = Box(0.0, 1.0, dim=3)
        fitted, patched = (lift(lambda x: x @ x, domain, patch=p) for p in (None, True))
        assert isinstance(fitted, Approximation)
        assert not isinstance(patched, Approximation)
        x = np.random.default_rng(0).uniform(size=(50, 3))
        values = [jax.jit(jax.vmap(field.value))(x) for field in (fitted, patched)]
        np.testing.assert_allclose(*values, rtol=1e-12)


class Slab(Box):
    """A domain that offers `lift` nothing."""

    @property
    def fills_box(self) -> bool:
        return False


def test_wrong_use():
    with pytest.raises(ValueError, match=r"scalar of shape \(\), got \(3,\)"):
        lift(lambda x: x, Ball(3))
    with pytest.raises(ValueError, match="not finite everywhere on the boundary"):
        lift(lambda x: jnp.log(x[0]), Ball(3))
    with pytest.raises(ValueError, match="not finite everywhere on the boundary"):
        lift(lambda x: jnp.exp(800.0 * x[0] + 800.0) * x[1], Ball(3))
    with pytest.raises(
        ValueError, match="lift knows boxes and .*not Slab. Give a function on the closure"
    ):
        lift(wavy, Slab([0.0, 0.0], 1.0))
