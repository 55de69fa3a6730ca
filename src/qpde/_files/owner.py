"""Processes as owners of files: whether the one that wrote a name or a lock is still at work."""

import dataclasses
import hashlib
import os
import platform
import sys
import time
from typing import Any


def host() -> str:
    """The name of this machine."""
    return platform.node() or "unknown"


def host_mark() -> str:
    """The machine's name in eight letters that every file system takes."""
    return hashlib.sha256(host().encode()).hexdigest()[:8]


def is_alive(pid: int) -> bool:
    """Whether a process of this machine exists. Where that cannot be asked, it does."""
    if sys.platform == "win32" or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


@dataclasses.dataclass(frozen=True)
class Owner:
    """Who holds a lock: machine, process, and when it took the lock (seconds since 1970)."""

    host: str
    pid: int
    start: float

    @classmethod
    def here(cls) -> "Owner":
        """The process that asks, now."""
        return cls(host(), os.getpid(), time.time())

    @classmethod
    def read(cls, found: Any) -> "Owner | None":
        """The owner in the content of a lock; None where it names none."""
        if not isinstance(found, dict) or found.keys() != {"host", "pid", "start"}:
            return None
        kinds = (found["host"], str), (found["pid"], int), (found["start"], float)
        if not all(type(value) is kind for value, kind in kinds):
            return None
        return cls(**found)

    def __str__(self) -> str:
        try:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.start))
        except (OverflowError, ValueError, OSError):
            since = "an unknown time"
        return f"process {self.pid} on {self.host}, since {since}"
