"""Stopping: means of units, values against trees, bounds that hold whatever the network."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import qpde
from qpde._precision import x64
from qpde._stopping.between import lost_between
from qpde._stopping.kinks import kinks_on_line
from qpde._stopping.motion import Frame
from qpde._stopping.units import draw_units
from qpde.zoo import MAX_CALL, bermudan_max_call, put_in_time

pytestmark = pytest.mark.trains

SMALL = {"units": 60, "paths": 2_048}


def put_tree(start, *, rate, sigma, time, steps, every=1, strike=1.0):
    """A binomial tree for a put, with exercise at every so many steps: an independent value."""
    up = math.exp(sigma * math.sqrt(time / steps))
    share = (math.exp(rate * time / steps) - 1 / up) / (up - 1 / up)
    prices = start * up ** np.arange(-steps, steps + 1, 2.0)
    value = np.maximum(strike - prices, 0.0)
    for step in range(steps - 1, -1, -1):
        prices = start * up ** np.arange(-step, step + 1, 2.0)
        value = math.exp(-rate * time / steps) * (share * value[1:] + (1 - share) * value[:-1])
        if step % every == 0:
            value = np.maximum(value, strike - prices)
    return float(value[0])


@pytest.mark.parametrize("prices", [True, False])
def test_means_of_units(prices):
    """Every unit's mean from an earlier time, by the trapezoidal rule on a fine grid in the plane."""
    motion = qpde.LogNormal(drift=0.1, sigma=[0.3, 0.2]) if prices else None
    motion = motion or qpde.Gaussian(drift=0.1, sigma=[0.3, 0.2])
    frame, rng = Frame.of(motion, np.ones((1, 2))), np.random.default_rng(0)
    at = rng.normal(size=(2_000, 2))
    strikes = np.exp(rng.normal(size=(2, 2)) * 0.2) if prices else rng.normal(size=(2, 2))
    units = draw_units(rng, frame, 1.0, at, 6, strikes, 2.0, 1)
    b, v = np.array([0.3, -0.2]), 0.4
    line = np.linspace(-7.0, 7.0, 281)
    weight = np.exp(-0.5 * line**2) / np.sum(np.exp(-0.5 * line**2))
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    with x64():

        @jax.jit
        def values(points):
            level = jax.vmap(lambda b: frame.level(1.0, b))(points)
            return jax.vmap(lambda y: units.means(frame, y, jnp.zeros(())))(level)

        blocks = (b + math.sqrt(v) * grid).reshape(281, 281, 2)
        total = sum(w * weight @ values(block) for w, block in zip(weight, blocks, strict=True))
        level = frame.level(1.0 - v, jnp.asarray(b)) + frame.speed * v
        means = units.means(frame, level, jnp.asarray(v))
    np.testing.assert_allclose(means, total, atol=2e-4)
    assert len(means) == 1 + 2 + 4 + 6 + 64 + 276


def test_steps_of_the_largest_are_probabilities():
    """Against 20,000 draws in four dimensions; 5 standard errors, 340 steps: 2e-4 false alarms."""
    frame, rng = Frame.of(qpde.LogNormal(sigma=0.2), np.ones((1, 4))), np.random.default_rng(0)
    at = rng.normal(size=(4_000, 4))
    units = draw_units(rng, frame, 1.0, at, 4, np.ones((4, 1)), 2.0, 1)
    level = np.array([0.1, 0.0, -0.1, 0.05])
    with x64():
        found = np.asarray(units.means(frame, jnp.asarray(level), jnp.asarray(0.5)))[-340:]
    noise = rng.normal(size=(20_000, 4))
    width = {name: nodes[1] - nodes[0] for name, nodes in vars_of(units)}
    nodes = dict(vars_of(units))
    expected = []
    for name in ("fine", "coarse"):
        spread = math.sqrt(0.04 * 0.5 + width[name] ** 2)
        drawn = np.sort(level + spread * noise, axis=1)
        if name == "fine":
            expected += [np.mean(drawn[:, -1] <= u) for u in nodes[name]]
        else:
            first, second = np.tril_indices(len(nodes[name]), -1)
            u, w = nodes[name][first], nodes[name][second]
            both = (drawn[:, -1, None] <= u) & (drawn[:, -2, None] <= w)
            expected += list(np.mean(both, axis=0))
    error = np.sqrt(np.maximum(found * (1 - found), 1e-4) / 20_000)
    assert np.all(np.abs(found - np.asarray(expected)) < 5 * error + 2e-5)


def vars_of(units):
    return ("fine", units.fine), ("coarse", units.coarse)


def test_kinks_of_a_payoff():
    found = kinks_on_line(
        lambda x: np.maximum(x - 1.25, 0.0) - 2 * np.maximum(x - 2.5, 0.0), 0.3, 4.0
    )
    np.testing.assert_allclose(found, [1.25, 2.5], atol=1e-9)
    assert kinks_on_line(np.exp, 0.0, 2.0) == []


def test_one_date_is_a_mean():
    """A call at one date, by the formula of Black and Scholes; a bracket is 0.2 % wide or less."""
    problem = qpde.Stopping(
        payoff=lambda x: jnp.maximum(x[0] - 1.1, 0.0),
        motion=qpde.LogNormal(drift=0.03, sigma=0.3),
        start=np.ones(1),
        discount=0.03,
        dates=[2.0],
    )
    solution = qpde.solve_stopping(problem, **SMALL)
    spread = 0.3 * math.sqrt(2.0)
    high = (math.log(1 / 1.1) + 0.06) / spread + 0.5 * spread
    exact = special.ndtr(high) - 1.1 * math.exp(-0.06) * special.ndtr(high - spread)
    assert abs(solution(problem.start) - exact) < 1e-5
    np.testing.assert_allclose(solution.gradient(problem.start), [special.ndtr(high)], atol=1e-4)
    bound = qpde.bracket(solution, problem.start, paths=2_000)
    assert bound.low <= exact <= bound.high
    assert bound.width < 2e-3 * exact


@pytest.fixture(scope="module")
def bermudan_put():
    """A put at ten dates, solved; and the value of a tree."""
    problem = qpde.Stopping(
        payoff=lambda x: jnp.maximum(1.0 - x[0], 0.0),
        motion=qpde.LogNormal(drift=0.05, sigma=0.25),
        start=np.ones(1),
        discount=0.05,
        dates=np.linspace(0.0, 1.0, 11),
    )
    tree = put_tree(1.0, rate=0.05, sigma=0.25, time=1.0, steps=4_000, every=400)
    return qpde.solve_stopping(problem, **SMALL), tree


def test_a_put_at_dates(bermudan_put):
    solution, tree = bermudan_put
    assert abs(solution([1.0]) - tree) < 3e-5
    bound = qpde.bracket(solution, [[1.0], [0.7]], paths=2_000, confidence=0.9999)
    assert bound.low[0] <= tree <= bound.high[0]
    assert bound.width[0] < 3e-3 * tree
    # In the money one stops at once, and both bounds are the payoff.
    np.testing.assert_allclose([bound.low[1], bound.high[1]], 0.3, atol=1e-3)
    assert solution.stops([0.7])
    assert not solution.stops([1.0])
    assert not solution.stops([0.7], 0.05)  # no date


def test_bounds_hold_for_any_network(bermudan_put):
    """Output layers pushed about: intervals are wide and hold. 99.9999 % each, twelve: 1e-5 false alarms."""
    solution, tree = bermudan_put
    rng = np.random.default_rng(0)
    widths = []
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(4):
            outer = solution.waiting.outer
            pushed = outer + size * rng.normal(size=outer.shape)
            waiting = eqx.tree_at(lambda w: w.outer, solution.waiting, pushed)
            bad = dataclasses.replace(solution, waiting=waiting)
            bound = qpde.bracket(bad, [1.0], paths=1_000, inner=0, confidence=0.999999)
            assert bound.low <= tree <= bound.high
            widths.append(float(bound.width))
    assert np.mean(widths[8:]) > 10 * np.mean(widths[:4])


@pytest.mark.slow
def test_steps_aside_do_no_harm_and_help(bermudan_put):
    solution, tree = bermudan_put
    outer = solution.waiting.outer * 1.02
    bad = dataclasses.replace(
        solution, waiting=eqx.tree_at(lambda w: w.outer, solution.waiting, outer)
    )
    without, aided = (qpde.bracket(bad, [1.0], paths=8_000, inner=n, seed=3) for n in (0, 16))
    assert aided.dual < without.dual
    assert aided.dual + 5 * aided.dual_error > tree


@pytest.mark.slow
def test_a_put_at_any_time():
    """The network against a tree, a bracket around it, and what is lost between dates."""
    problem = put_in_time([0.9, 1.0, 1.1])
    solution = qpde.solve_stopping(problem, steps=100, **SMALL)
    trees = [put_tree(s, rate=0.05, sigma=0.25, time=1.0, steps=2_000) for s in (0.9, 1.0, 1.1)]
    np.testing.assert_allclose(solution(problem.start), trees, atol=2e-4)
    bound = qpde.bracket(solution, problem.start, paths=400, confidence=0.9999)
    assert np.all((bound.low <= trees) & (trees <= bound.high))
    assert bound.lost == pytest.approx(1 - math.exp(-0.05 / 100), rel=1e-3)
    assert "convex" in str(bound)


def test_what_is_lost_between_dates_is_refused_where_it_grows():
    with x64(), pytest.raises(ValueError, match="grows with the state"):
        lost_between(
            qpde.Stopping(
                payoff=lambda x: jnp.maximum(jnp.max(x) - 1.0, 0.0),
                motion=qpde.LogNormal(drift=-0.05, sigma=0.2),
                start=np.ones(2),
                discount=0.05,
                time=1.0,
            ),
            np.linspace(0.0, 1.0, 101),
        )


@pytest.mark.parametrize(("dim", "start"), [(2, 90)])
def test_max_call(dim, start):
    """A published value is inside; the network is better than the mean without exercise."""
    problem = bermudan_max_call(dim, start=float(start))
    solution = qpde.solve_stopping(problem, units=80, paths=4_096, rest=60)
    bound = qpde.bracket(solution, problem.start, paths=2_048, confidence=0.999)
    assert bound.low <= MAX_CALL[dim, start][2] <= bound.high
    assert bound.width < 0.015 * bound.low


def test_bad_input_is_answered_with_a_sentence(bermudan_put):
    solution, _ = bermudan_put
    good = {
        "payoff": lambda x: x[0],
        "motion": qpde.Gaussian(sigma=1.0),
        "start": np.zeros(2),
        "dates": [1.0],
    }
    for wrong, words in (
        ({"payoff": 3.0}, "payoff must be a function"),
        ({"payoff": lambda x: x}, "must return a scalar"),
        ({"payoff": lambda x: x[0] / 0.0}, "not finite at a start"),
        ({"motion": "brownian"}, "motion must be"),
        ({"motion": qpde.LogNormal(sigma=1.0)}, "positive numbers"),
        ({"motion": qpde.Gaussian(sigma=[1.0, 0.0])}, "invertible"),
        ({"motion": qpde.Gaussian(sigma=[1.0, 2.0, 3.0])}, "sigma must be"),
        ({"motion": qpde.Gaussian(drift=np.ones(3), sigma=1.0)}, "drift must be"),
        ({"dates": [2.0, 1.0]}, "rising times"),
        ({"dates": [0.0]}, "after the time 0"),
        ({"dates": None}, "Give dates="),
        ({"time": 1.0}, "one of the two"),
        ({"start": np.nan}, "start must be"),
    ):
        with pytest.raises(ValueError, match=words):
            qpde.Stopping(**{**good, **wrong})
    with pytest.raises(ValueError, match=r"takes a qpde\.Stopping"):
        qpde.solve_stopping("put")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="steps= is for problems"):
        qpde.solve_stopping(solution.problem, steps=3)
    with pytest.raises(ValueError, match="bracket takes a solution"):
        qpde.bracket(None, [1.0])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="even"):
        qpde.bracket(solution, [1.0], inner=3)
    with pytest.raises(ValueError, match="positive"):
        solution([-1.0])
    with pytest.raises(ValueError, match="t must be"):
        solution([1.0], 2.0)


@pytest.mark.slow
def test_brackets_of_a_put_at_dates_hold():
    """95 % brackets at 200 points from fresh seeds: at least 182 hold (91 %; 1 % false alarms)."""
    problem = qpde.Stopping(
        payoff=lambda x: jnp.maximum(1.0 - x[0], 0.0),
        motion=qpde.LogNormal(drift=0.05, sigma=0.25),
        start=np.linspace(0.8, 1.3, 6)[:, None],
        discount=0.05,
        dates=np.linspace(0.0, 1.0, 11),
    )
    solution = qpde.solve_stopping(problem, **SMALL)
    points = np.linspace(0.85, 1.3, 200)
    trees = np.array(
        [put_tree(s, rate=0.05, sigma=0.25, time=1.0, steps=2_000, every=200) for s in points]
    )
    bound = qpde.bracket(solution, points[:, None], paths=400)
    held = (bound.low <= trees + 2e-5) & (trees - 2e-5 <= bound.high)
    assert np.sum(held) >= 182
    assert stats.binom.cdf(181, 200, 0.95) < 0.01
