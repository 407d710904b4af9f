"""Tables from other sources: the rows of CSV text, with an error that names the line of invalid CSV."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from typing import Any

from armillary.base.errors import InputError


class CsvRows(Iterator[list[str]]):
    """The rows of CSV text, one after the other; `line` is the number of the last line that was read.

    Raises:
        InputError: a cell is longer than any is, or the text is no CSV.
    """

    def __init__(
        self, path: str | os.PathLike[str], lines: Iterable[str], first: int = 1, **options: Any
    ) -> None:
        """Take the name for errors, the lines, the number of the first one, and the options of ``csv.reader``."""
        self._path, self._before = path, first - 1
        self._reader = csv.reader(lines, **options)

    @property
    def line(self) -> int:
        """Number of the last line that was read."""
        return self._before + self._reader.line_num

    def __next__(self) -> list[str]:
        """Return the cells of the next row."""
        try:
            return next(self._reader)
        except csv.Error as error:
            raise InputError(f"{self._path}:{self.line}: {error}, expected a row of a table") from None

    def named(self, header: Iterable[str]) -> Iterator[dict[str, str]]:
        """Yield the rows that are not empty by the names of the columns; what a row lacks is an empty text."""
        names = list(header)
        for row in self:
            if row:
                yield dict(zip(names, (*row, *[""] * len(names)), strict=False))
