"""Domains of one's own: the eight members they must write are enough for all that the library does."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib
import numpy as np
import pytest
import scipy.sparse as sparse
from scipy.sparse.linalg import eigsh, spsolve
from scipy.special import jn_zeros

matplotlib.use("Agg")

import matplotlib.pyplot as plt

import qpde
from qpde import AbstractDomain, Ball, Problem, certify, explain, feynman_kac, lift, plot
from qpde._domain.base import Fact
from qpde._field.base import Autodiff
from qpde._precision import copied
from qpde._problem.trial import Trial
from qpde._trust.residual import rough_parts

PEAK = 2 / (3 * math.sqrt(3))  # the largest t (1 - t^2)


class HalfDisc(AbstractDomain):
    """`|x| < 1` and `x_2 > 0`. Members that have a default are left to it."""

    @property
    def dim(self):
        return 2

    @property
    def eta(self):
        return Autodiff(half_eta)

    @property
    def enclosing_box(self):
        return (np.array([-1.0, 0.0]), np.array([1.0, 1.0]))

    @property
    def inradius(self):
        return 0.5

    @property
    def log_volume(self):
        return math.log(math.pi / 2)

    def distance(self, x):
        # The root is kept away from zero, where it has no derivative.
        return jnp.minimum(x[1], 1.0 - jnp.sqrt(jnp.sum(x * x) + 1e-300))

    def sample(self, key, n, dtype=float):
        points = Ball(2).sample(key, n)
        return points.at[:, 1].set(jnp.abs(points[:, 1]))

    def sample_boundary(self, key, n, dtype=float):
        side, place = jr.split(key)
        t = jr.uniform(place, (n,))
        curved = jr.bernoulli(side, math.pi / (math.pi + 2.0), (n,))
        arc = jnp.stack([jnp.cos(math.pi * t), jnp.sin(math.pi * t)], axis=1)
        floor = jnp.stack([2.0 * t - 1.0, jnp.zeros(n)], axis=1)
        return jnp.where(curved[:, None], arc, floor)


def half_eta(x):
    return x[1] * (1.0 - jnp.sum(x * x)) / PEAK


class Corner(AbstractDomain):
    """The square (-1, 1)^2 without its upper right quarter: not convex, with an `eta` that has a root."""

    @property
    def dim(self):
        return 2

    @property
    def eta(self):
        return Autodiff(corner_eta)

    @property
    def enclosing_box(self):
        return (-np.ones(2), np.ones(2))

    @property
    def inradius(self):
        return 2.0 - math.sqrt(2.0)

    @property
    def log_volume(self):
        return math.log(3.0)

    def distance(self, x):
        below = (x[0] < 0) & (x[1] < 0)
        from_corner = jnp.sqrt(jnp.where(below, jnp.sum(x * x), 1.0))
        notch = jnp.where(below, from_corner, jnp.maximum(-x[0], -x[1]))
        return jnp.minimum(1.0 - jnp.max(jnp.abs(x)), notch)

    def sample(self, key, n, dtype=float):
        square, third = jr.split(key)
        corners = jnp.array([[-1.0, -1.0], [-1.0, 0.0], [0.0, -1.0]])
        return jr.uniform(square, (n, 2)) + corners[jr.randint(third, (n,), 0, 3)]

    def sample_boundary(self, key, n, dtype=float):
        corners = jnp.array(
            [[-1, -1], [1, -1], [1, 0], [0, 0], [0, 1], [-1, 1], [-1, -1]], dtype=float
        )
        sides = jnp.linalg.norm(corners[1:] - corners[:-1], axis=1)
        which, place = jr.split(key)
        i = jr.categorical(which, jnp.log(sides), shape=(n,))
        return corners[i] + jr.uniform(place, (n, 1)) * (corners[i + 1] - corners[i])


def corner_eta(x):
    # Positive where x_1 < 0 or x_2 < 0 (an R-function), times a bubble of the square; at most 1.
    either = jnp.sqrt(jnp.sum(x * x)) - x[0] - x[1]
    return 0.5 * either * (1.0 - x[0] ** 2) * (1.0 - x[1] ** 2)


def five_points(domain, n):
    """The negative five-point Laplacian on the points of a grid of `n` cells a unit that lie inside."""
    lower, upper = domain.enclosing_box
    axes = [
        np.arange(round(a * n), round(b * n) + 1) / n for a, b in zip(lower, upper, strict=True)
    ]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    with jax.enable_x64(True):
        depth = jax.vmap(jax.vmap(domain.distance))(jnp.asarray(grid))
    inside = np.asarray(depth) > 1e-9
    number = np.where(inside, np.cumsum(inside).reshape(inside.shape) - 1, -1)
    total = int(inside.sum())
    rows, columns = [np.arange(total)], [np.arange(total)]
    for a, b in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1])):
        both = (a >= 0) & (b >= 0)
        rows += [a[both], b[both]]
        columns += [b[both], a[both]]
    where = np.concatenate(rows), np.concatenate(columns)
    entries = np.where(where[0] == where[1], 4.0, -1.0) * n**2
    return sparse.csc_array((entries, where), shape=(total, total)), grid[inside]


def grid_eigenvalue(domain, n):
    return float(eigsh(five_points(domain, n)[0], k=1, sigma=0.0, return_eigenvectors=False)[0])


def test_the_eigenvalue_of_a_half_disc():
    """Exactly the square of the first zero of J_1; the default comes from the enclosing box."""
    bound, exact = HalfDisc().first_eigenvalue, float(jn_zeros(1, 1)[0] ** 2)
    assert bound.how == "enclosing box"
    assert bound.value == pytest.approx(1.25 * math.pi**2, rel=1e-10)
    assert grid_eigenvalue(HalfDisc(), 64) == pytest.approx(exact, rel=0.03)
    assert 0.8 * exact < bound.value < exact


def test_the_eigenvalue_of_a_square_without_a_quarter():
    """9.6397 (Fox, Henrici and Moler 1967); the default comes from the volume."""
    bound = Corner().first_eigenvalue
    assert bound.how == "Faber-Krahn, ball of equal volume"
    assert bound.value == pytest.approx(math.pi / 3 * jn_zeros(0, 1)[0] ** 2, rel=1e-10)
    found = grid_eigenvalue(Corner(), 48)
    assert found == pytest.approx(9.6397, rel=0.01)
    assert 0.6 * found < bound.value < found


@pytest.mark.parametrize("domain", [HalfDisc(), Corner()], ids=["half disc", "corner"])
def test_defaults_hold(domain):
    """The samples, the ball, the width, membership and means, against each other and a grid."""
    with jax.enable_x64(True):
        inside = domain.sample(jr.key(0), 20_000)
        edge = np.asarray(domain.sample_boundary(jr.key(1), 20_000))
        assert np.all(jax.vmap(domain.contains)(inside))
        np.testing.assert_allclose(jax.vmap(domain.distance)(jnp.asarray(edge)), 0, atol=1e-12)
        layers, weights = domain.sample_layers(jr.key(0), 20_000)
    centre, radius = domain.enclosing_ball
    reach = np.linalg.norm(edge - centre, axis=1).max()
    assert 0.85 * radius < reach <= radius * (1 + 1e-12)
    far = np.linalg.norm(edge[:200, None] - edge[None, :2_000], axis=-1).max()
    assert far <= domain.width == 2 * radius
    np.testing.assert_array_equal(layers, inside)
    np.testing.assert_array_equal(weights, 1.0)
    points, weights = domain.nodes(20_000, seed=3)
    assert points.dtype == np.float64
    assert weights.sum() == pytest.approx(1.0)
    _, grid = five_points(domain, 64)
    for power in (1, 2):
        mean, exact = weights @ points**power, np.mean(grid**power, axis=0)
        # Five standard errors and the error of the grid.
        assert np.all(np.abs(mean - exact) < 5 * (points**power).std(axis=0) / 141 + 0.01)
    nothing = (domain.round, domain.smooth_boundary, domain.sloped_eta, domain.sheets)
    assert nothing == (None, None, None, ())
    assert not domain.convex
    assert not domain.fills_box
    with pytest.raises(ValueError, match="lift knows boxes.* not .*Give a function on the closure"):
        lift(lambda x: x[0], domain)
    with pytest.raises(ValueError, match="A radial law lives on a qpde.Ball, got"):
        qpde.Radial(domain, 2.0)


def exact(x):
    return PEAK * half_eta(x) * jnp.exp(x[0])


def equation(x, u):
    """`Lap u = e^(x_1) (Lap v + 2 dv/dx_1 + v)` for `u = e^(x_1) v` and `v = x_2 (1 - |x|^2)`."""
    return u.laplacian + jnp.exp(x[0]) * (8.0 * x[1] + 4.0 * x[0] * x[1] - PEAK * half_eta(x))


@pytest.fixture(scope="module")
def solved():
    problem = Problem(HalfDisc(), equation, exact=exact, name="half")
    return qpde.solve(problem, steps=200, progress=False)


@pytest.mark.slow
def test_bounds_on_a_half_disc_hold(solved):
    with jax.enable_x64(True):
        x = np.asarray(HalfDisc().sample(jr.key(5), 20_000))
        gap = solved(x) - np.asarray(jax.vmap(exact)(x))
    found = certify(solved)
    error = float(np.sqrt(np.mean(gap**2)))
    assert error < 0.01
    assert error <= found.bound <= 40 * error
    assert (found.kind, found.factor) == ("statistical", pytest.approx(0.8 / math.pi**2))
    assert np.abs(gap).max() <= certify(solved, norm="sup").bound
    rigorous = certify(solved, rigorous=True)
    assert found.residual <= rigorous.residual


@pytest.mark.slow
def test_a_half_disc_is_explained(solved):
    found = {finding.name: finding for finding in explain(solved.problem).findings}
    assert found["smooth boundary"].verdict is qpde.Answer.UNKNOWN
    assert "HalfDisc is a domain of your own" in found["smooth boundary"].text
    assert found["boundary factor eta"].basis == "sampled"


def test_walks_on_a_half_disc(solved):
    points = np.array([[0.0, 0.5], [0.6, 0.2], [-0.3, 0.8]])
    truth = points[:, 1] * (1.0 - np.sum(points**2, axis=1)) * np.exp(points[:, 0])
    # Three intervals of 99.9 % at a fixed seed: a false alarm in three thousand.
    found = feynman_kac(solved, points, walks=1_000, confidence=0.999, progress=False)
    assert np.all((found.low <= truth) & (truth <= found.high))
    assert np.all(found.high - found.low < 0.01)
    assert "an estimate, shell times width: a bound if the domain is convex" in found.bias_source


class ConvexHalfDisc(HalfDisc):
    """The same domain, which now says more of itself."""

    @property
    def convex(self):
        return True

    @property
    def width(self):
        return 2.0

    @property
    def smooth_boundary(self):
        return Fact(False, "a half disc has two corners")

    @property
    def sloped_eta(self):
        return Fact(False, "its slope is zero in the corners")


def test_a_domain_that_says_more_is_believed():
    problem = Problem(ConvexHalfDisc(), lambda x, u: u.laplacian + 8.0 * x[1])
    found = feynman_kac(problem, np.array([[0.0, 0.5]]), walks=200, progress=False)
    assert "at most shell times width, for a convex domain" in found.bias_source
    # Half the shell times the width times the largest |L f|: the generator is half the Laplacian.
    largest = float(found.bias.max()) / (0.5 * 0.5e-6 * 2.0)
    assert 7.9 < largest <= 8.0
    text = {finding.name: finding.text for finding in explain(problem).findings}
    assert text["smooth boundary"].endswith("(C^3); a half disc has two corners.")
    assert text["boundary factor eta"] == "its slope is zero in the corners."


@pytest.mark.slow
def test_walks_where_the_domain_is_not_convex():
    """`Lap u + 1 = 0` against five-point differences, right to 1e-3; 99.9 % at a fixed seed."""
    points = np.array([[-0.5, -0.5], [-0.25, -0.125], [0.5, -0.5]])
    problem = Problem(Corner(), lambda x, u: u.laplacian + 1.0)
    found = feynman_kac(problem, points, walks=2_000, confidence=0.999, progress=False)
    matrix, grid = five_points(Corner(), 64)
    values = np.asarray(spsolve(matrix, np.ones(len(grid))))
    nearest = [int(np.argmin(np.sum((grid - p) ** 2, axis=1))) for p in points]
    truth = values[nearest]
    assert np.all((found.low - 1e-3 <= truth) & (truth <= found.high + 1e-3))
    assert np.all(found.high - found.low < 0.05)


def test_a_slice_shows_the_domain_and_nothing_else(solved):
    axes = plot.slice(solved)
    shown = next(ax for ax in axes if ax.collections or ax.images)
    array = (shown.images or shown.collections)[0].get_array()
    blank = np.ma.getmaskarray(array) | ~np.isfinite(np.ma.getdata(array))
    # The half disc has the area pi / 2; the picture adds 0.06 on every side of the box.
    assert 1.0 - blank.mean() == pytest.approx(0.5 * math.pi / (2.12 * 1.12), rel=0.01)
    assert "radial" not in plot.suited(solved)
    with pytest.raises(ValueError, match="needs a ball or an annulus, got HalfDisc"):
        plot.radial(solved)
    plt.close("all")


class Tent(HalfDisc):
    """A half disc with a kink of `eta` along `x_1 = 0`, which nobody vouches for."""

    @property
    def eta(self):
        return Autodiff(lambda x: half_eta(x) * (1.0 - 0.5 * jnp.abs(x[0])))


def test_an_eta_with_a_kink_gets_no_bound(solved):
    """`L Q` does not see the kink: a bound from it would be too small."""
    problem = Problem(Tent(), equation)
    trials = {
        exact_boundary: Trial.of(problem, solved.trial.network, exact_boundary=exact_boundary)
        for exact_boundary in (True, False)
    }
    parts = {key: rough_parts(trial, copied(Tent())) for key, trial in trials.items()}
    assert parts == {True: ["the boundary factor eta"], False: []}
    kinked = dataclasses.replace(solved, problem=problem, trial=trials[True])
    with pytest.raises(ValueError, match="the boundary factor eta may have kinks or jumps"):
        certify(kinked)
