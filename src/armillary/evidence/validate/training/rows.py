"""Rows of CSV files, plain or gzipped, with comments before the header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from armillary.base.csv_text import CsvRows, number_in
from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.evidence.calibrate.samples import measured_text

MOST_ROWS = 100_000
"""Rows of a file, at most: each of them is simulated."""


def read_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of the line and the values of each row; lines of # before the header are comments.

    Raises:
        InputError: the file cannot be read, its header lacks a column or has one twice, or a row has more or fewer.
    """
    text = measured_text(path)
    lines = text.splitlines()
    for start, line in enumerate(lines):
        # A comment may contain commas; the header is found by its columns.
        header = _cells(path, start + 1, line)
        if set(columns) <= set(header):
            break
        if not line.startswith("#"):
            lacking = [name for name in columns if name not in header]
            raise InputError(f"{path}:{start + 1}: no column '{lacking[0]}', expected {', '.join(columns)}")
    else:
        # No line had the columns.
        raise InputError(f"{path}: no header, expected the columns {', '.join(columns)}")
    rows = CsvRows(path, lines[start + 1 :], start + 2)
    for at, row in enumerate(rows.named(header)):
        if at == MOST_ROWS:
            raise InputError(f"{path}:{rows.line}: more than {MOST_ROWS:,} rows, expected fewer")
        yield rows.line, row


def _cells(path: Path, line: int, text: str) -> list[str]:
    return next(CsvRows(path, [text], line), [])


def number(path: Path, line: int, row: dict[str, str], column: str, *, least: float = 0) -> float:
    """Return a value of a row above `least`.

    Raises:
        InputError: it is none.
    """
    found = number_in(row[column])
    # NaN fails the comparison, too.
    if found is None or not least < found < inf:
        raise InputError(
            f"{path}:{line}: {column}: got {show(row[column])}, expected a number above {least:g}"
        )
    return found


def count(path: Path, line: int, row: dict[str, str], column: str) -> int:
    """Return a whole number of a row, at least 1.

    Raises:
        InputError: it is none.
    """
    found = number(path, line, row, column)
    if found != int(found) or found >= 2**53:
        raise InputError(
            f"{path}:{line}: {column}: got {show(row[column])}, expected a whole number below 2^53"
        )
    return int(found)
