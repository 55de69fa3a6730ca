"""A solution: a function one can call and differentiate, and how it came about."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ._domain import AbstractDomain
from ._form import fresh
from ._measure import AbstractMeasure
from ._network import cast
from ._problem import Problem
from ._status import Status
from ._trial import Trial

# Evaluation runs in chunks of this many points, padded, so that the bits of a value do not depend on
# how many points were asked for together.
_CHUNK = 1_024
# Fresh points on which a solution is scored, and the margin (in inradii) that the relative error
# keeps from the boundary, where it is 0/0.
_SCORE_POINTS, _MARGIN = 100_000, 0.01
# Coordinates of all points of a score, and of one chunk of them: thousands of dimensions get fewer points.
_SCORE_NUMBERS, _CHUNK_NUMBERS = 4e8, 2**25


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
class Score:
    """How good a solution is, on 100,000 fresh points, in float64.

    `loss` is the mean of `(L Q)^2`. The others are known where the exact solution is:
    `relative_l2_error`; `max_relative_error`, the largest `|Q - u| / |u|` at points at least 1 % of the
    inradius away from the boundary (in thousands of dimensions no point is: None); `skill`, the
    error divided by that of the best constant `c` in `c eta + f` (1: nothing was learned).
    """

    loss: float
    relative_l2_error: float | None = None
    max_relative_error: float | None = None
    skill: float | None = None


@dataclasses.dataclass(frozen=True)
class Solution:
    """The approximate solution `Q` of a problem.

    Call it with points of shape `(n, d)` or one point `(d,)`. NumPy in, NumPy out, in the precision it
    was trained in; a JAX array or tracer in, JAX out, so that it can be differentiated and
    compiled into other code.
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

    def __call__(self, points: Any) -> Any:
        """`Q` at the points: `(n, d) -> (n,)`, `(d,) -> ()`."""
        return self._map(_value, points)

    def grad(self, points: Any) -> Any:
        """The gradient of `Q`: `(n, d) -> (n, d)`, `(d,) -> (d,)`."""
        return self._map(_grad, points)

    def laplacian(self, points: Any) -> Any:
        """The Laplacian of `Q`: `(n, d) -> (n,)`, `(d,) -> ()`."""
        return self._map(_laplacian, points)

    def residual(self, points: Any) -> Any:
        """`L Q`, the equation as it was written: `(n, d) -> (n,)`, `(d,) -> ()`."""
        return self._map(_residual, points)

    @property
    def best_batch_loss(self) -> float | None:
        """The smallest minibatch loss seen, which is lower than `score.loss` by luck."""
        losses = self.history.loss[np.isfinite(self.history.loss)]
        return float(losses.min()) if losses.size else None

    @functools.cached_property
    def score(self) -> Score:
        """Loss, error and skill; computed when first asked for."""
        return _score(self)

    def __repr__(self) -> str:
        score = self.score
        lines = [
            f"Solution of {self.problem!r}",
            f"  {self.rule}: {self.status.value}",
            f"  {self.steps:,} steps in {self.seconds:.1f} s (compiled in "
            f"{self.compile_seconds:.1f} s), seed {self.seed}, {self.precision}",
        ]
        lines += [f"    {stage}" for stage in self.stages]
        lines.append(f"  loss, mean (L Q)^2    {score.loss:.3g}")
        if score.relative_l2_error is not None:
            lines.append(f"  relative L2 error     {score.relative_l2_error:.3g}")
        if score.max_relative_error is not None:
            lines.append(f"  max relative error    {score.max_relative_error:.3g}")
        if score.skill is not None:
            lines.append(
                f"  skill                 {score.skill:.3g}   (1: one constant does as well)"
            )
        return "\n".join(lines)

    def _map(self, quantity: "_Quantity", points: Any) -> Any:
        if isinstance(points, jax.core.Tracer):
            return self._map_traced(quantity, points)
        if isinstance(points, jax.Array):
            with jax.enable_x64(self.precision == "float64"):
                return jnp.asarray(self._map_numpy(quantity, np.asarray(points)))
        return self._map_numpy(quantity, np.asarray(points, np.float64))

    def _map_traced(self, quantity: "_Quantity", points: Any) -> Any:
        if self.precision == "float64" and not jax.config.read("jax_enable_x64"):
            raise ValueError(
                "This solution has float64 parameters, but it is being traced without x64, which "
                "would silently round them. Wrap the call: with jax.enable_x64(True): ..."
            )
        self._check_shape(points.shape)
        points = points.astype(self.precision)
        one = functools.partial(quantity, fresh(self.trial))
        return one(points) if points.ndim == 1 else jax.vmap(one)(points)

    def _map_numpy(self, quantity: "_Quantity", points: np.ndarray) -> Any:
        self._check_shape(points.shape)
        if not np.all(np.isfinite(points)):
            rows = (~np.isfinite(np.atleast_2d(points))).any(axis=1).sum()
            raise ValueError(f"{rows} of the points contain NaN or infinity.")
        many = np.atleast_2d(points)
        with jax.enable_x64(self.precision == "float64"):
            distance = _by_chunks(_distance, self.problem.domain, many, self.precision)
            # Points on the boundary may lie outside by rounding.
            outside = distance < -1e-5 * self.problem.domain.inradius
            if outside.any():
                warnings.warn(
                    f"{outside.sum():,} of {len(many):,} points lie outside {self.problem.domain!r}; "
                    "the values there mean nothing.",
                    stacklevel=4,
                )
            values = _by_chunks(quantity, self.trial, many, self.precision)
        return values if points.ndim == 2 else values[0]

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        dim = self.problem.dim
        if len(shape) in (1, 2) and shape[-1] == dim:
            return
        cure = ""
        if dim == 1 and len(shape) == 1:
            cure = " In one dimension write points[:, None]."
        raise ValueError(
            f"Points of this problem have shape ({dim},) or (n, {dim}), got {shape}.{cure}"
        )


_Quantity = Callable[[Any, Any], Any]


def _value(trial: Trial, x: Array) -> Array:
    return trial.jet(x).value


def _grad(trial: Trial, x: Array) -> Array:
    return trial.jet(x).grad


def _laplacian(trial: Trial, x: Array) -> Array:
    return trial.jet(x).laplacian


def _residual(trial: Trial, x: Array) -> Array:
    return trial.orientation * trial.residual(x)


def _distance(domain: AbstractDomain, x: Array) -> Array:
    return domain.distance(x)


@eqx.filter_jit
def _chunk(quantity: _Quantity, owner: Any, points: Any) -> Array:
    return jax.vmap(functools.partial(quantity, owner))(points)


def _by_chunks(quantity: _Quantity, owner: Any, points: np.ndarray, dtype: str) -> np.ndarray:
    """`quantity(owner, x)` for every row, in padded chunks of one shape."""
    results = []
    for start in range(0, max(len(points), 1), _CHUNK):
        part = points[start : start + _CHUNK].astype(dtype)
        # Padding repeats the first point: it lies wherever the caller's points lie.
        filler = part[:1] if len(part) else np.zeros((1, points.shape[1]), dtype)
        padded = np.concatenate([part, np.repeat(filler, _CHUNK - len(part), axis=0)])
        results.append(np.asarray(_chunk(quantity, owner, padded))[: len(part)])
    return np.concatenate(results)


def _score(solution: Solution) -> Score:
    problem = solution.problem
    key = jr.fold_in(jr.key(solution.seed, impl="threefry2x32"), 0x5C0DE)
    count = int(np.clip(_SCORE_NUMBERS / problem.dim, 1_000, _SCORE_POINTS))
    chunk = int(np.clip(_CHUNK_NUMBERS / problem.dim, 64, _CHUNK))
    parts = []
    with jax.enable_x64(True):
        trial = cast(solution.trial, "float64")
        for i in range(-(-count // chunk)):
            part = _score_chunk(
                trial, problem.domain, problem.exact, solution.measure, jr.fold_in(key, i), chunk
            )
            parts.append([np.asarray(column) for column in part])
    columns = [np.concatenate(column)[:count] for column in zip(*parts, strict=True)]
    squares, weights = columns[0], columns[1]
    loss = float(np.mean(weights * squares))
    if problem.exact is None:
        return Score(loss)
    q, u, eta, f, distance = columns[2:]
    size = _rms(u)
    away = (distance >= _MARGIN * problem.domain.inradius) & (u != 0)
    # The best constant network c minimises |c eta + f - u|.
    constant = _rms(np.dot(eta, u - f) / np.dot(eta, eta) * eta + f - u)
    error = _rms(q - u)
    return Score(
        loss=loss,
        relative_l2_error=float(error / size) if size > 0 else None,
        max_relative_error=(
            float(np.max(np.abs(q - u)[away] / np.abs(u)[away])) if away.any() else None
        ),
        # A constant that is exact up to rounding leaves no error to compare with.
        skill=float(error / constant) if constant > 1e-12 * size else None,
    )


def _rms(values: np.ndarray) -> np.floating[Any]:
    return np.sqrt(np.mean(values * values))


@eqx.filter_jit
def _score_chunk(
    trial: Trial,
    domain: AbstractDomain,
    exact: Callable[..., Any] | None,
    measure: AbstractMeasure,
    key: PRNGKeyArray,
    count: int,
) -> tuple[Array, ...]:
    points, weights = measure.sample(key, count)
    residual = jax.vmap(trial.residual)(points)
    if exact is None:
        return residual * residual, weights
    # Errors are taken in the plain L2 norm, whatever law the training used.
    uniform = domain.sample(jr.fold_in(key, 1), count)
    functions = (trial.value, exact, domain.eta.value, trial.boundary.value, domain.distance)
    return residual * residual, weights, *(jax.vmap(function)(uniform) for function in functions)
