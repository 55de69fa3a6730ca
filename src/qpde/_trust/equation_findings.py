"""What the convergence theory asks of the equation: elliptic, Lipschitz, monotone."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._equation.operator import Operator, Structure, smallest_eigenvalue
from .._field.base import AbstractField
from .._field.jet import Jet, Quadratic
from .._field.linearise import linearise
from .._monotone.laws import suggest_measure
from .._monotone.monotonicity import Ground, Monotonicity, monotonicity
from .._precision import key_from
from .._problem.measure import AbstractMeasure, Radial
from .._problem.problem import Problem
from .finding import Answer, Evidence, Finding


def elliptic_finding(problem: Problem) -> Finding:
    """Whether second derivatives enter with a positive coefficient in every direction."""
    name = "elliptic"
    advice = "Where it is zero second derivatives do not enter; monotonicity must come from the term in u."
    operator = problem.operator
    if operator.structure is Structure.NONLINEAR:
        *_, second = coefficients(problem, np.array([0.0, 0.1, 1.0, 10.0]))
        known = second[np.isfinite(second)]
        least, most = float(np.min(known)), float(np.max(known))
        text = (
            "At 64 random points, for 4 random u each, the coefficient of second derivatives lies "
        )
        text += f"between {max(least, 0.0):.3g} and {most:.3g}, along 32 directions and the axes."
        if least > 1e-9 * most:
            return Finding(name, Answer.YES, Evidence.SAMPLED, text)
        return Finding(name, Answer.NO, Evidence.SAMPLED, text, advice)
    bound = operator.ellipticity()
    if bound.proved and bound.value > 0:
        text = f"The coefficient of second derivatives is at least {bound.value:.4g} in every direction."
        return Finding(name, Answer.YES, Evidence.PROVED, text)
    if bound.proved:
        bound = operator.sampled(smallest_eigenvalue(operator))
    text = "At 22,000 random points the coefficient of second derivatives is at least "
    text += f"{max(bound.value, 0.0):.3g} in every direction."
    if bound.value > 1e-9:
        return Finding(name, Answer.YES, Evidence.SAMPLED, text)
    return Finding(name, Answer.NO, Evidence.SAMPLED, text, advice)


def lipschitz_finding(problem: Problem) -> Finding:
    """Whether `L u` changes by at most a multiple of what `u` and its derivatives change by."""
    name, operator = "Lipschitz", problem.operator
    if operator.structure is Structure.LINEAR:
        if not operator.varies:
            text = "The equation is linear with constant coefficients."
            return Finding(name, Answer.YES, Evidence.PROVED, text)
        bound = operator.least(_MinusSize(operator))
        how = "sum up to at most" if bound.proved else "at 22,000 random points sum up to at most"
        text = f"The equation is linear; the sizes of its coefficients {how} {-bound.value:.3g}."
        return Finding(
            name, Answer.YES, Evidence.PROVED if bound.proved else Evidence.SAMPLED, text
        )
    if operator.jumps:
        text = "The equation has operations that can make jumps in u (where, sign, a comparison)."
        advice = "Write it with jnp.maximum or a smooth function, if it does not jump."
        return Finding(name, Answer.UNKNOWN, Evidence.NONE, text, advice)
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
        return Finding(name, Answer.NO, Evidence.SAMPLED, text, advice)
    return Finding(name, Answer.YES, Evidence.SAMPLED, text)


def order_finding(problem: Problem) -> Finding:
    """What the theory says of an equation of fourth order."""
    text = (
        "The equation is of fourth order, elliptic at random points. The theory is written out for second "
        "order; the paper's remark says that it extends, with more derivatives of activation, eta and data, "
        "higher moments of the hidden weights, and another argument where eta has a slope on the boundary: "
        "here eta^2 has none."
    )
    advice = "Second-order rules and certificates do not need it: rule=qpde.GaussNewton()."
    return Finding("order", Answer.UNKNOWN, Evidence.NONE, text, advice)


def monotone_finding(
    problem: Problem, measure: AbstractMeasure
) -> tuple[Finding, Monotonicity | None]:
    """Whether the equation is monotone, which is what convergence rests on."""
    name = "monotone"
    if isinstance(measure, Radial) and measure.k < 2 <= problem.space_dim:
        text = "No radial law with k < 2 keeps even the Laplacian monotone."
        return Finding(name, Answer.NO, Evidence.PROVED, text, "Use uniform points."), None
    found = monotonicity(problem, measure=measure)
    if found.cordes is not None:
        text = (
            "In the pairing with the Laplacian it is, with a proved constant of "
            f"{found.cordes.constant:.4g} (Cordes' condition, epsilon = {found.cordes.epsilon:.4g}). "
            "The theory of convergence asks for it in the L2 pairing, of which nothing is known."
        )
        advice = 'certify(solution, norm="h2") bounds second derivatives.'
        return Finding(name, Answer.UNKNOWN, Evidence.NONE, text, advice), found
    if found.constant is not None:
        proved, gamma = found.kind is Ground.PROVED, f"{found.constant:.4g}"
        gamma = f"{'at least' if proved else 'about'} {gamma}"
        text = f"L draws functions together, with a constant of {gamma}: {_parts(found)}."
        basis = Evidence.PROVED if proved else Evidence.SAMPLED
        return Finding(name, Answer.YES, basis, text, "" if proved else found.reason), found
    if found.kind is Ground.REFUTED and found.witness is not None:
        quotient, error = found.witness.quotient, found.witness.standard_error
        text = (
            "On random points two functions v1, v2 with the same boundary values violate it: the mean "
            f"of -(v1 - v2) (L v1 - L v2) over that of (v1 - v2)^2 is {quotient:.3g} (standard error "
            f"{error:.1g}); it would have to be positive. What the points miss could make it so."
        )
        return Finding(name, Answer.NO, Evidence.SAMPLED, text, _other_law(problem)), found
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
            return Finding(name, Answer.UNKNOWN, Evidence.CONDITIONAL, text, advice), conditional
    advice = _other_law(problem) if found.structure is not Structure.NONLINEAR else ""
    return Finding(name, Answer.UNKNOWN, Evidence.NONE, found.reason, advice), found


def _parts(found: Monotonicity) -> str:
    """The parts of a constant in words."""
    if found.weight is not None:
        return found.weight.words(found.spatial or 0.0)
    drift = "" if not found.drift else f", {found.drift:.4g} from drift, varying diffusion and law"
    return (
        f"{found.poincare:.4g} from diffusion and the size of the domain, {found.discount:.4g} from the term "
        f"in u{drift}"
    )


def _on_a_range(problem: Problem, measure: AbstractMeasure) -> Monotonicity | None:
    """A constant on the range of the boundary data, widened by its width (at least 1), or by a tenth."""
    data = np.asarray(_edge_values(problem.boundary, problem.domain, key_from(0)))
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
    how = "at least" if found.kind is Ground.PROVED else "about (sampled)"
    weak = ", too small for useful error bounds" if found.constant < 1e-6 else ""
    return (
        "Draw points from the stationary law: under measure=qpde.suggest_measure(problem) the equation is "
        f"monotone with a constant of {how} {found.constant:.4g}{weak}."
    )


@compiled(brief=True)
def _edge_values(
    boundary: AbstractField, domain: AbstractDomain, key: PRNGKeyArray
) -> Float[Array, " n"]:
    return jax.vmap(boundary.value)(domain.sample_boundary(key, 4_096))


class _MinusSize(eqx.Module):
    """Minus the sum of the sizes of all coefficients, whose lower bound is an upper bound for the sum."""

    operator: Operator

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        total = jnp.zeros((), x.dtype)
        for part in self.operator.coefficients(x):
            total = total - jnp.sum(jnp.abs(part))
        return total


_POINTS, _DIRECTIONS = 64, 32


def coefficients(problem: Problem, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`-c` (p, s), `b` (p, s, d) and `A` along directions and axes (p, s, k), at random points and jets.

    Of an equation that is nonlinear in derivatives of `u` samples are all that is known. There is one jet
    of every size, the same at all points.
    """
    rng, count, dim = np.random.default_rng(0), len(sizes), problem.dim
    jets = Quadratic(
        sizes * rng.standard_normal(count),
        sizes[:, None] * rng.standard_normal((count, dim)),
        sizes * rng.standard_normal(count),
        sizes[:, None] * rng.standard_normal((count, dim)),
    )
    directions = rng.standard_normal((_DIRECTIONS, dim))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    parts = _sampled_coefficients(problem, jets, directions, key_from(0))
    value, grad, second = (np.asarray(part) for part in parts)
    return value, grad, second


@compiled(brief=True)
def _sampled_coefficients(
    problem: Problem, jets: Quadratic, directions: Any, key: PRNGKeyArray
) -> tuple[Array, Array, Array]:
    def one(x: Array, jet: Quadratic) -> tuple[Array, Array, Array]:
        at = linearise(problem.equation, x, Jet(jet, x))
        second = jnp.concatenate([at.quadratic(directions), at.diagonal()])
        return at.value, at.grad, second

    points = problem.domain.sample(key, _POINTS)
    parts = jax.vmap(lambda x: jax.vmap(lambda jet: one(x, jet))(jets))(points)
    return jax.tree.map(lambda part: problem.orientation * part, parts)
