"""Values from random walks: the laws that are drawn, the means, the intervals.

Seeds are fixed, so a test passes or fails for good; the false-alarm rate is the chance that a new seed fails
although the code is right. A mean beyond four standard errors: 6e-5 each.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, special, stats
from truth import exact_values

import qpde
from qpde import Annulus, Ball, Box, Ellipsoid, Interval, Problem, Shallow, zoo
from qpde._equation.generator import Generator
from qpde._motion import pool as _pool
from qpde._motion.spheres import Spheres, beyond, hypergeometric
from qpde._precision import x64
from qpde._trust.peak import unseen_source
from qpde._walks import splitting as _splitting

pytestmark = pytest.mark.trains

QUICK: dict[str, Any] = {"network": Shallow(16), "batch": 128, "steps": 300, "progress": False}


def solve(problem, **options):
    return qpde.solve(problem, **(QUICK | options))


@pytest.fixture(scope="module")
def survival(solved):
    return solved("ball")


def inner(problem, n, seed=0):
    """Uniform points, drawn a little towards the centre, where the sums are less skewed."""
    with jax.enable_x64(True):
        points = np.asarray(problem.domain.sample(jr.key(seed), n))
    if isinstance(problem.domain, Annulus):
        return points
    return problem.domain.centre + 0.8 * (points - problem.domain.centre)


def excess(estimate, exact):
    """The mean error over all points, in its standard errors."""
    error = np.sqrt(np.sum(estimate.standard_error**2))
    return abs(np.sum(estimate.value - exact)) / (error + np.sum(estimate.bias))


def covered(estimate, exact):
    return np.mean((estimate.low <= exact) & (exact <= estimate.high))


def estimate(thing, points, **options):
    return qpde.feynman_kac(thing, points, progress=False, **options)


# The laws of a step.


def one_step(dim, gamma, n=2**17):
    with jax.enable_x64(True):
        scheme, one = Spheres(Ball(dim), gamma), jnp.ones(n)
        step = eqx.filter_jit(scheme.step)(jnp.zeros((n, dim)), one, 1e-6 * one, jr.key(dim))
        return jax.tree.map(np.asarray, step)


@pytest.mark.parametrize("dim", [1, 2, 20])
def test_source_points_have_the_green_density(dim):
    """Kolmogorov-Smirnov at 1e-5."""

    def cumulative(t):
        if dim == 1:
            return 2 * t - t**2
        if dim == 2:
            return t**2 * (1 - 2 * np.log(t))
        return (t**2 / 2 - t**dim / dim) / (1 / 2 - 1 / dim)

    step = one_step(dim, 0.0)
    t = np.linalg.norm(step.source, axis=1)
    assert stats.kstest(t, cumulative).pvalue > 1e-5
    np.testing.assert_allclose(step.mass, 1 / dim)
    # The direction: unit vectors, all of whose coordinates have mean square 1/d.
    np.testing.assert_allclose(np.sum(step.x**2, axis=1), 1, atol=1e-12)
    spread = np.std(step.x**2, axis=0) / np.sqrt(len(t))
    assert np.all(np.abs(np.mean(step.x**2, axis=0) - 1 / dim) <= 5 * spread + 1e-12)


@pytest.mark.parametrize("dim", [1, 2, 3, 20])
@pytest.mark.parametrize("kappa", [0.05, 1.0, 16.0])
def test_the_screening_factor_is_the_ratio_of_green_functions(dim, kappa):
    series = hypergeometric(dim, kappa)

    def radial(t):
        return np.polyval(series, kappa * t * t)

    def above(function, t):
        return integrate.quad(function, t, 1, epsabs=0, epsrel=1e-11)[0]

    np.testing.assert_allclose(radial(1.0), special.hyp0f1(dim / 2, kappa), rtol=1e-13)
    a, nu = 2 * np.sqrt(kappa), dim / 2 - 1
    for t in (0.05, 0.3, 0.9):
        density = above(lambda s, t=t: (t / s) ** (dim - 1), t)
        screened = above(lambda s, t=t: (t / s) ** (dim - 1) / radial(s) ** 2, t)
        factor = radial(t) * screened / density
        if dim == 1:
            expected = np.sinh(a * (1 - t)) / (a * np.cosh(a) * (1 - t))
        else:
            ratio = special.kv(nu, a) / special.iv(nu, a)
            green = special.kv(nu, a * t) - ratio * special.iv(nu, a * t)
            if dim == 2:
                expected = green / -np.log(t)
            else:
                start = 2 / special.gamma(nu) * (a / 2) ** nu
                expected = start * t**-nu * green / (t ** (-2 * nu) - 1)
        np.testing.assert_allclose(factor, expected, rtol=1e-8)


@pytest.mark.parametrize("dim", [1, 2, 3, 20, 100])
def test_the_outer_radius_has_its_density(dim):
    """Its distribution function, inverted."""
    q, t = np.meshgrid(np.linspace(0.01, 1, 50), [1e-4, 0.3, 0.99])
    s = beyond(t, q, dim)
    assert np.all((s >= t * (1 - 1e-15)) & (s <= 1))
    if dim == 2:
        share = np.log(s) / np.log(t)
    else:
        # (s^-p - 1) / (t^-p - 1), without overflow.
        p = dim - 2
        share = ((t / s) ** p - t**p) / (1 - t**p)
    np.testing.assert_allclose(share, q, rtol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 20])
def test_the_mass_of_a_step_is_the_discounted_time(dim):
    """`(1 - m) / gamma`, within 4 standard errors."""
    gamma = 5.0
    step = one_step(dim, gamma)
    m = 1 / special.hyp0f1(dim / 2, gamma / 2)
    np.testing.assert_allclose(step.decay, m, rtol=1e-13)
    error = np.std(step.mass) / np.sqrt(len(step.mass))
    assert abs(np.mean(step.mass) - (1 - m) / gamma) <= 4 * error


# Means.

PROBLEMS = {
    "survival-1-5": lambda: zoo.survival(1, discount=5.0),
    "survival-3-0": lambda: zoo.survival(3, discount=0.0),
    "survival-3-5000": lambda: zoo.survival(3, discount=5_000.0),
    "survival-20": lambda: zoo.survival(20),
    "box-3": lambda: zoo.poisson_sine(3),
    "ellipsoid-3": lambda: zoo.ellipsoid(3),
    "annulus-2": lambda: zoo.annulus(2),
    "annulus-3": lambda: zoo.annulus(3),
}


@pytest.mark.daily("survival-3-0")
@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "annulus-3"])
def test_plain_walks_are_unbiased(name):
    problem = PROBLEMS[name]()
    points = inner(problem, 8)
    result = estimate(problem, points, walks=1_500 if problem.dim < 20 else 300)
    assert (result.method, result.corrected) == ("walk on spheres", False)
    exact = exact_values(problem, points)
    assert excess(result, exact) <= 4
    # Chi-square with 8 degrees of freedom: 1e-6.
    assert np.sum(((result.value - exact) / result.standard_error) ** 2) < 42
    assert np.all(result.bias < 0.01 * np.max(np.abs(exact)))


@pytest.mark.daily("box-3")
@pytest.mark.parametrize("name", ["survival-1-5", "box-3", "annulus-3"])
def test_corrected_walks_are_unbiased_and_vary_less(name):
    problem = PROBLEMS[name]()
    solution = solve(problem)
    points = inner(problem, 8)
    result, plain = (estimate(thing, points, walks=1_500) for thing in (solution, problem))
    assert result.corrected
    assert result.with_network.all()
    assert np.all(result.walks == plain.walks)
    assert (
        plain.work < result.work < 1.1 * plain.work
    )  # the same walks, and 64 that chose the network
    assert excess(result, exact_values(problem, points)) <= 4
    ratio = np.median((plain.standard_error / result.standard_error) ** 2)
    assert ratio > 5


def test_a_bad_network_is_corrected_too():
    problem = zoo.survival(3)
    solution = solve(problem, steps=0)
    points = inner(problem, 8)
    result = estimate(solution, points, walks=2_000)
    assert excess(result, exact_values(problem, points)) <= 4


@pytest.mark.slow
def test_a_soft_boundary_is_made_good():
    problem = Problem(
        Ball(2),
        lambda x, u: u.laplacian - u.value,
        lambda x: jnp.exp(x[0]),
        exact=lambda x: jnp.exp(x[0]),
    )
    solution = solve(problem, rule=qpde.Penalty())
    points = inner(problem, 8)
    exact = exact_values(problem, points)
    assert np.max(np.abs(solution(points) - exact)) > 1e-3
    result, plain = (estimate(thing, points, walks=2_000) for thing in (solution, problem))
    assert excess(result, exact) <= 4
    assert excess(plain, exact) <= 4
    assert np.all(result.standard_error < plain.standard_error)


@pytest.mark.slow
def test_the_other_orientation_and_another_scale():
    problem = Problem(
        Box(-1.0, 1.0, dim=2),
        lambda x, u: 3.0 * u.value - 2.0 * u.trace(jnp.eye(2)) - jnp.cos(x[0]) * 5.0,
        lambda x: jnp.cos(x[0]),
        exact=lambda x: jnp.cos(x[0]),
    )
    points = inner(problem, 6)
    result = estimate(problem, points, walks=2_000)
    assert result.method == "walk on spheres"
    assert excess(result, exact_values(problem, points)) <= 4


@pytest.mark.slow
def test_a_hundred_dimensions():
    problem = zoo.survival(100)
    points = inner(problem, 2)
    result = estimate(problem, points, walks=60)
    assert excess(result, exact_values(problem, points)) <= 4


# Diffusions in time steps.


def manufactured(domain, coefficients, wanted):
    """A problem with given `A(x), b(x), c(x)` whose solution is `wanted`."""

    def equation(x, u):
        a, b, c = coefficients(x)
        grad, hessian = jax.grad(wanted)(x), jax.hessian(wanted)(x)
        source = jnp.sum(a * hessian) + jnp.dot(b, grad) - c * wanted(x)
        return u.trace(a) + u.along(b) - c * u.value - source

    return Problem(domain, equation, wanted, exact=wanted)


def tilted(x):
    return jnp.asarray([[1.0, 0.4], [0.4, 0.5]]), -x, 1.0


def varying(x):
    return (1.0 + 0.5 * jnp.sin(x[0])) * jnp.eye(2), x, x[1] ** 2


def full(x):
    v = jnp.stack([jnp.ones_like(x[0]), x[0]])
    return 0.3 * jnp.eye(2) + 0.5 * jnp.outer(v, v), jnp.zeros(2), 0.2


def degenerate(x):
    v = jnp.stack([jnp.ones_like(x[0]), 0.5 * x[1]])
    return 0.5 * jnp.outer(v, v), jnp.stack([jnp.zeros_like(x[0]), jnp.ones_like(x[0])]), 0.5


@pytest.mark.daily("tilted")
@pytest.mark.parametrize(
    "coefficients",
    [tilted, degenerate, *(pytest.param(c, marks=pytest.mark.slow) for c in (varying, full))],
)
def test_diffusions_in_time_steps(coefficients):
    """Within 4 standard errors beside the bias that is stated."""
    domain = Ellipsoid([1.0, 0.7]) if coefficients is varying else Ball(2)
    problem = manufactured(domain, coefficients, lambda x: jnp.sin(2 * x[0]) + x[1] ** 2)
    points = inner(problem, 6)
    result = estimate(problem, points, walks=300)
    assert result.method == "Euler-Maruyama"
    assert "quarter" in result.bias_source
    exact = exact_values(problem, points)
    error = np.sqrt(np.sum(result.standard_error**2))
    assert abs(np.sum(result.value - exact)) <= 4 * error + np.sum(result.bias)
    assert np.all(result.bias < 0.2)


@pytest.mark.slow
def test_time_steps_agree_with_spheres():
    """The same problem, once with a drift of zero that a sample cannot tell from none."""
    problem = zoo.survival(3, discount=5.0)
    points = inner(problem, 6)
    drifting = Problem(
        Ball(3),
        lambda x, u: problem.equation(x, u) + u.along(1e-6 * x),
        exact=problem.exact,
    )
    result = estimate(drifting, points, walks=400)
    assert result.method == "Euler-Maruyama"
    assert excess(result, exact_values(problem, points)) <= 4


@pytest.mark.slow
def test_the_drift_of_the_zoo_with_a_network():
    problem = zoo.drift(10)
    solution = solve(problem, network=Shallow(64), steps=1_000)
    points = inner(problem, 8)
    exact = exact_values(problem, points)
    result, plain = (estimate(thing, points, walks=100) for thing in (solution, problem))
    assert excess(result, exact) <= 4
    assert excess(plain, exact) <= 4
    assert np.median((plain.standard_error / result.standard_error) ** 2) > 20


# Use.


def test_the_accuracy_is_reached(survival):
    points = inner(survival.problem, 20)
    result = estimate(survival, points, accuracy=3e-3)
    assert result.reached is True
    size = np.sqrt(np.mean(result.value**2))
    assert np.all(result.high - result.low <= 2 * 3e-3 * size * (1 + 1e-9))
    assert covered(result, exact_values(survival.problem, points)) >= 0.75
    assert len(set(result.walks.tolist())) > 1  # as each point needs
    assert "accuracy reached" in repr(result)


def test_an_accuracy_beyond_reach_is_said_so(survival, monkeypatch):
    monkeypatch.setattr("qpde._walks.tally.MOST", 200)
    result = estimate(survival, inner(survival.problem, 3), accuracy=1e-7)
    assert result.reached is False
    assert "NOT reached" in repr(result)


def test_the_same_seed_gives_the_same_bits(survival):
    points = inner(survival.problem, 5)
    first, second, other = (estimate(survival, points, walks=50, seed=s) for s in (1, 1, 2))
    assert first.value.tobytes() == second.value.tobytes()
    assert first.standard_error.tobytes() == second.standard_error.tobytes()
    assert np.all(first.value != other.value)


def test_shapes_and_words(survival):
    result = estimate(survival, np.full(3, 0.1), walks=50)
    assert result.value.shape == result.low.shape == result.walks.shape == ()
    assert result.value.dtype == np.float64
    assert result.low < result.value < result.high
    assert result.reached is None
    assert result.walks == 50
    assert len(repr(result).splitlines()) == 3
    assert estimate(survival, np.zeros((0, 3)), walks=50).value.shape == (0,)
    assert "constant Laplacian" in result.bias_source
    wide = estimate(survival, np.full(3, 0.1), walks=50, confidence=0.999)
    assert wide.high > result.high


def test_boundary_points_have_the_boundary_values():
    problem = Problem(Interval(0.0, 2.0), lambda x, u: u.laplacian, lambda x: 1 + x[0])
    result = estimate(problem, np.array([[0.0], [1.0], [2.0]]), walks=100)
    np.testing.assert_array_equal(result.value[[0, 2]], [1.0, 3.0])
    np.testing.assert_array_equal(result.high[[0, 2]] - result.low[[0, 2]], 0.0)
    assert result.walks.tolist() == [0, 100, 0]
    assert result.low[1] <= 2.0 <= result.high[1]
    assert np.all(result.bias[[0, 2]] == 0)
    only = estimate(problem, np.array([2.0]), walks=100)
    assert only.value == 3.0


def test_many_jobs_come_in_several_buffers(survival, monkeypatch):
    """More walks than slots and than a buffer holds: every point gets its own number of them."""
    monkeypatch.setattr(_splitting, "_JOBS", 2_048)
    points = inner(survival.problem, 3)
    result = estimate(survival, points, walks=2_000)
    assert result.walks.tolist() == [2_000] * 3
    assert excess(result, exact_values(survival.problem, points)) <= 4


def test_the_program_tells_the_kind_of_operator():
    with jax.enable_x64(True):
        linear = Generator.of(zoo.survival(20).operator)
        assert (linear.scalar, linear.killing) == (0.5, 0.2)
        linear = Generator.of(zoo.drift(10).operator)
    assert linear.scalar is None
    assert linear.operator.isotropic
    assert linear.killing == pytest.approx(0.5)


def test_refusals(survival):
    points = np.zeros((1, 3))
    with pytest.raises(ValueError, match=r"not linear.*respect to u changes.*qpde\.certify"):
        estimate(zoo.semilinear(3), points)
    with pytest.raises(ValueError, match=r"respect to the derivatives of u"):
        estimate(Problem(Ball(3), lambda x, u: u.laplacian - jnp.dot(u.grad, u.grad)), points)
    with pytest.raises(ValueError, match=r"c = -2 < 0.*grow in weight"):
        estimate(Problem(Ball(3), lambda x, u: u.laplacian + 2 * u.value), points)
    with pytest.raises(ValueError, match=r"1 of 2 points lie outside Ball\(3\)"):
        estimate(survival, np.array([[0.0, 0, 0], [0, 0, 1.1]]))
    with pytest.raises(ValueError, match=r"1 of the points contain NaN"):
        estimate(survival, np.array([0.0, 0, np.nan]))
    with pytest.raises(ValueError, match=r"shape \(3,\) or \(n, 3\), got \(1, 2\)"):
        estimate(survival, np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"accuracy or walks, not both"):
        estimate(survival, points, accuracy=1e-3, walks=10)
    with pytest.raises(ValueError, match=r"accuracy must be a positive number"):
        estimate(survival, points, accuracy=0.0)
    with pytest.raises(ValueError, match=r"whole number from 2"):
        estimate(survival, points, walks=1)
    with pytest.raises(ValueError, match=r"confidence must lie between"):
        estimate(survival, points, confidence=95.0)


def test_walks_that_do_not_end_are_said_so(survival, monkeypatch):
    monkeypatch.setattr(_pool, "LIMIT", 3)
    result = estimate(survival.problem, inner(survival.problem, 3), walks=77)
    assert result.status is qpde.Status.UNFINISHED
    assert not result.status.successful
    assert np.all(result.unfinished > 0.1)
    assert np.all(np.isinf(result.high) & np.isinf(result.low))
    assert np.all(np.isfinite(result.value))
    assert "NO interval at 3 points" in repr(result)
    assert "had not left the domain" in repr(result)


# Coverage. At 200 points the share of 95 % intervals that hold has a standard deviation of 1.5 %; below
# 90 % has the chance 2e-3 if the true share is 95 %. Intervals that hold more often must not be much wider
# than they need to be: the estimated bias of time steps may add as much as the noise, and no more.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "dim", "walks"),
    [(zoo.survival, 10, 400), (zoo.survival, 20, 200), (zoo.drift, 10, 400)],
)
def test_coverage(build, dim, walks):
    problem = build(dim)
    solution = qpde.solve(problem, steps=3_000, progress=False)
    with jax.enable_x64(True):
        points = np.asarray(problem.domain.sample(jr.key(5), 200))
    exact = exact_values(problem, points)
    result = estimate(solution, points, walks=walks)
    assert covered(result, exact) >= 0.90
    assert np.all(
        result.standard_error > 0
    )  # also at points nearer to the boundary than most steps
    assert np.median((result.high - result.low) / (2 * 1.96 * result.standard_error)) <= 2
    aim = np.median(result.high - result.low) / np.sqrt(np.mean(exact**2))
    by_accuracy = estimate(solution, points, accuracy=float(aim))
    assert by_accuracy.reached
    assert covered(by_accuracy, exact) >= 0.90


@pytest.mark.slow
def test_a_trained_network_cuts_the_variance_in_twenty_dimensions():
    problem = zoo.survival(20)
    solution = qpde.solve(problem, steps=6_000, progress=False)
    points = inner(problem, 100)
    result, plain = (estimate(thing, points, walks=200) for thing in (solution, problem))
    assert np.median((plain.standard_error / result.standard_error) ** 2) > 2e4


def test_a_dependence_that_samples_do_not_show_is_refused():
    hidden = qpde.Problem(
        qpde.Ball(2), lambda x, u: u.laplacian + 1 - jax.lax.stop_gradient(30 * u.value**3)
    )
    with pytest.raises(ValueError, match="not linear"):
        qpde.feynman_kac(hidden, np.zeros((1, 2)), progress=False)


@pytest.mark.slow
def test_a_small_absorbing_disc_is_not_overlooked():
    """Killing at rate 4,000 in a disc of radius 0.05, where the walk begins: u is nearly 0."""

    def rate(x):
        return jnp.where(jnp.sum((x - jnp.array([0.0, 0.1])) ** 2) < 0.05**2, 4_000.0, 0.0)

    problem = qpde.Problem(
        qpde.Box([-1.0, -1.0], [1.0, 1.0]),
        lambda x, u: 0.5 * u.laplacian + 1 - rate(x) * u.value,
    )
    found = qpde.feynman_kac(problem, np.array([[0.0, 0.1]]), walks=200, progress=False)
    assert found.method == "Euler-Maruyama"
    assert found.high[0] < 0.05


@pytest.mark.slow
def test_quick_killing_is_integrated_over_a_step():
    """Killing and source 6,000 (1 + x / 10) and 6,000: u(0) is nearly 1."""
    problem = qpde.Problem(
        qpde.Interval(-1.0, 1.0),
        lambda x, u: 0.5 * u.laplacian - 6e3 * (1 + 0.1 * x[0]) * u.value + 6e3,
    )
    found = qpde.feynman_kac(problem, np.zeros((1, 1)), walks=200, progress=False)
    assert found.value[0] == pytest.approx(1, abs=0.01)


def test_kinks_in_the_data_leave_the_network_out():
    """Laplace's equation with data |x_1| on the circle: u(0) = 2 / pi."""
    problem = qpde.Problem(
        qpde.Ball(2), lambda x, u: u.laplacian, lambda x: jnp.abs(x[0]), blind_to_kinks=True
    )
    solution = qpde.solve(problem, steps=0, progress=False)
    with pytest.warns(UserWarning, match="not used as a control variate"):
        found = qpde.feynman_kac(solution, np.zeros((1, 2)), walks=2_000, progress=False)
    assert not found.corrected
    # Five standard errors: false alarms below one in a million.
    assert abs(found.value[0] - 2 / np.pi) < 5 * found.standard_error[0]


def test_no_source_has_no_peaks():
    """The drift makes a formula of a source that is zero everywhere."""
    problem = qpde.Problem(
        qpde.Box([-1.0] * 5, [1.0] * 5),
        lambda x, u: u.generator(drift=0.2 - x, sigma=0.4) - 0.05 * u.value,
        lambda x: jnp.exp(jnp.mean(x)),
    )
    with x64():
        assert unseen_source(problem.operator) == ""


@pytest.mark.slow
def test_walks_that_saw_nothing_do_not_reach_an_accuracy():
    """A source in a small ball that hardly any walk meets."""

    def source(x):
        return jnp.where(jnp.sum((x - jnp.array([0.6, 0.0, 0.0])) ** 2) < 0.02**2, 1e4, 0.0)

    problem = qpde.Problem(qpde.Ball(3), lambda x, u: 0.5 * u.laplacian + source(x))
    found = qpde.feynman_kac(problem, np.zeros((1, 3)), accuracy=1e-2, progress=False)
    # By the Green function of the ball u(0) is 0.0356; the first walks see no source at all.
    assert found.value[0] == found.standard_error[0] == 0
    assert np.isinf(found.high[0])
    assert np.isinf(found.low[0])
    assert found.reached is False
    assert "the source may rise to 1e+04" in repr(found)
    assert "NOT reached" in repr(found)
