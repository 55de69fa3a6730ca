"""Linear dynamics and quadratic costs, whose values Riccati's equation gives; an eikonal equation; a choice
among rotated matrices, for Cordes' condition.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import a_seed, real
from .._boundary.lift import lift
from .._control.actions import FiniteActions, FreeActions
from .._control.base import AbstractControl
from .._control.control import Control
from .._domain.base import as_dimension
from .._domain.box import Box
from .._domain.round import Ball
from .._domain.squared import Sines
from .._field.jet import Jet
from .._precision import Numbers
from .._problem.problem import Problem
from ._recipe import recorded


class _Form(eqx.Module):
    """`x' matrix x + constant`."""

    matrix: Numbers
    constant: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.dot(x, jnp.asarray(self.matrix, x.dtype) @ x) + self.constant


class _Steered(eqx.Module):
    """`a_x x + a_a a`."""

    by_state: Numbers
    by_action: Numbers

    def __call__(self, x: Float[Array, " d"], a: Float[Array, " m"]) -> Float[Array, " d"]:
        by_state, by_action = (jnp.asarray(m, x.dtype) for m in (self.by_state, self.by_action))
        return by_state @ x + by_action @ a


class _QuadraticCost(eqx.Module):
    """`x' state x + a' action a - less`."""

    state: Numbers
    action: Numbers
    less: Numbers

    def __call__(self, x: Float[Array, " d"], a: Float[Array, " m"]) -> Float[Array, ""]:
        state, action = (jnp.asarray(m, x.dtype) for m in (self.state, self.action))
        return jnp.dot(x, state @ x) + jnp.dot(a, action @ a) - self.less


@recorded
def lqr(
    dim: int = 20,
    *,
    steering: float = 1.0,
    state: float = 1.0,
    effort: float = 1.0,
    discount: float = 1.0,
) -> Problem:
    """The linear-quadratic regulator of Brownian motion, stopped at the unit sphere: `u = k |x|^2`.

    `Lap u + min_a [steering a . grad u + state |x|^2 + effort |a|^2] - 2 d k - discount u = 0`, with
    `k = (sqrt(effort^2 discount^2 + 4 state effort steering^2) - discount effort) / (2 steering^2)`; the best
    action is `-(steering k / effort) x`. The boundary value is the constant `k`, so that one number is to be
    learned: a check, no benchmark.

    Source: Zhou, Han and Lu, SIAM J. Sci. Comput. 43 (2021).
    """
    beta, p, q, gamma = _positive(steering=steering, state=state, effort=effort, discount=discount)
    size = as_dimension(dim)
    k = (math.sqrt(q**2 * gamma**2 + 4 * p * q * beta**2) - gamma * q) / (2 * beta**2)
    identity = np.eye(size)
    control = Control(
        actions=FreeActions(size),
        drift=_Steered(np.zeros((size, size)), beta * identity),
        sigma=math.sqrt(2.0),
        cost=_QuadraticCost(p * identity, q * identity, np.asarray(2 * size * k)),
        discount=gamma,
    )
    return Problem(
        Ball(dim), control, boundary=k, exact=_Form(k * identity, np.zeros(())), name="lqr"
    )


@recorded
def lqr_matrices(
    dim: int = 20, *, actions: int = 0, discount: float = 1.0, seed: int = 0
) -> Problem:
    """A linear-quadratic regulator with full random matrices, stopped at the unit sphere.

    `dX = (A X + B a) dt + s dW` with `actions` components of the action (half the dimension by default), cost
    `x' P x + a' R a`, all matrices full and random. The value is `x' K x + c` with Riccati's equation
    `A' K + K A - discount K + P - K B R^-1 B' K = 0` and `c = tr(s s' K) / discount`; it is prescribed on the
    sphere, and the best action is `-R^-1 B' K x`.
    """
    size, rng = as_dimension(dim), np.random.default_rng(a_seed(seed))
    (gamma,) = _positive(discount=discount)
    count = int(actions) or max(size // 2, 1)
    a = rng.standard_normal((size, size)) / math.sqrt(size)
    b = rng.standard_normal((size, count)) / math.sqrt(size)
    s = np.eye(size) + 0.3 * rng.standard_normal((size, size)) / math.sqrt(size)
    p, r = (m @ m.T / len(m) + 0.5 * np.eye(len(m)) for m in _squares(rng, size, count))
    shifted = a - 0.5 * gamma * np.eye(size)
    k = scipy.linalg.solve_continuous_are(shifted, b, p, r)
    exact = _Form(k, np.asarray(np.trace(s @ s.T @ k) / gamma))
    control = Control(
        actions=FreeActions(count),
        drift=_Steered(a, b),
        sigma=s,
        cost=_QuadraticCost(p, r, np.zeros(())),
        discount=gamma,
    )
    domain = Ball(dim)
    return Problem(domain, control, boundary=lift(exact, domain), exact=exact, name="lqr_matrices")


def _squares(rng: Any, *sizes: int) -> list[np.ndarray]:
    return [rng.standard_normal((size, size)) for size in sizes]


class _ShakenBy(eqx.Module):
    """`sigma(x, a) = [identity, strength diag(a)]`, of shape `(d, 2 d)`."""

    strength: Numbers

    def __call__(self, x: Float[Array, " d"], a: Float[Array, " d"]) -> Float[Array, "d k"]:
        identity = jnp.eye(x.size, dtype=x.dtype)
        return jnp.concatenate([identity, self.strength * identity * a[None, :]], axis=1)


@recorded
def lqr_diffusion(dim: int = 5, *, strength: float = 1.0, discount: float = 1.0) -> Problem:
    """A linear-quadratic regulator whose action shakes what it steers: control in the diffusion.

    `dX_i = a_i dt + dW_i + strength a_i dV_i`, cost `sum_i p_i x_i^2 + |a|^2` with `p_i` from 1/2 to 2,
    stopped at the unit sphere. The value is `sum_i k_i x_i^2 + c`, with the positive roots of
    `(p - discount k) (1 + strength^2 k) = k^2` and `c = sum k_i / discount`; it is prescribed on the sphere.
    The best action is `-k_i x_i / (1 + strength^2 k_i)`: it depends on the second derivatives of the value.
    """
    size = as_dimension(dim)
    delta, gamma = _positive(strength=strength, discount=discount)
    p = np.linspace(0.5, 2.0, size)
    # (1 + gamma delta^2) k^2 + (gamma - p delta^2) k - p = 0
    first, second = 1.0 + gamma * delta**2, gamma - p * delta**2
    k = (-second + np.sqrt(second**2 + 4.0 * first * p)) / (2.0 * first)
    exact = _Form(np.diag(k), np.asarray(np.sum(k) / gamma))
    zero, identity = np.zeros((size, size)), np.eye(size)
    control = Control(
        actions=FreeActions(size),
        drift=_Steered(zero, identity),
        sigma=_ShakenBy(np.asarray(delta)),
        cost=_QuadraticCost(np.diag(p), identity, np.zeros(())),
        discount=gamma,
    )
    domain = Ball(dim)
    return Problem(domain, control, boundary=lift(exact, domain), exact=exact, name="lqr_diffusion")


def _positive(**numbers: Any) -> list[float]:
    return [float(real(name, value, above=0.0)) for name, value in numbers.items()]


class _EikonalValue(eqx.Module):
    """`cubic |x|^3 - square |x|^2`."""

    cubic: Numbers
    square: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        s = jnp.sum(x * x)
        # A root whose derivative at zero is a number.
        r = jnp.sqrt(jnp.where(s > 0, s, 1.0))
        return jnp.where(s > 0, self.cubic * s * r, 0.0) - self.square * s


class _EikonalEquation(AbstractControl):
    """`Lap u + min over |a| <= 1 of a . grad u + w(x)`."""

    exact: _EikonalValue

    def action(self, x: Float[Array, " d"], u: Jet) -> Float[Array, " d"]:
        return -u.grad / self._length(u.grad)

    def bracket(self, x: Float[Array, " d"], u: Jet, a: Float[Array, " d"]) -> Float[Array, ""]:
        return u.laplacian + jnp.dot(a, u.grad) + self._cost(x)

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return u.laplacian - self._length(u.grad) + self._cost(x)

    def rivals(self, a: Float[Array, " d"], key: PRNGKeyArray) -> Float[Array, "k d"]:
        moved = super().rivals(a, key)
        lengths = jnp.sqrt(jnp.sum(moved * moved, axis=1, keepdims=True))
        return moved / jnp.maximum(lengths, 1.0)

    def _cost(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        r = self._length(x)
        cubic = 3.0 * (x.size + 1) * self.exact.cubic * r
        slope = 2.0 * self.exact.square * r - 3.0 * self.exact.cubic * r * r
        return 2.0 * x.size * self.exact.square - cubic + slope

    @staticmethod
    def _length(v: Float[Array, " d"]) -> Float[Array, ""]:
        s = jnp.sum(v * v)
        return jnp.where(s > 0, jnp.sqrt(jnp.where(s > 0, s, 1.0)), 1e-150)


@recorded
def eikonal(dim: int = 5, *, cubic: float = 0.2, square: float = 1.2) -> Problem:
    """Steering at speed one against noise: the best direction is the gradient's opposite.

    `Lap u + min over |a| <= 1 of a . grad u + w(|x|) = 0` in the unit ball, that is
    `Lap u - |grad u| + w = 0`, with the cost `w` for which the value is `cubic |x|^3 - square |x|^2`; the
    best action is `x / |x|`. For `3 cubic < 2 square`.

    Source: Zhou, Han and Lu, SIAM J. Sci. Comput. 43 (2021).
    """
    first, second = _positive(cubic=cubic, square=square)
    if 3 * first >= 2 * second:
        raise ValueError(f"eikonal needs 3 cubic < 2 square, got {cubic} and {square}.")
    exact = _EikonalValue(np.asarray(first), np.asarray(second))
    return Problem(
        Ball(dim), _EikonalEquation(exact), boundary=first - second, exact=exact, name="eikonal"
    )


_ROTATIONS = 3


class _Chosen(eqx.Module):
    """The factor `sigma` of the action's number."""

    factors: Numbers

    def __call__(self, x: Float[Array, " d"], a: Float[Array, " 1"]) -> Float[Array, "d d"]:
        return jnp.asarray(self.factors, x.dtype)[a[0].astype(int)]


def _still(x: Float[Array, " d"], a: Float[Array, " 1"]) -> Float[Array, " d"]:
    """No drift."""
    return jnp.zeros_like(x)


class _Gap(eqx.Module):
    """`-A_a : Hess v + gap_a(x)`: no gap for the first action, that of a parabola for the others."""

    factors: Numbers
    value: Sines

    def __call__(self, x: Float[Array, " d"], a: Float[Array, " 1"]) -> Float[Array, ""]:
        which = a[0].astype(int)
        sigma = jnp.asarray(self.factors, x.dtype)[which]
        bent = 0.5 * jnp.sum((self.value.hessian(x) @ sigma) * sigma)
        return jnp.where(which == 0, 0.0, jnp.square(x[0] - 0.25 * a[0])) - bent


class _Product(eqx.Module):
    """`prod sin(pi x_i)`."""

    sines: Sines

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.sines.value(x)


@recorded
def rotated(dim: int = 4, *, stretch: float = 2.0) -> Problem:
    """A Bellman equation with three matrices: `min_a [A_a : Hess u + l_a(x)] = 0` in the unit box, `u = 0`.

    The matrices have the eigenvalues from 1 to `stretch` in equal steps and differ by rotations in the
    planes of two neighbouring coordinates. The costs make `u = prod sin(pi x_i)` the value. Cordes'
    condition holds where `|A|^2 / (tr A)^2 < 1 / (d - 1)`: in four dimensions up to a stretch of about 7.87.
    """
    size, top = as_dimension(dim), float(real("stretch", stretch, above=0.0))
    roots = np.sqrt(2.0 * np.linspace(1.0, top, size))
    factors = []
    for number in range(_ROTATIONS):
        angle, turn = number * math.pi / 5, np.eye(size)
        for i in range(0, size - 1, 2):
            cosine, sine = math.cos(angle), math.sin(angle)
            turn[i : i + 2, i : i + 2] = [[cosine, -sine], [sine, cosine]]
        factors.append(turn * roots[None, :])
    stacked, value = np.stack(factors), Sines(np.zeros(size), np.ones(size))
    control = Control(
        actions=FiniteActions(np.arange(_ROTATIONS, dtype=np.float64)),
        drift=_still,
        sigma=_Chosen(stacked),
        cost=_Gap(stacked, value),
    )
    return Problem(Box(0.0, 1.0, dim=dim), control, exact=_Product(value), name="rotated")
