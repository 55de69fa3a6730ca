"""Whose code is run: files that name a Python file are believed only where this user has run that code.

A run of this user's on this machine is known by its id and by the SHA-256 of all its source files, which the
user's state folder keeps (as `direnv allow` does). Whoever copies the id without the sources, or the sources
under another id, is a stranger. A stranger's code runs after a word of trust alone, and only if it is the
very code that the run was made with.
"""

import hashlib
import json
import warnings
from pathlib import Path

from .._files.private import private_folder, state_folder
from .._files.whole import write_text
from .source import source_files


class Untrusted(ValueError):
    """A file asks to run Python code that its reader has not allowed."""


def remember(run_id: str, source: dict[str, str]) -> None:
    """Note that this user has run these source files on this machine, for the run of that id."""
    try:
        folder = private_folder(_folder())
        write_text(folder / run_id, _digest(source) + "\n")
    except OSError as error:
        warnings.warn(
            f"{error} This run will not be known as your own: its commands need --trust.",
            stacklevel=3,
        )


def is_known(run_id: str | None, source: dict[str, str]) -> bool:
    """Whether this user has run these source files on this machine, for the run of that id."""
    if run_id is None:
        return False
    try:
        folder = private_folder(_folder())
        note = folder / run_id
        return note.is_file() and note.read_text().strip() == _digest(source)
    except (OSError, UnicodeDecodeError) as error:
        warnings.warn(f"{error} No run is known as your own.", stacklevel=3)
        return False


def admit(
    where: Path, file: Path, run_id: str | None, source: dict[str, str] | None, *, trust: bool
) -> None:
    """Raise `Untrusted` unless the Python file that `where` names may be run. Nothing is run here.

    `source` are the files that the run was made with; None in files of format 1, which note none.
    """
    if not file.is_file():
        raise ValueError(
            f"The problem was made by {file}, which is not there. Put it back, or in Python pass "
            "the problem: qpde.load(path, problem=...)."
        )
    now = source_files(file)
    changed = None if source is None else _difference(file.parent, source, now)
    if trust:
        if changed is None:
            return
        raise Untrusted(
            f"{where} was made with other code: {file.parent / changed} is not the file of that run. "
            "Put that file back, or in Python pass the problem: qpde.load(path, problem=...)."
        )
    if source is not None and changed is None and is_known(run_id, source):
        return
    why = "which you have not run here" if changed is None else f"and {changed} is not as it was"
    raise Untrusted(
        f"{where} needs the problem in {file}, {why}. Loading runs no code: read that file, then add "
        "--trust (trust=True in Python), or in Python pass the problem: qpde.load(path, problem=...)."
    )


def _difference(folder: Path, source: dict[str, str], now: dict[str, str]) -> str | None:
    """The first file that has changed, is missing or is new; None where all are as they were."""
    for name in sorted(source.keys() | now.keys()):
        if name in now:
            here = now[name]
        else:  # loaded by the run in a way that no import statement shows
            path = folder / name
            if not path.is_file():
                return name
            here = hashlib.sha256(path.read_bytes()).hexdigest()
        if source.get(name) != here:
            return name
    return None


def _folder() -> Path:
    return state_folder() / "runs"


def _digest(source: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()
