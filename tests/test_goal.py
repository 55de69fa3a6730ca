"""`solve(..., accuracy=)`: it ends where a certificate says so, and says why where none does."""

import dataclasses
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import Status
from qpde._field.form import Identity
from qpde._solve import accuracy
from qpde._solve.accuracy import Goal, Looks
from qpde._trust.certificate import Kind

pytestmark = pytest.mark.trains


def sines(k):
    def exact(x):
        return jnp.sin(jnp.pi * x[0]) * jnp.sin(k * jnp.pi * x[1])

    return qpde.Problem(
        qpde.Box([0.0, 0.0], [1.0, 1.0]),
        lambda x, u: u.laplacian + (1 + k * k) * jnp.pi**2 * exact(x),
        exact=exact,
    )


def test_it_ends_where_the_certificate_says_so(growing):
    solution = qpde.solve(sines(2), accuracy=1e-4, progress=False)
    assert solution.status is Status.ACCURATE
    assert solution.accuracy.met
    assert solution.accuracy.bound <= 1e-4
    score: Any = solution.score
    assert score.relative_l2_error <= solution.accuracy.bound
    assert repr(solution).splitlines()[1].startswith("Accurate: relative L2 error at most")


@pytest.mark.slow
def test_what_is_out_of_reach_is_said():
    """The trained network alone and a budget too small: the bound, and what limits it."""
    solution = qpde.solve(sines(1), accuracy=1e-12, budget=0.5, progress=False)
    assert solution.status is not Status.ACCURATE
    assert not solution.accuracy.met
    assert solution.accuracy.bound is None or solution.accuracy.bound > 1e-12
    assert solution.accuracy.limit


@pytest.mark.slow
def test_no_bound_is_the_limit():
    """An equation without a proved constant: the refusal of `certify` is what limits."""
    problem = qpde.Problem(qpde.Ball(2), lambda x, u: u.laplacian + 50.0 * u.value + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that so short a run made nothing better
        solution = qpde.solve(problem, accuracy=1e-3, budget=0.5, progress=False, throw=False)
    assert solution.status is not Status.ACCURATE
    assert "No bound for the error" in solution.accuracy.limit


@pytest.fixture
def looked(solved, monkeypatch):
    """Looks with certificates of given bounds; a solution; the confidences and seeds that were asked for."""
    ball = solved("ball")
    known, asked = qpde.certify(ball), []

    def make(*found):
        left = iter(found)

        def certify(solution, *, confidence, norm):
            asked.append((confidence, solution.seed))
            bound, kind = next(left)
            return dataclasses.replace(known, relative_bound=bound, kind=kind)

        monkeypatch.setattr(accuracy, "certify", certify)
        return Looks(Goal.of(1e-3, "l2", ball.problem)), ball, asked

    return make


SURE = Kind.ASSUMING


def test_looks_share_the_risk_and_have_points_of_their_own(looked):
    looks, ball, asked = looked((1e-2, SURE), (5e-3, SURE), (5e-4, SURE))
    assert not looks.met(ball, 1.0, 1.0)
    assert not looks.met(ball, 1e-3, 2.0)
    assert looks.met(ball, 1e-6, 3.0)
    confidences, seeds = zip(*asked, strict=True)
    np.testing.assert_allclose(1 - np.asarray(confidences), [0.005, 0.0025, 0.00125])
    assert sum(1 - np.asarray(confidences)) < 0.01
    assert len(set(seeds)) == 3


def test_a_look_is_taken_only_where_it_may_suffice(looked):
    looks, ball, asked = looked((1e-2, SURE), (9e-4, SURE))
    looks.met(ball, 1.0, 1.0)
    assert not looks.met(ball, 0.5, 2.0)  # the bound would be 7e-3
    assert len(asked) == 1
    assert looks.met(ball, 0.005, 3.0)
    assert len(asked) == 2


def test_an_estimate_meets_no_goal(looked):
    looks, ball, _ = looked((1e-9, Kind.HEURISTIC))
    assert not looks.met(ball, 1e-20, 1.0)
    assert "an estimate only" in looks.outcome().limit


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accuracy": 0.0}, "accuracy"),
        ({"accuracy": 1.5}, "below 1"),
        ({"accuracy": 1e-3, "norm": "l1"}, "norm"),
        ({"norm": "l2"}, "give accuracy= too"),
        ({"accuracy": 1e-3, "steps": 10}, "chooses the stages itself"),
    ],
)
def test_wrong_use(options, message):
    with pytest.raises(ValueError, match=message):
        qpde.solve(sines(1), progress=False, **options)


@pytest.mark.slow
def test_accurate_is_never_false(growing):
    """60 runs of six families with small budgets: `ACCURATE` only where the true error is below the goal.

    The bounds of one run hold together with a confidence of 99 %; in fact they are several times the error.
    """
    rng = np.random.default_rng(0)
    accurate = false = 0
    for number in range(60):
        problem = _family(number % 6, rng)
        goal = float(10.0 ** rng.uniform(-6, -1))
        solution = qpde.solve(
            problem, accuracy=goal, budget=2.0, seed=number, progress=False, throw=False
        )
        if solution.status is Status.ACCURATE:
            accurate += 1
            false += solution.score.relative_l2_error > goal
    print(f"\n{accurate} of 60 runs accurate, {false} of them false")
    assert false == 0
    assert accurate >= 20


def _family(which, rng):
    """A problem with its solution, its numbers at random; they are parameters, so that each compiles once."""
    k, c = float(rng.uniform(0.5, 4.0)), float(rng.uniform(0.0, 3.0))
    domain = [
        qpde.Ball(2),
        qpde.Box([0.0] * 3, [1.0] * 3),
        qpde.Ball(6),
        qpde.Annulus(2, inner=0.5, outer=1.0),
        qpde.Ball(30),
        qpde.Ellipsoid(np.linspace(0.5, 1.0, 4)),
    ][which]

    def exact(x, k, c):
        return domain.eta.value(x) * jnp.sin(k * x[0] + c)

    def equation(x, u, k, c):
        eta = domain.eta
        wave, slope = jnp.sin(k * x[0] + c), k * jnp.cos(k * x[0] + c)
        laplacian = eta.trace(x, Identity()) * wave + 2 * eta.grad(x)[0] * slope
        laplacian = laplacian - eta.value(x) * k * k * wave
        return u.laplacian - laplacian - c * (u.value - eta.value(x) * wave)

    return qpde.Problem(domain, equation, exact=exact, parameters={"k": k, "c": c})
