"""Cordes' condition, against matrices, quadrature and a known solution."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import zoo


def ratio_of(problem):
    """`|A|^2 / (tr A)^2` of the first matrix, by NumPy."""
    control = problem.equation
    matrix = 0.5 * control.sigma.factors[0] @ control.sigma.factors[0].T
    return np.sum(matrix**2) / np.trace(matrix) ** 2, np.trace(matrix) / np.sum(matrix**2)


def test_three_rotated_matrices_in_four_dimensions():
    problem = zoo.rotated(4)
    ratio, largest = ratio_of(problem)
    found: Any = qpde.monotonicity(problem)
    assert found.kind is qpde.Ground.PROVED
    epsilon = 1 / ratio - 3
    np.testing.assert_allclose(found.cordes.epsilon, epsilon, rtol=1e-9)
    np.testing.assert_allclose(found.cordes.constant, 1 - np.sqrt(1 - epsilon), rtol=1e-9)
    np.testing.assert_allclose(
        found.constant, 4 * np.pi**2 * (1 - np.sqrt(1 - epsilon)) / largest, rtol=1e-9
    )
    assert "Cordes" in repr(found)
    assert "epsilon" in repr(qpde.cordes(problem))


def test_just_outside_the_condition_nothing_is_proved():
    inside, outside = (zoo.rotated(4, stretch=stretch) for stretch in (7.8, 7.95))
    assert ratio_of(inside)[0] < 1 / 3 < ratio_of(outside)[0]
    assert qpde.cordes(inside).proved
    assert not qpde.cordes(outside).proved
    found = qpde.monotonicity(outside)
    assert not found.proved
    assert found.constant is None


def control_with(**changes):
    parts = {
        "actions": qpde.FiniteActions([1.0, 2.0]),
        "drift": lambda x, a: jnp.zeros(2),
        "sigma": lambda x, a: jnp.diag(jnp.stack([a[0], 1.0 + 0.1 * x[0]])),
        "cost": lambda x, a: a[0] + 0.0 * x[0],
    }
    return qpde.Control(**(parts | changes))


def test_matrices_that_vary_are_bounded_by_intervals():
    """`A = diag(a^2, (1 + x/10)^2) / 2`, x in (0, 1): the worst is a = 2 at x = 0."""
    found: Any = qpde.cordes(qpde.Problem(qpde.Box(0.0, 1.0, dim=2), control_with()))
    assert found.proved
    expected = 5.0**2 / 17.0 - 1.0
    assert expected * 0.9 < found.epsilon <= expected


@pytest.mark.parametrize(
    ("changes", "domain", "reason"),
    [
        ({"drift": lambda x, a: 0.1 * x}, qpde.Ball(2), "drift or a discount"),
        ({"discount": 1.0}, qpde.Ball(2), "drift or a discount"),
        ({}, qpde.Annulus(2, inner=0.5, outer=1.0), "convex"),
        ({"actions": qpde.BoxActions(1.0, 2.0)}, qpde.Ball(2), "Give epsilon"),
    ],
)
def test_what_the_condition_is_not_for(changes, domain, reason):
    found = qpde.cordes(qpde.Problem(domain, control_with(**changes)))
    assert not found.proved
    assert reason in found.reason
    assert found.second is None


def test_bounds_that_users_know():
    problem = qpde.Problem(qpde.Ball(2), control_with(actions=qpde.BoxActions(1.0, 1.2)))
    found = qpde.cordes(problem, epsilon=0.8, largest=3.0)
    assert found.constant is not None
    assert "searched for" in repr(found)
    assert not found.proved
    few = qpde.Problem(qpde.Ball(2), control_with(actions=qpde.FiniteActions([1.0, 1.2])))
    assert qpde.cordes(few, epsilon=0.8, largest=3.0).proved
    with pytest.raises(ValueError, match="is too large"):
        qpde.cordes(problem, epsilon=1.0, largest=3.0)
    with pytest.raises(ValueError, match="is no upper bound"):
        qpde.cordes(problem, epsilon=0.8, largest=0.5)


@pytest.mark.slow
def test_the_pairing_has_the_constant():
    """`<F_g v1 - F_g v2, Lap w> >= constant |Lap w|^2` by quadrature, for random sums of sines."""
    problem: Any = zoo.rotated(2, stretch=4.0)
    control: Any = problem.equation
    found: Any = qpde.cordes(problem)
    rng = np.random.default_rng(0)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    x = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2) * 0.5 + 0.5
    weights = np.outer(weights, weights).ravel() / 4
    modes = [(1, 1), (1, 2), (2, 1), (2, 3)]

    def hessians(c):
        total = np.zeros((len(x), 2, 2))
        for (m, n), size in zip(modes, c, strict=True):
            s, t = np.sin(m * np.pi * x[:, 0]), np.sin(n * np.pi * x[:, 1])
            cs = np.cos(m * np.pi * x[:, 0]) * np.cos(n * np.pi * x[:, 1])
            mixed = m * n * np.pi**2 * cs
            rows = [[-(m**2) * np.pi**2 * s * t, mixed], [mixed, -(n**2) * np.pi**2 * s * t]]
            total += size * np.moveaxis(np.asarray(rows), -1, 0)
        return total

    with jax.enable_x64(True):
        costs = np.asarray(
            jax.vmap(
                lambda p: jnp.stack([control.cost(p, jnp.asarray([a])) for a in (0.0, 1.0, 2.0)])
            )(jnp.asarray(x))
        )

    def renormalised(h):
        parts = []
        for i, factor in enumerate(control.sigma.factors):
            a = 0.5 * factor @ factor.T
            g = np.trace(a) / np.sum(a * a)
            parts.append(g * (np.einsum("ij,nij->n", a, h) + costs[:, i]))
        return np.min(parts, axis=0)

    for _ in range(5):
        first, second = (hessians(100 * rng.standard_normal(4)) for _ in range(2))
        lap = np.trace(first - second, axis1=1, axis2=2)
        pairing = np.dot(weights, (renormalised(first) - renormalised(second)) * lap)
        assert pairing >= found.constant * np.dot(weights, lap**2)


@pytest.mark.trains
@pytest.mark.slow
def test_certificates_are_above_the_errors():
    problem: Any = zoo.rotated(2)
    network = qpde.Shallow(40, polynomial=True, beta=0.5, amplitude=0.2, scale=2.0)
    solution = qpde.solve(
        problem,
        network=network,
        rule=qpde.GaussNewton(),
        precision="float64",
        batch=200,
        steps=15,
        progress=False,
    )
    points = np.random.default_rng(1).random((4_000, 2))
    with jax.enable_x64(True):
        exact = jax.vmap(problem.exact)(jnp.asarray(points))
        bent = jax.vmap(jax.hessian(problem.exact))(jnp.asarray(points))
        found = jax.vmap(jax.hessian(solution.trial.value))(jnp.asarray(points))
    bounds = {norm: qpde.certify(solution, norm=norm) for norm in ("l2", "h2")}
    errors = {
        "l2": np.sqrt(np.mean((solution(points) - np.asarray(exact)) ** 2)),
        "h2": np.sqrt(np.mean(np.sum(np.asarray(found - bent) ** 2, axis=(1, 2)))),
    }
    for norm, bound in bounds.items():
        assert bound.kind is not qpde.Kind.HEURISTIC
        assert errors[norm] <= bound.bound
        assert str(bound.norm) == norm
    assert bounds["h2"].bound < 100 * errors["h2"]
    other = zoo.rotated(2, stretch=4.0)
    with pytest.raises(ValueError, match="another equation"):
        qpde.certify(solution, monotonicity=qpde.monotonicity(other))
    other = zoo.survival(2)
    law = qpde.Uniform(other.domain)
    plain = dataclasses.replace(solution, problem=other, measure=law)
    with pytest.raises(ValueError, match="Cordes"):
        qpde.certify(plain, norm="h2")
