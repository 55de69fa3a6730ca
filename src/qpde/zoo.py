"""Problems with known answers."""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._form import Numbers
from ._jet import Jet
from ._problem import Problem
from ._round import Ball


class _SurvivalEquation(eqx.Module):
    """`1 - discount u + 1/2 Lap u`."""

    discount: Numbers

    def __call__(self, x: Float[Array, " d"], u: Jet) -> Float[Array, ""]:
        return 1.0 - self.discount * u.value + 0.5 * u.laplacian


class _SurvivalSolution(eqx.Module):
    """`(1 - s) sum_j tails_j s^j`, `s = |x|^2`: only positive terms, so nothing cancels.

    With `a_m = (g/2)^m / (m! (d/2)_m)` the Bessel quotient of the paper is
    `u = sum_{m>=1} (a_m / g)(1 - s^m) / sum_{m>=0} a_m`. Since `1 - s^m = (1 - s)(1 + ... + s^(m-1))`, the
    coefficient of `(1 - s) s^j` is `tails_j = sum_{m>j} (a_m / g) / sum a`.
    """

    tails: Numbers

    def __init__(self, dim: int, discount: float):
        # Terms fall once m (d/2 + m) > discount / 2; four times the root of that is plenty beyond
        # the first twenty. The length is a power of two, so that few different shapes occur.
        count = 2 ** math.ceil(math.log2(20 + 4 * math.sqrt(discount)))
        m = np.arange(1, count + 1)
        # log(a_m / g) = log((g/2)^(m-1) / 2 / (m! (d/2)_m)); the division by g is done by hand.
        power = (m - 1) * math.log(discount / 2) if discount > 0 else np.where(m == 1, 0.0, -np.inf)
        log_terms = power - math.log(2) - np.cumsum(np.log(m) + np.log(dim / 2 + m - 1))
        top = max(0.0, float(np.max(log_terms)))
        terms = np.exp(log_terms - top)
        total = math.exp(-top) + discount * float(np.sum(terms))
        self.tails = np.cumsum(terms[::-1])[::-1] / total

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        s = jnp.sum(x * x)
        return (1.0 - s) * jnp.polyval(jnp.asarray(self.tails)[::-1], s)


def survival(dim: int = 20, *, discount: float = 0.2) -> Problem:
    """Discounted survival time of Brownian motion in the unit ball, the paper's test problem.

    `1 - discount u + 1/2 Lap u = 0` in `|x| < 1`, `u = 0` on the sphere (Cohen, Jiang and Sirignano,
    section 6.2).
    """
    if not (np.isfinite(discount) and 0 <= discount <= 1e6):
        raise ValueError(f"discount must lie between 0 and 1e6, got {discount}.")
    return Problem(
        domain=Ball(dim),
        equation=_SurvivalEquation(np.asarray(discount, np.float64)),
        boundary=0.0,
        exact=_SurvivalSolution(dim, float(discount)),
        name="survival",
    )


class Entry(NamedTuple):
    """A problem of the zoo in words."""

    build: Callable[..., Problem]
    dims: str
    equation: str
    domain: str


CATALOGUE: dict[str, Entry] = {
    "survival": Entry(
        survival, ">= 1", "1 - discount u + 1/2 Lap u = 0, u = 0 on the boundary", "the unit ball"
    ),
}
