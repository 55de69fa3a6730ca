"""Compiled programs on disk: each entry is signed with the user's key, and all together are bounded in size.

A folder holds a subfolder for each build (version, source and machine), and a subfolder holds a file for
each program: the signature, then the bytes of the program. A file is written beside its final place and then
renamed, so that a reader in another process sees a whole entry or none. The time of a file's last change is
the time when its program was last used.
"""

import contextlib
import hashlib
import hmac
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PREFIX = "programs-"
_SIGNATURE_BYTES = 32
# Programs of other builds that nobody used for a month go, even where there is room.
_STALE_NANOSECONDS = 30 * 86400 * 10**9


class _File(NamedTuple):
    """A file of any build. Files sort by the time of their last use."""

    used: int
    size: int
    path: Path


class ProgramStore:
    """Entries under string keys, with the methods that JAX asks of a compilation cache.

    `get` returns the bytes that `put` was given by this user for this key and this build, or None. Wrong
    bytes are never returned: a file that was cut short, edited, renamed or copied from another build or
    user does not have the signature that its content, name, build and the user's key give.

    Not a frozen record: it counts the bytes it may still write before it looks at the folder again.
    """

    def __init__(self, folder: Path, build: str, secret: bytes, limit: int) -> None:
        """`folder` holds all builds; together they take at most `limit` bytes."""
        self._folder = folder
        self._path = folder / (_PREFIX + build)  # JAX reads this name when it resets its cache
        self._build = build
        self._secret = secret
        self._limit = limit
        self._room = 0
        self._writes = True
        self._warned = False

    def get(self, key: str) -> bytes | None:
        """The program under a key, or None if it must be compiled."""
        path = self._file(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"Cannot read {path}: {error.strerror}. The program is compiled again.")
            return None
        signature, program = content[:_SIGNATURE_BYTES], content[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(key, program)):
            self._warn(f"{path} was changed after it was written. The program is compiled again.")
            return None  # JAX then puts the new program over it
        with contextlib.suppress(FileNotFoundError):  # another process may have made room just now
            os.utime(path)
        return program

    def put(self, key: str, value: bytes) -> None:
        """Keep a program. A folder that cannot be written to costs one warning, not the run."""
        content = self._sign(key, value) + value
        if not self._writes or len(content) > self._limit:
            return
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if len(content) > self._room:
                self._make_room(len(content))
            self._write(self._file(key), content)
            self._room -= len(content)
        except FileNotFoundError:
            return  # somebody deleted the folder meanwhile, as they may; the next program makes it again
        except OSError as error:
            self._writes = False
            message = (
                f"Cannot write to {self._path}: {error.strerror}. Compiled programs are not kept."
            )
            warnings.warn(message, stacklevel=2)

    def _file(self, key: str) -> Path:
        """A name of fixed length: a key begins with the name of a function, which may be long."""
        return self._path / hashlib.sha256(key.encode()).hexdigest()

    def _sign(self, key: str, program: bytes) -> bytes:
        signature = hmac.new(self._secret, digestmod=hashlib.sha256)
        for part in (self._build.encode(), key.encode(), program):
            signature.update(len(part).to_bytes(8, "big"))
            signature.update(part)
        return signature.digest()

    def _write(self, path: Path, content: bytes) -> None:
        # Without fsync, which waits for the disk: the signature finds an entry that a power cut damaged.
        handle, draft = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(draft, path)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise

    def _make_room(self, needed: int) -> None:
        """Remove files that nobody used for longest, of all builds, until `needed` more bytes fit.

        Looking at all files for every program would be slow. A process therefore looks again only after
        an eighth of the limit: this bounds how far processes that write at once can overshoot it, and a
        full folder is emptied by an eighth. Drafts that a killed process left are files like others.
        """
        files = sorted(self._files())
        total = sum(file.size for file in files)
        allowed = self._limit - (self._limit // 8 if total + needed > self._limit else 0)
        stale = time.time_ns() - _STALE_NANOSECONDS
        for file in files:
            old = file.used < stale and file.path.parent != self._path
            if old or total > max(allowed - needed, 0):
                file.path.unlink(missing_ok=True)
                total -= file.size
        for folder in self._builds():
            if folder != self._path:
                with contextlib.suppress(OSError):  # raised for every folder that is not empty
                    folder.rmdir()
        self._room = min(self._limit - total, max(needed, self._limit // 8))

    def _files(self) -> Iterator[_File]:
        for folder in self._builds():
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as items:
                for item in items:
                    # Another process may remove a file between the listing and the question.
                    with contextlib.suppress(FileNotFoundError):
                        if item.is_file(follow_symlinks=False):
                            found = item.stat(follow_symlinks=False)
                            yield _File(found.st_mtime_ns, found.st_size, Path(item.path))

    def _builds(self) -> list[Path]:
        """The subfolders that are ours; a folder that the user chose may hold other things."""
        return [p for p in self._folder.glob(_PREFIX + "*") if p.is_dir() and not p.is_symlink()]

    def _warn(self, message: str) -> None:
        """Warn of the first program that cannot be read; what spoils one usually spoils many."""
        if not self._warned:
            self._warned = True
            warnings.warn(message, stacklevel=3)
