"""The numbers behind docs/paper-notes.md: each correction to the paper, computed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from numpy.polynomial import Polynomial
from scipy.special import hyp0f1, iv

from qpde import Ball, Shallow, Truncation, activations, presets, zoo
from qpde._field.base import Autodiff
from qpde._field.jet import Jet
from qpde._network.base import trainable


def gauss(n, dim=1, half=1.0):
    """Gauss-Legendre nodes `(n^d, d)` and weights on `(-half, half)^d`."""
    nodes, weights = (half * a for a in np.polynomial.legendre.leggauss(n))
    points = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    return points, np.prod(np.meshgrid(*[weights] * dim, indexing="ij"), axis=0).ravel()


def over(function, points):
    """A function of one point at many, in float64."""
    with jax.enable_x64(True):
        return np.asarray(jax.jit(jax.vmap(function))(jnp.asarray(points)))


def adjoint(drift, a, density, half=0.5):
    """`half sum_ij d_ij(a_ij m) - sum_i d_i(b_i m)` at a point; `half` is 1/2 in Fokker-Planck."""

    def at(x):
        second = jax.hessian(lambda x: a(x) * density(x))(x)
        first = jax.jacfwd(lambda x: drift(x) * density(x))(x)
        return half * jnp.einsum("ijij->", second) - jnp.trace(first)

    return at


def quotient(v, drift, sigma, density, points, weights):
    """`<v, A v> / <v, v>` under a density, for the generator `A` with constant `sigma`."""

    def parts(x):
        jet = Jet(Autodiff(v).at(x), x)
        return jnp.stack([jet.value * jet.generator(drift(x), sigma), jet.value**2]) * density(x)

    top, bottom = weights @ over(parts, points)
    return top / bottom


@pytest.mark.parametrize("dim", [1, 2])
def test_integration_by_parts_has_the_half_of_fokker_planck(dim):
    """`<v, L v> = -1/2 int m (a grad v).grad v + 1/2 int v^2 m* - int c v^2 m`, all variable."""

    def sigma(x):
        return jnp.eye(dim) + 0.3 * jnp.outer(jnp.sin(x + 1), jnp.cos(x))

    def a(x):
        return sigma(x) @ sigma(x).T

    def drift(x):
        return 0.5 - x**2 + jnp.flip(x)

    def density(x):
        return jnp.exp(0.8 * x[0] - jnp.sum(x * x))

    def v(x):
        return jnp.prod(1 - x * x) * jnp.exp(x[0])

    def parts(x):
        jet, m, c = Jet(Autodiff(v).at(x), x), density(x), 1.0 + x[0] ** 2
        inner = jet.value * (jet.generator(drift(x), sigma(x)) - c * jet.value) * m
        energy = -0.5 * m * jnp.dot(a(x) @ jet.grad, jet.grad) - c * jet.value**2 * m
        stars = [adjoint(drift, a, density, half)(x) for half in (0.5, 1.0)]
        return jnp.stack([inner, energy, *[0.5 * jet.value**2 * star for star in stars]])

    points, weights = gauss(30, dim)
    inner, energy, right, printed = weights @ over(parts, points)
    np.testing.assert_allclose(inner, energy + right, rtol=1e-11)
    assert abs(inner - energy - printed) > 0.1 * abs(inner)


def test_the_printed_gamma_star_calls_the_wrong_law_stationary():
    """`dX = -X dt + dW`: without the 1/2, N(0, 1) has gamma* = 0, but `<v, A v> = +||v||^2 / 16`."""

    def law(variance):
        return lambda x: jnp.exp(-0.5 * x[0] ** 2 / variance)

    def a(x):
        return jnp.eye(1)

    points, weights = gauss(120, half=8.0)
    for variance, half in ((1.0, 1.0), (0.5, 0.5)):  # printed: N(0, 1); true: N(0, 1/2)
        np.testing.assert_allclose(
            over(adjoint(jnp.negative, a, law(variance), half), points), 0, atol=1e-12
        )

    def v(x):
        return jnp.exp(-0.25 * x[0] ** 2) - np.exp(-16.0)  # zero at the ends

    found = quotient(v, jnp.negative, 1.0, law(1.0), points, weights)
    assert found == pytest.approx(1 / 16, abs=1e-5)
    true = over(lambda x: adjoint(jnp.negative, a, law(1.0))(x) / law(1.0)(x), points).max() / 2
    assert true == pytest.approx(1 / 4, abs=5e-3)  # the corrected bound, which holds
    assert quotient(v, jnp.negative, 1.0, law(0.5), points, weights) < 0


def test_exponential_densities_need_the_derivative_of_g():
    """`m*/m` for `m = exp(sum_i int g_i)` in two dimensions, with and without `g_i' a_ii / 2`."""
    a = np.array([[1.0, 0.4], [0.4, 2.0]])

    def g(x):
        return jnp.stack([jnp.sin(2 * x[0]), 0.5 - x[1]])

    def density(x):
        return jnp.exp(0.5 * (1 - jnp.cos(2 * x[0])) + 0.5 * x[1] - 0.5 * x[1] ** 2)

    def drift(x):
        return jnp.stack([x[0] * x[1], jnp.cos(x[0]) - x[1]])

    def ratios(x):
        slopes = jnp.diagonal(jax.jacfwd(g)(x))
        bare = 0.5 * g(x) @ a @ g(x) - jnp.dot(g(x), drift(x)) - jnp.trace(jax.jacfwd(drift)(x))
        exact = adjoint(drift, lambda x: jnp.asarray(a), density)(x) / density(x)
        return jnp.stack([exact, bare + 0.5 * jnp.dot(jnp.diagonal(a), slopes), bare])

    exact, right, bare = over(ratios, gauss(5, 2)[0]).T
    np.testing.assert_allclose(exact, right, atol=1e-12)
    assert np.abs(exact - bare).max() > 0.5


@pytest.mark.parametrize(("sign", "share"), [(1.0, -7 / 32), (-1.0, 9 / 32)])
def test_sign_of_g_in_one_dimension(sign, share):
    """Constant drift `k`: the printed `g = -k/2` makes `<u, A u>` positive, `g = +k/2` does not."""
    k, half = 2.0, 5.0

    def density(x):
        return jnp.exp(0.5 * sign * k * x[0])

    def v(x):
        return jnp.cos(0.5 * np.pi * x[0] / half) / jnp.sqrt(density(x))

    found = quotient(v, lambda x: jnp.full(1, k), 1.0, density, *gauss(60, half=half))
    assert found == pytest.approx(share * k**2 - 0.5 * (0.5 * np.pi / half) ** 2, rel=1e-10)


@pytest.mark.parametrize("theta", [-0.5, 0.5, 2.0])
def test_gradient_term_kept_in_one_dimension(theta):
    """`<v, A v> = -1/2 sigma^2 int w'^2 - int w^2 [nu'/2 + (theta/2 - theta^2/8) nu^2/sigma^2]`."""
    sigma = 0.8

    def density(x):
        return jnp.exp(theta * (1 - jnp.cos(x[0])) / sigma**2)

    def w(x):
        return (1 - x[0] ** 2) * jnp.exp(x[0])

    def v(x):
        return w(x) / jnp.sqrt(density(x))

    def parts(x):
        ratio = (0.5 * theta - 0.125 * theta**2) / sigma**2
        bracket = 0.5 * jnp.cos(x[0]) + ratio * jnp.sin(x[0]) ** 2
        energy = -0.5 * sigma**2 * jax.grad(w)(x)[0] ** 2 - w(x) ** 2 * bracket
        return jnp.stack([energy, w(x) ** 2])

    points, weights = gauss(30)
    energy, norm = weights @ over(parts, points)
    found = quotient(v, jnp.sin, sigma, density, points, weights)
    assert found == pytest.approx(energy / norm, rel=1e-11)


@pytest.mark.parametrize(
    ("theta", "slope", "square"), [(0.5, -3 / 4, -3 / 8), (1.0, -1 / 2, -1 / 2), (2.0, 0.0, 0.0)]
)
def test_conditions_of_the_one_dimensional_remark(theta, slope, square):
    """`g = theta nu / sigma^2` gives `m*/m = slope nu' + square nu^2 / sigma^2`."""
    sigma2 = 0.7

    def density(x):
        return jnp.exp(theta * (1 - jnp.cos(x[0])) / sigma2)

    star = adjoint(jnp.sin, lambda x: jnp.full((1, 1), sigma2), density)
    x = np.linspace(-2, 2, 9)[:, None]
    expected = slope * np.cos(x[:, 0]) + square * np.sin(x[:, 0]) ** 2 / sigma2
    np.testing.assert_allclose(over(lambda x: star(x) / density(x), x), expected, atol=1e-12)


def units(count, dim, rng):
    """Random `c`, `w`, `b` of the paper's law."""
    return (
        rng.uniform(-1, 1, count),
        rng.standard_normal((count, dim)),
        rng.standard_normal(count),
    )


def sigmoids(z, order):
    with jax.enable_x64(True):
        return [np.asarray(s) for s in activations.sigmoid.derivatives(jnp.asarray(z), order)]


def summands(theta, x, y):
    """What the kernel averages over units: `s s + c^2 s' s' (x.y + 1)`."""
    c, w, b = theta
    (sx, sx1), (sy, sy1) = (sigmoids(w @ p + b, 1) for p in (x, y))
    return sx * sy + c**2 * sx1 * sy1 * (x @ y + 1)


def test_norm_of_the_kernel_is_squared():
    """`||B v||^2 <= lambda ||v||_B^2` holds for every v; with the norm itself it fails for large v."""
    points, weights = gauss(20)
    c, w, b = units(500, 1, np.random.default_rng(0))
    s, s1 = sigmoids(points @ w.T + b, 1)
    features = np.concatenate([s, c * s1, c * s1 * points], axis=1) / np.sqrt(500)
    eta = 1 - points[:, 0] ** 2
    root = np.sqrt(weights)
    lam = np.linalg.norm(features * root[:, None], 2) ** 2
    for scale in (1e-3, 1.0, 1e3):
        v = scale * np.random.default_rng(1).standard_normal(20)
        image = eta * (features @ (features.T @ (weights * eta * v)))
        squared, norm = weights @ image**2, np.sqrt(weights @ (image * v))
        assert squared <= lam * norm**2
    assert squared > lam * norm


def test_u_has_one_more_entry():
    """`U(x).U(y) = s' s' (x.y + 1)` for `U = s' (x, 1)`; `x + 1/sqrt(n)` adds a mixed term."""
    x, y = np.array([0.3, -0.5, 0.2]), np.array([0.4, 0.1, 0.6])
    assert np.append(x, 1) @ np.append(y, 1) == pytest.approx(x @ y + 1)
    shift = 1 / np.sqrt(3)
    mixed = (x + shift) @ (y + shift) - (x @ y + 1)
    assert mixed == pytest.approx((x.sum() + y.sum()) * shift)
    assert mixed > 0.6


@pytest.mark.parametrize(("beta", "width"), [(0.6, 8), (0.9, 200)])
def test_tangent_kernel_carries_a_power_of_the_width(beta, width):
    """`grad S . grad S` of the library's network is `N^(1 - 2 beta)` times the mean over units."""
    x, y = points = np.array([[0.3, -0.5], [0.4, 0.1]])
    network = Shallow(width, activation=activations.sigmoid, beta=beta, scale=1.0)
    with jax.enable_x64(True):
        field = network.build(Ball(2), key=jr.key(1))
        theta = [np.asarray(p) for p in (field.c, field.w.T, field.b)]
    params, rest = trainable(field)

    def row(p):
        gradient = jax.grad(lambda params: eqx.combine(params, rest).value(p))(params)
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])

    bare = np.prod(over(row, points), axis=0).sum()
    expected = width ** (1 - 2 * beta) * summands(theta, x, y).mean()
    assert bare == pytest.approx(expected, rel=1e-12)


def test_tangent_kernel_at_finite_width_fluctuates_like_one_over_n():
    """Slope of `log E|A^N - A|^2` in `log N`: -1 within 0.15, five standard errors (1e-6)."""
    rng, draws, widths = np.random.default_rng(2), 600, np.array([16, 64, 256])
    x, y = np.array([0.3, -0.5, 0.2]), np.array([0.4, 0.1, 0.6])
    limit = summands(units(1_000_000, 3, rng), x, y).mean()
    errors = []
    for width in widths:
        kernels = summands(units(draws * width, 3, rng), x, y).reshape(draws, width).mean(axis=1)
        errors.append(np.mean((kernels - limit) ** 2))
    assert np.polyfit(np.log(widths), np.log(errors), 1)[0] == pytest.approx(-1, abs=0.15)


def test_derivatives_of_the_kernel_keep_the_one_and_the_y():
    """First and second derivatives in y, unit by unit, against automatic differentiation."""
    c, w, b = units(50, 3, np.random.default_rng(3))
    x, y = np.array([0.3, -0.5, 0.2]), np.array([0.4, 0.1, 0.6])

    def kernel(y):
        inner = (jnp.asarray(w) @ p + b for p in (x, y))
        (sx, sx1), (sy, sy1) = (activations.sigmoid.derivatives(z, 1) for z in inner)
        return jnp.mean(sx * sy + c**2 * sx1 * sy1 * (jnp.dot(x, y) + 1))

    gradient, hessian = (over(d(kernel), y[None])[0] for d in (jax.grad, jax.hessian))
    (sx, sx1), (_, sy1, sy2, sy3) = sigmoids(w @ x + b, 1), sigmoids(w @ y + b, 3)

    def first(one, slope):
        own = sx * slope + c**2 * sx1 * sy2 * (x @ y + one)
        return (own @ w + (c**2 * sx1 * sy1).sum() * x) / 50

    own = sx * sy2 + c**2 * sx1 * sy3 * (x @ y + 1)
    mixed = np.outer(x, (c**2 * sx1 * sy2) @ w)
    second = ((own[:, None] * w).T @ w + mixed + mixed.T) / 50
    np.testing.assert_allclose(gradient, first(1, sy1), atol=1e-14)
    np.testing.assert_allclose(hessian, second, atol=1e-14)
    for printed in (first(0, sy1), first(1, sx1)):
        assert np.abs(gradient - printed).max() > 1e-4


def steepest(force, levels):
    """The Lipschitz constants of `force(r, level)`, on a fine grid."""
    with jax.enable_x64(True):
        slopes = jax.jit(jax.vmap(jax.grad(force), (0, None)))
        grid = jnp.linspace(0, 80, 80_001)
        return np.array([np.abs(slopes(grid, level)).max() for level in levels])


def test_lipschitz_constants_of_the_truncated_residual():
    """psi psi' of the paper: about `sqrt(2/e) K`; stretched with K: 1.17 always; psi alone: 1."""
    levels, truncation = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]), Truncation()
    printed = steepest(truncation.force, levels)
    np.testing.assert_allclose(printed[[0, 1, 2, 4]], [1.170, 1.979, 3.652, 13.90], rtol=1e-3)
    assert np.all(np.diff(printed / levels) < 0)
    assert printed[-1] / levels[-1] == pytest.approx(np.sqrt(2 / np.e), rel=0.01)
    stretched = steepest(lambda r, level: level * truncation.force(r / level, 1.0), levels)
    np.testing.assert_allclose(stretched, 1.170, rtol=1e-3)
    np.testing.assert_allclose(steepest(Truncation(damped=False).force, levels), 1.0)
    largest = levels * float(truncation.psi(jnp.asarray(60.0), 1.0))
    np.testing.assert_allclose(largest, (1 + np.sqrt(np.pi) / 2) * levels, rtol=1e-6)  # < 2 K


def test_truncation_falls_silent_three_units_beyond_its_level():
    level = 1.5
    r = jnp.asarray([level + 3, level + 11, -level - 11], jnp.float32)
    force = np.asarray(Truncation().force(r, level))
    assert 0 < force[0] < 1.3e-4 * (level + 0.9)
    np.testing.assert_array_equal(force[1:], 0)
    np.testing.assert_allclose(
        Truncation(damped=False).force(r, level)[1:], [2.386, -2.386], rtol=1e-3
    )


def residual(theta, x, factor, gamma):
    """`L Q` of the paper's test problem, and `dQ` in `c`, `w`, `b` unit by unit, all by formula."""
    c, w, b = theta
    inner, eta, dim = x @ w.T, 1 - np.sum(x * x, axis=1), x.shape[1]
    s, s1, s2 = sigmoids(inner + b, 2)
    value, radial = factor * s @ c, factor * (s1 * inner) @ c
    laplacian = factor * s2 @ (c * np.sum(w * w, axis=1))
    lq = 1 - gamma * eta * value + 0.5 * (eta * laplacian - 4 * radial - 2 * dim * value)
    outer = factor * eta[:, None]
    return lq, (outer * s, (outer * c * s1)[:, :, None] * x[:, None, :], outer * c * s1)


def adam_run(seed, dim, width, beta, level):
    """`L Q` at 100 points before and after two steps of the preset with truncation."""
    rng, past, seen = np.random.default_rng(seed), [(0.0, 0.0)] * 3, []
    x = rng.standard_normal((100, dim))
    x *= rng.uniform(size=(100, 1)) ** (1 / dim) / np.linalg.norm(x, axis=1, keepdims=True)
    theta = units(width, dim, rng)
    for t, rate in enumerate((0.5, 0.5 / (1 + 1 / 200), 0.0)):
        lq, rows = residual(theta, x, width**-beta, 0.2)
        seen.append(lq)
        force = np.asarray(Truncation().force(jnp.asarray(lq, jnp.float32), level))
        gradient = [-np.tensordot(force, row, axes=1) / 100 for row in rows]
        past = [
            (0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g)
            for (m, v), g in zip(past, gradient, strict=True)
        ]
        m_scale, v_scale = 1 - 0.9 ** (t + 1), 1 - 0.999 ** (t + 1)
        theta = [
            p - rate * m / m_scale / (np.sqrt(v / v_scale) + 1e-8)
            for p, (m, v) in zip(theta, past, strict=True)
        ]
    return seen


@pytest.mark.parametrize(("dim", "width", "ratio"), [(20, 256, 1.2), (1, 64, 1.45)])
def test_steps_of_adam_leave_the_level_in_twenty_dimensions(dim, width, ratio):
    """All c move by 0.5, so `L Q` moves by about `d/4 N^(1 - beta)`: past `K + 3` if d = 20."""
    for beta in (0.51, 0.75, 0.99):
        level = width ** ((1 - beta) / 4)
        for seed in range(3):
            start, once, twice = adam_run(seed, dim, width, beta, level)
            jump = abs(np.median(once - start)) / (dim / 4 * width ** (1 - beta))
            assert jump == pytest.approx(ratio, rel=0.15)
            assert np.all(np.abs(twice) > level + 3) == (dim == 20)
            assert np.any(np.abs(twice) > level + 3) == (dim == 20)


def tail(power, share, ends):
    """`E[|w|^power share(w); 1 < |w| < T]` for the tail `|w|^-4.5` (third moment, no fourth)."""
    logs = np.linspace(0, np.log(1e5), 4_001)
    w = np.exp(logs)
    values = w**power * share(w) * w**-4.5 * w
    sums = np.concatenate([[0], np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(logs))])
    return np.interp(np.log(ends), logs, sums)


def test_second_derivatives_need_fourth_moments_of_w():
    """With a third moment only, `E|S''|^2` is infinite at x = 0, and for a cosine everywhere."""
    ends, b = np.array([1e3, 1e5]), 0.4
    z, spacing = np.linspace(-20, 20, 4_001), 0.01

    def inside(w):
        """`w int_{-1}^1 s''(w x + b)^2 dx` for a sigmoid: bounded in w."""
        s2 = sigmoids(z + b, 2)[2] ** 2
        return np.array([spacing * np.sum(s2[np.abs(z) <= end]) for end in w])

    third = tail(3, np.ones_like, ends)
    point = tail(4, np.ones_like, ends)
    cosine = tail(4, lambda w: 1 + np.cos(2 * b) * np.sin(2 * w) / (2 * w), ends)
    sigmoid = tail(3, inside, ends)
    assert third[1] / third[0] < 1.04
    assert sigmoid[1] / sigmoid[0] < 1.04
    assert point[1] / point[0] > 9
    assert cosine[1] / cosine[0] > 9


def test_monotone_for_zero_boundary_values_only():
    """`1/2 u''` on (-1, 1): at most `-pi^2/8` with zero boundary values, `+1/2` for a cosh."""
    points, weights = gauss(30)

    def rate(v):
        return quotient(v, lambda x: jnp.zeros(1), 1.0, lambda x: jnp.ones(()), points, weights)

    assert rate(lambda x: jnp.cos(0.5 * np.pi * x[0])) == pytest.approx(-(np.pi**2) / 8)
    assert rate(lambda x: (1 - x[0] ** 2) * jnp.exp(x[0])) < -(np.pi**2) / 8
    assert rate(lambda x: jnp.cosh(x[0])) == pytest.approx(0.5)


def test_cutting_off_carries_monotonicity_to_other_boundary_values():
    """Functions cut off at distance eps have zero trace; the inner product changes by O(eps)."""
    functions = Polynomial([2, 0, 0, 1]), Polynomial([1, 0, 1, 1])  # the same at -1 and at 1
    nodes, weights = np.polynomial.legendre.leggauss(40)
    nodes, weights = 0.5 * (nodes + 1), 0.5 * weights

    def share(corner, length, cut):
        """The inner product over `x = corner + length t`, `0 < t < 1`, of `cut(t)` times both."""
        jets = []
        for function in functions:
            u = cut * function(Polynomial([corner, length]))
            jets.append([u.deriv(k)(nodes) / length**k for k in range(3)])
        gap, difference = np.subtract(*[u[0] for u in jets]), np.subtract(*map(equation, jets))
        return abs(length) * weights @ (gap * difference)

    def equation(jet):
        value, slope, second = jet
        return 0.5 * second + np.sin(slope) - value + 0.25 * np.arctan(second)

    def inner(eps):
        cut, one = Polynomial([0, 0, 0, 10, -15, 6]), Polynomial([1])
        layers = [share(-1, eps, cut), share(1, -eps, cut)] if eps else []
        return share(eps - 1, 2 - 2 * eps, one) + sum(layers)

    gaps = np.array([abs(inner(eps) - inner(0.0)) for eps in (0.04, 0.02, 0.01)])
    np.testing.assert_allclose(gaps[:-1] / gaps[1:], 2, rtol=0.1)


def test_adam_does_not_see_a_constant_in_g():
    """The `2 gamma` of section 6.1, here 0.4, leaves Adam's path where it was."""
    gradients = np.random.default_rng(4).standard_normal((20, 5))

    def path(factor):
        adam = optax.adam(0.5)
        theta = jnp.zeros(5)
        state = adam.init(theta)
        for g in gradients:
            updates, state = adam.update(jnp.asarray(factor * g), state)
            theta = optax.apply_updates(theta, updates)
        return np.asarray(theta)

    np.testing.assert_allclose(path(0.4), path(1.0), rtol=1e-5)


@pytest.mark.parametrize(("dim", "order", "wrong"), [(20, 9, 0), (10, 9, 0.4), (1, 2, 0.8)])
def test_exact_curves_of_the_notebooks(dim, order, wrong):
    """Order 9 is d = 20 and order 2 is d = 6: two of the three curves belong to other balls."""
    gamma, r = 0.2, np.linspace(0.05, 0.95, 10)
    k = np.sqrt(2 * gamma)
    curve = (1 - iv(order, k * r) / (r**order * iv(order, k))) / gamma

    def exact(d):
        return (1 - hyp0f1(d / 2, gamma * r**2 / 2) / hyp0f1(d / 2, gamma / 2)) / gamma

    np.testing.assert_allclose(curve, exact(2 * order + 2), rtol=1e-10)
    assert np.min(np.abs(curve / exact(dim) - 1)) >= wrong


def test_what_the_preset_adds_to_the_paper():
    settings = presets.paper(zoo.survival(2))
    assert float(settings["network"].beta) == 0.99
    assert settings["network"].width == 256
    assert settings["steps"] == 40_000
    assert settings["rule"].truncation is None
    assert "tolerance" not in settings
