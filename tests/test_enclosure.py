"""Interval arithmetic: bounds that hold, are not far off, and say when they cannot be had."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from qpde import activations
from qpde._precision import x64
from qpde._program.interval import Unbounded, enclose, roughness_over
from qpde._program.program import JUMP, KINK, SMOOTH, dependencies
from qpde._program.spans import _LESS_ACCURATE, _ROUNDING


@pytest.fixture(autouse=True)
def _mode():
    """The mode in which the library calls these functions."""
    with x64():
        yield


FUNCTIONS = {
    "polynomial": lambda x: x[0] ** 3 - 2 * x[1] ** 2 + x[0] * x[1],
    "square": lambda x: jnp.sum(x * x) - jnp.dot(x, x) ** 2,
    "waves": lambda x: jnp.sin(5 * x[0]) * jnp.cos(3 * x[1]) + jnp.sin(x[0] + 40),
    "exponentials": lambda x: jnp.exp(-jnp.sum(x**2)) / (2 + jnp.tanh(x[0])),
    "roots": lambda x: jnp.sqrt(1 + x[0] ** 2) + jnp.abs(x[1]) ** 1.5 + jnp.log(3 + x[1]),
    "choices": lambda x: jnp.where(x[0] > 0, x[1], -x[0]) + jnp.maximum(x[0], 0.3),
    "products": lambda x: jnp.prod(jnp.sin(x) + 0.1),
    "matrices": lambda x: jnp.dot(jnp.array([[1.0, -2.0], [0.5, 3.0]]) @ x, x),
    "gradient": lambda x: jnp.sum(jax.grad(lambda y: jnp.sum(jnp.sin(y) * y**2))(x)),
    "activations": lambda x: sum(jnp.sum(s(x)) for s in (activations.tanh, activations.sigmoid)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_hold_and_close_up(name):
    """At 2,000 random points of random boxes; a hundred times smaller boxes have smaller bounds."""
    function, rng = FUNCTIONS[name], np.random.default_rng(0)
    with jax.enable_x64(True):
        many = jax.jit(jax.vmap(function))
        for size in (1.5, 0.015):
            centre = rng.uniform(-0.8, 0.8, 2)
            (span,) = enclose(function, (centre - size, centre + size))
            values = many(jnp.asarray(centre + size * rng.uniform(-1, 1, (2_000, 2))))
            assert span.low <= values.min()
            assert values.max() <= span.high
        assert span.high - span.low < 12 * np.ptp(values) + 1e-3


def test_infinite_arguments_and_zero_times_infinity():
    whole = (-np.inf, np.inf)
    assert enclose(lambda v: 3 * v**2, whole)[0].low == pytest.approx(0, abs=1e-200)
    (span,) = enclose(lambda v: 1 + jnp.cos(v), whole)
    np.testing.assert_allclose(span, (0, 2), atol=1e-12)
    np.testing.assert_allclose(enclose(lambda v: 0.0 * v, whole)[0], (0, 0), atol=1e-200)
    assert enclose(lambda v: v - v, whole)[0] == (-np.inf, np.inf)
    assert enclose(lambda v: 1 / v, (-1.0, 1.0))[0] == (-np.inf, np.inf)


def test_many_boxes_at_once():
    edges = np.linspace(-1, 1, 101)
    (spans,) = enclose(jax.vmap(lambda x: x**2 - x), (edges[:-1], edges[1:]))
    assert spans.low.min() == pytest.approx(-0.25, abs=0.03)
    assert spans.high.max() == pytest.approx(2, abs=0.03)


def test_an_unknown_operation_says_so():
    with pytest.raises(Unbounded, match="while"):
        enclose(lambda x: jax.lax.while_loop(lambda s: s < 3, lambda s: s + 1, x), (0.0, 1.0))


def test_dependencies_are_seen_through_calls():
    def function(x, v, p):
        return jax.jit(lambda a, b: (a * 2, b))(x, v)[0], jnp.tanh(v) * p, jnp.ones(())

    with jax.enable_x64(True):
        assert dependencies(function, 1.0, 2.0, 3.0) == [{0}, {1, 2}, set()]


@pytest.mark.parametrize(
    ("function", "level"),
    [
        (lambda x: jnp.sin(x) / (2 + x) + jnp.sqrt(3 + x) + x**3, SMOOTH),
        (lambda x: jnp.where(True, x, 0.0) + jnp.maximum(1.0, 2.0), SMOOTH),
        (lambda x: jnp.abs(x), KINK),
        (lambda x: jax.nn.relu(x) ** 2, KINK),
        (lambda x: jnp.sqrt(x * x), KINK),
        (lambda x: jnp.sign(x), JUMP),
        (lambda x: jnp.where(x > 0, 1.0, x), JUMP),
        (lambda x: jnp.round(x) + x, JUMP),
        (lambda x: jax.lax.stop_gradient(x) * x, JUMP),
        (lambda x: 1 / x, JUMP),
    ],
)
def test_kinks_and_jumps_are_seen(function, level):
    assert roughness_over(function, (-1.0, 1.0)) == [{0: level}]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.where(jnp.round(x).astype(bool), 1.0, -1.0),
        lambda x: jax.lax.reduce(x * jnp.ones(3), 1.0, lambda a, b: a * b + 1, (0,)),
        lambda x: (jnp.floor(x).astype(int) & 5) * 1.0,
        lambda x: (x.astype(jnp.float32) + 1).astype(jnp.float64),
    ],
)
def test_operations_that_do_not_rise_are_refused(function):
    with pytest.raises(Unbounded):
        enclose(function, (-1.0, 3.0))


@pytest.mark.parametrize(
    ("name", "exact", "low", "high"),
    [
        *((name, getattr(np, name), -30.0, 30.0) for name in ("sin", "cos", "tan", "tanh", "cbrt")),
        *((name, getattr(np, name), -700.0, 700.0) for name in ("exp", "exp2", "sinh", "cosh")),
        *((name, getattr(np, name), -0.99, 5.0) for name in ("expm1", "log1p")),
        *((name, getattr(np, name), 1e-6, 1e6) for name in ("log", "sqrt")),
        *((f"a{name}", getattr(np, f"arc{name}"), -0.999, 0.999) for name in ("sin", "cos", "tan")),
        ("asinh", np.arcsinh, -1e6, 1e6),
        ("acosh", np.arccosh, 1.0, 1e6),
        ("atanh", np.arctanh, -0.999, 0.999),
        ("rsqrt", lambda x: 1 / np.sqrt(x), 1e-6, 1e6),
        ("logistic", lambda x: 1 / (1 + np.exp(-x)), -700.0, 700.0),
        ("erf", special.erf, -6.0, 6.0),
        ("erfc", special.erfc, -6.0, 25.0),
        ("erf_inv", special.erfinv, -1 + 1e-9, 1 - 1e-9),
    ],
)
def test_functions_are_as_accurate_as_the_bounds_take_them_for(name, exact, low, high):
    """At 4,000 points, against extended precision (special functions: SciPy); half the slack is spare."""
    x = np.random.default_rng(0).uniform(low, high, 4_000)
    x = np.concatenate([x, x * 1e-6]) if low < 0 else x
    wide = x if exact in (special.erf, special.erfc, special.erfinv) else x.astype(np.longdouble)
    wanted, found = exact(wide), np.asarray(getattr(jax.lax, name)(jnp.asarray(x)))
    share = _LESS_ACCURATE.get(name, _ROUNDING)
    assert np.max(np.abs(found - wanted) / np.abs(wanted)) < 0.5 * share
