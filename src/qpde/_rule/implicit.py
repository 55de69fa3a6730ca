"""Implicit Q-learning: long steps of the paper's own flow that stay stable.

The flow `dQ/dt = B L Q` moves the parameters along `E[L Q grad_theta Q]`. An implicit Euler step of length
`h`, linearised at the current `Q`, solves on M points

    (I - (h/M) K) y = r,   theta <- theta + (h/M) J_Q' y,

with `r = L Q`, `K = J J_Q'`, `J` and `J_Q` the Jacobians of `L Q` and of `Q`. For monotone `L` the flow
contracts in the norm `<r, B r>^(1/2) = |E[r grad_theta Q]|`, whatever `h` is, and `h -> infinity` is Newton's
method for the fixed point of Q-learning, the Galerkin condition `E[r grad_theta Q] = 0`.

Which length is best? `<r, B r>` cannot tell: estimated from a sample it is soon nothing but noise. The
mean of `r^2` on an independent sample follows the error closely, but it does not fall steadily with `h`:
between the lengths at which one group of modes is done and those at which the next one begins it is flat
or rises, over many powers of ten. So lengths far apart are compared, not neighbours.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._arguments import real
from .._network.base import trainable
from .._precision import Numbers
from .._problem.trial import Trial
from .._tangent.jacobian import AbstractTangent
from .._tangent.tangent import tangent
from .base import AbstractRule, Info
from .batch import Draw
from .gauss_newton import require_double
from .schedule import Clock
from .trials import Steps

_AROUND = (1e-4, 1e-2, 1.0, 1e2, 1e4)
_LEAST, _MOST = 1.0, 1e16


class _State(eqx.Module):
    """The length of a step, in units of `1 / |tr K / M|`."""

    length: Float[Array, ""]


class ImplicitQLearning(AbstractRule):
    """The method by implicit Euler steps: stable for every length where the equation is monotone.

        >>> solve(problem, rule=ImplicitQLearning(), steps=30, precision="float64")

    Each step tries five lengths, from 1e-4 to 1e4 times the last one, and takes the one after which the
    mean of `(L Q)^2` on an independent sample is smallest; none, where it grows for all of them. The
    cost of a step is that of `GaussNewton`. Needs `precision="float64"`.

    **Arguments**

    - `length`: the first length, in units of `1 / |tr K / M|`, below which explicit steps are stable.
    """

    length: Numbers
    exact_boundary = True
    name = "implicit-q-learning"
    precision = "float64"
    default_steps = 50
    block = 1
    whole_batch = True

    def __init__(self, length: float = 1e6):
        self.length = real("length", length, above=0.0)

    def init(self, trial: Trial, key: PRNGKeyArray) -> _State:
        require_double(trial, self.name)
        return _State(jnp.asarray(self.length))

    def step(
        self, trial: Trial, state: _State, draw: Draw, clock: Clock
    ) -> tuple[Trial, _State, Info]:
        batch, second = draw.whole(2)
        params, rest = trainable(trial.network)
        here = tangent(trial, batch.points, batch.weights)
        kernel = here.cross()
        unit = 1.0 / jnp.maximum(jnp.abs(jnp.trace(kernel)), 1e-300)
        lengths = state.length * jnp.asarray(_AROUND)

        # Directions point away from where a step goes.
        directions = jax.lax.map(
            lambda length: jax.tree.map(jnp.negative, implicit_update(here, kernel, unit * length)),
            lengths,
        )
        # No step at all comes last: it is better than what is no smaller.
        which = jnp.asarray([*range(len(_AROUND)), 0])
        steps = Steps(params, directions, which, jnp.asarray([*[1.0] * len(_AROUND), 0.0]))
        losses = steps.losses(trial, rest, second)
        sizes = jnp.where(jnp.isfinite(losses[:-1]), losses[:-1], jnp.inf)
        best = jnp.argmin(sizes)
        better = sizes[best] < losses[-1]
        new = steps.of(jnp.where(better, best, len(_AROUND)))
        length = jnp.clip(jnp.where(better, lengths[best], 0.1 * state.length), _LEAST, _MOST)
        loss = jnp.dot(here.residual, here.residual)
        gradient = optax.tree.norm(here.pull_value(here.residual))
        info = Info(loss, loss, jnp.ones_like(loss), gradient)
        return trial.with_network(eqx.combine(new, rest)), _State(length), info


def implicit_update(
    here: AbstractTangent, kernel: Float[Array, "m m"], length: Float[Array, ""]
) -> PyTree:
    """The change of the parameters in one implicit Euler step."""
    system = jnp.eye(here.residual.size, dtype=kernel.dtype) - length * kernel
    solved = jnp.linalg.solve(system, here.residual[:, None])[:, 0]
    return jax.tree.map(lambda v: length * v, here.pull_value(solved))
