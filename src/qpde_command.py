"""The command `qpde`. Signals are heeded from the start: importing the library takes seconds."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run the command."""
    _heed(_end)
    try:
        from qpde.cli.main import main as command

        command()
    finally:  # all is written: a signal while Python shuts down comes too late
        _heed(signal.SIG_IGN)


def _heed(handler: Any) -> None:
    """What signals do from now on, unless they are ignored."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
            signal.signal(number, handler)


def _end(number: int, _: Any) -> None:
    """Leave at once: nothing has been begun."""
    try:
        if sys.stderr is not None:
            word = "interrupted" if number == signal.SIGINT else "terminated"
            sys.stderr.write(f"qpde: {word}.\n")
            sys.stderr.flush()
    finally:  # the terminal that would show the line may be gone
        os._exit(128 + number)


if __name__ == "__main__":
    main()
