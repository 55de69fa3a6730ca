"""Certificates: bounds for the error of a solution, with their kind, confidence and assumptions.

- `l2`: `||Q - u||_mu <= ||L Q||_mu / gamma` with the monotonicity constant `gamma`.
- `sup`: `sup |Q - u| <= sup |L Q| min(sup E tau, 1 / inf c) + sup |Q - f| on the boundary`, by the maximum
  principle; `tau` is the exit time of the process that the operator generates.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import norm as normal_law

from ._domain import Box, Interval
from ._enclosure import Unbounded
from ._form import fresh
from ._measure import Uniform
from ._monotonicity import Monotonicity, monotonicity
from ._network import cast
from ._operator import Bound, Operator, Structure
from ._residual import (
    CELLS,
    POWER,
    cell_bounds,
    edge_gap,
    growth,
    mean,
    rough_parts,
    sample_residual,
    value_range,
)
from ._solution import Solution
from ._witness import find_witness

# A mean is not resolved if one point carries more than this share of it.
_SHARE = 0.02


@dataclasses.dataclass(frozen=True)
class Certificate:
    """`||Q - u|| <= bound`, and what that rests on.

    `kind` is `rigorous` (interval arithmetic), `statistical` (holds with `confidence`, which is that of a
    normal law for the mean over `sample_size` points) or `heuristic` (an estimate; `assumptions` say why).
    `relative_bound` is `bound / (||Q|| - bound)`, which bounds `||Q - u|| / ||u||`; None where that is not
    positive. `residual` is the bound for the norm of `L Q`, `factor` what it was multiplied by.
    """

    bound: float
    relative_bound: float | None
    norm: str
    kind: str
    confidence: float | None
    residual: float
    factor: float
    assumptions: tuple[str, ...]
    sample_size: int | None
    monotonicity: Monotonicity | None = None

    def __repr__(self) -> str:
        words = {"l2": "||Q - u|| in L2", "sup": "sup |Q - u|"}[self.norm]
        relative = "" if self.relative_bound is None else f" (relative: {self.relative_bound:.3g})"
        sure = "" if self.confidence is None else f", {100 * self.confidence:g} % confidence"
        size = "" if self.sample_size is None else f" on {self.sample_size:,} points"
        constant = f"times {self.factor:.4g}"
        if self.monotonicity is not None:
            constant = f"over the constant {1 / self.factor:.6g} ({self.monotonicity.kind})"
        return (
            f"{words} <= {self.bound:.3g}{relative}: {self.kind}{sure}\n"
            f"  |L Q| <= {self.residual:.3g}{size}, {constant}; assumes: {'; '.join(self.assumptions)}"
        )

    def summary(self) -> dict[str, Any]:
        """Plain values, for files."""
        values = dataclasses.asdict(dataclasses.replace(self, monotonicity=None))
        constant = self.monotonicity
        values["monotonicity"] = (
            None
            if constant is None
            else {"constant": constant.constant or 1 / self.factor, "kind": constant.kind}
        )
        return values | {"assumptions": list(self.assumptions)}


def certify(
    solution: Solution,
    *,
    confidence: float = 0.99,
    norm: str = "l2",
    constant: Monotonicity | None = None,
    rigorous: bool = False,
    heuristic: bool = False,
) -> Certificate:
    """A bound for the error of a solution.

        >>> certify(solution)
        ||Q - u|| in L2 <= ...

    **Arguments**

    - `confidence`: of the statistical part.
    - `norm`: `"l2"`, under the law that the solution was trained with, or `"sup"` (which needs no constant).
    - `constant`: a monotonicity constant of your own making (see `monotonicity`).
    - `rigorous`: bound `L Q` by interval arithmetic instead of sampling; up to three dimensions.
    - `heuristic`: without a proved constant give an estimate of the error instead of refusing.
    """
    if not isinstance(solution, Solution):
        raise ValueError(f"certify takes a qpde.Solution, got {type(solution).__name__}.")
    if not 0.5 <= confidence < 1:
        raise ValueError(f"confidence lies between 0.5 and 1, got {confidence!r}.")
    if norm not in ("l2", "sup"):
        raise ValueError(f'norm is "l2" or "sup", got {norm!r}.')
    if rigorous and solution.problem.dim not in CELLS:
        raise ValueError(
            f"Rigorous bounds are made up to {max(CELLS)} dimensions, the problem has "
            f"{solution.problem.dim}. Leave rigorous=True out."
        )
    if norm == "sup":
        return _sup(solution, rigorous, heuristic)
    return _l2(solution, confidence, constant, rigorous, heuristic)


def _l2(
    solution: Solution,
    confidence: float,
    constant: Monotonicity | None,
    rigorous: bool,
    heuristic: bool,
) -> Certificate:
    if not solution.trial.exact_boundary:
        raise ValueError(
            "This solution was trained with a soft boundary: Q - u does not vanish there, as the L2 bound "
            'needs. certify(solution, norm="sup") takes the mismatch into account.'
        )
    if rigorous and not isinstance(solution.measure, Uniform):
        raise ValueError("Rigorous L2 bounds are made under the uniform law only.")
    power = growth(solution.trial, solution.problem.domain)
    if power > POWER and not heuristic:
        raise ValueError(
            f"No bound for the error: towards the boundary L Q grows like distance^-{power:.2f}, which "
            "is not square integrable, so that Q is not in H2. Choose a smoother extension of the boundary "
            "data; certify(solution, heuristic=True) gives an estimate without proof."
        )
    assumptions = ["the boundary data extend to H2"]
    rough = _judge_smoothness(solution, rigorous, heuristic)
    assumptions += rough
    guessed = False
    if constant is None:
        constant, more = _find_constant(solution)
        guessed = bool(more)
        assumptions += more
    elif constant.measure is not None and not eqx.tree_equal(constant.measure, solution.measure):
        raise ValueError(
            f"The constant belongs to the law {constant.measure!r}, the solution was trained under "
            f"{solution.measure!r}. Give monotonicity(problem, measure=solution.measure)."
        )
    elif constant.value_range is not None:
        low, high = constant.value_range
        assumptions.append(f"u and Q take values from {low:.4g} to {high:.4g}, as you say")
    gamma = constant.constant
    if gamma is None or not constant.proved:
        if not heuristic:
            raise ValueError(_missing(constant))
        gamma, more = _estimate(solution, constant)
        assumptions += more
    squares, sizes = sample_residual(solution)
    # Two statements, of L Q and of Q, at half the risk each.
    z = float(normal_law.ppf(0.5 + 0.5 * confidence))
    # A range of values that Q suggests is not proved to be that of u.
    sure = constant.proved and power <= POWER and not rough and not guessed
    kind = "statistical" if sure else "heuristic"
    low_size = math.sqrt(max(mean(sizes, -z), 0.0))
    if rigorous:
        residual, number = _rigorous_l2(solution), None
        kind = "rigorous" if kind == "statistical" else kind
    else:
        residual, number = math.sqrt(mean(squares, z)), len(squares)
        share = float(np.max(squares) / np.sum(squares))
        if share > _SHARE:
            kind = "heuristic"
            assumptions.append(
                f"no rare points matter (one of them carries {share:.0%} of the mean)"
            )
        if not isinstance(solution.measure, Uniform):
            assumptions.append("the error is taken under the law of training")
    bound = residual / gamma
    return Certificate(
        bound=bound,
        relative_bound=bound / (low_size - bound) if low_size > bound and not rigorous else None,
        norm="l2",
        kind=kind,
        confidence=confidence if kind == "statistical" else None,
        residual=residual,
        factor=1.0 / gamma,
        assumptions=tuple(assumptions),
        sample_size=number,
        monotonicity=constant,
    )


def _judge_smoothness(solution: Solution, rigorous: bool, heuristic: bool) -> list[str]:
    """Refuse a Q that may have kinks, or for a heuristic name what is then assumed."""
    with jax.enable_x64(True):
        trial = cast(fresh(solution.trial), "float64")
    found = rough_parts(trial, fresh(solution.problem.domain))
    if found and (rigorous or not heuristic):
        raise ValueError(
            f"No bound for the error: {' and '.join(found)} may have kinks or jumps inside the domain (abs, "
            "max, a choice, a root at zero), which L Q does not see. Write them smoothly, or extend boundary "
            "values by qpde.lift; certify(solution, heuristic=True) takes them as smooth."
        )
    return [f"{what} have no kinks or jumps inside, which L Q would not see" for what in found]


def _find_constant(solution: Solution) -> tuple[Monotonicity, list[str]]:
    """The problem's constant; of a semilinear one, perhaps on the range of values that Q takes."""
    problem = solution.problem
    found = monotonicity(problem, measure=solution.measure)
    if found.proved or found.structure is not Structure.SEMILINEAR:
        return found, []
    low, high = value_range(solution)
    wider = (low - 0.5 * (high - low), high + 0.5 * (high - low))
    conditional = monotonicity(problem, measure=solution.measure, value_range=wider)
    if not conditional.proved:
        return found, []
    return conditional, [
        f"u takes values from {wider[0]:.4g} to {wider[1]:.4g} (Q: {low:.4g} to {high:.4g})"
    ]


def _missing(constant: Monotonicity) -> str:
    """What keeps a bound from being proved, and what can be had instead."""
    what = {
        "sampled": "a proved monotonicity constant (coefficients were only sampled)",
        "refuted": "monotonicity, which a pair of functions refutes",
        "unknown": "a monotonicity constant",
    }[constant.kind]
    reason = f" {constant.reason}" if constant.reason else ""
    return (
        f"No bound for the error: what is missing is {what}.{reason} "
        "certify(solution, heuristic=True) gives an estimate without proof."
    )


def _estimate(solution: Solution, constant: Monotonicity) -> tuple[float, list[str]]:
    """A constant for a heuristic: sampled, or the worst quotient of a search around Q."""
    if constant.constant is not None:
        return constant.constant, ["coefficients at random points are representative"]
    with jax.enable_x64(True):
        base = cast(fresh(solution.trial), "float64")
    witness = find_witness(solution.problem, solution.measure, base)
    if witness is None or witness.quotient <= 0:
        raise ValueError(
            "Not even an estimate: around this solution the equation is not monotone "
            f"({'no quotient is finite' if witness is None else repr(witness)})."
        )
    words = "the worst of 48 random directions around Q is the worst of all"
    return witness.quotient, [words, "the equation is nearly linear between Q and u"]


def _rigorous_l2(solution: Solution) -> float:
    with jax.enable_x64(True):
        trial = cast(fresh(solution.trial), "float64")
    try:
        largest, share = cell_bounds(solution, trial.residual)
    except Unbounded as error:
        raise ValueError(f"No rigorous bound: {error} Leave rigorous=True out.") from None
    return math.sqrt(float(np.sum(largest**2)) * share * (1 + 1e-9))


def _sup(solution: Solution, rigorous: bool, heuristic: bool) -> Certificate:
    operator = Operator.of(solution.problem)
    if operator.structure is Structure.NONLINEAR:
        raise ValueError(
            "No bound for the error: the equation is nonlinear in derivatives of u, and the maximum "
            "principle is used here for linear and semilinear ones only."
        )
    values = (-np.inf, np.inf) if operator.structure is Structure.SEMILINEAR else None
    killing = operator.least(operator.killing, values)
    if killing.value < -1e-12:
        raise ValueError(
            "No bound for the error: the maximum principle needs a killing rate c >= 0, here it falls to "
            f'{killing.value:.3g}. Try norm="l2".'
        )
    factor = _exit_time(operator)
    if killing.value > 0 and 1 / killing.value < factor.value:
        factor = Bound(1 / killing.value, killing.how)
    if not math.isfinite(factor.value):
        raise ValueError(
            "No bound for the error: the drift keeps the process inside, as far as a quadratic function "
            'tells, and there is no killing. Try norm="l2".'
        )
    assumptions = [] if factor.proved else ["coefficients at random points are representative"]
    if not killing.proved:
        assumptions.append("the killing rate is nowhere negative, as at random points")
    assumptions += _judge_smoothness(solution, rigorous, heuristic)
    edge = 0.0
    if not solution.trial.exact_boundary:
        edge = edge_gap(solution)
        assumptions.append("the largest boundary mismatch of 10,000 random points is the largest")
    if rigorous:
        with jax.enable_x64(True):
            trial = cast(fresh(solution.trial), "float64")
        try:
            residual, size = float(np.max(cell_bounds(solution, trial.residual)[0])), None
        except Unbounded as error:
            raise ValueError(f"No rigorous bound: {error} Leave rigorous=True out.") from None
    else:
        squares, _ = sample_residual(solution)
        residual, size = math.sqrt(float(np.max(squares))), len(squares)
        assumptions.append("the largest |L Q| of random points is the largest")
    low, high = value_range(solution)
    bound, top = residual * factor.value + edge, max(abs(low), abs(high))
    return Certificate(
        bound=bound,
        relative_bound=bound / (top - bound) if top > bound else None,
        norm="sup",
        kind="heuristic" if assumptions else "rigorous",
        confidence=None,
        residual=residual,
        factor=factor.value,
        assumptions=tuple(assumptions or ["nothing but the equation and its smooth solution"]),
        sample_size=size,
    )


def _exit_time(operator: Operator) -> Bound:
    """A bound for the mean exit time: `w = k (R^2 - |x - m|^2)` has `L w <= -1` for a large enough `k`.

    `A : Hess w + b . grad w = -2 k (tr A + b . (x - m))`. In a box the same for each coordinate alone.
    """
    domain = operator.problem.domain
    centre, radius = (np.asarray(v) for v in domain.enclosing_ball)

    def spread(x: Array) -> Array:
        second = operator.second(x)
        trace = x.size * second if second.ndim == 0 else jnp.sum(second * jnp.eye(x.size))
        return trace + jnp.dot(operator.drift(x), x - centre)

    bounds = [_quotient(operator.least(spread), float(radius) ** 2)]
    if isinstance(domain, Box | Interval) and domain.dim <= 20:
        lower, upper = domain.enclosing_box
        for i, half in enumerate(0.5 * (np.asarray(upper) - np.asarray(lower))):

            def one(x: Array, i: int = i) -> Array:
                second = operator.second(x)
                own = second if second.ndim == 0 else second[i, i]
                return own + operator.drift(x)[i] * (x[i] - domain.centre[i])

            bounds.append(_quotient(operator.least(one), float(half) ** 2))
    return min(bounds, key=lambda bound: (bound.value, not bound.proved))


def _quotient(spread: Bound, square: float) -> Bound:
    value = square / (2 * spread.value) if spread.value > 0 else math.inf
    return Bound(value, spread.how)
