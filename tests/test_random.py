"""Random numbers: JAX's bits, and the laws made of them."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from qpde._domain.random import bits, normal, uniform


@pytest.mark.parametrize("n", [1, 2, 7, 1_000, 1_001])
def test_bits_are_those_of_jax(n):
    for seed in (0, 5):
        with jax.threefry_partitionable(False):
            expected = jr.bits(jr.key(seed, impl="threefry2x32"), (n,))
        found = jax.jit(bits, static_argnums=1)(jr.key(seed, impl="threefry2x32"), n)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("x64", [False, True])
def test_uniform_and_normal_laws(x64):
    """Kolmogorov-Smirnov on 100,000 numbers; false-alarm rate 1e-4 for each of four tests."""
    with jax.enable_x64(x64):
        u = jax.jit(uniform, static_argnums=1)(jr.key(3), (1_000, 100))
        z = jax.jit(normal)(u)
        assert u.dtype == jnp.result_type(float)
    u, z = np.asarray(u, np.float64).ravel(), np.asarray(z, np.float64).ravel()
    assert 0 < u.min() < u.max() < 1
    assert np.all(np.isfinite(z))
    assert stats.kstest(u, "uniform").pvalue > 1e-4
    assert stats.kstest(z, "norm").pvalue > 1e-4


def test_the_ends_are_never_reached():
    """The smallest and the largest word give numbers inside (0, 1), and finite normal ones."""
    ends = np.array([0, 2**23 - 1], np.float32)
    u = (ends + np.float32(0.5)) * np.float32(2.0**-23)
    assert 0 < u[0] < u[1] < 1
    assert np.all(np.abs(np.asarray(normal(jnp.asarray(u)))) < 6)


def test_neighbouring_keys_are_unrelated():
    """Correlation of 100,000 numbers under 50 pairs of keys; false-alarm rate 0.3 %."""
    draw = jax.jit(lambda i: uniform(jr.fold_in(jr.key(0), i), (100_000,)))
    rows = [np.asarray(draw(i)) for i in range(51)]
    largest = max(abs(np.corrcoef(a, b)[0, 1]) for a, b in itertools.pairwise(rows))
    assert largest * np.sqrt(100_000) < 4.0
