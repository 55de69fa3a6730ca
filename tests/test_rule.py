"""Rules against formulas written out by hand."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import qpde
from qpde import MLP, DeepGalerkin, Flow, Penalty, QLearning, Shallow, Truncation, Uniform, zoo
from qpde._network.base import trainable
from qpde._problem.trial import Trial
from qpde._rule.base import AbstractRule
from qpde._rule.batch import Draw
from qpde._rule.schedule import Clock

SIZE = 700
FLOW = optax.sgd(1.0)


def setup(rule, network=None, dim=3):
    problem = zoo.survival(dim)
    network = Shallow(16, beta=0.7) if network is None else network
    field = network.build(problem.domain, key=jr.key(3))
    trial = Trial.of(problem, field, exact_boundary=rule.exact_boundary)
    measure = Uniform(problem.domain)
    draw = Draw(measure, jr.key(4), jnp.asarray(SIZE, jnp.int32), 200)
    keys = [jr.fold_in(jr.key(4), i) for i in range(4)]
    points = jnp.concatenate([measure.sample(k, 200)[0] for k in keys])[:SIZE]
    return problem, trial, draw, points, [jr.fold_in(k, 1) for k in keys]


@eqx.filter_jit
def one_step(rule, trial, draw):
    state = rule.init(trial, jr.key(0))
    return rule.step(trial, state, draw, Clock(jnp.asarray(0), jnp.asarray(10)))


def moved_by(trial, after):
    before, now = trainable(trial.network)[0], trainable(after.network)[0]
    return jax.tree.map(lambda a, b: b - a, before, now)


def params_of(trial):
    return trainable(trial.network)[0]


def brute(network, x):
    """Q and L Q at one point by nested automatic differentiation, nothing shared with the library."""

    def q(x):
        y = (x - network.frame.centre.array) / network.frame.half.array
        hidden = network.activation(y @ network.w + network.b)
        return network.factor.array * jnp.dot(network.c, hidden) * (1 - jnp.sum(x * x))

    return q(x), 1 - 0.2 * q(x) + 0.5 * jnp.trace(jax.hessian(q)(x))


@eqx.filter_jit
def residuals(network, points):
    return jax.vmap(lambda x: brute(network, x)[1])(points)


def test_q_learning_moves_along_residual_times_gradient_of_q():
    with jax.enable_x64(True):
        rule = QLearning(0.1, optimiser=FLOW)
        _, trial, draw, points, _ = setup(rule)
        after, _, info = one_step(rule, trial, draw)
        params, rest = trainable(trial.network)

        def value(params, x):
            return brute(eqx.combine(params, rest), x)[0]

        residual = residuals(trial.network, points)
        gradient = jax.jit(jax.vmap(jax.grad(value), (None, 0)))(params, points)
        expected = jax.tree.map(lambda g: 0.1 * jnp.tensordot(residual, g, axes=1) / SIZE, gradient)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12),
            moved_by(trial, after),
            expected,
        )
        np.testing.assert_allclose(info.loss, jnp.mean(residual**2), rtol=1e-12)
        assert info.active == pytest.approx(1.0)


def test_deep_galerkin_descends_the_squared_residual():
    with jax.enable_x64(True):
        rule = DeepGalerkin(0.1, optimiser=FLOW)
        problem, trial, draw, points, _ = setup(rule)
        after, _, info = one_step(rule, trial, draw)
        params, rest = trainable(trial.network)

        def loss(params):
            network = eqx.combine(params, rest)
            return jnp.mean(residuals(network, points) ** 2)

        expected = jax.tree.map(lambda g: -0.1 * g, jax.jit(jax.grad(loss))(params))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11),
            moved_by(trial, after),
            expected,
        )
        np.testing.assert_allclose(info.loss, loss(params), rtol=1e-12)


def test_penalty_adds_the_boundary_and_leaves_the_network_bare():
    with jax.enable_x64(True):
        rule = Penalty(7.0, rate=0.1, optimiser=FLOW)
        problem, trial, draw, points, keys = setup(rule)
        x = problem.domain.sample_boundary(jr.key(9), 1)[0]
        assert trial.value(x) == trial.network.value(x)
        after, _, info = one_step(rule, trial, draw)
        edges = [problem.domain.sample_boundary(key, 50) for key in keys]
        shares = jnp.array([200, 200, 200, 100]) / SIZE
        params, rest = trainable(trial.network)

        def loss(params):
            network = eqx.combine(params, rest)
            q = network.value
            inside = jax.vmap(lambda x: 1 - 0.2 * q(x) + 0.5 * jnp.trace(jax.hessian(q)(x)))
            gaps = jnp.stack([jnp.mean(jax.vmap(q)(edge) ** 2) for edge in edges])
            return jnp.mean(inside(points) ** 2) + 7.0 * jnp.dot(shares, gaps)

        expected = jax.tree.map(lambda g: -0.1 * g, jax.jit(jax.grad(loss))(params))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11),
            moved_by(trial, after),
            expected,
        )


def test_plain_flow_scales_with_the_width():
    """alpha^N = alpha N^(2 beta - 1), from the network itself."""
    with jax.enable_x64(True):
        plain = QLearning(1.0, optimiser=FLOW)
        flow = QLearning(optimiser=Flow(0.5))
        _, trial, draw, _, _ = setup(plain)
        a = moved_by(trial, one_step(plain, trial, draw)[0])
        b = moved_by(trial, one_step(flow, trial, draw)[0])
        factor = 0.5 * 16 ** (2 * 0.7 - 1)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(factor * a, b, atol=1e-14), a, b)
        _, deep, draw, _, _ = setup(flow, MLP([4]))
        with pytest.raises(ValueError, match="Flow is defined for the Shallow network"):
            one_step(flow, deep, draw)


def test_any_optax_optimiser_and_its_own_rate():
    with jax.enable_x64(True):
        _, trial, draw, _, _ = setup(QLearning())
        chain = optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(1.0))
        step = moved_by(trial, one_step(QLearning(optimiser=chain), trial, draw)[0])
        assert float(optax.tree.norm(step)) == pytest.approx(1e-3)
    with pytest.raises(ValueError, match="optimiser must be an Optax optimiser"):
        QLearning(optimiser="adam")


def test_frozen_numbers_are_not_trained_even_with_weight_decay():
    rule = QLearning(optimiser=optax.adamw(0.1, weight_decay=0.5))
    _, trial, draw, _, _ = setup(rule)
    after, _, _ = one_step(rule, trial, draw)
    for name in ("factor", "beta"):
        before, now = getattr(trial.network, name).array, getattr(after.network, name).array
        assert np.float32(before) == np.float32(now)
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(moved_by(trial, after)))


@pytest.mark.parametrize("level", [1.0, 1.7, 5.0])
def test_truncation_is_what_the_paper_asks_of_it(level):
    truncation = Truncation(level)
    with jax.enable_x64(True):
        r = jnp.linspace(-level - 8, level + 8, 20_001)
        psi = truncation.psi(r, level)
        slope = jax.vmap(jax.grad(lambda r: truncation.psi(r, level)))(r)
        second = jax.vmap(jax.grad(jax.grad(lambda r: truncation.psi(r, level))))(r)
        inside = np.abs(r) < level
        np.testing.assert_array_equal(psi[inside], r[inside])
        assert np.all(np.diff(psi) >= 0)
        assert np.all(np.abs(psi) <= 2 * level)
        assert np.all(np.abs(slope) <= 1 + 1e-12)
        # C^2: value, slope and curvature are continuous across the level.
        for values, bound in ((psi, 1.0), (slope, 1.0), (second, 2.0)):
            assert np.abs(np.diff(values)).max() <= bound * 2 * float(r[1] - r[0])
        force = truncation.force(r, level)
        np.testing.assert_allclose(force, psi * slope, atol=1e-12)
        assert np.all(np.abs(force - r) <= np.abs(r) * (np.abs(r) >= level) + 1e-12)
        np.testing.assert_array_equal(Truncation(level, damped=False).force(r, level), psi)


def test_the_uniform_truncation_is_uniformly_lipschitz():
    """Its force has the Lipschitz constant 1.17 at every level, the example's about 0.86 times the level."""
    for level in (1.0, 10.0, 100.0):
        with jax.enable_x64(True):
            r = jnp.linspace(-4 * level, 4 * level, 20_001)
            steepest = {}
            for uniform in (False, True):
                truncation = Truncation(level, uniform=uniform)
                psi = truncation.psi(r, level)
                slope = jax.vmap(jax.grad(lambda r, t=truncation, k=level: t.psi(r, k)))(r)
                force = truncation.force(r, level)
                np.testing.assert_allclose(force, psi * slope, atol=1e-12 * level)
                assert np.all(np.diff(psi) >= 0)
                assert np.all(np.abs(psi) <= 2 * level)
                change = jax.vmap(jax.grad(lambda r, t=truncation, k=level: t.force(r, k)))(r)
                steepest[uniform] = float(np.max(np.abs(change)))
        np.testing.assert_allclose(steepest[True], 1.17, atol=0.01)
        assert steepest[False] > 0.8 * level


def test_truncation_levels():
    with pytest.raises(ValueError, match="at least 1, got 0.5"):
        Truncation(0.5)
    rule = QLearning(truncation=Truncation())
    _, trial, _, _, _ = setup(rule)
    level = rule.init(trial, jr.key(0)).level
    assert float(level) == pytest.approx(16 ** ((1 - 0.7) / 4))
    _, deep, _, _, _ = setup(rule, MLP([4]))
    with pytest.raises(ValueError, match=r"Truncation\(level=K\) needs a level"):
        rule.init(deep, jr.key(0))


def test_truncated_share_is_logged():
    with jax.enable_x64(True):
        rule = QLearning(truncation=Truncation(1.0))
        problem, trial, draw, points, _ = setup(rule)
        residual = np.asarray(residuals(trial.network, points))
        info = one_step(rule, trial, draw)[2]
        assert 0 < info.active < 1
        np.testing.assert_allclose(info.active, np.mean(np.abs(residual) <= 1.0), rtol=1e-12)
        assert info.error < info.loss


def test_every_rule_obeys_one_protocol():
    rules: list[Any] = [
        value
        for value in vars(qpde).values()
        if isinstance(value, type) and issubclass(value, AbstractRule) and value is not AbstractRule
    ]
    for kind in (
        qpde.PolicyIteration,
        qpde.ActorCritic,
    ):  # for control problems: tests/test_control.py
        rules.remove(kind)
    assert len(rules) == 7
    for kind in rules:
        rule = kind()
        with jax.enable_x64(rule.precision == "float64"):
            _, trial, draw, _, _ = setup(rule)
            after, _, info = one_step(rule, trial, draw)
        assert jax.tree.structure(after) == jax.tree.structure(trial)
        assert all(np.isfinite(leaf) for leaf in jax.tree.leaves(info))
        assert float(info.gradient) > 0
