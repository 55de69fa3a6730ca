"""The limit equation on nodes, in the eigenfunctions of its kernel.

On nodes with weights `m_j` the kernel is `B = sum_a phi_a phi_a'` (its eigenfunctions, those below 1e-14 of
the largest eigenvalue left out), so that

    Q = f + sum_a q_a phi_a,    dq/dt = alpha Phi' M L(f + Phi q).

In these coordinates a self-adjoint `L` gives a matrix that is symmetric up to the error of the nodes, and `q`
stays of the size of `u - f`. In the coordinates `V` of `Q = f + B V` neither holds.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.linalg

from ._form import fresh
from ._jet import Jet, Product, Sum, widely
from ._kernel import TangentKernel, Values
from ._kernel_field import KernelField, Row
from ._network import Shallow
from ._nodes import nodes as place
from ._operator import Operator, Structure
from ._problem import Problem
from ._trial import Trial

_RANK = 1e-14
_ROWS = 256


class System:
    """The limit equation on nodes, in the eigenfunctions of `B`.

    `phi` and `lphi` hold the eigenfunctions and, where the equation is linear, `L` of them without its
    constant part; `f` and `start` hold the extension and `L f`.
    """

    def __init__(self, problem: Problem, network: Shallow, count: int, *, seed: int = 0):
        self.problem, self.linear = problem, Operator.of(problem).structure is Structure.LINEAR
        field = network.build(problem.domain, key=jr.key(0))
        self._centre, self._half = field.frame.centre.array, field.frame.half.array
        scale = problem.dim**-0.5 if network.scale is None else float(network.scale)
        self.kernel = TangentKernel(network.activation, scale=scale)
        self.points, self.weights = place(problem.domain, count, seed=seed)
        self._framed = self._frame(self.points)
        self._eta = self.values(problem.domain.eta.value)
        self.f = self.values(problem.boundary.value)
        root = np.sqrt(self.weights)
        known = self.kernel.values(self._framed, self._framed)
        side = root * self._eta
        size, vectors = scipy.linalg.eigh(side[:, None] * known.value * side[None])
        kept = size > _RANK * size[-1]
        self.eigenvalues = size[kept][::-1]
        vectors = vectors[:, kept][:, ::-1]
        # Node weights of the eigenfunctions: phi_a(x) = eta(x) sum_j shape[j, a] A(x, y_j).
        self.shape = side[:, None] * vectors / np.sqrt(self.eigenvalues)[None]
        self.phi = vectors * np.sqrt(self.eigenvalues)[None] / root[:, None]
        self._known = known
        self.start, slopes = self._rows(self.points, known)
        self.lphi = slopes @ self.shape

    def _frame(self, x: np.ndarray) -> np.ndarray:
        return (x - self._centre) / self._half

    def _rows(self, x: np.ndarray, known: Values) -> tuple[np.ndarray, np.ndarray]:
        """`L f` at the points, and its derivative in the weights of the nodes."""
        values, slopes, nothing = [], [], np.zeros(len(self.points))
        for begin in range(0, len(x), _ROWS):
            part = jax.tree.map(lambda m, b=begin: m[b : b + _ROWS], known)
            with jax.enable_x64(True):
                one, two = _linearised(
                    fresh(self.problem),
                    nothing,
                    x[begin : begin + _ROWS],
                    part,
                    (self._framed, self._centre, self._half),
                )
            values.append(np.asarray(one))
            slopes.append(np.asarray(two))
        return np.concatenate(values), np.concatenate(slopes)

    def elsewhere(self, count: int, seed: int) -> "Elsewhere":
        """The same at other points."""
        x, weights = place(self.problem.domain, count, seed=seed)
        known = self.kernel.values(self._frame(x), self._framed)
        start, slopes = self._rows(x, known)
        eta, f = (_values(f.value, x) for f in (self.problem.domain.eta, self.problem.boundary))
        phi = eta[:, None] * (known.value @ self.shape)
        return Elsewhere(self, x, weights, known, start, slopes @ self.shape, f, phi)

    def residual(self, q: Any, x: np.ndarray | None = None, known: Values | None = None) -> Any:
        """`L Q` at the nodes, or at other points, for coefficients `q`; NumPy in, NumPy out."""
        if self.linear and known is None:
            return self.start + self.lphi @ q
        with jax.enable_x64(True):
            return np.asarray(self.traced_residual(jnp.asarray(q), x, known))

    def traced_residual(
        self, q: Any, x: np.ndarray | None = None, known: Values | None = None
    ) -> Any:
        """The same for arrays that JAX traces."""
        x, known = (self.points, self._known) if known is None else (x, known)
        frame = (self._framed, self._centre, self._half)
        return _residuals(fresh(self.problem), self.shape @ q, x, known, frame)

    def flow(self) -> tuple[np.ndarray, np.ndarray]:
        """`G = Phi' M L Phi` and `g = Phi' M L f`: the linear flow is `dq/dt = alpha (g + G q)`."""
        side = self.phi.T * self.weights[None]
        return side @ self.lphi, side @ self.start

    def field(self, q: np.ndarray) -> KernelField:
        """The network `S` of `Q = S eta + f` with coefficients `q`."""
        centre, radius = self.problem.domain.enclosing_ball
        off = np.linalg.norm((centre - self._centre) / self._half)
        return KernelField.of(
            self.kernel,
            self._framed,
            self.shape @ q,
            reach=float(off + radius / self._half.min()),
            centre=self._centre,
            half=self._half,
            centred=bool(np.allclose(self._centre, self.problem.domain.centre, rtol=0, atol=0)),
        )

    def values(self, function: Callable[..., Any]) -> np.ndarray:
        """A function of one point at the nodes."""
        return _values(function, self.points)

    def trial(self, q: np.ndarray) -> Trial:
        """`Q` with coefficients `q`."""
        return Trial.of(self.problem, self.field(q), exact_boundary=True)


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """A system at points that are not its nodes."""

    system: System
    points: np.ndarray
    weights: np.ndarray
    known: Values
    start: np.ndarray
    lphi: np.ndarray
    f: np.ndarray
    phi: np.ndarray

    def values(self, function: Callable[..., Any]) -> np.ndarray:
        """A function of one point here."""
        return _values(function, self.points)

    def residual(self, q: np.ndarray) -> np.ndarray:
        """`L Q` here."""
        if self.system.linear:
            return self.start + self.lphi @ q
        return self.system.residual(q, self.points, self.known)

    def loss(self, q: np.ndarray) -> float:
        """The mean of `(L Q)^2` here."""
        return float(self.weights @ np.square(self.residual(q)))


def _values(function: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(fresh(function))(jnp.asarray(x)))


def _at(problem: Problem, weights: Any, x: Any, known: Values, frame: Any) -> Any:
    """`L Q` at one point where the kernel's derivatives are known."""
    network = Jet(Row(weights, known, x, *frame), x)
    product = Jet(Product(Jet(problem.domain.eta.at(x), x), network), x)
    jet = Jet(Sum(product, Jet(problem.boundary.at(x), x)), x)
    return problem.orientation * widely(problem.equation, x, jet)


@eqx.filter_jit
def _residuals(problem: Problem, weights: Any, x: Any, known: Values, frame: Any) -> Any:
    return jax.vmap(lambda x, known: _at(problem, weights, x, known, frame))(x, known)


@eqx.filter_jit
def _linearised(problem: Problem, weights: Any, x: Any, known: Values, frame: Any) -> Any:
    def one(x: Any, known: Values) -> Any:
        return jax.value_and_grad(lambda w: _at(problem, w, x, known, frame))(weights)

    return jax.vmap(one)(x, known)
