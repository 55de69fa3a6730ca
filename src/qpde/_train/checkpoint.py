"""Checkpoints: a run that is stopped at any instant goes on from there, bit for bit."""

import dataclasses
import hashlib
import re
import time
from pathlib import Path
from types import CodeType
from typing import Any

import jax
import numpy as np

from .._files.archive import arrays_of, read_archive, remove_leftovers, with_arrays, write_archive
from .._files.fingerprint import check_fingerprint, fingerprint
from .._problem.problem import Problem
from .loop import Loop

# Seconds between checkpoints. A run pauses for one between compiled blocks, which are kept shorter.
INTERVAL = 5.0
FILE = "checkpoint.safetensors"


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

    def __init__(self, folder: Any, problem: Problem, identity: dict[str, Any], stage: int = 1):
        self.path = Path(folder) / checkpoint_file(stage)
        self._problem, self._identity = problem, identity
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"Cannot write to {self.path.parent}: {error.strerror}.") from None
        remove_leftovers(self.path.parent)
        self._fingerprint = fingerprint(problem)
        self._written = float("-inf")

    def read(self, start: Loop) -> Snapshot | None:
        """The state to go on from, or None where there is no checkpoint yet."""
        if not self.path.exists():
            return None
        header, groups = read_archive(self.path, "checkpoint")
        check_fingerprint(self._problem, groups["problem"], self.path)
        for name, here in self._identity.items():
            there = header["identity"].get(name)
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
        return Snapshot(loop, history["rows"], history["checks"], header["seconds"])

    @property
    def due(self) -> bool:
        """Whether the last checkpoint is old enough for a new one."""
        return time.perf_counter() - self._written >= INTERVAL

    def write(self, snapshot: Snapshot) -> None:
        """Replace the checkpoint by a newer one."""
        groups = {
            "problem": self._fingerprint,
            "loop": arrays_of(snapshot.loop),
            "history": {"rows": snapshot.rows, "checks": snapshot.checks},
        }
        header = {"identity": self._identity, "seconds": snapshot.seconds}
        write_archive(self.path, "checkpoint", header, groups)
        self._written = time.perf_counter()


def digest(tree: Any) -> str:
    """A tree in a few letters: its arrays by their bits, its functions by name and code."""
    leaves, structure = jax.tree.flatten(tree)
    words = hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", str(structure)).encode())
    for leaf in leaves:
        if isinstance(leaf, jax.Array | np.ndarray):
            words.update(f"{leaf.dtype}{leaf.shape}".encode())
            words.update(np.asarray(leaf).tobytes())
        elif callable(leaf):
            inside = _code(getattr(leaf, "__code__", None))
            name = getattr(leaf, "__qualname__", type(leaf).__qualname__)
            words.update(re.sub(r" at 0x[0-9a-f]+", "", name + inside).encode())
        else:
            words.update(re.sub(r" at 0x[0-9a-f]+", "", repr(leaf)).encode())
    return "#" + words.hexdigest()[:16]


def _code(code: Any) -> str:
    """What a function does, without where its file lies."""
    if code is None:
        return ""
    consts = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code}{code.co_names}{consts}"


def _speaks(value: Any) -> bool:
    """Whether a value of an identity means something to a reader; a digest does not."""
    return not str(value).startswith("#")
