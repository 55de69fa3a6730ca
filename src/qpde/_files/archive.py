"""Archives: named arrays with a JSON header in one file, checked to the last byte when it is read.

The container is safetensors; nothing in it is ever executed. Format 2 holds one SHA-256 of the whole file,
taken with zeros in its own place: names, kinds, shapes, header and arrays are all under it. Files of
format 1, whose checksum left out kinds and shapes, are read with a note.
"""

import hashlib
import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from .damage import ANYTHING, COUNT, DamagedFile, Misfit, check_schema, parse_json
from .whole import read_bytes, write_bytes

# Raised when a reader of the last format could not read the new one.
FORMAT = 2
_BLANK = "0" * 64
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_KINDS = {
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    "BOOL": np.dtype(bool),
    "BF16": np.dtype(jnp.bfloat16),
}
_ENTRY = {"dtype": str, "shape": [COUNT], "data_offsets": [COUNT]}
_METADATA = {"qpde": str, "format": str, "header": str, "sha256": str}

Groups = dict[str, dict[str, np.ndarray]]


def write_archive(path: Path, kind: str, header: dict[str, Any], groups: Groups) -> None:
    """Write groups of named arrays and a header of plain values. `kind` says what the file is."""
    write_bytes(path, archive_bytes(kind, header, groups))


def archive_bytes(kind: str, header: dict[str, Any], groups: Groups) -> bytes:
    """The content of an archive."""
    # In C order: safetensors writes the memory of an array, whatever its strides say.
    arrays = {
        f"{group}/{name}": np.asarray(array, order="C")
        for group, members in groups.items()
        for name, array in members.items()
    }
    metadata = {"qpde": kind, "format": str(FORMAT), "header": json.dumps(header)}
    return sealed(save(arrays, metadata | {"sha256": _BLANK}))


def sealed(data: bytes) -> bytes:
    """The content of an archive with the digest of what it is otherwise."""
    blank = _blanked(data)
    return blank.replace(
        f'"sha256":"{_BLANK}"'.encode(),
        f'"sha256":"{hashlib.sha256(blank).hexdigest()}"'.encode(),
        1,
    )


def _blanked(data: bytes) -> bytes:
    """The content with zeros in the place of the digest; raises `Misfit` unless there is one such place."""
    end = 8 + int.from_bytes(data[:8], "little")
    found = list(_DIGEST.finditer(data, 8, end))
    if len(found) != 1:
        raise Misfit("its digest is missing")
    start, stop = found[0].span(1)
    return data[:start] + _BLANK.encode() + data[stop:]


def read_archive(
    path: Path, kind: str, schema: Any = ANYTHING, old: Any = ANYTHING
) -> tuple[dict[str, Any], Groups]:
    """The header and the groups of arrays of a file, or a `ValueError` that says what it is instead.

    The header must fit the schema; in files of format 1, the schema `old`.
    """
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    data = read_bytes(path)
    try:
        metadata, arrays = _parsed(data)
    except Misfit as error:
        raise DamagedFile(path, f", cut short or not a safetensors file ({error}).") from None
    if "qpde" not in metadata:
        raise ValueError(f"{path} is a safetensors file, but it was not written by qpde.")
    form = _format_of(metadata, path)
    try:
        check_schema(metadata, _METADATA, "metadata")
        right = _blanked_digest(data) if form == 2 else _old_checksum(metadata["header"], arrays)
    except Misfit as error:
        raise DamagedFile(path, f": {error}.") from None
    if metadata["sha256"] != right:
        raise DamagedFile(path, ": its content does not match its checksum.")
    if metadata["qpde"] != kind:
        raise ValueError(f"{path} is a qpde {metadata['qpde']}, not a {kind}.")
    try:
        header = parse_json(metadata["header"])
        check_schema(header, {"*": ANYTHING}, "header")
        check_schema(header, schema if form == 2 else old, "header")
    except Misfit as error:
        raise DamagedFile(path, f": {error}.") from None
    if form == 1:
        warnings.warn(
            f"{path} has the old format 1, whose checksum covers less. Save it again to renew it.",
            stacklevel=2,
        )
    return header, _grouped(arrays)


def _format_of(metadata: dict[str, str], path: Path) -> int:
    text = metadata.get("format", "")
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise DamagedFile(path, ": its format is no number.")
    if int(text) > FORMAT:
        raise ValueError(
            f"{path} was written by a newer qpde (format {text}, this one reads up to {FORMAT}). "
            "Upgrade qpde to read it."
        )
    return int(text)


def _parsed(data: bytes) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Metadata and arrays of a safetensors file; every byte of the data belongs to one array."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise Misfit("its header is incomplete")
    head = parse_json(data[8 : 8 + size])
    check_schema(head, {"*": ANYTHING}, "header")
    metadata = head.pop("__metadata__", {})
    check_schema(metadata, {"*": str}, "metadata")
    check_schema(head, {"*": _ENTRY}, "array")
    arrays, place, content = {}, 0, data[8 + size :]
    for name, entry in sorted(head.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = _KINDS.get(entry["dtype"]), entry["shape"]
        if dtype is None or len(shape) > 32:
            raise Misfit("an array is of an unknown kind")
        end = place + math.prod(shape) * dtype.itemsize
        if entry["data_offsets"] != [place, end] or end > len(content):
            raise Misfit("its arrays are incomplete")
        arrays[name] = np.frombuffer(content[place:end], dtype).reshape(shape).copy()
        place = end
    if place != len(content):
        raise Misfit("its arrays are incomplete")
    return metadata, arrays


def _grouped(arrays: dict[str, np.ndarray]) -> Groups:
    groups: Groups = {}
    for name, array in arrays.items():
        group, _, rest = name.partition("/")
        groups.setdefault(group, {})[rest] = array
    return groups


def _blanked_digest(data: bytes) -> str:
    return hashlib.sha256(_blanked(data)).hexdigest()


def _old_checksum(text: str, arrays: dict[str, np.ndarray]) -> str:
    """The checksum of format 1."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def check_groups(groups: Groups, expected: dict[str, Any]) -> None:
    """Raise `Misfit` unless the groups are those expected.

    `expected` maps a group to a dict from names to `(kind, number of axes)`, or to None for any arrays.
    """
    if groups.keys() - expected.keys() or {k for k, v in expected.items() if v} - groups.keys():
        raise Misfit("it has other groups of arrays")
    for group, entries in expected.items():
        if entries is None:
            continue
        if groups[group].keys() != entries.keys():
            raise Misfit(f"the group {group!r} has other arrays")
        for name, (kind, axes) in entries.items():
            array = groups[group][name]
            if array.dtype.kind not in kind or array.ndim != axes:
                raise Misfit(f"{group}/{name} is {_form(array)}")


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
