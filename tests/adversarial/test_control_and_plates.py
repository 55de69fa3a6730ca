"""Cordes' condition and equations of fourth order: words of proof that are tried to be made false.

Of every case the truth is known without the library: matrices are looked at by NumPy, constants by what an
eigenfunction shows, errors by formulas. What must not happen is a false statement with a word of proof.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import qpde
from qpde import Kind, zoo


def held(problem, network: Any = 0.0):
    """A solution with a given network."""
    trial = qpde.Trial.of(problem, qpde.as_field(network), exact_boundary=True)
    none = np.zeros(0)
    return qpde.Solution(
        problem=problem,
        trial=trial,
        measure=qpde.Uniform(problem.domain),
        status=qpde.Status.FINISHED,
        steps=0,
        history=qpde.History(none, none, none, none, none),
        seconds=0.0,
        compile_seconds=0.0,
        rule="none",
        seed=0,
        precision="float64",
    )


def still(x, a):
    return jnp.zeros_like(x)


def control(**changes):
    """Two actions, `A = diag(a_1^2, a_2^2) / 2`."""
    parts: dict[str, Any] = {
        "actions": qpde.FiniteActions([[1.0, 1.0], [1.0, 1.2]]),
        "drift": still,
        "sigma": lambda x, a: jnp.diag(a),
        "cost": lambda x, a: 0.0 * x[0] - a[0],
    }
    return qpde.Control(**(parts | changes))


class Drifting(qpde.Control):
    """Says that it is a `Control` without drift, and drifts."""

    def bracket(self, x, u, a):
        return super().bracket(x, u, a) + 50.0 * jnp.dot(x, u.grad)

    def __call__(self, x, u):
        return super().__call__(x, u) + 50.0 * jnp.dot(x, u.grad)


def drifting():
    return Drifting(
        actions=qpde.FiniteActions([[1.0, 1.0], [1.0, 1.2]]),
        drift=still,
        sigma=lambda x, a: jnp.diag(a),
        cost=lambda x, a: a[0] + 0.0 * x[0],
        discount=0.0,
        maximise=False,
        best=None,
    )


def worse_far_away(x, u):
    """The best of two actions, but for large second derivatives an action that is not in the set."""
    costs = [a[0] + 0.5 * jnp.dot(jnp.diagonal(u.hessian), a * a) for a in ROWS]
    best = jnp.where(costs[0] < costs[1], ROWS[0], ROWS[1])
    return jnp.where(jnp.max(jnp.abs(u.hessian)) > 1e5, jnp.asarray([1.0, 1e-9]), best)


ROWS = jnp.asarray([[1.0, 1.0], [1.0, 1.2]])
SQUARE = qpde.Box(0.0, 1.0, dim=2)
FALSE: dict[str, Any] = {
    "no diffusion under the second action": control(actions=qpde.FiniteActions(np.eye(2)[:, ::-1])),
    "none at all under the last": control(
        actions=qpde.FiniteActions([1.0, 0.0]), sigma=lambda x, a: a[0] * jnp.eye(2)
    ),
    "none at all under the first": control(
        actions=qpde.FiniteActions([0.0, 1.0]), sigma=lambda x, a: a[0] * jnp.eye(2)
    ),
    "none at all, a number": control(
        actions=qpde.FiniteActions([1.0, 0.0]), sigma=lambda x, a: a[0]
    ),
    "next to none": control(
        actions=qpde.FiniteActions([1.0, 1e-155]), sigma=lambda x, a: a[0] * jnp.eye(2)
    ),
    "a line on which it degenerates": control(
        sigma=lambda x, a: jnp.diag(jnp.stack([a[0], jnp.square(x[0] - 0.3)]))
    ),
    "a spike between all points": control(
        sigma=lambda x, a: jnp.diag(
            jnp.stack([a[0], 1.0 - jnp.exp(-1e9 * jnp.square(x[0] - 0.123456))])
        )
    ),
    "degenerate in a corner": control(
        sigma=lambda x, a: jnp.diag(jnp.stack([a[0], jnp.where(x[0] + x[1] > 1.9999, 1e-9, 1.0)]))
    ),
    "a drift for one action": control(drift=lambda x, a: jnp.where(a[1] > 1.1, 9.0, 0.0) * x),
    "a steady drift": control(drift=lambda x, a: jnp.asarray([30.0, 0.0])),
    "a discount that grows": control(discount=lambda x: -40.0 * x[0]),
    "a class of one's own": drifting(),
    "another action for large derivatives": control(best=worse_far_away),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_violates_the_condition_is_not_proved(name):
    problem = qpde.Problem(SQUARE, FALSE[name])
    found = qpde.cordes(problem)
    assert not found.proved
    assert found.reason
    assert not qpde.monotonicity(problem).proved


@pytest.mark.parametrize("seed", range(6))
def test_proved_constants_hold_for_all_matrices(seed):
    """Random sets of matrices that vary with x, against 20,000 random points; some are proved, some not."""
    rng = np.random.default_rng(seed)
    count = 2 + seed % 3
    factors = np.eye(2) + (0.15 + 0.1 * seed) * rng.standard_normal((count, 2, 2))
    waves = 0.3 * rng.standard_normal((count, 2))

    def sigma(x, a):
        i = a[0].astype(int)
        return jnp.asarray(factors)[i] + jnp.diag(jnp.sin(9.0 * x) * jnp.asarray(waves)[i])

    actions = qpde.FiniteActions(np.arange(float(count)))
    problem = qpde.Problem(SQUARE, control(actions=actions, sigma=sigma))
    found: Any = qpde.cordes(problem)
    x = rng.random((20_000, 2))
    for i in range(count):
        s = factors[i] + np.eye(2) * (np.sin(9.0 * x) * waves[i])[:, None, :]
        a = 0.5 * s @ np.swapaxes(s, 1, 2)
        trace, square = np.trace(a, axis1=1, axis2=2), np.sum(a * a, axis=(1, 2))
        if found.proved:
            assert np.all(square / trace**2 <= 1.0 / (1.0 + found.epsilon))
            assert np.all(trace / square <= found.largest)
    if found.proved:
        assert found.second <= (1.0 - np.sqrt(1.0 - found.epsilon)) / found.largest * (1 + 1e-12)


def test_numbers_that_users_give_are_looked_at():
    problem = qpde.Problem(SQUARE, control(actions=qpde.FiniteActions([[1.0, 1.0], [1.0, 0.0]])))
    with pytest.raises(ValueError, match="is too large"):
        qpde.cordes(problem, epsilon=0.5, largest=10.0)
    problem = qpde.Problem(SQUARE, FALSE["none at all under the last"])
    with pytest.raises(ValueError, match="sigma is zero"):
        qpde.cordes(problem, epsilon=0.5, largest=10.0)


class Bumps(eqx.Module):
    """A smooth function with wave numbers up to 4."""

    sizes: Any

    def __call__(self, x):
        waves = jnp.arange(1.0, 5.0, dtype=x.dtype)
        return jnp.dot(jnp.sin(waves * x[0] + x[1]), jnp.asarray(self.sizes, x.dtype))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_bounds_of_second_derivatives_are_above_the_errors(seed):
    """Any function in place of the solution; errors by 40,000 points, 2 % below a bound at the least."""
    problem: Any = zoo.rotated(2, stretch=3.0)
    rng = np.random.default_rng(seed)
    solution = held(problem, Bumps(10.0 ** rng.integers(-3, 2) * rng.standard_normal(4)))
    x = jnp.asarray(0.002 + 0.996 * rng.random((40_000, 2)))
    with jax.enable_x64(True):
        x = jnp.asarray(x, jnp.float64)

        def error(x):
            return solution.trial.value(x) - problem.exact(x)

        bent = jax.jit(jax.vmap(jax.hessian(error)))(x)
        values = jax.jit(jax.vmap(error))(x)
    errors = {"h2": np.sqrt(np.mean(np.sum(np.square(bent), axis=(1, 2))))}
    errors["l2"] = np.sqrt(np.mean(np.square(values)))
    for norm, size in errors.items():
        found = qpde.certify(solution, norm=norm)
        assert found.kind is not Kind.HEURISTIC
        assert found.bound >= 0.98 * size


# Equations of fourth order. -------------------------------------------------------------------------------


@jax.custom_jvp
def quiet(v):
    """`1.9 v`, with the derivative of a constant."""
    return 1.9 * v


quiet.defjvp(lambda primals, tangents: (quiet(primals[0]), 0.0 * tangents[0]))

HIDDEN: dict[str, Any] = {
    "a stopped derivative": lambda x, u: (
        1 - 2 * u.bilaplacian + lax.stop_gradient(1.9 * u.bilaplacian)
    ),
    "a derivative of one's own": lambda x, u: 1 - 2 * u.bilaplacian + quiet(u.bilaplacian),
    "steps of it": lambda x, u: 1 - 2 * u.bilaplacian + jnp.round(1.9 * u.bilaplacian),
    "its sign": lambda x, u: 1 - 2 * u.bilaplacian + 500.0 * jnp.sign(u.bilaplacian),
    "fewer digits": lambda x, u: (
        1 - 2 * u.bilaplacian + 1.9 * u.bilaplacian.astype(jnp.float32).astype(u.bilaplacian.dtype)
    ),
    "a kink": lambda x, u: 1 - 2 * u.bilaplacian + 1.9 * jnp.abs(u.bilaplacian),
    "a curve": lambda x, u: 1 - 2 * u.bilaplacian + 1.9 * jnp.tanh(u.bilaplacian),
    "a factor that varies": lambda x, u: 1 - (0.1 + 2.0 * x[0] ** 2) * u.bilaplacian,
    "a stopped value": lambda x, u: 1 - u.bilaplacian + lax.stop_gradient(900.0 * u.value),
    "a drift that is large elsewhere": lambda x, u: 1 - u.bilaplacian + 4e3 * x[0] ** 8 * u.grad[0],
    "compression that varies": lambda x, u: 1 - u.bilaplacian - 200 * x[0] ** 4 * u.laplacian,
    "too much compression": lambda x, u: 1 - u.bilaplacian - 6.0 * u.laplacian,
    "growth": lambda x, u: 1 - u.bilaplacian + 120 * u.value,
    "growth in a corner": lambda x, u: (
        1 - u.bilaplacian + 1e4 * jnp.exp(-300 * (1 - x[0])) * u.value
    ),
    "growth of a square": lambda x, u: 1 - u.bilaplacian + u.value**2,
}


@pytest.mark.parametrize("name", HIDDEN)
def test_no_constant_is_proved_for_what_is_not_monotone(name):
    """On the unit disc, whose first clamped eigenvalue is 104.4, and lambda_1 = 5.78."""
    try:
        problem = qpde.Problem(qpde.Ball(2), HIDDEN[name], boundary=qpde.Clamped())
    except ValueError:
        return
    found = qpde.monotonicity(problem)
    assert not found.proved or (found.constant is not None and found.constant < 1e-3)


@pytest.mark.parametrize("scale", [1e-90, 1e-40, 1.0, 1e40, 1e90])
def test_units_do_not_make_proofs(scale):
    """The constant is that of the unit disc over the fourth power of the radius, or is refused."""
    problem = qpde.Problem(
        qpde.Ball(2, radius=scale), lambda x, u: 1 - u.bilaplacian, boundary=qpde.Clamped()
    )
    found: Any = qpde.monotonicity(problem)
    if found.proved:
        # NumPy's numbers overflow without an exception.
        expected = np.float64(5.783185962946785) ** 2 / np.float64(scale) ** 4
        assert np.isfinite(expected)
        np.testing.assert_allclose(found.constant, expected, rtol=1e-9)


def test_what_cancels_is_no_constant():
    """`-Lap^2 - lambda_1 Lap` is not coercive, up to rounding."""
    for part in (0.0, 1e-15, 1e-13):
        first = qpde.Ball(2).first_eigenvalue.value * (1.0 - part)
        problem = qpde.Problem(
            qpde.Ball(2),
            lambda x, u, first=first: 1 - u.bilaplacian - first * u.laplacian,
            boundary=qpde.Clamped(),
        )
        assert not qpde.monotonicity(problem).proved


@pytest.mark.parametrize(
    "network",
    [
        lambda x: jnp.abs(x[0] - 0.1) ** 3,
        lambda x: jnp.maximum(x[0] + 0.2, 0.0) ** 4,
        lambda x: jnp.sqrt(jnp.square(x[0] - 0.1)) ** 5,
    ],
)
def test_kinks_of_higher_derivatives_are_no_bound(network):
    """`L Q` does not see that the third derivative jumps."""
    problem = qpde.Problem(qpde.Ball(2), lambda x, u: 1 - u.bilaplacian, boundary=qpde.Clamped())
    try:
        found = qpde.certify(held(problem, network))
    except ValueError:
        return
    assert found.kind is Kind.HEURISTIC


@pytest.mark.daily("clamped_load")
@pytest.mark.parametrize("name", ["clamped_load", "clamped_waves", "supported_plate"])
def test_plates_have_bounds_above_their_errors(name):
    problem: Any = zoo.CATALOGUE[name].build(2)
    rng = np.random.default_rng(3)
    solution = held(problem, Bumps(10.0 ** rng.integers(-4, 1) * rng.standard_normal(4)))
    with jax.enable_x64(True):
        x = problem.domain.sample(jax.random.key(0), 20_000)
        q, u = (jax.jit(jax.vmap(f))(x) for f in (solution.trial.value, problem.exact))
    error = float(np.sqrt(np.mean(np.square(np.asarray(q - u)))))
    found = qpde.certify(solution)
    assert found.kind is not Kind.HEURISTIC
    assert found.bound >= 0.98 * error
