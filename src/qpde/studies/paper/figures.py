"""The figures of the reproduction, drawn from its tables."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..._plot.style import COMPUTED, CYCLE, EXACT, QUIET, finish, new_axes, new_figure
from .._columns import Columns, where
from .runs import Tables

# One colour for each method in every figure.
_COLOURS = {"q-learning": COMPUTED, "deep-galerkin": CYCLE[1]}
_WORDS = {"q-learning": "Q-PDE", "deep-galerkin": "DGM"}
_LOSS = r"mean of $(\mathcal{L} Q)^2$"


class Drawing(NamedTuple):
    """A figure: the table it is drawn from, the function that draws it, and a description in words."""

    table: str
    draw: Callable[[Columns], Any]
    words: str


def _runs(columns: Columns) -> Iterator[tuple[str, str | None, Columns]]:
    """The runs of a table: the rule, its label (of seed 0 alone, for the legend), and the rows."""
    for rule, seed in sorted(set(zip(columns["rule"], columns["seed"], strict=True)), reverse=True):
        yield rule, _WORDS[rule] if seed == 0 else None, where(columns, rule=rule, seed=seed)


def _loss(columns: Columns) -> Any:
    ax = new_axes(None)
    for rule, label, run in _runs(columns):
        ax.fill_between(
            run["step"], run["low"], run["high"], color=_COLOURS[rule], alpha=0.12, lw=0
        )
        ax.plot(run["step"], run["median"], color=_COLOURS[rule], lw=0.9, label=label)
    ax.set(xlabel="step", ylabel=_LOSS, yscale="log")
    return finish(ax)


def _residual(columns: Columns) -> Any:
    ax = new_axes(None)
    for i, name in enumerate(name for name in columns if name.startswith("last_")):
        label = f"seed {name.removeprefix('last_seed')}"
        ax.plot(columns["x"], columns[name], color=CYCLE[i % len(CYCLE)], lw=0.9, label=label)
    ax.axhline(0.0, color=QUIET, lw=0.6)
    ax.set(xlabel="$x$", ylabel=r"$\mathcal{L} Q_T(x)$")
    ax.ticklabel_format(axis="y", scilimits=(-2, 3), useMathText=True)
    return finish(ax)


def _solution(columns: Columns) -> Any:
    ax = new_axes(None)
    ax.plot(columns["x"], columns["exact"], color=EXACT, lw=2.2, alpha=0.35, label="exact")
    ax.plot(
        columns["x"], columns["q_seed0"], "--", color=COMPUTED, lw=1.2, label=r"Q-PDE, $Q_\tau$"
    )
    ax.set(xlabel="$x$", ylabel="$u$")
    return finish(ax)


def _relative_error(columns: Columns) -> Any:
    ax = new_axes(None)
    for i, name in enumerate(name for name in columns if name.startswith("error_")):
        label = f"seed {name.removeprefix('error_seed')}"
        ax.plot(columns["x"], 100 * columns[name], color=CYCLE[i % len(CYCLE)], lw=0.9, label=label)
    ax.axhline(0.02, color=EXACT, lw=0.8, ls=":", label="the paper's 0.02 %")
    ax.set(xlabel="$x$", ylabel=r"$|Q_\tau - u| / |u|$  (%)", yscale="log")
    return finish(ax)


def _by_radius(name: str, label: str) -> Callable[[Columns], Any]:
    def draw(columns: Columns) -> Any:
        ax = new_axes(None)
        for rule, word, run in _runs(columns):
            marks = {"color": _COLOURS[rule], "marker": ".", "ms": 3.5, "lw": 0.8}
            ax.plot(run["r"], run[name], label=word, **marks)
        ax.set(xlabel="$r = |x|$", ylabel=label, yscale="log")
        return finish(ax)

    return draw


def _scatter(columns: Columns) -> Any:
    ax = new_axes(None)
    inset = ax.inset_axes((0.1, 0.1, 0.42, 0.42))
    inset.tick_params(labelsize=7)
    near = np.abs(columns["r"] - 0.5) < 0.06
    for each, kept in ((ax, slice(None)), (inset, near)):
        for rule in ("q-learning", "deep-galerkin"):
            marks = {"ls": "", "marker": ".", "ms": 3.5, "mew": 0, "color": _COLOURS[rule]}
            each.plot(columns["r"][kept], columns[rule][kept], label=_WORDS[rule], **marks)
        each.plot(columns["r"][kept], columns["exact"][kept], color=EXACT, lw=0.9, label="exact")
    ax.indicate_inset_zoom(inset, edgecolor=QUIET)
    ax.set(xlabel="$r = |x|$", ylabel="$u$")
    return finish(ax)


def _cycles(columns: Columns) -> Any:
    ax = new_axes(None)
    names = [name for name in columns if name != "step"]
    for name, colour in zip(names, (COMPUTED, CYCLE[1], CYCLE[2]), strict=True):
        ax.plot(columns["step"], columns[name], color=colour, lw=0.8, label=name)
    ax.set(xlabel="step", ylabel=_LOSS, yscale="log")
    return finish(ax)


def _batches(columns: Columns) -> Any:
    axes = new_figure((4.8, 3.3), 1, 2)
    for ax, dim in zip(axes, (1, 20), strict=True):
        for i, kind in enumerate(("growing", "constant")):
            errors = where(columns, dim=dim, batch=kind)["relative_l2_error"]
            _spread(ax, i, errors, CYCLE[i])
        ax.set_xticks((0, 1), ("growing", "constant"))
        ax.set(yscale="log", xlim=(-0.5, 1.5))
        ax.set_title(f"d = {dim}", fontsize=9)
    axes[0].set(ylabel="relative $L^2$ error")
    return axes


def _spread(ax: Any, at: float, values: np.ndarray, colour: str) -> None:
    """The runs as dots, their range as a line, their median as a bar."""
    ax.plot([at, at], [values.min(), values.max()], color=colour, lw=1.0)
    ax.plot(np.full(len(values), at), values, ".", color=colour, ms=5)
    ax.plot([at - 0.15, at + 0.15], [np.median(values)] * 2, color=colour, lw=2)


def _sensitivity(parameter: str) -> Callable[[Columns], Any]:
    def draw(columns: Columns) -> Any:
        axes = new_figure((4.8, 3.3), 1, 2)
        for ax, dim in zip(axes, (1, 20), strict=True):
            rows = where(columns, dim=dim, parameter=parameter)
            values = np.unique(rows["value"])
            for i, value in enumerate(values):
                mine = 0.99 if parameter == "beta" else 1.0
                errors = where(rows, value=value)["relative_l2_error"]
                _spread(ax, i, errors, COMPUTED if value == mine else QUIET)
            ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
            ax.set(yscale="log", xlabel=r"$\beta$" if parameter == "beta" else "scale of $w$")
            ax.set_title(f"d = {dim}", fontsize=9)
        axes[0].set(ylabel="relative $L^2$ error")
        return axes

    return draw


def _put_value(columns: Columns) -> Any:
    ax = new_axes(None)
    ax.plot(columns["x"], columns["exact"], color=EXACT, lw=2.2, alpha=0.35, label="exact")
    for rule, dashes in (("q-learning", "--"), ("deep-galerkin", ":")):
        ax.plot(
            columns["x"], columns[rule], dashes, color=_COLOURS[rule], lw=1.3, label=_WORDS[rule]
        )
    ax.plot(columns["x"], columns["payoff"], color=QUIET, lw=0.9, label="payoff")
    ax.axvline(4 / 13, color=EXACT, lw=0.7, ls=":")
    ax.set(xlabel="$x$", ylabel="$u$")
    return finish(ax)


def _put_generator(columns: Columns) -> Any:
    ax = new_axes(None)
    for rule in ("q-learning", "deep-galerkin"):
        style = {"color": _COLOURS[rule], "lw": 1.0, "label": _WORDS[rule]}
        ax.plot(columns["x"], columns[f"generator_{rule}"], **style)
    ax.axvline(4 / 13, color=EXACT, lw=0.7, ls=":", label="exact free boundary")
    ax.axhline(-0.0125, color=QUIET, lw=0.7, ls="--", label="half of $-rK$")
    ax.set(xlim=(0.0, 0.6), ylim=(-0.04, 0.01), xlabel="$x$")
    ax.set(ylabel=r"$\frac{1}{2}\sigma^2 x^2 Q'' + r x Q' - r Q$")
    return finish(ax)


FIGURES: dict[str, Drawing] = {
    "loss-1d": Drawing("loss-1d", _loss, "loss during training, d = 1"),
    "residual-1d": Drawing(
        "residual-1d", _residual, "operator error at the end of training, d = 1"
    ),
    "solution-1d": Drawing("solution-1d", _solution, "approximate and exact solution, d = 1"),
    "error-1d": Drawing("solution-1d", _relative_error, "relative error, d = 1"),
    "loss-20d": Drawing("loss-20d", _loss, "loss of Q-PDE and DGM during training, d = 20"),
    "mse-20d": Drawing(
        "radius-20d",
        _by_radius("mean_squared_error", "mean squared error"),
        "mean squared error by radius, d = 20",
    ),
    "max-error-20d": Drawing(
        "radius-20d",
        _by_radius("max_relative_error", "largest relative error $R_r$"),
        "largest relative error by radius, d = 20",
    ),
    "scatter-20d": Drawing(
        "scatter-20d", _scatter, "values against the radius, d = 20, with inset"
    ),
    "cycles": Drawing("cycles-window", _cycles, "loss under Adam and under the plain flow, d = 20"),
    "batches": Drawing("batches", _batches, "growing against constant batches"),
    "beta": Drawing("sensitivity", _sensitivity("beta"), "error for several beta"),
    "scale": Drawing("sensitivity", _sensitivity("scale"), "error for several initial scales of w"),
    "put-value": Drawing("put-curves", _put_value, "value of the American put"),
    "put-boundary": Drawing(
        "put-curves",
        _put_generator,
        "generator applied to the value, which jumps at the free boundary",
    ),
}


def suited(tables: Tables) -> dict[str, Drawing]:
    """The figures whose tables are there."""
    return {name: drawing for name, drawing in FIGURES.items() if drawing.table in tables}
