"""How good a solution is: its loss and, where the exact solution is known, its error and skill."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._boundary.smear import Smeared
from .._compiled import compiled
from .._control.base import AbstractControl
from .._control.policy import Greedy, Known
from .._domain.base import AbstractDomain, drawn
from .._field.base import AbstractField
from .._machines.blocks import shared
from .._precision import cast, fitting, key_from, like
from .measure import AbstractMeasure, drawn_by
from .problem import Problem
from .trial import Trial

# Fresh points on which a solution is scored, and the margin (in inradii) that the relative error
# keeps from the boundary, where it is 0/0.
_POINTS, _MARGIN = 100_000, 0.01
# Points of one compiled chunk; coordinates of all points and of one chunk: thousands of dimensions get fewer.
_CHUNK, _NUMBERS, _LEAST, _CHUNK_NUMBERS = 1_024, 1e8, 64, 2**23
# Points at which actions are compared: a best one may be the solution of a large system.
_ACTIONS = 8_000


@dataclasses.dataclass(frozen=True)
class Score:
    """How good a solution is, on 100,000 fresh points, in float64.

    `loss` is the mean of `(L Q)^2`. The others are known where the exact solution is:
    `relative_l2_error`; `max_relative_error`, the largest `|Q - u| / |u|` at points at least 1 % of the
    inradius away from the boundary (in thousands of dimensions no point is: None); `skill`, the
    error divided by that of the best constant `c` in `c eta + f` (1: nothing was learned), and in the whole
    space by that of the best trivial answer: the expectation of the data, the flow of the reaction from it,
    or that constant; `control_error`, of a control problem, the relative L2 error of the best actions.
    """

    loss: float
    relative_l2_error: float | None = None
    max_relative_error: float | None = None
    skill: float | None = None
    control_error: float | None = None

    def lines(self) -> list[str]:
        """The numbers in words, a line each."""
        texts = [f"loss, mean (L Q)^2    {self.loss:.3g}"]
        if self.relative_l2_error is not None:
            texts.append(f"relative L2 error     {self.relative_l2_error:.3g}")
        if self.max_relative_error is not None:
            texts.append(f"max relative error    {self.max_relative_error:.3g}")
        if self.skill is not None:
            texts.append(
                f"skill                 {self.skill:.3g}   (1: a trivial answer does as well)"
            )
        if self.control_error is not None:
            texts.append(f"error of the control  {self.control_error:.3g}   (relative L2)")
        return texts


def score_of(problem: Problem, trial: Trial, measure: AbstractMeasure, seed: int) -> Score:
    """Score a trial function on points that no training has seen."""
    count = int(np.clip(_NUMBERS / problem.dim, _LEAST, _POINTS))
    size = fitting(_CHUNK, problem.dim, least=4, numbers=_CHUNK_NUMBERS)
    wide, domain, law = (cast(tree, "float64") for tree in (trial, problem.domain, measure))
    control, exact = problem.equation, problem.exact

    def drawn_in(i: int) -> tuple[Array, Array, Array]:
        key = key_from(seed, 0x5C0DE, i)
        points, weights = drawn_by(law, key, size)
        # Errors are taken in the plain L2 norm, whatever law the training used.
        return points, weights, points if exact is None else drawn(domain, jr.fold_in(key, 1), size)

    def part(i: int) -> tuple[Array, ...]:
        return _chunk(wide, domain, problem.factor, exact, *drawn_in(i))

    parts, actions = shared(part, -(-count // size)), []
    if isinstance(control, AbstractControl) and exact is not None:
        for i in range(-(-min(count, _ACTIONS) // size)):
            found = _squared_actions(control, wide, exact, drawn_in(i)[2])
            actions.append([np.asarray(column) for column in found])
    columns = [np.concatenate(column)[:count] for column in zip(*parts, strict=True)]
    squares, weights = columns[0], columns[1]
    loss = float(np.mean(weights * squares))
    if problem.exact is None:
        return Score(loss)
    q, u, eta, f, mean, distance = columns[2:]
    size_of_u = _rms(u)
    away = (distance >= _MARGIN * domain.inradius) & (u != 0)
    # The best constant network c minimises |c eta + f - u|.
    constant = _rms(np.dot(eta, u - f) / np.dot(eta, eta) * eta + f - u)
    if isinstance(problem.boundary, Smeared):
        constant = min(constant, _rms(mean - u), _rms(f - u))
    error = _rms(q - u)
    return Score(
        loss=loss,
        relative_l2_error=float(error / size_of_u) if size_of_u > 0 else None,
        max_relative_error=(
            float(np.max(np.abs(q - u)[away] / np.abs(u)[away])) if away.any() else None
        ),
        # A constant that is exact up to rounding leaves no error to compare with.
        skill=float(error / constant) if constant > 1e-12 * size_of_u else None,
        control_error=_control_error(actions) if actions else None,
    )


def _control_error(actions: list[list[np.ndarray]]) -> float | None:
    """The relative error of actions, from the squares of their errors and of the right ones."""
    squares, sizes = (np.concatenate(column) for column in zip(*actions, strict=True))
    size = float(np.mean(sizes))
    return float(np.sqrt(np.mean(squares) / size)) if size > 0 else None


def _rms(values: np.ndarray) -> np.floating[Any]:
    return np.sqrt(np.mean(values * values))


@compiled
def _chunk(
    trial: Trial,
    domain: AbstractDomain,
    eta: AbstractField,
    exact: Callable[..., Any] | None,
    points: Any,
    weights: Any,
    uniform: Any,
) -> tuple[Array, ...]:
    residual = jax.vmap(trial.residual)(points)
    if exact is None:
        return residual * residual, weights

    def known(x: Array) -> Array:
        return like(x, exact(x))

    boundary = trial.boundary
    mean = boundary.mean if isinstance(boundary, Smeared) else boundary
    functions = (trial.value, known, eta.value, boundary.value, mean.value, domain.distance)
    return residual * residual, weights, *(jax.vmap(function)(uniform) for function in functions)


@compiled
def _squared_actions(
    control: AbstractControl, trial: Trial, exact: Callable[..., Any], points: Any
) -> tuple[Array, Array]:
    """The squares of the errors of the best actions, and of those of the exact solution."""

    def one(x: Array) -> tuple[Array, Array]:
        found, right = (Greedy(control, v)(x) for v in (trial, Known(exact)))
        return jnp.sum((found - right) ** 2), jnp.sum(right * right)

    return jax.vmap(one)(points)
