"""Evolution problems: space-time, jets, data, constants and bounds, against independent computations."""

import dataclasses
import functools
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import qpde
from qpde import zoo
from qpde._boundary.layer import Layer
from qpde._domain.cylinder import Growing
from qpde._field.base import Autodiff, Constant
from qpde._field.evolution import EvolutionJet
from qpde._field.form import Factor, Identity, Matrix, Spatial, with_time
from qpde._field.jet import Jet, UnknownAsk
from qpde._monotone.in_time import Weight, growth_over, weight_of
from qpde._problem.points import with_times
from qpde._problem.trial import Trial
from qpde._report.run_page import _BOUNDED
from qpde._trust.residual import rough_parts

BALL, BOX = qpde.Ball(3, centre=0.2, radius=1.3), qpde.Box(0.0, [1.0, 2.0])


def heat(x, t, u):
    return u.laplacian - u.dt


def rows(domain, count=7, seed=0):
    return domain.sample(jax.random.key(seed), count)


@pytest.mark.parametrize("backward", [False, True])
def test_the_factor_has_the_derivatives_of_its_values(backward):
    with jax.enable_x64(True):
        field = qpde.Cylinder(BOX, 0.7, backward=backward).eta
        assert isinstance(field, Growing)
        slow, z = Autodiff(field.value), jnp.array([0.3, 0.5, 0.2])
        sigma = jnp.array([[1.0, 0.2], [0.3, -1.0], [0.5, 0.4]])
        forms = [Identity(), Spatial(), Factor(sigma), Matrix(sigma @ sigma.T)]

        @jax.jit
        def derivatives(z):
            return [
                (f.grad(z), f.hessian(z), [f.trace(z, form) for form in forms])
                for f in (field, slow)
            ]

        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-12), *derivatives(z))


def test_the_jet_asks_in_space_and_time():
    def u(z):
        return jnp.sin(z[0] * z[1]) * jnp.exp(-z[2]) + z[1] ** 2 * z[2]

    with jax.enable_x64(True):
        z, a = jnp.array([0.3, -0.8, 0.4]), jnp.array([[1.0, 0.3], [0.1, 2.0]])
        jet = EvolutionJet(Jet(Autodiff(u).at(z), z), z)
        slope, bent = jax.grad(u)(z), jax.hessian(u)(z)
        v = jnp.array([0.5, -1.0])
        for mine, true in (
            (jet.value, u(z)),
            (jet.grad, slope[:2]),
            (jet.dt, slope[2]),
            (jet.laplacian, jnp.trace(bent[:2, :2])),
            (jet.hessian, bent[:2, :2]),
            (jet.along(v), slope[:2] @ v),
            (jet.second(v), v @ bent[:2, :2] @ v),
            (jet.trace(a), jnp.sum(a * bent[:2, :2])),
            (jet.generator(v, a), slope[:2] @ v + 0.5 * jnp.sum((a @ a.T) * bent[:2, :2])),
            (jet.generator(v, 2.0), slope[:2] @ v + 2.0 * jnp.trace(bent[:2, :2])),
        ):
            np.testing.assert_allclose(mine, true, rtol=1e-12)
        with pytest.raises(UnknownAsk, match="second order in time"):
            _ = jet.dtt


def test_forms_in_space_know_no_time():
    with jax.enable_x64(True):
        spatial, v = Spatial(), jnp.array([1.0, 2.0, 3.0])
        whole = jnp.diag(jnp.array([1.0, 1.0, 0.0]))
        bent = jnp.arange(9.0).reshape(3, 3)
        np.testing.assert_array_equal(spatial.apply(v), whole @ v)
        np.testing.assert_array_equal(spatial.diagonal(v), jnp.diagonal(whole))
        assert spatial.quadratic(v) == v @ whole @ v
        assert spatial.contract(bent) == jnp.sum(whole * bent)
        seeds, form = spatial.seed(v[None])
        np.testing.assert_array_equal(form.quadratic(seeds), spatial.quadratic(v[None]))
        factor = with_time(Factor(jnp.eye(2)))
        assert factor.contract(bent) == jnp.trace(bent[:2, :2])


@pytest.mark.parametrize("backward", [False, True])
def test_the_cylinder_is_space_and_time(backward):
    cylinder = qpde.Cylinder(BALL, 2.0, backward=backward)
    assert cylinder.dim == 4
    assert repr(cylinder).startswith("Cylinder(Ball(3, centre=[0.2, 0.2, 0.2], radius=1.3), 2")
    inside = np.asarray(rows(cylinder, 20_000))
    assert np.all(np.linalg.norm(inside[:, :3] - 0.2, axis=1) < 1.3)
    # Four standard errors: 6e-5 of false alarms.
    assert abs(inside[:, 3].mean() - 1.0) < 4 * 2 / np.sqrt(12 * 20_000)
    edge = np.asarray(cylinder.sample_boundary(jax.random.key(1), 1_000))
    on_side = np.abs(np.linalg.norm(edge[:, :3] - 0.2, axis=1) - 1.3) < 1e-5
    at_start = edge[:, 3] == (2.0 if backward else 0.0)
    assert np.all(on_side | at_start)
    assert on_side.sum() == at_start.sum() == 500
    np.testing.assert_allclose(jax.vmap(cylinder.eta.value)(jnp.asarray(edge)), 0, atol=1e-6)
    last = np.array([0.2, 0.2, 0.2, 0.0 if backward else 2.0])
    assert float(cylinder.distance(jnp.asarray(last))) == pytest.approx(1.3)
    assert float(cylinder.eta.value(jnp.asarray(last))) == pytest.approx(1.0)
    beyond = last + np.array([0, 0, 0, -0.1 if backward else 0.1])
    assert float(cylinder.distance(jnp.asarray(beyond))) == pytest.approx(-0.1, rel=1e-5)
    assert np.exp(cylinder.log_volume) == pytest.approx(2.0 * 4 / 3 * np.pi * 1.3**3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"initial": None}, "neither was given"),
        ({"terminal": 0.0}, "both was given"),
        ({"time": None}, "give time=T"),
        ({"time": -1.0}, "time must be a positive number"),
        ({"initial": None, "terminal": 0.0}, "wrong direction of time"),
        ({"equation": lambda x, t, u: u.laplacian + u.dt}, "wrong direction of time"),
        ({"equation": lambda x, t, u: u.laplacian}, "does not ask for u.dt"),
        ({"equation": lambda x, t, u: u.laplacian - (1 + x[0]) * u.dt}, "must be one number"),
        ({"equation": lambda x, t, u: u.laplacian - u.value * u.dt}, "must be one number"),
        ({"equation": lambda x, t, u: u.laplacian - u.dtt}, "second order in time"),
        ({"equation": lambda x, u: u.laplacian}, re.escape("must take (x, t, u)")),
        ({"boundary": lambda x: 0.0}, re.escape("must take (x, t)")),
        ({"exact": lambda x: 0.0}, re.escape("must take (x, t)")),
        ({"initial": lambda x, t: 0.0}, "must take one point"),
        ({"initial": lambda x: jnp.abs(x[0] - 0.3)}, "kinks or jumps"),
    ],
)
def test_wrong_problems_are_refused(change, message):
    given = {"equation": heat, "time": 1.0, "initial": 0.0, "boundary": 0.0} | change
    with pytest.raises(ValueError, match=message):
        qpde.Problem(BALL, **given)


@pytest.mark.parametrize(
    "equation",
    [
        lambda x, t, u: u.generator(-x, 1.0) - 2 * u.dt,
        lambda x, t, u: u.laplacian - u.grad @ u.grad + x[0] * u.grad[1] - 2 * u.dt,
        lambda x, t, u: 2 * u.dt - jnp.exp(t) * u.laplacian + u.value**3,
    ],
    ids=["drift", "quadratic", "opposite sign"],
)
def test_the_factor_of_the_derivative_in_time_is_found(equation):
    problem = qpde.Problem(BALL, equation, time=1.0, initial=0.0)
    assert float(problem.rate) == 2.0
    assert float(problem.orientation) == (-1.0 if "exp" in equation.__code__.co_names else 1.0)


def test_the_extension_has_the_data():
    def side(x, t):
        return jnp.cos(x[0]) * (1 + t)

    def start(x, k):
        return jnp.cos(x[0]) + k * (1.69 - jnp.sum((x - 0.2) ** 2))

    for backward in (False, True):
        data: Any = {"terminal" if backward else "initial": start}
        sign = 1.0 if backward else -1.0

        def equation(x, t, u, sign=sign):
            return u.laplacian + sign * u.dt

        boundary = (lambda x, t: side(x, 0.5 - t)) if backward else side
        problem = qpde.Problem(BALL, equation, boundary, time=0.5, parameters={"k": 2.0}, **data)
        assert float(problem.rate) == 1.0
        edge = np.asarray(problem.domain.sample_boundary(jax.random.key(0), 50))
        age = 0.5 - edge[:, 3] if backward else edge[:, 3]
        found = jax.vmap(problem.boundary.value)(jnp.asarray(edge))
        wanted = np.where(age == 0, jax.vmap(lambda x: start(x, 2.0))(edge[:, :3]), 0.0)
        on_side = jax.vmap(side)(edge[:, :3], jnp.asarray(age))
        np.testing.assert_allclose(found, np.where(age == 0, wanted, on_side), atol=1e-5)


def test_functions_of_one_program_share_what_is_compiled():
    def problem():
        return qpde.Problem(
            BALL,
            lambda x, t, u: u.laplacian - u.dt,
            lambda x, t: 0.0 * t,
            time=1.0,
            initial=lambda x: 1.69 - jnp.sum((x - 0.2) ** 2),
        )

    first, second = problem(), problem()
    assert jax.tree.structure(first) == jax.tree.structure(second)


@pytest.mark.parametrize(("name", "dim"), [("heat_ball", 4), ("absorbed_heat", 3)])
def test_the_zoo_in_time(name, dim):
    with jax.enable_x64(True):
        problem = zoo.CATALOGUE[name].build(dim)
        z = rows(problem.domain)
        if problem.exact is not None:
            exact = Autodiff(problem.exact)
            residual = jax.jit(jax.vmap(lambda x: problem.equation(x, Jet(exact.at(x), x))))(z)
            np.testing.assert_allclose(residual, 0, atol=1e-11)
        assert problem.recipe is not None


# What integration by parts in time gives, on a problem that can be integrated by hand: on (0, 1) with
# v = t sin(pi x), -<v, Lap v - v_t>_m = pi^2 ||v||_m^2 + <v, v_t>_m.
@pytest.mark.parametrize("kappa", [-3.0, 0.0, 2.0])
def test_the_identity_in_time(kappa):
    t = np.linspace(0.0, 0.8, 200_001)
    m, v = np.exp(-kappa * t), t
    step = t[1] - t[0]

    def integral(values):
        return 0.5 * step * float(np.sum(values[1:] + values[:-1])) / 2

    left = integral(m * v * (np.pi**2 * v + 1.0))
    right = (np.pi**2 + kappa / 2) * integral(m * v * v) + 0.5 * m[-1] * v[-1] ** 2 / 2
    assert left == pytest.approx(right, rel=1e-9)


def test_weights_are_the_best_ones():
    problem = qpde.Problem(BALL, lambda x, t, u: u.laplacian - 2 * u.dt, time=0.5, initial=0.0)
    for gamma in (-3.0, 0.1, 50.0):
        plain, last = weight_of(problem, gamma), weight_of(problem, gamma, last=True)
        assert plain is not None
        assert last is not None
        others = [
            Weight(kappa, gamma + kappa, 2.0, 0.5, False)
            for kappa in np.linspace(-gamma + 1e-3, 80.0, 4_001)
        ]
        least = min(other.factor for other in others if other.kappa >= 0)
        assert plain.factor <= least * (1 + 1e-9)
        ends = [np.exp(o.kappa * 0.25) * np.sqrt(0.5 / (4 * o.gamma)) for o in others]
        own = np.exp(last.kappa * 0.25) * np.sqrt(0.5 / (4 * last.gamma))
        assert own <= min(ends) * (1 + 1e-9)
        z = np.array([[0.0, 0.0], [0.0, 0.5]])
        assert plain.at(z).max() == last.at(z).max() == pytest.approx(1.0)
    assert weight_of(problem, -1e5) is None


def test_growth_in_the_largest_error():
    """Against `v' = -c v / k + r / k` from zero, and without."""
    for killing in (-2.0, 0.0, 3.0):
        factor, spread = growth_over(0.5, killing, 0.7)
        v, step = 0.0, 0.7 / 100_000
        for _ in range(100_000):
            v += step * (1.0 - killing * v) / 0.5
        assert factor == pytest.approx(v, rel=1e-4)
        assert spread == pytest.approx(max(1.0, np.exp(-killing * 0.7 / 0.5)))
    assert growth_over(1.0, -1e4, 1.0) == (np.inf, np.inf)


def test_constants_need_no_sign_of_the_term_in_u():
    growing = qpde.Problem(
        qpde.Interval(0.0, 1.0),
        lambda x, t, u: u.laplacian + 20 * u.value - u.dt,
        time=0.5,
        initial=0.0,
    )
    found = qpde.monotonicity(growing)
    assert found.kind is qpde.Ground.PROVED
    assert found.spatial == pytest.approx(np.pi**2 - 20)
    assert found.constant == pytest.approx(2.0)  # k / T
    assert found.weight is not None
    assert found.weight.kappa == pytest.approx(2 * (2.0 - np.pi**2 + 20))
    assert "from the weight exp(-" in repr(found)
    allen_cahn = qpde.Problem(
        BALL, lambda x, t, u: u.laplacian + u.value - u.value**3 - u.dt, time=0.3, initial=0.0
    )
    found = qpde.monotonicity(allen_cahn)
    assert found.kind is qpde.Ground.PROVED
    assert found.spatial == pytest.approx((np.pi / 1.3) ** 2 - 1)
    with pytest.raises(ValueError, match="stationary"):
        weight_of(zoo.survival(2), 1.0)


def test_a_varying_diffusion_costs_half_its_second_derivatives():
    """`div(div A)` in space alone: `A = (2 + x^2) (1 + t)`, so `-(A u_x)_x` with `-A''/2 = -(1 + t)`."""
    problem = qpde.Problem(
        qpde.Interval(-1.0, 1.0),
        lambda x, t, u: (2 + x[0] ** 2) * (1 + t) * u.laplacian - u.dt,
        time=1.0,
        initial=0.0,
    )
    found = qpde.monotonicity(problem)
    assert found.proved
    assert found.ellipticity == pytest.approx(2.0, rel=1e-2)
    assert found.spatial == pytest.approx(2 * np.pi**2 / 4 - 2.0, rel=0.05)


def layered(domain, gap, diffusion=0.5):
    problem = qpde.Problem(
        domain, lambda x, t, u: diffusion * u.laplacian - u.dt, time=0.1, initial=gap
    )
    return problem, Trial.of(problem, Constant(0.0), exact_boundary=True)


@pytest.mark.parametrize("domain", [qpde.Ball(4, radius=1.3), BOX], ids=["ball", "box"])
def test_layers_leave_a_bounded_residual(domain):
    """At distances of about `sqrt(t)` to the boundary; without the second order it grows tenfold."""

    def gap(x):
        return 1.0 + 0.3 * x[0] * x[1]

    with jax.enable_x64(True):
        problem, trial = layered(domain, gap)
        assert any("differ where they meet" in note for note in problem.notes)
        edge = domain.sample_boundary(jax.random.key(1), 2_000)
        shrink = jnp.abs(jax.random.normal(jax.random.key(2), (2_000, 1)))
        sizes, residual = [], jax.jit(jax.vmap(trial.residual))
        for t in (1e-3, 1e-5, 1e-7):
            centre = jnp.asarray(domain.centre)[None]
            moved = centre + (edge - centre) * jnp.exp(-shrink * np.sqrt(t))
            z = jnp.concatenate([moved, jnp.full((2_000, 1), t)], axis=1)
            sizes.append(float(jnp.max(jnp.abs(residual(z)))))
        assert max(sizes) < 2 * min(sizes) + 0.5
        on_side = jnp.concatenate([edge, jnp.full((2_000, 1), 0.05)], axis=1)
        values = jax.jit(jax.vmap(problem.boundary.value))
        np.testing.assert_allclose(values(on_side), 0, atol=1e-14)
        x = domain.sample(jax.random.key(3), 100)
        start = jnp.concatenate([x, jnp.zeros((100, 1))], axis=1)
        np.testing.assert_allclose(values(start), jax.vmap(gap)(x))


def test_layers_follow_the_drift_of_many_dimensions():
    """The chance to stay in a ball of ten dimensions, by its series, without any training."""
    with jax.enable_x64(True):
        problem = zoo.absorbed_heat(10)
        assert any("by up to 1." in note for note in problem.notes)
        # At the centre, where the layers of all sides meet.
        for t, value in ((0.025, 0.99997), (0.05, 0.9530698)):
            z = jnp.append(jnp.zeros(10), t)
            assert float(problem.boundary.value(z)) == pytest.approx(value, rel=0.03)
        trial = Trial.of(problem, Constant(0.0), exact_boundary=True)
        residual = np.asarray(jax.jit(jax.vmap(trial.residual))(rows(problem.domain, 2_000)))
    # Twelve with a layer that knows of no drift but the first order of it.
    assert np.sqrt(np.mean(residual**2)) < 0.5
    assert rough_parts(trial, problem.domain) == []


def test_a_layer_on_a_line_is_the_error_function():
    line = qpde.Interval(0.0, 5.0)
    layer = Layer(line, lambda x: jnp.ones(()), np.asarray(0.5))
    x = np.linspace(0.0, 1.0, 5)
    found = [float(layer(jnp.array([v]), jnp.asarray(0.02))) for v in x]
    np.testing.assert_allclose(found, erf(x / (2 * np.sqrt(0.01))), atol=1e-5)


def test_other_layers_are_refused_and_corners_told():
    with pytest.raises(ValueError, match="differ by up to 1 where they meet"):
        qpde.Problem(qpde.Ellipsoid([1.0, 2.0]), heat, time=1.0, initial=1.0)
    with pytest.raises(ValueError, match="without drift"):
        qpde.Problem(BOX, lambda x, t, u: u.laplacian + u.grad[0] - u.dt, time=1.0, initial=1.0)
    bent = qpde.Problem(BALL, heat, time=1.0, initial=lambda x: 1.69 - jnp.sum((x - 0.2) ** 2))
    assert any("does not hold there" in note for note in bent.notes)
    assert zoo.heat_ball(3).notes == ()


@pytest.fixture(scope="module")
def wave():
    """A short run, and its exact solution; the equation grows in u."""

    def exact(x, t):
        return jnp.exp(-t) * jnp.sin(jnp.pi * x[0])

    def equation(x, t, u):
        return 0.1 * u.laplacian + u.value - u.dt + (0.1 * jnp.pi**2 - 2) * exact(x, t)

    problem = qpde.Problem(
        qpde.Interval(0.0, 1.0),
        equation,
        time=0.5,
        initial=lambda x: exact(x, 0.0),
        exact=exact,
    )
    network = qpde.Shallow(16, polynomial=True, beta=0.5, amplitude=0.25)
    return qpde.solve(
        problem, network=network, rule=qpde.GaussNewton(), steps=3, batch=100, progress=False
    )


@pytest.mark.filterwarnings("ignore:The best")
def test_solutions_take_a_point_and_a_time(wave):
    x = np.linspace(0.1, 0.9, 4)[:, None]
    whole = np.concatenate([x, np.full((4, 1), 0.2)], axis=1)
    np.testing.assert_array_equal(wave(x, 0.2), wave(whole))
    np.testing.assert_array_equal(wave.at(0.2)(x), wave(whole))
    np.testing.assert_array_equal(wave(x, np.full(4, 0.2)), wave(whole))
    assert wave(x[0], 0.2).shape == ()
    step = 1e-5
    slope = (wave(x + step, 0.2) - wave(x - step, 0.2)) / (2 * step)
    np.testing.assert_allclose(wave.grad(x, 0.2)[:, 0], slope, atol=1e-7)
    in_time = (wave(x, 0.2 + step) - wave(x, 0.2 - step)) / (2 * step)
    np.testing.assert_allclose(wave.dt(x, 0.2), in_time, atol=1e-7)
    bent = (wave.at(0.2).grad(x + step) - wave.at(0.2).grad(x - step))[:, 0] / (2 * step)
    np.testing.assert_allclose(wave.at(0.2).laplacian(x), bent, atol=1e-6)
    u, exact = wave(x, 0.2), np.exp(-0.2) * np.sin(np.pi * x[:, 0])
    source = (0.1 * np.pi**2 - 2) * exact
    left = 0.1 * wave.laplacian(x, 0.2) + u - wave.dt(x, 0.2) + source
    np.testing.assert_allclose(wave.residual(x, 0.2), left, atol=1e-10)
    for bad, words in (((x, "now"), "t is a time"), ((x, [0.1, 0.2]), "one for each")):
        with pytest.raises(ValueError, match=words):
            wave(*bad)
    with pytest.raises(ValueError, match="with a time"):
        wave(x)
    with pytest.raises(ValueError, match="number between"):
        wave.at(0.6)
    with pytest.warns(UserWarning, match="outside"):
        wave(x, 0.6)


@pytest.mark.parametrize("norm", ["l2", "last", "sup"])
def test_bounds_are_above_the_error(wave, norm):
    found = qpde.certify(wave, norm=norm)
    x = np.random.default_rng(0).random((20_000, 1))
    t = 0.5 if norm == "last" else 0.5 * np.random.default_rng(1).random(20_000)
    error = wave(x, t) - np.exp(-t) * np.sin(np.pi * x[:, 0])
    size = np.max(np.abs(error)) if norm == "sup" else np.sqrt(np.mean(error**2))
    assert size <= found.bound
    assert found.bound < 100 * size
    assert found.kind is (qpde.Kind.HEURISTIC if norm == "sup" else qpde.Kind.STATISTICAL)
    if norm != "sup":
        assert "time s since the data" in repr(found)


def test_the_bound_falls_when_the_solution_is_better_and_rises_when_worse(wave):
    worse = eqx.tree_at(lambda s: s.network.c, wave.trial, np.zeros(16))
    bad = dataclasses.replace(wave, trial=worse)
    assert qpde.certify(bad).bound > 5 * qpde.certify(wave).bound


def test_a_stationary_problem_knows_no_time():
    problem = zoo.survival(2)
    with pytest.raises(ValueError, match="stationary"):
        with_times(np.zeros((3, 2)), 0.1, problem.domain)
    with pytest.raises(ValueError, match="not on another cylinder"):
        qpde.Cylinder(qpde.Cylinder(BALL, 1.0), 1.0)


def test_a_film_shows_the_solution_at_several_times(wave):
    panels = qpde.plot.film(wave, times=3)
    assert [ax.get_title() for ax in panels] == ["t = 0", "t = 0.25", "t = 0.5"]
    exact, computed = panels[1].lines
    x = np.asarray(exact.get_xdata(), float).ravel()
    np.testing.assert_allclose(exact.get_ydata(), np.exp(-0.25) * np.sin(np.pi * x), atol=1e-12)
    np.testing.assert_allclose(computed.get_ydata(), wave(x[:, None], 0.25), atol=1e-12)
    assert "film" in qpde.plot.suited(wave)
    panes = qpde.plot.slice(wave, resolution=8)
    assert panes[0].get_ylabel() == "$t$"
    with pytest.raises(ValueError, match="must lie in space"):
        qpde.plot.film(wave, direction=1)


def test_pages_have_words_for_every_norm():
    assert set(_BOUNDED) == set(qpde.Norm)


def test_radial_points_at_every_instant():
    """Of the law `R sqrt(U)`, `|x|^2` is uniform; under it the Laplacian has a constant as without time."""
    problem = zoo.absorbed_heat(4)
    law = qpde.Radial(problem.domain, 2.0)
    z = np.asarray(law.sample(jax.random.key(0), 20_000)[0])
    squares, times = np.sum(z[:, :4] ** 2, axis=1), z[:, 4]
    # Four standard errors of uniform variables: 6e-5 of false alarms each.
    assert abs(squares.mean() - 0.5) < 4 / np.sqrt(12 * 20_000)
    assert abs(times.mean() - 0.05) < 4 * 0.1 / np.sqrt(12 * 20_000)
    assert abs(np.corrcoef(squares, times)[0, 1]) < 4 / np.sqrt(20_000)
    found = qpde.monotonicity(problem, measure=law)
    still = qpde.Problem(qpde.Ball(4), lambda x, u: 0.5 * u.laplacian)
    wanted = qpde.monotonicity(still, measure=qpde.Radial(qpde.Ball(4), 2.0)).constant
    assert found.spatial == pytest.approx(wanted)
    with pytest.raises(ValueError, match="lives on a"):
        qpde.Radial(qpde.Cylinder(BOX, 1.0), 2.0)
