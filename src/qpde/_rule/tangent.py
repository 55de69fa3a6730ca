"""How the residual moves with the parameters, at a cost that does not grow with the dimension.

At `Q = eta S + f` the residual changes by `P dS + V . grad dS + sum_k C_k (a_k : Hess dS)` when the network
changes by `dS`, where, with `F_u, F_p` the derivatives of the equation in value and gradient and
`A = sum_k s_k a_k` that in the Hessian, constant matrices `a_k` and numbers `s_k` of a point,

    P = F_u eta + F_p . grad eta + A : Hess eta,   V = F_p eta + 2 A grad eta,   C_k = s_k eta.

For one hidden layer, in the coordinates `y = (x - centre) / half` of its frame (`V` is divided by `half`,
`G_k = D a_k D` with `D = diag(1 / half)`), a row of the Jacobian `J` is

    J_c = P s + (V.w) s1 + q s2,   J_b = D,   J_w = D y + E V + sum_k H_k G_k w,   q = sum_k C_k (w.G_k w),
    D = c [P s1 + (V.w) s2 + q s3],   E = c s1,   H_k = 2 c C_k s2,

times `N^-beta`; beside them stand those of the polynomial part, `P`, `P y + V` and
`P |y|^2 + 2 V.y + 2 sum_k C_k tr G_k`. So `J J'` is made of products of matrices with M rows and N columns and
of the Gram matrices of `y` and `V`; no array of size M x (N d) exists. The same holds for `K = J J_Q'`, where
the rows of `J_Q`, the Jacobian of `Q`, are `eta s`, `eta c s1` and `eta c s1 y`.

Other networks, and equations whose matrices vary from point to point, have an explicit Jacobian.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._network.base import trainable
from .._network.shallow import ShallowField
from .._problem.trial import Trial
from .jacobian import AbstractTangent, explicit
from .second_order import SecondOrder
from .structured import Structured


def tangent(
    trial: Trial, points: Float[Array, "m d"], weights: Float[Array, " m"]
) -> AbstractTangent:
    """The residual and its Jacobian at some points; structured where it can be."""
    roots = jnp.sqrt(weights)
    if _is_shallow(trial):
        second = SecondOrder.of(trial.equation, points.shape[1])
        if second is not None:
            return Structured(trial, second, points, roots)
    return explicit(trial, points, roots)


def _is_shallow(trial: Trial) -> bool:
    """Whether the trained arrays are those of one hidden layer and its polynomial."""
    network = trial.network
    if not (isinstance(network, ShallowField) and trial.exact_boundary):
        return False
    named = (network.c, network.w, network.b, network.polynomial)
    return len(jax.tree.leaves(trainable(network)[0])) == len(jax.tree.leaves(named))
