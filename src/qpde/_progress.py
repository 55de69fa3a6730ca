"""The progress bar of a run: on a terminal only, on standard error."""

import math
import sys
from types import TracebackType
from typing import Any


class Bar:
    """Shows steps, loss, speed and time left; does nothing where there is no terminal."""

    def __init__(self, total: int, shown: bool):
        self._bar: Any = None
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

    def __enter__(self) -> "Bar":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, step: int, loss: float, seconds: float) -> None:
        """Show where the run is."""
        if self._bar is None:
            return
        speed = f"{step / seconds:,.0f}/s" if seconds > 0 and step else ""
        shown = f"{loss:.2e}" if math.isfinite(loss) else "-"
        self._bar.update(
            self._task, completed=step, loss=shown, speed=speed, description="training"
        )
