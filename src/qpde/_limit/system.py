"""The limit equation on nodes, in the eigenfunctions of its kernel.

On nodes with weights `m_j` the kernel is `B = sum_a phi_a phi_a'` (its eigenfunctions, those below 1e-14 of
the largest eigenvalue left out), so that

    Q = f + sum_a q_a phi_a,    dq/dt = alpha Phi' M L(f + Phi q).

In these coordinates a self-adjoint `L` gives a matrix that is symmetric up to the error of the nodes, and `q`
stays of the size of `u - f`. In the coordinates `V` of `Q = f + B V` neither holds.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
import scipy.linalg

from .._equation.operator import Structure
from .._network.shallow import Shallow
from .._precision import x64
from .._problem.problem import Problem
from .._problem.trial import Trial
from .field import KernelField
from .kernel import TangentKernel
from .rows import Rows, at_points, extension, linearise, residuals

_RANK = 1e-14


class Linearised(eqx.Module):
    """`L Q = constant + slopes q` at points: for all `q` where `L` is linear, otherwise near one `q`."""

    constant: np.ndarray  # (n,)
    slopes: np.ndarray  # (n, r)

    def __call__(self, q: np.ndarray) -> np.ndarray:
        return self.constant + self.slopes @ q


class AbstractSample(eqx.Module):
    """Points with weights, and `Q = f + Phi q` there for coefficients `q`."""

    extension: eqx.AbstractVar[Trial]  # Q = f
    rows: eqx.AbstractVar[Rows]
    shape: eqx.AbstractVar[np.ndarray]  # phi_a(x) = eta(x) sum_j shape[j, a] A(x, y_j)
    weights: eqx.AbstractVar[np.ndarray]
    f: eqx.AbstractVar[np.ndarray]
    phi: eqx.AbstractVar[np.ndarray]  # (n, r)
    linear: eqx.AbstractVar[Linearised | None]  # L Q, where the equation is linear

    @property
    def points(self) -> np.ndarray:
        """The points, `(n, d)`."""
        return self.rows.points

    @property
    def rank(self) -> int:
        """The number of coefficients."""
        return self.shape.shape[1]

    def values(self, function: Callable[..., Any]) -> np.ndarray:
        """A function of one point at these points."""
        return at_points(function, self.points)

    def residual(self, q: np.ndarray) -> np.ndarray:
        """`L Q` at the points."""
        if self.linear is not None:
            return self.linear(q)
        with x64():
            return np.asarray(residuals(self.extension, self.rows, self.shape @ q))

    def loss(self, q: np.ndarray) -> float:
        """The mean of `(L Q)^2`."""
        return float(self.weights @ np.square(self.residual(q)))

    def linearised(self, q: np.ndarray) -> Linearised:
        """`L Q` near the coefficients `q`."""
        if self.linear is not None:
            return self.linear
        return _linearised(self.extension, self.rows, self.shape, q)


class HeldOut(AbstractSample):
    """A system at points that are not its nodes: `L Q` there shows errors that the nodes do not."""

    extension: Trial
    rows: Rows
    shape: np.ndarray
    weights: np.ndarray
    f: np.ndarray
    phi: np.ndarray
    linear: Linearised | None


class System(AbstractSample):
    """The limit equation on nodes, in the eigenfunctions of `B`.

    **Arguments**

    - `network`: the `Shallow` network whose limit is taken.
    - `count`: the number of nodes.
    - `seed`: of the nodes.
    """

    problem: Problem
    kernel: TangentKernel
    extension: Trial
    rows: Rows
    shape: np.ndarray
    eigenvalues: np.ndarray  # of B, the largest first
    weights: np.ndarray
    f: np.ndarray
    phi: np.ndarray
    start: Linearised  # L Q near Q = f
    linear: Linearised | None

    def __init__(self, problem: Problem, network: Shallow, count: int, *, seed: int = 0):
        self.problem, self.extension = problem, extension(problem)
        frame = network.build(problem.domain, key=jr.key(0)).frame
        centre, half = frame.centre.array, frame.half.array
        scale = problem.dim**-0.5 if network.scale is None else float(network.scale)
        self.kernel = TangentKernel(network.activation, scale=scale)
        points, self.weights = problem.domain.nodes(count, seed=seed)
        nodes = (points - centre) / half
        self.rows = Rows(points, self.kernel.values(nodes, nodes), nodes, centre, half)
        self.f = at_points(problem.boundary.value, points)
        root = np.sqrt(self.weights)
        side = root * at_points(problem.domain.eta.value, points)
        size, vectors = scipy.linalg.eigh(side[:, None] * self.rows.known.value * side[None])
        kept = size > _RANK * size[-1]
        self.eigenvalues = size[kept][::-1]
        vectors = vectors[:, kept][:, ::-1]
        self.shape = side[:, None] * vectors / np.sqrt(self.eigenvalues)[None]
        self.phi = vectors * np.sqrt(self.eigenvalues)[None] / root[:, None]
        self.start = _linearised(self.extension, self.rows, self.shape, np.zeros(kept.sum()))
        is_linear = problem.operator.structure is Structure.LINEAR
        self.linear = self.start if is_linear else None

    def held_out(self, count: int, *, seed: int) -> HeldOut:
        """The same coefficients at other points."""
        x, weights = self.problem.domain.nodes(count, seed=seed)
        own = self.rows
        known = self.kernel.values((x - own.centre) / own.half, own.nodes)
        rows = Rows(x, known, own.nodes, own.centre, own.half)
        eta = at_points(self.problem.domain.eta.value, x)
        linear = None
        if self.linear is not None:
            linear = _linearised(self.extension, rows, self.shape, np.zeros(self.rank))
        return HeldOut(
            extension=self.extension,
            rows=rows,
            shape=self.shape,
            weights=weights,
            f=at_points(self.problem.boundary.value, x),
            phi=eta[:, None] * (known.value @ self.shape),
            linear=linear,
        )

    @property
    def side(self) -> np.ndarray:
        """`Phi' M`: the flow is `dq/dt = alpha Phi' M L Q`, `(r, n)`."""
        return self.phi.T * self.weights[None]

    def flow(self) -> tuple[np.ndarray, np.ndarray]:
        """`G = Phi' M L Phi` and `g = Phi' M L f`: near `q = 0` the flow is `dq/dt = alpha (g + G q)`."""
        return self.side @ self.start.slopes, self.side @ self.start.constant

    def field(self, q: np.ndarray) -> KernelField:
        """The network `S` of `Q = S eta + f` with coefficients `q`."""
        domain, rows = self.problem.domain, self.rows
        centre, radius = domain.enclosing_ball
        off = np.linalg.norm((centre - rows.centre) / rows.half)
        return KernelField.of(
            self.kernel,
            rows.nodes,
            self.shape @ q,
            reach=float(off + radius / rows.half.min()),
            centre=rows.centre,
            half=rows.half,
            centred=bool(np.allclose(rows.centre, domain.centre, rtol=0, atol=0)),
        )

    def trial(self, q: np.ndarray) -> Trial:
        """`Q` with coefficients `q`."""
        return Trial.of(self.problem, self.field(q), exact_boundary=True)


def _linearised(start: Trial, rows: Rows, shape: np.ndarray, q: np.ndarray) -> Linearised:
    value, by_weights = linearise(start, rows, shape @ q)
    slopes = by_weights @ shape
    return Linearised(value - slopes @ q, slopes)
