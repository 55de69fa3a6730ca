"""`certify`: the bound that a solution's residual gives.

- `l2`: `||Q - u||_mu <= ||L Q||_mu / gamma` with the monotonicity constant `gamma`.
- `h2`: `||Hess(Q - u)||`, for Bellman equations under Cordes' condition (see `_monotone/cordes.py`).
- `sup`: by the maximum principle (see `_trust/sup.py`).
- `last`: in L2 at the last instant of an evolution problem (see `_monotone/in_time.py`).
"""

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from .._arguments import a_range, an_instance, flag, one_of, real
from .._equation.operator import Structure
from .._monotone.cordes import cordes
from .._monotone.in_time import Weight, weight_of
from .._monotone.monotonicity import Ground, Monotonicity
from .._monotone.monotonicity import monotonicity as find_monotonicity
from .._monotone.witness import find_witness
from .._precision import cast, x64
from .._problem.measure import Uniform
from .._problem.solution import Solution
from .certificate import Certificate, Kind, Norm
from .conditions import WITHIN, held_range, said_of
from .edge import boundary_term
from .equation_findings import monotone_finding
from .peak import MARGIN, hidden_peaks, search_peak
from .residual import (
    CELLS,
    POWER,
    cost_of_range,
    enclosed_residual,
    growth,
    largest_weight,
    last_sizes,
    mean_bounds,
    pairs,
    proved_peak,
    refuse_or_assume_smooth,
    sample_residual,
    value_range,
)
from .sup import sup_bound, value_bound

# A bound without an assumption is taken unless it is this many times as large as the one with it.
_WORTH = 10.0
_LAW = "the error is taken under the law of training"


@x64()
def certify(
    solution: Solution,
    *,
    confidence: float = 0.99,
    norm: str | None = None,
    monotonicity: Monotonicity | None = None,
    value_range: tuple[float, float] | None = None,
    rigorous: bool = False,
    heuristic: bool = False,
) -> Certificate:
    """A bound for the error of a solution.

        >>> certify(solution)
        ||Q - u|| in L2 <= ...

    The strongest word that can be earned with a bound of use is taken; `certificate.stronger` says what
    would earn a stronger one.

    **Arguments**

    - `confidence`: of the statistical part.
    - `norm`: `"l2"`, under the law that the solution was trained with, `"sup"` (which needs no constant), or
      `"h2"`, of all second derivatives (under Cordes' condition); of an evolution problem `"l2"` is over
      space and time, and `"last"` at the last instant; in the whole space it is `"value"`, the error at the
      starting point.
    - `monotonicity`: the constant to divide by, where you have asked for it with what you know of the
      equation (see `qpde.monotonicity`).
    - `value_range`: values between which you know `u` to lie, for equations that are nonlinear in it.
    - `rigorous`: bound `L Q` by interval arithmetic instead of sampling; up to three dimensions.
    - `heuristic`: without a proved constant give an estimate of the error instead of refusing.
    """
    if norm is None:
        norm = "l2"
        if isinstance(solution, Solution) and solution.problem.domain.follows_paths:
            norm = "value"
    confidence = _check(solution, confidence, norm, monotonicity, rigorous, heuristic)
    if value_range is not None:
        value_range = a_range("value_range", value_range)
    if monotonicity is not None and value_range is not None:
        raise ValueError("Give value_range to qpde.monotonicity, or to certify, not to both.")
    solution = dataclasses.replace(solution, trial=solution.trial.by_values())
    if norm == Norm.SUP:
        return sup_bound(solution, rigorous, heuristic, value_range)
    if norm == Norm.VALUE:
        return value_bound(solution, confidence, value_range, heuristic)
    if monotonicity is None and value_range is not None:
        monotonicity = find_monotonicity(
            solution.problem, measure=solution.measure, value_range=value_range
        )
    if norm == Norm.H2:
        return _h2(solution, confidence, monotonicity, rigorous)
    return _l2(solution, confidence, monotonicity, rigorous, heuristic, norm == Norm.LAST)


def _h2(
    solution: Solution, confidence: float, given: Monotonicity | None, rigorous: bool
) -> Certificate:
    """The L2 bound times `lambda_1`: both come from one for `||Lap(Q - u)||`."""
    if given is None:
        given = find_monotonicity(solution.problem, measure=solution.measure)
    if given.cordes is None:
        found = cordes(solution.problem)
        raise ValueError(
            'norm="h2" is for Bellman equations that are proved to satisfy Cordes\' condition. '
            f"{found.reason} See qpde.cordes."
        )
    plain = _l2(solution, confidence, given, rigorous, False, False)
    if plain.boundary:
        raise ValueError(
            'norm="h2" needs exact boundary values; these are smoothed, and what they miss has second '
            "derivatives of any size."
        )
    scale = given.cordes.eigenvalue
    return dataclasses.replace(
        plain,
        bound=scale * plain.bound,
        relative_bound=None,
        norm=Norm.H2,
        factor=scale * plain.factor,
    )


def _check(
    solution: Any, confidence: Any, norm: Any, monotonicity: Any, rigorous: Any, heuristic: Any
) -> float:
    """Refuse wrong arguments; the confidence as a number."""
    an_instance("solution", solution, Solution, "qpde.solve(problem)")
    share = float(real("confidence", confidence, least=0.5, most=1.0))
    if share == 1:
        raise ValueError(f"confidence lies between 0.5 and 1, below 1, got {confidence!r}.")
    evolves = solution.problem.domain.times is not None
    allowed = ("l2", "sup", "last") if evolves else ("l2", "sup", "h2")
    one_of("norm", norm, ("value",) if solution.problem.domain.follows_paths else allowed)
    if monotonicity is not None:
        an_instance("monotonicity", monotonicity, Monotonicity, "qpde.monotonicity(problem)")
    flag("heuristic", heuristic)
    if flag("rigorous", rigorous) and solution.problem.dim not in CELLS:
        raise ValueError(
            f"Rigorous bounds are made up to {max(CELLS)} dimensions, the problem has "
            f"{solution.problem.dim}. Leave rigorous=True out."
        )
    return share


def _l2(
    solution: Solution,
    confidence: float,
    given: Monotonicity | None,
    rigorous: bool,
    heuristic: bool,
    last: bool,
) -> Certificate:
    """`||L Q|| / gamma`. Whatever is not proved on the way makes the word weaker, and is named."""
    _refuse_l2(solution, rigorous)
    gaps = _judge_growth(solution, heuristic)
    rough = refuse_or_assume_smooth(solution, rigorous, heuristic)
    constant, conditions, guessed = _constant(solution, given)
    held = held_range(solution, given.value_range, rigorous) if given is not None else WITHIN
    gamma, estimated = _proved_or_estimated(solution, constant, heuristic)
    weight = _weight(solution, constant, last)
    factor = 1.0 / gamma
    if weight is not None:
        factor = weight.last_factor if last else weight.factor
    edge = boundary_term(solution, heuristic)
    extends = "the boundary data extend to H2"
    if solution.problem.domain.times is not None:
        extends = "the terms of the equation in Q - u are square integrable"
    assumptions = [extends, *rough, *conditions, *held.words, *estimated]
    # A range of values that Q suggests is not proved to be that of u.
    sure = constant.proved and not (gaps or rough or guessed or edge.guessed)
    mean = (
        _rigorous_mean(solution) if rigorous else _sampled_mean(solution, confidence, weight, last)
    )
    assumptions += [*edge.assumptions, *mean.assumptions, *said_of(solution)]
    assumed = mean.kind is Kind.ASSUMING or bool(edge.assumptions) or not held.proved
    kind = Kind.HEURISTIC if not sure else Kind.ASSUMING if assumed else mean.kind
    bound = factor * mean.residual + edge.size
    relative = bound / (mean.low_size - bound) if mean.low_size > bound else None
    return Certificate(
        bound=bound,
        relative_bound=relative,
        norm=Norm.LAST if last else Norm.L2,
        kind=kind,
        confidence=confidence if kind in (Kind.STATISTICAL, Kind.ASSUMING) else None,
        residual=mean.residual,
        factor=factor,
        assumptions=tuple(assumptions),
        sample_size=mean.points,
        monotonicity=constant,
        boundary=edge.size,
        stronger=mean.stronger if sure else "",
        weight=weight,
    )


def _weight(solution: Solution, constant: Monotonicity, last: bool) -> Weight | None:
    """The weight in time of an evolution problem's bound; chosen from constants, before points are drawn."""
    if not last:
        return constant.weight
    if constant.spatial is None:
        raise ValueError("At the last instant a bound is made from a constant in time only.")
    weight = weight_of(solution.problem, constant.spatial, last=True)
    if weight is None:
        raise ValueError("The equation may grow beyond all bounds over this horizon.")
    return weight


class _Mean(NamedTuple):
    """A bound for `||L Q||`, a lower one for `||Q||`, and what they are worth."""

    residual: float
    low_size: float
    kind: Kind
    assumptions: list[str]
    points: int | None
    stronger: str


def _sampled_mean(
    solution: Solution, confidence: float, in_time: Weight | None, last: bool
) -> _Mean:
    """From a sample, with the range of `(L Q)^2` proved where that does not spoil the bound."""
    # Two statements, of L Q and of Q, at half the risk each.
    sample, risk = sample_residual(solution), 0.5 * (1.0 - confidence)
    squares = sample.squares(in_time)
    weight = largest_weight(solution)
    seen = float(np.max(sample.weight))
    peak = MARGIN * search_peak(solution, sample) + hidden_peaks(solution, sample)
    sizes = last_sizes(solution) if last else sample.weight * sample.value**2
    low_size = math.sqrt(mean_bounds(pairs(sizes), float(np.max(sizes)), risk)[0])
    assumptions = [] if isinstance(solution.measure, Uniform) else [_LAW]
    found = math.sqrt(mean_bounds(squares, (weight or MARGIN * seen) * peak**2, risk)[1])
    if weight is not None:
        # Above this limit what no point has seen would spoil the bound.
        limit = math.sqrt(_WORTH**2 * found**2 / (weight * cost_of_range(squares, risk)))
        proved = proved_peak(solution, limit)
        if proved is not None:
            sure = math.sqrt(mean_bounds(squares, weight * proved**2, risk)[1])
            return _Mean(sure, low_size, Kind.STATISTICAL, assumptions, len(sample.residual), "")
    assumptions.append(
        f"|L Q| is nowhere above {peak:.3g}, {MARGIN:g} times the largest that points and a search from the "
        "worst of them found"
    )
    if weight is None:
        assumptions.append(f"no weight is above {MARGIN * seen:.3g}, {MARGIN:g} times the largest")
    stronger = ""
    if solution.problem.dim in CELLS:
        stronger = "rigorous=True bounds L Q by interval arithmetic alone."
    return _Mean(found, low_size, Kind.ASSUMING, assumptions, len(sample.residual), stronger)


def _rigorous_mean(solution: Solution) -> _Mean:
    largest, share = enclosed_residual(solution)
    # Squares are taken of shares of the largest, lest they underflow.
    top = float(np.max(largest))
    squares = float(np.sum((largest / top) ** 2)) if 0 < top < math.inf else 1.0
    residual = top * math.sqrt(squares * share * (1 + 1e-9))
    return _Mean(residual, 0.0, Kind.RIGOROUS, [], None, "")


def _refuse_l2(solution: Solution, rigorous: bool) -> None:
    """Refuse what no L2 bound can be made of."""
    if not solution.trial.exact_boundary:
        raise ValueError(
            "This solution was trained with a soft boundary: Q - u does not vanish there, as the L2 bound "
            'needs. certify(solution, norm="sup") takes the mismatch into account.'
        )
    if rigorous and not isinstance(solution.measure, Uniform):
        raise ValueError("Rigorous L2 bounds are made under the uniform law only.")


def _judge_growth(solution: Solution, heuristic: bool) -> bool:
    """Whether `L Q` grows too quickly at the boundary to be square integrable; refused but by a heuristic."""
    power = growth(solution.trial, solution.problem.domain)
    if power > POWER and not heuristic:
        raise ValueError(
            f"No bound for the error: towards the boundary L Q grows like distance^-{power:.2f}, which "
            "is not square integrable, so that Q is not in H2. Choose a smoother extension of the boundary "
            "data; certify(solution, heuristic=True) gives an estimate without proof."
        )
    return not power <= POWER


def _constant(
    solution: Solution, given: Monotonicity | None
) -> tuple[Monotonicity, list[str], bool]:
    """The monotonicity constant, the conditions it holds under, and whether one of them is a guess."""
    if given is None:
        constant, guesses = _find_constant(solution)
        return constant, guesses, bool(guesses)
    if given.measure is not None and not eqx.tree_equal(given.measure, solution.measure):
        raise ValueError(
            f"The constant belongs to the law {given.measure!r}, the solution was trained under "
            f"{solution.measure!r}. Give monotonicity(problem, measure=solution.measure)."
        )
    if given.operator is None or not given.operator.same_as(solution.problem.operator):
        raise ValueError(
            "The constant belongs to another equation or domain. Give monotonicity(solution.problem)."
        )
    return given, [given.reason.rstrip(".").lower()] if given.proved and given.reason else [], False


def _proved_or_estimated(
    solution: Solution, constant: Monotonicity, heuristic: bool
) -> tuple[float, list[str]]:
    """The number to divide by, and what is assumed where it is no proved constant."""
    if constant.constant is not None and constant.proved:
        return constant.constant, []
    if not heuristic:
        raise ValueError(_missing(solution, constant))
    return _estimate(solution, constant)


def _find_constant(solution: Solution) -> tuple[Monotonicity, list[str]]:
    """The problem's constant; of a semilinear one, perhaps on the range of values that Q takes."""
    problem = solution.problem
    found = find_monotonicity(problem, measure=solution.measure)
    if found.proved or found.structure is not Structure.SEMILINEAR:
        return found, []
    low, high = value_range(solution)
    wider = (low - 0.5 * (high - low), high + 0.5 * (high - low))
    conditional = find_monotonicity(problem, measure=solution.measure, value_range=wider)
    if not conditional.proved:
        return found, []
    return conditional, [
        f"u takes values from {wider[0]:.4g} to {wider[1]:.4g} (Q: {low:.4g} to {high:.4g})"
    ]


def _missing(solution: Solution, constant: Monotonicity) -> str:
    """What keeps a bound from being proved, what can be had instead, and what `explain` advises."""
    what = {
        Ground.SAMPLED: "a proved monotonicity constant (coefficients were only sampled)",
        Ground.REFUTED: "monotonicity, which a pair of functions violates at random points",
        Ground.UNKNOWN: "a monotonicity constant",
    }[constant.kind]
    reason = f" {constant.reason}" if constant.reason else ""
    finding, _ = monotone_finding(solution.problem, solution.measure)
    arrow = f" -> {finding.advice}" if finding.advice else ""
    return (
        f"No bound for the error: what is missing is {what}.{reason}{arrow} "
        "certify(solution, heuristic=True) gives an estimate without proof."
    )


def _estimate(solution: Solution, constant: Monotonicity) -> tuple[float, list[str]]:
    """A constant for a heuristic: sampled, or the worst quotient of a search around Q."""
    if constant.constant is not None:
        return constant.constant, ["coefficients at random points are representative"]
    base = cast(solution.trial, "float64")
    witness = find_witness(solution.problem, solution.measure, base)
    if witness is None or witness.quotient <= 0:
        raise ValueError(
            "Not even an estimate: around this solution the equation is not monotone "
            f"({'no quotient is finite' if witness is None else repr(witness)})."
        )
    words = "the worst of 48 random directions around Q is the worst of all"
    return witness.quotient, [words, "the equation is nearly linear between Q and u"]
