"""The limit equation in time, `dq/dt = alpha Phi' M L Q` from `q = 0`, in the coordinates of `system`.

A linear flow is solved exactly in time by the eigenvectors of its matrix, a nonlinear one by a stiff
integrator.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array

from .._compiled import compiled
from .._precision import Numbers, x64
from .._problem.trial import Trial
from .._status import Status
from .._train.interrupt import Keyboard
from .rows import Rows, residuals
from .system import System

# A positive eigenvalue of the flow below this part of the largest one is an error of the nodes.
_ROUNDING = 1e-6
# The exponent from which on a flow has grown too much for its end to mean anything.
_GROWN = 30.0
_RELATIVE, _ABSOLUTE, _MAX_STEPS = 1e-6, 1e-9, 20_000
# The first step of the integrator, and its first step after a stop in parts of the time.
_FIRST, _NEXT = 1e-3, 0.01


@dataclasses.dataclass(frozen=True)
class Path:
    """Coefficients at times of the flow, and how the flow ended."""

    times: np.ndarray
    coefficients: list[np.ndarray]  # one array `(r,)` for every time
    status: Status

    def at(self, times: np.ndarray) -> "Path":
        """The path at those of its times that are listed."""
        wanted = np.isin(self.times, times)
        chosen = [q for q, use in zip(self.coefficients, wanted, strict=True) if use]
        return Path(self.times[wanted], chosen, self.status)

    def then(self, time: float, q: np.ndarray) -> "Path":
        """The path with one more time."""
        return Path(np.append(self.times, time), [*self.coefficients, q], self.status)


class LinearFlow:
    """The linear flow, exact in time: `q(t) = sum_k x_k c_k (exp(alpha l_k t) - 1) / l_k`."""

    def __init__(self, system: System, rate: float):
        matrix, force = system.flow()
        values, vectors = (np.asarray(v) for v in np.linalg.eig(matrix))
        order = np.argsort(-np.abs(values))
        self.values: Any = values[order]
        self._vectors: Any = vectors[:, order]
        condition = np.linalg.cond(self._vectors)
        if not condition < 1e10:
            raise ValueError(
                f"The flow's eigenvectors are nearly parallel (condition {condition:.0e}), so that it "
                "cannot be solved by them. Take more nodes."
            )
        self._parts = np.linalg.solve(self._vectors, force.astype(complex))
        self._rate = rate
        growing = self.values.real > 0
        # Nodes are not integrals: tiny eigenvalues may come out on the wrong side.
        wrong = growing & (self.values.real <= _ROUNDING * np.abs(self.values).max())
        self.clamped = int(wrong.sum())
        self._used = np.where(wrong, 0.0, self.values)

    def __call__(self, t: float) -> np.ndarray:
        """The coefficients at time `t`."""
        z = self._used * self._rate * t
        small = np.abs(z) < 1e-8
        safe = np.where(small, 1.0, self._used)
        with np.errstate(over="ignore", invalid="ignore"):
            grown = np.where(small, self._rate * t * (1.0 + 0.5 * z), np.expm1(z) / safe)
            return (self._vectors @ (grown * self._parts)).real

    def path(self, times: np.ndarray) -> Path:
        """The flow at rising times; times at which it has overflowed are left out."""
        if not len(times):
            return Path(times, [], Status.FINISHED)
        path = [self(t) for t in times]
        finite = np.array([np.all(np.isfinite(q)) for q in path])
        grown = self.values.real.max() * self._rate * times[-1] > _GROWN
        status = Status.FINISHED if np.all(finite) and not grown else Status.DIVERGED
        return Path(times, path, status).at(times[finite])


def integrate(system: System, rate: float, times: np.ndarray, report: Callable[[int], Any]) -> Path:
    """The nonlinear flow at rising times, by an implicit Runge-Kutta method of order five.

    `report` is called with the index of every time that is reached.
    """
    path, q, now, first = [], np.zeros(system.rank), 0.0, _FIRST
    status, side = Status.FINISHED, system.side
    with x64(), Keyboard() as keyboard:
        for index, end in enumerate(times):
            # Arrays of one type: Python numbers would be compiled into the program.
            numbers = (np.float64(v) for v in (rate, now, end, min(first, end - now)))
            found, succeeded = _advance(
                system.extension, system.rows, system.shape, side, q, *numbers
            )
            if not succeeded:
                status = Status.GAVE_UP
                break
            q, first, now = np.asarray(found), max(first, _NEXT * end), end
            path.append(q)
            report(index)
            if keyboard.seen:
                status = Status.INTERRUPTED
                break
    return Path(times[: len(path)], path, status)


@compiled(hot=True)
@functools.partial(eqx.debug.assert_max_traces, max_traces=None)
def _advance(
    extension: Trial,
    rows: Rows,
    shape: Any,
    side: Any,
    q: Numbers,
    rate: Numbers,
    start: Numbers,
    end: Numbers,
    first: Numbers,
) -> tuple[Array, Array]:
    """The coefficients at time `end` from those at time `start`, and whether the integrator got there."""
    import diffrax

    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, q, _: rate * (side @ residuals(extension, rows, shape @ q))),
        diffrax.Kvaerno5(),
        t0=start,
        t1=end,
        dt0=first,
        y0=q,
        stepsize_controller=diffrax.PIDController(rtol=_RELATIVE, atol=_ABSOLUTE),
        max_steps=_MAX_STEPS,
        throw=False,
    )
    assert found.ys is not None  # it holds the end
    return found.ys[-1], found.result == diffrax.RESULTS.successful
