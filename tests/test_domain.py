"""Geometry against independent computations: finite samples, known volumes, brute-force distances."""

import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_jet import assert_field_is_right

from qpde import Annulus, Ball, Box, Ellipsoid, Interval
from qpde._field.form import Identity

DOMAINS = {
    "interval": lambda d: Interval(-0.5, 2.0),
    "ball": lambda d: Ball(d, centre=0.2, radius=1.5),
    "box": lambda d: Box(-0.5, np.linspace(0.5, 2.0, d)),
    "ellipsoid": lambda d: Ellipsoid(np.linspace(0.5, 2.0, d), centre=-0.1),
    "annulus": lambda d: Annulus(d, inner=0.7, outer=1.8, centre=0.1),
}
CASES = [
    (name, d)
    for name, d in itertools.product(DOMAINS, [1, 3, 20, 100])
    if (name != "interval" or d == 1) and (name == "box" or d < 100)
]


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(("name", "dim"), CASES)
def test_eta_and_samples(name, dim):
    with jax.enable_x64(True):
        domain = DOMAINS[name](dim)
        inside, edge = domain.sample(jr.key(0), 4_000), domain.sample_boundary(jr.key(1), 4_000)
        assert inside.shape == edge.shape == (4_000, dim)
        assert np.all(jax.vmap(domain.contains)(inside))
        eta = jax.vmap(domain.eta.value)(inside)
        assert np.all((eta > 0) & (eta <= 1))
        np.testing.assert_allclose(jax.vmap(domain.eta.value)(edge), 0, atol=1e-13)
        assert np.all(jnp.linalg.norm(jax.vmap(domain.eta.grad)(edge), axis=1) > 0)
        if dim <= 20:
            for x in (inside[0], edge[0]):
                assert_field_is_right(domain.eta, x)
        lower, upper = domain.enclosing_box
        assert np.all((inside > lower[None]) & (inside < upper[None]))
        centre, radius = domain.enclosing_ball
        assert np.all(np.linalg.norm(edge - centre[None], axis=1) <= radius * (1 + 1e-12))


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(("name", "dim"), [c for c in CASES if c[1] <= 3])
def test_distance_is_a_lower_bound_and_tight_at_the_boundary(name, dim):
    with jax.enable_x64(True):
        domain = DOMAINS[name](dim)
        inside, edge = domain.sample(jr.key(0), 200), domain.sample_boundary(jr.key(1), 2_000)
        distance = jax.vmap(domain.distance)(inside)
        nearest = np.linalg.norm(inside[:, None] - edge[None], axis=-1).min(axis=1)
        assert np.all(distance > 0)
        assert np.all(distance <= nearest * (1 + 1e-12))
        assert distance.max() <= domain.inradius * (1 + 1e-12)
        # A step t along the inner normal: the distance is t to first order.
        normal = jax.vmap(domain.eta.grad)(edge)
        normal = normal / jnp.linalg.norm(normal, axis=1, keepdims=True)
        near = jax.vmap(domain.distance)(edge + 1e-6 * normal)
        # (On a box, 1e-6 is compared with the distance to the next face, which may be nearer.)
        share = np.mean(np.abs(near - 1e-6) < 1e-10)
        assert share > 0.999
        np.testing.assert_allclose(jax.vmap(domain.distance)(edge), 0, atol=1e-12)
        assert np.all(jax.vmap(domain.distance)(edge - 1e-3 * normal) < 0)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(("name", "dim"), [c for c in CASES if c[1] in (1, 3)])
def test_interior_sampler_is_uniform(name, dim):
    """Volume and second moments against rejection from the enclosing box; 5 sigma: false alarms
    below 1e-5 over all cases."""
    domain = DOMAINS[name](dim)
    lower, upper = domain.enclosing_box
    n = 200_000
    rng = np.random.default_rng(0)
    box = lower + (upper - lower) * rng.random((n, dim))
    hit = np.asarray(jax.vmap(domain.contains)(box))
    share = hit.mean()
    expected = domain.volume / np.prod(upper - lower)
    assert abs(share - expected) <= 5 * math.sqrt(max(expected * (1 - expected), 0) / n) + 1e-6
    ours = np.asarray(domain.sample(jr.key(0), n))
    theirs = box[hit]
    for power in (1, 2):
        a, b = ours**power, theirs**power
        sigma = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
        assert np.all(np.abs(a.mean(axis=0) - b.mean(axis=0)) < 5 * sigma)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(("name", "dim"), [c for c in CASES if c[1] == 3])
def test_boundary_sampler_is_uniform(name, dim):
    """The divergence theorem: the surface mean of n . F is (volume / area) times the mean of div F. With
    three fields the unknown area cancels. 5 sigma."""
    with jax.enable_x64(True):
        domain = DOMAINS[name](dim)
        n = 100_000
        edge, inside = domain.sample_boundary(jr.key(0), n), domain.sample(jr.key(1), n)
        normal = -jax.vmap(domain.eta.grad)(edge)
        normal = np.asarray(normal / jnp.linalg.norm(normal, axis=1, keepdims=True))
        x, y = np.asarray(edge), np.asarray(inside)
        # Fields x_1 e_1 (divergence 1), x_d e_d (1), x_1^3 e_1 (3 x_1^2).
        flux = [normal[:, 0] * x[:, 0], normal[:, -1] * x[:, -1], normal[:, 0] * x[:, 0] ** 3]
        mass = [np.ones(n), np.ones(n), 3 * y[:, 0] ** 2]
        for k in (1, 2):
            # mean(flux_k) mean(mass_0) = mean(flux_0) mean(mass_k)
            gap = flux[k] * mass[0].mean() - flux[0] * mass[k].mean()
            sigma = gap.std() / math.sqrt(n) + abs(flux[0].mean()) * mass[k].std() / math.sqrt(n)
            assert abs(gap.mean()) < 5 * sigma


def test_volumes():
    assert Ball(3, radius=2.0).volume == pytest.approx(32 * math.pi / 3)
    assert Interval(1.0, 4.0).volume == pytest.approx(3.0)
    assert Ellipsoid([1.0, 2.0, 3.0]).volume == pytest.approx(8 * math.pi)
    assert Annulus(2, inner=1.0, outer=2.0).volume == pytest.approx(3 * math.pi)
    assert Box(0.0, [1.0, 2.0, 3.0]).volume == pytest.approx(6.0)
    assert Ball(10_000).volume == 0.0
    # V_d = V_{d-2} 2 pi / d, V_0 = 1.
    recursion = sum(math.log(2 * math.pi / d) for d in range(2, 10_001, 2))
    assert Ball(10_000).log_volume == pytest.approx(recursion, rel=1e-12)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("dim", [1, 8, 9, 100])
def test_eta_of_a_box_is_of_order_one_in_every_dimension(dim):
    """The rms that the docstring promises; `python benchmarks/box_eta.py` prints the table."""
    with jax.enable_x64(True):
        domain = Box(0.0, 1.0, dim=dim)
        eta = np.asarray(jax.vmap(domain.eta.value)(domain.sample(jr.key(0), 50_000)))
        m = 2 * math.ceil(dim / 8)
        exact = (1 - 2 / (m + 1) + 1 / (2 * m + 1)) ** (dim / 2)
        assert np.sqrt(np.mean(eta**2)) == pytest.approx(exact, rel=0.05)
        assert 0.04 < exact < 0.74


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    ("dim", "outer"),
    [(1, 2.0), (2, 1.01), (2, 50.0), (3, 2.0), (10, 1.01), (10, 50.0), (100, 2.0)],
)
def test_eta_of_an_annulus_is_an_exit_time(dim, outer):
    """Constant Laplacian, maximum 1, zero with a slope on both spheres, right derivatives."""
    with jax.enable_x64(True):
        eta = Annulus(dim, inner=1.0, outer=outer).eta
        unit = jnp.full(dim, 1 / math.sqrt(dim))

        def along(function, r):
            return np.asarray(jax.jit(jax.vmap(function))(r[:, None] * unit[None]))

        # Dense near the inner sphere, where the layer is.
        r = 1 + (outer - 1) * jnp.linspace(0, 1, 20_001) ** 3
        values = along(eta.value, r)
        assert values.max() == pytest.approx(1, abs=1e-4)
        assert np.all(values[1:-1] > 0)
        np.testing.assert_allclose(values[[0, -1]], 0, atol=1e-11)
        slope = along(eta.grad, r[np.array([0, -1])]) @ np.asarray(unit)
        assert slope[0] * (outer - 1) > 1
        assert slope[1] * (outer - 1) < -1
        laplacian = along(lambda x: eta.trace(x, Identity()), r)
        np.testing.assert_allclose(laplacian, laplacian[0], rtol=1e-9)
        if dim <= 10:
            for where in (1.0, 1 + 0.01 * (outer - 1), 0.5 + 0.5 * outer, outer):
                assert_field_is_right(eta, where * unit)
        if dim == 1:
            parabola = 4 * (r - 1) * (outer - r) / (outer - 1) ** 2
            np.testing.assert_allclose(values, parabola, atol=1e-11)


def test_eta_of_an_annulus_in_single_precision():
    domain = Annulus(10, inner=1.0, outer=2.0)
    points = np.asarray(domain.sample(jr.key(0), 1_000))
    single = jax.vmap(domain.eta.value)(jnp.asarray(points, jnp.float32))
    assert single.dtype == jnp.float32
    with jax.enable_x64(True):
        double = jax.vmap(domain.eta.value)(jnp.asarray(points, jnp.float64))
        np.testing.assert_allclose(single, double, atol=2e-6)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("dim", [10_000])
def test_very_high_dimension(dim):
    for domain in (Ball(dim), Box(0.0, 1.0, dim=dim), Annulus(dim, inner=1.0, outer=2.0)):
        points = domain.sample(jr.key(0), 8)
        assert points.shape == (8, dim)
        assert np.all(np.isfinite(jax.vmap(domain.eta.value)(points)))


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ball(0), "dimension is a whole number from 1 up, got 0"),
        (lambda: Ball(-3), "dimension is a whole number from 1 up"),
        (lambda: Ball(3, radius=-1.0), "radius must be a positive number"),
        (lambda: Ball(3, centre=[0.0, 1.0]), "centre must be a finite number or a list of 3"),
        (lambda: Interval(1.0, 1.0), "lower < upper"),
        (lambda: Box([0.0, 1.0], [1.0, 1.0]), "lower < upper in every coordinate"),
        (lambda: Ellipsoid([1.0, -2.0]), "axes must be a list of positive numbers"),
        (lambda: Annulus(3, inner=2.0, outer=1.0), "inner < outer"),
    ],
)
def test_wrong_domains_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_domains_print_as_they_are_written():
    assert repr(Ball(20)) == "Ball(20)"
    assert repr(Ball(2, centre=[0.0, 1.0], radius=2.0)) == "Ball(2, centre=[0, 1], radius=2)"
    assert repr(Box(0.0, 1.0, dim=10)) == "Box([0] * 10, [1] * 10)"
    assert repr(Interval(-1.0, 1.0)) == "Interval(-1, 1)"


def test_an_interval_is_a_box():
    interval = Interval(-1.0, 2.0)
    assert type(interval) is Box
    assert interval.dim == 1
    np.testing.assert_array_equal(interval.enclosing_box, [[-1.0], [2.0]])
    assert repr(Box(-1.0, 2.0)) == "Interval(-1, 2)"
