"""A problem is checked when it is built: orientation found, mistakes refused with a cure."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from qpde import Ball, Box, Interval, Problem
from qpde._domain.base import AbstractDomain
from qpde._field.base import Constant


@pytest.mark.parametrize(
    ("equation", "sign"),
    [
        (lambda x, u: 1 - u.value + 0.5 * u.laplacian, 1),
        (lambda x, u: -u.laplacian - 1, -1),
        (lambda x, u: u.generator(-x, 0.5) + 1, 1),
        (lambda x, u: u.generator(-x, jnp.eye(3)[:, :2]) - u.value, 1),  # degenerate
        (lambda x, u: -u.trace(jnp.diag(x * x)) + u.value, -1),  # degenerate at the centre
        (lambda x, u: jnp.maximum(u.laplacian - 0.1 * u.value, 0.2 - u.value), 1),  # obstacle
        (lambda x, u: u.hessian[0, 0] + 2 * u.hessian[1, 1] + u.hessian[2, 2] - u.value**3, 1),
        (lambda x, u: u.laplacian - jnp.linalg.norm(u.grad) - u.value, 1),  # kink at grad u = 0
        (lambda x, u: (1 + u.value**2) * u.laplacian - u.value, 1),  # quasilinear
        (lambda x, u: u.second(jnp.array([1.0, 1.0, 0.0])) + 0.5 * u.laplacian, 1),
    ],
)
def test_orientation_is_found(equation, sign):
    problem = Problem(Ball(3), equation)
    assert problem.orientation == sign
    assert ("opposite" in repr(problem)) == (sign < 0)


def test_asks_are_reported():
    problem = Problem(Ball(3), lambda x, u: u.generator(-x, 0.5) - u.value)
    assert problem.asks == ("laplacian", "grad", "value")
    assert "asks for laplacian, grad, value" in repr(problem)


@pytest.mark.parametrize(
    ("equation", "word"),
    [
        (lambda x, u: u.laplacian + 2 * u.value + 1, "sign of growth"),
        (lambda x, u: -u.laplacian - 2 * u.value - 1, "sign of growth"),
        # time as a coordinate
        (lambda x, u: u.second(jnp.array([1.0, 0.0])) - u.grad[1], "along x[1]"),
        (lambda x, u: u.hessian[0, 0] - u.grad[1], "along x[1]"),
        (lambda x, u: u.laplacian - 2 * u.value + 1, None),
        (lambda x, u: u.laplacian + (x[0] - 0.5) * u.value, None),  # of both signs
        (lambda x, u: u.laplacian - u.value**3, None),
        (lambda x, u: jnp.maximum(u.laplacian - u.value, 0.2 - u.value), None),
        (lambda x, u: u.trace(jnp.diag(x * x)) - u.value, None),  # degenerate on lines only
    ],
)
def test_what_is_seldom_meant_is_noted(equation, word):
    problem = Problem(Box([0.0] * 2, [1.0] * 2), equation)
    assert ("note: " in repr(problem)) == bool(problem.notes) == (word is not None)
    assert word is None or word in "".join(problem.notes)


class HalfBaked(AbstractDomain):
    """A ball whose eta does not vanish on the sphere."""

    ball: Ball

    @property
    def dim(self) -> int:
        return self.ball.dim

    @property
    def eta(self) -> Constant:
        return Constant(1.0)

    @property
    def enclosing_box(self) -> tuple[Any, Any]:
        return self.ball.enclosing_box

    @property
    def enclosing_ball(self) -> tuple[Any, Any]:
        return self.ball.enclosing_ball

    @property
    def inradius(self) -> float:
        return self.ball.inradius

    @property
    def log_volume(self) -> float:
        return self.ball.log_volume

    def contains(self, x):
        return self.ball.contains(x)

    def distance(self, x):
        return self.ball.distance(x)

    def sample(self, key, n, dtype=float):
        return self.ball.sample(key, n, dtype)

    def sample_boundary(self, key, n, dtype=float):
        return self.ball.sample_boundary(key, n, dtype)


def poisson(x, u):
    return u.laplacian + 1


E1 = 1.1 * np.eye(200)[0]


@dataclasses.dataclass
class Loose:
    """Callable, but with equality and no hash."""

    rate: float = 1.0

    def __call__(self, x, u):
        return u.laplacian + self.rate


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Ball(3), lambda x, u: u.hessian[0, 0] - u.hessian[1, 1]), "not elliptic.*both signs"),
        ((Ball(3), lambda x, u: u.second(x) - 0.1 * u.laplacian), "not elliptic"),
        ((Ball(200), lambda x, u: u.second(E1) - u.laplacian), "not elliptic"),
        ((Ball(2), Loose()), "cannot be hashed.*Make it a function"),
        (
            (Ball(3), lambda x, u: u.grad),
            r"equation must return a scalar of shape \(\), got \(3,\)",
        ),
        ((Ball(3), lambda x, u: u.value - 1), "asks only for value: qpde solves elliptic"),
        ((Ball(3), lambda x, u: 0.0 * u.laplacian), "does not depend on them"),
        ((Ball(3), lambda x, u: u.laplacian / (x[0] - x[0])), "not finite at u = boundary"),
        ((Ball(3), poisson, lambda x: x), r"boundary function must return a scalar.*\(3,\)"),
        ((Ball(3), poisson, [1.0, 2.0]), "boundary must be a number or a function"),
        ((Ball(3), poisson, float("nan")), "boundary must be finite"),
        ((Ball(3), poisson, lambda x: jnp.log(x[0])), "not finite everywhere on the boundary"),
        (
            (Ball(3), poisson, lambda x: jnp.exp(800.0 * x[0] + 800.0) * x[1]),
            "finite on the whole closure.*at x = ",
        ),
        ((HalfBaked(Ball(3)), poisson), "eta must vanish on the boundary, for example at x = "),
    ],
)
def test_mistakes_are_refused_with_a_cure(arguments, message):
    with pytest.raises(ValueError, match=message):
        Problem(*arguments)


def test_unknown_asks_and_the_users_own_errors_reach_the_user():
    with pytest.raises(AttributeError, match="no 'laplace'"):
        Problem(Ball(3), lambda x, u: u.laplace)
    with pytest.raises(ZeroDivisionError):
        Problem(Ball(3), lambda x, u: u.laplacian / 0 if 1 // 0 else u.value)


def test_exact_solution_is_checked_for_its_shape():
    with pytest.raises(ValueError, match="exact solution must return a scalar"):
        Problem(Ball(3), poisson, exact=lambda x: x)


def test_coefficients_that_vanish_at_an_end_are_allowed():
    """The perpetual American put: degenerate at x = 0, an obstacle, data on an interval."""
    strike, rate, sigma = 0.5, 0.05, 0.25

    def put(x, u):
        running = (
            0.5 * sigma**2 * x[0] ** 2 * u.laplacian + rate * x[0] * u.grad[0] - rate * u.value
        )
        return jnp.maximum(running, jnp.maximum(strike - x[0], 0.0) - u.value)

    problem = Problem(Interval(0.0, 1.0), put, lambda x: strike * (1 - x[0]))
    assert problem.orientation == 1


def test_boxes_and_large_dimensions_build():
    assert Problem(Box(0.0, 1.0, dim=1_000), poisson).dim == 1_000
