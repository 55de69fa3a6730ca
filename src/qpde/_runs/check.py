"""What of a run folder is intact: every file is read and compared with its digest; no code is run."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path

from .._train.checkpoint import checkpoint_file, read_checkpoint
from .record import RUN, Record, digest_of, read_record
from .run_folder import CERTIFICATE, HISTORY, STAGES, read_certificates
from .store import SOLUTION, read_solution


@dataclasses.dataclass(frozen=True)
class FileState:
    """A file of a run folder: whether it is as it was written, and what is wrong where it is not."""

    name: str
    intact: bool
    words: str

    def __str__(self) -> str:
        return f"{self.name:<28}{self.words}"


def check_run(folder: Path) -> list[FileState]:
    """The states of the files of a run folder; files that a run need not have are left out where missing."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a run folder.")
    found = [_state(folder, RUN, lambda path: read_record(path.parent).run_id)]
    record = read_record(folder) if found[0].intact else None
    readers: dict[str, Callable[[Path], str | None]] = {
        SOLUTION: lambda path: read_solution(path)[0].get("run"),
        **{
            checkpoint_file(stage): lambda path: read_checkpoint(path)[0].get("run")
            for stage in STAGES
        },
        CERTIFICATE: lambda path: _certificates(path, record),
    }
    done = record is not None and record.result is not None
    for name, read in readers.items():
        needed = name == SOLUTION and done
        if needed or (folder / name).exists():
            found.append(_state(folder, name, read, record))
    for name, digest in ({} if record is None else record.files).items():
        there = folder / name if name == HISTORY else None  # no other name is ever noted
        if there is None or not there.is_file():
            found.append(FileState(name, False, "missing"))
        else:
            same = digest_of(there) == digest
            words = "intact" if same else "damaged: its content does not match its checksum."
            found.append(FileState(name, same, words))
    return found


def _certificates(path: Path, record: Record | None) -> str | None:
    if record is not None:
        read_certificates(path.parent)  # compares the id of the run itself
    return None


def _state(
    folder: Path,
    name: str,
    read: Callable[[Path], str | None],
    record: Record | None = None,
) -> FileState:
    path = folder / name
    if not path.is_file():
        return FileState(name, False, "missing")
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        try:
            run_id = read(path)
        except (ValueError, OSError) as error:
            return FileState(name, False, str(error).removeprefix(f"{path} is "))
    if record is not None and None not in (run_id, record.run_id) and run_id != record.run_id:
        return FileState(name, False, f"belongs to another run than {RUN}")
    return FileState(name, True, "intact, of the old format 1" if notes else "intact")
