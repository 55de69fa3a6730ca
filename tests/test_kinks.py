"""Obstacles and other choices between operators: the smallest mean of `|L Q|`, and where it is asked for."""

import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde._equation.choices import chooses
from qpde._rule.deviations import LeastDeviations
from qpde._solve.growth import attempts
from qpde._solve.stages import choose_stages

DISC, FREE = qpde.Ball(2), 0.5
TOP = FREE**2 - 2 * FREE**2 * np.log(FREE)


def membrane(x, u):
    """A membrane over the obstacle `TOP - |x|^2`, held at zero on the circle."""
    return jnp.maximum(u.laplacian, TOP - jnp.sum(x * x) - u.value)


def lifted(x):
    """Its height: the obstacle up to the radius `FREE`, and there a logarithm with the same slope."""
    r = np.sqrt(np.sum(x * x, axis=-1))
    return np.where(r < FREE, TOP - r * r, -2 * FREE**2 * np.log(np.maximum(r, FREE)))


@pytest.mark.parametrize(
    ("equation", "choice"),
    [
        (membrane, True),
        (lambda x, u: jnp.minimum(-u.laplacian, u.value - 0.1), True),
        (lambda x, u: jnp.maximum(u.laplacian, 2.0 * u.laplacian) - u.value + 1.0, True),
        (lambda x, u: u.laplacian + 0.1 * jnp.abs(u.laplacian) + 1.0, True),
        (lambda x, u: u.laplacian - u.value**3 + 1.0, False),
        (lambda x, u: u.laplacian - jnp.maximum(u.value, 0.0) + 1.0, False),
        (lambda x, u: u.laplacian - jnp.abs(u.grad[0]) + 1.0, False),
        (lambda x, u: u.laplacian + jnp.maximum(x[0], 0.0), False),
    ],
)
def test_which_equations_choose(equation, choice):
    """Kinks in second derivatives, not in lower ones or in the point."""
    problem = qpde.Problem(DISC, equation)
    assert chooses(problem.operator) is choice
    (plan, *_) = choose_stages(problem, {"seed": 0})
    rule = next(attempts([plan])).rule
    assert isinstance(rule, LeastDeviations) is choice


def test_a_membrane_over_an_obstacle():
    """Against the exact height, and the free boundary by where `Q` leaves the obstacle."""
    problem = qpde.Problem(DISC, membrane)
    points = qpde.Ball(2).sample
    grid = np.random.default_rng(0).uniform(-1, 1, (4_000, 2))
    points = grid[np.sum(grid**2, axis=1) < 1]
    errors = {}
    for rule in (LeastDeviations(), qpde.VariableProjection()):
        solution = qpde.solve(
            problem,
            network=qpde.Ridge(100, scale=3.0),
            rule=rule,
            batch=1_000,
            steps=12,
            progress=False,
        )
        errors[rule.name] = np.sqrt(np.mean((solution(points) - lifted(points)) ** 2))
    print(errors)
    assert errors["least-deviations"] < 2e-3


def test_what_least_deviations_refuse():
    problem = qpde.Problem(DISC, membrane)
    with pytest.raises(ValueError, match="float64"):
        qpde.solve(problem, rule=LeastDeviations(), precision="float32", steps=1, progress=False)
