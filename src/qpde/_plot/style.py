"""How figures look and how they are written: colours, sizes, axes, files."""

import io
import logging
from pathlib import Path
from typing import Any

import numpy as np

from .._arguments import an_instance, shown
from .._files.whole import write_bytes

# The colours of Okabe and Ito, which colour-blind readers tell apart; exact black, computed blue.
COMPUTED, EXACT, QUIET = "#0072B2", "#000000", "#9aa5b1"
CYCLE = (COMPUTED, "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", EXACT)
TICKS = {"which": "both", "labelsize": 8, "width": 0.6}
_STYLE: dict[Any, Any] = {"font.size": 9, "axes.linewidth": 0.6}
_STYLE |= {"axes.spines.top": False, "axes.spines.right": False}


def new_axes(ax: Any, size: tuple[float, float] = (4.8, 3.3)) -> Any:
    """The axes that were given, or new ones."""
    return new_figure(size, 1, 1)[0] if ax is None else an_axes("ax", ax)


def an_axes(name: str, value: Any) -> Any:
    """Axes of matplotlib."""
    from matplotlib.axes import Axes

    return an_instance(name, value, Axes, "plt.gca()")


def are_axes(name: str, values: Any, panels: tuple[str, ...]) -> list[Any]:
    """Axes of matplotlib for panels of a figure, one for each."""
    if not isinstance(values, tuple | list | np.ndarray):
        raise ValueError(f"{name} must be a list of axes, got {shown(values)}.")
    found = list(np.ravel(np.asarray(values, object)))
    if len(found) != len(panels):
        raise ValueError(f"Pass {len(panels)} axes, for {', '.join(panels)}; got {len(found)}.")
    return [an_axes(f"{name}[{i}]", ax) for i, ax in enumerate(found)]


def new_figure(
    size: Any, rows: int, columns: int, *, layout: Any = "constrained", **options: Any
) -> Any:
    """The axes of a new figure."""
    import matplotlib.pyplot as plt

    with plt.rc_context(_STYLE):
        figure, _ = plt.subplots(rows, columns, figsize=size, layout=layout, **options)
        for ax in figure.axes:
            ax.tick_params(**TICKS)
    return figure.axes


def finish(ax: Any, title: str = "") -> Any:
    """Set title and legend in the font size of the axis labels, which the caller may have chosen."""
    size = ax.xaxis.label.get_size()
    ax.set_title(title, fontsize=size)
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend(frameon=False, fontsize=size)
    return ax


def headless() -> None:
    """Draw into files alone, for a command: matplotlib looks for no display and opens no window."""
    import matplotlib

    matplotlib.use("Agg")


def close(figure: Any) -> None:
    """Forget a figure; pyplot keeps every one until it is closed."""
    import matplotlib.pyplot as plt

    plt.close(figure)


def figure_of(axes: Any) -> Any:
    """The figure that holds the axes."""
    several = isinstance(axes, tuple | list | np.ndarray)
    found = list(np.ravel(np.asarray(axes, object))) if several else [axes]
    if not found:
        raise ValueError("axes must be axes of matplotlib, got none.")
    return an_axes("axes", found[0]).figure


def write_figure(figure: Any, target: Any, *, dpi: int = 300, **options: Any) -> None:
    """Write a figure to a path or a buffer; the same figure gives the same bytes."""
    import matplotlib as mpl

    # fontTools logs warnings about the dates in matplotlib's own fonts.
    logging.getLogger("fontTools").setLevel(logging.ERROR)
    form = options.get("format") or Path(target).suffix[1:].lower()
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    options = options | {"format": form, "metadata": undated.get(form)}
    with mpl.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "qpde"}):
        if isinstance(target, io.BytesIO):
            figure.savefig(target, dpi=dpi, **options)
            return
        buffer = io.BytesIO()
        figure.savefig(buffer, dpi=dpi, **options)
    write_bytes(Path(target), buffer.getvalue())  # whole or not at all, also where it is killed


def write_forms(axes: Any, stem: Path) -> None:
    """Write the figure that holds the axes as `stem.svg`, `stem.pdf` and `stem.png`, and close it."""
    figure = figure_of(axes)
    write_bytes(stem.with_suffix(".svg"), svg(figure))
    for suffix in (".pdf", ".png"):
        write_figure(figure, stem.with_suffix(suffix), dpi=160)
    close(figure)


def svg(figure: Any) -> bytes:
    """A figure as SVG with a transparent background, for a page with a colour of its own."""
    buffer = io.BytesIO()
    write_figure(figure, buffer, dpi=200, format="svg", transparent=True)
    return buffer.getvalue()
