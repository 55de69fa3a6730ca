"""Long horizons in windows: the time is cut, and each window starts from what the last one ended with.

One network for all times does not know what comes first, and a long horizon asks much of it. In a window of
length `h` the data are the values of the last `Q`, so that errors are carried on: `_solve/carried.py`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._arguments import an_instance, real, whole
from .._field.base import AbstractField, Autodiff
from .._field.evolution import EvolutionJet
from .._field.form import AbstractForm
from .._precision import Numbers, cast, x64
from .._problem.evolution import Extension
from .._problem.points import as_rows, with_times
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._problem.trial import Trial
from .solve import solve


@dataclasses.dataclass(frozen=True)
class Windowed:
    """The solution of an evolution problem in windows of time: a function `(x, t)`.

    - `windows`: a `Solution` for each, in the order of the time since the data; its own time starts at zero.
    """

    problem: Problem
    windows: tuple[Solution, ...]

    @property
    def length(self) -> float:
        """The length of a window."""
        times = self.windows[0].problem.domain.times
        assert times is not None  # windows have one
        return float(times.end)

    def __call__(self, points: Any, t: Any = None) -> Any:
        """`Q` at points in space and a time, or at points of space-time."""
        return self._map("__call__", points, t)

    def grad(self, points: Any, t: Any = None) -> Any:
        """The gradient in space."""
        return self._map("grad", points, t)

    def dt(self, points: Any, t: Any = None) -> Any:
        """The derivative in time."""
        return self._map("dt", points, t)

    def residual(self, points: Any, t: Any = None) -> Any:
        """`L Q`, the equation as it was written."""
        return self._map("residual", points, t)

    def at(self, t: float) -> Callable[[Any], Any]:
        """The solution at one time, as a function of points in space."""
        times = self.problem.domain.times
        assert times is not None  # windows have one
        instant = float(real("t", t, least=0.0, most=float(times.end)))
        return lambda points: self(points, instant)

    def _map(self, name: str, points: Any, t: Any) -> Any:
        if t is not None:
            points = with_times(points, t, self.problem.domain)
        rows, values = as_rows(points, self.problem.dim, True), None
        count = len(self.windows)
        which = np.clip(np.ceil(rows[:, -1] / self.length).astype(int) - 1, 0, count - 1)
        for number in np.unique(which):
            mine = which == number
            moved = rows[mine] - np.append(np.zeros(rows.shape[1] - 1), number * self.length)
            found = np.asarray(getattr(self.windows[number], name)(moved))
            if values is None:
                values = np.zeros((len(rows), *found.shape[1:]), found.dtype)
            values[mine] = found
        assert values is not None  # points have at least one row
        return values if np.ndim(points) == 2 else values[0]

    def __repr__(self) -> str:
        lines = [
            f"Solution of {self.problem.name} in {len(self.windows)} windows of {self.length:g}:"
        ]
        for number, one in enumerate(self.windows):
            word = "not judged" if one.verdict is None else str(one.verdict)
            lines.append(f"  to t = {(number + 1) * self.length:.4g}: {word}")
        return "\n".join(lines)


class _LastInstant(AbstractField):
    """A trial function at the end of its window, as a field in space."""

    trial: Trial
    end: Numbers

    def _z(self, x: Array) -> Array:
        return jnp.append(x, jnp.asarray(self.end, x.dtype))

    def value(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        return self.trial.value(self._z(x))

    def grad(self, x: Float[Array, " d"]) -> Float[Array, " d"]:
        return self.trial.jet(self._z(x)).grad[:-1]

    def trace(self, x: Float[Array, " d"], form: AbstractForm) -> Float[Array, ""]:
        return Autodiff(self.value).trace(x, form)

    def hessian(self, x: Float[Array, " d"]) -> Float[Array, "d d"]:
        return self.trial.jet(self._z(x)).hessian[:-1, :-1]


class _Later(eqx.Module):
    """A function of points of space-time, so much later."""

    function: Callable[..., Any]
    shift: Numbers

    def _z(self, x: Any, t: Any) -> Any:
        return jnp.append(x, t + jnp.asarray(self.shift, x.dtype))

    def __call__(self, x: Any, t: Any) -> Any:
        return self.function(self._z(x, t))


class _LaterEquation(_Later):
    """An equation of space-time, so much later."""

    def __call__(self, x: Any, t: Any, u: EvolutionJet) -> Any:  # pyright: ignore
        return self.function(self._z(x, t), u.whole)


def solve_windows(problem: Problem, windows: int, **options: Any) -> Windowed:
    """Solve an evolution problem with initial data in windows of time, one after the other.

        >>> solution = solve_windows(problem, 5, budget=20)
        >>> solution(x, 3.7)
        >>> certify_windows(solution)

    **Arguments**

    - `windows`: how many, of equal length.
    - `options`: those of `solve`, for each window: `budget` is that of one window.
    """
    an_instance(
        "problem", problem, Problem, "qpde.Problem(domain, equation, time=..., initial=...)"
    )
    count = whole("windows", windows, least=1, most=1_000)
    field = problem.boundary
    extension = field.function if isinstance(field, Autodiff) else None
    times = problem.domain.times
    if times is None or times.backward or not isinstance(extension, Extension):
        raise ValueError(
            "Windows are for evolution problems on a bounded domain, with initial data that agree with the "
            "boundary data where they meet. Take qpde.solve(problem)."
        )
    with x64():
        length, found = float(times.end) / count, list[Solution]()
        start: Any = extension.start
        for number in range(count):
            found.append(solve(_window(problem, extension, start, number, length), **options))
            start = _LastInstant(cast(found[-1].trial, "float64"), np.asarray(length))
    return Windowed(problem, tuple(found))


def _window(
    problem: Problem, extension: Extension, start: Any, number: int, length: float
) -> Problem:
    """The problem of one window, whose time starts at zero."""
    shift = np.asarray(number * length)
    exact = problem.exact
    return Problem(
        problem.domain.spatial,
        _LaterEquation(problem.equation, shift),
        _Later(extension.side, shift),
        time=length,
        initial=start,
        exact=None if exact is None else _Later(exact, shift),
        name=f"{problem.name}, window {number + 1}",
        blind_to_kinks=problem.blind_to_kinks,
    )
