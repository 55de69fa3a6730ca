"""Values of a solution beside the exact ones: against the radius, along a line, one against the other."""

from typing import Any

import jax.random as jr
import numpy as np

from .._arguments import a_seed, an_instance, whole
from .._domain.base import AbstractDomain
from .._precision import x64
from .._problem.solution import Solution
from .._walks.estimate import Estimate
from .evaluate import many, on_section, quietly
from .sections import inside_line, misses, straight_line
from .style import COMPUTED, CYCLE, EXACT, are_axes, finish, new_axes, new_figure
from .words import checked, title

# More points than a figure shows.
_MANY = 1_000_000
_DOTS = {"ls": "", "marker": ".", "mew": 0, "rasterized": True}


def radial(
    solution: Solution,
    ax: Any = None,
    *,
    count: int = 1_000,
    seed: int = 0,
    estimate: Estimate | None = None,
) -> Any:
    """`Q` against the distance from the centre at random points, with the exact values if known.

        >>> ax = radial(solution)
        >>> ax = radial(solution, estimate=feynman_kac(solution, points))

    `count` is the number of random points. An `estimate` is drawn as confidence intervals at its points.
    """
    problem = checked(solution).problem
    domain, exact = problem.domain, problem.exact
    if domain.round is None:
        raise ValueError(f"A radial plot needs a ball or an annulus, got {domain!r}.")
    count = whole("count", count, least=2, most=_MANY)
    rng = np.random.default_rng(a_seed(seed))
    _check_estimate(estimate, domain)
    ax = new_axes(ax)
    inner, outer = domain.round.inner, domain.round.outer
    r = np.sort(inner + (outer - inner) * rng.random(count))
    normal = rng.standard_normal((count, domain.dim))
    x = domain.centre + r[:, None] * normal / np.linalg.norm(normal, axis=1, keepdims=True)
    if exact is not None:
        u, turned = (many(exact, y) for y in (x, 2 * domain.centre - x))
        even = np.allclose(u, turned, atol=1e-9 * np.abs(u).max())
        # A line where the exact solution depends on the radius alone, else rings around the dots.
        smooth = even and np.abs(np.diff(u)).max() < 0.1 * np.ptp(u)
        rings = {**_DOTS, "marker": "o", "ms": 4, "mfc": "none", "mew": 0.4}
        ax.plot(r, u, color=EXACT, label="exact", **({"lw": 1, "zorder": 3} if smooth else rings))
    ax.plot(r, quietly(solution, x), color=COMPUTED, ms=4, label="computed", **_DOTS)
    if estimate is not None:
        there = np.atleast_2d(estimate.points) - domain.centre
        _intervals(ax, np.linalg.norm(there, axis=1), estimate)
    ax.set(xlabel="$|x - c|$" if np.any(domain.centre) else "$|x|$", ylabel="$u$")
    return finish(ax, title(solution))


def profile(
    solution: Solution,
    ax: Any = None,
    *,
    direction: Any = 0,
    through: Any = None,
    count: int = 401,
    estimate: Estimate | None = None,
) -> Any:
    """`Q` along a straight line from boundary to boundary, above its error if that is known.

        >>> upper, lower = profile(solution)
        >>> ax = profile(solution, ax, direction=[1, 1, 0])
        >>> ax = profile(solution, ax, estimate=feynman_kac(solution, points))

    `count` is the number of points of the line. An `estimate` at points of the line is drawn as confidence
    intervals.

    The line runs along `direction`, an axis or a vector, `through` a point, by default the centre. A pair
    of axes shows the curves and the error, a single one the curves alone; a pair needs an exact solution.
    """
    problem = checked(solution).problem
    domain, exact = problem.domain, problem.exact
    pair = exact is not None if ax is None else isinstance(ax, tuple | list | np.ndarray)
    if pair and exact is None:
        raise ValueError("Without an exact solution there is no error to draw. Pass one axes.")
    given = None if ax is None else _panels(ax, pair)
    count = whole("count", count, least=2, most=_MANY)
    _check_estimate(estimate, domain)
    origin, unit, label = straight_line(domain, direction, through)
    t = inside_line(domain, origin, unit, count)
    if t.size == 0:
        raise ValueError(misses("line", domain, through))
    computed = on_section(quietly, solution, origin, unit, t)
    upper, lower = given or _panels(None, pair)
    if exact is not None:
        u = on_section(many, exact, origin, unit, t)
        upper.plot(t, u, color=EXACT, lw=1.0, label="exact")
        if pair:
            _error(lower, t, np.abs(computed - u))
    dashes = "-" if exact is None else "--"
    upper.plot(t, computed, dashes, color=COMPUTED, lw=1.5, label="computed")
    if estimate is not None:
        _intervals(upper, _along(estimate, origin, unit, domain), estimate)
    upper.set(ylabel="$u$")
    lower.set(xlabel=label)
    finish(upper, title(solution, "line" if domain.dim > 1 else "", through))
    return (upper, lower) if pair else upper


def _panels(ax: Any, pair: bool) -> Any:
    """The axes of the curves and of the error: two or the same, given or new."""
    if not pair:
        return (new_axes(ax),) * 2
    if ax is not None:
        return are_axes("ax", ax, ("the curves", "the error"))
    axes = new_figure((4.8, 4.2), 2, 1, sharex=True, height_ratios=(2, 1))
    axes[0].figure.align_ylabels(axes)
    return axes


def scatter(solution: Solution, ax: Any = None, *, count: int = 2_000, seed: int = 0) -> Any:
    """Computed against exact values at `count` random points, with the diagonal and the relative error.

    >>> ax = scatter(solution)
    """
    problem = checked(solution).problem
    domain, exact = problem.domain, problem.exact
    if exact is None:
        cure = "build the problem with exact=..., or draw qpde.plot.slice, which shows the residual"
        raise ValueError(f"A scatter plot needs an exact solution: {cure}.")
    count, seed = whole("count", count, least=1, most=_MANY), a_seed(seed)
    ax = new_axes(ax, (3.6, 3.7))
    with x64():
        x = np.asarray(domain.sample(jr.key(seed), count))
    u, computed = many(exact, x), quietly(solution, x)
    ax.axline((u[0], u[0]), slope=1, color=EXACT, lw=0.8, zorder=1)
    ax.plot(u, computed, color=COMPUTED, ms=4, **_DOTS)
    ax.set(xlabel="exact $u$", ylabel="computed $Q$", aspect="equal", adjustable="datalim")
    error = solution.score.relative_l2_error
    if error is not None:
        text, style = f"relative $L^2$ error {error:.2g}", {"size": ax.xaxis.label.get_size()}
        ax.text(0.05, 0.95, text, va="top", transform=ax.transAxes, **style)
    return finish(ax, title(solution))


def _check_estimate(estimate: Any, domain: AbstractDomain) -> None:
    if estimate is None:
        return
    an_instance("estimate", estimate, Estimate, "qpde.feynman_kac(solution, points)")
    dim = np.shape(estimate.points)[-1]
    if dim != domain.dim:
        raise ValueError(
            f"The estimate is of a problem in dimension {dim}, the solution has {domain.dim}."
        )


def _intervals(ax: Any, at: np.ndarray, estimate: Estimate) -> None:
    """The confidence intervals of an estimate as bars, at the abscissae `at`."""
    value, low, high = (np.atleast_1d(v) for v in (estimate.value, estimate.low, estimate.high))
    label = f"{100 * estimate.confidence:g} % intervals"
    style = {"fmt": "none", "ecolor": CYCLE[1], "elinewidth": 1.0, "capsize": 2.0, "zorder": 4}
    ax.errorbar(at, value, yerr=(value - low, high - value), label=label, **style)


def _along(estimate: Estimate, origin: Any, unit: Any, domain: AbstractDomain) -> np.ndarray:
    """The coordinates on a line of the points of an estimate, which must lie on it."""
    there = np.atleast_2d(estimate.points) - origin
    along = there @ unit[0]
    if np.max(np.abs(there - along[:, None] * unit)) > 1e-6 * domain.enclosing_ball[1]:
        raise ValueError("The points of the estimate do not lie on the line that is drawn.")
    return along


def _error(ax: Any, t: np.ndarray, error: np.ndarray) -> None:
    """The error on a logarithmic axis of at most four decades: it has no logarithm where it is zero."""
    ax.plot(t, error, color=COMPUTED, lw=1.0)
    ax.set(ylabel="$|Q - u|$")
    known = error[error > 0]
    if known.size:
        low, high = max(known.min(), 1e-4 * known.max()), known.max()
        ax.set(yscale="log", ylim=(low / 1.5, high * 1.5))
        ax.minorticks_off()
