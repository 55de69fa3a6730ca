"""Progress on standard error: the bar of a run, the bar of random walks, the two bars of a study."""

import math
import sys
from collections.abc import Sequence
from typing import Any

# Columns after the name and the bar: texts that rich fills with the fields of a bar, and two clocks.
_COUNT, _PERCENT = "{task.completed:,.0f}/{task.total:,.0f}", "{task.percentage:>3.0f} %"
_ELAPSED, _REMAINING = "seconds elapsed", "seconds remaining"


class _Bars:
    """Bars below each other, shown while a `with` block lasts.

    Where `shown` is false or standard error is no terminal, nothing is shown.
    """

    def __init__(self, columns: Sequence[str], *, shown: bool):
        self._display: Any = _display(columns) if shown and sys.stderr.isatty() else None

    def __enter__(self) -> Any:
        if self._display is not None:
            self._display.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None:
            self._display.stop()

    def _add(self, name: str, total: int | float | None, **fields: str) -> Any:
        """A new bar, empty."""
        if self._display is not None:
            return self._display.add_task(name, total=total, **fields)
        return None

    def _update(self, bar: Any, **changes: Any) -> None:
        if self._display is not None:
            self._display.update(bar, **changes)


def _display(columns: Sequence[str]) -> Any:
    from rich import progress

    times = {_ELAPSED: progress.TimeElapsedColumn, _REMAINING: progress.TimeRemainingColumn}
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=24),
        *(times[text]() if text in times else progress.TextColumn(text) for text in columns),
        console=_console(),
        transient=True,
    )


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


class Bar(_Bars):
    """The bar of a run: steps, loss, speed and time left."""

    def __init__(self, total: int, shown: bool):
        texts = ("loss {task.fields[loss]}", "{task.fields[speed]}")
        super().__init__((_COUNT, *texts, _REMAINING), shown=shown)
        self._steps = self._add("compiling", total, loss="-", speed="")

    def update(self, step: int, loss: float, seconds: float) -> None:
        """Show the steps done, the loss now and the steps per second."""
        speed = f"{step / seconds:,.0f}/s" if seconds > 0 and step else ""
        shown = f"{loss:.2e}" if math.isfinite(loss) else "-"
        self._update(self._steps, completed=step, loss=shown, speed=speed, description="training")


class Walks(_Bars):
    """The bar of random walks: how many of them have ended."""

    def __init__(self, shown: bool):
        # No total is known at first, and `_COUNT` cannot show that.
        super().__init__(("{task.fields[count]}", _REMAINING), shown=shown)
        self._walks = self._add("walks", None, count="")

    def update(self, done: int, total: int) -> None:
        """Show that `done` walks have ended, of the `total` that is planned so far."""
        self._update(self._walks, completed=done, total=total, count=f"{done:,}/{total:,}")


class StudyBars(_Bars):
    """The two bars of a study, for the whole and for its current run.

    Where standard error is no terminal, every run that has ended gets a line.
    """

    def __init__(self, total: float, count: int, shown: bool):
        columns = (_PERCENT, _ELAPSED, _REMAINING, "{task.fields[note]}")
        super().__init__(columns, shown=shown and count > 0)
        self._lines = shown and self._display is None
        self._count, self._ended, self._before = count, 0, 0.0
        self._name, self._work = "", 0.0
        self._whole = self._add("the whole", total, note="")
        self._part = self._add("", 1.0, note="")

    def begin(self, name: str, work: float) -> None:
        """The next run begins; `work` is its part of the total."""
        self._name, self._work = name, work
        if self._display is not None:
            self._display.reset(self._part, description=name, total=1.0, note="compiling")
        self._update(self._whole, note=f"run {self._ended + 1} of {self._count}")

    def update(self, share: float, loss: float) -> None:
        """Show the share of the current run that is done, between 0 and 1, and its loss now."""
        self._update(self._part, completed=share, note=f"loss {loss:.2e}")
        self._update(self._whole, completed=self._before + share * self._work)

    def end(self, seconds: float, loss: float | None = None) -> None:
        """The current run has ended; it took `seconds`."""
        self._ended += 1
        self._before += self._work
        self._update(self._whole, completed=self._before)
        if self._lines:
            note = "" if loss is None else f", loss {loss:.2e}"
            line = f"run {self._ended} of {self._count}: {self._name}{note}, {seconds:.0f} s"
            _console().print(line)
