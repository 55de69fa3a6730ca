"""Checkpoints: a run that is stopped at any instant goes on from there, bit for bit."""

import contextlib
import dataclasses
import hashlib
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._files.archive import arrays_of, check_groups, read_archive, with_arrays, write_archive
from .._files.damage import ANYTHING, RUN_ID, SECONDS, DamagedFile, Misfit
from .._files.fingerprint import (
    FINGERPRINT_ARRAYS,
    PROGRAMS_ARRAYS,
    PROGRAMS_SCHEMA,
    check_arrays,
    check_fingerprint,
    check_programs,
    fingerprint,
    programs,
)
from .._files.lock import FolderLock
from .._files.whole import remove_leftovers
from .._machines.place import leads
from .._problem.problem import Problem
from .._program.identity import code_of
from .loop import Loop

# Seconds between checkpoints. A run pauses for one between compiled blocks, which are kept shorter.
INTERVAL = 5.0
FILE = "checkpoint.safetensors"
_OLD = {"identity": {"*": ANYTHING}, "seconds": SECONDS}
SCHEMA = _OLD | {"run": RUN_ID, "programs": PROGRAMS_SCHEMA}
_HISTORY = {"rows": ("f", 2), "checks": ("f", 2)}


def checkpoint_file(stage: int) -> str:
    """The name of the checkpoint of a stage, counted from 1."""
    return FILE if stage == 1 else FILE.replace(".", f"-{stage}.")


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """All that a run knows between two steps."""

    loop: Loop
    rows: np.ndarray  # (steps, 3): loss, gradient, truncated
    checks: np.ndarray  # (checks, 2): steps done, held-out loss
    seconds: float


class Checkpoint:
    """The checkpoint of one run in a folder.

    `identity` holds what decides the bits of the run. A checkpoint with another one is refused, because
    going on from it would give a result that no single call of `solve` describes.
    """

    def __init__(
        self,
        folder: Any,
        problem: Problem,
        identity: dict[str, Any],
        stage: int = 1,
        run_id: str | None = None,
    ):
        self.path = Path(folder) / checkpoint_file(stage)
        self._problem, self._identity = problem, identity
        make_folder(self.path.parent)
        remove_leftovers(self.path.parent)
        self._run_id = run_id or run_id_in(self.path.parent)
        self._fingerprint, self._programs = fingerprint(problem), programs(problem)
        self._written = float("-inf")

    def read(self, start: Loop) -> Snapshot | None:
        """The state to go on from, or None where there is no checkpoint yet."""
        if not self.path.exists():
            return None
        header, groups = read_checkpoint(self.path)
        check_fingerprint(self._problem, groups["problem"], self.path)
        if "programs" in header:
            numbers = groups["programs"]
            check_programs(self._problem, header["programs"], numbers, self.path, exact=True)
        if header.get("run", self._run_id) != self._run_id:
            raise ValueError(
                f"{self.path} belongs to another run than the other files of its folder. Put the right "
                "file back, or remove it to begin this stage again."
            )
        for name in self._identity | header["identity"]:
            here, there = self._identity.get(name), header["identity"].get(name)
            if there == here:
                continue
            known = _speaks(here) and _speaks(there)
            gap = f"{name} {there}, this run has {here}" if known else f"another {name}"
            raise ValueError(
                f"{self.path} was made with {gap}. Call solve with the same options to go on from "
                "it, or choose another folder."
            )
        loop = with_arrays(start, groups["loop"], "this run")
        history = groups["history"]
        if int(loop.step) != len(history["rows"]) or [
            history[name].shape[1] for name in ("rows", "checks")
        ] != [3, 2]:
            raise DamagedFile(self.path, ": its history has another length than the run.")
        return Snapshot(loop, history["rows"], history["checks"], header["seconds"])

    @property
    def due(self) -> bool:
        """Whether the last checkpoint is old enough for a new one."""
        return time.perf_counter() - self._written >= INTERVAL

    def write(self, snapshot: Snapshot) -> None:
        """Replace the checkpoint by a newer one."""
        words, numbers = self._programs
        if self._run_id is None:
            self._run_id = new_run_id()
        groups = {
            "problem": self._fingerprint,
            "programs": numbers,
            "loop": arrays_of(snapshot.loop),
            "history": {"rows": snapshot.rows, "checks": snapshot.checks},
        }
        header = {
            "run": self._run_id,
            "programs": words,
            "identity": self._identity,
            "seconds": snapshot.seconds,
        }
        write_archive(self.path, "checkpoint", header, groups)
        self._written = time.perf_counter()


class Silent:
    """In place of a checkpoint, for processes that write none."""

    due = False

    def read(self, start: Loop) -> None:
        return None

    def write(self, snapshot: Snapshot) -> None:
        pass


def make_folder(folder: Path) -> None:
    """Make a folder where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"Cannot write to {folder}: {error.strerror}.") from None


@contextlib.contextmanager
def holding(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Hold the folder of a run, made where it is missing, against other processes; None is no folder."""
    if folder is None or not leads():
        yield
        return
    make_folder(Path(folder))
    with FolderLock(Path(folder)):
        yield


def new_run_id() -> str:
    """A random name for a run, which all its files carry."""
    return uuid.uuid4().hex


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]]]:
    """The header and the arrays of a checkpoint, as far as they can be checked without its run."""
    header, groups = read_archive(path, "checkpoint", SCHEMA, _OLD)
    expected = {"problem": FINGERPRINT_ARRAYS, "loop": None, "history": _HISTORY}
    if "programs" in header:
        expected["programs"] = PROGRAMS_ARRAYS
    try:
        check_groups(groups, expected)
        check_arrays(groups["problem"])
    except Misfit as error:
        raise DamagedFile(path, f": {error}.") from None
    return header, groups


def run_id_in(folder: Path) -> str | None:
    """The id of the run whose first checkpoint lies in a folder; None where there is none."""
    path = folder / FILE
    return read_checkpoint(path)[0].get("run") if path.is_file() else None


def digest(tree: Any) -> str:
    """A tree in a few letters: its arrays by their bits, its functions by name and code."""
    leaves, structure = jax.tree.flatten(tree)
    words = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", str(structure)).encode())
    for leaf in leaves:
        if isinstance(leaf, jax.Array | np.ndarray):
            words.update(f"{leaf.dtype}{leaf.shape}".encode())
            words.update(np.asarray(leaf).tobytes())
        elif callable(leaf):
            words.update(code_of(leaf).encode())
        else:
            words.update(re.sub(r" at 0x[0-9a-f]+", "", repr(leaf)).encode())
    return "#" + words.hexdigest()[:16]


def _speaks(value: Any) -> bool:
    """Whether a value of an identity means something to a reader; a digest does not."""
    return not str(value).startswith("#")
