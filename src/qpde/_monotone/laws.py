"""What a law of points contributes to a monotonicity constant, and the law that a drift suggests.

With `l` the logarithm of the density, a *way* is a Poincaré constant and the function that stands beside the
killing rate: that of the uniform law with the exact correction for `l`, or that of the weighted space.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._arguments import an_instance
from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._domain.eigenvalue import Eigenvalue, bessel_zero
from .._equation.operator import Operator, Structure
from .._precision import Numbers, key_from, like, x64
from .._problem.measure import AbstractMeasure, Radial, Uniform, Weighted
from .._problem.problem import Problem
from .._program.interval import Unbounded, enclose, roughness_over
from .._program.polynomial import degree, same_program
from .._program.program import JUMP, KINK

# Up to this dimension Jacobians are enclosed; entries below this part of the largest are underflow.
_JACOBIAN, _UNDERFLOW = 64, 1e-200


class Way(NamedTuple):
    """A Poincaré constant, and the function that is added to the killing rate beside it."""

    eigenvalue: Eigenvalue
    rest: Callable[[Array], Array]
    proved: bool = True


def ways(operator: Operator, measure: AbstractMeasure) -> list[Way]:
    """The ways to a constant that a measure allows."""
    plain = operator.domain.first_eigenvalue
    if operator.domain.follows_paths:
        raise Unbounded(
            'In the whole space no constant in L2 is known; certify(solution, norm="value") bounds the error '
            "at the starting point, and needs none."
        )
    if operator.domain.times is not None and not isinstance(measure, Uniform | Radial):
        raise Unbounded(
            "Of an evolution equation a constant is known under the uniform and radial laws only; the weight "
            "in time is chosen by itself."
        )
    if isinstance(measure, Radial) and float(measure.k) != measure.domain.spatial.dim:
        if not operator.isotropic or "A" in operator.varies or operator.has_drift:
            raise Unbounded(
                "Under a radial law a constant is known for a multiple of the Laplacian without drift "
                "only. Use the uniform law."
            )
        return [Way(radial_eigenvalue(measure), _Nothing())]
    if isinstance(measure, Uniform | Radial):
        return [Way(plain, _HalfDivergence(operator))]
    if not isinstance(measure, Weighted):
        raise Unbounded(
            f"The density of {type(measure).__name__} is not known. Use qpde.Uniform or qpde.Weighted."
        )
    density = measure.density
    if isinstance(density, Stationary):
        if density.belongs_to(operator):
            proved = density.is_proved()
            beside = _weighted_way(operator, density.log, plain, _Nothing())
            return [
                Way(plain, _StationaryRest(operator), proved),
                beside._replace(proved=proved and beside.proved),
            ]
        log = density.log
    else:
        log = _Log(density)
    level = roughness_over(log, measure.domain.enclosing_box)[0].get(0, 0)
    weighted = _weighted_way(operator, log, plain, _WeightedRest(operator, log))
    return [
        Way(plain, _UniformRest(operator, log), level < JUMP),
        weighted._replace(proved=weighted.proved and level < KINK),
    ]


def radial_eigenvalue(measure: Radial) -> Eigenvalue:
    """The constant of the law `r = R U^(1/k)`: `-<v, Lap v>_mu >= lambda ||v||_mu^2`.

    With the density `r^(k - d)` and `v = r^((1 - k)/2) w` the radial equation is Bessel's with
    `nu^2 = (k - 2)(2 d - 2 - k)/4`; angular dependence only adds to it. `k = d` is the uniform law.
    """
    ball = measure.domain.spatial
    d, k = ball.dim, float(measure.k)
    order = math.sqrt(max((k - 2.0) * (2.0 * d - 2.0 - k), 0.0)) / 2.0 if d > 1 else -0.5
    radius = float(ball.enclosing_ball[1])
    return Eigenvalue((bessel_zero(order) / radius) ** 2, f"radial law with k = {k:g}")


def _weighted_way(
    operator: Operator,
    log: Callable[[Array], Array],
    plain: Eigenvalue,
    rest: Callable[[Array], Array],
) -> Way:
    """With `lambda_1(mu) >= (inf m / sup m) lambda_1`."""
    low, high = operator.least(log), operator.least(_Minus(log))
    ratio = float(np.exp(low.value + high.value))
    how = f"{plain.how}, times inf m / sup m = {ratio:.2g}"
    return Way(Eigenvalue(plain.value * ratio, how), rest, low.proved and high.proved)


class _Nothing(eqx.Module):
    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.zeros((), x.dtype)


class _Minus(eqx.Module):
    function: Callable[[Array], Array]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return -self.function(x)


class _Log(eqx.Module):
    """The logarithm of a density."""

    density: Callable[..., Any]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.log(like(x, self.density(x)))


class _HalfDivergence(eqx.Module):
    """`(div b - div div A) / 2`, for the uniform law."""

    operator: Operator

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return 0.5 * self.operator.divergence(x)


class _UniformRest(eqx.Module):
    """For a density and the Poincaré constant of the uniform law (see `monotonicity`)."""

    operator: Operator
    log: Callable[[Array], Array]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        slope, second = jax.grad(self.log)(x), self.operator.second(x)
        drift = self.operator.drift(x) - _divergence_of_second(self.operator, x)
        quadratic = jnp.dot(slope, _times(second, slope))
        return 0.5 * (self.operator.divergence(x) + jnp.dot(drift, slope)) - 0.25 * quadratic


class _WeightedRest(eqx.Module):
    """`-m*/(2 m)`, for the Poincaré constant of the weighted space."""

    operator: Operator
    log: Callable[[Array], Array]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        slope, second = jax.grad(self.log)(x), self.operator.second(x)
        drift = self.operator.drift(x) - 2.0 * _divergence_of_second(self.operator, x)
        whole = second * jnp.eye(x.size) if second.ndim == 0 else second
        curved = jnp.sum(whole * jax.jacfwd(jax.grad(self.log))(x))
        quadratic = jnp.dot(slope, _times(second, slope))
        return 0.5 * (self.operator.divergence(x) + jnp.dot(drift, slope) - curved - quadratic)


class _StationaryRest(eqx.Module):
    """Under the stationary law `grad l = b / s` and `m* = 0`."""

    operator: Operator

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        second, drift, _ = self.operator.coefficients(x)
        return 0.5 * self.operator.divergence(x) + 0.25 * jnp.dot(drift, drift) / second


def _times(second: Array, v: Array) -> Array:
    return second * v if second.ndim == 0 else second @ v


def _divergence_of_second(operator: Operator, x: Array) -> Array:
    """`div A`, a vector."""
    if "A" not in operator.varies:
        return jnp.zeros_like(x)
    jacobian = jax.jacfwd(operator.second)(x)
    return jacobian if operator.isotropic else jnp.einsum("iji->j", jacobian)


class Stationary(eqx.Module):
    """`exp` of the potential of `b / s`: the stationary density of `s Lap + b . grad`, `b` a gradient."""

    operator: Operator
    nodes: Numbers
    weights: Numbers

    def __init__(self, operator: Operator, nodes: int = 16):
        self.operator = operator
        self.nodes, self.weights = (0.5 * v for v in np.polynomial.legendre.leggauss(nodes))

    def belongs_to(self, operator: Operator) -> bool:
        """Whether it is the law of this operator: the same domain, and programs of drift and diffusion."""
        mine, centre = self.operator, np.asarray(operator.domain.centre, np.float64)
        if not eqx.tree_equal(mine.domain, operator.domain):
            return False
        if not operator.isotropic or "A" in operator.varies:
            return False
        return same_program(mine.drift, operator.drift, centre) and bool(
            mine.constant(mine.second) == operator.constant(operator.second)
        )

    def is_exact(self) -> bool:
        """Whether its slope is `b / s` at random points, as it must be; no proof."""
        slope, wanted = (np.asarray(v) for v in _slopes(self, key_from(2)))
        size = 1.0 + np.max(np.abs(wanted))
        return bool(np.max(np.abs(slope - wanted)) <= 1e-9 * size)

    def is_proved(self) -> bool:
        """Whether its slope is `b / s` everywhere, by the drift's program.

        The drift must be a gradient, and a polynomial that the quadrature integrates exactly.
        """
        centre = np.asarray(self.operator.domain.centre, np.float64)
        order = degree(self.operator.drift, centre)
        return order <= 2 * len(self.nodes) - 1 and _is_proved_gradient(self.operator, order)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.exp(self.log(x))

    def log(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The logarithm of the density, an integral of the drift along a straight line."""
        centre = jnp.asarray(self.operator.domain.centre)
        away = x - centre
        lines = centre[None] + (0.5 + self.nodes)[:, None] * away[None]
        slopes = jax.vmap(self.operator.drift)(lines) @ away
        return jnp.dot(self.weights, slopes) / self.operator.second(centre)


@compiled
def _slopes(law: Stationary, key: PRNGKeyArray) -> tuple[Array, Array]:
    def wanted(x: Array) -> Array:
        return law.operator.drift(x) / law.operator.second(x)

    points = law.operator.domain.sample(key, 256)
    return jax.vmap(jax.grad(law.log))(points), jax.vmap(wanted)(points)


@x64()
def suggest_measure(problem: Problem) -> Weighted | None:
    """A law of points under which drift does not cost monotonicity, or None where none is known.

        >>> law = suggest_measure(zoo.drift(10))
        >>> monotonicity(zoo.drift(10), measure=law)

    Where the diffusion is a constant multiple of the identity and the drift is a gradient it is the
    stationary law of the process; then `gamma >= alpha lambda_1 + inf(c + div b / 2 + |b|^2 / (4 s))`,
    which is never less than under the uniform law, and never less than `inf c`. That a drift is a gradient
    is looked at on random points; `monotonicity` says `proved` only where the drift's program shows it.
    """
    an_instance("problem", problem, Problem, "qpde.Problem(domain, equation)")
    operator = problem.operator
    if problem.domain.times is not None:
        return None
    if operator.structure is Structure.NONLINEAR or not operator.isotropic:
        return None
    if "A" in operator.varies or operator.rough or not operator.has_drift:
        return None
    if not _is_gradient(operator):
        return None
    density = Stationary(operator)
    return Weighted(problem.domain, density) if density.is_exact() else None


def _is_gradient(operator: Operator) -> bool:
    """Whether the Jacobian of the drift is symmetric at random points."""
    gap, size = map(float, _asymmetry(operator.domain, operator.drift, key_from(0)))
    return gap <= 1e-9 * (1.0 + size)


def _is_proved_gradient(operator: Operator, order: float) -> bool:
    """Whether the Jacobian of the drift, of degree `order`, is symmetric by the drift's program.

    That of an affine drift is one matrix; elsewhere its entries beside the diagonal must vanish, which
    interval arithmetic shows up to underflow.
    """
    domain, slope = operator.domain, jax.jacfwd(operator.drift)
    if domain.dim == 1:
        return True
    if order <= 1:
        jacobian = operator.constant(slope)
        return bool(np.array_equal(jacobian, jacobian.T))
    if domain.dim > _JACOBIAN:
        return False
    try:
        (span,) = enclose(slope, domain.enclosing_box)
    except Unbounded:
        return False
    beside, sizes = ~np.eye(domain.dim, dtype=bool), np.maximum(np.abs(span.low), np.abs(span.high))
    return bool(np.all(sizes[beside] <= _UNDERFLOW * np.max(sizes)))


@compiled(brief=True)
def _asymmetry(
    domain: AbstractDomain, drift: Callable[[Array], Array], key: PRNGKeyArray
) -> tuple[Array, Array]:
    jacobians = jax.vmap(jax.jacfwd(drift))(domain.sample(key, 64))
    return jnp.max(jnp.abs(jacobians - jacobians.mT)), jnp.max(jnp.abs(jacobians))
