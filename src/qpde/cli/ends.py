"""How a command ends when it does not succeed: one line on standard error and an exit code."""

import sys
from typing import Any, NoReturn

NUMERICAL_FAILURE, NOT_SOLVED, WRONG_USE, INTERRUPTED = 1, 1, 2, 130


def tell(message: Any) -> None:
    """Write one line for people; results alone go to standard output."""
    print(f"qpde: {message}", file=sys.stderr, flush=True)


def fail(message: Any, code: int) -> NoReturn:
    """Write the message and leave with the exit code."""
    tell(message)
    sys.exit(code)
