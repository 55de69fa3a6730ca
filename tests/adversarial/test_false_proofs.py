"""Equations whose programs hide something: no word of proof may be said of what is false.

Kinks and jumps behind operations that look smooth, derivative rules that lie, coefficients with spikes that
no random point meets, laws that belong to another equation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qpde
from qpde import Ball, Interval, Problem, monotonicity
from qpde._equation.operator import Structure
from qpde._precision import x64
from qpde._program.interval import Unbounded, enclose, roughness_over
from qpde._program.program import JUMP, KINK, SMOOTH
from qpde._program.search import is_semidefinite, smallest_eigenvalues

LINE = Interval(-1.0, 1.0)
HIDDEN = 0.1234567


@jax.custom_jvp
def lying(x):
    """`|x|` that says its slope is zero."""
    return jnp.abs(x)


lying.defjvp(lambda primals, tangents: (jnp.abs(primals[0]), 0.0 * tangents[0]))


@jax.custom_vjp
def silent(x):
    """`20 x` that says its slope is zero."""
    return 20.0 * x


silent.defvjp(lambda x: (20.0 * x, None), lambda _, g: (0.0 * g,))

# The program of relu, with the rule of the identity.
straight = jax.custom_jvp(getattr(jax.nn.relu, "fun"))  # noqa: B009
straight.defjvps(lambda g, ans, x: g)


def size_by_angles(t):
    """`|t|`."""
    return t * (jnp.arctan2(t, -1.0) + jnp.arctan(t)) / np.pi


ROUGH = {
    "angle": (lambda x: jnp.arctan2(x, -1.0), JUMP),
    "size by angles": (size_by_angles, KINK),
    "complex size": (lambda x: jnp.abs(x + 0j), KINK),
    "complex root": (lambda x: jnp.real(jnp.sqrt(x * x + 0j)), KINK),
    "complex angle": (lambda x: jnp.angle(-1.0 + 1j * x), JUMP),
    "own rule": (lying, KINK),
    "own backward rule": (silent, KINK),
    "relu with the rule of the identity": (straight, KINK),
    "stopped": (lambda x: x * jax.lax.stop_gradient(x), KINK),
    "argsort": (lambda x: jnp.array([1.0, 2.0])[jnp.argsort(jnp.stack([x, 0.0 * x]))[0]], JUMP),
    "sorted": (lambda x: jnp.sort(jnp.stack([x, 0.1 + 0.0 * x]))[0], KINK),
    "running maximum": (lambda x: jax.lax.cummax(jnp.stack([x, 0.1 + 0.0 * x]))[1], KINK),
    "looked up": (lambda x: jnp.array([1.0, 2.0])[(x > 0).astype(int)], JUMP),
    "sliced": (lambda x: jax.lax.dynamic_slice(jnp.arange(3.0), [jnp.int32(x)], [1])[0], JUMP),
    "float32": (lambda x: 1e8 * (x.astype(jnp.float32).astype(jnp.float64) - x), JUMP),
    "bits": (lambda x: jax.lax.bitcast_convert_type(x, jnp.int64) * 1.0, JUMP),
    "fewer digits": (lambda x: jax.lax.reduce_precision(x, 8, 4), JUMP),
    "remainder": (lambda x: jnp.fmod(x, 0.3), JUMP),
    "loop": (lambda x: jax.lax.fori_loop(0, 3, lambda i, s: jnp.abs(s) - 0.1, x), KINK),
    "while": (lambda x: jax.lax.while_loop(lambda s: s < 1, lambda s: s + 0.7, x), JUMP),
    "branch": (lambda x: jax.lax.cond(x > 0, lambda s: s + 1.0, lambda s: s, x), JUMP),
    "recomputed": (lambda x: jax.checkpoint(jnp.abs)(x), KINK),
    "compiled twice": (lambda x: 1 / jax.jit(jnp.sqrt)(x + 2) + jax.jit(jnp.sqrt)(x + 1), KINK),
    "pole": (lambda x: jnp.tan(2 * x), JUMP),
    "pole of a power": (lambda x: x**-2, JUMP),
    "pole of gamma": (lambda x: jax.lax.lgamma(x), JUMP),
    "end of a root": (lambda x: jnp.arccos(x), KINK),
    "unknown": (lambda x: jax.lax.igamma(2.0, jnp.abs(x)), KINK),
}


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("name", ROUGH)
def test_what_is_rough_is_not_called_smooth(name):
    function, least = ROUGH[name]
    with x64():
        (levels,) = roughness_over(function, (-1.0, 1.0))
    assert levels[0] >= least


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.abs(1.0 + jnp.exp(1j * np.pi * (x + 1.0))),
        lambda x: jnp.real((x + 1j) ** 2),
        lambda x: 1.0 * (jnp.floor(x).astype(jnp.uint8) + jnp.uint8(255)),
        lambda x: jnp.array([0.0, 5.0])[jnp.argmax(jnp.stack([x, 0.0 * x]))],
        lambda x: jax.lax.scan(lambda c, _: (c + x, c), x, None, length=10_000)[0],
    ],
)
def test_what_cannot_be_bounded_is_refused(function):
    with x64(), pytest.raises(Unbounded, match="Interval arithmetic"):
        enclose(function, (-1.0, 1.0))


def test_a_choice_by_what_is_no_number_is_not_taken_for_certain():
    """At negative x the root is no number, every comparison with it is false."""
    with x64():
        for compare in (
            lambda r: r >= -1.0,
            lambda r: jnp.sin(r) >= -2.0,
            lambda r: ~(jnp.clip(r, 0.0, 1.0) < -1.0),
        ):
            (span,) = enclose(
                lambda x, c=compare: jnp.where(c(jnp.sqrt(x)), 1.0, -1.0), (-1.0, 1.0)
            )
            assert span.low <= -1.0 or compare(jnp.nan)
            assert span.high >= 1.0


def test_bounds_of_a_program_that_is_called_twice_hold_for_both_calls():
    """Between the calls stands an operation that is not known."""
    inverse = jax.jit(lambda y: 1.0 / y)

    def function(x):
        return inverse(x + 3.0) + inverse(jax.lax.digamma(x + 3.0) * 0.0 + x)

    with x64():
        assert roughness_over(function, (-1.0, 1.0)) == [{0: JUMP}]


# Of each the truth is known: no positive constant, by a spike, a jump or a rule that lies.
NOT_MONOTONE = {
    "drift leaps down by an angle": lambda x, u: (
        u.laplacian - jnp.arctan2(x[0], -1.0) * u.grad[0] + 1
    ),
    "leaps up in u by an angle": lambda x, u: u.laplacian + jnp.arctan2(u.value, -1.0),
    "complex killing": lambda x, u: (
        u.laplacian + 20 * (2 - jnp.abs(1 + jnp.exp(4096j * np.pi * (x[0] + 1)))) * u.value + 1
    ),
    "stopped": lambda x, u: u.laplacian + jax.lax.stop_gradient(20 * u.value) + 1,
    "own backward rule in u": lambda x, u: u.laplacian + silent(u.value) + 1,
    "own rule in u": lambda x, u: u.laplacian + 40 * lying(u.value) + 1,
    "drift with an own rule": lambda x, u: u.laplacian + 40 * lying(x[0]) * u.grad[0] * -1.0 + 1,
    "drift leaps by a branch": lambda x, u: (
        u.laplacian - jax.lax.cond(x[0] > 0, lambda: 40.0, lambda: 0.0) * u.grad[0]
    ),
    "drift leaps by a table": lambda x, u: (
        u.laplacian - jnp.array([0.0, 40.0])[(x[0] > 0).astype(int)] * u.grad[0]
    ),
    "drift leaps by float32": lambda x, u: (
        u.laplacian - 4e8 * (x[0].astype(jnp.float32).astype(x.dtype) - x[0]) * u.grad[0]
    ),
    "negative killing in a strip": lambda x, u: (
        u.laplacian + jnp.where(jnp.abs(x[0] - HIDDEN) < 1e-4, 1e6, 0.0) * u.value
    ),
    "negative killing in a bump": lambda x, u: (
        u.laplacian + 1e6 * jnp.exp(-(((x[0] - HIDDEN) / 1e-4) ** 2)) * u.value
    ),
    "negative diffusion in a strip": lambda x, u: (
        jnp.where(jnp.abs(x[0] - HIDDEN) < 5e-4, -1e-2, 1.0) * u.laplacian - u.value
    ),
    "nonlinear in u by a slow wave": lambda x, u: u.laplacian + 40 * jnp.sin(u.value),
}


@pytest.mark.daily(every=2)
@pytest.mark.parametrize("name", NOT_MONOTONE)
def test_no_constant_is_proved_where_there_is_none(name):
    found = monotonicity(Problem(LINE, NOT_MONOTONE[name]))
    assert not found.proved


def test_a_violation_on_points_is_not_called_a_refutation():
    """A spike of killing that the points miss makes the equation monotone: the true constant is +4.63."""

    def spike(x, u):
        killing = 1e10 * jnp.exp(-(((x[0] - 0.0123) / 1e-6) ** 2))
        return u.laplacian + (5 - killing) * u.value + 1

    found = monotonicity(Problem(LINE, spike))
    assert not found.proved
    assert "no proof" in repr(found)
    assert found.kind != "refuted"


def bump(x):
    return 4e7 * (x[0] - HIDDEN) * jnp.exp(-(((x[0] - HIDDEN) / 1e-4) ** 2))


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    "other",
    [
        lambda x, u: u.laplacian - (x[0] + bump(x)) * u.grad[0] + 1,
        lambda x, u: u.laplacian - x[0] * (1 + 1e-9) * u.grad[0] + 1,
        lambda x, u: (1 + 1e-12) * u.laplacian - x[0] * u.grad[0] + 1,
    ],
)
def test_the_law_of_another_equation_is_not_taken_for_its_own(other):
    law: Any = qpde.suggest_measure(Problem(LINE, lambda x, u: u.laplacian - x[0] * u.grad[0] + 1))
    with x64():
        assert not law.density.belongs_to(Problem(LINE, other).operator)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    ("drift", "proved"),
    [
        (lambda x: -4.0 * x, True),
        (lambda x: -4.0 * x - x**3, True),
        (lambda x: jnp.array([[-4.0, 1.0], [1.0, -3.0]]) @ x, True),
        (lambda x: -4.0 * x * (1.0 + jnp.dot(x, x)), False),  # a gradient, but nothing shows it
        (lambda x: -4.0 * jnp.sinh(x), False),  # not a polynomial, so that quadrature is not exact
        (lambda x: -4.0 * x + 1e-9 * jnp.stack([x[1], -x[0]]), False),  # a small rotation
    ],
)
def test_a_stationary_law_is_proved_by_programs_only(drift, proved):
    law: Any = qpde.suggest_measure(
        Problem(Ball(2), lambda x, u: u.laplacian + u.along(drift(x)) + 1)
    )
    with x64():
        assert law is None or law.density.is_proved() == proved
        assert law is not None or not proved


def test_a_negative_coefficient_in_a_strip_is_not_called_elliptic():
    def strip(x):
        return jnp.where(jnp.abs(x[0] - 0.123456) < 5e-4, -3.765484256161715e-4, 1.0)

    problem = Problem(LINE, lambda x, u: strip(x) * u.laplacian - u.value)
    with x64():
        bound = problem.operator.semidefinite()
    assert not (bound.proved and bound.value >= 0)
    assert bound.value == pytest.approx(-3.765484256161715e-4, rel=1e-9)


@pytest.mark.daily(every=2)
@pytest.mark.parametrize(
    ("matrix", "least"),
    [
        (lambda x: jnp.array([[1.0, 0.2], [0.2, 1.0]]), 0.8),
        (lambda x: jnp.array([[1.0, 1.0], [1.0, 1.0]]), 0.0),
        (lambda x: jnp.diag(1 + x**2), 1.0),
        (lambda x: jnp.array([[1.0, 0.9], [0.9, 1.0]]) * (1 + 0.1 * jnp.sin(9 * x[0])), 0.09),
        (lambda x: jnp.array([[2.0, 1.9 * x[0]], [1.9 * x[0], 2.0]]), 0.1),
    ],
)
def test_eigenvalues_of_matrices(matrix, least):
    problem = Problem(Ball(2), lambda x, u: u.trace(matrix(x)) - 9 * u.value + 1)
    with x64():
        bound = problem.operator.ellipticity()
    assert bound.proved
    assert 0.9 * least - 1e-9 <= bound.value <= least + 1e-9
    assert monotonicity(problem).proved


def test_a_matrix_that_loses_definiteness_in_a_strip_is_not_proved():
    def matrix(x):
        off = jnp.where(jnp.abs(x[0] - HIDDEN) < 1e-6, 1.5, 0.2)
        return jnp.array([[1.0, off], [off, 1.0]])

    problem = Problem(Ball(2), lambda x, u: u.trace(matrix(x)) - u.value)
    with x64():
        bound = problem.operator.ellipticity()
    assert not (bound.proved and bound.value >= 0)
    assert not monotonicity(problem).proved


def test_eigenvalues_between_two_matrices_are_bounded():
    """Against random symmetric matrices between the two, d = 4."""
    rng = np.random.default_rng(0)
    middle = rng.normal(size=(200, 4, 4))
    middle, radius = middle + middle.mT, rng.uniform(0, 1, (200, 4, 4)) * rng.uniform(0, 1)
    radius = radius + radius.mT
    bound = smallest_eigenvalues(middle - radius, middle + radius)
    for _ in range(50):
        part = np.triu(rng.choice([-1.0, 1.0], size=radius.shape))
        part = np.triu(part) + np.triu(part, 1).mT
        assert np.all(np.linalg.eigvalsh(middle + part * radius)[:, 0] >= bound)


def test_semidefinite_without_rounding():
    vectors = np.random.default_rng(0).integers(-5, 5, (3, 6)).astype(float)
    assert is_semidefinite(vectors.T @ vectors)  # of rank 3
    assert not is_semidefinite(vectors.T @ vectors - 1e-15 * np.eye(6))
    assert not is_semidefinite(np.array([[0.0, 1e-300], [1e-300, 1.0]]))


def test_jumps_make_an_equation_nonlinear():
    for function in (lying, silent, straight):
        problem = Problem(LINE, lambda x, u, f=function: u.laplacian + f(u.value))
        assert problem.operator.structure is Structure.NONLINEAR


def test_what_is_smooth_stays_smooth():
    """The list is long enough for what users write."""
    smooth = {
        "stack": lambda x: jnp.stack([x, 2 * x]).sum(),
        "put": lambda x: jnp.zeros(3).at[1].add(x)[1],
        "running sum": lambda x: jnp.cumsum(jnp.stack([x, x]))[1],
        "softplus": jax.nn.softplus,
        "slope of softplus": jax.grad(jax.nn.softplus),
        "logit": lambda x: jax.scipy.special.logit(0.5 + 0.2 * x),
        "scan": lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=3)[1].sum(),
        "polynomial": lambda x: jnp.polyval(jnp.array([1.0, 2.0, 3.0]), x),
        "angle": lambda x: jnp.arctan2(x, 2.0),
        "choice that is always the same": lambda x: jnp.where(x < 5, jnp.sin(x), 0.0),
        "size of what is positive": lambda x: jnp.abs(x + 2) + jnp.maximum(x, -3.0),
        "real power": lambda x: (2.0 + x) ** 0.3 + x**2.0,
        "recomputed": lambda x: jax.checkpoint(jnp.sin)(x),
    }
    with x64():
        for name, function in smooth.items():
            assert roughness_over(function, (-1.0, 1.0)) == [{0: SMOOTH}], name
