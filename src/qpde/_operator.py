"""An equation as an operator: its coefficients, what they depend on, and bounds for them.

Oriented, an equation is `F(x, u, grad u, Hess u)` with `A = dF/dHess >= 0`. Where it is linear,
`L u = A : Hess u + b . grad u - c u + r`.
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
from jaxtyping import Array, Float

from ._enclosure import Unbounded, enclose, roughness_over
from ._form import Identity, fresh
from ._jet import Coefficients, Jet, Quadratic, linearise
from ._problem import Problem
from ._program import JUMP, KINK, dependencies

_SAMPLE = 20_000
# Cells into which the domain's box is cut along every axis, by dimension; one box beyond.
_CELLS = {1: 4_096, 2: 64, 3: 16}
# Up to this dimension matrices of coefficients, and their derivatives, are made.
_MATRIX, _SECOND = 200, 12


class Structure(enum.Enum):
    """How an equation depends on `u`."""

    LINEAR = "linear"
    SEMILINEAR = "semilinear: nonlinear in the value of u only"
    NONLINEAR = "nonlinear in the derivatives of u, or not continuous in u"


@dataclasses.dataclass(frozen=True)
class Bound:
    """A bound for a coefficient over the domain, and how it was had.

    `how` is `exact` (up to rounding), `intervals`, `given` or `sampled`; the last one is no proof.
    """

    value: float
    how: str

    @property
    def proved(self) -> bool:
        """Whether the bound holds for certain."""
        return self.how != "sampled"


class Operator(eqx.Module):
    """The coefficients of an oriented equation as functions of a point and, where it must be, of `u`."""

    problem: Problem
    structure: Structure = eqx.field(static=True)
    isotropic: bool = eqx.field(static=True)  # A is a multiple of the identity
    varies: frozenset[str] = eqx.field(static=True)  # what depends on x: "A", "b", "c"
    rough: frozenset[str] = eqx.field(
        static=True
    )  # too rough in x for its derivatives to be trusted
    jumps: bool = eqx.field(static=True, default=False)  # the equation may jump in u

    @classmethod
    def of(cls, problem: Problem) -> "Operator":
        """Look at the equation's program: what its coefficients depend on."""
        problem, dim = fresh(problem), problem.dim
        zero, vector = np.zeros(()), np.zeros(dim)
        with jax.enable_x64(True):
            isotropic = _is_isotropic(problem, vector, zero, vector, zero, vector)
            parts = _parts(problem, isotropic)
            reach = dependencies(parts, vector, zero, vector, zero, vector)
            (program,) = roughness_over(_whole(problem), *_boxes(problem))
            coefficients = roughness_over(parts, *_boxes(problem))
        second, first, value = reach
        # Derivatives in u do not see jumps in u.
        jumps = any(level == JUMP for argument, level in program.items() if argument > 0)
        if (second | first) - {0} or value - {0, 1} or jumps:
            structure = Structure.NONLINEAR
        else:
            structure = Structure.SEMILINEAR if 1 in value else Structure.LINEAR
        names = zip("Abc", reach, strict=True)
        varies = frozenset(name for name, seen in names if 0 in seen)
        # A is differentiated twice, b once; c may be what it likes.
        limits = zip("Ab", coefficients, (KINK, JUMP), strict=False)
        rough = frozenset(name for name, levels, least in limits if levels.get(0, 0) >= least)
        return cls(problem, structure, isotropic, varies, rough, jumps)

    def second(self, x: Float[Array, " d"]) -> Array:
        """`A(x)`: a matrix, or the number `s` where `A = s I`."""
        return self._at(x)[0]

    def drift(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        """`b(x)`."""
        return self._at(x)[1]

    def killing(self, x: Float[Array, " d"], v: Any = 0.0) -> Float[Array, ""]:
        """`c(x)`; of a semilinear equation, `-dF/du` at `u = v`."""
        return self._at(x, v)[2]

    def source(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """`r(x) = L 0`."""
        zero = Quadratic(jnp.zeros(()), jnp.zeros_like(x), jnp.zeros(()), jnp.zeros_like(x))
        residual = linearise(self.problem.equation, x, Jet(zero, x)).residual
        return self.problem.orientation * residual

    def _at(self, x: Array, v: Any = 0.0) -> tuple[Array, Array, Array]:
        zero = jnp.zeros_like(x)
        parts = _parts(self.problem, self.isotropic)
        return parts(x, jnp.asarray(v, x.dtype), zero, jnp.zeros((), x.dtype), zero)

    def ellipticity(self) -> Bound:
        """A lower bound for the smallest eigenvalue of `A(x)`."""
        if self.isotropic:
            return self.least(self.second)
        if "A" not in self.varies:
            with jax.enable_x64(True):
                matrix = np.asarray(jax.jit(self.second)(jnp.asarray(self.problem.domain.centre)))
            size = float(np.max(np.abs(matrix)))
            return Bound(float(np.linalg.eigvalsh(matrix)[0]) - 1e-13 * size, "exact")

        def gershgorin(x: Array) -> Array:
            a, one = self.second(x), jnp.eye(x.size)
            return jnp.min(jnp.sum(a * one, axis=1) - jnp.sum(jnp.abs(a * (1.0 - one)), axis=1))

        bound = self.least(gershgorin)
        if bound.proved and bound.value > 0:
            return bound
        return self.sampled(lambda x: jnp.linalg.eigvalsh(self.second(x))[0])

    def divergence(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """`div b - div div A`, which integration by parts makes of drift and diffusion."""
        total = jnp.zeros((), x.dtype)
        if "b" in self.varies:
            total += jnp.sum(jax.jacfwd(self.drift)(x) * jnp.eye(x.size))
        if "A" in self.varies and self.isotropic:
            total -= jnp.sum(jax.jacfwd(jax.jacrev(self.second))(x) * jnp.eye(x.size))
        elif "A" in self.varies:
            if x.size > _SECOND:
                raise Unbounded(
                    f"Second derivatives of a matrix of coefficients are taken up to dimension {_SECOND}."
                )
            second = jax.jacfwd(jax.jacrev(self.second))(x)  # (i, j, k, l)
            total -= jnp.einsum("ijij->", second)
        return total

    def least(
        self, function: Callable[..., Array], values: tuple[float, float] | None = None
    ) -> Bound:
        """A lower bound for `function(x)`, or `function(x, v)` with `v` in a range, over the domain."""
        try:
            return self._by_intervals(function, values)
        except Unbounded:
            return self.sampled(function, values)

    def _by_intervals(
        self, function: Callable[..., Array], values: tuple[float, float] | None
    ) -> Bound:
        lower, upper = cells(self.problem)
        boxes = [(lower, upper)]
        if values is not None:
            low, high = (np.full(len(lower), end) for end in values)
            boxes.append((low, high))
        (span,) = enclose(jax.vmap(function), *boxes)
        low, high = float(np.min(span.low)), float(np.max(span.high))
        if not np.isfinite(low):
            raise Unbounded("Interval arithmetic found no lower bound.")
        exact = values is None and high - low <= 1e-9 * max(abs(low), abs(high))
        return Bound(low, "exact" if exact else "intervals")

    def sampled(
        self, function: Callable[..., Array], values: tuple[float, float] | None = None
    ) -> Bound:
        """The smallest value at random points, inside and on the boundary; no proof."""
        least = _smallest(self.problem, function, values, jr.key(0, impl="threefry2x32"))
        return Bound(least, "sampled")


def cells(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corners of boxes that cover the domain, `(n, d)` each."""
    lower, upper = (np.asarray(end) for end in problem.domain.enclosing_box)
    count = _CELLS.get(problem.dim, 1)
    if count == 1:
        return lower[None], upper[None]
    axes = [np.arange(count)] * problem.dim
    index = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, problem.dim)
    width = (upper - lower) / count
    # The last cell ends exactly where the box does.
    return lower + index * width, np.where(index + 1 == count, upper, lower + (index + 1) * width)


@eqx.filter_jit
def _smallest_of(problem: Problem, function: Any, values: Any, key: Any) -> Array:
    domain = problem.domain
    inside = domain.sample(key, _SAMPLE)
    edge = domain.sample_boundary(jr.fold_in(key, 1), _SAMPLE // 10)
    points = jnp.concatenate([inside, edge])
    if values is None:
        return jnp.min(jax.vmap(function)(points))
    share = jr.uniform(jr.fold_in(key, 2), (len(points),), points.dtype)
    v = values[0] + (values[1] - values[0]) * share
    # Half of the values of all sizes, because a range may be very wide.
    size = 10.0 ** (9.0 * jr.uniform(jr.fold_in(key, 3), (len(points),), points.dtype) - 3.0)
    signed = jnp.where(jr.bernoulli(jr.fold_in(key, 4), shape=size.shape), size, -size)
    v = jnp.where(jnp.arange(len(points)) % 2 == 0, v, jnp.clip(signed, values[0], values[1]))
    return jnp.min(jax.vmap(function)(points, v))


def _smallest(problem: Problem, function: Any, values: Any, key: Any) -> float:
    if values is not None and not np.all(np.isfinite(values)):
        values = tuple(np.clip(values, -1e6, 1e6))
    with jax.enable_x64(True):
        return float(_smallest_of(problem, function, values, key))


def _coefficients(
    problem: Problem, x: Any, v: Any, slope: Any, curvature: Any, w: Any
) -> Coefficients:
    x = jnp.asarray(x)
    return linearise(problem.equation, x, Jet(Quadratic(v, slope, curvature, w), x))


def _boxes(problem: Problem) -> list[tuple[Any, Any]]:
    """The domain's box, and all jets."""
    dim = problem.dim
    everything = [(np.full(shape, -np.inf), np.full(shape, np.inf)) for shape in ((), dim, (), dim)]
    lower, upper = (np.asarray(end) for end in problem.domain.enclosing_box)
    return [(lower, upper), *everything]


def _whole(problem: Problem) -> Callable[..., Array]:
    """The equation itself as a function of a point and a jet."""

    def whole(x: Any, v: Any, slope: Any, curvature: Any, w: Any) -> Array:
        return jnp.asarray(problem.equation(x, Jet(Quadratic(v, slope, curvature, w), x)))

    return whole


def _is_isotropic(problem: Problem, *arguments: Any) -> bool:
    """Whether the second-order part is a multiple of the Laplacian; nothing is computed."""
    found: list[bool] = []

    def look(*jet: Any) -> Array:
        at = _coefficients(problem, *jet)
        found.append(at.hessian is None and all(isinstance(form, Identity) for form in at.forms))
        return at.residual

    jax.eval_shape(look, *arguments)
    return found[0]


def _parts(problem: Problem, isotropic: bool) -> Callable[..., tuple[Array, Array, Array]]:
    """`A, b, c` as one function of a point and a jet."""
    if not isotropic and problem.dim > _MATRIX:
        raise Unbounded(f"Matrices of coefficients are made up to dimension {_MATRIX}.")

    def parts(x: Any, v: Any, slope: Any, curvature: Any, w: Any) -> tuple[Array, Array, Array]:
        at, sign = _coefficients(problem, x, v, slope, curvature, w), problem.orientation
        total = sum(at.traces, jnp.zeros(())) if isotropic else at.matrix(problem.dim)
        return sign * total, sign * at.grad, -sign * at.value

    return parts
