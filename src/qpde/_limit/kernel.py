"""The tangent kernel of an infinitely wide shallow network, with its derivatives.

    A(x, y) = E[sigma(z_x) sigma(z_y)] + E[c^2] (x . y + 1) E[sigma'(z_x) sigma'(z_y)],

`z_x = w . x + b`, `w ~ N(0, s^2 I)`, `b ~ N(0, 1)`. The pair `(z_x, z_y)` is Gaussian, so that every
`T_ij = E[sigma^(i)(z_x) sigma^(j)(z_y)]` is a function of two variances `v_x = s^2 |x|^2 + 1` and a
correlation `rho`. Mehler's formula writes it as

    T_ij = sum_k rho^k e_ik(v_x) e_jk(v_y),    e_ik(v) = v^(-i/2) sqrt((k+i)! / k!) alpha_(k+i)(v),
    alpha_k(v) = E[sigma(sqrt(v) g) h_k(g)],

`h_k` the normalised Hermite polynomials, `g` standard normal: an integral in one dimension instead of two,
and no derivative of sigma. Derivatives of `A` follow from
`grad_x T_ij = s^2 (x T_{i+2,j} + y T_{i+1,j+1})`, without differentiating a quadrature; nothing is singular
at `x = y`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import activations
from .._arguments import an_instance, real, reals
from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._network.shallow import ShallowField
from .._precision import cast, x64
from .._problem.points import as_rows
from ..activations import AbstractActivation

# Terms of Mehler's series, and points of the trapezoidal rule for its coefficients, which converges
# exponentially for functions that are analytic near the real line.
_TERMS, _POINTS, _REACH = 240, 4_001, 16.0
_ORDER = 5  # derivatives of sigma that a Laplacian of A needs
_SECOND_MOMENT = 1.0 / 3.0  # of c ~ U[-1, 1]
_CHUNK = 250


class Values(NamedTuple):
    """`A` and its derivatives in the first argument, `(n, m)` each.

    The gradient is `x * along_x + y * along_y`, the Hessian
    `curvature[0] I + curvature[1] x x' + curvature[2] (x y' + y x') + curvature[3] y y'`.
    """

    value: Any
    along_x: Any
    along_y: Any
    curvature: tuple[Any, Any, Any, Any]

    def second(self, x: np.ndarray, y: np.ndarray, metric: np.ndarray) -> np.ndarray:
        """`diag(metric) : Hess_x A`; with ones, the Laplacian."""
        h0, h1, h2, h3 = self.curvature
        own, other = (np.square(v) @ metric for v in (x, y))
        cross = (x * metric) @ y.T
        return np.sum(metric) * h0 + own[:, None] * h1 + 2.0 * cross * h2 + other[None] * h3


def combine(t: Callable[[int, int], Any], product: Any, s2: Any) -> Values:
    """`A` and its derivatives from `T_ij`; `product` is `x . y + 1`."""
    k2 = _SECOND_MOMENT

    def slope(i: int, j: int) -> tuple[Any, Any]:
        """`grad_x T_ij = x p + y q`."""
        return s2 * t(i + 2, j), s2 * t(i + 1, j + 1)

    (p0, q0), (p1, q1) = slope(0, 0), slope(1, 1)
    s4 = s2 * s2
    return Values(
        value=t(0, 0) + k2 * product * t(1, 1),
        along_x=p0 + k2 * product * p1,
        along_y=q0 + k2 * (product * q1 + t(1, 1)),
        curvature=(
            s2 * (t(2, 0) + k2 * product * t(3, 1)),
            s4 * (t(4, 0) + k2 * product * t(5, 1)),
            s4 * (t(3, 1) + k2 * product * t(4, 2)) + k2 * p1,
            s4 * (t(2, 2) + k2 * product * t(3, 3)) + 2.0 * k2 * q1,
        ),
    )


class TangentKernel:
    """The kernel `A` of a `Shallow` network as its width grows.

        >>> kernel = TangentKernel(activations.tanh, scale=1.0)
        >>> kernel(x, y)  # (n, d), (m, d) -> (n, m)

    **Arguments**

    - `activation`: smooth and bounded, as the theory asks.
    - `scale`: `s`, the standard deviation of the components of `w`.
    - `tolerance`: a relative error that the series must reach; otherwise `ValueError`. Large variances
      `s^2 |x|^2 + 1` need more terms than there are.
    """

    def __init__(
        self, activation: Any = activations.tanh, *, scale: float = 1.0, tolerance: float = 1e-8
    ):
        real("scale", scale, above=0.0)
        real("tolerance", tolerance, above=0.0)
        self.activation: AbstractActivation = activations.as_activation(activation)
        self.scale, self.tolerance = float(scale), float(tolerance)

    def __call__(self, x: Any, y: Any) -> np.ndarray:
        """`A(x, y)` for all pairs: `(n, d), (m, d) -> (n, m)`."""
        return self.values(x, y).value

    def trial(self, x: Any, y: Any, domain: AbstractDomain) -> np.ndarray:
        """`B(x, y) = eta(x) eta(y) A(x, y)`, the kernel of `Q = S eta + f`: `(n, d), (m, d) -> (n, m)`."""
        with x64():
            eta = jax.vmap(domain.eta.value)
            left, right = (np.asarray(eta(jnp.asarray(v, jnp.float64))) for v in (x, y))
        return left[:, None] * self(x, y) * right[None]

    def grad(self, x: Any, y: Any) -> np.ndarray:
        """`grad_x A(x, y)` for all pairs: `(n, d), (m, d) -> (n, m, d)`."""
        x, y = _both(x, y)
        found = self.values(x, y)
        return found.along_x[..., None] * x[:, None] + found.along_y[..., None] * y[None]

    def laplacian(self, x: Any, y: Any) -> np.ndarray:
        """`Lap_x A(x, y)` for all pairs: `(n, d), (m, d) -> (n, m)`."""
        x, y = _both(x, y)
        return self.values(x, y).second(x, y, np.ones(x.shape[-1]))

    def hessian(self, x: Any, y: Any) -> np.ndarray:
        """`Hess_x A(x, y)` for all pairs: `(n, d), (m, d) -> (n, m, d, d)`."""
        x, y = _both(x, y)
        h0, h1, h2, h3 = (h[..., None, None] for h in self.values(x, y).curvature)
        a, b = x[:, None], y[None]
        cross = a[..., :, None] * b[..., None, :]
        own, other = (v[..., :, None] * v[..., None, :] for v in (a, b))
        return (
            h0 * np.eye(x.shape[1]) + h1 * own + h2 * (cross + cross.swapaxes(-1, -2)) + h3 * other
        )

    def values(self, x: Any, y: Any) -> Values:
        """`A` and its derivatives for all pairs of points."""
        x, y = _both(x, y)
        left, right = self.coefficients(x), self.coefficients(y)
        parts = []
        with x64():
            for start in range(0, len(x), _CHUNK):
                rows = slice(start, start + _CHUNK)
                found = _pairs(x[rows], y, left[:, rows], right, self.scale)
                parts.append(jax.tree.map(np.asarray, found))
        return jax.tree.map(lambda *rows: np.concatenate(rows), *parts)

    def coefficients(self, x: np.ndarray) -> np.ndarray:
        """`alpha_k(v_x)` for every point, `(terms, n)`."""
        return self.mehler(self.scale**2 * np.sum(np.square(x), axis=1) + 1.0)

    def mehler(self, v: np.ndarray) -> np.ndarray:
        """`alpha_k(v)` for every variance, `(terms, n)`."""
        g = np.linspace(-_REACH, _REACH, _POINTS)
        with x64():
            sigma = np.asarray(self.activation(jnp.asarray(np.sqrt(v)[:, None] * g[None])))
        # Hermite functions h_k(g) phi(g)^(1/2), by their stable recursion.
        functions = np.empty((_TERMS + _ORDER, _POINTS))
        functions[0] = (2.0 * math.pi) ** -0.25 * np.exp(-0.25 * g * g)
        functions[1] = g * functions[0]
        for k in range(1, _TERMS + _ORDER - 1):
            functions[k + 1] = (g * functions[k] - math.sqrt(k) * functions[k - 1]) / math.sqrt(
                k + 1
            )
        weight = (g[1] - g[0]) * functions[0]
        alpha = (functions * weight) @ sigma.T
        self._check(alpha, v)
        return alpha

    def _check(self, alpha: np.ndarray, v: np.ndarray) -> None:
        """The terms of the third derivatives, which converge last, must have died out."""
        k = np.arange(len(alpha))
        terms = (k[:, None] / v[None]) ** 3 * alpha**2
        tail = np.sum(terms[-20:], axis=0) / np.sum(terms, axis=0)
        worst = int(np.argmax(tail))
        if not tail[worst] <= self.tolerance:
            raise ValueError(
                f"The kernel's series does not converge at variance {v[worst]:.3g} (rest {tail[worst]:.1e}). "
                "Lower scale, bring the points nearer to the origin, or take a smoother activation."
            )


def _both(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two lists of points of a kernel as float64 arrays."""
    left, right = (reals(name, v, "points (n, d)") for name, v in (("x", x), ("y", y)))
    same = left.ndim == right.ndim == 2 and left.shape[1] == right.shape[1]
    if not same or not left.size or not right.size:
        shapes = f"{left.shape} and {right.shape}"
        raise ValueError(f"Points have shapes (n, d) and (m, d), one or more each, got {shapes}.")
    return left, right


# The T_ij that a Hessian of A needs.
WANTED = ((0, 0), (1, 1), (2, 0), (3, 1), (2, 2), (4, 0), (5, 1), (4, 2), (3, 3))


@jax.jit
def _pairs(x: Any, y: Any, left: Any, right: Any, scale: Any) -> Values:
    """`A` and its derivatives for all pairs."""
    s2 = scale * scale
    inner, xx, yy = x @ y.T, jnp.sum(x * x, axis=1)[:, None], jnp.sum(y * y, axis=1)[None]
    vx, vy = s2 * xx + 1.0, s2 * yy + 1.0
    rho = (s2 * inner + 1.0) / jnp.sqrt(vx * vy)

    def add(k: Any, state: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        power, sums = state

        def factor(alpha: Any, i: int) -> Any:
            # sqrt((k + i)! / k!) alpha_(k + i)
            growth = jnp.sqrt(jnp.prod(k + 1.0 + jnp.arange(i))) if i else 1.0
            return growth * alpha[k + i]

        left_k, right_k = ([factor(a, i) for i in range(6)] for a in (left, right))
        sums = [
            total + power * (left_k[i][:, None] * right_k[j][None])
            for total, (i, j) in zip(sums, WANTED, strict=True)
        ]
        return power * rho, sums

    start = (jnp.ones_like(rho), [jnp.zeros_like(rho) for _ in WANTED])
    _, sums = jax.lax.fori_loop(0, _TERMS, add, start)
    t = {
        (i, j): total * vx ** (-0.5 * i) * vy ** (-0.5 * j)
        for (i, j), total in zip(WANTED, sums, strict=True)
    }
    return combine(lambda i, j: t[i, j], inner + 1.0, s2)


def finite_kernel(network: ShallowField, x: Any, y: Any) -> np.ndarray:
    """`A^N(x, y) = N^(2 beta - 1) grad_theta S(x) . grad_theta S(y)` of a given network, `(n, m)`.

        >>> finite_kernel(solution.trial.network, x, y)

    At the start it is near the kernel of infinite width; training moves it. Only the hidden layer counts.
    """
    an_instance("network", network, ShallowField, "solution.trial.network")
    left, right = (as_rows(points, len(network.w)) for points in (x, y))
    with x64():
        return np.asarray(_finite(cast(network, "float64"), left, right))


@compiled
def _finite(network: ShallowField, x: Any, y: Any) -> Array:
    def parts(points: Array) -> tuple[Array, Array, Array]:
        inner = jax.vmap(network.frame)(points)
        value, slope = network.activation.derivatives(inner @ network.w + network.b[None], 1)
        return inner, value, network.c[None] * slope

    (a, value_x, slope_x), (b, value_y, slope_y) = parts(x), parts(y)
    return (value_x @ value_y.T + (a @ b.T + 1.0) * (slope_x @ slope_y.T)) / network.width
