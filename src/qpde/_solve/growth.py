"""What is tried beside the trained network: many fixed units along a few directions.

In one to three dimensions random units span smooth functions to many digits, and least squares finds their
coefficients in seconds. In more they do not, unless the solution varies along a few directions only: these
are seen in the gradients of `L f` or, later, of the trained network, and are then trained themselves (see
`_rule/projection.py`). Pairs of coordinates that interact are seen in the second derivatives of `L f`, and
have polynomials of their own; sums of functions of single coordinates have units along the axes.

`attempts` is the course of a run, plan after plan; it is told what became of each. The problem, the seed and
losses at fresh points decide, never the clock, so that a run that is resumed or repeated takes the same way.
"""

import dataclasses
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._compiled import compiled
from .._equation.choices import chooses
from .._equation.operator import Structure
from .._field.base import AbstractField, Constant
from .._network.base import Frame, Frozen, GradedFrame, trainable
from .._network.distance import DistanceField
from .._network.pairs import PairsField
from .._network.ridge import RidgeField, spread_one, units
from .._precision import cast, key_from
from .._problem.measure import drawn_by
from .._problem.solution import Solution
from .._problem.trial import Trial
from .._rule.batch import Batch
from .._rule.deviations import LeastDeviations
from .._rule.projection import VariableProjection, best_outer, rows_outer
from .._train.plan import Plan, make_plan

# Units of the first attempt, and the most in so many dimensions.
_FIRST, _WIDEST = 256, {2: 2_048, 3: 2_048}
_WIDEST_RIDGE = _WIDEST_DISTANCE = 1_024
# Scales of the units that are tried, and units a coordinate where they look along axes.
_SCALES, _RIDGE_SCALES, _AXIS = (1.0, 2.0, 4.0, 8.0, 16.0), (0.25, 0.5, 1.0, 2.0, 4.0), 40
# By how much the scale grows where there are twice as many units.
_FINER = 1.25
# Up to this dimension units look along all directions, along axes, and a full quadratic form stands beside;
# where it says enough about the gradients of `L f`, up to the last.
_SPACE, _AXES, _FULL, _FULLEST = 3, 40, 30, 100
_ENOUGH = 0.7
# The most directions that are trained, and how much smaller the spread along the next one must be.
_RANK, _GAP = 4, 3.0
# Second derivatives say which coordinates interact where their mean holds this share of their mean square,
# and not more than so many pairs a coordinate hold that share of it. Others are taken too that are seen above
# the noise, by so many standard deviations, and not too small beside the largest one.
_STEADY, _SPARSE, _HELD, _SEEN, _SMALL = 0.5, 2, 0.99, 5.0, 1e-4
# Polynomials have at most so many coefficients, and begin with this degree, or that where all pairs are in.
_COEFFICIENTS, _DEGREE, _DEGREE_ALL = 6_500, 3, 2
# Second derivatives are taken at as many points as make so many numbers.
_BENT = 10_000_000
# Where `L f` varies by less than this share, its gradients say nothing.
_FLAT = 1e-6
# Where its mean of `(L Q)^2` is below this share of that of `L f`, an attempt is worth making wider, and good
# enough to be the last kind; a wider one is worth it where it leaves less than half; at rounding there is
# nothing left.
_DECENT, _GOOD, _WORTH, _ROUNDING = 1e-4, 1e-6, 0.5, 1e-26
# Steps without progress after which an attempt ends: the first ones may bring little.
_PATIENCE, _PATIENCE_FIXED = 5, 2
_POINTS, _FRESH = 2_048, 8_192
# Points at which a problem is looked at from all directions, and the share of a gradient that is rounding.
_PROBES, _ALIKE = 256, 1e-7
# Steps of the last plan of an evolution problem, before directions are looked for.
_EARLY = 16
# The largest Jacobian of a step, in numbers.
_NUMBERS = 2.5e7

Course = Generator[Plan, Solution, None]
Fixed = RidgeField | PairsField | DistanceField


def attempts(plans: list[Plan]) -> Course:
    """The plans of a run: networks of fixed units first, the given plans where those are not good."""
    grower = _Grower(plans[0])
    course = _Best(grower)
    for make in grower.kinds():
        field = make()
        if field is not None:
            yield from course.tried(grower.plan(field))
            if course.share <= _DECENT or grower.chooses:
                yield from _wider(grower, course)
    if course.share > _GOOD:
        yield from _trained(plans, grower, course)


def _trained(plans: list[Plan], grower: "_Grower", course: "_Best") -> Course:
    """The given plans, then units along the directions in which the trained network varies.

    Of an evolution problem these are looked for after a few steps of the last plan already: a part in time
    hides them from the gradients of `L f`, and the steps cost more than all else.
    """
    solution: Solution | None = None
    for plan in plans:
        if plan is plans[-1] and grower.in_time:
            early = dataclasses.replace(plan, steps=_EARLY, **_from(solution))
            solution = yield from course.tried(early)
            yield from _along(grower, course, solution)
            if course.share <= _GOOD:
                return
        solution = yield from course.tried(dataclasses.replace(plan, **_from(solution)))
    assert solution is not None
    yield from _along(grower, course, solution)


def _from(solution: Solution | None) -> dict[str, Any]:
    """What makes a plan go on from a solution."""
    return {} if solution is None else {"initial": solution, "network": None}


def _along(grower: "_Grower", course: "_Best", solution: Solution) -> Course:
    """Units along the few directions in which a network varies, where it has such."""
    field = grower.along_gradients_of(solution.trial.network)
    if field is not None:
        yield from course.tried(grower.plan(field))
        yield from _wider(grower, course)


def _wider(grower: "_Grower", course: "_Best") -> Course:
    """Networks of the best one's kind that can do more, while each is worth it."""
    while course.share > _ROUNDING:
        field = grower.wider(course.network)
        if field is None:
            return
        before = course.share
        yield from course.tried(grower.plan(field))
        if not course.share <= _WORTH * before:
            return


class _Best:
    """The best network of a course, and its share of the mean of `(L f)^2`, at fresh points."""

    def __init__(self, grower: "_Grower"):
        self._grower, self._start = grower, grower.loss(Constant(0.0))
        self.network: AbstractField | None = None
        self.share = np.inf

    def tried(self, plan: Plan) -> Generator[Plan, Solution, Solution]:
        """Have a plan done, and keep its network where it is better."""
        solution = yield plan
        share = self._grower.loss(solution.trial.network) / max(self._start, 1e-300)
        if share < self.share:
            self.network, self.share = solution.trial.network, share
        return solution


def best_of(done: list[Solution]) -> tuple[Solution, float]:
    """The solution with the smallest loss at fresh points, and that loss."""
    grower = _Grower.of(done[0])
    losses = [grower.loss(solution.trial.network) for solution in done]
    best = int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))
    return done[best], losses[best]


class _Grower:
    """Makes the networks for one problem, and compares them."""

    def __init__(self, plan: Plan):
        self._plan, self._problem = plan, plan.problem
        self._trial = cast(Trial.of(plan.problem, Constant(0.0), exact_boundary=True), "float64")
        self._rng = np.random.default_rng([plan.seed, 0x6120])
        self._dim = plan.problem.dim
        self.in_time = plan.problem.domain.times is not None and self._dim > _SPACE
        self._full = self._dim <= _FULL
        self._frame = Frame.of(plan.problem.domain, True)
        # Such a solution is not smooth: every network leaves much, and a wider one is worth it all the same.
        self.chooses = self._dim <= _SPACE and chooses(plan.problem.operator)
        self._grade = plan.problem.grade if self._dim <= _SPACE else None
        points, weights = drawn_by(plan.measure, key_from(plan.seed, 0x6121), 2 * _POINTS)
        self._points = np.asarray(points)
        roots = np.asarray(weights) / _POINTS
        self._batches = [
            Batch(
                jnp.asarray(self._points[i]),
                jnp.asarray(roots[i]),
                jnp.asarray(roots[i]),
                jr.key(0),
            )
            for i in (slice(None, _POINTS), slice(_POINTS, None))
        ]
        points, weights = drawn_by(plan.measure, key_from(plan.seed, 0x6122), _FRESH)
        self._fresh = np.asarray(points), np.asarray(weights) / _FRESH

    @classmethod
    def of(cls, solution: Solution) -> "_Grower":
        """That of a solution's problem, for comparing."""
        return cls(make_plan(solution.problem, measure=solution.measure, seed=solution.seed))

    def loss(self, network: AbstractField) -> float:
        """The mean of `(L Q)^2` at fresh points; of an equation that chooses, the squared one of `|L Q|`."""
        trial = cast(self._trial.with_network(network), "float64")
        return float(_mean_square(trial, *self._fresh, self.chooses))

    def kinds(self) -> list[Callable[[], Fixed | None]]:
        """The networks to begin with."""
        if self._dim <= _SPACE:
            return [self._in_space]
        return [lambda: self._by_distance() or self._in_space_of_many()]

    def along_gradients_of(self, network: AbstractField) -> RidgeField | None:
        """Units along the few directions in which a network varies; None where it has no such."""
        if self._dim <= _SPACE:
            return None
        gradients = self._gradients(cast(network, "float64").value)
        return None if gradients is None else self._along(gradients)

    def wider(self, network: Any) -> Fixed | None:
        """A network of the same kind that can do more; None where it would be too large."""
        if isinstance(network, PairsField):
            field = network.higher()
            return field if _size(field) <= _COEFFICIENTS else None
        if isinstance(network, DistanceField):
            if 2 * network.width > _WIDEST_DISTANCE:
                return None
            scale = _FINER * float(np.sqrt(network.inner.rank) * np.std(network.inner.z.array))
            field = DistanceField.empty(self._problem.domain, 2 * network.width, self._points)
            return self._with_units(field, self._rng, scale)
        widest = _WIDEST.get(self._dim, _WIDEST_RIDGE)
        if not isinstance(network, RidgeField) or 2 * network.width > widest:
            return None
        if network.rank > _RANK:
            return None
        scale = _FINER * float(np.sqrt(network.rank) * np.std(network.z.array))
        return self._with_units(self._empty(2 * network.width, network.a), self._rng, scale)

    def plan(self, field: Fixed) -> Plan:
        """The stage that trains a network of fixed units."""
        count = _size(field)
        batch = int(np.clip(4 * count, 2_000, max(_NUMBERS / count, 1.5 * count)))
        linear = self._problem.operator.structure is Structure.LINEAR
        fixed = not isinstance(field, RidgeField) or isinstance(field.a, Frozen)
        return make_plan(
            self._problem,
            network=field,
            rule=LeastDeviations() if self.chooses else VariableProjection(),
            batch=batch,
            steps=2 if linear and fixed else 24,
            patience=_PATIENCE_FIXED if fixed and not self.chooses else _PATIENCE,
            measure=self._plan.measure,
            seed=self._plan.seed,
        )

    def _by_distance(self) -> DistanceField | None:
        """A network of the distance from a point and of time, for problems that look alike in all directions.

        They do where the residual of some such network is such a function: its gradient in space points to
        or from the point everywhere.
        """
        domain = self._problem.domain
        if domain.pivot is None or domain.times is None:
            return None
        empty = DistanceField.empty(domain, _FIRST, self._points)
        coefficients = jnp.asarray(self._rng.standard_normal(_FIRST) / _FIRST)
        probe = self._with_units(empty, self._rng, 1.0)
        probe = eqx.tree_at(lambda f: f.inner.c, probe, coefficients)
        points = self._points[:_PROBES]
        slopes = np.asarray(_slopes(self._trial.with_network(probe).residual, points)[1])[:, :-1]
        along = self._rays(_PROBES)
        across = slopes - np.sum(slopes * along, axis=1, keepdims=True) * along
        alike = np.linalg.norm(across) <= _ALIKE * np.linalg.norm(slopes)
        return self._scaled(empty, _SCALES) if alike else None

    def _rays(self, count: int) -> np.ndarray:
        """Directions in space from the pivot of an evolution problem's domain to points."""
        rays = self._points[:count, :-1] - self._problem.domain.pivot
        return rays / np.linalg.norm(rays, axis=1, keepdims=True)

    def _in_space_of_many(self) -> Fixed | None:
        gradients = self._gradients(self._trial.residual)
        if gradients is None:
            return None
        return (
            self._in_few_pairs()
            or self._along(gradients)
            or self._along_axes()
            or self._in_all_pairs()
        )

    def _in_space(self) -> RidgeField:
        return self._scaled(self._empty(_FIRST, Frozen(np.eye(self._dim))), _SCALES)

    def _along(self, gradients: np.ndarray) -> RidgeField | None:
        """Units along the few directions that most of the gradients lie in."""
        sizes, vectors = np.linalg.eigh(gradients.T @ gradients / len(gradients))
        sizes, vectors = np.sqrt(np.maximum(sizes[::-1], 0.0)), vectors[:, ::-1]
        most = min(_RANK, self._dim - 1)
        falls = sizes[:most] / np.maximum(sizes[1 : most + 1], 1e-12 * sizes[0])
        rank = int(np.argmax(falls)) + 1
        if falls[rank - 1] < _GAP:
            return None
        directions = jnp.asarray(spread_one(vectors[:, :rank], self._y()))
        return self._scaled(self._empty(_FIRST, directions), _RIDGE_SCALES)

    def _in_few_pairs(self) -> PairsField | None:
        """Polynomials of the few pairs of coordinates that interact; None where `L f` shows no such."""
        scale = self._frame.half.array * np.std(self._y(), axis=0)
        count = int(np.clip(_BENT // self._dim**2, 8, 512))
        bends = np.asarray(_bends(self._trial.residual, self._points[:count], scale))
        first, second = np.triu_indices(self._dim, 1)
        mean, square = bends[0][first, second], bends[1][first, second]
        if not np.all(np.isfinite(bends)) or np.sum(mean**2) < _STEADY * np.sum(square):
            return None
        if not np.any(mean):  # nothing interacts, or nothing is left to learn
            return None
        size = np.abs(mean)
        order = np.argsort(-size, kind="stable")
        held = np.cumsum(mean[order] ** 2) / np.sum(mean**2)
        needed, most = int(np.searchsorted(held, _HELD)) + 1, _SPARSE * self._dim
        if needed > most:
            return None
        noise = np.sqrt(np.maximum(square - mean**2, 0.0) / count)
        seen = (size > _SEEN * noise) & (size > _SMALL * size[order[0]])
        chosen = np.concatenate([order[:needed], [i for i in order[needed:most] if seen[i]]])
        pairs = np.stack([first, second], axis=1)[np.sort(chosen.astype(np.int64))]
        field = PairsField.empty(self._problem.domain, pairs, _DEGREE, self._points)
        return field if _size(field) <= _COEFFICIENTS else None

    def _in_all_pairs(self) -> PairsField | None:
        pairs = np.stack(np.triu_indices(self._dim, 1), axis=1)
        field = PairsField.empty(self._problem.domain, pairs, _DEGREE_ALL, self._points)
        return field if self._full and _size(field) <= _COEFFICIENTS else None

    def _along_axes(self) -> RidgeField | None:
        if self._dim > _AXES:
            return None
        dim, width = self._dim, _AXIS * self._dim
        field = self._empty(width, Frozen(np.eye(dim)))
        z = np.zeros((dim, width))
        along = np.arange(width) % dim
        z[along, np.arange(width)] = 2.0 * self._rng.standard_normal(width)
        y = self._y()[np.arange(width) % (2 * _POINTS)]
        # Bends at all places of an axis, where few points of a ball in many dimensions lie.
        places = self._rng.uniform(-1.0, 1.0, width) * np.max(np.abs(y), axis=0)[along]
        return field.with_units(z, -z[along, np.arange(width)] * places)

    def _empty(self, width: int, directions: Any) -> RidgeField:
        return RidgeField.empty(
            self._problem.domain, width, directions, quadratic=self._full, grade=self._grade
        )

    def _with_units(self, field: Any, rng: np.random.Generator, scale: float) -> Any:
        """The network with random units that bend inside."""
        if isinstance(field, DistanceField):
            return field.with_units(*units(rng, field.inner, field.y(self._points), scale))
        return field.with_units(*units(rng, field, self._y(), scale))

    def _scaled(self, field: Any, scales: tuple[float, ...]) -> Any:
        """The network with units at the scale that a quick least-squares fit on fresh points prefers."""
        seed = int(self._rng.integers(2**31))
        fields = [self._with_units(field, np.random.default_rng(seed), scale) for scale in scales]
        losses = [float(_fitted(self._trial.with_network(one), *self._batches)) for one in fields]
        return fields[int(np.argmin(np.where(np.isfinite(losses), losses, np.inf)))]

    def _y(self) -> np.ndarray:
        frame = self._frame if self._grade is None else GradedFrame(self._grade)
        return frame.all(self._points)

    def _gradients(self, function: Callable[[Array], Array]) -> np.ndarray | None:
        """Gradients in the frame, without what a quadratic form beside the units takes over."""
        values, slopes = (np.asarray(a) for a in _slopes(function, self._points[:_POINTS]))
        if not np.all(np.isfinite(slopes)) or np.std(values) <= _FLAT * np.max(np.abs(values)):
            return None
        slopes, y = slopes * self._frame.half.array, self._y()[:_POINTS]
        ones = np.ones((len(y), 1))
        known = np.concatenate([ones, y], axis=1)
        if _FULL < self._dim <= _FULLEST:
            self._full = self._full or _left(known, slopes) < _ENOUGH * _left(ones, slopes)
        known = known if self._full else ones
        return slopes - known @ np.linalg.lstsq(known, slopes, rcond=None)[0]


def _left(known: np.ndarray, values: np.ndarray) -> float:
    """The mean square that a fit to one half of the rows leaves of the other."""
    half = len(known) // 2
    fit = np.linalg.lstsq(known[:half], values[:half], rcond=None)[0]
    return float(np.mean((values[half:] - known[half:] @ fit) ** 2))


def _size(field: AbstractField) -> int:
    """The number of trained parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(trainable(field)[0]))


@compiled
def _mean_square(trial: Trial, points: Any, weights: Any, chooses: bool) -> Float[Array, ""]:
    residual = jax.lax.map(trial.residual, points, batch_size=1_024)
    if chooses:
        return jnp.square(jnp.dot(weights, jnp.abs(residual)))
    return jnp.dot(weights, residual * residual)


@compiled
def _fitted(trial: Trial, own: Batch, second: Batch) -> Float[Array, ""]:
    """The loss on the second sample with the output layer fitted to the first."""
    return best_outer(trial, rows_outer(trial, own), jnp.asarray(1e-9), second)[0]


@compiled
def _slopes(function: Callable[[Array], Array], points: Any) -> tuple[Array, Array]:
    return jax.lax.map(jax.value_and_grad(function), points, batch_size=256)


@compiled
def _bends(function: Callable[[Array], Array], points: Any, scale: Any) -> tuple[Array, Array]:
    """The mean of the second derivatives in coordinates of a scale, and the mean of their squares."""

    def add(total: Array, x: Array) -> tuple[Array, None]:
        bend = jax.jacfwd(jax.grad(function))(x) * scale[:, None] * scale[None, :]
        return total + jnp.stack([bend, bend * bend]), None

    dim = points.shape[1]
    total, _ = jax.lax.scan(add, jnp.zeros((2, dim, dim)), jnp.asarray(points))
    return total[0] / len(points), total[1] / len(points)
