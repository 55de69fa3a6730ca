"""Runs: determinism, traces, what is kept, how they end."""

import dataclasses
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import qpde
from qpde import (
    Ball,
    Decay,
    DeepGalerkin,
    Keep,
    Penalty,
    Problem,
    QLearning,
    Ramp,
    Shallow,
    SolveError,
    Status,
    Truncation,
    zoo,
)
from qpde._network.base import trainable
from qpde._precision import keys_from
from qpde._rule.batch import Draw
from qpde._rule.schedule import Clock
from qpde._train import loop as _loop
from qpde._train import run as _train

SMALL: dict[str, Any] = {"network": Shallow(16), "batch": 128, "progress": False}


def arrays(solution):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(solution.trial.network)]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True))


@pytest.fixture(scope="module")
def problem():
    return zoo.survival(3)


def test_same_seed_same_bits_other_seed_others_and_a_stop_changes_none(problem):
    """The clock ends a run, it never steers it: 200 of 250 steps are the first 200 of 250."""
    first, again, other = (qpde.solve(problem, steps=250, seed=seed, **SMALL) for seed in (0, 0, 1))
    assert same(first, again)
    np.testing.assert_array_equal(first.history.loss, again.history.loss)
    assert not same(first, other)
    part = qpde.solve(problem, steps=250, callback=lambda seen: seen.step >= 200, **SMALL)
    assert part.status is Status.STOPPED
    assert part.steps == 200
    np.testing.assert_array_equal(part.history.loss, first.history.loss[:200])


def test_one_trace_for_another_discount_rate_seed_length_and_batch():
    before = eqx.debug.get_num_traces(_loop.block)
    options = {"network": Shallow(17), "progress": False, "throw": False}
    for discount, rate, steps, batch, seed in (
        (0.2, 0.01, 120, 300, 0),
        (0.7, Ramp(0.02, 0.0), 250, 300, 1),
        (0.1, 0.02, 70, Ramp(300, 100), 2),
    ):
        rule = QLearning(Ramp(rate, rate) if isinstance(rate, float) else rate)
        qpde.solve(
            zoo.survival(4, discount=discount),
            rule=rule,
            steps=steps,
            batch=batch,
            seed=seed,
            **options,
        )
    assert eqx.debug.get_num_traces(_loop.block) == before + 1


def test_the_best_iterate_is_paired_with_its_own_loss(problem):
    """Recompute the minibatch loss of the returned parameters on the very batch that chose them."""
    options = dict(SMALL, rule=QLearning(Decay(0.5, 20)), steps=130)
    solution = qpde.solve(problem, keep=Keep.BEST_BATCH, **options)
    step = int(np.argmin(solution.history.loss))
    assert 0 < step < 129
    key = keys_from(0, 4)[2]
    draw = Draw(solution.measure, jr.fold_in(key, step), jnp.asarray(128, jnp.int32), 128)

    @eqx.filter_jit
    def mean_square(trial, draw):
        return draw.expect(lambda b: jnp.dot(b.weights, jax.vmap(trial.residual)(b.points) ** 2))

    loss = mean_square(solution.trial, draw)
    np.testing.assert_allclose(loss, solution.history.loss[step], rtol=1e-5)
    assert solution.best_batch_loss == solution.history.loss[step]
    last = qpde.solve(problem, keep=Keep.LAST, **options)
    assert not same(solution, last)


def test_held_out_choice_returns_the_smallest_held_out_loss(problem):
    options = dict(SMALL, rule=QLearning(0.3), steps=600)
    solution = qpde.solve(problem, **options)
    best = int(np.argmin(solution.history.held_out))
    stopped = qpde.solve(
        problem,
        keep=Keep.LAST,
        callback=lambda seen: seen.step >= solution.history.checked_step[best],
        **options,
    )
    assert same(solution, stopped)


def test_tolerance_returns_the_iterate_that_met_it(problem):
    solution = qpde.solve(problem, steps=2_000, tolerance=1e-2, **SMALL)
    assert solution.status is Status.TOLERANCE
    assert solution.history.loss[-1] < 1e-2 <= solution.history.loss[:-1].min()
    assert solution.score.loss < 2e-2


def test_reaching_the_steps_is_success_and_zero_steps_are_allowed(problem):
    solution = qpde.solve(problem, steps=0, **SMALL)
    assert solution.status is Status.FINISHED
    assert solution.steps == 0
    assert solution.history.loss.shape == (0,)
    assert np.isfinite(solution.score.loss)


def test_budget_stops_between_blocks(problem):
    started = time.perf_counter()
    solution = qpde.solve(problem, steps=10**7, budget=0.5, **SMALL)
    assert solution.status is Status.BUDGET
    assert solution.steps % 100 == 0
    assert solution.steps > 0
    assert time.perf_counter() - started < 30


def test_nan_ends_the_run_and_keeps_the_best_iterate():
    problem = Problem(Ball(2), lambda x, u: u.laplacian + 1 + 0 * jnp.log(0.5 - u.value))
    rule = QLearning(optimiser=optax.sgd(50.0))
    with pytest.raises(SolveError, match=r"NaN or infinite. Lower the learning rate") as caught:
        qpde.solve(problem, rule=rule, steps=500, **SMALL)
    solution = caught.value.solution
    assert solution.status is Status.NONFINITE
    assert np.all(np.isfinite(np.concatenate([a.ravel() for a in arrays(solution)])))
    quiet = qpde.solve(problem, rule=rule, steps=500, throw=False, **SMALL)
    assert quiet.status is Status.NONFINITE


def test_blow_up_ends_the_run():
    problem = Problem(Ball(2), lambda x, u: u.laplacian + 1 + 100 * u.value)  # not monotone
    rule = QLearning(optimiser=optax.sgd(1e-2))
    solution = qpde.solve(problem, rule=rule, steps=20_000, throw=False, **SMALL)
    assert solution.status is Status.DIVERGED
    assert "DeepGalerkin" in solution.status.value


def test_a_zero_gradient_is_a_status(problem):
    class Dead(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return jnp.sum(jax.lax.stop_gradient(self.weight)) * jnp.sum(x)

    solution = qpde.solve(
        problem, network=Dead(jnp.ones(3)), batch=128, steps=50, throw=False, progress=False
    )
    assert solution.status is Status.ZERO_GRADIENT


def test_all_points_truncated_is_a_status():
    """Adam with the paper's rate and psi psi' walks out of the level and cannot come back."""
    network = Shallow(64, activation=qpde.activations.sigmoid, scale=1.0, normalise=False)
    rule = QLearning(Decay(0.5, 200), truncation=Truncation())
    with pytest.raises(SolveError, match="Every point is truncated.*damped=False") as caught:
        qpde.solve(
            zoo.survival(20), network=network, rule=rule, batch=100, steps=500, progress=False
        )
    solution = caught.value.solution
    assert solution.status is Status.TRUNCATED
    assert solution.steps < 50
    assert np.all(solution.history.truncated[-1:] == 1)


def test_interruption_keeps_the_best_iterate(problem):
    def stop(seen):
        if seen.step >= 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        qpde.solve(problem, steps=1_000, callback=stop, **SMALL)
    assert isinstance(caught.value, qpde.Interrupted)
    assert caught.value.solution.status is Status.INTERRUPTED
    assert caught.value.solution.steps == 200


def test_training_goes_on_from_a_solution(problem):
    first = qpde.solve(problem, steps=200, **SMALL)
    second = qpde.solve(problem, steps=0, initial=first, batch=128, progress=False)
    assert same(first, second)
    with pytest.raises(ValueError, match="a network or an initial solution"):
        qpde.solve(problem, initial=first, steps=10, **SMALL)


@pytest.mark.parametrize("rule", [QLearning(), DeepGalerkin(), Penalty()])
def test_every_rule_learns(problem, rule):
    options = dict(SMALL, network=Shallow(32), steps=1_500)
    solution = qpde.solve(problem, rule=rule, **options)
    assert solution.rule == rule.name
    limit = 0.1 if isinstance(rule, Penalty) else 0.02
    assert solution.score.relative_l2_error < limit


def test_other_networks_and_precisions(problem):
    deep = qpde.solve(problem, steps=300, batch=128, network=qpde.MLP([16, 16]), progress=False)
    assert deep.score.relative_l2_error < 0.2
    own = eqx.nn.MLP(3, "scalar", 16, 1, activation=jnp.tanh, key=jr.key(0))
    mine = qpde.solve(problem, steps=300, batch=128, network=own, progress=False)
    assert mine.score.relative_l2_error < 0.2
    double = qpde.solve(problem, steps=100, precision="float64", **SMALL)
    assert {a.dtype for a in arrays(double)} == {np.dtype("float64")}
    assert jax.config.read("jax_enable_x64") is False


def test_float32_and_float64_walk_the_same_way(problem):
    """One step from the same parameters on the same points, to float32 accuracy."""
    start = qpde.solve(problem, steps=0, **SMALL)
    rule = QLearning(optimiser=optax.sgd(0.1))

    def moved(precision):
        with jax.enable_x64(precision == "float64"):
            trial = _train.cast(start.trial, precision)
            points = jnp.asarray(POINTS, precision)
            measure = Listed(start.measure.domain, points)
            draw = Draw(measure, jr.key(0), jnp.asarray(64, jnp.int32), 64)
            step = eqx.filter_jit(rule.step)
            clock = Clock(jnp.asarray(0), jnp.asarray(1))
            moved = step(trial, rule.init(trial, jr.key(0)), draw, clock)[0]
            return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moved.network)])

    np.testing.assert_allclose(moved("float32"), moved("float64"), atol=1e-6)


A, B, G = np.diag([2.0, 1.0]), np.array([0.5, -0.5]), np.asarray(0.2)


def everywhere(x, u):
    """NumPy numbers in the places where they hurt when precisions are mixed."""
    inner = jnp.sum(A * u.hessian) + u.trace(A) + u.second(B) + u.along(A @ x) + u.generator(B, A)
    outer = jnp.where(x[0] > G, 1.0, 2.0) + jnp.sum(jnp.linalg.solve(A, x)) + jnp.asarray(A)[0, 1]
    return (
        inner + outer - G * u.value + jnp.sum(jax.vmap(lambda c: c @ x)(A)) + jnp.polyval(B, x[0])
    )


@pytest.mark.daily("rule0")
@pytest.mark.parametrize("rule", [QLearning(), DeepGalerkin()])
def test_numpy_numbers_may_stand_anywhere_in_an_equation(rule):
    """The equation is traced in float64 (checks, score) and in float32 (training) by turns."""
    problem = Problem(Ball(2), everywhere, boundary=lambda x: B @ x)
    for precision in ("float32", "float64", "float32"):
        solution = qpde.solve(problem, rule=rule, steps=5, precision=precision, **SMALL)
        assert solution(np.zeros(2)).dtype == np.dtype(precision)
        leaves = jax.tree.leaves(trainable(solution.trial.network)[0])
        assert {leaf.dtype for leaf in leaves} == {np.dtype(precision)}
        assert np.isfinite(solution.score.loss)


def test_a_penalty_counts_when_the_iterate_is_chosen():
    """A network that ignores the boundary has the smallest residual, and must not win."""
    problem = Problem(
        Ball(2), lambda x, u: u.laplacian, lambda x: 5 + x[0], exact=lambda x: 5 + x[0]
    )
    ways: list[dict[str, Any]] = [{}, {"keep": Keep.BEST_BATCH}, {"tolerance": 1e-3}]
    for options in ways:
        solution = qpde.solve(problem, rule=Penalty(), steps=400, **(SMALL | options))
        assert solution.score.relative_l2_error < 0.1


def test_zero_steps_with_a_growing_batch(problem):
    options: dict[str, Any] = {"batch": Ramp(100, 200)}
    solution = qpde.solve(problem, steps=0, **(SMALL | options))
    assert solution.steps == 0


POINTS = np.random.default_rng(0).uniform(-0.5, 0.5, (64, 3))


class Listed(qpde.AbstractMeasure):
    """The same points at every step."""

    domain: qpde.AbstractDomain
    points: jax.Array

    def sample(self, key, n, dtype=float):
        return self.points[:n], jnp.ones((n,), self.points.dtype)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps must be a whole number, not negative, got -1"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"precision": "float16"}, 'precision is "float32" or "float64"'),
        ({"budget": 0.0}, "budget must be a positive number of seconds"),
        ({"tolerance": -1.0}, "tolerance must not be negative"),
        ({"batch": -5}, "not negative"),
        ({"network": 3}, "network must be qpde.Shallow"),
        ({"network": lambda x: x}, 'use out_size="scalar"'),
        (
            {"measure": qpde.Uniform(Ball(5))},
            r"measure lives on Ball\(5\), the problem on Ball\(3\)",
        ),
        ({"measure": qpde.Uniform(Ball(3, radius=2.0))}, "measure lives on"),
        ({"batch": 0}, "at least one point"),
        ({"seed": 2**70}, "less than 2"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_compiles(problem, options, message):
    with pytest.raises(ValueError, match=message):
        qpde.solve(problem, **({"progress": False, "steps": 10} | options))


def test_the_preset_is_the_papers():
    one, twenty = (qpde.presets.paper(zoo.survival(d)) for d in (1, 20))
    assert one["network"].width == 64
    assert twenty["network"].width == 256
    assert twenty["steps"] == 40_000
    assert isinstance(twenty["network"].activation, type(qpde.activations.sigmoid))
    assert float(twenty["network"].scale) == 1.0
    assert float(twenty["rule"].rate(Clock(200, 1))) == 0.25
    assert [float(b["batch"].last) for b in (one, twenty)] == [2_000, 10_000]
    assert twenty["rule"].truncation is None
    assert dataclasses.is_dataclass(twenty["rule"])


@pytest.mark.slow
def test_the_paper_in_one_dimension():
    """A tenth of the steps reaches a maximal relative error of 0.2 %."""
    problem = zoo.survival(1, discount=0.1)
    options: dict[str, Any] = {"steps": 4_000, "progress": False}
    solution = qpde.solve(problem, **(qpde.presets.paper(problem) | options))
    assert solution.score.max_relative_error < 2e-3
    assert solution.score.skill < 0.1


def test_a_run_that_makes_nothing_better_says_so():
    """Far from monotone: minus the Laplacian pushes one way, a large multiple of u the other."""
    problem = Problem(Ball(2), lambda x, u: u.laplacian + 200.0 * u.value + 1.0)
    with pytest.warns(
        UserWarning, match="Training made nothing better: the held-out loss began at"
    ):
        solution = qpde.solve(problem, steps=200, throw=False, **SMALL)
    assert solution.status is Status.FINISHED


def test_an_equation_may_close_over_its_domain():
    """The same numbers in a user's functions (float64) and in ours (float32)."""
    ball = qpde.Ball(3, centre=[1.0, 2.0, 3.0], radius=2.0)

    def exact(x):
        return ball.eta.value(x) * (1.0 + ball.centre[0])

    problem = qpde.Problem(
        domain=ball,
        equation=lambda x, u: u.laplacian + 12.0 / 4.0 + ball.eta.value(x) - u.value / 2.0,
        boundary=lambda x: ball.eta.value(x),
        exact=exact,
    )
    for measure, precision in ((None, "float32"), (qpde.Radial(ball, 3.0), "float64")):
        options = {"network": qpde.Shallow(8), "batch": 32, "precision": precision}
        solution = qpde.solve(problem, steps=5, measure=measure, progress=False, **options)
        assert solution.status.successful
        assert solution.score.relative_l2_error < np.inf
