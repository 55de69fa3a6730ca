"""Work in another thread: XLA compiles outside Python's lock, so that two programs take two cores."""

import threading
from collections.abc import Callable
from typing import Any

from .._machines.place import here
from .._precision import x64


class Background:
    """A function that runs in a thread of its own, in the mode of our programs.

    It is called for the programs that it leaves in JAX's memory. An error in it is dropped: the caller makes
    the same call afterwards, and meets the error there.
    """

    def __init__(self, function: Callable[[], Any]):
        self._function = function
        self._thread: threading.Thread | None = None
        place = here()
        if place is not None and place.count > 1:
            return  # all processes must run their common programs in one order
        # A daemon, lest a program that nobody needs any more keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="qpde compiles", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with x64():
                self._function()
        except Exception as error:
            self.error = error

    def wait(self) -> None:
        """Return when the function has."""
        if self._thread is not None:
            self._thread.join()
