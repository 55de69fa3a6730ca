"""Compiled programs on disk, so that a second process need not compile again."""

import hashlib
import itertools
import os
import platform
import sys
from pathlib import Path
from typing import Any

import jax
from jaxlib.version import __version__ as JAXLIB_VERSION  # noqa: N812

from .._arguments import MOST, shown, whole
from .private import cache_folder, private_folder, secret_key, state_folder
from .programs import ProgramStore

# Raised when a store must not read the entries of the last one.
FORMAT = 1
LIMIT = 512 * 2**20
PACKAGE = Path(__file__).parents[1]
CPUINFO = Path("/proc/cpuinfo")  # Linux only


def cache_compilations(folder: str | os.PathLike[str] | None = None, *, limit: int = LIMIT) -> None:
    """Keep compiled programs in a folder from now on, for the whole process; off by default.

        >>> cache_compilations()
        >>> cache_compilations("~/scratch/programs", limit=2**30)

    Without a folder it is the user's cache folder (`$XDG_CACHE_HOME/qpde`, `~/.cache/qpde`, on macOS
    `~/Library/Caches/qpde`). The programs of all versions together take at most `limit` bytes; those that
    nobody used for longest go. The folder may be deleted at any time. Results have the same bits.

    A program is read only by the versions of JAX, jaxlib, Python (3.11, not 3.11.2) and qpde that wrote it,
    by the very source files of qpde that wrote it, and on the same kind of machine. It is read only if its
    signature is right, an HMAC under a random key in the user's state folder (`~/.local/state/qpde`): an
    entry that is damaged, cut short, edited, renamed or copied in from another user is compiled again. This
    does not protect from someone who can read the key, because they already act as this user.

    Raises `OSError` if the folder cannot be written to, belongs to another user or is writable by others,
    and `RuntimeError` if this version of JAX takes no cache that checks its entries; then nothing changes.
    JAX's own setting `jax_compilation_cache_dir`, which reads entries without a check, is switched off.
    """
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise ValueError(f"folder must be a path, got {shown(folder)}.")
    if whole("`limit`", limit, least=-MOST, most=2**63) <= 0:
        raise ValueError(f"`limit` is a positive number of bytes, got {limit}.")
    path = private_folder(cache_folder() if folder is None else Path(folder).expanduser())
    secret = secret_key(state_folder())
    _install(ProgramStore(path, _build(secret), secret, limit))


def _install(store: ProgramStore) -> None:
    """Hand a store to JAX.

    With `jax_compilation_cache_dir` unset, JAX has no cache whenever it forgets the store: what fails here
    or in a later version of JAX leads to compilation, never to entries that nobody checked.
    """
    place = _place()
    jax.config.update("jax_compilation_cache_dir", None)
    # Small programs too: a run has dozens, and reading one is several times quicker than compiling it.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    place.reset_cache()
    place._cache = store
    place._cache_initialized = True


def _place() -> Any:
    """The module of JAX that holds its cache. It is private, because JAX has no public place for another."""
    names = ("_cache", "_cache_initialized", "_get_cache", "reset_cache")
    try:
        from jax._src import compilation_cache
        from jax._src.compilation_cache_interface import CacheInterface

        fits = CacheInterface.__abstractmethods__ == {"get", "put"}
    except (ImportError, AttributeError):
        fits, compilation_cache = False, None
    if not fits or not all(hasattr(compilation_cache, name) for name in names):
        raise RuntimeError(f"JAX {jax.__version__} takes no cache that checks its entries.")
    return compilation_cache


def _build(secret: bytes) -> str:
    """A digest of all that a program's bytes may depend on beside the program itself.

    The key is among them: entries under a lost key are not altered entries, and age in a folder of their own.
    """
    python = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
    parts = (
        FORMAT,
        jax.__version__,
        JAXLIB_VERSION,
        python,
        *_machine(CPUINFO),
        _source(PACKAGE),
    )
    text = "\n".join(map(str, parts))
    return hashlib.sha256(text.encode() + hashlib.sha256(secret).digest()).hexdigest()[:32]


def _source(package: Path) -> str:
    """A digest of all source files: development installs change without a version, which is in them too."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()


def _machine(cpuinfo: Path) -> list[str]:
    """The system and the processor, with its instruction sets: home folders are shared between machines."""
    found = [platform.system(), platform.machine(), os.environ.get("PROCESSOR_IDENTIFIER", "")]
    if sys.platform == "darwin":
        found.append(platform.version())  # names the chip, as in RELEASE_ARM64_T6000
    if cpuinfo.exists():
        names = ("vendor_id", "cpu family", "model", "model name", "flags", "Features", "isa")
        with cpuinfo.open() as file:
            # As far as the first empty line, the end of the first core; the others are like it.
            for name, _, value in (
                line.partition(":") for line in itertools.takewhile(str.strip, file)
            ):
                if name.strip() in names or name.startswith("CPU "):  # the second kind is Arm's
                    found.append(f"{name.strip()}: {value.strip()}")
    return found
