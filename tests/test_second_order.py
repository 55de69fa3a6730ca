"""Second-order rules: kernels against explicit Jacobians, steps that must not diverge, known accuracy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import qpde
from qpde import Annulus, Ball, Box, Ellipsoid, Problem, Shallow, _tangent
from qpde._network import trainable
from qpde._tangent import Explicit, Structured, tangent
from qpde._trial import Trial


def nonlinear(x, u):
    drift = jnp.sin(x)
    return (
        (1.0 + 0.1 * jnp.sum(x)) * u.laplacian
        - u.value**3
        + u.along(drift)
        - 0.1 * jnp.sum(u.grad**2)
        + jnp.cos(x[0])
    )


def plain(x, u):
    return 1.0 - 0.3 * u.value**2 - u.laplacian * (-2.0)


def data(x):
    return jnp.sin(2.0 * x[0]) + 0.5 * jnp.sum(x)


def domain_of(name, dim):
    if name == "ball":
        return Ball(dim, radius=1.7, centre=np.linspace(0.1, 0.4, dim))
    if name == "ellipsoid":
        return Ellipsoid(np.linspace(0.5, 2.0, dim) if dim > 1 else [0.8])
    if name == "annulus":
        return Annulus(dim, inner=0.5, outer=2.0)
    return Box(np.linspace(-1.0, 0.0, dim), np.linspace(0.5, 2.0, dim))


def random_trial(problem, network, seed=3):
    field = network.build(problem.domain, key=jr.key(seed))
    params, rest = trainable(field)
    flat, unravel = ravel_pytree(params)
    noise = jnp.asarray(np.random.default_rng(seed).standard_normal(flat.size))
    field = eqx.combine(unravel(flat + 0.5 * noise), rest)
    return Trial.of(problem, field, exact_boundary=True)


@eqx.filter_jit
def parts(trial, points, weights, v):
    found = tangent(trial, points, weights)
    pulled = [ravel_pytree(pull(v))[0] for pull in (found.pull, found.pull_value)]
    return found.residual, found.gram(), found.cross(), *pulled


@eqx.filter_jit
def explicit_parts(trial, points, weights, v):
    """Nothing shared with the library's tangents: Jacobians of the trial function by autodiff."""
    params, rest = trainable(trial.network)
    flat, unravel = ravel_pytree(params)

    def at(flat, quantity):
        moved = trial.with_network(eqx.combine(unravel(flat), rest))
        return jnp.sqrt(weights) * jax.vmap(getattr(moved, quantity))(points)

    r = at(flat, "residual")
    j = jax.jacrev(at)(flat, "residual")
    q = jax.jacrev(at)(flat, "value")
    return r, j @ j.T, j @ q.T, v @ j, v @ q


def agree(trial, count=9):
    domain_points = jnp.asarray(trial_points(trial, count))
    rng = np.random.default_rng(5)
    weights, v = jnp.asarray(rng.uniform(0.5, 2.0, count)), jnp.asarray(rng.standard_normal(count))
    for mine, theirs in zip(
        parts(trial, domain_points, weights, v),
        explicit_parts(trial, domain_points, weights, v),
        strict=True,
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-10 * float(jnp.max(jnp.abs(theirs))))


def trial_points(trial, count):
    return trial_points.domain.sample(jr.key(7), count)


@pytest.mark.parametrize("dim", [1, 3, 7])
@pytest.mark.parametrize("shape", ["ball", "ellipsoid", "box", "annulus"])
@pytest.mark.parametrize("equation", [plain, nonlinear])
def test_kernels_are_products_of_jacobians(dim, shape, equation):
    if shape == "annulus" and dim == 1:
        pytest.skip("An annulus has at least two dimensions.")
    domain = domain_of(shape, dim)
    with jax.enable_x64(True):
        problem = Problem(domain, equation, data)
        trial_points.domain = domain
        normalise = not (shape == "ball" and dim == 3)
        network = Shallow(6, beta=0.7, polynomial=dim != 7, normalise=normalise)
        trial = random_trial(problem, network)
        points = domain.sample(jr.key(7), 2)
        assert isinstance(tangent(trial, points, jnp.ones(2)), Structured)
        agree(trial)


def test_other_networks_and_second_order_parts_have_explicit_jacobians(monkeypatch):
    domain = Box(-1.0, 1.0, dim=2)
    a = np.array([[2.0, 0.5], [0.5, 1.0]])
    with jax.enable_x64(True):
        trial_points.domain = domain
        for equation, network in (
            (lambda x, u: u.trace(a) - u.value, Shallow(4, polynomial=True)),
            (lambda x, u: u.trace(a * (1 + x[0] ** 2)) - u.value**3, Shallow(4)),
            (lambda x, u: jnp.trace(u.hessian) - jnp.sum(u.grad**2), Shallow(4)),
            (plain, qpde.MLP([4, 4])),
        ):
            trial = random_trial(Problem(domain, equation, data), network)
            assert isinstance(tangent(trial, jnp.zeros((2, 2)), jnp.ones(2)), Explicit)
            agree(trial)
        monkeypatch.setattr(_tangent, "_MEMORY", 100)
        with pytest.raises(ValueError, match="needs a Jacobian of .* Take a smaller batch"):
            tangent(trial, jnp.zeros((2, 2)), jnp.ones(2))
