"""Certificates: never below the true error, growing with it, refused where they would mean nothing."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import zoo
from qpde._monotone.monotonicity import monotonicity
from qpde._trust.certify import certify


def trained(problem, steps=300, **options):
    small = {"network": qpde.Shallow(64), "batch": 500, "progress": False}
    return qpde.solve(problem, steps=steps, **(small | options))


def true_error(solution):
    """Root mean square and largest error on 20,000 fresh points, in float64."""
    with jax.enable_x64(True):
        x = solution.problem.domain.sample(jax.random.key(11), 20_000)
        gap = solution(np.asarray(x)) - np.asarray(jax.vmap(solution.problem.exact)(x))
    return float(np.sqrt(np.mean(gap**2))), float(np.max(np.abs(gap)))


@pytest.fixture(scope="module")
def survival():
    return trained(zoo.survival(10), 1_000)


def test_the_bound_holds_and_is_not_far_off(survival):
    bound, (error, _) = certify(survival), true_error(survival)
    assert error <= bound.bound <= 6 * error
    assert (bound.confidence, bound.sample_size) == (0.99, 102_400)
    assert bound.kind == "statistical, assuming"  # no range of |L Q| is proved in ten dimensions
    assert any("nowhere above" in text for text in bound.assumptions)
    relative = survival.score.relative_l2_error
    assert relative <= bound.relative_bound <= 7 * relative


@pytest.mark.daily("drift-10")
@pytest.mark.parametrize(
    ("build", "dim"),
    [
        (zoo.survival, 1),
        pytest.param(zoo.poisson_sine, 2, marks=pytest.mark.slow),
        (zoo.ellipsoid, 3),
        pytest.param(zoo.annulus, 10, marks=pytest.mark.slow),
        (zoo.drift, 10),
        pytest.param(zoo.semilinear, 10, marks=pytest.mark.slow),
    ],
)
def test_bounds_hold_on_the_zoo(build, dim):
    solution = trained(build(dim), 200)
    error, largest = true_error(solution)
    found = certify(solution)
    assert error <= found.bound
    assert found.kind in ("statistical", "statistical, assuming")
    assert found.kind == "statistical" or dim > 1
    assert largest <= certify(solution, norm="sup").bound


def test_a_spoiled_solution_gets_a_larger_bound(survival):
    """Parameters moved by 3 % and 30 %: the bound follows the error."""
    bounds, errors = [], []
    for size in (0.0, 0.03, 0.3):
        network = survival.trial.network
        noise = np.random.default_rng(0).standard_normal(network.c.shape)
        moved = eqx.tree_at(
            lambda n: n.c, network, network.c + size * jnp.asarray(noise, "float32")
        )
        spoiled = dataclasses.replace(survival, trial=survival.trial.with_network(moved))
        bounds.append(certify(spoiled).bound)
        errors.append(true_error(spoiled)[0])
    assert bounds[0] < bounds[1] < bounds[2]
    for bound, error in zip(bounds, errors, strict=True):
        assert error <= bound <= 8 * error


@pytest.mark.daily("2")
@pytest.mark.parametrize("dim", [1, 2])
def test_rigorous_bounds(dim):
    solution = trained(zoo.survival(dim), 500)
    error, largest = true_error(solution)
    sampled, rigorous = certify(solution), certify(solution, rigorous=True)
    assert rigorous.kind == "rigorous"
    assert rigorous.confidence is None
    # From 102,400 points, or from cells so small that their largest values are the values.
    assert 0.9 * sampled.bound <= rigorous.bound <= 10 * sampled.bound
    assert error <= rigorous.bound
    sup = certify(solution, norm="sup", rigorous=True)
    assert sup.kind == "rigorous"
    assert largest <= sup.bound
    assert certify(solution, norm="sup").bound <= sup.bound


def test_two_clear_lines(survival):
    first, second = repr(certify(survival)).splitlines()
    assert first.startswith("||Q - u|| in L2 <= ")
    assert first.endswith("statistical, 99 % confidence, under an assumption")
    assert "over the constant 28.99" in second
    assert "assumes: the boundary data extend to H2" in second


def test_without_a_constant_it_says_what_is_missing_and_offers_the_heuristic():
    solution = trained(zoo.american_put(), 500)
    with pytest.raises(ValueError, match="missing is a monotonicity constant.*heuristic=True"):
        certify(solution)
    found = certify(solution, heuristic=True)
    assert found.kind == "heuristic"
    assert "48 random directions" in found.assumptions[1]


@pytest.mark.slow
def test_drift_that_destroys_monotonicity():
    problem = qpde.Problem(qpde.Ball(3), lambda x, u: 1 + u.generator(-20.0 * x, 1.0))
    with pytest.raises(
        ValueError, match="a pair of functions violates at random points.*-> Draw points"
    ):
        certify(trained(problem, 0))


def test_a_soft_boundary_has_a_sup_bound_only():
    solution = trained(zoo.survival(2), 500, rule=qpde.Penalty())
    with pytest.raises(ValueError, match='soft boundary.*norm="sup"'):
        certify(solution)
    found = certify(solution, norm="sup")
    assert true_error(solution)[1] <= found.bound
    assert "mismatch" in found.assumptions[0]


@pytest.mark.slow
def test_an_extension_that_is_not_in_h2_is_refused():
    """f = (1 - |x|^2)^(3/4): its second derivatives grow like distance^(-5/4)."""
    rough = qpde.Problem(
        qpde.Ball(3),
        lambda x, u: u.laplacian - u.value + 1,
        boundary=lambda x: jnp.maximum(1 - jnp.sum(x * x), 1e-30) ** 0.75,
        blind_to_kinks=True,
    )
    with pytest.raises(ValueError, match=r"not in H2"):
        certify(trained(rough, 50))
    # Without the keyword its boundary values are used alone, and they are zero.
    assert qpde.Problem(rough.domain, rough.equation, rough.boundary.value).miss < 1e-10
    assert certify(trained(rough, 50), heuristic=True).kind == "heuristic"


@pytest.mark.slow
def test_kinks_that_the_residual_does_not_see_are_refused():
    """u = |x_1| on the circle: Q = |x_1| has no residual where it is differentiated, and is far off."""
    kinked = qpde.Problem(
        qpde.Ball(2), lambda x, u: u.laplacian, lambda x: jnp.abs(x[0]), blind_to_kinks=True
    )
    solution = trained(kinked, 0)
    ways: list[dict[str, Any]] = [{}, {"norm": "sup"}, {"rigorous": True, "heuristic": True}]
    for options in ways:
        with pytest.raises(ValueError, match="may have kinks or jumps"):
            certify(solution, **options)
    assert certify(solution, heuristic=True).kind == "heuristic"
    bent = qpde.solve(
        zoo.survival(2), network=qpde.Shallow(8, activation=jax.nn.relu), steps=0, progress=False
    )
    with pytest.raises(ValueError, match="the network may have kinks"):
        certify(bent)


def test_a_killing_rate_that_was_only_sampled_is_said():
    """c = 1 + x_1^2 behind an operation that interval arithmetic does not know."""

    def hidden(x, u):
        rate = jax.lax.digamma(3.0 + 0.0 * x[0]) * 0.0 + 1.0 + x[0] ** 2
        return u.laplacian - rate * u.value + 1

    found = certify(trained(qpde.Problem(qpde.Ball(2), hidden), 50), norm="sup")
    assert any("killing rate is nowhere lower" in text for text in found.assumptions)


def test_no_killing_and_negative_killing():
    assert certify(trained(zoo.survival(3, discount=0.0), 200)).bound > 0
    growing = qpde.Problem(qpde.Ball(3), lambda x, u: u.laplacian + 2 * u.value + 1)
    solution = trained(growing, 100)
    assert qpde.monotonicity(growing).proved  # lambda_1 = pi^2 > 2
    # A walk leaves after a mean time of at most 1/6: the rate -2 costs a factor of 1 / (1 - 2/6).
    found = certify(solution, norm="sup")
    assert found.factor == pytest.approx(0.25)
    r = np.linspace(1e-3, 1.0, 101)
    exact = 0.5 * np.sin(np.sqrt(2) * r) / (r * np.sin(np.sqrt(2))) - 0.5
    assert np.max(np.abs(solution(r[:, None] * np.eye(3)[:1]) - exact)) < found.bound
    faster = qpde.Problem(qpde.Ball(3), lambda x, u: u.laplacian + 7 * u.value + 1)
    solution = trained(faster, 10)
    assert qpde.monotonicity(faster).proved
    with pytest.raises(ValueError, match="killing rate c >= 0"):
        certify(solution, norm="sup")


@pytest.mark.slow
def test_a_conditional_constant_states_its_range():
    problem = qpde.Problem(
        qpde.Ball(3), lambda x, u: u.laplacian + 0.5 * u.value**2 - 1, boundary=0.0
    )
    found = certify(trained(problem, 200))
    assert found.monotonicity.kind == "conditional"
    assert found.kind == "heuristic"  # the range is that of Q
    assert any("u takes values from" in text for text in found.assumptions)


def test_a_constant_of_ones_own(survival):
    known = monotonicity(survival.problem, potential=0.2)
    assert certify(survival, monotonicity=known).bound == pytest.approx(certify(survival).bound)
    other = monotonicity(
        survival.problem, measure=qpde.Radial(survival.problem.domain, 5.0), potential=0.2
    )
    with pytest.raises(ValueError, match="belongs to the law Radial"):
        certify(survival, monotonicity=other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 1.0}, "between 0.5 and 1"),
        ({"norm": "l1"}, 'norm is "l2" or "sup"'),
        ({"rigorous": True}, "up to 3 dimensions"),
    ],
)
def test_wrong_use(survival, options, message):
    with pytest.raises(ValueError, match=message):
        certify(survival, **options)
