"""Hidden weights that look where the equation changes.

A network with random directions finds it hard to learn a function of a few directions in a high dimension: in
d = 100 all of them are nearly orthogonal to any given one. The residual `r_0 = L f` of the trial function
without network knows the directions: its gradient at random points lies in their span, and
`|grad r_0| / std(r_0)` is a wave number. Some of the hidden units therefore start with

    w = U grad r_0(x) / std(r_0),   U ~ U(0, 1),   x ~ mu,

in the coordinates of the frame. Where `r_0` is constant nothing is changed.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ._field import Constant
from ._form import fresh
from ._measure import AbstractMeasure
from ._network import ShallowField, cast
from ._trial import Trial

# Points at which the residual's spread is taken, at least.
_POINTS = 512


def align(trial: Trial, share: float, measure: AbstractMeasure, key: PRNGKeyArray) -> Trial:
    """The trial function with this share of its hidden weights along gradients of `L f`."""
    assert isinstance(trial.network, ShallowField)
    count = round(share * trial.network.width)
    if count == 0:
        return trial
    old = trial.network.w
    # In float64 throughout: a user's functions are always traced so (see `widely`).
    with jax.enable_x64(True):
        new = np.asarray(_weights(cast(fresh(trial), "float64"), measure, key, count))
    return eqx.tree_at(lambda t: t.network.w, trial, jnp.asarray(new.astype(old.dtype)))


@eqx.filter_jit
def _weights(trial: Trial, measure: AbstractMeasure, key: PRNGKeyArray, count: int) -> Array:
    network: Any = trial.network
    start = trial.with_network(Constant(0.0))
    points, _ = measure.sample(key, max(count, _POINTS))
    r, slopes = jax.vmap(jax.value_and_grad(start.residual))(points)
    spread = jnp.std(r)
    varies = spread > 1e-6 * jnp.max(jnp.abs(r))
    length = jr.uniform(jr.fold_in(key, 1), (count, 1), points.dtype)
    along = length * slopes[:count] * network.frame.half.array[None, :]
    along = (along / jnp.where(varies, spread, 1.0)).T
    use = varies & jnp.all(jnp.isfinite(along), axis=0)
    old = network.w[:, :count]
    return network.w.at[:, :count].set(jnp.where(use[None, :], along, old).astype(old.dtype))
