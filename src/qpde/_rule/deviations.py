"""Least deviations: the output layer with the smallest mean of `|L Q|`, by weighted least squares.

At corners and kinks of the data and along free boundaries second derivatives of the solution jump or blow up;
no smooth network follows, and `L Q` is large on a small set. What it does to the solution is its integral
against a Green's function, which is small there; its square is not, and least squares pay for it with errors
everywhere else. The mean of `|L Q|` does not.

At every step the equation is linearised, which for a maximum of operators freezes the one chosen at every
point (semismooth Newton: policy iteration), and `sum_i w_i (L Q)_i^2` is minimised with

    w_i = 1 / sqrt((L Q)_i^2 + l^2),   l a share of the median of |L Q|.

An independent sample decides between dampings and lengths, by the mean of `sqrt((L Q)^2 + l^2)`. A step is
taken even where that grows: as the set where an operator is chosen moves, it often does for a while. The
iterate with the smallest mean of `|L Q|` at held-out points is the one that counts.
"""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import real
from .._precision import Numbers
from .._problem.trial import Trial
from .base import AbstractRule, Info
from .batch import Draw
from .projection import Rows, require_output_layer, rows_outer, split, steps_outer
from .schedule import Clock

# The level below which deviations count as squares, in medians.
_LEVEL = 0.3
_LEAST, _MOST = 1e-15, 1e-2


class LeastDeviations(AbstractRule):
    """The output layer of a network with the smallest mean of `|L Q|`; what is inside it stays.

        >>> solve(problem, network=Ridge(512), rule=LeastDeviations(), batch=2_000, steps=10)

    For obstacle problems and other maxima and minima of operators, and for data with kinks. A step needs more
    points than the output layer has coefficients. Needs `precision="float64"`.

    **Arguments**

    - `damping`: the first damping of the output coefficients, relative to the largest singular value; it is
      adapted.
    """

    damping: Numbers
    exact_boundary = True
    name = "least-deviations"
    precision = "float64"
    default_steps = 10
    block = 1
    whole_batch = True

    def __init__(self, damping: float = 1e-9):
        self.damping = real("damping", damping, above=0.0)

    def init(self, trial: Trial, key: PRNGKeyArray) -> Float[Array, ""]:
        require_output_layer(trial, self.name)
        return jnp.asarray(self.damping)

    def step(
        self, trial: Trial, state: Float[Array, ""], draw: Draw, clock: Clock
    ) -> tuple[Trial, Float[Array, ""], Info]:
        own, second = draw.whole(2)
        here = rows_outer(trial, own)
        roots = jnp.sqrt(own.weights)
        plain = here.residual / jnp.where(roots > 0, roots, 1.0)
        level = jnp.maximum(_LEVEL * jnp.median(jnp.abs(plain)), 1e-300)
        # The square root of a weight, times the square root of the level: one where `L Q` is small.
        w = jnp.sqrt(level / jnp.hypot(plain, level))
        weighted = Rows(w * here.residual, w[:, None] * here.outer, here.inner)

        outer, inner, rest = split(trial.network)
        flat, unravel = jax.flatten_util.ravel_pytree(outer)
        steps, dampings = steps_outer(flat, weighted, state)

        def deviation(step: Float[Array, " n"]) -> Float[Array, ""]:
            moved = trial.with_network(eqx.combine(unravel(flat + step), inner, rest))
            residual = jax.vmap(moved.residual)(second.points)
            return jnp.dot(second.weights, jnp.hypot(residual, level))

        deviations = jax.lax.map(deviation, steps)
        finite = jnp.isfinite(deviations)
        best = jnp.argmin(jnp.where(finite, deviations, jnp.inf))
        moves = finite[best]
        network = eqx.combine(unravel(jnp.where(moves, flat + steps[best], flat)), inner, rest)
        damping = jnp.clip(jnp.where(moves, dampings[best], 100.0 * state), _LEAST, _MOST)
        loss = jnp.dot(here.residual, here.residual)
        error = jnp.dot(own.weights, jnp.hypot(plain, level))
        gradient = optax.tree.norm(weighted.residual @ weighted.outer)
        return (
            trial.with_network(network),
            damping,
            Info(loss, error, jnp.ones_like(loss), gradient),
        )

    def held_out_loss(
        self, residual: Float[Array, " n"], weights: Float[Array, " n"]
    ) -> Float[Array, ""]:
        """The square of the mean of `|L Q|`."""
        return jnp.square(jnp.mean(weights * jnp.abs(residual)))
