"""Figures of a solution. Each function draws on the axes it is given, or makes some, and returns them.

save(radial(solution), "radial.pdf")
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np

from ._domain import AbstractDomain, Interval, as_point, short
from ._estimate import Estimate
from ._round import Annulus, Ball
from ._solution import Solution, Stage
from ._style import (
    COMPUTED,
    CYCLE,
    EXACT,
    QUIET,
    TICKS,
    figure_of,
    finish,
    new_axes,
    new_figure,
    write_figure,
)

_DOTS = {"ls": "", "marker": ".", "mew": 0, "rasterized": True}
_PANELS = {"exact": "exact $u$", "computed": "computed $Q$"}
_PANELS |= {"error": "error $Q - u$", "residual": r"residual $|\mathcal{L} Q|$"}
# Points are made and evaluated this many at a time: a slice in 10,000 dimensions fits in memory.
_CHUNK = 1_024


def history(solution: Solution, ax: Any = None) -> Any:
    """The loss during training: every minibatch, and the held-out points.

        >>> ax = history(solution)

    Against steps; a run of several stages, whose steps differ, against seconds.
    """
    ax = new_axes(ax)
    past = solution.history
    many, staged = len(past.loss) > 5_000, len(solution.stages) > 1
    steps, checks = np.arange(len(past.loss)), past.checked_step
    if staged:
        steps, checks = _seconds(solution, steps), _seconds(solution, checks)
    ax.plot(steps, past.loss, color=QUIET, lw=0.6, label="minibatch", rasterized=many)
    style = {"color": COMPUTED, "marker": "" if many else "o", "ms": 3}
    ax.plot(checks, past.held_out, label="held-out points" + _extra(solution), **style)
    label = "training time (s)" if staged else "step"
    ax.set(xlabel=label, ylabel=r"mean of $(\mathcal{L} Q)^2$", yscale="log")
    start, place = 0.0, {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    for stage in _stepping(solution) if staged else ():
        ax.axvline(start, color=QUIET, lw=0.8, ls=":")
        ax.annotate(stage.name, (start, 0.02), xytext=(3, 0), color=QUIET, **place)
        start += stage.seconds
    return finish(ax, _title(solution))


def _stepping(solution: Solution) -> list[Stage]:
    """The stages that took steps; the solve for the output layer takes none."""
    return [stage for stage in solution.stages if stage.steps]


def _seconds(solution: Solution, steps: np.ndarray) -> np.ndarray:
    """The seconds of training after so many steps, those of a stage all taken to be as long."""
    stages = _stepping(solution)
    if not stages:
        return steps * solution.seconds / max(solution.steps, 1)
    ends = np.cumsum([0, *(stage.steps for stage in stages)])
    return np.interp(steps, ends, np.cumsum([0.0, *(stage.seconds for stage in stages)]))


def compare(solutions: Sequence[Solution], ax: Any = None, *, seconds: bool = False) -> Any:
    """The held-out loss of several solutions of one problem, against steps or seconds of training.

    >>> ax = compare([solve(problem), solve(problem, rule=DeepGalerkin())], seconds=True)
    """
    problems = sorted({f"{s.problem.name}, d = {s.problem.dim}" for s in solutions})
    if len(problems) != 1:
        got = "; ".join(problems) or "no solution"
        raise ValueError(f"Losses are compared between solutions of one problem, got {got}.")
    ax = new_axes(ax)
    rules = [solution.rule for solution in solutions]
    for i, solution in enumerate(solutions):
        seed = f", seed {solution.seed}" if rules.count(solution.rule) > 1 else ""
        label = solution.rule + seed + _extra(solution)
        style = {"color": CYCLE[i % len(CYCLE)], "ls": ("-", "--", "-.", ":")[i % 4]}
        x, y = solution.history.checked_step, solution.history.held_out
        x = _seconds(solution, x) if seconds else x
        ax.plot(x, y, lw=1.5, label=label, **style)
    label = "training time (s)" if seconds else "step"
    ax.set(xlabel=label, ylabel=r"held-out mean of $(\mathcal{L} Q)^2$", yscale="log")
    return finish(ax, problems[0])


def radial(
    solution: Solution,
    ax: Any = None,
    *,
    points: int = 1_000,
    seed: int = 0,
    estimate: Estimate | None = None,
) -> Any:
    """`Q` against the distance from the centre at random points, with the exact values if known.

        >>> ax = radial(solution)
        >>> ax = radial(solution, estimate=feynman_kac(solution, points))

    An `estimate` is drawn as confidence intervals at its points.
    """
    domain, exact = solution.problem.domain, solution.problem.exact
    if not isinstance(domain, Ball | Annulus | Interval):
        raise ValueError(f"A radial plot needs a ball or an annulus, got {domain!r}.")
    ax = new_axes(ax)
    rng = np.random.default_rng(seed)
    inner = domain.inner if isinstance(domain, Annulus) else 0.0
    r = np.sort(inner + (domain.enclosing_ball[1] - inner) * rng.random(points))
    normal = rng.standard_normal((points, domain.dim))
    x = domain.centre + r[:, None] * normal / np.linalg.norm(normal, axis=1, keepdims=True)
    if exact is not None:
        u, turned = (_many(exact, y) for y in (x, 2 * domain.centre - x))
        even = np.allclose(u, turned, atol=1e-9 * np.abs(u).max())
        # A line where the exact solution depends on the radius alone, else rings around the dots.
        line = even and np.abs(np.diff(u)).max() < 0.1 * np.ptp(u)
        rings = {**_DOTS, "marker": "o", "ms": 4, "mfc": "none", "mew": 0.4}
        ax.plot(r, u, color=EXACT, label="exact", **({"lw": 1, "zorder": 3} if line else rings))
    ax.plot(r, _quietly(solution, x), color=COMPUTED, ms=4, label="computed", **_DOTS)
    if estimate is not None:
        there = np.atleast_2d(estimate.points) - domain.centre
        _intervals(ax, np.linalg.norm(there, axis=1), estimate)
    ax.set(xlabel="$|x - c|$" if np.any(domain.centre) else "$|x|$", ylabel="$u$")
    return finish(ax, _title(solution))


def profile(
    solution: Solution,
    ax: Any = None,
    *,
    direction: Any = 0,
    through: Any = None,
    points: int = 401,
    estimate: Estimate | None = None,
) -> Any:
    """`Q` along a straight line from boundary to boundary, above its error if that is known.

        >>> upper, lower = profile(solution)
        >>> ax = profile(solution, ax, direction=[1, 1, 0])
        >>> ax = profile(solution, ax, estimate=feynman_kac(solution, points))

    An `estimate` at points of the line is drawn as confidence intervals.

    The line runs along `direction`, an axis or a vector, `through` a point, by default the centre. One
    axes gets the curves alone; without an exact solution there is no error to draw on a second.
    """
    domain, exact = solution.problem.domain, solution.problem.exact
    pair = exact is not None if ax is None else isinstance(ax, tuple | list | np.ndarray)
    if pair and exact is None:
        raise ValueError("Without an exact solution there is no error to draw. Pass one axes.")
    origin, unit, label = _line(domain, direction, through)
    t = _inside_line(domain, origin, unit, points)
    if t.size == 0:
        raise ValueError(_misses("line", domain, through))
    computed = _on(_quietly, solution, origin, unit, t)
    if ax is None and pair:
        ax = new_figure((4.8, 4.2), 2, 1, sharex=True, height_ratios=(2, 1))
        ax[0].figure.align_ylabels(ax)
    ax = new_axes(ax)
    upper, lower = ax if pair else (ax, ax)
    if exact is not None:
        u = _on(_many, exact, origin, unit, t)
        upper.plot(t, u, color=EXACT, lw=1.0, label="exact")
        if pair:
            _error(lower, t, np.abs(computed - u))
    dashes = "-" if exact is None else "--"
    upper.plot(t, computed, dashes, color=COMPUTED, lw=1.5, label="computed")
    if estimate is not None:
        there = np.atleast_2d(estimate.points) - origin
        along = there @ unit[0]
        if np.max(np.abs(there - along[:, None] * unit)) > 1e-6 * domain.enclosing_ball[1]:
            raise ValueError("The points of the estimate do not lie on the line that is drawn.")
        _intervals(upper, along, estimate)
    upper.set(ylabel="$u$")
    lower.set(xlabel=label)
    finish(upper, _title(solution, "line" if domain.dim > 1 else "", through))
    return (upper, lower) if pair else upper


def slice(
    solution: Solution,
    axes: Any = None,
    *,
    plane: tuple[int, int] = (0, 1),
    through: Any = None,
    resolution: int = 200,
) -> Any:
    """Exact, computed and error on a plane; where nothing exact is known, computed and residual.

        >>> exact, computed, error = slice(solution, plane=(0, 2))

    The plane is spanned by two coordinate axes `through` a point, by default the centre. Outside
    the domain it is blank. `resolution` is the number of cells along the longer side.
    """
    domain, exact = solution.problem.domain, solution.problem.exact
    origin, basis = _plane(domain, plane, through)
    names = ("computed", "residual") if exact is None else ("exact", "computed", "error")
    if axes is not None and len(axes) != len(names):
        raise ValueError(f"Pass {len(names)} axes, for {', '.join(names)}; got {len(axes)}.")
    lower, upper = (corner[list(plane)] for corner in domain.enclosing_box)
    margin = 0.03 * np.max(upper - lower)
    lower, sides = lower - margin, upper - lower + 2 * margin
    cells = np.ceil(resolution * sides / np.max(sides)).astype(int)
    x, y = (lower[i] + sides[i] * (np.arange(cells[i]) + 0.5) / cells[i] for i in (0, 1))
    t = np.stack(np.meshgrid(x, y), axis=-1)
    distance = _on(_many, domain.distance, origin, basis, t)
    t[distance < 0] = np.nan
    if np.all(np.isnan(t)):
        raise ValueError(_misses("plane", domain, through))
    values = {"computed": _on(_quietly, solution, origin, basis, t)}
    if exact is None:
        values["residual"] = np.abs(_on(_quietly, solution.residual, origin, basis, t))
    else:
        values["exact"] = _on(_many, exact, origin, basis, t)
        values["error"] = values["computed"] - values["exact"]
    if axes is None:
        width, height = np.maximum(1.75 * sides / np.max(sides), 0.75)
        size = (len(names) * (width + 0.05) + 1.65, height + 0.92)
        axes = new_figure(size, 1, len(names), sharey=True, layout="compressed")
        title = _title(solution, "slice" if domain.dim > 2 else "", through)
        axes[0].figure.suptitle(title, fontsize=9)
    extent = (lower[0], lower[0] + sides[0], lower[1], lower[1] + sides[1])
    for ax, name in zip(axes, names, strict=True):
        style = {"extent": extent, "origin": "lower", "interpolation": "nearest", "aspect": "equal"}
        image = ax.imshow(np.ma.masked_invalid(values[name]), **style, **_colours(name, values))
        ax.contour(x, y, distance, levels=[0.0], colors=EXACT, linewidths=0.7)
        ax.locator_params(nbins=3, steps=[1, 2, 5, 10])
        ax.set(xlabel=f"$x_{{{plane[0] + 1}}}$")
        ax.set_title(_PANELS[name], fontsize=ax.xaxis.label.get_size())
        if name != "exact":  # which shares the colours of its neighbour
            _colour_bar(ax, image, max(1.0, sides[1] / sides[0]), log=name == "residual")
    axes[0].set(ylabel=f"$x_{{{plane[1] + 1}}}$")
    return tuple(axes)


def scatter(solution: Solution, ax: Any = None, *, points: int = 2_000, seed: int = 0) -> Any:
    """Computed against exact values at random points, with the diagonal and the relative error.

    >>> ax = scatter(solution)
    """
    domain, exact = solution.problem.domain, solution.problem.exact
    if exact is None:
        cure = "build the problem with exact=..., or draw qpde.plot.slice, which shows the residual"
        raise ValueError(f"A scatter plot needs an exact solution: {cure}.")
    ax = new_axes(ax, (3.6, 3.7))
    with jax.enable_x64(True):
        x = np.asarray(domain.sample(jr.key(seed), points))
    u, computed = _many(exact, x), _quietly(solution, x)
    ax.axline((u[0], u[0]), slope=1, color=EXACT, lw=0.8, zorder=1)
    ax.plot(u, computed, color=COMPUTED, ms=4, **_DOTS)
    ax.set(xlabel="exact $u$", ylabel="computed $Q$", aspect="equal", adjustable="datalim")
    error = solution.score.relative_l2_error
    if error is not None:
        text, style = f"relative $L^2$ error {error:.2g}", {"size": ax.xaxis.label.get_size()}
        ax.text(0.05, 0.95, text, va="top", transform=ax.transAxes, **style)
    return finish(ax, _title(solution))


def suited(solution: Solution) -> dict[str, Callable[..., Any]]:
    """The figures that suit a solution, by name.

    >>> for name, draw in suited(solution).items():
    ...     save(draw(solution), f"{name}.png")
    """
    problem, figures = solution.problem, {"history": history, "profile": profile}
    if isinstance(problem.domain, Ball | Annulus):
        figures["radial"] = radial
    if problem.dim >= 2:
        figures["slice"] = slice
    if problem.exact is not None:
        figures["scatter"] = scatter
    return figures


def save(axes: Any, path: str | Path, *, dpi: int = 300) -> Any:
    """Write the figure that holds the axes, in the format of the path's suffix, and return it.

        >>> figure = save(slice(solution), "slice.pdf")

    The same figure gives the same bytes. A PDF holds TrueType fonts, as journals ask.
    """
    figure = figure_of(axes)
    try:
        write_figure(figure, path, dpi=dpi)
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror}.") from None
    return figure


def _intervals(ax: Any, at: np.ndarray, estimate: Estimate) -> None:
    value, low, high = (np.atleast_1d(v) for v in (estimate.value, estimate.low, estimate.high))
    label = f"{100 * estimate.confidence:g} % intervals"
    style = {"fmt": "none", "ecolor": CYCLE[1], "elinewidth": 1.0, "capsize": 2.0, "zorder": 4}
    ax.errorbar(at, value, yerr=(value - low, high - value), label=label, **style)


def _error(ax: Any, t: np.ndarray, error: np.ndarray) -> None:
    ax.plot(t, error, color=COMPUTED, lw=1.0)
    ax.set(ylabel="$|Q - u|$")
    known = error[error > 0]
    if known.size:
        low, high = max(known.min(), 1e-4 * known.max()), known.max()  # zeros have no end
        ax.set(yscale="log", ylim=(low / 1.5, high * 1.5))
        ax.minorticks_off()


def _line(domain: AbstractDomain, direction: Any, through: Any) -> tuple[Any, Any, str]:
    """Origin, unit vector `(1, d)` and name of the abscissa: a coordinate, or else a distance."""
    origin, vector, dim = _point(domain, through), np.asarray(direction), domain.dim
    if vector.dtype.kind in "iu" and vector.ndim == 0 and 0 <= vector < dim:
        origin[vector] = 0.0
        return origin, np.eye(1, dim, int(vector)), "$x$" if dim == 1 else f"$x_{{{vector + 1}}}$"
    length = np.linalg.norm(vector) if vector.shape == (dim,) else 0.0
    if length > 0 and np.isfinite(length):
        return origin, vector[None] / length, "distance along the line"
    raise ValueError(f"direction is an axis below {dim} or {dim} numbers, not 0; got {vector}.")


def _plane(domain: AbstractDomain, plane: Any, through: Any) -> tuple[Any, Any]:
    """Origin and unit vectors `(2, d)`."""
    if domain.dim == 1:
        raise ValueError("A slice needs two dimensions or more. In one, draw qpde.plot.profile.")
    if len(plane) != 2 or len(set(plane) & set(range(domain.dim))) != 2:
        last = domain.dim - 1
        raise ValueError(f"plane must be two different axes from 0 to {last}, got {plane!r}.")
    origin = _point(domain, through)
    origin[list(plane)] = 0.0
    return origin, np.concatenate([np.eye(1, domain.dim, axis) for axis in plane])


def _point(domain: AbstractDomain, through: Any) -> np.ndarray:
    return np.array(domain.centre if through is None else as_point("through", through, domain.dim))


def _misses(what: str, domain: AbstractDomain, through: Any) -> str:
    where = short(_point(domain, through))
    return f"The {what} through {where} misses {domain!r}. Choose `through` inside the domain."


def _inside_line(domain: AbstractDomain, origin: Any, unit: Any, points: int) -> np.ndarray:
    """Abscissae `(n, 1)` of the line inside the closed domain, its pieces parted by NaN."""
    centre, radius = domain.enclosing_ball
    middle = float(unit[0] @ (centre - origin))
    square = radius**2 - np.sum((origin + middle * unit[0] - centre) ** 2)
    # A little beyond the ball, so that both ends are outside and crossings come in pairs.
    t = middle + 1.001 * np.sqrt(max(square, 0.0)) * np.linspace(-1.0, 1.0, 2_001)

    def inside(t: np.ndarray) -> np.ndarray:
        return _on(_many, domain.distance, origin, unit, t[:, None]) >= 0

    found = inside(t)
    before = np.flatnonzero(np.diff(found))
    enters = found[before + 1]
    inner, outer = t[before + enters], t[before + ~enters]
    for _ in range(55 if before.size else 0):
        half = 0.5 * (outer + inner)
        good = inside(half)
        outer, inner = np.where(good, outer, half), np.where(good, half, inner)
    pieces = inner.reshape(-1, 2)
    share = max(points // max(len(pieces), 1), 2)
    parts = [np.append(np.linspace(start, end, share), np.nan) for start, end in pieces]
    return np.concatenate([[], *parts])[:-1, None]


def _on(call: Any, function: Any, origin: Any, basis: Any, t: np.ndarray) -> np.ndarray:
    """`call(function, x)` at the points `x = origin + t @ basis`; NaN where `t (..., k)` is."""
    known = ~np.isnan(t).any(axis=-1)
    values, chosen = np.full(known.shape, np.nan), t[known]
    starts = range(0, len(chosen), _CHUNK)
    parts = [call(function, origin + chosen[i : i + _CHUNK] @ basis) for i in starts]
    values[known] = np.concatenate([[], *parts])
    return values


def _many(function: Callable[..., Any], x: Any) -> np.ndarray:
    """A function of one point at many, in float64."""
    padded = np.concatenate([x, np.repeat(x[:1], -len(x) % _CHUNK, axis=0)])  # compiles less often
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(function)(padded), np.float64)[: len(x)]


def _quietly(function: Callable[..., Any], x: Any) -> np.ndarray:
    """A function of the solution at points of the closed domain, which float32 may put outside."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*lie outside")
        return np.asarray(function(x), np.float64)


def _colours(name: str, values: dict[str, np.ndarray]) -> dict[str, Any]:
    """The map and limits of a panel: exact and computed share theirs, the error is symmetric."""
    names = ("exact", "computed") if name in ("exact", "computed") else (name,)
    known = np.concatenate([values[n][np.isfinite(values[n])] for n in names if n in values])
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if name == "error":
        most = max(-low, high) or 1.0
        return {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    if name == "residual":
        return {"cmap": "magma_r", "norm": "log", "vmin": 1e-3 * (high or 1.0), "vmax": high or 1.0}
    return {"cmap": "viridis", "vmin": low, "vmax": high}


def _colour_bar(ax: Any, image: Any, unit: float, *, log: bool) -> None:
    # An inset is exactly as high as the panel, whatever the layout.
    inset = ax.inset_axes((1.0 + 0.04 * unit, 0.0, 0.05 * unit, 1.0))
    bar = ax.figure.colorbar(image, cax=inset, extend="min" if log else "neither")
    bar.outline.set_linewidth(0.6)
    inset.tick_params(**TICKS)
    if not log:
        bar.formatter.set_powerlimits((-3, 4))
        bar.formatter.set_useMathText(True)
        inset.yaxis.set_offset_position("left")
        inset.yaxis.get_offset_text().set(fontsize=8)


def _extra(solution: Solution) -> str:
    return "" if solution.trial.exact_boundary else " (with boundary term)"


def _title(solution: Solution, what: str = "", through: Any = None) -> str:
    problem = solution.problem
    where = "the centre" if through is None else short(_point(problem.domain, through))
    place = f", {what} through {where}" if what else ""
    return f"{problem.name}, d = {problem.dim}, {solution.rule}{place}"
