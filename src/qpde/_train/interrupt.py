"""Ctrl-C during compiled work."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Keyboard:
    """Notes Ctrl-C while it is open, in place of raising: JAX may crash on an exception inside it.

    `seen` is looked at between blocks of steps. A second Ctrl-C is raised at once. Outside the main
    thread, where Python delivers no signals, it does nothing.
    """

    def __init__(self) -> None:
        self.seen = False
        self._before: Any = None

    def __enter__(self) -> "Keyboard":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
