"""Files in one piece: a reader sees the old content or the new, never half of it, also after a crash.

The content is written to a temporary file in the same folder, flushed to the disk and renamed; then the
folder is flushed too, so that the new name outlives a power cut.
"""

import contextlib
import os
import re
import secrets
from pathlib import Path

from .owner import host_mark, is_alive

# Nobody else gives files such names, so that those of dead processes can be removed without a question.
_DRAFT = re.compile(r"\.qpde-([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{16}\.tmp")


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one piece; a failed attempt leaves the old file as it was."""
    draft = path.parent / f".qpde-{host_mark()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
        try:
            try:
                _write_all(handle, data)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
            raise
        flush_folder(path.parent)
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror}.") from None


_BINARY = getattr(os, "O_BINARY", 0)  # Windows


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def flush_folder(folder: Path) -> None:
    """Make renames and removals in a folder outlive a power cut; Windows does so by itself."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece."""
    write_bytes(path, text.encode())


def read_bytes(path: Path) -> bytes:
    """The content of a file; what the system says against it becomes a sentence."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise OSError(f"Cannot read {path}: {error.strerror}.") from None


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that dead processes of this machine left in a folder, and nothing else."""
    for path in folder.iterdir():
        found = _DRAFT.fullmatch(path.name)
        if found is not None and found[1] == host_mark() and not is_alive(int(found[2])):
            path.unlink(missing_ok=True)
