"""The bound in the largest error, by the maximum principle.

`sup |Q - u| <= sup |L Q| min(sup E tau, 1 / inf c) + sup |Q - f| on the boundary`; `tau` is the exit time of
the process that the operator generates. In time, with `L u = F - k u_t` and `-dF/du >= c` of any sign,
`sup |Q - u| <= sup |L Q| (1 - e^(-c T / k)) / c`: derivatives of `u` may enter as they like.

**At the starting point of the whole space**, in any dimension. Let `X` be the diffusion that the linear part
of `L u = k u_r + A : Hess u + b . grad u + f(x, t, u)` generates, `r` the time since its start and
`v = Q - u`, which vanishes where data are given. Along `X`, by Ito's formula,

    k v(start) = E int_0^T exp(int_0^r f_u / k) L Q dr,

with `f_u` the mean derivative of `f` between `Q` and `u`. So, where `f_u <= K`,

    |v(start)| <= E int_0^T e^(K r / k) |L Q| dr / k,

for a degenerate diffusion too. There is no Poincaré constant, and no other that grows with the dimension. The
points are those of training: `r` is uniform and `X_r` has its exact law, so that the integral is a mean.
Where that law is only simulated the word is weaker.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._boundary.around import SquareMean
from .._boundary.smear import Smeared
from .._equation.exit_time import amplification, exit_time
from .._equation.operator import Basis, Bound, Operator, Structure
from .._monotone.in_time import growth_over
from .._precision import cast
from .._problem.measure import Uniform
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._program.interval import Unbounded
from .certificate import Certificate, Kind, Norm
from .conditions import held_range, said_of
from .edge import boundary_gap
from .peak import hidden_peaks, search_peak
from .residual import (
    CELLS,
    enclosed_residual,
    refuse_or_assume_smooth,
    sample_residual,
    value_range,
)

# The variance of `|L Q|`, which has no bound in the whole space, is assumed to be at most this many times
# as large as that of the points.
_VARIANCE = 4.0
# Exponents of growth beyond which a bound says nothing.
_MOST = 600.0
_NOTHING = "nothing but the equation and its smooth solution"


def sup_bound(
    solution: Solution,
    rigorous: bool,
    heuristic: bool,
    values: tuple[float, float] | None = None,
) -> Certificate:
    """`sup |L Q|` times the longest mean exit time, or over the smallest killing rate."""
    if solution.problem.order == 4:
        raise ValueError(
            "Equations of fourth order have no maximum principle, so that there is no bound for the largest "
            "error. Take qpde.certify(solution), in L2."
        )
    if solution.problem.domain.times is None:
        factor, spread, assumptions = _sup_factor(solution.problem.operator, values)
    else:
        factor, spread, assumptions = _in_time(solution.problem, values)
    assumptions += held_range(solution, values, rigorous).words
    assumptions += refuse_or_assume_smooth(solution, rigorous, heuristic)
    edge = boundary_gap(solution)
    assumptions += edge.assumptions
    if rigorous:
        residual, size = float(np.max(enclosed_residual(solution)[0])), None
    else:
        # The largest |L Q| itself: what the law of training makes of it does not matter here.
        sample = sample_residual(solution, Uniform(solution.problem.domain))
        residual = search_peak(solution, sample) + hidden_peaks(solution, sample)
        size = len(sample.residual)
        assumptions.append(
            "the largest |L Q| of random points and of a search from the worst of them is the largest"
        )
    low, high = value_range(solution)
    bound, top = residual * factor + spread * edge.size, max(abs(low), abs(high))
    return Certificate(
        bound=bound,
        relative_bound=bound / (top - bound) if top > bound else None,
        norm=Norm.SUP,
        kind=Kind.HEURISTIC if assumptions else Kind.RIGOROUS,
        confidence=None,
        residual=residual,
        factor=factor,
        assumptions=(*(assumptions or [_NOTHING]), *said_of(solution)),
        sample_size=size,
        boundary=spread * edge.size,
        stronger=_stronger(solution, assumptions, rigorous),
    )


def _stronger(solution: Solution, assumptions: list[str], rigorous: bool) -> str:
    if rigorous or not assumptions or solution.problem.dim not in CELLS:
        return ""
    return "rigorous=True bounds L Q by interval arithmetic."


def _sup_factor(
    operator: Operator, values: tuple[float, float] | None
) -> tuple[float, float, list[str]]:
    """What the maximum principle multiplies `sup |L Q|` by, and errors on the boundary; what it assumes."""
    if operator.structure is Structure.NONLINEAR:
        factor, assumptions = _damped(operator, values)
        return factor, 1.0, assumptions
    if operator.structure is Structure.LINEAR:
        values = None
    elif values is None:
        values = (-np.inf, np.inf)
    killing, time = operator.least(operator.killing, values), exit_time(operator)
    spread = amplification(killing, time)
    if spread is None:
        raise ValueError(
            "No bound for the error: the maximum principle needs a killing rate c >= 0, or one so little "
            f"below that it does not matter before a walk leaves; here it falls to {killing.value:.3g}, and "
            f'a walk may take {time.value:.3g}. Try norm="l2".'
        )
    factor = Bound(spread.value * time.value, time.basis if spread.proved else spread.basis)
    if killing.value > 0 and 1 / killing.value < factor.value:
        factor = Bound(1 / killing.value, killing.basis)
    if not math.isfinite(factor.value):
        raise ValueError(
            "No bound for the error: the drift keeps the process inside, as far as a quadratic function "
            'tells, and there is no killing. Try norm="l2".'
        )
    assumptions = [] if factor.proved else ["coefficients at random points are representative"]
    if not killing.proved:
        assumptions.append("the killing rate is nowhere lower than at random points")
    assumptions += _elliptic(operator)
    return factor.value, spread.value, assumptions


def _in_time(
    problem: Problem, values: tuple[float, float] | None
) -> tuple[float, float, list[str]]:
    """The same of an evolution equation, from its smallest damping, which may be negative."""
    operator, times, assumptions = problem.operator, problem.domain.times, list[str]()
    if operator.structure is Structure.NONLINEAR:
        if operator.jumps:
            raise ValueError("No bound for the error: the equation may jump as u changes.")
        try:
            killing = Bound(operator.damping(values), Basis.INTERVALS)
        except Unbounded as error:
            raise ValueError(
                f"No bound for the error: the damping -dF/du has no bound. {error}"
            ) from None
        assumptions.append("the equation is elliptic at all jets, as at random ones")
    else:
        linear = operator.structure is Structure.LINEAR
        every = None if linear else values or (-np.inf, np.inf)
        killing = operator.least(operator.killing, every)
        assumptions += _elliptic(operator)
    if not killing.proved:
        assumptions.append("the killing rate is nowhere lower than at random points")
    end = 0.0 if times is None else float(times.end)
    factor, spread = growth_over(float(problem.rate), killing.value, end)
    if not math.isfinite(factor):
        raise ValueError(
            "No bound for the error: over this horizon the equation may grow beyond all bounds. A "
            "value_range that you know may help."
        )
    return factor, spread, assumptions


def _elliptic(operator: Operator) -> list[str]:
    """What is assumed of the diffusion matrix; refused where it is negative."""
    alpha = operator.ellipticity()
    if alpha.proved and alpha.value < 0:
        raise ValueError(
            "No bound for the error: the equation is not proved to be elliptic, its diffusion matrix has an "
            f"eigenvalue of {alpha.value:.3g} or none that could be bounded better."
        )
    return [] if alpha.proved else ["the diffusion matrix is nowhere negative, as at random points"]


def _damped(operator: Operator, values: tuple[float, float] | None) -> tuple[float, list[str]]:
    """Of an equation that is nonlinear in derivatives: one over its smallest damping, `inf -dF/du`.

    At a maximum of `u - Q` the smooth `Q` serves as a test function, and ellipticity gives
    `0 <= F(Q + t) <= L Q - c t` with `t = u - Q`; likewise at a minimum. `u` is the viscosity solution.
    """
    if operator.jumps:
        raise ValueError("No bound for the error: the equation may jump as u changes.")
    try:
        damping = operator.damping(values)
    except Unbounded as error:
        raise ValueError(
            f"No bound for the error: the damping -dF/du has no bound. {error}"
        ) from None
    if not damping > 0:
        raise ValueError(
            "No bound for the error: the equation is nonlinear in derivatives of u, and the maximum "
            "principle then asks that it falls in u at a rate above zero everywhere; the rate found is "
            f"{damping:.3g}."
        )
    return 1 / damping, ["the equation is elliptic at all jets, as at random ones"]


def value_bound(
    solution: Solution,
    confidence: float,
    values: tuple[float, float] | None,
    heuristic: bool,
) -> Certificate:
    """The mean of `e^(K r / k) |L Q|` along the diffusion, times `T / k`."""
    problem, operator = solution.problem, solution.problem.operator
    paths: Any = problem.domain  # which follows paths: others have another norm
    rate = float(problem.rate)
    if not solution.trial.exact_boundary:
        raise ValueError("No bound for the error: this rule leaves the data to a penalty.")
    if not isinstance(solution.measure, Uniform):
        raise ValueError("The bound at a point is made under the law of the diffusion only.")
    if operator.structure is Structure.NONLINEAR:
        raise ValueError(
            "No bound for the error at the starting point: derivatives of u enter nonlinearly, for which the "
            "diffusion of the linear part is not enough."
        )
    rough = refuse_or_assume_smooth(solution, False, heuristic)
    growth, gaps = _growth(solution, values)
    end = float(paths.end)
    sample = sample_residual(solution)
    run = sample.last if paths.backward else end - sample.last
    residual = np.abs(sample.residual) * np.exp(
        growth * (run - max(0.0, math.copysign(end, growth)))
    )
    # Cantelli's inequality: a mean of independent numbers, and no more than their variance.
    risk, count = 1.0 - confidence, len(residual)
    spread = math.sqrt(_VARIANCE * float(np.var(residual, ddof=1)) * (1.0 - risk) / (count * risk))
    mean = float(np.mean(residual)) + spread
    factor = math.exp(max(growth, 0.0) * end) * end / rate
    miss = _carried_miss(problem, abs(growth) * rate * factor)
    bound = factor * mean + miss
    trial = cast(solution.trial, "float64")
    size = abs(float(trial.value(jnp.asarray(paths.start))))
    if not paths.law.exact:
        gaps.append("paths in steps of Euler and Maruyama have the law of the diffusion")
    guessed = bool(rough or gaps)
    seen = ["data are carried inside as exactly as a finer rule says"] if miss else []
    assumptions = (
        "Q and u grow no faster than polynomials, so that Ito's formula holds",
        f"the variance of |L Q| is at most {_VARIANCE:g} times that at the points",
        *problem.seen_of_data,
    )
    return Certificate(
        bound=bound,
        relative_bound=bound / (size - bound) if size > bound else None,
        norm=Norm.VALUE,
        kind=Kind.HEURISTIC if guessed else Kind.ASSUMING,
        confidence=None if guessed else confidence,
        residual=mean,
        factor=factor,
        assumptions=(*assumptions, *seen, *rough, *gaps, *said_of(solution)),
        sample_size=count,
        boundary=miss,
    )


def _carried_miss(problem: Problem, grown: float) -> float:
    """What data carried by rules of Gauss are off in the value, and through the reaction in `L Q`."""
    field = problem.boundary
    if isinstance(field, Smeared) and isinstance(field.mean, SquareMean):
        return (1.0 + grown) * float(field.mean.miss)
    return 0.0


def _growth(solution: Solution, values: tuple[float, float] | None) -> tuple[float, list[str]]:
    """The largest derivative of the equation in `u` over the factor of `u.dt`, and what is guessed of it."""
    operator, guesses = solution.problem.operator, list[str]()
    linear = operator.structure is Structure.LINEAR
    damping = operator.least(operator.killing, None if linear else values or (-np.inf, np.inf))
    if values is not None and not linear:
        guesses.append(f"u and Q take values from {values[0]:.4g} to {values[1]:.4g}")
    if not damping.proved:
        guesses.append("the derivative in u is nowhere larger than at random points")
    growth, times = -damping.value / float(solution.problem.rate), solution.problem.domain.times
    if not math.isfinite(growth) or (times is not None and growth * float(times.end) > _MOST):
        raise ValueError(
            "No bound for the error: the derivative of the equation in u is not bounded from above, or so "
            "large that the bound says nothing. A value_range=(low, high) that you know may help."
        )
    return growth, guesses
