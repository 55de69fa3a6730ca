"""The infinitely wide network: its field, its flow, its fixed point."""

import json
import logging
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from truth import exact_values

import qpde
from qpde import activations
from qpde._field.form import Identity, Matrix
from qpde._limit import flow, rows
from qpde._limit.field import KernelField
from qpde._limit.flow import LinearFlow
from qpde._limit.kernel import TangentKernel
from qpde._limit.system import System

PAPER = qpde.Shallow(1, activation=activations.sigmoid, scale=1.0, normalise=False)
SIGMOIDS = qpde.Shallow(activation=activations.sigmoid)


class Bump(eqx.Module):
    """`1 - ((x - centre) / radius)^2`."""

    centre: np.ndarray
    radius: np.ndarray

    def __call__(self, x):
        return 1.0 - ((x[0] - self.centre) / self.radius) ** 2


class Bent(eqx.Module):
    """`u'' - strength u^3 + g`, with `g` such that a bump solves it."""

    strength: np.ndarray
    exact: Bump

    def __call__(self, x, u):
        source = 2.0 / self.exact.radius**2 + self.strength * self.exact(x) ** 3
        return u.laplacian - self.strength * u.value**3 + source


def bent(strength=1.0, centre=0.0, radius=1.0, name="bent"):
    """The problem of `Bent`; with 12 nodes all 12 eigenfunctions count."""
    exact = Bump(np.array(centre), np.array(radius))
    return qpde.Problem(
        domain=qpde.Ball(1, centre=centre, radius=radius),
        equation=Bent(np.array(strength), exact),
        exact=exact,
        name=name,
    )


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
    points, weights = domain.nodes(1_024 if domain.dim > 1 else 200)
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
        forms = (Identity(), Matrix(jnp.asarray(matrix)))

        @jax.jit
        @jax.vmap
        def everything(x):
            traces = [field.trace(x, form) for form in forms]
            by_autodiff = jax.hessian(field.value)(x)
            return field.value(x), field.grad(x), field.hessian(x), by_autodiff, traces

        value, grad, hessian, by_autodiff, traces = everything(jnp.asarray(x))
    np.testing.assert_allclose(value, kernel(framed, y) @ weights, rtol=0, atol=1e-13)
    exact = np.einsum("nmd,m->nd", kernel.grad(framed, y), weights) / half
    np.testing.assert_allclose(grad, exact, rtol=0, atol=1e-13)
    exact = np.einsum("nmde,m->nde", kernel.hessian(framed, y), weights)
    exact = exact / half[:, None] / half[None]
    np.testing.assert_allclose(hessian, exact, rtol=0, atol=1e-12)
    np.testing.assert_allclose(by_autodiff, exact, rtol=0, atol=1e-11)
    for found, a in zip(traces, (np.eye(dim), matrix), strict=True):
        np.testing.assert_allclose(found, np.einsum("nde,de->n", exact, a), rtol=0, atol=1e-12)


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
    exact = exact_values(problem, system.points)
    gap = system.f + system.phi @ LinearFlow(system, 1.0)(time) - exact
    assert math.sqrt(system.weights @ gap**2 / (system.weights @ exact**2)) < least


def test_the_fixed_point_is_exact_and_a_solution_like_any_other(tmp_path):
    problem = qpde.zoo.survival(1, discount=0.1)
    solution = qpde.solve_limit(problem, network=PAPER, nodes=60, record=[1.0, 100.0])
    assert solution.status is qpde.Status.FINISHED
    x = np.linspace(-1, 1, 21)[:, None]
    np.testing.assert_allclose(solution(x), exact_values(problem, x), atol=1e-6)
    # Values are sums of large terms: their rounding, about 1e-12, limits the quotient.
    slope = (solution(x[1:-1] + 1e-3) - solution(x[1:-1] - 1e-3)) / 2e-3
    np.testing.assert_allclose(solution.grad(x[1:-1])[:, 0], slope, atol=1e-6)
    assert np.abs(solution.residual(x)).max() < 1e-3
    limit = solution.limit
    assert limit is not None
    np.testing.assert_array_equal(limit.times, [1.0, 100.0, math.inf])
    assert np.all(np.diff(limit.loss) < 0)
    assert limit.regularisation is not None
    assert limit.regularisation < 1e-9
    np.testing.assert_allclose(np.real(limit.spectrum[:2]), [-0.2198, -0.0220], atol=1e-4)
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
    assert solution.score.relative_l2_error is not None
    assert solution.score.relative_l2_error < 1e-3
    assert solution.limit is not None
    assert np.all(np.real(solution.limit.spectrum) < 1e-6)


def test_a_nonlinear_equation_in_time_and_at_its_end():
    """-u'' + u^3 = g with u = 1 - x^2: the end of the flow is the solution, and time brings it nearer."""
    end = qpde.solve_limit(bent(), nodes=12, record=[1.0, 100.0])
    assert end.limit is not None
    np.testing.assert_array_equal(end.limit.times, [1.0, 100.0, math.inf])
    assert np.all(np.diff(end.limit.loss) < 0)
    np.testing.assert_allclose(end.limit.held_out[:2], end.limit.loss[:2], rtol=1e-5)
    np.testing.assert_array_equal(end.history.held_out, end.limit.held_out)
    assert end.steps == 3
    assert end.score.relative_l2_error is not None
    assert end.score.relative_l2_error < 1e-6
    later = qpde.solve_limit(bent(), nodes=12, time=100.0)
    assert later.limit is not None
    np.testing.assert_array_equal(later.limit.times, [100.0])
    np.testing.assert_allclose(later.limit.loss, end.limit.loss[1:2], rtol=1e-5)
    x = np.linspace(-1, 1, 101)[:, None]
    gap = later(x) - (1 - x[:, 0] ** 2)
    assert 1e-3 < np.sqrt(np.mean(gap**2)) < 0.05


def test_the_nonlinear_flow_against_an_integrator():
    """SciPy's for the nonlinear equation, the exact one where the cubic term has the factor 0."""
    times = np.array([0.5, 2.0])
    system = System(bent(), SIGMOIDS, 12)
    done = scipy.integrate.solve_ivp(
        lambda t, q: 3.0 * system.side @ system.residual(q),
        (0.0, times[-1]),
        np.zeros(system.rank),
        method="BDF",
        t_eval=times,
        rtol=1e-8,
        atol=1e-10,
    )
    reached = []
    path = flow.integrate(system, 3.0, times, reached.append)
    assert path.status is qpde.Status.FINISHED
    assert reached == [0, 1]
    np.testing.assert_allclose(np.stack(path.coefficients, axis=1), done.y, rtol=0, atol=2e-6)
    # The equation's program cannot know that the factor is 0: it is integrated like any other.
    system = System(bent(0.0), SIGMOIDS, 12)
    assert system.linear is None
    path = flow.integrate(system, 1.0, np.array([10.0]), lambda _: None)
    exact = system.phi @ LinearFlow(system, 1.0)(10.0)
    np.testing.assert_allclose(system.phi @ path.coefficients[0], exact, rtol=1e-5)


def test_slopes_of_a_nonlinear_equation_against_differences():
    system = System(bent(), SIGMOIDS, 12)
    held_out = system.held_out(13, seed=1)
    rng = np.random.default_rng(0)
    q, step = rng.standard_normal(12), 1e-4 * rng.standard_normal(12)
    for sample in (system, held_out):
        near = sample.linearised(q)
        np.testing.assert_allclose(near(q), sample.residual(q), rtol=0, atol=1e-7)
        difference = 0.5 * (sample.residual(q + step) - sample.residual(q - step))
        np.testing.assert_allclose(near.slopes @ step, difference, rtol=0, atol=1e-8)
        assert np.abs(difference).max() > 1e-4


def count_traces():
    """How often every program of the limit was traced."""
    programs = (rows._map, rows.residuals, rows._slopes, flow._advance)
    return [eqx.debug.get_num_traces(program) for program in programs]


def test_another_problem_of_the_same_shape_compiles_nothing(caplog):
    """Other numbers in equation, domain and rate, and another name: flow and fixed point run as compiled."""

    def solve(problem, rate, network):
        solution = qpde.solve_limit(problem, nodes=10, record=[1.0], rate=rate, network=network)
        assert solution.limit is not None
        assert solution.limit.rank == 10
        return solution

    before = count_traces()
    first = solve(bent(), 1.0, SIGMOIDS)
    # `eta` and `f` at nodes and held-out points, `L Q` at both and in the slopes, one integrator.
    assert np.subtract(count_traces(), before).tolist() == [4, 3, 1, 1]
    other, before = bent(2.0, centre=0.3, radius=1.5, name="other"), count_traces()
    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
        second = solve(other, 2.0, SIGMOIDS)
        assert count_traces() == before
        said = [record.getMessage() for record in caplog.records]
        assert not [line for line in said if line.startswith("Compiling")]
        jax.jit(lambda x: x + 1)(0)  # a program that is new, to see that the log speaks
        assert any(r.getMessage().startswith("Compiling") for r in caplog.records)
    # And they are other numbers: each solves its own problem.
    x = np.linspace(-1, 1, 21)[:, None]
    np.testing.assert_allclose(first(x), 1 - x[:, 0] ** 2, atol=1e-6)
    np.testing.assert_allclose(second(0.3 + 1.5 * x), 1 - x[:, 0] ** 2, atol=1e-6)
    # Another kernel: its tables may have other shapes, the programs of the flow have not.
    solve(other, 1.0, qpde.Shallow(activation=activations.sigmoid, scale=1.1))
    assert count_traces() == before


def test_a_linear_problem_with_other_numbers_is_not_traced_again():
    qpde.solve_limit(qpde.zoo.survival(1, discount=0.1), nodes=9)
    before = count_traces()
    solution = qpde.solve_limit(qpde.zoo.survival(1, discount=0.3), nodes=9, time=1e6)
    assert count_traces() == before
    x = np.linspace(-0.9, 0.9, 7)[:, None]
    np.testing.assert_allclose(solution(x), exact_values(solution.problem, x), rtol=1e-3)


@pytest.mark.slow
def test_twenty_dimensions_beat_the_constant_network():
    """256 nodes; the whole study has 2,000. The error at other points, beside that of the best `c eta`."""
    problem = qpde.zoo.survival(20)
    solution = qpde.solve_limit(problem, nodes=256)
    x, _ = problem.domain.nodes(2_048, seed=5)
    exact, eta = exact_values(problem, x), 1.0 - np.sum(x**2, axis=1)
    constant = (eta @ exact) / (eta @ eta) * eta
    assert np.linalg.norm(solution(x) - exact) < 0.9 * np.linalg.norm(constant - exact)


def test_a_flow_that_explodes_ends_with_its_start():
    """u'' + 50 u^3 + g: the integrator gives up before its first stop, and `Q = f` is left."""
    with pytest.raises(qpde.SolveError) as failure:
        qpde.solve_limit(bent(-50.0), nodes=12, time=100.0)
    solution = failure.value.solution
    assert solution.status is qpde.Status.GAVE_UP
    np.testing.assert_array_equal(solution.limit.times, [0.0])
    np.testing.assert_array_equal(solution(np.zeros((1, 1))), [0.0])


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
    # Times at which nothing is finite are left out.
    solution = qpde.solve_limit(problem, nodes=24, time=1e9, record=[1.0], throw=False)
    assert solution.status is qpde.Status.DIVERGED
    assert solution.limit is not None
    np.testing.assert_array_equal(solution.limit.times, [1.0])
    assert np.isfinite(solution.limit.loss[0])


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

    from qpde.cli.main import app

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
