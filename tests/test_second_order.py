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
from qpde._rule.batch import Batch
from qpde._rule.gauss_newton import mean_square
from qpde._rule.implicit import implicit_update
from qpde._rule.trials import Steps
from qpde._tangent import damped, jacobian
from qpde._tangent.jacobian import Explicit
from qpde._tangent.second_order import SecondOrder
from qpde._tangent.tangent import Structured, tangent
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


@eqx.filter_jit
def products(trial, points, weights, v):
    """`J v`, the diagonal of `J J'`, and its block columns put together."""
    found = tangent(trial, points, weights)
    whole = [
        jnp.pad(part, ((a, 0), (0, 0)))
        for (a, _), part in zip(SPANS, found.stripes(SPANS), strict=True)
    ]
    return found.push(v), found.diagonal(), jnp.concatenate(whole, axis=1)


SPANS = [(0, 2), (2, 3), (3, 9)]


def agree(trial, domain, count=9):
    domain_points = domain.sample(jr.key(7), count)
    rng = np.random.default_rng(5)
    weights, v = jnp.asarray(rng.uniform(0.5, 2.0, count)), jnp.asarray(rng.standard_normal(count))
    explicit = explicit_parts(trial, domain_points, weights, v)
    for mine, theirs in zip(parts(trial, domain_points, weights, v), explicit, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-10 * float(jnp.max(jnp.abs(theirs))))
    change, gram = ravelled(trial, rng), explicit[1]
    pushed, diagonal, columns = products(trial, domain_points, weights, change[1])
    np.testing.assert_allclose(pushed @ v, explicit[3] @ change[0], rtol=1e-9)
    np.testing.assert_allclose(diagonal, jnp.diagonal(gram), rtol=1e-10)
    scale = float(jnp.max(jnp.abs(gram)))
    np.testing.assert_allclose(jnp.tril(columns), jnp.tril(gram), atol=1e-10 * scale)


def ravelled(trial, rng):
    """A random change of the parameters, as numbers and in their form."""
    flat, unravel = ravel_pytree(trainable(trial.network)[0])
    change = jnp.asarray(rng.standard_normal(flat.size))
    return change, unravel(change)


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


def test_other_networks_and_matrices_that_vary_have_explicit_jacobians(monkeypatch):
    domain = Box(-1.0, 1.0, dim=2)
    a = np.array([[2.0, 0.5], [0.5, 1.0]])
    with jax.enable_x64(True):
        for equation, network in (
            (lambda x, u: u.trace(a * (1 + x[0] ** 2)) - u.value**3, Shallow(4)),
            (lambda x, u: (2.0 + x[0]) * jnp.trace(u.hessian) - u.value, Shallow(4)),
            (lambda x, u: u.laplacian + u.second(0.1 * u.value * x), Shallow(4, polynomial=True)),
            (plain, qpde.MLP([4, 4])),
        ):
            trial = random_trial(Problem(domain, equation, data), network)
            abstract = eqx.filter_eval_shape(tangent, trial, jnp.zeros((2, 2)), jnp.ones(2))
            assert isinstance(abstract, Explicit)
            agree(trial, domain)
        monkeypatch.setattr(jacobian, "_MEMORY", 100)
        with pytest.raises(ValueError, match="needs a Jacobian of .* Take a smaller batch"):
            tangent(trial, jnp.zeros((2, 2)), jnp.ones(2))


def correlated(dim):
    root = np.random.default_rng(2).standard_normal((dim, dim))
    return root @ root.T / dim + 0.1 * np.eye(dim)


def constant_matrices(dim):
    """Equations whose second-order part has constant matrices, with the number of these."""
    a, v = correlated(dim), np.linspace(-1.0, 2.0, dim)
    flat = np.diag([1.0] * (dim - 1) + [0.0])
    sigma = np.linalg.cholesky(a)[:, :2]
    return {
        "correlated": (lambda x, u: u.trace(a) - u.value**3 + u.along(jnp.sin(x)), 1),
        "degenerate": (lambda x, u: u.trace(flat) - u.grad[-1] + x[0], 1),
        "several": (lambda x, u: u.second(v) + 0.5 * u.laplacian + u.trace(a) - 0.3 * u.value, 1),
        "generator": (lambda x, u: u.generator(jnp.cos(x), sigma) + 0.1 * u.laplacian, 1),
        "number in front": (
            lambda x, u: (2.0 + jnp.sin(x[0])) * u.trace(a) - jnp.sum(u.grad**2),
            1,
        ),
        "nonlinear number": (lambda x, u: (1.0 + u.value**2) * u.trace(a) - u.value, 1),
        "two": (lambda x, u: u.laplacian + x[0] ** 2 * u.second(v) - u.value, 2),
        "hessian": (lambda x, u: jnp.sum(a * u.hessian) + u.trace(flat) - u.value * u.grad[0], 1),
    }


@pytest.mark.daily("correlated-ball", "several-box", "two-ellipsoid", "hessian-ball")
@pytest.mark.parametrize("shape", ["ball", "ellipsoid", "box"])
@pytest.mark.parametrize("name", list(constant_matrices(4)))
def test_constant_matrices_need_no_jacobian(name, shape):
    equation, count = constant_matrices(4)[name]
    domain = domain_of(shape, 4)
    with jax.enable_x64(True):
        trial = random_trial(Problem(domain, equation, data), Shallow(6, beta=0.7, polynomial=True))
        points = jnp.zeros((2, 4))
        found = eqx.filter_eval_shape(tangent, trial, points, jnp.ones(2))
        assert isinstance(found, Structured)
        assert len(found.bent) == count
        agree(trial, domain)


@pytest.mark.parametrize("most", [4_000, 100])
def test_damped_systems_are_solved(most, monkeypatch):
    """By Cholesky, and by conjugate gradients, whose steps run out where the damping is next to nothing."""
    monkeypatch.setattr(damped, "_LARGEST", most)
    monkeypatch.setattr(damped, "_LANDMARKS", 40)
    count, dampings = 230, np.asarray([1e-9, 1e-5, 1e-3, 1.0])

    @eqx.filter_jit
    def solved(trial, points, weights):
        here = tangent(trial, points, weights)
        return here.gram(), here.residual, *damped.solve_damped(here, jnp.asarray(dampings))

    with jax.enable_x64(True):
        problem = zoo.survival(4)
        trial = random_trial(problem, Shallow(20, polynomial=True))
        points = problem.domain.sample(jr.key(7), count)
        gram, r, x, left = map(np.asarray, solved(trial, points, jnp.full(count, 1.0 / count)))
    for damping, solution, rest in zip(dampings * np.trace(gram) / count, x, left, strict=True):
        matrix = gram + damping * np.eye(count)
        np.testing.assert_allclose(rest, r - gram @ solution, atol=1e-7 * np.max(np.abs(r)))
        enough = 1e-9 if most > count or damping > 1e-6 * np.trace(gram) / count else 1e-2
        assert np.linalg.norm(matrix @ solution - r) < enough * np.linalg.norm(r)


def test_trial_steps_have_the_losses_of_their_parameters():
    """Also those of directions that could not be found, and of no step."""
    with jax.enable_x64(True):
        for network in (Shallow(5, polynomial=True), qpde.MLP([4])):
            problem = Problem(Ball(2), nonlinear, data)
            trial = random_trial(problem, network)
            params, rest = trainable(trial.network)
            rng = np.random.default_rng(1)
            directions = jax.tree.map(
                lambda p: jnp.asarray(rng.standard_normal((2, *p.shape))),  # noqa: B023
                params,
            )
            directions = jax.tree.map(lambda v: v.at[1].set(jnp.nan), directions)
            pairs = [(0, 0.0), (1, 0.0), (0, 1.0), (0, 0.3), (1, 1.0)]
            which, lengths = (jnp.asarray(part) for part in zip(*pairs, strict=True))
            steps = Steps(params, directions, which, lengths)
            weights = jnp.asarray(rng.uniform(0.0, 0.01, 300))
            batch = Batch(problem.domain.sample(jr.key(3), 300), weights, weights, jr.key(0))
            found = eqx.filter_jit(Steps.losses)(steps, trial, rest, batch)
            loss_of = eqx.filter_jit(mean_square)
            for number, (loss, (i, length)) in enumerate(zip(found, pairs, strict=True)):
                moved = jax.tree.map(lambda p, v: p - length * v[i], params, directions)  # noqa: B023
                moved = params if length == 0 else moved
                expected = loss_of(trial, moved, rest, batch)
                np.testing.assert_allclose(loss, expected, rtol=1e-11)
                same = eqx.tree_equal(steps.of(number), moved, rtol=1e-15, atol=0.0)
                assert bool(same) or (i == 1 and length > 0)


def test_what_varies_is_read_off_the_program():
    """A matrix that is the same at all points anybody would try, and yet depends on them."""
    a = correlated(3)
    jump = lambda x: jnp.where(x[0] > 1e9, 2.0, 1.0)  # noqa: E731
    varying = [
        lambda x, u: u.trace(jump(x) * a),
        lambda x, u: u.trace(a + 0.0 * x[0]),
        lambda x, u: u.generator(jnp.zeros(3), jnp.where(u.value > 1e9, 2.0, 1.0) * a),
        lambda x, u: jump(x) * jnp.sum(a * u.hessian),
        lambda x, u: jnp.sqrt(1.0 + jnp.sum(u.hessian**2)),
        # Not varying, but too many.
        lambda x, u: sum(x[0] ** 2 * u.second(k * jnp.asarray(a[0])) for k in range(1, 6)),
    ]
    with jax.enable_x64(True):
        for equation in varying:
            assert SecondOrder.of(equation, 3) is None
        constant = SecondOrder.of(lambda x, u: u.trace(a) * jump(x) + u.laplacian, 3)
        assert constant.groups == ((0,), (1,))
        # Where the Laplacian is all, its number may be anything.
        assert SecondOrder.of(lambda x, u: jump(x) * u.laplacian, 3).laplacian


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
