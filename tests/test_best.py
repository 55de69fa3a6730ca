"""The best action's own algebra: inverses by elimination, curvatures made positive."""

import jax
import jax.numpy as jnp
import numpy as np

from qpde._control.best import best_in_box, best_of_quadratic, floor_of, inverse, lifted


def symmetric(size, least, seed):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((size, size)))[0]
    return turn @ np.diag(np.linspace(least, 3.0, size)) @ turn.T


def test_inverses_and_their_sign():
    with jax.enable_x64(True):
        for size in (1, 2, 7, 40):
            good, bad = symmetric(size, 0.01, size), symmetric(size, -0.01, size)
            if size == 1:
                bad = np.array([[-0.01]])
            found, pivot = inverse(jnp.asarray(good))
            np.testing.assert_allclose(found, np.linalg.inv(good), rtol=1e-9, atol=1e-11)
            assert pivot > 0
            assert inverse(jnp.asarray(bad))[1] < 0
            slope = np.arange(1.0, size + 1)
            best = best_of_quadratic(jnp.asarray(slope), jnp.asarray(good))
            np.testing.assert_allclose(best, -np.linalg.solve(good, slope), rtol=1e-8)


def test_only_what_is_not_positive_is_lifted():
    """Eigenvalues by NumPy: nothing is added above the floor, and afterwards all are above it."""
    with jax.enable_x64(True):
        cost = jnp.asarray(symmetric(5, 0.5, 0))
        floor = float(floor_of(cost))
        assert 0.1 * 0.5 / 5 <= floor <= 0.1 * 0.5
        assert floor_of(-cost) == 0
        for least in (-4.0, -1e-3, 0.5 * floor, 1.01 * floor, 2.0):
            matrix = symmetric(5, least, 1)
            found, added = lifted(jnp.asarray(matrix), jnp.asarray(floor))
            if least > floor:
                assert added == 0
            assert np.linalg.eigvalsh(np.asarray(found))[0] >= floor * (1 - 1e-9)
            np.testing.assert_allclose(found, matrix + float(added) * np.eye(5), rtol=1e-14)


def test_boxes_in_several_components():
    """Ten components, half of them held back, against a bounded least-squares solver."""
    from scipy.optimize import lsq_linear

    rng = np.random.default_rng(3)
    rows, goal = rng.standard_normal((14, 10)), 3.0 * rng.standard_normal(14)
    low, high = -np.full(10, 0.4), np.full(10, 0.4)
    with jax.enable_x64(True):
        found = best_in_box(
            lambda a: jnp.sum((jnp.asarray(rows) @ a - jnp.asarray(goal)) ** 2),
            low,
            high,
            jnp.zeros(1),
        )
    expected = lsq_linear(rows, goal, (low, high), tol=1e-14).x
    assert np.sum(np.abs(expected) > 0.399) >= 3
    np.testing.assert_allclose(found, expected, atol=1e-5)
