"""Ridge networks, variable projection, and the default that tries them."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import qpde
from qpde._domain.base import drawn
from qpde._field.form import Factor, Identity, Matrix
from qpde._network.base import Frozen, trainable
from qpde._network.ridge import RidgeField
from qpde._precision import x64
from qpde._problem.trial import Trial
from qpde._rule.batch import Batch
from qpde._rule.projection import _Triangle, rows, split

pytestmark = pytest.mark.trains


def field(domain, **options):
    """A network with random coefficients."""
    built = qpde.Ridge(8, **options).build(domain, key=jr.key(1))
    rng = np.random.default_rng(2)
    outputs = [jnp.asarray(rng.standard_normal(a.shape)) for a in built.output_layer()]
    return eqx.tree_at(lambda n: n.output_layer(), built, tuple(outputs))


@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"rank": 1, "quadratic": True}])
def test_closed_forms_are_derivatives(options):
    """Against automatic differentiation, to rounding."""
    domain = qpde.Box([0.0, -1.0, 2.0], [1.0, 3.0, 2.5])
    with x64():
        network, x = field(domain, **options), jnp.asarray([0.3, 1.2, 2.1])
        hessian = jax.hessian(network.value)(x)
        np.testing.assert_allclose(network.grad(x), jax.grad(network.value)(x), rtol=1e-11)
        np.testing.assert_allclose(network.hessian(x), hessian, rtol=1e-11, atol=1e-10)
        rng = np.random.default_rng(0)
        for form in (
            Identity(),
            Factor(jnp.asarray(rng.standard_normal((3, 2)))),
            Matrix(jnp.asarray(rng.standard_normal((3, 3)))),
        ):
            np.testing.assert_allclose(network.trace(x, form), form.contract(hessian), rtol=1e-10)


def test_units_bend_inside():
    """Every unit's argument changes sign in the domain, or nearly: its zero is at one of its points."""
    domain = qpde.Ball(2, centre=np.array([5.0, -3.0]), radius=0.1)
    with x64():
        network = qpde.Ridge(200, scale=4.0).build(domain, key=jr.key(0))
        y = np.asarray(jax.vmap(network.frame)(drawn(domain, jr.key(7), 4_000)))
    arguments = y @ network.directions @ network.z.array + network.b.array
    share = np.mean((arguments.min(axis=0) < 0) & (arguments.max(axis=0) > 0))
    assert share > 0.98


def test_what_is_trained():
    """Directions and coefficients; units stay. With all axes the coefficients only."""
    with x64():
        ridge = qpde.Ridge(5, rank=2).build(qpde.Ball(4), key=jr.key(0))
        whole = qpde.Ridge(5).build(qpde.Ball(4), key=jr.key(0))
    shapes = sorted(leaf.shape for leaf in jax.tree.leaves(trainable(ridge)[0]))
    assert shapes == [(), (), (4,), (4, 2), (5,)]
    outer, inner, _ = split(ridge)
    assert [leaf.shape for leaf in jax.tree.leaves(inner)] == [(4, 2)]
    assert sum(leaf.size for leaf in jax.tree.leaves(outer)) == 11
    assert isinstance(whole.a, Frozen)
    assert not jax.tree.leaves(split(whole)[1])


def test_rows_are_the_jacobian():
    """Against `jax.jacfwd` of the residual, weights included."""
    problem = qpde.Problem(qpde.Ball(3), lambda x, u: u.laplacian - u.value**3 + x[0])
    with x64():
        trial = Trial.of(problem, field(problem.domain, rank=2), exact_boundary=True)
        points = drawn(problem.domain, jr.key(3), 5)
        weights = jnp.asarray([0.1, 0.2, 0.3, 0.2, 0.2])
        here = rows(trial, Batch(points, weights, weights, jr.key(0)))
        outer, inner, rest = split(trial.network)
        for part, found in ((outer, here.outer), (inner, here.inner)):
            flat, unravel = jax.flatten_util.ravel_pytree(part)
            other = inner if part is outer else outer

            def residual(v, unravel=unravel, other=other):
                moved = trial.with_network(eqx.combine(unravel(v), other, rest))
                return jnp.sqrt(weights) * jax.vmap(moved.residual)(points)

            np.testing.assert_allclose(found, jax.jacfwd(residual)(flat), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("shape", [(40, 6), (4, 6)])
def test_damped_systems(shape):
    """Against the normal equations, also with fewer rows than columns."""
    rng = np.random.default_rng(5)
    jacobian, residual = rng.standard_normal(shape), rng.standard_normal(shape[0])
    centre, damping = rng.standard_normal(6), 0.1
    with x64():
        triangle = _Triangle.of(jnp.asarray(jacobian), jnp.asarray(residual))
        found = triangle.solve(jnp.asarray(damping), jnp.asarray(centre))
    weights = damping**2 * 6 * np.sum(jacobian**2, axis=0)
    matrix = jacobian.T @ jacobian + np.diag(weights)
    expected = np.linalg.solve(matrix, weights * centre - jacobian.T @ residual)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


WAVE = np.array([1.0, -2.0, 0.5, 1.5, -1.0])


def wave(linear=True):
    """`u = (1 - |x|^2) sin(a . x)` in five dimensions, with or without a cubic term."""

    def exact(x):
        return (1.0 - jnp.dot(x, x)) * jnp.sin(jnp.dot(WAVE, x))

    def equation(x, u):
        t, square = jnp.dot(WAVE, x), float(WAVE @ WAVE)
        laplacian = -10.0 * jnp.sin(t) - 4.0 * t * jnp.cos(t)
        laplacian = laplacian - (1.0 - jnp.dot(x, x)) * square * jnp.sin(t)
        rest = u.value - exact(x) if linear else u.value**3 - exact(x) ** 3
        return u.laplacian - laplacian - rest

    return qpde.Problem(qpde.Ball(5), equation, exact=exact)


@pytest.mark.parametrize("linear", [True, False])
def test_one_direction_is_found(linear):
    """From a random direction; eight steps reach what a thousand first-order ones do not."""
    options = {"rule": qpde.VariableProjection(), "batch": 1_000, "steps": 12, "progress": False}
    solution = qpde.solve(wave(linear), network=qpde.Ridge(48, rank=1, scale=2.0), **options)
    assert solution.score.relative_l2_error < 1e-5
    network = solution.trial.network
    assert isinstance(network, RidgeField)
    direction = np.asarray(network.directions)[:, 0]
    cosine = direction @ WAVE / np.linalg.norm(direction) / np.linalg.norm(WAVE)
    assert abs(cosine) > 1 - 1e-9


def test_saved_and_loaded(tmp_path):
    """The same bits."""
    options = {"rule": qpde.VariableProjection(), "batch": 300, "steps": 1, "progress": False}
    for network in (qpde.Ridge(12), qpde.Ridge(12, rank=1, quadratic=True)):
        problem = qpde.zoo.survival(3)
        solution = qpde.solve(problem, network=network, **options)
        qpde.save(solution, tmp_path / "ridge.safetensors")
        loaded = qpde.load(tmp_path / "ridge.safetensors")
        assert isinstance(loaded.trial.network, RidgeField)
        points = np.random.default_rng(0).uniform(-0.5, 0.5, (10, 3))
        np.testing.assert_array_equal(loaded(points), solution(points))


def test_networks_without_an_output_layer_are_refused():
    own = eqx.nn.MLP(2, "scalar", 8, 1, key=jr.key(0))
    with pytest.raises(ValueError, match="output layer"):
        qpde.solve(
            qpde.zoo.survival(2),
            network=own,
            rule=qpde.VariableProjection(),
            steps=1,
            progress=False,
        )
    with pytest.raises(ValueError, match="at most the dimension, 2"):
        qpde.solve(qpde.zoo.survival(2), network=qpde.Ridge(8, rank=3), steps=1, progress=False)


def sines():
    """`sin(pi x) sin(2 pi y)` on the unit square, with its source."""

    def exact(x):
        return jnp.sin(jnp.pi * x[0]) * jnp.sin(2 * jnp.pi * x[1])

    return qpde.Problem(
        qpde.Box([0.0, 0.0], [1.0, 1.0]),
        lambda x, u: u.laplacian + 5 * jnp.pi**2 * exact(x),
        exact=exact,
    )


@pytest.mark.slow
def test_the_default_in_two_dimensions(growing):
    """Least squares alone: nothing is trained, and what is wider is better."""
    solution = qpde.solve(sines(), progress=False)
    assert {stage.name for stage in solution.stages} <= {"variable-projection", "output layer"}
    assert solution.score.relative_l2_error < 1e-10


@pytest.mark.slow
def test_the_default_in_five_dimensions(growing):
    """The gradients of the source show the direction; 1e-8 without a trained network."""
    solution = qpde.solve(wave(), progress=False)
    assert solution.score.relative_l2_error < 1e-8


@pytest.mark.slow
def test_growth_resumes_with_the_same_bits(growing, tmp_path):
    """A run that was stopped between its attempts goes on to what an undisturbed one finds."""
    from qpde._solve.solve import plan_solve
    from qpde._solve.stages import follow_plans

    def run(folder, stops):
        return follow_plans(
            plan_solve(sines()), checkpoint=tmp_path / folder, progress=False, stops=stops
        )

    whole = run("whole", 3)
    assert [stage.steps for stage in whole.stages[:2]] == [2, 1]
    run("cut", 2)
    resumed = run("cut", 3)
    points = np.random.default_rng(0).uniform(0, 1, (50, 2))
    np.testing.assert_array_equal(resumed(points), whole(points))
