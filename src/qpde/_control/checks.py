"""Whether the best action is the best: it is compared with others at random points and jets."""

from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._field.jet import Jet, Quadratic, Sum
from .base import AbstractControl

# By what part of the spread of brackets the best action may be worse than another: a search is not exact.
_SLACK = 1e-6


class Gaps(eqx.Module):
    """At each point and jet: how much better another action is, over the spread of brackets, and whether
    there is a best one.
    """

    gain: Array
    irregular: Array


def gaps_at(
    control: AbstractControl, base: Jet, x: Float[Array, " d"], bumps: Quadratic, key: PRNGKeyArray
) -> Gaps:
    """The gaps at one point, at the jet of the boundary data and at others around it."""

    def one(bump: Quadratic, key: PRNGKeyArray) -> Gaps:
        u = Jet(Sum(base, Jet(bump, x)), x)
        # Asked once, outside of what is mapped over the actions. Second derivatives that are the same for all
        # actions make no difference between them.
        bent = u.hessian if control.spreads(x) else jnp.zeros((x.size, x.size), x.dtype)
        fixed = Jet(_Answers(u.value, u.grad, bent), x)
        a = control.action(x, fixed)
        brackets = jax.vmap(lambda b: control.bracket(x, fixed, b))(control.rivals(a, key))
        here = control.bracket(x, fixed, a)
        spread = jnp.max(jnp.abs(brackets - here)) + 1e-9 * jnp.max(jnp.abs(brackets))
        gain = jnp.max(brackets) - here if control.maximises else here - jnp.min(brackets)
        scale = jnp.where(spread > 0, spread, 1.0)
        return Gaps(gain / scale, control.irregular(x, fixed))

    return jax.vmap(one)(bumps, jr.split(key, len(bumps.constant)))


def refuse_worse(control: AbstractControl, gaps: Gaps, points: np.ndarray) -> None:
    """Raise where there is no best action, or another one is better."""
    spread = control.spreads(jnp.asarray(points[0]))
    irregular = np.asarray(gaps.irregular) > 0
    # Where the action enters sigma, Hess u decides, and a jet at random proves nothing.
    if np.any(irregular) and not spread:
        _fail(
            "The cost has no positive curvature in the action, so that no action is the best",
            points[np.any(irregular, axis=1)][0],
            "Add a cost such as jnp.dot(a, a), or bound the actions with qpde.BoxActions(low, high).",
        )
    worse = (np.asarray(gaps.gain) > _SLACK) & ~irregular
    if np.any(worse):
        _fail(
            "The action that is said to be the best is not: a random one has a better bracket",
            points[np.any(worse, axis=1)][0],
            "Check `action` or `best=` and its sign, whether you minimise (maximise=True else) and, in a "
            "box, whether the bracket is smooth in the action.",
        )


def _fail(what: str, x: np.ndarray, cure: str) -> NoReturn:
    where = np.array2string(x, precision=4, threshold=6)
    raise ValueError(f"{what}, for example at x = {where}. {cure}")


class _Answers:
    """Answers that are known already."""

    def __init__(self, value: Any, grad: Any, hessian: Any):
        self._value, self._grad, self._hessian = value, grad, hessian

    def value(self) -> Array:
        return self._value

    def grad(self) -> Array:
        return self._grad

    def trace(self, form: Any) -> Array:
        return form.contract(self._hessian)

    def hessian(self) -> Array:
        return self._hessian
