"""Rates: the slope of an error in a number of walks or a time step, fitted and compared with theory.

(How fast the kernel of wider networks approaches its limit: `test_kernel.py`.) Seeds are fixed, so a test
passes or fails for good; its false-alarm rate is the chance that a new seed fails although the code is right.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from truth import exact_values

import qpde
from qpde import zoo
from qpde._equation.generator import Generator
from qpde._motion.euler import Diffusion
from qpde._motion.pool import Step
from qpde._walks.ledger import Ledger
from qpde._walks.plan import ResidualPayoff
from qpde._walks.splitting import run

pytestmark = pytest.mark.trains


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


def test_the_error_of_walks_falls_like_one_over_the_root_of_their_number():
    """Errors against the exact solution at 64 points, in the deviations of a walk from each point.

    The root mean square of 64 normal numbers has a standard deviation of 9 %, the slope through four of
    them one of 0.028: beyond 0.12 lies the share 2e-5. The reported errors have far less noise.
    """
    problem, counts = zoo.survival(3), np.array([32, 128, 512, 2_048])
    with jax.enable_x64(True):
        points = 0.8 * np.asarray(problem.domain.sample(jr.key(0), 64))
    exact = exact_values(problem, points)
    results = [
        qpde.feynman_kac(problem, points, walks=int(count), seed=seed, progress=False)
        for seed, count in enumerate(counts)
    ]
    deviation = results[-1].standard_error * np.sqrt(counts[-1])
    errors = [np.sqrt(np.mean(((r.value - exact) / deviation) ** 2)) for r in results]
    assert slope(counts, errors) == pytest.approx(-0.5, abs=0.12)
    reported = [np.sqrt(np.mean((r.standard_error / deviation) ** 2)) for r in results]
    assert slope(counts, reported) == pytest.approx(-0.5, abs=0.03)
    np.testing.assert_allclose(errors, reported, rtol=0.4)  # 4.5 of their standard deviations


class Late(eqx.Module):
    """Walks that end where they are first seen outside, without the correction."""

    scheme: Diffusion

    def step(self, x, level, resolution, key) -> Step:
        outside = jax.vmap(self.scheme.domain.distance)(x) <= 0
        return self.scheme.step(x, level, resolution, key)._replace(ended=outside)


def test_time_steps_have_order_one_half_and_the_boundary_correction_makes_it_one():
    """Ornstein-Uhlenbeck with killing in ten dimensions, u = 1 - |x|^2: the error at a point.

    Steps are long, so that the error is far above the noise, and not so long that the next order counts: it
    moves the slopes to 1.08 and 0.58. Their standard errors are 0.03 and 0.02, and the bounds are four of
    these away: false alarms 1e-4.
    """
    dim, levels = 10, np.array([1.0, 0.5, 0.25])
    start = 0.3 * np.eye(dim)[0]

    def exact(x):
        return 1.0 - jnp.sum(x * x)

    def equation(x, u):
        source = dim - 2.0 * jnp.sum(x * x) + 0.5 * exact(x)
        return 0.5 * u.laplacian - u.along(x) - 0.5 * u.value + source

    problem = qpde.Problem(qpde.Ball(dim), equation, exact=exact)
    with jax.enable_x64(True):
        generator, one = Generator.of(problem.operator), np.asarray(1.0)
        payoff = ResidualPayoff(generator.operator, None, problem.boundary, one, True)
        scheme = Diffusion(problem.domain, generator)
        errors = {}
        for corrected, length, walks in ((True, 0.04, 200_000), (False, 0.01, 100_000)):
            # The shortest step, the one near the boundary: its deviation is the resolution.
            long = eqx.tree_at(lambda s: s.longest, scheme, np.asarray(256 * length))
            same = np.ones(len(levels))
            ledger = Ledger(start * same[:, None], 0.7 * same, levels, np.sqrt(length) * same)
            counts = np.full(len(levels), walks)
            way = long if corrected else Late(long)
            run(way, [payoff], [ledger], 1.0, counts, jr.key(1), lambda done: None)
            errors[corrected] = np.abs(ledger.mean - (1.0 - 0.3**2))
    assert slope(levels, errors[True]) == pytest.approx(1.0, abs=0.2)
    assert slope(levels, errors[False]) == pytest.approx(0.5, abs=0.15)
