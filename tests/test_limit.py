"""The infinitely wide network: its field, its flow, its fixed point."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import qpde
from qpde import activations
from qpde._form import Identity, Matrix
from qpde._kernel import TangentKernel
from qpde._kernel_field import KernelField
from qpde._limit import LinearFlow
from qpde._limit_system import System
from qpde._nodes import nodes

PAPER = qpde.Shallow(1, activation=activations.sigmoid, scale=1.0, normalise=False)


@pytest.mark.parametrize(
    "domain",
    [
        qpde.Ball(3, centre=1.0, radius=2.0),
        qpde.Ellipsoid([1.0, 2.0, 0.5]),
        qpde.Annulus(4, inner=1.0, outer=2.0),
        qpde.Box([0.0, 1.0], [1.0, 3.0]),
        qpde.Interval(1.0, 3.0),
    ],
    ids=repr,
)
def test_nodes_lie_inside_and_integrate(domain):
    """Means of x and |x|^2: Monte Carlo of 2e5 points has a standard error of about 3e-3."""
    points, weights = nodes(domain, 1_024)
    with jax.enable_x64(True):
        assert bool(jnp.all(jax.vmap(domain.contains)(jnp.asarray(points))))
        sample = np.asarray(domain.sample(jax.random.key(0), 200_000))
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(weights @ points, sample.mean(axis=0), atol=0.02)
    squares = np.sum(sample**2, axis=1).mean()
    assert weights @ np.sum(points**2, axis=1) == pytest.approx(squares, rel=0.02)


@pytest.mark.parametrize(("dim", "scale"), [(1, 1.0), (3, 0.6)])
def test_the_field_is_the_sum_of_kernels_and_knows_its_derivatives(dim, scale):
    rng = np.random.default_rng(0)
    y, weights = rng.uniform(-0.5, 0.5, (20, dim)), rng.standard_normal(20)
    centre, half = rng.standard_normal(dim), rng.uniform(0.5, 2.0, dim)
    kernel = TangentKernel(activations.sigmoid, scale=scale)
    field = KernelField.of(kernel, y, weights, reach=1.0, centre=centre, half=half)
    framed = rng.uniform(-0.5, 0.5, (5, dim))
    x = centre + half * framed
    matrix = rng.standard_normal((dim, dim))
    with jax.enable_x64(True):
        points = jnp.asarray(x)
        value = jax.vmap(field.value)(points)
        np.testing.assert_allclose(value, kernel(framed, y) @ weights, atol=1e-12)
        grad = np.einsum("nmd,m->nd", kernel.grad(framed, y), weights) / half
        np.testing.assert_allclose(jax.vmap(field.grad)(points), grad, atol=1e-12)
        hessian = np.einsum("nmde,m->nde", kernel.hessian(framed, y), weights)
        hessian = hessian / half[:, None] / half[None]
        np.testing.assert_allclose(jax.vmap(field.hessian)(points), hessian, atol=1e-11)
        np.testing.assert_allclose(jax.vmap(jax.hessian(field.value))(points), hessian, atol=1e-10)
        for form, a in ((Identity(), np.eye(dim)), (Matrix(jnp.asarray(matrix)), matrix)):
            found = jax.vmap(lambda x, form=form: field.trace(x, form))(points)
            np.testing.assert_allclose(found, np.einsum("nde,de->n", hessian, a), atol=1e-11)


def test_a_kernel_too_rough_for_its_table_is_refused():
    kernel = TangentKernel(activations.tanh, scale=1.0)
    with pytest.raises(ValueError, match=r"Lower scale|Lower the network's scale"):
        KernelField.of(
            kernel, np.zeros((2, 1)), np.ones(2), reach=9.0, centre=np.zeros(1), half=np.ones(1)
        )


@pytest.mark.parametrize(("time", "least"), [(1e2, 1e-2), (1e4, 5e-4), (1e6, 5e-5)])
def test_one_dimension_after_some_time(time, least):
    problem = qpde.zoo.survival(1, discount=0.1)
    system = System(problem, PAPER, 80)
    exact = system.values(problem.exact)
    gap = system.f + system.phi @ LinearFlow(system, 1.0)(time) - exact
    assert math.sqrt(system.weights @ gap**2 / (system.weights @ exact**2)) < least


def test_the_fixed_point_is_exact_and_a_solution_like_any_other(tmp_path):
    problem = qpde.zoo.survival(1, discount=0.1)
    solution = qpde.solve_limit(problem, network=PAPER, nodes=60, record=[1.0, 100.0])
    assert solution.status is qpde.Status.FINISHED
    x = np.linspace(-1, 1, 21)[:, None]
    with jax.enable_x64(True):
        exact = np.asarray(jax.vmap(problem.exact)(jnp.asarray(x)))
    np.testing.assert_allclose(solution(x), exact, atol=1e-6)
    # Values are sums of large terms: their rounding, about 1e-12, limits the quotient.
    slope = (solution(x[1:-1] + 1e-3) - solution(x[1:-1] - 1e-3)) / 2e-3
    np.testing.assert_allclose(solution.grad(x[1:-1])[:, 0], slope, atol=1e-6)
    assert np.abs(solution.residual(x)).max() < 1e-3
    limit = solution.limit
    assert limit is not None
    np.testing.assert_array_equal(limit.times, [1.0, 100.0, math.inf])
    assert np.all(np.diff(limit.loss) < 0)
    assert limit.regularisation < 1e-9
    np.testing.assert_allclose(limit.spectrum[:2].real, [-0.2198, -0.0220], atol=1e-4)
    qpde.save(solution, tmp_path / "limit.safetensors")
    again = qpde.load(tmp_path / "limit.safetensors")
    np.testing.assert_array_equal(again(x), solution(x))
    bound = qpde.certify(again)
    assert 0 < bound.bound < 1e-3


def test_the_linear_flow_against_an_integrator():
    """The same equation in the coordinates V of the paper, by an integrator of SciPy."""
    problem = qpde.zoo.survival(1, discount=0.1)
    system = System(problem, PAPER, 24)
    matrix, force = system.flow()
    done = scipy.integrate.solve_ivp(
        lambda t, q: force + matrix @ q, (0, 30.0), np.zeros(len(force)), rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(LinearFlow(system, 1.0)(30.0), done.y[:, -1], atol=1e-8)
    # A rate is a change of time; a short time and a very long one are numbers too.
    np.testing.assert_allclose(
        LinearFlow(system, 3.0)(10.0), LinearFlow(system, 1.0)(30.0), atol=1e-12
    )
    start = LinearFlow(system, 1.0)(1e-3)
    np.testing.assert_allclose(start, 1e-3 * force, rtol=1e-3)
    assert np.all(np.isfinite(LinearFlow(system, 1.0)(1e12)))


@pytest.mark.slow
def test_drift_and_a_matrix_of_diffusion():
    """u = (1 - x^2)(1 - y^2/4) on a stretched box, `L` with a drift, a full matrix and a potential."""
    a = np.array([[1.0, 0.2], [0.2, 0.5]])
    b = np.array([0.3, -0.2])

    def exact(x):
        return (1 - x[0] ** 2) * (1 - x[1] ** 2 / 4) * (1 + 0.3 * x[0])

    def source(x):
        hessian, grad = jax.hessian(exact)(x), jax.grad(exact)(x)
        return jnp.sum(a * hessian) + b @ grad - (1 + x[0] ** 2) * exact(x)

    problem = qpde.Problem(
        domain=qpde.Box([-1.0, -2.0], [1.0, 2.0]),
        equation=lambda x, u: u.trace(a) + u.along(b) - (1 + x[0] ** 2) * u.value - source(x),
        boundary=0.0,
        exact=exact,
    )
    solution = qpde.solve_limit(problem, nodes=256)
    assert solution.score.relative_l2_error < 1e-3
    assert solution.limit is not None
    assert np.all(solution.limit.spectrum.real < 1e-6)


def test_a_nonlinear_equation_in_time_and_at_its_end():
    """-u'' + u^3 = g with u = 1 - x^2: the end of the flow is the solution, and time brings it nearer."""

    def source(x):
        return 2.0 + (1.0 - x[0] ** 2) ** 3

    problem = qpde.Problem(
        domain=qpde.Interval(-1.0, 1.0),
        equation=lambda x, u: u.laplacian - u.value**3 + source(x),
        boundary=0.0,
        exact=lambda x: 1.0 - x[0] ** 2,
    )
    end = qpde.solve_limit(problem, nodes=30)
    assert end.score.relative_l2_error < 1e-5
    later = qpde.solve_limit(problem, nodes=20, time=100.0, record=[1.0])
    assert later.limit is not None
    assert len(later.limit.times) == 2
    assert later.score.relative_l2_error < 0.1
    assert end.score.relative_l2_error < later.score.relative_l2_error


def test_the_flow_of_a_linear_equation_by_the_integrator_too():
    """A linear equation that does not look like one: `max(u, u - 1)` is `u`, to rounding."""
    linear = qpde.zoo.survival(1, discount=0.1)
    odd = qpde.Problem(
        domain=linear.domain,
        equation=lambda x, u: 1 - 0.1 * jnp.maximum(u.value, u.value - 1.0) + 0.5 * u.laplacian,
        boundary=0.0,
    )
    x = np.linspace(-0.9, 0.9, 7)[:, None]
    exact = qpde.solve_limit(linear, nodes=16, time=10.0)
    integrated = qpde.solve_limit(odd, nodes=16, time=10.0)
    np.testing.assert_allclose(integrated(x), exact(x), rtol=1e-5)


def test_twenty_dimensions_beat_the_constant_network():
    """256 nodes; the whole study has 2,000."""
    solution = qpde.solve_limit(qpde.zoo.survival(20), nodes=256)
    assert solution.score.skill < 1.0


def test_a_flow_that_grows_is_said_to():
    """+u with a coefficient beyond the first eigenvalue: not monotone, and the flow grows."""
    problem = qpde.Problem(
        domain=qpde.Interval(-1.0, 1.0),
        equation=lambda x, u: u.laplacian + 5.0 * u.value + 1.0,
        boundary=0.0,
    )
    with pytest.raises(qpde.SolveError) as failure:
        qpde.solve_limit(problem, nodes=24, time=1e4)
    assert failure.value.solution.status is qpde.Status.DIVERGED
    assert qpde.solve_limit(problem, nodes=24, time=1e4, throw=False).status is qpde.Status.DIVERGED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"time": 0.0}, "time must be positive"),
        ({"nodes": 1}, "from 4 to"),
        ({"time": 1.0, "record": [2.0]}, "between 0 and"),
        ({"network": qpde.MLP([8])}, "qpde.Shallow"),
        ({"rate": -1.0}, "rate must be"),
    ],
)
def test_wrong_use(options, words):
    with pytest.raises(ValueError, match=words):
        qpde.solve_limit(qpde.zoo.survival(1), **options)


def test_the_theory_command(tmp_path):
    """Three experiments of the page; the others take their time in the whole study."""
    from typer.testing import CliRunner

    from qpde.cli import app

    out = tmp_path / "theory"
    arguments = ["theory", "--quick", "--only", "kernel,path,start-rate", "--out", str(out)]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads((out / "theory.json").read_text())
    assert all(finding["holds"] for finding in result["findings"])
    bound = {finding["id"]: finding for finding in result["findings"]}["moved"]
    assert bound["value"] == pytest.approx(0.05035, abs=2e-4)  # and the bound 0.05084
    page = (out / "index.html").read_text()
    assert "start-rate" not in page.split("<title>")[0]
    assert page.count("<figure>") == 3
    again = CliRunner().invoke(app, arguments)
    assert "already holds a study of the theory" in str(again.exception)
    wrong = CliRunner().invoke(app, ["theory", "--only", "nothing", "--out", str(tmp_path / "x")])
    assert "There is no experiment 'nothing'" in str(wrong.exception)
