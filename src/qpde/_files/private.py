"""Folders and files that belong to one user: where they lie, and whether somebody else could change them."""

import os
import secrets
import sys
import tempfile
from pathlib import Path

KEY_BYTES = 32


def cache_folder() -> Path:
    """The folder for files that can be made again, such as `~/.cache/qpde`."""
    return _user_folder("XDG_CACHE_HOME", ".cache", "Library/Caches") / "qpde"


def state_folder() -> Path:
    """The folder for files that cannot be made again, such as `~/.local/state/qpde`."""
    return _user_folder("XDG_STATE_HOME", ".local/state", "Library/Application Support") / "qpde"


def _user_folder(variable: str, linux: str, macos: str) -> Path:
    chosen = Path(os.environ.get(variable, ""))
    if chosen.is_absolute():  # the XDG standard says to disregard any other path
        return chosen
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"])
    try:
        home = Path.home()
    except RuntimeError:
        raise OSError(f"This user has no home folder, and {variable} is not set.") from None
    return home / (macos if sys.platform == "darwin" else linux)


def private_folder(path: Path) -> Path:
    """The true path of a folder that nobody else can write to; it is made with mode 0700 if it is missing.

    Raises `OSError` where the folder cannot be made, belongs to another user or is writable by others.
    Symlinks are followed once, and the folder at their end is the one that is examined.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = path.resolve(strict=True)
        _check_owner(path, folder.stat(), forbidden=0o022, cure="chmod go-w")
    except OSError as error:
        raise _explained(error, path) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise OSError(f"Cannot write to {path}: Permission denied.")
    return folder


def secret_key(folder: Path) -> bytes:
    """The 32 random bytes in the file `cache.key` of a folder; the first call of all processes makes them."""
    path = private_folder(folder) / "cache.key"
    try:
        if not path.exists():
            _make_key(path)
        with path.open("rb") as file:
            _check_owner(path, os.fstat(file.fileno()), forbidden=0o077, cure="chmod 600")
            key = file.read()
    except OSError as error:
        raise _explained(error, path) from None
    if len(key) != KEY_BYTES:
        raise OSError(f"{path} is damaged: {len(key)} bytes in place of {KEY_BYTES}. Delete it.")
    return key


def _make_key(path: Path) -> None:
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=".key.")  # mkstemp sets mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        # A rename would replace the key that another process may have made meanwhile; a link does not.
        os.link(draft, path)
    except FileExistsError:
        pass  # the other process was first, and both read its key
    finally:
        os.unlink(draft)


def _check_owner(path: Path, found: os.stat_result, *, forbidden: int, cure: str) -> None:
    """Raise `OSError` if a file or folder is another user's, or if its mode has forbidden bits.

    Windows has neither; there the folders of a user's profile are closed to other users.
    """
    if sys.platform == "win32":
        return
    if found.st_uid != os.geteuid():
        raise OSError(f"{path} belongs to another user (number {found.st_uid}).")
    if found.st_mode & forbidden:
        raise OSError(f"{path} is open to other users (mode {found.st_mode & 0o777:04o}); {cure}.")


def _explained(error: OSError, path: Path) -> OSError:
    """An error of the system as a sentence; our own errors have no number and are sentences already."""
    return error if error.errno is None else OSError(f"Cannot write to {path}: {error.strerror}.")
