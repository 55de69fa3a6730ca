"""The command `qpde` in this process, where its programs stay compiled and its lines are counted."""

import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from qpde.cli.main import main

# The words that start it in a process of its own.
PROCESS = [sys.executable, str(Path(__file__).with_name("quick_command.py"))]


class Done(NamedTuple):
    code: int
    out: str
    err: str


def command(*words: object) -> Done:
    """Exit code, standard output and standard error of `qpde WORDS`."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["qpde", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return Done(code, out.getvalue(), err.getvalue())
