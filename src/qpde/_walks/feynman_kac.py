"""Values at given points with confidence intervals, from random walks (Feynman-Kac).

For `L u = A : Hess u + b . grad u - c u + r = 0`, `u = f` on the boundary, and the diffusion `X` with the
generator `A : Hess + b . grad`, which leaves the domain at the time `tau`,

    u(x) = E_x[ exp(-int c) f(X_tau) + int_0^tau exp(-int c) r(X_s) ds ],
    u(x) = Q(x) + E_x[ exp(-int c) (f - Q)(X_tau) + int_0^tau exp(-int c) (L Q)(X_s) ds ]

for any smooth `Q`. A solution `Q` makes the second mean small: it serves as a control variate, and the
interval is right however bad it is. A `Q` that may have kinks is not used, nor is one that makes the variance
larger. In time the walks run towards the data, at most over the horizon (see `in_time.py`).
"""

import functools
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from .._arguments import a_range, a_seed, flag, real, shown, whole
from .._compiled import compiled
from .._domain.base import AbstractDomain
from .._equation.generator import Generator
from .._equation.operator import Structure
from .._machines.blocks import shared
from .._machines.place import BLOCKS, here
from .._precision import by_chunks, keys_from, x64
from .._problem.points import as_rows, with_times
from .._problem.problem import Problem
from .._problem.solution import Solution
from .._train.interrupt import Keyboard
from .._train.progress import Walks
from .._trust.residual import rough_parts
from .between import values_between
from .estimate import Estimate, joined, make_estimate, parts_of, walk_all
from .plan import Base, make_plan
from .tally import MOST, Tally

_DEFAULT = 1_000
# Points that lie outside by less, in inradii, are on the boundary up to rounding (as in `Solution`).
_OUTSIDE, _ON = 1e-5, 1e-12
_CHUNK = 1_024


@x64()
def feynman_kac(
    solution: Solution | Problem,
    points: Any,
    t: Any = None,
    *,
    accuracy: float | None = None,
    walks: int | None = None,
    confidence: float = 0.95,
    value_range: tuple[float, float] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Estimate:
    """The solution of a linear problem at points, with confidence intervals, from random walks.

        >>> estimate = feynman_kac(solution, np.zeros((1, 20)), accuracy=1e-3)
        >>> estimate.low, estimate.value, estimate.high
        >>> feynman_kac(in_time, np.zeros((1, 20)), 0.5)  # of an evolution problem, at t = 0.5

    With a `Solution` the walks estimate its error, which has a variance far below that of the solution
    itself (where a few trial walks show that it has not, the network is left out); with a `Problem` they
    start from nothing. Where the equation is `s Lap u - c u + r(x)` with
    numbers `s` and `c` the walk goes from sphere to sphere and has no time step; else it is done in
    time steps (Euler-Maruyama), of two lengths to see their effect. Walks that start near the boundary
    are split where they get away from it, because few do and the mean is made by them. All numbers are
    float64.

    Of an evolution problem `c` may have any sign. In the whole space walks have no time step where the law of
    the diffusion is known (Gaussian or log-normal) and `c` is a number; on a domain where the
    equation is `s Lap u - c u + r(x, t) - k u_t` with numbers `s`, `c` and `k` (moving spheres).
    In the whole space the equation may be nonlinear in the value of `u` (not in its derivatives): values then
    lie between those of two linear problems, and `bias` is half their distance (see `between.py`).

    **Arguments**

    - `points`: `(n, d)` or `(d,)`, in the closed domain.
    - `t`: the time of an evolution problem, one or one a point; without it the last coordinate is the time.
    - `accuracy`: walk until the half-width of every interval is at most this times the root mean
      square of the values (at most 1,000,000 walks a point; see `reached`).
    - `walks`: the number of walks from every point; 1,000 where neither is given.
    - `confidence`: of each interval by itself.
    - `value_range`: of an equation that is nonlinear in `u`, values between which you know `u` and `Q` to
      lie.
    - `seed`: the same seed gives the same bits on the same machine.

    Walks that do not end are no error: `status` says so, `unfinished` how many, and their points get infinite
    intervals. Raises `ValueError` for equations that are not affine in `u`, or in which `c < 0`.
    """
    if not isinstance(solution, Solution | Problem):
        raise ValueError(
            f"feynman_kac takes a qpde.Solution or a qpde.Problem, got {shown(solution)}."
        )
    problem = solution.problem if isinstance(solution, Solution) else solution
    _check_options(accuracy, walks, confidence, progress)
    if t is not None:
        points = with_times(points, t, problem.domain)
    where = as_rows(points, problem.dim, problem.domain.times is not None)
    (key,) = keys_from(a_seed(seed), 1)
    given = np.asarray(points, np.float64)
    if problem.domain.follows_paths and problem.operator.structure is Structure.SEMILINEAR:
        values = None if value_range is None else a_range("value_range", value_range)
        return _between(solution, given, where, accuracy, walks, confidence, values, key, progress)
    if value_range is not None:
        raise ValueError("value_range is for equations in the whole space that are nonlinear in u.")
    if here() is not None and accuracy is None and len(where) > 1:
        return _in_blocks(solution, given, where, walks, confidence, key)
    return _estimated(solution, given, where, accuracy, walks, confidence, key, progress)


def _between(
    solution: Solution | Problem,
    points: np.ndarray,
    where: np.ndarray,
    accuracy: float | None,
    walks: int | None,
    confidence: float,
    value_range: tuple[float, float] | None,
    key: PRNGKeyArray,
    progress: bool,
) -> Estimate:
    """The values of an equation that is nonlinear in `u`, between those of two linear ones."""
    problem = solution.problem if isinstance(solution, Solution) else solution
    inside = _check_inside(problem.domain, where, _at_points(_distance, problem.domain, where))
    count = _DEFAULT if walks is None else walks
    total = int(inside.sum()) * count
    with Walks(progress) as bar, Keyboard() as keyboard:

        def report(done: int) -> None:
            bar.update(done, max(total, done))
            if keyboard.seen:
                raise KeyboardInterrupt

        return values_between(
            _usable(solution),
            points,
            where,
            inside,
            _at_points(_base, Base(problem.data), where),
            accuracy=accuracy,
            walks=count,
            confidence=confidence,
            value_range=value_range,
            key=key,
            report=report,
        )


def _in_blocks(
    solution: Solution | Problem,
    points: np.ndarray,
    where: np.ndarray,
    walks: int | None,
    confidence: float,
    key: PRNGKeyArray,
) -> Estimate:
    """The estimate by processes that work together: blocks of points, each with walks of its own."""
    start = time.perf_counter()
    blocks = np.array_split(np.arange(len(where)), min(BLOCKS, len(where)))
    most = max(map(len, blocks))
    own: list[Estimate] = []

    def one(index: int) -> dict[str, np.ndarray]:
        # Where blocks are not of one length, some have their first points twice.
        rows = where[np.resize(blocks[index], most)]
        part = jr.fold_in(key, index)
        own.append(_estimated(solution, rows, rows, None, walks, confidence, part, False))
        return parts_of(own[-1])

    found = shared(one, len(blocks))
    sizes = [len(block) for block in blocks]
    return joined(own[0], found, sizes, points, time.perf_counter() - start)


def _estimated(
    solution: Solution | Problem,
    points: np.ndarray,
    where: np.ndarray,
    accuracy: float | None,
    walks: int | None,
    confidence: float,
    key: PRNGKeyArray,
    progress: bool,
) -> Estimate:
    """The estimate by this process alone."""
    start = time.perf_counter()
    problem = solution.problem if isinstance(solution, Solution) else solution
    distance = _at_points(_distance, problem.domain, where)
    inside = _check_inside(problem.domain, where, distance)
    evolves = problem.domain.times is not None
    generator = Generator.of(problem.operator)
    if evolves:
        # To the side alone: walks that start near it are not split, because the data may be nearer.
        space = where[:, :-1]
        distance = _at_points(_distance, problem.domain.in_space, space)
    plan = make_plan(_usable(solution), problem, generator, distance[inside])
    if evolves:
        distance = np.full(len(where), plan.inradius)
    bases = np.stack([_at_points(_base, base, where[inside]) for base in plan.bases])
    edge = _at_points(_base, Base(problem.data), where)
    tally = Tally(plan, where[inside], distance[inside], bases)
    with Walks(progress) as bar, Keyboard() as keyboard:

        def report(done: int) -> None:
            bar.update(tally.done + done, tally.planned)
            if keyboard.seen:
                raise KeyboardInterrupt

        walk_all(
            tally,
            plan,
            accuracy=accuracy,
            walks=_DEFAULT if walks is None else walks,
            confidence=confidence,
            key=key,
            report=report,
        )
    return make_estimate(
        tally,
        plan,
        points,
        inside,
        edge,
        confidence=confidence,
        accuracy=accuracy,
        seconds=time.perf_counter() - start,
    )


def _usable(solution: Solution | Problem) -> Solution | Problem:
    """The solution, or its problem alone where Q may have kinks, which its residual would not show."""
    if isinstance(solution, Problem):
        return solution
    found = rough_parts(solution.trial, solution.problem.domain)
    if not found:
        return solution
    warnings.warn(
        f"{' and '.join(found).capitalize()} may have kinks or jumps, so that the network is not used as a "
        "control variate.",
        stacklevel=4,
    )
    return solution.problem


def _distance(domain: AbstractDomain, x: Array) -> Array:
    return domain.distance(x)


def _base(base: Base, x: Array) -> Array:
    return base.value(x)


@compiled
def _chunk(function: Callable[[Any, Array], Array], owner: Any, points: Any) -> Array:
    return jax.vmap(functools.partial(function, owner))(points)


def _at_points(function: Callable[[Any, Array], Array], owner: Any, rows: np.ndarray) -> np.ndarray:
    """`function(owner, x)` for every row."""
    return by_chunks(functools.partial(_chunk, function, owner), rows, _CHUNK)


def _check_options(accuracy: Any, walks: Any, confidence: Any, progress: Any) -> None:
    if accuracy is not None and walks is not None:
        raise ValueError("Give accuracy or walks, not both: each says how much work is done.")
    if accuracy is not None:
        real("accuracy", accuracy, above=0.0)
    if walks is not None:
        whole("walks", walks, least=2, most=MOST)
    if not 0 < real("confidence", confidence) < 1:
        raise ValueError(
            f"confidence must lie between 0 and 1, for example 0.95, got {confidence}."
        )
    flag("progress", progress)


def _check_inside(domain: AbstractDomain, points: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Which points lie inside; the others are on the boundary."""
    outside = distance < -_OUTSIDE * domain.inradius
    if outside.any():
        where = np.array2string(points[outside][0], precision=4, threshold=6)
        raise ValueError(
            f"{outside.sum():,} of {len(points):,} points lie outside {domain!r}, for example "
            f"{where}. The solution is defined on the closed domain only."
        )
    return distance > _ON * domain.inradius
