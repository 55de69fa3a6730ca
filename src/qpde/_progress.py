"""Progress on standard error: the bar of a run, and the two bars of a study."""

import math
import sys
from typing import Any


class _Shown:
    """A display that is there while it is needed, if at all."""

    _bar: Any = None

    def __enter__(self) -> Any:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


class Bar(_Shown):
    """Shows steps, loss, speed and time left; does nothing where there is no terminal."""

    def __init__(self, total: int, shown: bool):
        if not shown or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("compiling", total=total, loss="-", speed="")

    def update(self, step: int, loss: float, seconds: float) -> None:
        """Show where the run is."""
        if self._bar is None:
            return
        speed = f"{step / seconds:,.0f}/s" if seconds > 0 and step else ""
        shown = f"{loss:.2e}" if math.isfinite(loss) else "-"
        self._bar.update(
            self._task, completed=step, loss=shown, speed=speed, description="training"
        )


class Stages(_Shown):
    """The progress of a study: a bar for the whole, one for its current run.

    Where there is no terminal, a line for every run that has ended.
    """

    def __init__(self, total: float, count: int, shown: bool):
        self._shown, self._count, self._ended, self._before = shown, count, 0, 0.0
        self._name, self._work = "", 0.0
        if not shown or count == 0:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        if not sys.stderr.isatty():
            return
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24))
        columns += (TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(), Remaining())
        self._bar = Progress(
            *columns, TextColumn("{task.fields[note]}"), console=self._console, transient=True
        )
        self._whole = self._bar.add_task("the whole", total=total, note="")
        self._part = self._bar.add_task("", total=1.0, note="")

    def begin(self, name: str, work: float) -> None:
        """The next run begins; `work` is its part of the total."""
        self._name, self._work = name, work
        if self._bar is not None:
            self._bar.reset(self._part, description=name, total=1.0, note="compiling")
            self._bar.update(self._whole, note=f"run {self._ended + 1} of {self._count}")

    def update(self, share: float, loss: float) -> None:
        """A share of the current run is done."""
        if self._bar is not None:
            self._bar.update(self._part, completed=share, note=f"loss {loss:.2e}")
            self._bar.update(self._whole, completed=self._before + share * self._work)

    def end(self, seconds: float, loss: float | None = None) -> None:
        """The current run has ended."""
        self._ended += 1
        self._before += self._work
        if self._bar is not None:
            self._bar.update(self._whole, completed=self._before)
        elif self._shown:
            note = "" if loss is None else f", loss {loss:.2e}"
            self._console.print(
                f"run {self._ended} of {self._count}: {self._name}{note}, {seconds:.0f} s"
            )


class Walks(_Shown):
    """Shows how many random walks have ended; does nothing where there is no terminal."""

    def __init__(self, shown: bool):
        if not shown or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24))
        columns += (TextColumn("{task.completed:,.0f}/{task.total:,.0f}"), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("walks", total=None)

    def update(self, done: int, total: int) -> None:
        """So many of the walks known to be needed have ended."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)
