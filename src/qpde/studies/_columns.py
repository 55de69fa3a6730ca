"""Tables of a study as columns by name, written as CSV and read again."""

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._files.whole import write_text

# Columns of one length by name: arrays of numbers, or lists of words.
Columns = dict[str, Any]


def from_rows(rows: Iterable[Mapping[str, Any]]) -> Columns:
    """The columns of a table that is given row by row; all rows have the same keys."""
    rows = list(rows)
    return {name: _column([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def write_columns(path: Path, columns: Columns) -> None:
    """Write a CSV file; numbers get seven digits, a NaN an empty cell."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(v) for v in row] for row in zip(*columns.values(), strict=True))
    write_text(path, buffer.getvalue())


def read_columns(path: Path) -> Columns:
    """Read a CSV file; a column of numbers becomes an array, an empty cell NaN."""
    header, *rows = csv.reader(path.read_text().splitlines())
    return {name: _parse([row[i] for row in rows]) for i, name in enumerate(header)}


def where(columns: Columns, **values: Any) -> Columns:
    """The rows that have the given values in the given columns."""
    keep = np.ones(len(next(iter(columns.values()))), bool)
    for name, value in values.items():
        keep &= np.asarray(columns[name]) == value
    return {name: np.asarray(column)[keep] for name, column in columns.items()}


def _column(values: list[Any]) -> Any:
    words = any(isinstance(value, str) for value in values)
    return values if words else np.asarray([np.nan if v is None else v for v in values], float)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if np.isnan(value) else f"{value:.7g}"


def _parse(cells: list[str]) -> Any:
    try:
        return np.asarray([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return np.asarray(cells)
