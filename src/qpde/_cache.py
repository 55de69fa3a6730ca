"""Compiled programs on disk, so that a second process need not compile again."""

import os
from pathlib import Path

import jax


def cache_compilations(folder: str | os.PathLike[str]) -> None:
    """Keep compiled programs in a folder from now on; off by default.

        >>> cache_compilations("~/.cache/qpde")

    This sets JAX's own persistent cache for the whole process, small programs included. Results have the
    same bits. The folder may be deleted at any time; it belongs to one version of JAX and one kind of
    machine, and others do not use what they find there.
    """
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"Cannot write to {path}: {error.strerror}.") from None
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
