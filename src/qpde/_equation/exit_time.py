"""Mean exit times, and what the maximum principle makes of them.

Let `T` bound the mean time in which the diffusion leaves the domain, from every start. A function `v` with
`A : Hess v + b . grad v - c v = g` inside, where `c >= 0`, has

    sup |v| <= T sup |g| + sup over the boundary of |v|.

Where only `c >= -e` is known, `c + e >= 0` and the right side becomes `g - e v`: hence the same, divided by
`1 - e T`, as long as that is positive. A killing rate that is zero up to rounding costs next to nothing, and
one that is small in the units of the equation but large beside its diffusion is not taken for zero.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._precision import Numbers
from .operator import Bound, Operator


def amplification(killing: Bound, time: Bound) -> Bound | None:
    """`1 / (1 - e T)` with `c >= -e`; None where the principle says nothing."""
    if killing.value >= 0:
        return Bound(1.0, killing.basis)
    growth = -killing.value * time.value
    if not growth < 1:
        return None
    return Bound(1.0 / (1.0 - growth), killing.basis if time.proved else time.basis)


def exit_time(operator: Operator) -> Bound:
    """A bound for the mean exit time: `w = k (R^2 - |x - m|^2)` has `L w <= -1` for a large enough `k`.

    `A : Hess w + b . grad w = -2 k (tr A + b . (x - m))`. In a box the same for each coordinate alone.
    """
    domain = operator.domain
    centre, radius = (np.asarray(v) for v in domain.enclosing_ball)
    every = np.ones(domain.dim)
    bounds = [_quotient(operator.least(_Spread(operator, centre, every)), float(radius) ** 2)]
    if domain.fills_box and domain.dim <= 20:
        lower, upper = domain.enclosing_box
        for i, half in enumerate(0.5 * (np.asarray(upper) - np.asarray(lower))):
            one = _Spread(operator, np.asarray(domain.centre), np.eye(domain.dim)[i])
            bounds.append(_quotient(operator.least(one), float(half) ** 2))
    return min(bounds, key=lambda bound: (bound.value, not bound.proved))


class _Spread(eqx.Module):
    """`sum_i k_i (A_ii + b_i (x - m)_i)`: how quickly the process spreads along the chosen coordinates."""

    operator: Operator
    centre: Numbers
    chosen: Numbers

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        second, drift, _ = self.operator.coefficients(x)
        own = second if second.ndim == 0 else jnp.sum(second * jnp.eye(x.size), axis=1)
        return jnp.sum(self.chosen * (own + drift * (x - self.centre)))


def _quotient(spread: Bound, square: float) -> Bound:
    value = square / (2 * spread.value) if spread.value > 0 else math.inf
    return Bound(value, spread.basis)
