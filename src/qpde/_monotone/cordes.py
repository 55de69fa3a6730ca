"""Cordes' condition: Bellman equations whose second-order part the action chooses.

For `F v = best over a of (A_a : Hess v + l_a)` on a convex domain, functions of zero boundary values and

    |A_a|^2 / (tr A_a)^2 <= 1 / (d - 1 + eps)  for all a,  0 < eps <= 1,

let `g_a = tr A_a / |A_a|^2` and `F_g = best over a of g_a (A_a : Hess v + l_a)`, which has the same solution.
Because `|g_a A_a - I|^2 = d - (tr A_a)^2 / |A_a|^2 <= 1 - eps` and `|Hess w| <= |Lap w|` in mean square,

    <F_g v1 - F_g v2, Lap(v1 - v2)> >= (1 - sqrt(1 - eps)) |Lap(v1 - v2)|^2.

`F_g Q` has the sign of `F Q` and at most `g_max` times its size, so that for the solution `u`

    |Hess(Q - u)| <= |Lap(Q - u)| <= g_max |F Q| / (1 - sqrt(1 - eps)),   |Q - u| <= |Lap(Q - u)| / lambda_1.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._arguments import an_instance, real
from .._compiled import compiled
from .._control.actions import BoxActions, FiniteActions
from .._control.control import Control
from .._domain.base import drawn
from .._equation.operator import Basis, Bound, Operator
from .._precision import key_from, x64
from .._problem.problem import Problem
from .._program.program import dependencies

# Points at which bounds that a user gives are looked at, and to how many digits.
_POINTS, _SLACK = 2_000, 1e-9
# What rounding may add to a quotient of sums of some hundred numbers.
_ROUNDING = 1e-12
# Quotients below it, or above its inverse, may have lost their digits.
_TINY = 1e-140
_SEARCHED = (
    "It rests on the numbers that you gave, and on the best action being found: finitely many are tried one "
    "by one, others are searched for, which is no proof."
)


@dataclasses.dataclass(frozen=True)
class Cordes:
    """Whether a Bellman equation satisfies Cordes' condition, and the constant that it gives.

    `epsilon` is that of the condition, `constant` is `1 - sqrt(1 - epsilon)`, by which the equation is
    monotone in the pairing with the Laplacian; `largest` bounds the quotients `tr A / |A|^2`; all are None
    where nothing holds. `proved`: by exact matrices, by interval arithmetic, or, of finitely many actions,
    from bounds that you gave; `reason` says what is missing.
    `stability` bounds `|Q - u|` by `|L Q|` over it, `second` does the same for the norm of all second
    derivatives of `Q - u`.
    """

    epsilon: float | None
    largest: float | None
    basis: Basis | None
    eigenvalue: float
    reason: str = ""

    @property
    def constant(self) -> float | None:
        """`1 - sqrt(1 - epsilon)`, without its cancellation."""
        if self.epsilon is None:
            return None
        return self.epsilon / (1.0 + math.sqrt(1.0 - self.epsilon))

    @property
    def proved(self) -> bool:
        """Whether the condition holds for certain."""
        sure = self.basis not in (None, Basis.SAMPLED) and not self.reason
        return self.epsilon is not None and sure

    @property
    def second(self) -> float | None:
        """`constant / largest`."""
        if self.constant is None or self.largest is None:
            return None
        return self.constant / self.largest

    @property
    def stability(self) -> float | None:
        """`lambda_1` times `second`."""
        return None if self.second is None else self.eigenvalue * self.second

    def __repr__(self) -> str:
        if self.epsilon is None or self.basis is None:
            return f"Cordes' condition: not known to hold. {self.reason}".rstrip()
        return (
            f"Cordes' condition: epsilon = {self.epsilon:.6g} ({self.basis.value})\n"
            f"  monotone in the pairing with the Laplacian, constant {self.constant:.6g}; "
            f"|Hess(Q - u)| <= |L Q| / {self.second:.6g}, |Q - u| <= |L Q| / {self.stability:.6g}"
            + (f"\n  {self.reason}" if self.reason else "")
        )


@x64()
def cordes(
    problem: Problem, *, epsilon: float | None = None, largest: float | None = None
) -> Cordes:
    """Whether Cordes' condition holds for a `qpde.Control` problem, and what it gives.

        >>> cordes(problem).constant

    The domain must be convex, the equation without drift and discount. With `FiniteActions` the matrices are
    looked at one by one, by interval arithmetic where they vary. For other sets of actions, whose best one is
    searched for, nothing is proved; say what you know:

    - `epsilon`: a number with `|A|^2 / (tr A)^2 <= 1 / (d - 1 + epsilon)` for all actions and points.
    - `largest`: an upper bound for `tr A / |A|^2`, `A = sigma sigma' / 2`.

    They are compared with random points and actions.
    """
    an_instance("problem", problem, Problem, "qpde.Problem(domain, qpde.Control(...))")
    control, domain = problem.equation, problem.domain
    missing = _missing(problem)
    if missing or not isinstance(control, Control):
        return Cordes(None, None, None, 0.0, missing)
    eigenvalue = domain.first_eigenvalue.value
    given = _given(problem, control, epsilon, largest)
    if given is not None:
        searched = not isinstance(control.actions, FiniteActions)
        return Cordes(*given, Basis.GIVEN, eigenvalue, _SEARCHED if searched else "")
    if not isinstance(control.actions, FiniteActions):
        reason = (
            "Give epsilon= and largest=: matrices are compared one by one for FiniteActions only."
        )
        return Cordes(None, None, None, eigenvalue, reason)
    ratio, top, basis = _bounded(problem.operator, control)
    reason = ""
    # Comparisons with what is no number are false.
    if not ratio * (problem.dim - 1) < 1.0:
        reason = (
            f"Some |A|^2 / (tr A)^2 is not seen to be below 1 / (d - 1) = {1 / max(problem.dim - 1, 1):.6g}; "
            f"the bound for it is {ratio:.6g}."
        )
    elif not _TINY < top * eigenvalue < 1.0 / _TINY or not _TINY < top < 1.0 / _TINY:
        reason = "The matrices are too large or too small for floating-point numbers: choose other units."
    if reason:
        return Cordes(None, None, None, eigenvalue, reason)
    return Cordes(min(1.0 / ratio - (problem.dim - 1), 1.0), top, basis, eigenvalue)


def _missing(problem: Problem) -> str:
    """What keeps the condition from being asked for."""
    control: Any = problem.equation
    # A class of one's own that inherits from it may be any other equation.
    if type(control) is not Control:
        return "The equation is no qpde.Control, so that its matrices are not known."
    if control.best is not None:
        return (
            "Its best action is given as best=..., which was compared with others at random points only: "
            "the equation may take another action, one that is not in the set too. Leave best out."
        )
    if not problem.domain.convex:
        return "The domain is not known to be convex."
    x = jnp.asarray(problem.domain.centre, float)
    a = jnp.zeros(control.actions.count)
    drift = dependencies(control.moved, x, a)[0] or np.any(np.asarray(control.moved(x, a)))
    discount = control.discount
    if callable(discount):
        discount = np.nan if dependencies(discount, x)[0] else np.asarray(discount(x))
    if drift or discount != 0.0:
        return (
            "It has a drift or a discount, by its program; the condition is for second order alone."
        )
    return ""


class _Shape(eqx.Module):
    """Minus `|A|^2 / (tr A)^2` or, with `size`, minus `tr A / |A|^2`, for one action."""

    control: Control
    action: Any
    size: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        trace, square = _sizes(self.control, x, jnp.asarray(self.action, x.dtype))
        return -trace / square if self.size else -square / (trace * trace)


def _sizes(control: Control, x: Array, a: Array) -> tuple[Array, Array]:
    """`tr A` and `|A|^2` of `A = sigma sigma' / 2`."""
    sigma = control.spread(x, a)
    if sigma.ndim == 0:
        half = 0.5 * sigma * sigma
        return x.size * half, x.size * half * half
    matrix = 0.5 * sigma @ sigma.T
    return jnp.trace(matrix), jnp.sum(matrix * matrix)


def _bounded(operator: Operator, control: Control) -> tuple[float, float, Basis]:
    """Upper bounds for both quotients over all actions and points, and how they are known."""
    assert isinstance(control.actions, FiniteActions)
    found: list[tuple[Bound, Bound]] = []
    for action in control.actions.values:
        shapes = (_Shape(control, action, size) for size in (False, True))
        ratio, top = (_least(operator, shape) for shape in shapes)
        found.append((ratio, top))
    bounds = [bound for pair in found for bound in pair]
    basis = Basis.EXACT
    for weaker in (Basis.INTERVALS, Basis.SAMPLED):
        basis = weaker if any(bound.basis is weaker for bound in bounds) else basis
    wider = 1.0 + _ROUNDING
    # NumPy's maximum, unlike Python's, is no number where one of them is none: no diffusion at all.
    ratio, top = (float(np.max([-pair[i].value for pair in found])) * wider for i in (0, 1))
    return ratio, top, basis


def _least(operator: Operator, shape: _Shape) -> Bound:
    x = jnp.asarray(operator.domain.centre, float)
    if not dependencies(shape, x)[0]:
        return Bound(float(operator.constant(shape)), Basis.EXACT)
    return operator.least(shape)


def _given(
    problem: Problem, control: Control, epsilon: Any, largest: Any
) -> tuple[float, float] | None:
    """What a user knows, unless random points and actions show that it is not so."""
    if epsilon is None and largest is None:
        return None
    if epsilon is None or largest is None:
        raise ValueError("Give both epsilon and largest, or neither.")
    share = float(real("epsilon", epsilon, above=0.0, most=1.0))
    top = float(real("largest", largest, above=0.0))
    key = key_from(0xC0)
    points = np.asarray(drawn(problem.domain, key, _POINTS))
    actions = control.actions
    if isinstance(actions, FiniteActions):
        chosen = np.resize(np.asarray(actions.values), (_POINTS, actions.count))
    else:
        chosen = np.asarray(jr.normal(jr.fold_in(key, 1), (_POINTS, actions.count)))
    if isinstance(actions, BoxActions):
        shares = np.asarray(jr.uniform(jr.fold_in(key, 1), (_POINTS, actions.count)))
        chosen = actions.low + (actions.high - actions.low) * shares
    trace, square = (np.asarray(part) for part in _all_sizes(control, points, chosen))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio, seen = float(np.max(square / trace**2)), float(np.max(trace / square))
    if not np.isfinite(ratio) or not np.isfinite(seen):
        raise ValueError(
            "Cordes' condition asks for diffusion under every action: at a random point and action sigma is "
            "zero, or not finite."
        )
    if ratio * (problem.dim - 1 + share) > 1.0 + _SLACK:
        raise ValueError(
            f"epsilon={share:g} is too large: at a random point and action |A|^2 / (tr A)^2 is {ratio:.6g}."
        )
    if seen > top * (1.0 + _SLACK):
        raise ValueError(
            f"largest={top:g} is no upper bound: at a random point and action tr A / |A|^2 is {seen:.6g}."
        )
    return share, top


@compiled
def _all_sizes(control: Control, points: Any, actions: Any) -> tuple[Array, Array]:
    return eqx.filter_vmap(lambda x, a: _sizes(control, x, a))(points, actions)
