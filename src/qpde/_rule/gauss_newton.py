"""Gauss-Newton: every step solves the linearised equation at its points.

With `J` the Jacobian of the residual `r = L Q` in the parameters, at fresh points, a step is

    delta theta = -a J' (J J' + lambda tau I)^-1 r,   tau = tr(J J') / M,

for four dampings `lambda` around the last one and two lengths `a`. A second, independent sample decides
between the eight, and against all of them when none makes its mean square smaller. When steps keep fitting
their own points without making the second sample much better, the points are too few: the sample is
doubled.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from .._arguments import real, whole
from .._network.base import trainable
from .._precision import Numbers
from .._problem.trial import Trial
from .._tangent.damped import solve_damped
from .._tangent.tangent import tangent
from .base import AbstractRule, Info
from .batch import Batch, Draw
from .schedule import Clock
from .trials import Steps

# The damping that is best changes by many powers of ten from one step to the next where the equation is
# smooth and linear, and slowly where it is not.
_AROUND, _LENGTHS = (1e-4, 0.1, 1.0, 10.0), (1.0, 0.3)
_LEAST, _MOST = 1e-15, 1e3
# A step overfits when it leaves the second sample with more than this share of its mean square, and its own
# points with less than a quarter of that share. So many such steps in a row double the sample.
_POOR, _PATIENCE = 0.7, 3


class _State(eqx.Module):
    """The damping, how often the sample was doubled, and how many steps in a row overfitted."""

    damping: Float[Array, ""]
    doublings: Int[Array, ""]
    overfitted: Int[Array, ""]


class GaussNewton(AbstractRule):
    """Gauss-Newton on `mean (L Q)^2`, for accuracy beyond what gradient steps reach.

        >>> network = Shallow(256, polynomial=True, beta=0.5, amplitude=0.06)
        >>> solve(problem, network=network, rule=GaussNewton(), steps=30, precision="float64")

    With a `Shallow` network and an equation whose second derivatives are the Laplacian, or have a
    constant matrix up to a number that may vary, a step costs `batch^2 (width + d)` operations and no
    Jacobian is made; otherwise the Jacobian of `batch x parameters` must fit into memory. Beyond 4,000
    points its systems are solved by conjugate gradients. Needs `precision="float64"`.

    **Arguments**

    - `damping`: the first damping, relative to the mean diagonal of `J J'`; it is adapted.
    - `doublings`: how often the sample may be doubled when steps overfit.
    """

    damping: Numbers
    doublings: Numbers
    exact_boundary = True
    name = "gauss-newton"
    precision = "float64"
    default_steps = 50
    block = 1
    whole_batch = True

    def __init__(self, damping: float = 1e-3, *, doublings: int = 1):
        self.damping = real("damping", damping, above=0.0)
        self.doublings = np.asarray(whole("doublings", doublings, most=20))

    def init(self, trial: Trial, key: PRNGKeyArray) -> _State:
        require_double(trial, self.name)
        zero = jnp.zeros((), jnp.int32)
        return _State(jnp.asarray(self.damping), zero, zero)

    def batch_factor(self, state: _State) -> int:
        return 2 ** int(state.doublings)

    def step(
        self, trial: Trial, state: _State, draw: Draw, clock: Clock
    ) -> tuple[Trial, _State, Info]:
        batch, second = draw.whole(2)
        params, rest = trainable(trial.network)
        here = tangent(trial, batch.points, batch.weights)
        residual = here.residual
        loss = jnp.dot(residual, residual)
        dampings = state.damping * jnp.asarray(_AROUND)
        solutions, left = solve_damped(here, dampings)
        # What the linearised residual is after a whole step.
        fitted = jnp.sum(left * left, axis=1)
        pulled = jax.vmap(here.pull)(jnp.concatenate([solutions, residual[None]]))
        directions = jax.tree.map(lambda v: v[:-1], pulled)

        # No step at all first; as one of the candidates it needs no program of its own.
        which = jnp.asarray([0] + [i for i in range(len(_AROUND)) for _ in _LENGTHS])
        lengths = jnp.asarray([0.0, *_LENGTHS * len(_AROUND)])
        steps = Steps(params, directions, which, lengths)
        losses = steps.losses(trial, rest, second)
        losses = jnp.where(jnp.isfinite(losses), losses, jnp.inf)
        now, best = losses[0], jnp.argmin(losses)
        better, which, new = best > 0, which[best], steps.of(best)
        damping = jnp.where(better, dampings[which], 10.0 * state.damping)
        share = losses[best] / now
        overfits = (share > _POOR) & (fitted[which] < 0.25 * share * loss)
        state = self._judged(state, jnp.clip(damping, _LEAST, _MOST), overfits)
        gradient = optax.tree.norm(jax.tree.map(lambda v: v[-1], pulled))
        info = Info(loss, loss, jnp.ones_like(loss), gradient)
        return trial.with_network(eqx.combine(new, rest)), state, info

    def _judged(self, state: _State, damping: Array, overfits: Array) -> _State:
        count = jnp.where(overfits, state.overfitted + 1, 0)
        grow = (count >= _PATIENCE) & (state.doublings < self.doublings)
        doublings = state.doublings + grow.astype(jnp.int32)
        return _State(damping, doublings, jnp.where(grow, 0, count).astype(jnp.int32))


def mean_square(trial: Trial, params: PyTree, rest: PyTree, batch: Batch) -> Float[Array, ""]:
    """The mean of `(L Q)^2` over a batch."""
    moved = trial.with_network(eqx.combine(params, rest))
    residual = jax.vmap(moved.residual)(batch.points)
    return jnp.dot(batch.weights, residual * residual)


def require_double(trial: Trial, name: str) -> None:
    """Refuse float32, in which the systems of second-order steps cannot be solved."""
    if any(leaf.dtype != jnp.float64 for leaf in jax.tree.leaves(trainable(trial.network)[0])):
        raise ValueError(
            f"The rule {name} solves systems that float32 cannot: "
            'call solve(..., precision="float64").'
        )
