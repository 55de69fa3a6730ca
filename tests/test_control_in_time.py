"""Control problems with a horizon: the equation, the actions, and values on a diagonal."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import zoo
from qpde._field.jet import Jet, Quadratic


def jet(z, seed=0):
    rng = np.random.default_rng(seed)
    slope = jnp.asarray(rng.standard_normal(z.size))
    return Jet(Quadratic(jnp.asarray(0.3), slope, jnp.asarray(0.7), z + 0.1), z)


def regulator():
    return qpde.Control(
        actions=qpde.FreeActions(2),
        drift=lambda x, a: a - x,
        sigma=0.5,
        cost=lambda x, a: jnp.dot(x, x) + 2.0 * jnp.dot(a, a),
        discount=0.3,
    )


def test_the_equation_is_the_one_by_hand():
    """`u_t + sum u_i + n^2 Lap u - n^2 |grad u|^2`, and the best action is `-n^2 grad u`."""
    problem: Any = zoo.steered_bumps(3, noise=0.2)
    with jax.enable_x64(True):
        z = jnp.asarray([0.2, -0.4, 0.1, 0.6])
        u = jet(z)
        slope, bent = np.asarray(u.grad), np.trace(np.asarray(u.hessian)[:3, :3])
        expected = slope[3] + slope[:3].sum() + 0.04 * bent - 0.04 * np.sum(slope[:3] ** 2)
        np.testing.assert_allclose(problem.equation(z, u), expected, rtol=1e-12)
        np.testing.assert_allclose(problem.equation.action(z, u), -0.04 * slope[:3], rtol=1e-12)
        assert problem.orientation == 1.0


@pytest.mark.parametrize("given", ["initial", "terminal"])
def test_time_runs_away_from_the_data(given):
    data: dict[str, Any] = {given: lambda x: 1 - x @ x}
    problem = qpde.Problem(qpde.Ball(2), regulator(), time=0.5, **data)
    sign = 1.0 if given == "terminal" else -1.0
    with jax.enable_x64(True):
        z = jnp.asarray([0.2, -0.4, 0.1])
        u = jet(z)
        x, p, bent = z[:2], np.asarray(u.grad), np.asarray(u.hessian)
        a = -0.25 * p[:2]
        expected = np.dot(a - np.asarray(x), p[:2]) + 0.125 * np.trace(bent[:2, :2])
        expected += np.dot(x, x) + 2.0 * np.dot(a, a) - 0.3 * 0.3 + sign * p[2]
        np.testing.assert_allclose(problem.equation(z, u), expected, rtol=1e-12)


def test_actions_at_points_and_times():
    problem = qpde.Problem(qpde.Ball(2), regulator(), time=0.5, terminal=lambda x: 1 - x @ x)
    network = qpde.Shallow(8)
    solution = qpde.solve(problem, network=network, steps=1, batch=8, progress=False)
    x = np.array([[0.1, 0.2], [-0.3, 0.4]])
    np.testing.assert_allclose(
        solution.policy(x, 0.2), -0.25 * solution.grad(x, 0.2), rtol=1e-5, atol=1e-7
    )
    at = np.append(x[0], 0.2)
    np.testing.assert_array_equal(solution.policy(at), solution.policy(x, 0.2)[0])
    with pytest.raises(ValueError, match="has a horizon"):
        qpde.simulate(solution, x[0])
    with pytest.raises(ValueError, match="stationary qpde.Control"):
        qpde.solve(problem, rule=qpde.ActorCritic(), network=network, steps=1, progress=False)
    assert not qpde.cordes(problem).proved


def test_what_has_no_best_action_is_refused_in_time_too():
    control = qpde.Control(
        actions=qpde.FreeActions(2),
        drift=lambda x, a: a,
        sigma=1.0,
        cost=lambda x, a: -jnp.dot(a, a),
    )
    with pytest.raises(ValueError, match="no positive curvature"):
        qpde.Problem(qpde.Ball(2), control, time=1.0, terminal=lambda x: 1 - x @ x)
    with pytest.raises(ValueError, match="The drift must take"):
        qpde.Control(
            actions=qpde.FreeActions(2),
            drift=lambda x, t, a: a,
            sigma=1.0,
            cost=lambda x, a: jnp.dot(a, a),
        )


@pytest.mark.trains
@pytest.mark.slow
def test_values_on_the_diagonal():
    """At two places; published methods are 2e-2 off (Cai, Fang, Zhang and Zhou, in 10,000 dimensions)."""
    for place in (-0.5, 0.5):
        problem: Any = zoo.steered_bumps(10, place=place)
        solution = qpde.solve(problem, budget=20.0, progress=False)
        start = np.append(np.full(10, place), 0.0)
        with jax.enable_x64(True):
            exact = float(problem.exact(jnp.asarray(start)))
        assert abs(float(solution(start)) - exact) < 2e-3 * abs(exact)
