"""Sampling laws and the exactness of micro-batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from qpde import Ball, Box, Decay, Radial, Ramp, Uniform, Weighted
from qpde._rule.batch import Draw, batch_sizes, chunk_size
from qpde._rule.schedule import Clock, Fixed, as_schedule


def test_radial_law_has_the_right_radii():
    """Kolmogorov-Smirnov distance at level 1e-6."""
    n, k = 50_000, 4.0
    points, weights = Radial(Ball(10, centre=1.0, radius=2.0), k).sample(jr.key(0), n)
    u = np.sort((np.linalg.norm(np.asarray(points) - 1.0, axis=1) / 2.0) ** k)
    assert np.abs(u - (np.arange(n) + 0.5) / n).max() < 2.7 / np.sqrt(n)
    assert np.all(weights == 1)


@pytest.mark.parametrize(("dim", "k"), [(10, 1.0), (10, 1.9), (10, 18.5), (1, 2.0), (2, 3.0)])
def test_radial_laws_that_are_not_monotone_are_refused(dim, k):
    with pytest.raises(ValueError, match="is the uniform law"):
        Radial(Ball(dim), k)


def test_weights_give_expectations_under_the_density():
    """E[x_1] under the density 2 x on (0, 1) is 2/3; 5 sigma."""
    measure = Weighted(Box(0.0, 1.0, dim=1), lambda x: 7.0 * x[0])
    points, weights = measure.sample(jr.key(1), 100_000)
    product = np.asarray(weights * points[:, 0])
    assert abs(product.mean() - 2 / 3) < 5 * product.std() / np.sqrt(1e5) + 5e-3
    with pytest.raises(ValueError, match="not negative"):
        Weighted(Box(0.0, 1.0, dim=1), lambda x: x[0] - 0.5)


@pytest.mark.parametrize("size", [1, 999, 1_000, 1_001, 2_500])
def test_micro_batches_use_exactly_the_points_of_the_step(size):
    measure = Uniform(Ball(3))
    draw = Draw(measure, jr.key(5), jnp.asarray(size, jnp.int32), 1_000)

    def part(batch):
        kept = batch.weights > 0
        mean = batch.weights @ batch.points[:, 0]
        return jnp.sum(kept), jnp.sum(batch.weights), mean, jnp.sum(batch.equal)

    count, mass, mean, share = eqx.filter_jit(lambda draw: draw.expect(part))(draw)
    keys = [jr.fold_in(jr.key(5), i) for i in range(-(-size // 1_000))]
    points = np.concatenate([measure.sample(key, 1_000)[0] for key in keys])[:size]
    assert count == size
    np.testing.assert_allclose(mass, 1.0, rtol=1e-5)
    np.testing.assert_allclose(share, 1.0, rtol=1e-5)
    np.testing.assert_allclose(mean, points[:, 0].mean(), atol=1e-6)


def test_batch_sizes_are_the_papers():
    sizes = batch_sizes(Ramp(2_000, 10_000), 0, 40_000, 40_000)
    expected = [round(2_000 + 8_000 * t / 40_000) for t in range(40_000)]
    assert sizes.tolist() == expected
    assert chunk_size(Ramp(2_000, 10_000), 40_000) == (1_000, False)
    assert chunk_size(as_schedule(1_500), 10) == (1_500, True)
    assert chunk_size(as_schedule(6_000), 10) == (2_000, False)
    assert chunk_size(as_schedule(200), 10) == (200, True)
    assert chunk_size(Ramp(1, 4_000), 100) == (990, False)


def test_schedules():
    assert Decay(0.5, 200)(Clock(200.0, 1.0)) == 0.25
    assert Ramp(1.0, 3.0)(Clock(5.0, 10.0)) == 2.0
    assert isinstance(as_schedule(3.0), Fixed)
    assert as_schedule(lambda t: 2 * t)(Clock(3, 10)) == 6
    with pytest.raises(ValueError, match="not negative"):
        as_schedule(-1.0)


def test_chunks_do_not_leak_between_steps():
    draws = [np.asarray(Uniform(Ball(2)).sample(jr.fold_in(jr.key(0), t), 4)[0]) for t in range(50)]
    assert len({array.tobytes() for array in draws}) == 50
    assert jax.config.read("jax_enable_x64") is False
