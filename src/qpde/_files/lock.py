"""The lock of a run folder: one process at a time writes there.

The file `.qpde-lock` names its owner. While the owner lives, the system holds the file locked for it, and
lets go when it dies, however it dies. So a lock of this machine that the system does not hold is a dead
owner's and is taken over. What another machine does on a shared disk cannot be seen: its lock is believed.
"""

import json
import os
import sys
import threading
import warnings
from pathlib import Path
from types import TracebackType

from .owner import Owner, host

NAME = ".qpde-lock"


class Locked(ValueError):
    """Another process writes into the folder; `owner` says which, where that is known."""

    def __init__(self, folder: Path, owner: Owner | None, cure: str):
        super().__init__(f"{folder} is in use by {owner or 'another process'}. {cure}")
        self.owner = owner


class FolderLock:
    """Holds a folder while it is open; raises `Locked` where another process or thread does.

    The thread that holds a folder may lock it again: a command holds it from its first file to its last,
    and `solve`, which it calls, holds it too.
    """

    _held: dict[tuple[str, int], int] = {}  # noqa: RUF012 - of the process: folder and thread
    _guard = threading.Lock()

    def __init__(self, folder: Path):
        self._folder = folder
        self._path = folder / NAME
        self._handle: int | None = None
        self._key = (os.path.realpath(folder), threading.get_ident())

    def __enter__(self) -> "FolderLock":
        with self._guard:
            if self._held.get(self._key, 0) == 0:
                try:
                    self._handle = self._take()
                except OSError as error:
                    raise OSError(f"Cannot write to {self._folder}: {error.strerror}.") from None
            self._held[self._key] = self._held.get(self._key, 0) + 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._guard:
            self._held[self._key] -= 1
            if self._held[self._key] == 0:
                del self._held[self._key]
            if self._handle is None:
                return
            try:
                # While it is held: who opened the file before finds, once it holds it, that it is gone.
                self._path.unlink(missing_ok=True)
            except OSError as reason:
                # The run is whole; nobody holds the file, and the next command takes it over.
                warnings.warn(f"Cannot remove {self._path}: {reason.strerror}.", stacklevel=2)
            finally:
                os.close(self._handle)
                self._handle = None

    def _take(self) -> int:
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if not _hold(handle):
                    cure = "Wait until it ends, or choose another folder."
                    raise Locked(self._folder, self._owner(handle), cure)
                owner = self._owner(handle)
                if owner is not None and owner.host != host():
                    cure = f"If that process is gone, remove {self._path}."
                    raise Locked(self._folder, owner, cure)
                if self._is_there(handle):
                    os.ftruncate(handle, 0)
                    os.lseek(handle, 0, os.SEEK_SET)
                    os.write(handle, json.dumps(vars(Owner.here())).encode())
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def _owner(self, handle: int) -> Owner | None:
        try:
            os.lseek(handle, 0, os.SEEK_SET)
            return Owner.read(json.loads(os.read(handle, 4096)))
        except ValueError:  # empty, or cut short: its owner died, or is writing just now
            return None

    def _is_there(self, handle: int) -> bool:
        """Whether the name still leads to the file that was opened: its owner may have ended meanwhile."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self._path))
        except FileNotFoundError:
            return False


def _hold(handle: int) -> bool:
    """Ask the system to hold a file for this process; False where it holds it for another."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
