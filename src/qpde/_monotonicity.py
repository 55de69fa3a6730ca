"""Monotonicity: `-<v1 - v2, L v1 - L v2>_mu >= gamma ||v1 - v2||_mu^2` for differences of zero trace.

With `L = A : Hess + b . grad - c` and `l` the logarithm of the density of `mu`,

    gamma >= alpha lambda_1 + inf V,
    V = c + (div b - div div A)/2 + (b - div A) . grad l / 2 - A grad l . grad l / 4,

`alpha` the smallest eigenvalue of `A`, `lambda_1` the Poincaré constant of the domain under the uniform law.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ._enclosure import Unbounded, roughness_over
from ._jet import widely
from ._measure import AbstractMeasure, Radial, Uniform, Weighted
from ._operator import Bound, Operator, Structure
from ._poincare import Eigenvalue, radial_eigenvalue, smallest_eigenvalue
from ._problem import Problem
from ._program import JUMP, KINK
from ._witness import Witness, find_witness

# How a constant was obtained, in words that follow "The constant is".
_WORDS = {
    "proved": "proved from the coefficients and the domain",
    "conditional": "proved for solutions with values in the range",
    "sampled": "taken from coefficients at random points, which is no proof",
    "refuted": "refuted: a pair of functions violates monotonicity",
    "unknown": "not known",
}


@dataclasses.dataclass(frozen=True)
class Monotonicity:
    """A monotonicity constant and how it was obtained.

    `kind` is `proved`, `conditional` (on `value_range`), `sampled`, `refuted` (see `witness`) or `unknown`.
    `constant` is None where there is no positive one. Its parts: `discount`, the smallest killing rate;
    `drift`, what drift, varying diffusion and measure add or take; `poincare`, ellipticity times
    `lambda_1`. Where a part depends on another one its bound is taken together with it, so that the
    parts may add up to less than the constant.
    """

    constant: float | None
    kind: str
    discount: float | None = None
    drift: float | None = None
    poincare: float | None = None
    ellipticity: float | None = None
    eigenvalue: Eigenvalue | None = None
    structure: Structure = Structure.LINEAR
    value_range: tuple[float, float] | None = None
    witness: Witness | None = None
    reason: str = ""
    measure: AbstractMeasure | None = None  # the law of the inner product, where it was computed

    @property
    def proved(self) -> bool:
        """Whether the constant holds for certain, perhaps on a range of values."""
        return self.kind in ("proved", "conditional")

    def __repr__(self) -> str:
        head = f"Monotonicity constant: {_WORDS[self.kind]}"
        lines = [head if self.constant is None else f"{head}: {self.constant:.6g}"]
        if self.poincare is not None and self.eigenvalue is not None:
            lines.append(
                f"  {self.discount:.4g} (discount) + {self.drift:.4g} (drift and measure) + "
                f"{self.poincare:.4g} (Poincaré: {self.ellipticity:.4g} * {self.eigenvalue.value:.6g}, "
                f"{self.eigenvalue.how})"
            )
        if self.value_range is not None:
            low, high = self.value_range
            lines.append(f"  for solutions with values from {low:.4g} to {high:.4g}")
        if self.witness is not None:
            lines.append(f"  {self.witness!r}")
        return "\n".join([*lines, f"  {self.reason}"] if self.reason else lines)


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
    if not isinstance(problem, Problem):
        raise ValueError(f"monotonicity takes a qpde.Problem, got {type(problem).__name__}.")
    measure = Uniform(problem.domain) if measure is None else measure
    if not eqx.tree_equal(measure.domain, problem.domain):
        raise ValueError(
            f"The measure lives on {measure.domain!r}, the problem on {problem.domain!r}."
        )
    if value_range is not None and not -np.inf < value_range[0] < value_range[1] < np.inf:
        raise ValueError(f"value_range is (low, high) with finite low < high, got {value_range!r}.")
    given = {"ellipticity": ellipticity, "potential": potential}
    for name, number in given.items():
        if number is not None and not np.isfinite(number):
            raise ValueError(f"{name} must be a finite number, got {number!r}.")
    try:
        found = _constant(Operator.of(problem), measure, value_range, given)
    except Unbounded as error:
        found = Monotonicity(None, "unknown", reason=str(error))
    return dataclasses.replace(found, measure=measure)


def _constant(
    operator: Operator,
    measure: AbstractMeasure,
    value_range: tuple[float, float] | None,
    given: dict[str, float | None],
) -> Monotonicity:
    if operator.structure is Structure.NONLINEAR:
        return Monotonicity(
            None,
            "unknown",
            structure=operator.structure,
            reason="The equation is nonlinear in derivatives of u, or not continuous in u; no "
            "constant is known for such.",
        )
    semilinear = operator.structure is Structure.SEMILINEAR
    values = None if not semilinear else value_range or (-np.inf, np.inf)
    number = given["ellipticity"]
    alpha = operator.ellipticity() if number is None else Bound(float(number), "given")
    discount = operator.least(operator.killing, values)
    found = [
        _sum(operator, way, alpha, values, given["potential"]) for way in _ways(operator, measure)
    ]
    constant, eigenvalue, bound = max(
        found, key=lambda each: (each[0] > 0, each[2].proved, each[0])
    )
    drift, size = bound.value - discount.value, 1e-12 * (abs(bound.value) + abs(constant))
    parts: dict[str, Any] = {
        "discount": discount.value if abs(discount.value) > size else 0.0,
        "drift": drift if abs(drift) > size else 0.0,
        "poincare": alpha.value * eigenvalue.value,
        "ellipticity": alpha.value,
        "eigenvalue": eigenvalue,
        "structure": operator.structure,
        "value_range": value_range if semilinear else None,
    }
    if alpha.value < 0 or constant <= 0:
        return _without_constant(operator, measure, constant, parts)
    sampled = [name for name, b in (("ellipticity", alpha), ("potential", bound)) if not b.proved]
    if sampled:
        reason = f"Sampled: {' and '.join(sampled)}. A bound that you know makes it a proof."
        if operator.rough:
            names = " and ".join(sorted(operator.rough))
            reason = f"{names} may have kinks or jumps, which derivatives do not see. {reason}"
        return Monotonicity(constant, "sampled", reason=reason, **parts)
    return Monotonicity(constant, "conditional" if parts["value_range"] else "proved", **parts)


class _Way(NamedTuple):
    """A Poincaré constant, and what is added to the killing rate beside it."""

    eigenvalue: Eigenvalue
    rest: Callable[[Array], Array]
    proved: bool = True


def _sum(
    operator: Operator,
    way: _Way,
    alpha: Bound,
    values: tuple[float, float] | None,
    potential: float | None,
) -> tuple[float, Eigenvalue, Bound]:
    """The constant that a way gives, with its two ingredients."""

    def total(x: Array, *v: Array) -> Array:
        return operator.killing(x, *v) + way.rest(x)

    poincare = alpha.value * way.eigenvalue.value
    bound = (
        Bound(float(potential), "given") if potential is not None else operator.least(total, values)
    )
    if poincare + bound.value <= 0 and bound.how == "intervals":
        # Interval arithmetic over one big box can be far off; points say what may be true.
        bound = operator.sampled(total, values)
    if potential is None and (not way.proved or operator.rough):
        bound = Bound(bound.value, "sampled")
    return poincare + bound.value, way.eigenvalue, bound


def _without_constant(
    operator: Operator, measure: AbstractMeasure, constant: float, parts: dict[str, Any]
) -> Monotonicity:
    witness = find_witness(operator.problem, measure)
    if witness is not None and witness.refutes:
        return Monotonicity(None, "refuted", witness=witness, **parts)
    reason = f"The lower bound found is {constant:.4g}, which is not positive."
    if operator.structure is Structure.SEMILINEAR and parts["value_range"] is None:
        reason += " Give value_range=(low, high) if you know what values u takes."
    if _has_drift(operator):
        reason += " Another law of points may help: see qpde.suggest_measure."
    return Monotonicity(None, "unknown", reason=reason, **parts)


def _is_uniform(measure: Radial) -> bool:
    return float(measure.k) == measure.domain.dim


def _has_drift(operator: Operator) -> bool:
    with jax.enable_x64(True):
        return "b" in operator.varies or bool(
            np.any(np.asarray(operator.drift(jnp.asarray(operator.problem.domain.centre))))
        )


def _ways(operator: Operator, measure: AbstractMeasure) -> list[_Way]:
    """The ways to a constant that a measure allows."""
    plain = smallest_eigenvalue(operator.problem.domain)
    if isinstance(measure, Radial) and not _is_uniform(measure):
        if not operator.isotropic or "A" in operator.varies or _has_drift(operator):
            raise Unbounded(
                "Under a radial law a constant is known for a multiple of the Laplacian without drift "
                "only. Use the uniform law."
            )
        return [_Way(radial_eigenvalue(measure), lambda x: jnp.zeros(()))]
    if isinstance(measure, Uniform | Radial):
        return [_Way(plain, lambda x: 0.5 * operator.divergence(x))]
    if not isinstance(measure, Weighted):
        raise Unbounded(
            f"The density of {type(measure).__name__} is not known. Use qpde.Uniform or qpde.Weighted."
        )
    density: Any = measure.density
    if isinstance(density, _Stationary) and density.belongs_to(operator):
        return _stationary_ways(operator, density, plain)
    log_density = lambda x: jnp.log(widely(density, x))  # noqa: E731
    level = roughness_over(log_density, measure.domain.enclosing_box)[0].get(0, 0)
    slope = jax.grad(log_density)

    def uniform_rest(x: Array) -> Array:
        """For the Poincaré constant of the uniform law (see the head of this file)."""
        along, drift = slope(x), operator.drift(x) - _divergence_of_second(operator, x)
        quadratic = jnp.dot(along, _times(operator.second(x), along))
        return 0.5 * (operator.divergence(x) + jnp.dot(drift, along)) - 0.25 * quadratic

    def weighted_rest(x: Array) -> Array:
        """`-m*/(2 m)`, for the Poincaré constant of the weighted space."""
        along, drift = slope(x), operator.drift(x) - 2.0 * _divergence_of_second(operator, x)
        curved = jnp.sum(_full(operator.second(x), x.size) * jax.jacfwd(slope)(x))
        quadratic = jnp.dot(along, _times(operator.second(x), along))
        return 0.5 * (operator.divergence(x) + jnp.dot(drift, along) - curved - quadratic)

    weighted = _weighted_way(operator, log_density, plain, weighted_rest)
    return [
        _Way(plain, uniform_rest, level < JUMP),
        weighted._replace(proved=weighted.proved and level < KINK),
    ]


def _weighted_way(
    operator: Operator,
    log_density: Callable[[Array], Array],
    plain: Eigenvalue,
    rest: Callable[[Array], Array],
) -> _Way:
    """With `lambda_1(mu) >= (inf m / sup m) lambda_1`."""
    low, high = operator.least(log_density), operator.least(lambda x: -log_density(x))
    ratio = float(np.exp(low.value + high.value))
    how = f"{plain.how}, times inf m / sup m = {ratio:.2g}"
    return _Way(Eigenvalue(plain.value * ratio, how), rest, low.proved and high.proved)


def _stationary_ways(operator: Operator, density: "_Stationary", plain: Eigenvalue) -> list[_Way]:
    """Under the stationary law `grad l = b / s` and `m* = 0`."""

    def uniform_rest(x: Array) -> Array:
        drift = operator.drift(x)
        return 0.5 * operator.divergence(x) + 0.25 * jnp.dot(drift, drift) / operator.second(x)

    none = lambda x: jnp.zeros(())  # noqa: E731
    return [_Way(plain, uniform_rest), _weighted_way(operator, density.log, plain, none)]


def _full(second: Array, dim: int) -> Array:
    return second * jnp.eye(dim) if second.ndim == 0 else second


def _times(second: Array, v: Array) -> Array:
    return second * v if second.ndim == 0 else second @ v


def _divergence_of_second(operator: Operator, x: Array) -> Array:
    """`div A`, a vector."""
    if "A" not in operator.varies:
        return jnp.zeros_like(x)
    jacobian = jax.jacfwd(operator.second)(x)
    return jacobian if operator.isotropic else jnp.einsum("iji->j", jacobian)


class _Stationary:
    """`exp` of the potential of `b / s`: the stationary density of `s Lap + b . grad`, `b` a gradient."""

    def __init__(self, operator: Operator, nodes: int = 16):
        self._operator = operator
        self._nodes, self._weights = (0.5 * v for v in np.polynomial.legendre.leggauss(nodes))

    def belongs_to(self, operator: Operator) -> bool:
        """Whether it is the law of this operator: the same drift and diffusion at random points."""
        mine, other = self._operator, operator
        if not eqx.tree_equal(mine.problem.domain, other.problem.domain):
            return False
        with jax.enable_x64(True):
            points = mine.problem.domain.sample(jax.random.key(1, impl="threefry2x32"), 256)
            pairs = [
                (jax.vmap(function)(points), jax.vmap(theirs)(points))
                for function, theirs in ((mine.drift, other.drift), (mine.second, other.second))
            ]
            return all(bool(jnp.allclose(a, b, rtol=1e-9, atol=1e-12)) for a, b in pairs)

    def is_exact(self) -> bool:
        """Whether its slope is `b / s` at random points, as it must be."""
        with jax.enable_x64(True):
            points = self._operator.problem.domain.sample(
                jax.random.key(2, impl="threefry2x32"), 256
            )
            slope = jax.vmap(jax.grad(self.log))(points)
            wanted = jax.vmap(lambda x: self._operator.drift(x) / self._operator.second(x))(points)
            size = 1.0 + jnp.max(jnp.abs(wanted))
            return bool(jnp.max(jnp.abs(slope - wanted)) <= 1e-9 * size)

    def __call__(self, x: Array) -> Array:
        return jnp.exp(self.log(x))

    def log(self, x: Array) -> Array:
        """The logarithm of the density, an integral of the drift along a straight line."""
        centre = jnp.asarray(self._operator.problem.domain.centre)
        away = x - centre
        lines = centre[None] + (0.5 + self._nodes)[:, None] * away[None]
        slopes = jax.vmap(self._operator.drift)(lines) @ away
        return jnp.dot(self._weights, slopes) / self._operator.second(centre)


def suggest_measure(problem: Problem) -> Weighted | None:
    """A law of points under which drift does not cost monotonicity, or None where none is known.

        >>> law = suggest_measure(zoo.drift(10))
        >>> monotonicity(zoo.drift(10), measure=law)

    Where the diffusion is a constant multiple of the identity and the drift is a gradient it is the
    stationary law of the process; then `gamma >= alpha lambda_1 + inf(c + div b / 2 + |b|^2 / (4 s))`,
    which is never less than under the uniform law, and never less than `inf c`.
    """
    operator = Operator.of(problem)
    if operator.structure is Structure.NONLINEAR or not operator.isotropic:
        return None
    if "A" in operator.varies or operator.rough or not _has_drift(operator):
        return None
    if not _is_gradient(operator):
        return None
    density = _Stationary(operator)
    return Weighted(problem.domain, density) if density.is_exact() else None


def _is_gradient(operator: Operator) -> bool:
    """Whether the Jacobian of the drift is symmetric at random points."""
    domain = operator.problem.domain

    @jax.jit
    def gaps(key: Array) -> tuple[Array, Array]:
        jacobians = jax.vmap(jax.jacfwd(operator.drift))(domain.sample(key, 64))
        return jnp.max(jnp.abs(jacobians - jacobians.mT)), jnp.max(jnp.abs(jacobians))

    with jax.enable_x64(True):
        gap, size = map(float, gaps(jax.random.key(0, impl="threefry2x32")))
    return gap <= 1e-9 * (1.0 + size)
