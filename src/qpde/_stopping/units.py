"""Hidden units whose mean after any time is known: networks that solve the linear equation exactly.

Between two exercise dates the value of waiting solves the equation without obstacle, with the value at the
next date as its end. In the coordinates of a Brownian motion `B` that is the heat equation, and each of these
units, at its own date a function `phi(B)`, has a mean `E phi(b + sqrt(v) N)` in closed form:

- ramps `g_a(w . B + c)` with `g_a(z) = z F(z/a) + a f(z/a)`, a ramp rounded by a normal variable of deviation
  `a` (`F`, `f` its law): rounded once more, `a` becomes `sqrt(a^2 + |w|^2 v)`;
- steps of the two largest (or smallest) coordinates, where they move independently: the probability that the
  largest is below `u` and the second below `v < u` is `sum_i F_i(u) L_i(v) + (1 - d) P(v)`, with `F_i` the
  law of the coordinate `i`, `P = prod F_j` and `L_i = prod F_j over j != i`;
- calls `(x_i - k)^+` on a price, by the formula of Black and Scholes (ramps along the axes where states are
  no prices); the prices themselves; and one.

So the network at earlier times is the same network with wider units. Its martingale, the stochastic integral
of its gradient, is its value less what it was at the date before: no steps in time, nothing nested.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf
from jaxtyping import Array, Float

from .._precision import Numbers
from .motion import Frame

# Steps of the largest coordinate alone, and of the two largest.
_FINE, _COARSE = 64, 24
# Calls are rounded by this part of a deviation, so that their formula holds at their date too.
_SHARP = 1e-6


def _below(z: Array) -> Array:
    """The normal law."""
    return 0.5 * (1.0 + erf(z / math.sqrt(2.0)))


def _ramp(z: Array, a: Array) -> Array:
    z = z / a
    return a * (z * _below(z) + jnp.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi))


class Units(eqx.Module):
    """The units of one date, or with a leading axis those of several."""

    directions: Numbers  # (k, d)
    shifts: Numbers  # (k,)
    widths: Numbers  # (k,)
    strikes: Numbers  # (d, m)
    fine: Numbers  # (p,), steps of the largest coordinate in evenly spaced levels, or none
    coarse: Numbers  # (q,), those of the two largest
    sign: Numbers  # (), -1 for the smallest
    date: Numbers  # ()

    def means(self, frame: Frame, level: Float[Array, " d"], v: Any) -> Float[Array, " u"]:
        """Their means at the date, where levels have the mean `level` and noise the variance `v`."""
        b = frame.inverse @ (level - frame.origin - frame.speed * self.date)
        width = jnp.sqrt(self.widths**2 + jnp.sum(jnp.square(self.directions), 1) * v)
        ramps = _ramp(self.directions @ b + self.shifts, width)
        spread = jnp.sqrt(jnp.sum(jnp.square(frame.factor), 1) * (v + _SHARP**2))[:, None]
        level = level[:, None]
        if frame.prices:
            mean = jnp.exp(level + 0.5 * spread**2)
            high = jnp.log(mean / self.strikes) / spread + 0.5 * spread
            calls = mean * _below(high) - self.strikes * _below(high - spread)
        else:
            mean, calls = level, _ramp(level - self.strikes, spread)
        parts = [jnp.ones(1), mean[:, 0], jnp.ravel(calls), ramps]
        if self.fine.size:
            spread = jnp.square(frame.factor.diagonal()) * v
            parts += _steps(self.sign * level[:, 0], spread, self.fine, self.coarse)
        return jnp.concatenate(parts)


def _steps(level: Array, variance: Array, fine: Numbers, coarse: Numbers) -> list[Array]:
    """Steps of the largest of some independent levels, and of the two largest, rounded by their distance."""

    def laws(nodes: Numbers) -> tuple[Array, Array]:
        spread = jnp.sqrt(variance + jnp.square(nodes[1] - nodes[0]))
        below = _below((nodes[:, None] - level[None]) / spread[None])
        return below, jnp.log(jnp.maximum(below, 1e-30))

    _, logs = laws(fine)
    below, each = laws(coarse)
    both = jnp.sum(each, axis=1)
    others = jnp.exp(both[:, None] - each)
    pairs = below @ others.T + (1 - level.size) * jnp.exp(both)[None]
    first, second = np.tril_indices(coarse.size, -1)
    return [jnp.exp(jnp.sum(logs, axis=1)), pairs[first, second]]


def draw_units(
    rng: np.random.Generator,
    frame: Frame,
    date: float,
    at: Float[np.ndarray, "n d"],
    count: int,
    strikes: Float[np.ndarray, "d m"],
    size: float,
    sign: int = 0,
) -> Units:
    """Random units that bend where the state is: `at` are positions at the date.

    A quarter of the ramps lies along the axes, a quarter along differences of two of them. `sign` is 1 for
    steps of the largest coordinates, -1 for the smallest, 0 for none.
    """
    dim = at.shape[1]
    w = rng.normal(size=(count, dim))
    quarter = count // 4
    first, second = rng.integers(dim, size=(2, 2 * quarter))
    w[: 2 * quarter] = np.eye(dim)[first]
    w[quarter : 2 * quarter] -= (first != second)[quarter:, None] * np.eye(dim)[second[quarter:]]
    # Axes and differences of states or logarithms, not of the noise.
    w[: 2 * quarter] = w[: 2 * quarter] @ frame.factor
    spread = np.sqrt(np.einsum("ki,ij,kj->k", w, np.cov(at.T).reshape(dim, dim), w))
    w *= (size * rng.uniform(0.5, 2.0, count) / spread)[:, None]
    shifts = -np.sum(w * at[rng.integers(len(at), size=count)], axis=1)
    fine, coarse = np.zeros(0), np.zeros(0)
    if sign:
        levels = np.sort(sign * (frame.origin + frame.speed * date + at @ frame.factor.T), axis=1)
        low, middle = (np.quantile(levels[:, -2 + k], 0.001) for k in (0, 1))
        high = np.quantile(levels[:, -1], 0.999)
        fine, coarse = np.linspace(middle, high, _FINE), np.linspace(low, high, _COARSE)
    width = np.full(count, 0.5)
    return Units(w, shifts, width, strikes, fine, coarse, np.asarray(float(sign)), np.asarray(date))
