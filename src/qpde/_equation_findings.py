"""What the convergence theory asks of the equation: elliptic, Lipschitz, monotone."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from ._finding import Finding, Verdict
from ._form import fresh
from ._linear import coefficients
from ._measure import AbstractMeasure, Radial
from ._monotonicity import Monotonicity, monotonicity, suggest_measure
from ._operator import Operator, Structure
from ._problem import Problem


def elliptic_finding(problem: Problem, operator: Operator | None) -> Finding:
    """Whether second derivatives enter with a positive coefficient in every direction."""
    name = "elliptic"
    advice = "Where it is zero second derivatives do not enter; monotonicity must come from the term in u."
    if operator is None or operator.structure is Structure.NONLINEAR:
        *_, second = coefficients(problem, np.array([0.0, 0.1, 1.0, 10.0]))
        known = second[np.isfinite(second)]
        least, most = float(np.min(known)), float(np.max(known))
        text = (
            "At 64 random points, for 4 random u each, the coefficient of second derivatives lies "
        )
        text += f"between {max(least, 0.0):.3g} and {most:.3g}, along 32 directions and the axes."
        if least > 1e-9 * most:
            return Finding(name, Verdict.YES, "sampled", text)
        return Finding(name, Verdict.NO, "sampled", text, advice)
    bound = operator.ellipticity()
    if bound.proved and bound.value > 0:
        text = f"The coefficient of second derivatives is at least {bound.value:.4g} in every direction."
        return Finding(name, Verdict.YES, "proved", text)
    if bound.proved:
        bound = operator.sampled(lambda x: _smallest(operator, x))
    text = "At 22,000 random points the coefficient of second derivatives is at least "
    text += f"{max(bound.value, 0.0):.3g} in every direction."
    if bound.value > 1e-9:
        return Finding(name, Verdict.YES, "sampled", text)
    return Finding(name, Verdict.NO, "sampled", text, advice)


def _smallest(operator: Operator, x: Array) -> Array:
    second = operator.second(x)
    return second if second.ndim == 0 else jnp.linalg.eigvalsh(second)[0]


def lipschitz_finding(problem: Problem, operator: Operator | None) -> Finding:
    """Whether `L u` changes by at most a multiple of what `u` and its derivatives change by."""
    name = "Lipschitz"
    if operator is not None and operator.structure is Structure.LINEAR:
        if not operator.varies:
            text = "The equation is linear with constant coefficients."
            return Finding(name, Verdict.YES, "proved", text)

        def size(x: Array) -> Array:
            parts = (operator.second(x), operator.drift(x), operator.killing(x))
            return -sum((jnp.sum(jnp.abs(part)) for part in parts), jnp.zeros(()))

        bound = operator.least(size)
        how = "sum up to at most" if bound.proved else "at 22,000 random points sum up to at most"
        text = f"The equation is linear; the sizes of its coefficients {how} {-bound.value:.3g}."
        return Finding(name, Verdict.YES, "proved" if bound.proved else "sampled", text)
    if operator is not None and operator.jumps:
        text = "The equation has operations that can make jumps in u (where, sign, a comparison)."
        advice = "Write it with jnp.maximum or a smooth function, if it does not jump."
        return Finding(name, Verdict.UNKNOWN, "", text, advice)
    sizes = np.array([1.0, 1e3])
    value, grad, second = coefficients(problem, sizes)
    largest = [
        max(float(np.nanmax(np.abs(part[:, i]), initial=0.0)) for part in (value, grad, second))
        for i in range(2)
    ]
    text = "At random points the derivatives of the equation in u, grad u and Hess u are at most "
    text += f"{largest[0]:.2g} for u of size 1 and {largest[1]:.2g} for u of size 1,000."
    if largest[1] > 10 * largest[0]:
        advice = "Nothing to change: only the values matter that training passes through."
        return Finding(name, Verdict.NO, "sampled", text, advice)
    return Finding(name, Verdict.YES, "sampled", text)


def monotone_finding(
    problem: Problem, measure: AbstractMeasure
) -> tuple[Finding, Monotonicity | None]:
    """Whether the equation is monotone, which is what convergence rests on."""
    name = "monotone"
    if isinstance(measure, Radial) and measure.k < 2 <= problem.dim:
        text = "No radial law with k < 2 keeps even the Laplacian monotone."
        return Finding(name, Verdict.NO, "proved", text, "Use uniform points."), None
    found = monotonicity(problem, measure=measure)
    if found.constant is not None:
        proved, gamma = found.kind == "proved", f"{found.constant:.4g}"
        gamma = f"{'at least' if proved else 'about'} {gamma}"
        text = f"L draws functions together, with a constant of {gamma}: {_parts(found)}."
        basis = "proved" if proved else "sampled"
        return Finding(name, Verdict.YES, basis, text, "" if proved else found.reason), found
    if found.kind == "refuted" and found.witness is not None:
        quotient, error = found.witness.quotient, found.witness.standard_error
        text = (
            "Two functions v1, v2 with the same boundary values violate it: the mean of -(v1 - v2) "
            f"(L v1 - L v2) over that of (v1 - v2)^2 is {quotient:.3g} (standard error {error:.1g}, "
            "on fresh random points); it would have to be positive."
        )
        return Finding(name, Verdict.NO, "sampled", text, _other_law(problem)), found
    if found.structure is Structure.SEMILINEAR:
        conditional = _on_a_range(problem, measure)
        if conditional is not None and conditional.value_range is not None:
            low, high = conditional.value_range
            text = (
                "L draws functions together, with a constant of at least "
                f"{conditional.constant:.4g}, as long as values of u and of its approximations stay "
                f"between {low:.3g} and {high:.3g}, which nothing proves; over all values none was "
                "found."
            )
            advice = (
                "monotonicity(problem, value_range=(low, high)) gives it for a range that you know."
            )
            return Finding(name, Verdict.UNKNOWN, "conditional", text, advice), conditional
    advice = _other_law(problem) if found.structure is not Structure.NONLINEAR else ""
    return Finding(name, Verdict.UNKNOWN, "", found.reason, advice), found


def _parts(found: Monotonicity) -> str:
    """The parts of a constant in words."""
    drift = "" if not found.drift else f", {found.drift:.4g} from drift, varying diffusion and law"
    return (
        f"{found.poincare:.4g} from diffusion and the size of the domain, {found.discount:.4g} from the term "
        f"in u{drift}"
    )


def _on_a_range(problem: Problem, measure: AbstractMeasure) -> Monotonicity | None:
    """A constant on the range of the boundary data, widened by its width (at least 1), or by a tenth."""
    domain = fresh(problem.domain)

    @eqx.filter_jit
    def values(key: Any) -> Array:
        return jax.vmap(problem.boundary.value)(domain.sample_boundary(key, 4_096))

    with jax.enable_x64(True):
        data = np.asarray(values(jr.key(0, impl="threefry2x32")))
    low, high = float(data.min()), float(data.max())
    for share in (1.0, 0.1):
        more = share * max(high - low, 1.0)
        found = monotonicity(problem, measure=measure, value_range=(low - more, high + more))
        if found.proved:
            return found
    return None


def _other_law(problem: Problem) -> str:
    """Advice where another law of points makes the equation monotone."""
    law = suggest_measure(problem)
    if law is None:
        return ""
    found = monotonicity(problem, measure=law)
    if found.constant is None:
        return ""
    how = "at least" if found.kind == "proved" else "about (sampled)"
    weak = ", too small for useful error bounds" if found.constant < 1e-6 else ""
    return (
        "Draw points from the stationary law: under measure=qpde.suggest_measure(problem) the equation is "
        f"monotone with a constant of {how} {found.constant:.4g}{weak}."
    )
