"""An equation as an operator: its coefficients, what they depend on, and bounds for them.

Oriented, an equation is `F(x, u, grad u, Hess u)` with `A = dF/dHess >= 0`. Where it is linear,
`L u = A : Hess u + b . grad u - c u + r`. Everything here is read off the equation's program; where only
samples can tell, the bound says so. Of an evolution equation, `L u = F - k u_t`, the operator is that of `F`:
a point has space and time, derivatives are those in space.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._compiled import compiled
from .._domain.base import AbstractDomain, drawn, drawn_on_boundary
from .._field.form import Factor, Identity, Spatial
from .._field.jet import Equation, Jet, Quadratic
from .._field.linearise import Coefficients, linearise
from .._precision import Numbers, copied, key_from, like
from .._program.interval import Unbounded, enclose, encloser, roughness_over
from .._program.polynomial import same_program
from .._program.program import JUMP, KINK, dependencies
from .._program.search import is_semidefinite, least_on_cells, smallest_eigenvalues
from .cells import cells
from .damping import Damping, Whole, every_jet
from .fourth import fourth_order

# Random points inside; a tenth as many on the boundary.
_SAMPLE = 20_000
# Up to this dimension matrices of coefficients, and their derivatives, are made.
_MATRIX, _SECOND = 200, 12


class Structure(enum.Enum):
    """How an equation depends on `u`."""

    LINEAR = "linear"
    SEMILINEAR = "semilinear: nonlinear in the value of u only"
    NONLINEAR = "nonlinear in the derivatives of u, or not continuous in u"


class Basis(enum.Enum):
    """How a bound is known."""

    EXACT = "exact up to rounding"
    INTERVALS = "by interval arithmetic"
    GIVEN = "given by the user"
    SAMPLED = "at random points, which is no proof"


@dataclasses.dataclass(frozen=True)
class Bound:
    """A bound for a coefficient over the domain, and how it is known."""

    value: float
    basis: Basis

    @property
    def proved(self) -> bool:
        """Whether the bound holds for certain."""
        return self.basis is not Basis.SAMPLED


class Operator(eqx.Module):
    """The coefficients of an oriented equation as functions of a point and, where it must be, of `u`."""

    domain: AbstractDomain
    equation: Equation
    orientation: Numbers
    structure: Structure = eqx.field(static=True)
    isotropic: bool = eqx.field(static=True)  # A is a multiple of the identity
    varies: frozenset[str] = eqx.field(static=True)  # what depends on x: "A", "b", "c"
    rough: frozenset[str] = eqx.field(static=True)  # "A", "b" too rough to be differentiated
    jumps: bool = eqx.field(static=True)  # the equation may jump in u
    order: int = eqx.field(static=True, default=2)

    @classmethod
    def of(cls, domain: AbstractDomain, equation: Equation, orientation: Numbers) -> "Operator":
        """Look at the equation's program: what its coefficients depend on."""
        domain, equation = copied((domain, equation))
        boxes = every_jet(domain)
        jet = [lower for lower, _ in boxes]
        isotropic = _is_isotropic(equation, jet)
        parts = _Parts(equation)
        # The last argument is a direction, which is no part of the jet.
        reach = [seen - {5} for seen in dependencies(parts, *jet, jet[0])]
        (program,) = roughness_over(Whole(equation), *boxes)
        coefficients = roughness_over(parts, *boxes, boxes[2])
        second, first, value = reach
        # Derivatives in u do not see jumps in u.
        jumps = any(level == JUMP for argument, level in program.items() if argument > 0)
        order, bending = fourth_order(equation, boxes)
        jumps = jumps or bending - {0} != set()
        if (second | first) - {0} or value - {0, 1} or jumps:
            structure = Structure.NONLINEAR
        else:
            structure = Structure.SEMILINEAR if 1 in value else Structure.LINEAR
        names = zip("Abc", reach, strict=True)
        varies = frozenset(name for name, seen in names if 0 in seen)
        varies = varies | ({"e"} if 0 in bending else set())
        # A is differentiated twice and b once, so that neither may jump nor A have a kink; c may do both.
        limits = zip("Ab", coefficients, (KINK, JUMP), strict=False)
        rough = frozenset(name for name, levels, least in limits if levels.get(0, 0) >= least)
        return cls(domain, equation, orientation, structure, isotropic, varies, rough, jumps, order)

    def same_as(self, other: "Operator") -> bool:
        """Whether another operator has the same domain, and an equation of the same program and numbers."""
        if self is other:
            return True
        if self.orientation != other.orientation or not eqx.tree_equal(self.domain, other.domain):
            return False
        jet = [lower for lower, _ in every_jet(self.domain)]
        return same_program(Whole(self.equation), Whole(other.equation), *jet)

    @property
    def space(self) -> int:
        """The number of coordinates in space."""
        return self.domain.dim - (self.domain.times is not None)

    def coefficients(self, x: Float[Array, " d"], v: Any = 0.0) -> tuple[Array, Array, Array]:
        """`A`, `b` and `c` at `x`; `A` is a number `s` where `A = s I`, and a matrix elsewhere.

        Of a semilinear equation `c` is `-dF/du` at `u = v`.
        """
        at = self._linearised(x, v)
        if self.isotropic:
            second = sum(at.traces, jnp.zeros((), x.dtype))
        elif x.size > _MATRIX:
            raise Unbounded(f"Matrices of coefficients are made up to dimension {_MATRIX}.")
        else:
            second = at.matrix()[: self.space, : self.space]
        sign = self.orientation
        return sign * second, sign * at.grad[: self.space], -sign * at.value

    def second(self, x: Float[Array, " d"]) -> Array:
        """`A(x)`: a matrix, or the number `s` where `A = s I`."""
        return self.coefficients(x)[0]

    def drift(self, x: Float[Array, " d"]) -> Float[Array, " k"]:
        """`b(x)`, in space."""
        return self.orientation * self._linearised(x).grad[: self.space]

    def killing(self, x: Float[Array, " d"], v: Any = 0.0) -> Float[Array, ""]:
        """`c(x)`; of a semilinear equation, `-dF/du` at `u = v`."""
        return -self.orientation * self._linearised(x, v).value

    def bending(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The coefficient `e(x)` of `-Lap^2`; zero for an equation of second order."""
        return -self.orientation * self._linearised(x).bilaplacian

    def source(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """`r(x) = L 0`."""
        return self.orientation * self._linearised(x).residual

    def trace(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """The trace of `A(x)`."""
        return self.orientation * jnp.sum(self._linearised(x).diagonal())

    def _linearised(self, x: Float[Array, " d"], v: Any = 0.0) -> Coefficients:
        """The equation's expansion at the jet of the constant `v`."""
        zero, none = jnp.zeros_like(x), jnp.zeros((), x.dtype)
        return linearise(self.equation, x, Jet(Quadratic(like(x, v), zero, none, zero), x))

    def constant(self, function: Callable[[Array], Array]) -> np.ndarray:
        """A coefficient that does not vary: its value at one point is its value everywhere."""
        return np.asarray(_value(function, np.asarray(self.domain.centre, np.float64)))

    @property
    def has_drift(self) -> bool:
        """Whether `b` is not zero, by the program; a drift that cancels counts."""
        return "b" in self.varies or bool(np.any(self.constant(self.drift)))

    def ellipticity(self) -> Bound:
        """A lower bound for the smallest eigenvalue of `A(x)`.

        Interval arithmetic where it can show that no eigenvalue is negative, random points elsewhere.
        """
        if "A" not in self.varies:
            return self._constant_ellipticity()
        if self.isotropic:
            return self.least(self.second)
        try:
            bound = self._by_intervals(self.second, None, smallest_eigenvalues)
        except Unbounded:
            bound = None
        if bound is not None and bound.value > 0:
            return bound
        if self._is_sum_of_squares():
            return Bound(0.0, Basis.INTERVALS)
        if bound is not None and bound.value == 0:
            return bound
        return self.sampled(_SmallestEigenvalue(self))

    def damping(self, values: tuple[float, float] | None = None) -> float:
        """A proved lower bound for `-dF/du` over the domain and all jets, those with `u` in a range.

        Raises `Unbounded` where interval arithmetic gives none.
        """
        boxes = every_jet(self.domain)
        if values is not None:
            boxes[1] = (np.asarray(values[0]), np.asarray(values[1]))
        damping = Damping(self.equation, self.orientation)
        count = damping.choices(*(low for low, _ in boxes))
        (span,) = enclose(damping, *boxes, (np.zeros(count), np.ones(count)))
        if not np.isfinite(span.low):
            raise Unbounded("Interval arithmetic found no lower bound.")
        return float(span.low)

    def semidefinite(self) -> Bound:
        """`A(x) >= 0`, which a maximum principle needs: proved where the bound is proved and not negative."""
        return self.ellipticity()

    def _constant_ellipticity(self) -> Bound:
        matrix = np.atleast_2d(self.constant(self.second))
        size = 1e-14 * len(matrix) * float(np.sum(np.abs(matrix)))
        least = float(np.linalg.eigvalsh(matrix)[0])
        if self.isotropic:
            return Bound(least, Basis.EXACT)
        if least <= size and (is_semidefinite(matrix) or self._is_sum_of_squares()):
            return Bound(0.0, Basis.EXACT)
        return Bound(least - size, Basis.EXACT)

    def _is_sum_of_squares(self) -> bool:
        """Whether `A = sum_k s_k sigma_k sigma_k'` with numbers `s_k` that are proved not to be negative."""
        scales = _Scales(self)
        if not scales.apply:
            return False
        bound = self.least(scales)
        return bound.proved and bound.value >= 0

    def divergence(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """`div b - div div A`, which integration by parts makes of drift and diffusion."""
        space = self.space
        identity = jnp.eye(space, x.size, dtype=x.dtype)
        total = jnp.zeros((), x.dtype)
        if "b" in self.varies:
            total += jnp.sum(jax.jacfwd(self.drift)(x) * identity)
        if "A" in self.varies and self.isotropic:
            total -= jnp.sum(jax.jacfwd(jax.jacrev(self.second))(x)[:space] * identity)
        elif "A" in self.varies:
            if x.size > _SECOND:
                raise Unbounded(
                    f"Second derivatives of a matrix of coefficients are taken up to dimension {_SECOND}."
                )
            second = jax.jacfwd(jax.jacrev(self.second))(x)  # (i, j, k, l)
            total -= jnp.einsum("ijij->", second[:, :, :space, :space])
        return total

    def least(
        self, function: Callable[..., Array], values: tuple[float, float] | None = None
    ) -> Bound:
        """A lower bound for `function(x)`, or `function(x, v)` with `v` in a range, over the domain.

        A function that is an `eqx.Module` is compiled once for all operators of one structure.
        """
        try:
            return self._by_intervals(function, values)
        except Unbounded:
            return self.sampled(function, values)

    def _by_intervals(
        self,
        function: Callable[..., Array],
        values: tuple[float, float] | None,
        reduced: Callable[[Any, Any], np.ndarray] | None = None,
    ) -> Bound:
        """A lower bound from cells; `reduced` makes one number of the two ends of an array on each cell."""
        lower, upper = cells(self.domain)
        rest = [] if values is None else [tuple(np.full(len(lower), end) for end in values)]
        bounds = encloser(jax.vmap(function), lower.shape, *((len(lower),) for _ in rest))

        def on_cells(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            (span,) = bounds((low, high), *rest)
            if reduced is None:
                return span.low, span.high
            return reduced(*span), np.full(len(low), np.inf)

        low, most = least_on_cells(on_cells, lower, upper)
        if not np.isfinite(low):
            raise Unbounded("Interval arithmetic found no lower bound.")
        size = max(abs(low), abs(most))
        exact = values is None and size < np.inf and most - low <= 1e-9 * size
        return Bound(low, Basis.EXACT if exact else Basis.INTERVALS)

    def sampled(
        self, function: Callable[..., Array], values: tuple[float, float] | None = None
    ) -> Bound:
        """The smallest value at random points, inside and on the boundary; no proof."""
        ends = None if values is None else np.clip(values, -1e6, 1e6)
        key = key_from(0)
        inside = drawn(self.domain, key, _SAMPLE)
        edge = drawn_on_boundary(self.domain, jr.fold_in(key, 1), _SAMPLE // 10)
        points = np.concatenate([inside, edge])
        least = float(_smallest(points, function, ends, key))
        return Bound(least, Basis.SAMPLED)


class _Scales(eqx.Module):
    """The smallest of the numbers `s_k` in `A = sum_k s_k sigma_k sigma_k'`."""

    operator: Operator

    @property
    def apply(self) -> bool:
        """Whether `A` has this form, by what the equation asks for; nothing is computed."""
        operator, found = self.operator, list[bool]()

        def look(x: Array) -> Array:
            at = operator._linearised(x)
            squares = all(isinstance(form, Factor | Identity | Spatial) for form in at.forms)
            found.append(at.hessian is None and squares)
            return at.residual

        jax.eval_shape(look, np.asarray(operator.domain.centre, np.float64))
        return found[0]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.min(self.operator.orientation * jnp.stack(self.operator._linearised(x).traces))


class _SmallestEigenvalue(eqx.Module):
    """The smallest eigenvalue of `A(x)`."""

    operator: Operator

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return jnp.linalg.eigvalsh(self.operator.second(x))[0]


def smallest_eigenvalue(operator: Operator) -> Callable[[Array], Array]:
    """The smallest eigenvalue of `A(x)` as a function of the point."""
    return operator.second if operator.isotropic else _SmallestEigenvalue(operator)


@compiled(brief=True)
def _value(function: Callable[[Array], Array], x: Any) -> Array:
    return function(x)


@compiled
def _smallest(points: Any, function: Any, values: Any, key: PRNGKeyArray) -> Array:
    if values is None:
        return jnp.min(jax.vmap(function)(points))
    share = jr.uniform(jr.fold_in(key, 2), (len(points),), points.dtype)
    v = values[0] + (values[1] - values[0]) * share
    # Half of the values of all sizes, because a range may be very wide.
    size = 10.0 ** (9.0 * jr.uniform(jr.fold_in(key, 3), (len(points),), points.dtype) - 3.0)
    signed = jnp.where(jr.bernoulli(jr.fold_in(key, 4), shape=size.shape), size, -size)
    v = jnp.where(jnp.arange(len(points)) % 2 == 0, v, jnp.clip(signed, values[0], values[1]))
    return jnp.min(jax.vmap(function)(points, v))


class _Parts(eqx.Module):
    """`w' A w`, `b` and `c` as one function of a point, a jet and a direction `w`; nothing is d x d."""

    equation: Equation

    def __call__(
        self, x: Any, v: Any, slope: Any, curvature: Any, bend: Any, w: Any
    ) -> tuple[Array, Array, Array]:
        at = linearise(self.equation, x, Jet(Quadratic(v, slope, curvature, bend), x))
        return at.quadratic(w[None])[0], at.grad, -at.value


def is_affine_in_second(domain: AbstractDomain, equation: Equation) -> bool:
    """Whether `dF/dHess` does not depend on second derivatives, by the program."""
    jet = [lower for lower, _ in every_jet(domain)]
    second = dependencies(_Parts(equation), *jet, jet[0])[0]
    return not second & {3, 4}


def _is_isotropic(equation: Equation, jet: list[Any]) -> bool:
    """Whether the second-order part is a multiple of the Laplacian; nothing is computed."""
    found: list[bool] = []

    def look(x: Any, *rest: Any) -> Array:
        at = linearise(equation, x, Jet(Quadratic(*rest), x))
        found.append(
            at.hessian is None and all(isinstance(form, Identity | Spatial) for form in at.forms)
        )
        return at.residual

    jax.eval_shape(look, *jet)
    return found[0]
