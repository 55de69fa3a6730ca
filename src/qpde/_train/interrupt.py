"""Signals during compiled work: Ctrl-C, and the two by which systems end a process."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

# Sent by a system that shuts down or a queue that ends a job, and by a terminal that goes away.
ENDING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP


class Keyboard:
    """Notes signals while it is open, in place of raising: JAX may crash on an exception inside it.

    `seen` is looked at between blocks of steps. A second Ctrl-C is raised at once. Outside the main
    thread, where Python delivers no signals, it does nothing.

    Once `arm` has said that there is a state worth keeping, SIGTERM and SIGHUP are noted too; when the block
    ends, with the state kept, they are sent again to whoever handled them before, by default the system,
    which ends the process. Before that they go there at once. A signal that is ignored stays so.
    """

    def __init__(self) -> None:
        self.seen = False
        self._armed = False
        self._ending: int | None = None
        self._before: dict[int, Any] = {}

    def arm(self) -> None:
        """From now on a signal that ends the process waits until the block is left."""
        self._armed = True

    def __enter__(self) -> "Keyboard":
        if threading.current_thread() is threading.main_thread():
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._note)
            for number in ENDING:
                # None: somebody else than Python handles it.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._note_end)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()
        if self._ending is not None:
            signal.raise_signal(self._ending)

    def _restore(self) -> None:
        for number, before in self._before.items():
            if before is not None:
                signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True

    def _note_end(self, number: int, frame: FrameType | None) -> None:
        if not self._armed or self._ending is not None:
            self._restore()
            signal.raise_signal(number)
            return  # whoever handles it lets the process live
        self._ending, self.seen = number, True
