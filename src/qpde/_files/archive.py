"""Files in one piece: named arrays with a JSON header, checked when they are read.

The container is safetensors; nothing in it is ever executed. A file is written beside its final place
and then renamed, so a reader sees the old content or the new, never half of it.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

# Raised when a reader of the last format could not read the new one.
FORMAT = 1


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file in one piece; a failed attempt leaves the old file as it was."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.umask(mask := os.umask(0))
            os.chmod(name, 0o666 & ~mask)  # mkstemp makes files that nobody else can read
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as error:
        raise OSError(f"Cannot write {path}: {error.strerror}.") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file in one piece."""
    write_bytes(path, text.encode())


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed writer left beside the files of a folder."""
    for stray in (*folder.glob(".*.safetensors.*"), *folder.glob(".*.json.*")):
        stray.unlink(missing_ok=True)


Groups = dict[str, dict[str, np.ndarray]]


def write_archive(path: Path, kind: str, header: dict[str, Any], groups: Groups) -> None:
    """Write groups of named arrays and a header of plain values. `kind` says what the file is."""
    # In C order: safetensors writes the memory of an array, whatever its strides say.
    arrays = {
        f"{group}/{name}": np.asarray(array, order="C")
        for group, members in groups.items()
        for name, array in members.items()
    }
    text = json.dumps(header)
    metadata = {
        "qpde": kind,
        "format": str(FORMAT),
        "header": text,
        "sha256": _checksum(text, arrays),
    }
    write_bytes(path, save(arrays, metadata))


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], Groups]:
    """The header and the groups of arrays of a file, or a `ValueError` that says what it is instead."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged, cut short or not a safetensors file ({error})."
        ) from None
    if "qpde" not in metadata:
        raise ValueError(f"{path} is a safetensors file, but it was not written by qpde.")
    if int(metadata["format"]) > FORMAT:
        raise ValueError(
            f"{path} was written by a newer qpde (format {metadata['format']}, this one reads up to "
            f"{FORMAT}). Upgrade qpde to read it."
        )
    if metadata["qpde"] != kind:
        raise ValueError(f"{path} is a qpde {metadata['qpde']}, not a {kind}.")
    if metadata["sha256"] != _checksum(metadata["header"], arrays):
        raise ValueError(f"{path} is damaged: its content does not match its checksum.")
    groups: Groups = {}
    for name, array in arrays.items():
        group, _, rest = name.partition("/")
        groups.setdefault(group, {})[rest] = array
    return json.loads(metadata["header"]), groups


def _checksum(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree under the names of their places."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    return {name: _plain(leaf) for name, leaf in named.items() if _is_array(leaf)}


def with_arrays(tree: Any, arrays: dict[str, np.ndarray], what: str) -> Any:
    """The tree with its arrays replaced by those of a file; `what` is named where they do not fit."""
    expected = arrays_of(tree)
    for name in sorted(expected.keys() | arrays.keys()):
        here, there = expected.get(name), arrays.get(name)
        if here is None or there is None or (here.shape, here.dtype) != (there.shape, there.dtype):
            raise ValueError(
                f"The file does not fit {what}: {name.lstrip('.')} is {_form(there)} in the file "
                f"and {_form(here)} here."
            )

    def restored(path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            return leaf
        found = arrays[jax.tree_util.keystr(path)]
        if isinstance(leaf, np.ndarray):
            return found
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.asarray(found), impl=jax.random.key_impl(leaf))
        return jnp.asarray(found)

    return jax.tree_util.tree_map_with_path(restored, tree)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


def _plain(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _form(array: np.ndarray | None) -> str:
    return "missing" if array is None else f"{array.dtype}{list(array.shape)}"
