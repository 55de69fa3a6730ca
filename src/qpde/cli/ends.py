"""How a command ends when it does not succeed: one line on standard error and an exit code."""

import os
import signal
import sys
from typing import Any, NoReturn

from .._text import for_terminal

NUMERICAL_FAILURE, NOT_SOLVED, DIFFERENT, WRONG_USE, INTERRUPTED = 1, 1, 1, 2, 130
_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal is gone"}
# What to do after an early end: set by the command that works on a run.
_cure: list[str] = []


def tell(message: Any) -> None:
    """Write one line for people; results alone go to standard output. Without standard error, nothing."""
    if sys.stderr is not None:
        print(f"qpde: {for_terminal(message)}", file=sys.stderr, flush=True)


def fail(message: Any, code: int) -> NoReturn:
    """Write the message and leave with the exit code."""
    tell(message)
    sys.exit(code)


def set_cure(text: str) -> None:
    """Say what a user can do should a signal end the command from now on."""
    _cure[:] = [text]


def end_by_signal(number: int, _: Any = None) -> NoReturn:
    """Leave at once: every file that was written is whole. The exit code is 128 and the signal's number."""
    try:
        tell(". ".join([_WORDS.get(signal.Signals(number).name, "ended"), *_cure]) + ".")
    finally:  # the terminal that would show the line may be gone
        os._exit(128 + number)
