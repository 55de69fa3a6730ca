"""Second-order rules: kernels against explicit Jacobians, steps that must not diverge, known accuracy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import qpde
from qpde import (
    Annulus,
    Ball,
    Box,
    Ellipsoid,
    GaussNewton,
    ImplicitQLearning,
    Problem,
    Shallow,
    zoo,
)
from qpde._field.form import Factor, Identity, Matrix
from qpde._network.base import trainable
from qpde._problem.trial import Trial
from qpde._rule import tangent as _tangent
from qpde._rule.implicit import implicit_update
from qpde._rule.tangent import Explicit, Structured, tangent
from qpde._train.run import _Start


def nonlinear(x, u):
    drift = jnp.sin(x)
    return (
        (1.0 + 0.1 * jnp.sum(x)) * u.laplacian
        - u.value**3
        + u.along(drift)
        - 0.1 * jnp.sum(u.grad**2)
        + jnp.cos(x[0])
    )


def plain(x, u):
    return 1.0 - 0.3 * u.value**2 - u.laplacian * (-2.0)


def data(x):
    return jnp.sin(2.0 * x[0]) + 0.5 * jnp.sum(x)


def domain_of(name, dim):
    if name == "ball":
        return Ball(dim, radius=1.7, centre=np.linspace(0.1, 0.4, dim))
    if name == "ellipsoid":
        return Ellipsoid(np.linspace(0.5, 2.0, dim) if dim > 1 else [0.8])
    if name == "annulus":
        return Annulus(dim, inner=0.5, outer=2.0)
    return Box(np.linspace(-1.0, 0.0, dim), np.linspace(0.5, 2.0, dim))


def random_trial(problem, network, seed=3):
    field = network.build(problem.domain, key=jr.key(seed))
    params, rest = trainable(field)
    flat, unravel = ravel_pytree(params)
    noise = jnp.asarray(np.random.default_rng(seed).standard_normal(flat.size))
    field = eqx.combine(unravel(flat + 0.5 * noise), rest)
    return Trial.of(problem, field, exact_boundary=True)


@eqx.filter_jit
def parts(trial, points, weights, v):
    found = tangent(trial, points, weights)
    pulled = [ravel_pytree(pull(v))[0] for pull in (found.pull, found.pull_value)]
    return found.residual, found.gram(), found.cross(), *pulled


@eqx.filter_jit
def explicit_parts(trial, points, weights, v):
    """Nothing shared with the library's tangents: Jacobians of the trial function by autodiff."""
    params, rest = trainable(trial.network)
    flat, unravel = ravel_pytree(params)

    def at(flat, quantity):
        moved = trial.with_network(eqx.combine(unravel(flat), rest))
        return jnp.sqrt(weights) * jax.vmap(getattr(moved, quantity))(points)

    r = at(flat, "residual")
    j = jax.jacrev(at)(flat, "residual")
    q = jax.jacrev(at)(flat, "value")
    return r, j @ j.T, j @ q.T, v @ j, v @ q


def agree(trial, domain, count=9):
    domain_points = domain.sample(jr.key(7), count)
    rng = np.random.default_rng(5)
    weights, v = jnp.asarray(rng.uniform(0.5, 2.0, count)), jnp.asarray(rng.standard_normal(count))
    for mine, theirs in zip(
        parts(trial, domain_points, weights, v),
        explicit_parts(trial, domain_points, weights, v),
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-10 * float(jnp.max(jnp.abs(theirs))))


@pytest.mark.daily(every=5)
@pytest.mark.parametrize("shape", ["ball", "ellipsoid", "box", "annulus"])
@pytest.mark.parametrize(
    ("dim", "polynomial", "equation"),
    [(1, True, plain), (3, True, nonlinear), (7, False, nonlinear)],
)
def test_kernels_are_products_of_jacobians(dim, shape, polynomial, equation):
    domain = domain_of(shape, dim)
    with jax.enable_x64(True):
        problem = Problem(domain, equation, data)
        normalise = not (shape == "ball" and dim == 3)
        network = Shallow(6, beta=0.7, polynomial=polynomial, normalise=normalise)
        trial = random_trial(problem, network)
        points = jnp.zeros((2, dim))
        assert isinstance(eqx.filter_eval_shape(tangent, trial, points, jnp.ones(2)), Structured)
        agree(trial, domain)


def test_other_networks_and_second_order_parts_have_explicit_jacobians(monkeypatch):
    domain = Box(-1.0, 1.0, dim=2)
    a = np.array([[2.0, 0.5], [0.5, 1.0]])
    with jax.enable_x64(True):
        for equation, network in (
            (lambda x, u: u.trace(a) - u.value, Shallow(4, polynomial=True)),
            (lambda x, u: u.trace(a * (1 + x[0] ** 2)) - u.value**3, Shallow(4)),
            (lambda x, u: jnp.trace(u.hessian) - jnp.sum(u.grad**2), Shallow(4)),
            (plain, qpde.MLP([4, 4])),
        ):
            trial = random_trial(Problem(domain, equation, data), network)
            abstract = eqx.filter_eval_shape(tangent, trial, jnp.zeros((2, 2)), jnp.ones(2))
            assert isinstance(abstract, Explicit)
            agree(trial, domain)
        monkeypatch.setattr(_tangent, "_MEMORY", 100)
        with pytest.raises(ValueError, match="needs a Jacobian of .* Take a smaller batch"):
            tangent(trial, jnp.zeros((2, 2)), jnp.ones(2))


@pytest.mark.daily("3")
@pytest.mark.parametrize("dim", [1, 3])
def test_the_polynomial_part_has_the_derivatives_of_autodiff(dim):
    domain = Ball(dim, radius=0.7, centre=np.linspace(0.2, 0.5, dim))
    with jax.enable_x64(True):
        stretched = Ellipsoid(np.linspace(0.5, 2.0, dim) if dim > 1 else [0.8])
        problem = Problem(domain, plain)
        for source in (domain, stretched):
            field = Shallow(5, polynomial=True).build(source, key=jr.key(1))
            assert float(jnp.abs(field.polynomial.curvature)) == 0.0
            field = eqx.tree_at(
                lambda n: (n.polynomial.constant, n.polynomial.slope, n.polynomial.curvature),
                field,
                (jnp.asarray(0.3), jnp.linspace(-1.0, 2.0, dim), jnp.asarray(-1.7)),
            )
            x = domain.sample(jr.key(2), 1)[0]
            hessian = jax.hessian(field.value)(x)
            np.testing.assert_allclose(field.grad(x), jax.grad(field.value)(x), atol=1e-12)
            np.testing.assert_allclose(field.hessian(x), hessian, atol=1e-11)
            a = jnp.eye(dim) + 0.3 * jnp.ones((dim, dim))
            for form in (Identity(), Factor(a), Matrix(a)):
                np.testing.assert_allclose(field.trace(x, form), form.contract(hessian), atol=1e-10)
            centre = jnp.full(dim, 0.1)
            towards = jnp.dot(jax.grad(field.value)(x), x - centre)
            np.testing.assert_allclose(field.at(x).towards(centre), towards, atol=1e-12)
            # The trial function takes the short way with a radial eta.
            trial = Trial.of(problem, field, exact_boundary=True)
            laplacian = jnp.trace(jax.hessian(trial.value)(x))
            np.testing.assert_allclose(trial.jet(x).laplacian, laplacian, atol=1e-10)


SMALL: dict[str, Any] = {
    "network": Shallow(48, polynomial=True, beta=0.5, amplitude=0.15),
    "batch": 200,
    "precision": "float64",
    "progress": False,
}


def test_gauss_newton_is_accurate_in_five_dimensions():
    solution = qpde.solve(zoo.survival(5), rule=GaussNewton(), steps=10, **SMALL)
    assert solution.rule == "gauss-newton"
    assert len(solution.history.loss) == 10
    assert solution.score.relative_l2_error < 1e-4
    assert solution.history.held_out[-1] < 1e-6 * solution.history.held_out[0]


def test_a_run_goes_on_with_the_same_bits_even_while_the_sample_grows(tmp_path):
    options = SMALL | {"batch": 30, "rule": GaussNewton(doublings=1), "steps": 12, "throw": False}
    problem = zoo.drift(3)
    whole = qpde.solve(problem, **options)

    def stop(seen):
        return seen.step == 10  # the sample was doubled at step 9

    part = qpde.solve(problem, **options, callback=stop, checkpoint=tmp_path)
    assert part.status is qpde.Status.STOPPED
    rest = qpde.solve(problem, **options, checkpoint=tmp_path)
    np.testing.assert_array_equal(whole.history.loss, rest.history.loss)
    with jax.enable_x64(True):
        first, second = (ravel_pytree(trainable(run.trial.network)[0])[0] for run in (whole, rest))
    np.testing.assert_array_equal(first, second)


def test_a_sample_that_steps_overfit_is_doubled():
    rule = GaussNewton(doublings=1)
    with jax.enable_x64(True):
        trial = random_trial(zoo.survival(2), SMALL["network"])
        state = rule.init(trial, jr.key(0))
        assert rule.batch_factor(state) == 1
        for _ in range(4):
            state = rule._judged(state, state.damping, jnp.asarray(True))
        assert rule.batch_factor(state) == 2
        for _ in range(9):
            state = rule._judged(state, state.damping, jnp.asarray(True))
        assert rule.batch_factor(state) == 2


@pytest.mark.parametrize("rule", [GaussNewton(), ImplicitQLearning()])
def test_second_order_rules_need_float64(rule):
    with pytest.raises(ValueError, match=r'solve\(\.\.\., precision="float64"\)'):
        qpde.solve(zoo.survival(2), rule=rule, steps=1, precision="float32", progress=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussNewton(damping=0.0), "^damping must be a positive number, got 0.0.$"),
        (
            lambda: GaussNewton(doublings=-1),
            "^doublings must be a whole number from 0 to 20, got -1.$",
        ),
        (lambda: ImplicitQLearning(length=-2.0), "^length must be a positive number, got -2.0.$"),
    ],
)
def test_wrong_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.slow
def test_nonlinear_and_obstacle_problems_run():
    cubic = Problem(Ball(2), lambda x, u: u.laplacian - u.value**3 + jnp.exp(x[0]), 1.0)
    for problem, rule in (
        (cubic, GaussNewton()),
        (cubic, ImplicitQLearning()),
        (zoo.american_put(), GaussNewton()),
    ):
        solution = qpde.solve(problem, rule=rule, steps=4, **SMALL)
        assert solution.status is qpde.Status.FINISHED
        assert np.all(np.isfinite(solution.history.loss))
        assert np.nanmin(solution.history.held_out) < 0.1 * solution.history.held_out[0]


@pytest.mark.daily("1")
@pytest.mark.parametrize("dim", [1, 20])
def test_implicit_steps_are_stable_where_explicit_ones_diverge(dim):
    """A thousand times the explicit limit `2 / |lambda_max|` of `K / M`."""
    problem, count = zoo.survival(dim), 100

    @eqx.filter_jit
    def after(trial, points, length, implicit):
        here = tangent(trial, points, jnp.full(count, 1.0 / count))
        if implicit:
            update = implicit_update(here, here.cross(), length)
        else:
            update = jax.tree.map(lambda v: length * v, here.pull_value(here.residual))
        params, rest = trainable(trial.network)
        moved = trial.with_network(eqx.combine(jax.tree.map(jnp.add, params, update), rest))
        return moved, jnp.dot(here.residual, here.residual), here.cross()

    with jax.enable_x64(True):
        start = Trial.of(
            problem, SMALL["network"].build(problem.domain, key=jr.key(0)), exact_boundary=True
        )
        points = problem.domain.sample(jr.key(1), count)
        kernel = after(start, points, jnp.asarray(1.0), True)[2]
        length = jnp.asarray(1_000 * 2.0 / np.max(np.abs(np.linalg.eigvals(np.asarray(kernel)))))
        losses = {}
        for implicit in (True, False):
            trial, losses[implicit] = start, []
            for _ in range(5):
                trial, loss, _ = after(trial, points, length, implicit)
                losses[implicit].append(float(loss))
        assert losses[True][-1] < 1e-2 * losses[True][0]
        assert not losses[False][-1] < 1e3 * losses[False][0]


@pytest.mark.slow
def test_implicit_q_learning_is_accurate():
    solution = qpde.solve(zoo.survival(5), rule=ImplicitQLearning(), steps=10, **SMALL)
    assert solution.score.relative_l2_error < 5e-4


def test_polish_solves_for_the_output_layer():
    solution = qpde.solve(
        zoo.survival(1), network=Shallow(64, polynomial=True), steps=300, progress=False
    )
    best = qpde.polish(solution)
    assert best.precision == "float64"
    assert best.rule == "q-learning + least-squares"
    assert best.score.relative_l2_error < 1e-12
    galerkin = qpde.polish(solution, "galerkin")
    assert galerkin.score.relative_l2_error < 1e-6
    assert qpde.polish(best).score.relative_l2_error < 1e-12


@pytest.mark.slow
def test_polish_in_more_dimensions_for_deep_networks_and_general_operators():
    a = np.array([[2.0, 0.5], [0.5, 1.0]])
    problem = Problem(Box(-1.0, 1.0, dim=2), lambda x, u: u.trace(a) - u.value + jnp.sin(x[0]))
    for network in (qpde.MLP([16, 16]), Shallow(32, polynomial=True)):
        solution = qpde.solve(problem, network=network, steps=100, progress=False)
        assert qpde.polish(solution).score.loss < 0.5 * solution.score.loss


def test_polish_refuses_what_it_cannot_do():
    solution = qpde.solve(zoo.semilinear(2), network=Shallow(4), steps=0, progress=False)
    with pytest.raises(ValueError, match="polish is for equations linear in u"):
        qpde.polish(solution)
    linear = qpde.solve(zoo.survival(2), network=Shallow(4), steps=0, progress=False)
    with pytest.raises(ValueError, match='method is "least-squares" or "galerkin"'):
        qpde.polish(linear, "newton")
    with pytest.raises(ValueError, match="count must be at least 4"):
        qpde.polish(linear, count=3)
    with pytest.raises(ValueError, match="a whole number from 0 to 33,554,432, got 1000000000"):
        qpde.polish(linear, count=10**9)


@pytest.mark.slow
def test_aligned_weights_find_the_direction_of_the_solution():
    direction = np.ones(30) / np.sqrt(30)

    def equation(x, u):
        return u.laplacian - u.value + jnp.sin(6.0 * jnp.dot(jnp.asarray(direction), x))

    with jax.enable_x64(True):
        problem = Problem(Ball(30), equation)
        network = Shallow(40, aligned=0.5)
        field = network.build(problem.domain, key=jr.key(0))
        start = _Start(Trial.of(problem, field, exact_boundary=True), qpde.Uniform(problem.domain))
        w = np.asarray(network.adapt(field, start, key=jr.key(1)).w)
        cosines = np.abs(direction @ w) / np.linalg.norm(w, axis=0)
        assert np.all(cosines[:20] > 0.999)
        assert np.all(cosines[20:] < 0.8)
        plain_problem = zoo.survival(30)
        trial = Trial.of(plain_problem, field, exact_boundary=True)
        start = _Start(trial, qpde.Uniform(plain_problem.domain))
        same = network.adapt(field, start, key=jr.key(1)).w
        np.testing.assert_array_equal(same, field.w)
    with pytest.raises(ValueError, match="aligned is a share"):
        Shallow(4, aligned=2.0)
    with pytest.raises(ValueError, match="axes is a share"):
        Shallow(4, axes=-1.0)
    with pytest.raises(ValueError, match="shares of one whole"):
        Shallow(4, aligned=0.6, axes=0.6)
    with pytest.raises(ValueError, match="amplitude must be"):
        Shallow(4, amplitude=0.0)


@pytest.mark.slow
def test_a_polynomial_part_is_saved_and_loaded(tmp_path):
    solution = qpde.solve(zoo.survival(2), rule=GaussNewton(), steps=2, **SMALL)
    qpde.save(solution, tmp_path / "a.safetensors")
    points = np.random.default_rng(0).uniform(-0.5, 0.5, (5, 2))
    np.testing.assert_array_equal(qpde.load(tmp_path / "a.safetensors")(points), solution(points))


def test_units_along_the_axes():
    """The last quarter looks along one axis each, all axes in turn; the rest is as without it."""
    plain, some = (Shallow(16, axes=share).build(Ball(3), key=jr.key(2)) for share in (0.0, 0.25))
    np.testing.assert_array_equal(plain.w[:, :12], some.w[:, :12])
    np.testing.assert_array_equal(plain.b, some.b)
    assert np.argmax(np.abs(np.asarray(some.w[:, 12:])), axis=0).tolist() == [0, 1, 2, 0]
    assert np.count_nonzero(some.w[:, 12:]) == 4
