"""Obstacles and other choices between operators: which they are, and the rule that they are given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde._equation.choices import chooses
from qpde._precision import x64
from qpde._rule.deviations import LeastDeviations
from qpde._solve.growth import attempts
from qpde._solve.stages import choose_stages

DISC, FREE = qpde.Ball(2), 0.5
TOP = FREE**2 - 2 * FREE**2 * np.log(FREE)


def membrane(x, u):
    """A membrane over the obstacle `TOP - |x|^2`, held at zero on the circle."""
    return jnp.maximum(u.laplacian, TOP - jnp.sum(x * x) - u.value)


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


def test_what_least_deviations_refuse():
    problem = qpde.Problem(DISC, membrane)
    with pytest.raises(ValueError, match="float64"):
        qpde.solve(problem, rule=LeastDeviations(), precision="float32", steps=1, progress=False)


@pytest.mark.slow
def test_the_american_put():
    """The largest error against the exact price, whose second derivative jumps at the free boundary."""
    problem = qpde.zoo.american_put()
    assert problem.exact is not None
    solution = qpde.solve(
        problem,
        network=qpde.Ridge(256, scale=16.0),
        rule=LeastDeviations(),
        batch=1_024,
        steps=15,
        progress=False,
    )
    points = np.linspace(0.0, 1.0, 2_003)[1:-1, None]
    with x64():
        exact = np.asarray(jax.vmap(problem.exact)(points))
    assert np.max(np.abs(solution(points) - exact)) <= 1e-4
