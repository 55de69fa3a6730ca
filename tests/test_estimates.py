"""Second derivatives estimated from a few coordinates: unbiased, and refused where they would not be.

Statistical tests compare a mean over 4,000 draws with its exact value and allow five standard errors: a false
alarm in 2,000,000 runs.
"""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import qpde
from qpde import Ball, DeepGalerkin, Problem, QLearning, zoo
from qpde._field.form import Coordinates, Factor, Identity
from qpde._field.sampled import Sampling
from qpde._network import mlp
from qpde._network.base import trainable
from qpde._rule.estimates import halves

DIM, DRAWS, COUNT = 12, 4, 4_000


def trial_of(problem, widths=(6, 5)):
    network = qpde.MLP(widths).build(problem.domain, key=jr.key(3))
    # Large weights, so that second derivatives differ from one coordinate to another.
    network = eqx.tree_at(lambda n: n.weights, network, [3.0 * w for w in network.weights])
    return qpde.Trial.of(problem, network, exact_boundary=True)


def within(values, exact):
    error = np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
    return np.all(np.abs(np.mean(values, axis=0) - exact) <= 5.0 * error)


@pytest.mark.parametrize("form", ["laplacian", "factor"])
def test_traces_are_unbiased(form):
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).standard_normal(DIM) / 5)
        field = trial_of(zoo.survival(DIM)).network
        exact = Identity()
        if form == "factor":
            exact = Factor(jnp.asarray(np.random.default_rng(1).standard_normal((DIM, 7))))

        def drawn(key):
            return field.trace(x, Sampling(key, DRAWS).thinned(exact, x))

        values = np.asarray(jax.vmap(drawn)(jr.split(jr.key(1), COUNT)))
        assert np.std(values) > 0
        assert within(values, float(field.trace(x, exact)))


def test_products_of_two_draws_are_unbiased_and_squares_of_one_are_not():
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).standard_normal(DIM) / 5)
        trial = trial_of(zoo.survival(DIM))
        params, rest = trainable(trial.network)
        flat, unravel = jax.flatten_util.ravel_pytree(params)

        def moved(v):
            return trial.with_network(eqx.combine(unravel(v), rest))

        def product(v, key):
            _, first, second = halves(moved(v), x, key, 2 * DRAWS)
            return first * second, first

        keys = jr.split(jr.key(2), COUNT)
        squares, first = (np.asarray(a) for a in jax.vmap(lambda k: product(flat, k))(keys))
        exact = float(trial.residual(x)) ** 2
        assert within(squares, exact)
        assert within(first, float(trial.residual(x)))
        assert not within(first**2, exact)  # by the variance of a draw
        grads = jax.vmap(lambda k: jax.grad(lambda v: product(v, k)[0])(flat))(keys)
        right = jax.grad(lambda v: moved(v).residual(x) ** 2)(flat)
        along = np.random.default_rng(5).standard_normal(flat.size)
        assert within(np.asarray(grads) @ along, float(np.asarray(right) @ along))


def test_all_coordinates_are_the_laplacian_for_every_kind_of_network(monkeypatch):
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).standard_normal(DIM) / 5)
        form = Coordinates(jnp.arange(DIM), jnp.ones(()))
        deep = trial_of(zoo.survival(DIM)).network
        own = qpde.as_field(lambda x: jnp.sin(jnp.sum(x)) * jnp.sum(x**3))
        for field in (deep, own):
            np.testing.assert_allclose(field.trace(x, form), field.trace(x, Identity()), rtol=1e-12)
        hessian = deep.hessian(x)
        np.testing.assert_allclose(form.contract(hessian), jnp.trace(hessian), rtol=1e-12)
        np.testing.assert_allclose(form.quadratic(x[None]), [x @ x], rtol=1e-12)
        np.testing.assert_allclose(form.apply(x), x)
        np.testing.assert_allclose(form.diagonal(x), np.ones(DIM))
        plain = deep.trace(x, Identity())
        monkeypatch.setattr(mlp, "_COLUMNS", 5)  # two blocks and a rest
        np.testing.assert_allclose(deep.trace(x, Identity()), plain, rtol=1e-12)


@pytest.mark.parametrize("rule", [QLearning, DeepGalerkin])
def test_a_run_with_draws_learns_and_ends_with_an_exact_loss(rule):
    problem = zoo.survival(DIM)
    options = {"network": qpde.MLP([16, 16]), "steps": 200, "batch": 128, "progress": False}
    solution = qpde.solve(problem, rule=rule(0.01, draws=4), **options)
    assert solution.history.held_out[-1] < 0.5 * solution.history.held_out[0]
    again = qpde.solve(problem, rule=rule(0.01, draws=4), **options)
    np.testing.assert_array_equal(solution.history.loss, again.history.loss)


def test_what_would_be_biased_is_refused():
    curved = Problem(Ball(3), lambda x, u: u.laplacian + 0.1 * jnp.tanh(u.laplacian) + 1.0)
    full = Problem(Ball(3), lambda x, u: jnp.trace(u.hessian) + 1.0)
    deep = qpde.MLP([8])
    with pytest.raises(ValueError, match="not affine in the second derivatives"):
        qpde.solve(curved, network=deep, rule=QLearning(draws=2), steps=1)
    with pytest.raises(ValueError, match=r"asks for u.hessian"):
        qpde.solve(full, network=deep, rule=QLearning(draws=2), steps=1)
    with pytest.raises(ValueError, match="leave draws= out"):
        qpde.solve(zoo.survival(3), rule=QLearning(draws=2), steps=1)
    with pytest.raises(ValueError, match="even number"):
        QLearning(draws=3)
    with pytest.raises(ValueError, match="do not go together"):
        QLearning(draws=2, truncation=qpde.Truncation(3.0))
