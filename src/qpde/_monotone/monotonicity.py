"""Monotonicity: `-<v1 - v2, L v1 - L v2>_mu >= gamma ||v1 - v2||_mu^2` for differences of zero trace.

With `L = A : Hess + b . grad - c` and `l` the logarithm of the density of `mu`,

    gamma >= alpha lambda_1 + inf V,
    V = c + (div b - div div A)/2 + (b - div A) . grad l / 2 - A grad l . grad l / 4,

`alpha` the smallest eigenvalue of `A`, `lambda_1` the Poincaré constant of the domain under the uniform law.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .._arguments import a_range, an_instance, real
from .._domain.eigenvalue import Eigenvalue
from .._equation.operator import Basis, Bound, Operator, Structure, smallest_eigenvalue
from .._precision import x64
from .._problem.measure import AbstractMeasure, Uniform, law_on
from .._problem.problem import Problem
from .._program.interval import Unbounded
from .cordes import Cordes, cordes
from .in_time import Weight, weight_of
from .laws import Way, ways
from .witness import Witness, find_witness


class Ground(enum.StrEnum):
    """What a monotonicity constant rests on."""

    PROVED = "proved"
    CONDITIONAL = "conditional"
    SAMPLED = "sampled"
    REFUTED = "refuted on a sample"
    UNKNOWN = "unknown"


# Digits to which bounds that users know are compared with what random points show.
_SLACK = 1e-9
# What rounding may add to a sum of terms of both signs, relative to their sizes.
_ROUNDING = 1e-12
_WORDS = {
    Ground.PROVED: "proved from the coefficients and the domain",
    Ground.CONDITIONAL: "proved for solutions with values in the range",
    Ground.SAMPLED: "taken from coefficients at random points, which is no proof",
    Ground.REFUTED: "refuted on a sample, which is no proof: at 16,384 random points a pair of functions "
    "violates monotonicity by more than five standard errors",
    Ground.UNKNOWN: "not known",
}


@dataclasses.dataclass(frozen=True)
class Monotonicity:
    """A monotonicity constant and how it was obtained.

    `kind` is `proved`, `conditional` (on `value_range`), `sampled`, `refuted on a sample` (see `witness`) or
    `unknown`. `constant` is None where there is no positive one. Its parts: `discount`, the smallest killing
    rate; `drift`, what drift, varying diffusion and measure add or take; `poincare`, ellipticity times
    `lambda_1`. Where a part depends on another one its bound is taken together with it, so that the
    parts may add up to less than the constant.

    Of a Bellman equation under Cordes' condition (see `qpde.cordes`) the pairing is that with the Laplacian:
    `cordes` has its constant, and `constant` is what `|L Q|` is divided by to bound `|Q - u|`.
    Of an evolution equation `L u = F - k u_t` they are those of `F`, whose sum `spatial` may be negative; the
    constant holds under the weight `e^(-kappa s)` in the time `s` since the data, see `_monotone/in_time.py`:
    `weight` knows `kappa`.
    """

    constant: float | None
    kind: Ground
    discount: float | None = None
    drift: float | None = None
    poincare: float | None = None
    ellipticity: float | None = None
    eigenvalue: Eigenvalue | None = None
    structure: Structure = Structure.LINEAR
    value_range: tuple[float, float] | None = None
    witness: Witness | None = None
    reason: str = ""
    weight: Weight | None = None  # in time
    spatial: float | None = None
    measure: AbstractMeasure | None = None  # the law of the inner product, where it was computed
    operator: Operator | None = None  # the equation that it is the constant of
    cordes: Cordes | None = (
        None  # where the constant is not that of the L2 pairing, but of Cordes' stability
    )

    @property
    def proved(self) -> bool:
        """Whether the constant holds for certain, perhaps on a range of values."""
        return self.kind in (Ground.PROVED, Ground.CONDITIONAL)

    def __repr__(self) -> str:
        head = f"Monotonicity constant: {_WORDS[self.kind]}"
        lines = [head if self.constant is None else f"{head}: {self.constant:.6g}"]
        if self.poincare is not None and self.eigenvalue is not None:
            lines.append(
                f"  {self.discount:.4g} (discount) + {self.drift:.4g} (drift and measure) + "
                f"{self.poincare:.4g} (Poincaré: {self.ellipticity:.4g} * {self.eigenvalue.value:.6g}, "
                f"{self.eigenvalue.how})"
            )
        if self.weight is not None:
            lines.append(f"  {self.weight.words(self.spatial or 0.0)}")
        if self.value_range is not None:
            low, high = self.value_range
            lines.append(f"  for solutions with values from {low:.4g} to {high:.4g}")
        if self.witness is not None:
            lines.append(f"  {self.witness!r}")
        if self.cordes is not None:
            lines += [f"  {line}" for line in repr(self.cordes).splitlines()]
        return "\n".join([*lines, f"  {self.reason}"] if self.reason else lines)


@x64()
def monotonicity(
    problem: Problem,
    *,
    measure: AbstractMeasure | None = None,
    value_range: tuple[float, float] | None = None,
    ellipticity: float | None = None,
    potential: float | None = None,
) -> Monotonicity:
    """The monotonicity constant of a problem, and how it was obtained.

        >>> monotonicity(zoo.survival(20)).constant
        89.36...

    **Arguments**

    - `measure`: the law of the inner product; uniform by default.
    - `value_range`: values of `u` between which a nonlinear term is looked at. Without it all of them.
    - `ellipticity`: a lower bound that you know for the smallest eigenvalue of `dF/dHess`.
    - `potential`: a lower bound that you know for `c + (div b - div div A)/2` (with the terms of the measure
      where it is not uniform). Both replace bounds by interval arithmetic or sampling.
    """
    an_instance("problem", problem, Problem, "qpde.Problem(domain, equation)")
    measure = law_on(problem.domain, measure)
    if value_range is not None:
        value_range = a_range("value_range", value_range)
    known = {"ellipticity": ellipticity, "potential": potential}
    given = {n: None if v is None else float(real(n, v)) for n, v in known.items()}
    try:
        found = _constant(problem, measure, value_range, given)
    except Unbounded as error:
        found = Monotonicity(None, Ground.UNKNOWN, reason=str(error))
    return dataclasses.replace(found, measure=measure, operator=problem.operator)


def _constant(
    problem: Problem,
    measure: AbstractMeasure,
    value_range: tuple[float, float] | None,
    given: dict[str, float | None],
) -> Monotonicity:
    operator = problem.operator
    if operator.order == 4:
        return _fourth(problem, measure)
    if operator.structure is Structure.NONLINEAR:
        return _nonlinear(problem, measure)
    semilinear = operator.structure is Structure.SEMILINEAR
    values = None if not semilinear else value_range or (-np.inf, np.inf)
    alpha = _ellipticity(operator, given["ellipticity"])
    discount = operator.least(operator.killing, values)
    found = [
        _sum(operator, way, alpha, values, given["potential"]) for way in ways(operator, measure)
    ]
    constant, eigenvalue, bound = max(
        found, key=lambda each: (each[0] > 0, each[2].proved, each[0])
    )
    if not np.isfinite(constant):
        raise Unbounded("The constant is too large for a float. Choose other units.")
    spatial, weight = constant, _in_time(problem, constant) if alpha.value >= 0 else None
    constant = spatial if weight is None else weight.gamma
    drift, size = bound.value - discount.value, 1e-12 * (abs(bound.value) + abs(constant))
    parts: dict[str, Any] = {
        "discount": discount.value if abs(discount.value) > size else 0.0,
        "drift": drift if abs(drift) > size else 0.0,
        "poincare": alpha.value * eigenvalue.value,
        "ellipticity": alpha.value,
        "eigenvalue": eigenvalue,
        "structure": operator.structure,
        "value_range": value_range if semilinear else None,
        "weight": weight,
        "spatial": spatial if weight is not None else None,
    }
    if alpha.value < 0 or constant <= 0:
        return _without_constant(problem, measure, constant, parts)
    sampled = [name for name, b in (("ellipticity", alpha), ("potential", bound)) if not b.proved]
    if sampled:
        reason = f"Sampled: {' and '.join(sampled)}. A bound that you know makes it a proof."
        if operator.rough:
            names = " and ".join(sorted(operator.rough))
            reason = f"{names} may have kinks or jumps, which derivatives do not see. {reason}"
        return Monotonicity(constant, Ground.SAMPLED, reason=reason, **parts)
    kind = Ground.CONDITIONAL if parts["value_range"] else Ground.PROVED
    told = " and ".join(name for name, number in given.items() if number is not None)
    return Monotonicity(
        constant, kind, reason=told and f"It rests on the {told} that you gave.", **parts
    )


def _nonlinear(problem: Problem, measure: AbstractMeasure) -> Monotonicity:
    """What is known of an equation that is nonlinear in derivatives: Cordes' constant, or nothing."""
    found = cordes(problem) if isinstance(measure, Uniform) else None
    if found is not None and found.proved:
        return Monotonicity(
            found.stability,
            Ground.PROVED,
            structure=Structure.NONLINEAR,
            reason="In Cordes' pairing; nothing is said of the L2 pairing.",
            cordes=found,
        )
    return Monotonicity(
        None,
        Ground.UNKNOWN,
        structure=Structure.NONLINEAR,
        reason="The equation is nonlinear in derivatives of u, or not continuous in u; no "
        "constant is known for such.",
    )


def _fourth(problem: Problem, measure: AbstractMeasure) -> Monotonicity:
    """The constant of `-e Lap^2 + A : Hess + b . grad - c` with numbers for coefficients.

    Both pairs of conditions make `<v, Lap^2 v> = |Lap v|^2`, and `|Lap v|^2 >= lambda_1 |grad v|^2 >=
    lambda_1^2 |v|^2`; with `alpha` the smallest eigenvalue of `A`, which may be negative,
    `gamma = lambda_1 (e lambda_1 + alpha) + c` where the bracket is not negative. `b . grad v` drops out.
    """
    operator, law = problem.operator, isinstance(measure, Uniform)
    if operator.structure is not Structure.LINEAR or operator.varies - {"c"} or not law:
        return Monotonicity(
            None,
            Ground.UNKNOWN,
            structure=operator.structure,
            reason="For equations of fourth order a constant is known where they are linear with constant "
            "coefficients (the one of u may vary), under the uniform law.",
        )
    bending = float(operator.constant(operator.bending))
    alpha = Bound(0.0, Basis.EXACT)
    matrix = np.atleast_2d(operator.constant(operator.second))
    if np.any(matrix):
        alpha = operator.ellipticity()
    eigenvalue = problem.domain.first_eigenvalue
    discount = operator.least(operator.killing)
    # Where the terms cancel, what is left may be rounding.
    inner = bending * eigenvalue.value + alpha.value
    inner -= _ROUNDING * (bending * eigenvalue.value + abs(alpha.value))
    constant = eigenvalue.value * inner + discount.value
    constant -= _ROUNDING * (eigenvalue.value * abs(inner) + abs(discount.value))
    if not np.isfinite(constant) or not 0.0 < bending * eigenvalue.value < np.inf:
        raise Unbounded("The constant is too large or too small for a float. Choose other units.")
    parts: dict[str, Any] = {
        "discount": discount.value,
        "drift": 0.0,
        "poincare": eigenvalue.value * inner,
        "ellipticity": inner,
        "eigenvalue": eigenvalue,
        "structure": operator.structure,
    }
    if inner < 0 or constant <= 0:
        reason = f"The lower bound found is {constant:.4g}, or compression outweighs the bending."
        return Monotonicity(None, Ground.UNKNOWN, reason=reason, **parts)
    reason = "Of fourth order: the Poincaré part is lambda_1 (e lambda_1 + alpha)."
    kind = Ground.PROVED if discount.proved and alpha.proved else Ground.SAMPLED
    return Monotonicity(constant, kind, reason=reason, **parts)


def _in_time(problem: Problem, constant: float) -> Weight | None:
    """The weight in time that an evolution problem's constant holds under."""
    if problem.domain.times is None:
        return None
    weight = weight_of(problem, constant)
    if weight is None:
        raise Unbounded(
            f"The equation may grow like exp({-constant:.3g} t), over this horizon beyond all bounds."
        )
    return weight


def _ellipticity(operator: Operator, given: float | None) -> Bound:
    """The smallest eigenvalue of `A`, or what a user says that it is at least."""
    if given is None:
        return operator.ellipticity()
    seen = operator.sampled(smallest_eigenvalue(operator)).value
    return _believed("ellipticity", given, seen, "the smallest eigenvalue of dF/dHess")


def _believed(name: str, given: float, seen: float, what: str) -> Bound:
    """A bound that a user knows, unless random points show that it is none."""
    if given > seen + _SLACK * abs(seen):
        raise ValueError(
            f"{name}={given:g} is no lower bound: at random points {what} falls to {seen:.6g}."
        )
    return Bound(float(given), Basis.GIVEN)


class _Total(eqx.Module):
    """The killing rate and what a way adds to it."""

    operator: Operator
    rest: Callable[..., Array]

    def __call__(self, x: Float[Array, " d"], *v: Array) -> Float[Array, ""]:
        return self.operator.killing(x, *v) + self.rest(x)


def _sum(
    operator: Operator,
    way: Way,
    alpha: Bound,
    values: tuple[float, float] | None,
    potential: float | None,
) -> tuple[float, Eigenvalue, Bound]:
    """The constant that a way gives, with its two ingredients."""
    total = _Total(operator, way.rest)
    poincare = alpha.value * way.eigenvalue.value
    if potential is not None:
        seen = operator.sampled(total, values).value
        known = _believed("potential", potential, seen, "c + (div b - div div A)/2")
        return poincare + potential, way.eigenvalue, known
    bound = operator.least(total, values)
    if poincare + bound.value <= 0 and bound.basis is Basis.INTERVALS:
        # Interval arithmetic over one big box can be far off; points say what may be true.
        bound = operator.sampled(total, values)
    if not way.proved or operator.rough:
        bound = Bound(bound.value, Basis.SAMPLED)
    return poincare + bound.value, way.eigenvalue, bound


def _without_constant(
    problem: Problem, measure: AbstractMeasure, constant: float, parts: dict[str, Any]
) -> Monotonicity:
    operator = problem.operator
    witness = None if problem.domain.times is not None else find_witness(problem, measure)
    if witness is not None and witness.refutes:
        return Monotonicity(None, Ground.REFUTED, witness=witness, **parts)
    reason = f"The lower bound found is {constant:.4g}, which is not positive."
    if operator.structure is Structure.SEMILINEAR and parts["value_range"] is None:
        reason += " Give value_range=(low, high) if you know what values u takes."
    if operator.has_drift:
        reason += " Another law of points may help: see qpde.suggest_measure."
    return Monotonicity(None, Ground.UNKNOWN, reason=reason, **parts)
