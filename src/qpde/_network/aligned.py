"""Hidden weights that look where the equation changes.

A network with random directions finds it hard to learn a function of a few directions in a high dimension: in
d = 100 all of them are nearly orthogonal to any given one. The residual `r_0 = L f` of the trial function
without network knows the directions: its gradient at random points lies in their span, and
`|grad r_0| / std(r_0)` is a wave number. Some of the hidden units therefore start with

    w = U grad r_0(x) / std(r_0),   U ~ U(0, 1),   x ~ mu,

in the coordinates of the frame. Where `r_0` is constant nothing is changed.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._precision import Numbers, few_at_a_time

# Points at which the residual's spread is taken, at least.
POINTS = 512
# Numbers of the points that are differentiated at a time.
AT_ONCE = 2**22


@compiled
def aligned_weights(
    w: Float[Array, "d n"],
    half: Numbers,
    residual: Callable[[Array], Array],
    points: Float[Array, "m d"],
    key: PRNGKeyArray,
    count: int,
) -> Float[Array, "d n"]:
    """The weights with the first `count` columns along gradients of the residual at the points.

    `half` is the scale of the frame. All of it is done in the precision of the points, float64.
    """
    # What reverse mode keeps of a point is many times as large as the point.
    r, slopes = few_at_a_time(jax.value_and_grad(residual), points, AT_ONCE)
    spread = jnp.std(r)
    varies = spread > 1e-6 * jnp.max(jnp.abs(r))
    length = jr.uniform(jr.fold_in(key, 1), (count, 1), points.dtype)
    along = length * slopes[:count] * half[None, :]
    along = (along / jnp.where(varies, spread, 1.0)).T
    use = varies & jnp.all(jnp.isfinite(along), axis=0)
    w = w.astype(points.dtype)
    old = w[:, :count]
    return w.at[:, :count].set(jnp.where(use[None, :], along, old))
