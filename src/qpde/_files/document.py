"""Documents: JSON files for people and programs, with a digest of their content and the id of their run."""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

from .damage import DamagedFile, Misfit, check_schema, parse_json
from .whole import read_bytes, write_text

FORMAT = 2


def write_document(path: Path, content: dict[str, Any]) -> None:
    """Write plain values as JSON, with the format and the digest beside them."""
    whole = {**content, "format": FORMAT}
    write_text(path, json.dumps(whole | {"sha256": _digest(whole)}, indent=2) + "\n")


def read_document(path: Path, schema: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """The plain values that `write_document` wrote, of a given schema.

    A document without a format is of format 1, which has the schema `old` and no digest; a note says so.
    """
    data = read_bytes(path)
    try:
        content = parse_json(data)
        if not isinstance(content, dict):
            raise Misfit("it is not an object")
        if "format" not in content:
            check_schema(content, old, "it")
            note = f"{path} has the old format 1, without a checksum. Changes would not be noticed."
            warnings.warn(note, stacklevel=3)
            return content
        form, digest = content.pop("format"), content.pop("sha256", None)
        if type(form) is not int or form < 2:
            raise Misfit("its format is no number from 2 up")
        if form > FORMAT:
            raise ValueError(
                f"{path} was written by a newer qpde (format {form}, this one reads up to {FORMAT}). "
                "Upgrade qpde to read it."
            )
        if digest != _digest(content | {"format": form}):
            raise Misfit("its content does not match its checksum")
        check_schema(content, schema, "it")
    except Misfit as error:
        raise DamagedFile(path, f" or not ours ({error}).") from None
    return content


def _digest(content: dict[str, Any]) -> str:
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()
