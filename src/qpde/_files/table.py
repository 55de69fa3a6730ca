"""Tables of points and values: CSV and NPY."""

import csv
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from .whole import write_bytes, write_text


def read_points(path: Path) -> np.ndarray:
    """Points of shape `(n, d)` from a CSV or NPY file."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    if path.suffix.lower() == ".npy":
        return _read_npy(path)
    if path.suffix.lower() != ".csv":
        raise ValueError(f"Points come as .csv or .npy, got {path.name}.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file.") from None
    rows = [(i, row) for i, row in enumerate(csv.reader(text.splitlines()), start=1) if any(row)]
    if rows and not any(
        _is_number(part) for cell in rows[0][1] for part in re.split(r"[;\s]", cell)
    ):
        rows = rows[1:]  # a header: not a number in it
    if not rows:
        raise ValueError(f"{path} holds no points.")
    width = len(rows[0][1])
    points = np.empty((len(rows), width))
    for target, (line, row) in zip(points, rows, strict=True):
        if len(row) != width:
            raise ValueError(
                f"{path}, line {line}: {len(row)} columns where the first point has {width}."
            )
        try:
            target[:] = [float(cell) for cell in row]
        except ValueError:
            raise ValueError(
                f"{path}, line {line}: not a row of numbers with commas between: {','.join(row)}"
            ) from None
    return points


def _read_npy(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is damaged or not an NPY file of numbers ({error}).") from None
    if not np.issubdtype(array.dtype, np.number) or np.iscomplexobj(array):
        raise ValueError(f"{path} holds {array.dtype}, not real numbers.")
    return array.astype(np.float64)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_table(columns: dict[str, Any], path: Path | None) -> None:
    """Write columns of equal length to a CSV or NPY file, or as CSV to standard output.

    Numbers are written with as many digits as it takes to read the same bits again.
    """
    if path is None:
        sys.stdout.write(_csv(columns))
    elif path.suffix == ".npy":
        table = np.stack(list(columns.values()), axis=-1)
        buffer = io.BytesIO()
        np.save(buffer, table[:, 0] if len(columns) == 1 else table)
        write_bytes(path, buffer.getvalue())
    elif path.suffix == ".csv":
        write_text(path, _csv(columns))
    else:
        raise ValueError(f"Values are written as .csv or .npy, got {path.name}.")


def _csv(columns: dict[str, Any]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows)]) + "\n"
