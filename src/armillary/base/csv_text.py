"""Tables from other sources: the rows of CSV text, with an error that names the line of invalid CSV."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from armillary.base.allowed import limit
from armillary.base.counts import MOST_ROWS, check_count
from armillary.base.errors import InputError, nearest


class CsvRows(Iterator[list[str]]):
    """The rows of CSV text, one after the other, without spaces around their cells; `line` is that of the last one.

    Raises:
        InputError: a cell is longer than any is, there are too many rows, or the text is no CSV.
    """

    def __init__(
        self, path: str | os.PathLike[str], lines: Iterable[str], first: int = 1, **options: Any
    ) -> None:
        """Take the name for errors, the lines, the number of the first one, and the options of ``csv.reader``."""
        self._path, self._before = path, first - 1
        self._reader = csv.reader(lines, **options)
        self._most = limit(MOST_ROWS)

    @property
    def line(self) -> int:
        """Number of the last line that was read."""
        return self._before + self._reader.line_num

    def __next__(self) -> list[str]:
        """Return the cells of the next row."""
        if self._reader.line_num > self._most:
            check_count(self._reader.line_num, MOST_ROWS, f"{os.fspath(self._path)}: rows", "a shorter table")
        try:
            return [cell.strip() for cell in next(self._reader)]
        except csv.Error as error:
            raise InputError(f"{self._path}:{self.line}: {error}, expected a row of a table") from None

    def named(self, header: Iterable[str]) -> Iterator[dict[str, str]]:
        """Yield the rows with any value by the names of the columns.

        Raises:
            InputError: see `check_columns` and `check_width`.
        """
        names = list(header)
        check_columns(self._path, self.line, names)
        for row in self:
            if any(cell.strip() for cell in row):
                check_width(self._path, self.line, row, names)
                yield dict(zip(names, row, strict=False))


def check_columns(path: str | os.PathLike[str], line: int, header: Sequence[str]) -> None:
    """Check that no column has the name of another: which of the two counts would be a guess.

    Raises:
        InputError: two have one name.
    """
    names = [name.strip() for name in header]
    seen: set[str] = set()
    for name in names:
        if name and name in seen:
            raise InputError(f"{path}:{line}: column '{name}' is given twice, expected each once")
        seen.add(name)


def check_width(path: str | os.PathLike[str], line: int, row: Sequence[str], header: Sequence[str]) -> None:
    """Check that a row has a value for each column, as one more or less moves all after it to other columns.

    Raises:
        InputError: it has more or fewer; empty ones at its end are no values.
    """
    # Spreadsheets end rows with commas of columns that were deleted.
    if len(row) < len(header) or any(cell.strip() for cell in row[len(header) :]):
        raise InputError(f"{path}:{line}: {len(row)} values, expected {len(header)} as in the header")


def check_separator(path: str | os.PathLike[str], line: int, header: str, between: str = ",") -> None:
    """Check that what stands between the names of columns is `between`.

    Raises:
        InputError: it is another of comma, semicolon and tab.
    """
    if between in header:
        return
    shown = {",": "','", ";": "';'", "\t": "tabs"}
    for other, name in shown.items():
        if other in header:
            raise InputError(f"{path}:{line}: columns are separated by {name}, expected {shown[between]}")


def nearest_columns(header: Sequence[str], formats: Mapping[str, Sequence[str]]) -> str:
    """Return which of some formats (name -> its columns) has most columns of a header, and what lacks to it."""
    name = max(formats, key=lambda each: len({*formats[each]} & {*header}))
    missing = ", ".join(f"'{each}'{nearest(each, header)}" for each in formats[name] if each not in header)
    return f"the nearest is {name}, but there is no {missing}"


def number_in(text: str | None) -> float | None:
    """Return the number of a cell, None of what is none."""
    try:
        return float(text or "")
    except ValueError:
        return None
