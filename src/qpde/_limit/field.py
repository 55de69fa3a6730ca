"""The network of infinite width as a field: `S(x) = sum_j a_j A(y, y_j)`, `y = (x - centre) / half`.

`A` and the parts of its derivatives (see `kernel`) are smooth functions of the variance
`v = s^2 |y|^2 + 1`, of the correlation `rho` with node `y_j`, and of the node. They are tabulated
once, for every node, as Chebyshev polynomials in `v` and `rho`; a value then costs a few
products per node, and no derivative is differentiated.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.fft
from jaxtyping import Array, Float
from numpy.polynomial.chebyshev import chebpts1

from .._field.base import SourcedField
from .._field.form import AbstractForm, Identity
from .._precision import Numbers
from .kernel import WANTED, TangentKernel, Values, combine

# Most coefficients in v and in rho; the size, relative to the largest, below which a coefficient is
# dropped; the number of nodes whose tables decide how many coefficients are kept.
_DEGREES, _NEGLIGIBLE, _TRIED = (24, 96), 1e-14, 48
# The tabulated functions. `towards` is y . grad A; the last four make up the Hessian.
_KINDS = ("value", "laplacian", "towards", "along_x", "along_y", "h0", "h1", "h2", "h3")


class KernelField(SourcedField):
    """`S(x) = sum_j a_j A(y, y_j)`, the weights being part of the tables."""

    nodes: Numbers  # y_j, in the frame
    tables: Numbers  # (kind, degree in rho, node, degree in v)
    variances: Numbers  # the range of v
    correlations: Numbers  # the range of rho
    scale: Numbers
    centre: Numbers
    half: Numbers
    round: bool = eqx.field(static=True)  # the same half for all axes, centred on the domain

    @classmethod
    def of(
        cls,
        kernel: TangentKernel,
        nodes: np.ndarray,
        weights: np.ndarray,
        *,
        reach: float,
        centre: np.ndarray,
        half: np.ndarray,
        centred: bool = False,
    ) -> "KernelField":
        """Tabulate the kernel for points of the frame with `|y| <= reach`.

        `centred` says that the frame's centre is the domain's.
        """
        s2, size = kernel.scale**2, np.sum(np.square(nodes), axis=1)
        v = np.array([1.0, s2 * reach**2 + 1.0])
        least = 1.0 - s2 * reach * math.sqrt(size.max())
        # The correlation is smallest for opposite points; a negative one is divided by the smallest v.
        rho = np.array([max(least / v[1] if least > 0 else least, -1.0), 1.0])
        few = np.argsort(size)[np.linspace(0, len(size) - 1, min(len(size), _TRIED)).astype(int)]
        degrees = _needed(_tabulate(kernel, nodes[few], v, rho, _DEGREES))
        tables = _tabulate(kernel, nodes, v, rho, degrees)
        return cls(
            nodes=np.asarray(nodes, np.float64),
            tables=tables * np.asarray(weights, np.float64)[None, None, :, None],
            variances=v,
            correlations=rho,
            scale=np.asarray(kernel.scale),
            centre=np.asarray(centre, np.float64),
            half=np.asarray(half, np.float64),
            round=bool(centred and np.all(half == half[0])),
        )

    @classmethod
    def empty(cls, shape: Sequence[int], dim: int, is_round: bool) -> "KernelField":
        """A field of a given form, to be filled with the numbers of a file."""
        pair, vector = np.zeros(2), np.zeros(dim)
        nodes, tables = np.zeros((shape[2], dim)), np.zeros(tuple(shape))
        return cls(nodes, tables, pair, pair, np.zeros(()), vector, vector, is_round)

    def judged_by(self) -> None:
        return None  # its tables are polynomials, in variables that are smooth

    def at(self, x: Float[Array, " d"]) -> "_Sum":
        return _CentredSum(self, x) if self.round else _Sum(self, x)


class _Answers:
    """Answers at one point, from sums over the nodes (`_total`) and their terms (`_each`)."""

    def __init__(self, x: Float[Array, " d"], nodes: Any, centre: Any, half: Any):
        self._dtype, self._nodes, self._half = x.dtype, jnp.asarray(nodes), half
        self._y = (x - centre) / half

    @abstractmethod
    def _total(self, kind: str) -> Float[Array, ""]: ...

    @abstractmethod
    def _each(self, kind: str) -> Float[Array, " m"]: ...

    def value(self) -> Float[Array, ""]:
        return self._total("value").astype(self._dtype)

    def grad(self) -> Float[Array, " d"]:
        total = self._total("along_x") * self._y + self._each("along_y") @ self._nodes
        return (total / self._half).astype(self._dtype)

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        y, nodes = self._y / self._half, self._nodes / self._half[None]
        scaled = jnp.sum(form.diagonal(y) / self._half**2)
        total = scaled * self._total("h0") + form.quadratic(y) * self._total("h1")
        total = total + 2.0 * jnp.dot(self._each("h2"), nodes @ form.apply(y))
        return (total + jnp.dot(self._each("h3"), form.quadratic(nodes))).astype(self._dtype)

    def hessian(self) -> Float[Array, "d d"]:
        y, nodes = self._y / self._half, self._nodes / self._half[None]
        cross = jnp.outer(y, self._each("h2") @ nodes)
        own = self._total("h0") * jnp.diag(1.0 / jnp.asarray(self._half) ** 2)
        own = own + self._total("h1") * jnp.outer(y, y)
        other = (nodes.T * self._each("h3")[None]) @ nodes
        return (own + cross + cross.T + other).astype(self._dtype)


class KnownField(SourcedField):
    """`S(x) = sum_j a_j A(y, y_j)` at the one point where `A` and its derivatives are known.

    A field of this kind answers at that point only; it needs no table.
    """

    weights: Numbers  # a_j
    known: Values  # at the point, `(m,)` each
    nodes: Numbers  # y_j, in the frame
    centre: Numbers
    half: Numbers

    def at(self, x: Float[Array, " d"]) -> "_KnownSum":
        return _KnownSum(self, x)


class _KnownSum(_Answers):
    """Answers of a `KnownField`."""

    def __init__(self, field: KnownField, x: Float[Array, " d"]):
        super().__init__(x, field.nodes, field.centre, field.half)
        self._weights, known = field.weights, field.known
        h0, h1, h2, h3 = known.curvature
        self._known = {"h0": h0, "h1": h1, "h2": h2, "h3": h3}
        self._known |= {"value": known.value, "along_x": known.along_x, "along_y": known.along_y}

    def _total(self, kind: str) -> Float[Array, ""]:
        return jnp.dot(self._weights, self._known[kind])

    def _each(self, kind: str) -> Float[Array, " m"]:
        return self._weights * self._known[kind]


class _Sum(_Answers):
    """Answers of a `KernelField`, from its tables.

    Totals and terms have a recursion each: adding up the terms of Clenshaw's would do for both, but at
    1,024 nodes a total takes twice the time of the matrix products.
    """

    def __init__(self, field: KernelField, x: Float[Array, " d"]):
        super().__init__(x, field.nodes, field.centre, field.half)
        self._tables, s2 = field.tables, field.scale**2
        v = s2 * jnp.dot(self._y, self._y) + 1.0
        vj = s2 * jnp.sum(jnp.square(self._nodes), axis=1) + 1.0
        rho = (s2 * (self._nodes @ self._y) + 1.0) / jnp.sqrt(v * vj)
        self._rho = _unit(rho, field.correlations)
        self._basis = _chebyshev(_unit(v, field.variances), field.tables.shape[-1])

    def _table(self, kind: str) -> Float[Array, "q m p"]:
        return jnp.asarray(self._tables)[_KINDS.index(kind)]

    def _total(self, kind: str) -> Float[Array, ""]:
        """The sum over the nodes: for many points, one matrix product a degree."""
        z = self._rho

        def step(state: tuple[Array, Array, Array], row: Array) -> tuple[Any, None]:
            now, following, total = state
            return (following, 2.0 * z * following - now, total + now @ row), None

        start = (jnp.ones_like(z), z, jnp.zeros_like(self._basis))
        (_, _, total), _ = jax.lax.scan(step, start, self._table(kind))
        return jnp.dot(total, self._basis)

    def _each(self, kind: str) -> Float[Array, " m"]:
        """The terms of the nodes, by Clenshaw's recursion."""
        z = self._rho

        def step(state: tuple[Array, Array], row: Array) -> tuple[tuple[Array, Array], None]:
            one, two = state
            return (row @ self._basis + 2.0 * z * one - two, one), None

        table, zero = self._table(kind), jnp.zeros_like(z)
        (one, two), _ = jax.lax.scan(step, (zero, zero), table[:0:-1])
        return table[0] @ self._basis + z * one - two


class _CentredSum(_Sum):
    """The same where the frame shares the domain's centre and has one scale."""

    def towards(self, centre: Any) -> Float[Array, ""]:
        """`(x - centre) . grad S` for the centre of the domain, which is the frame's."""
        return self._total("towards").astype(self._dtype)

    def trace(self, form: AbstractForm) -> Float[Array, ""]:
        if not isinstance(form, Identity):
            return super().trace(form)
        return (self._total("laplacian") / self._half[0] ** 2).astype(self._dtype)


def _unit(value: Any, bounds: Any) -> Any:
    """Map the range to [-1, 1]."""
    lower, upper = bounds[0], bounds[1]
    return (2.0 * value - lower - upper) / (upper - lower)


def _chebyshev(z: Array, count: int) -> Array:
    """`T_0(z), ..., T_(count - 1)(z)`."""
    rows = [jnp.ones_like(z), z]
    for _ in range(count - 2):
        rows.append(2.0 * z * rows[-1] - rows[-2])
    return jnp.stack(rows[:count])


def _tabulate(
    kernel: TangentKernel,
    nodes: np.ndarray,
    v: np.ndarray,
    rho: np.ndarray,
    degrees: tuple[int, int],
) -> np.ndarray:
    """Chebyshev coefficients of every kind for every node: `(kind, degree in rho, node, degree in v)`."""
    at_v, at_rho = _points(v, degrees[0]), _points(rho, degrees[1])
    s2, size = kernel.scale**2, np.sum(np.square(nodes), axis=1)
    at_nodes = s2 * size + 1.0
    left, right = kernel.mehler(at_v), kernel.mehler(at_nodes)
    count = len(left) - max(i for i, _ in WANTED)
    k = np.arange(count)
    powers = at_rho[:, None] ** k[None]

    def factor(alpha: np.ndarray, size: np.ndarray, i: int) -> np.ndarray:
        growth = np.sqrt(np.prod([k + 1.0 + step for step in range(i)], axis=0))
        return (growth * alpha[i : i + count].T * size[:, None] ** (-0.5 * i)).T

    t = {}
    for i, j in WANTED:
        first, second = factor(left, at_v, i), factor(right, at_nodes, j)
        t[i, j] = np.stack([(powers * column[None]) @ second for column in first.T], axis=-1)
    # On the grid (rho, node, v): |y|^2, |y_j|^2 and y . y_j.
    own, other = (at_v - 1.0)[None, None] / s2, size[None, :, None]
    inner = at_rho[:, None, None] * np.sqrt(at_v[None, None] * at_nodes[None, :, None])
    inner = (inner - 1.0) / s2
    found = combine(lambda i, j: t[i, j], inner + 1.0, s2)
    h0, h1, h2, h3 = found.curvature
    laplacian = nodes.shape[1] * h0 + own * h1 + 2.0 * inner * h2 + other * h3
    towards = own * found.along_x + inner * found.along_y
    kinds = (found.value, laplacian, towards, found.along_x, found.along_y, h0, h1, h2, h3)
    return np.stack([_coefficients(kind) for kind in kinds])


def _points(bounds: np.ndarray, count: int) -> np.ndarray:
    """Chebyshev points of a range, the largest first, as the cosine transform wants them."""
    lower, upper = bounds
    return 0.5 * (lower + upper) + 0.5 * (upper - lower) * chebpts1(count)[::-1]


def _coefficients(values: np.ndarray) -> np.ndarray:
    """Chebyshev coefficients from values at `_points`, along the first axis and the last.

    A cosine transform is exact to rounding, 5e-16 at 96 points; a product with `chebvander` is to 1e-13.
    """
    found = scipy.fft.dctn(values, axes=(0, -1)) / (values.shape[0] * values.shape[-1])
    found[0] *= 0.5
    found[..., 0] *= 0.5
    return found


def _needed(tables: np.ndarray) -> tuple[int, int]:
    """The numbers of coefficients in v and rho that count; slowly falling coefficients are refused."""
    sizes = np.abs(tables) / np.abs(tables).max(axis=(1, 2, 3), keepdims=True)

    def count(sizes: np.ndarray, variable: str) -> int:
        if sizes[-2:].max() > 1e-9:
            raise ValueError(
                f"The kernel is not smooth enough in the {variable} for its table (last coefficients "
                f"{sizes[-2:].max():.1e}). Lower the network's scale or take a smoother activation."
            )
        return max(int(np.flatnonzero(sizes > _NEGLIGIBLE)[-1]) + 1, 3)

    return count(sizes.max(axis=(0, 1, 2)), "variance"), count(
        sizes.max(axis=(0, 2, 3)), "correlation"
    )
