"""`run.json`: what was asked, by which versions, and the numbers of the result once they are known."""

import dataclasses
import hashlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from .._files.damage import COUNT, NUMBER, RUN_ID, SHA256, DamagedFile, Fits
from .._files.document import read_document, write_document
from .spec import Spec

RUN = "run.json"
_PACKAGES = ("qpde", "jax", "jaxlib", "equinox", "optax", "numpy")
_SPEC = {
    "problem": str,
    "dim": (COUNT, None),
    "settings": {"*": NUMBER},
    "preset": (str, None),
    "rule": (str, None),
    "steps": (COUNT, None),
    "budget": (NUMBER, None),
    "seed": COUNT,
    "precision": (str, None),
    "accuracy?": (NUMBER, None),
}
_RESULT = Fits(
    "the numbers of a run",
    lambda v: (
        isinstance(v, dict)
        and isinstance(v.get("status"), str)
        and isinstance(v.get("seconds"), int | float)
        and isinstance(v.get("verdict"), str | None)
        and isinstance(v.get("verdict_advice", ""), str)
    ),
)
_OLD = {
    "spec": _SPEC,
    "versions": {"*": str},
    "python": str,
    "result": (_RESULT, None),
}
_SCHEMA = _OLD | {
    "run": RUN_ID,
    "source": ({"*": SHA256}, None),
    "files": {"*": SHA256},
}


@dataclasses.dataclass(frozen=True)
class Record:
    """The content of `run.json`.

    `source` are the Python files of the problem with their SHA-256, None for a problem of the zoo; `files`
    those of the run folder that hold no digest of their own. `run_id` is None in format 1.
    """

    spec: Spec
    run_id: str | None
    source: dict[str, str] | None = None
    result: dict[str, Any] | None = None
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(
        default_factory=lambda: {name: importlib.metadata.version(name) for name in _PACKAGES}
    )
    python: str = dataclasses.field(default_factory=platform.python_version)


def write_record(folder: Path, record: Record) -> None:
    """Write `run.json` into a run folder; the path of the problem's file becomes relative to it."""
    plain = dataclasses.asdict(record)
    plain["spec"] = dataclasses.asdict(record.spec.relative_to(folder))
    plain["run"] = plain.pop("run_id")
    if record.result is not None:
        plain["result"] = record.result | {"run": "."}  # a folder that is sent on lies elsewhere
    write_document(folder / RUN, plain)


def read_record(folder: Path) -> Record:
    """The content of `run.json`, as `write_record` wrote it; the problem's file by a path that works here."""
    path = folder / RUN
    if not path.is_file():
        raise ValueError(f"{folder} is not a run folder: it has no {RUN}.")
    plain = read_document(path, _SCHEMA, _OLD)
    result = plain["result"]
    return Record(
        spec=Spec(**plain["spec"]).located(folder),
        run_id=plain.get("run"),
        source=plain.get("source"),
        result=None if result is None else result | {"run": str(folder)},
        files=plain.get("files", {}),
        versions=plain["versions"],
        python=plain["python"],
    )


def check_same_run(path: Path, found: str | None, folder: Path) -> None:
    """Raise `DamagedFile` where a file in a run folder carries the id of another run than `run.json`."""
    if not (folder / RUN).is_file():
        return
    expected = read_record(folder).run_id
    if None not in (found, expected) and found != expected:
        raise DamagedFile(path, f": it belongs to another run than {folder / RUN}.")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
