"""A solution: a function one can call and differentiate, and how it came about."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._arguments import real
from .._compiled import compiled
from .._control.base import AbstractControl
from .._control.policy import Greedy
from .._domain.base import AbstractDomain
from .._field.form import Spatial
from .._precision import by_chunks, cast, copied, is_x64, x64
from .._status import Status
from .accuracy import Accuracy
from .measure import AbstractMeasure
from .points import as_rows, check_shape, with_times
from .problem import Problem
from .score import Score, score_of
from .trial import Trial
from .verdict import Verdict

# Evaluation runs in chunks of this many points (see `by_chunks`).
_CHUNK = 1_024


@dataclasses.dataclass(frozen=True)
class History:
    """What was seen during training: per step, and at the end of every block."""

    loss: np.ndarray  # minibatch mean of (L Q)^2 at the parameters before the step
    gradient: np.ndarray  # norm of the direction
    truncated: np.ndarray  # share of truncated points
    checked_step: np.ndarray  # steps done when the held-out loss was taken
    held_out: np.ndarray  # mean of (L Q)^2 on the held-out points


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a run: its rule, steps and seconds. `kept` is whether the solution has anything of it."""

    name: str
    steps: int
    seconds: float
    compile_seconds: float
    kept: bool

    def __str__(self) -> str:
        done = "solved for" if self.kept else "left as it was"
        if self.steps:
            done = f"{self.steps:,} step{'' if self.steps == 1 else 's'}"
        return f"{self.name}: {done}, {self.seconds:.1f} s"


@dataclasses.dataclass(frozen=True)
class Solution:
    """The approximate solution `Q` of a problem.

    Call it with points of shape `(n, d)` or one point `(d,)`. NumPy in, NumPy out, in the precision it
    was trained in; a JAX array or tracer in, JAX out, so that it can be differentiated and
    compiled into other code.

    Of an evolution problem it takes points in space and a time, `solution(x, t)`, one for all points or one
    each; or points of space-time `(x, t)` of shape `(n, d + 1)`. `solution.at(t)` is a function of `x`.
    """

    problem: Problem
    trial: Trial
    measure: AbstractMeasure
    status: Status
    steps: int
    history: History
    seconds: float
    compile_seconds: float
    rule: str
    seed: int
    precision: str = "float32"
    stages: tuple[Stage, ...] = ()  # where it came about in several

    def __call__(self, points: Any, t: Any = None) -> Any:
        """`Q` at the points: `(n, d) -> (n,)`, `(d,) -> ()`."""
        return self._map(_value, points, t)

    def grad(self, points: Any, t: Any = None) -> Any:
        """The gradient of `Q` (in space): `(n, d) -> (n, d)`, `(d,) -> (d,)`."""
        return self._map(_slope if self._evolves else _grad, points, t)

    def laplacian(self, points: Any, t: Any = None) -> Any:
        """The Laplacian of `Q` (in space): `(n, d) -> (n,)`, `(d,) -> ()`."""
        return self._map(_bend if self._evolves else _laplacian, points, t)

    def dt(self, points: Any, t: Any = None) -> Any:
        """The derivative in time of an evolution problem's `Q`: `(n, d) -> (n,)`, `(d,) -> ()`."""
        if not self._evolves:
            raise ValueError("This problem is stationary: its solution has no derivative in time.")
        return self._map(_in_time, points, t)

    def residual(self, points: Any, t: Any = None) -> Any:
        """`L Q`, the equation as it was written: `(n, d) -> (n,)`, `(d,) -> ()`."""
        return self._map(_residual, points, t)

    def at(self, t: float) -> "Instant":
        """The solution of an evolution problem at one time, as a function of points in space.

        >>> u = solution.at(0.5)
        >>> u(np.zeros(10))
        """
        times = self.problem.domain.times
        if times is None:
            raise ValueError("This problem is stationary: call the solution itself.")
        return Instant(self, float(real("t", t, least=0.0, most=float(times.end))))

    def policy(self, points: Any, t: Any = None) -> Any:
        """The best actions for the value `Q`, of a control problem: `(n, d) -> (n, m)`, `(d,) -> (m,)`."""
        if not isinstance(self.problem.equation, AbstractControl):
            raise ValueError(
                "This problem has no actions: its equation is no qpde.Control, so that there is no policy."
            )
        return self._map(_policy, points, t)

    @property
    def best_batch_loss(self) -> float | None:
        """The smallest minibatch loss seen, which is lower than `score.loss` by luck."""
        losses = self.history.loss[np.isfinite(self.history.loss)]
        return float(losses.min()) if losses.size else None

    @functools.cached_property
    def score(self) -> Score:
        """Loss, error and skill. The first call samples 100,000 fresh points, unless `solve` did; later
        calls return the same object.
        """
        with x64():
            return score_of(self.problem, self.trial, self.measure, self.seed)

    @property
    def known_score(self) -> Score | None:
        """The score where it has been computed; asking for it samples nothing."""
        return vars(self).get("score")

    @property
    def verdict(self) -> Verdict | None:
        """Whether the problem is solved, as `solve` judged at its end; None where nobody has judged.

        A copy with another network (`dataclasses.replace`) has none: a word belongs to what was judged.
        """
        return vars(self).get("known_verdict")

    @property
    def accuracy(self) -> Accuracy | None:
        """What became of `solve(..., accuracy=)`; None where nobody asked, and of a solution from a file."""
        return vars(self).get("known_accuracy")

    @property
    def estimate(self) -> Any:
        """The values at the points of `solve(..., at=points)` with their intervals, as `feynman_kac` gives
        them; None where nobody asked, and of a solution from a file.
        """
        return vars(self).get("known_estimate")

    def with_estimate(self, known: Any) -> "Solution":
        """A copy of the solution that knows the values at the points that were asked for."""
        return self._knowing(known_estimate=known)

    def with_accuracy(self, known: Accuracy) -> "Solution":
        """A copy of the solution that knows what became of the accuracy that was asked for."""
        return self._knowing(known_accuracy=known)

    def with_score(self, known: Score) -> "Solution":
        """A copy of the solution that has a score already, from `solve` or from a file."""
        return self._knowing(score=known)

    def with_verdict(self, known: Verdict) -> "Solution":
        """A copy of the solution that has a verdict, from `solve`, `judge` or a file."""
        return self._knowing(known_verdict=known)

    def _knowing(self, **known: Any) -> "Solution":
        copy = dataclasses.replace(self)
        before = {
            name: vars(self)[name]
            for name in ("score", "known_verdict", "known_accuracy", "known_estimate")
            if name in vars(self)
        }
        vars(copy).update(before | known)
        return copy

    def __repr__(self) -> str:
        lines = [
            f"Solution of {self.problem!r}",
            f"  {self.rule}: {self.status.value}",
            f"  {self.steps:,} steps in {self.seconds:.1f} s (compiled in "
            f"{self.compile_seconds:.1f} s), seed {self.seed}, {self.precision}",
        ]
        lines += [f"    {stage}" for stage in self.stages]
        if self.accuracy is not None:
            lines = [str(self.accuracy), *lines]
        if self.verdict is not None:
            lines = [str(self.verdict), *lines]
            if self.verdict.advice:
                lines.append(f"  to try next           {self.verdict.advice}")
        if self.known_score is not None:
            return "\n".join(lines + [f"  {line}" for line in self.known_score.lines()])
        held_out = self.history.held_out[np.isfinite(self.history.held_out)]
        if held_out.size:
            lines.append(
                f"  held-out loss         {held_out.min():.3g}   (solution.score tells more)"
            )
        return "\n".join(lines)

    @property
    def _evolves(self) -> bool:
        return self.problem.domain.times is not None

    def _map(self, quantity: "_Quantity", points: Any, t: Any) -> Any:
        if t is not None:
            points = with_times(points, t, self.problem.domain)
        if isinstance(points, jax.core.Tracer):
            return self._map_traced(quantity, points)
        with x64():
            values = self._map_numpy(quantity, points)
            return jnp.asarray(values) if isinstance(points, jax.Array) else values

    def _map_traced(self, quantity: "_Quantity", points: Any) -> Any:
        """Inside a user's own trace the user's mode rules: a trace has one mode from start to end."""
        if self.precision == "float64" and not is_x64():
            raise ValueError(
                "This solution has float64 parameters, but it is being traced without x64, which "
                "would silently round them. Wrap the call: with jax.enable_x64(True): ..."
            )
        check_shape(points.shape, self.problem.dim, self._evolves)
        points = points.astype(self.precision)
        one = functools.partial(quantity, cast(copied(self.trial), self.precision))
        return one(points) if points.ndim == 1 else jax.vmap(one)(points)

    def _map_numpy(self, quantity: "_Quantity", points: Any) -> Any:
        rows, domain = as_rows(points, self.problem.dim, self._evolves), self.problem.domain
        distance = self._by_chunks(_distance, domain, rows)
        # Points on the boundary may lie outside by rounding.
        outside = distance < -1e-5 * domain.inradius
        if outside.any():
            warnings.warn(
                f"{outside.sum():,} of {len(rows):,} points lie outside {domain!r}; "
                "the values there mean nothing.",
                stacklevel=4,
            )
        values = self._by_chunks(quantity, self.trial, rows)
        return values if np.ndim(points) == 2 else values[0]

    def _by_chunks(self, quantity: "_Quantity", owner: Any, rows: np.ndarray) -> np.ndarray:
        narrow = cast(owner, self.precision)
        program = functools.partial(_chunk, quantity, narrow)
        return by_chunks(program, rows, _CHUNK, self.precision)


@dataclasses.dataclass(frozen=True)
class Instant:
    """The solution of an evolution problem at one time: a function of points `(n, d)` or `(d,)` in space."""

    solution: Solution
    t: float

    def __call__(self, points: Any) -> Any:
        """`Q` at the points: `(n, d) -> (n,)`, `(d,) -> ()`."""
        return self.solution(points, self.t)

    def grad(self, points: Any) -> Any:
        """The gradient in space: `(n, d) -> (n, d)`, `(d,) -> (d,)`."""
        return self.solution.grad(points, self.t)

    def laplacian(self, points: Any) -> Any:
        """The Laplacian in space: `(n, d) -> (n,)`, `(d,) -> ()`."""
        return self.solution.laplacian(points, self.t)


_Quantity = Callable[[Any, Any], Any]


def _value(trial: Trial, x: Array) -> Array:
    return trial.jet(x).value


def _grad(trial: Trial, x: Array) -> Array:
    return trial.jet(x).grad


def _laplacian(trial: Trial, x: Array) -> Array:
    return trial.jet(x).laplacian


def _policy(trial: Trial, x: Array) -> Array:
    return Greedy(trial.equation, trial)(x)  # pyright: ignore[reportArgumentType]


def _slope(trial: Trial, x: Array) -> Array:
    return trial.jet(x).grad[:-1]


def _in_time(trial: Trial, x: Array) -> Array:
    return trial.jet(x).grad[-1]


def _bend(trial: Trial, x: Array) -> Array:
    return trial.jet(x).contract(Spatial())


def _residual(trial: Trial, x: Array) -> Array:
    return trial.orientation * trial.residual(x)


def _distance(domain: AbstractDomain, x: Array) -> Array:
    return domain.distance(x)


@compiled
def _chunk(quantity: _Quantity, owner: Any, points: Any) -> Array:
    return jax.vmap(functools.partial(quantity, owner))(points)
