"""Read tables of a SQLite file of others: no views, no functions, nothing but rows of tables, and only so many."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.reading import MOST_FILE, MOST_TEXT, check_size, open_file

MOST_ROWS = 10_000_000
"""Rows of all tables that are read, some 300 bytes each."""
_MOST_OF_ROW = 1 << 24
_MAGIC = b"SQLite format 3\0"
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_LARGEST = 2**62
# SQLite quotes names of a damaged file as they are.
_DAMAGE = (sqlite3.Error, UnicodeDecodeError)

Row = tuple[Any, ...]


class Database:
    """Tables of a file, which is neither changed nor trusted."""

    def __init__(self, path: Path) -> None:
        """Open a file.

        Raises:
            InputError: it is no SQLite database, damaged, or too large.
        """
        self.path = path
        self._rows = self._characters = 0
        check_size(path, MOST_FILE)
        descriptor = open_file(path)
        try:
            head = os.read(descriptor, len(_MAGIC))
        finally:
            os.close(descriptor)
        if head != _MAGIC:
            raise InputError(
                f"{path}: is no SQLite database, expected what `nsys export --type sqlite` writes"
            )
        # Immutable: neither a lock nor a journal beside the file.
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(uri, uri=True)
        self._connection.text_factory = lambda data: data.decode("utf-8", "replace")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_OF_ROW)
        try:
            self._connection.execute("PRAGMA trusted_schema=OFF")
            self._connection.execute("PRAGMA cell_size_check=ON")
            # What has no page of its own is a view, or a table that code of SQLite computes.
            found = self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
            )
            self.tables = frozenset(str(name) for (name,) in found.fetchmany(10_000))
        except _DAMAGE as error:
            self._connection.close()
            raise self._damaged(error) from error

    def __enter__(self) -> Database:
        """Return the database."""
        return self

    def __exit__(self, *about: object) -> None:
        """Close it."""
        self._connection.close()

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns of a table; none if there is no such table."""
        if table not in self.tables:
            return frozenset()
        try:
            found = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            return frozenset(str(name) for (name,) in found.fetchmany(10_000))
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def rows(self, table: str, numbers: Sequence[str], texts: Sequence[str] = ()) -> Iterator[Row]:
        """Yield some columns of each row, numbers first; None where a table has no such column or value.

        Raises:
            InputError: the file is damaged, has too many rows or texts, or a value is of another kind.
        """
        there = self.columns(table)
        if not there:
            return
        wanted = [*numbers, *texts]
        names = ", ".join(f'"{name}"' if name in there else "NULL" for name in wanted)
        quoted = table.replace('"', '""')
        most, most_text = limit(MOST_ROWS), limit(MOST_TEXT)
        # Set for this query alone: to ask for the columns takes a function.
        self._connection.set_authorizer(_authorize)
        try:
            with closing(self._connection.execute(f'SELECT {names} FROM "{quoted}"')) as found:
                for number, row in enumerate(found, 1):
                    self._rows += 1
                    if self._rows > most:
                        self._too_many("rows", self._rows, most)
                    for name, value in zip(wanted, row, strict=True):
                        if isinstance(value, str) and name in texts:
                            self._characters += len(value)
                        elif value is not None and not (
                            type(value) is int
                            and name in numbers
                            # Numbers of processes and threads take all 64 bits.
                            and (-_LARGEST < value < _LARGEST or name.startswith("global"))
                        ):
                            expected = (
                                "a whole number between -2**62 and 2**62" if name in numbers else "a text"
                            )
                            raise InputError(
                                f"{self.path}: {table}, row {number}: {name}: got {show(value)}, expected {expected}"
                            )
                    if self._characters > most_text:
                        self._too_many("characters", self._characters, most_text)
                    yield row
        except _DAMAGE as error:
            raise self._damaged(error) from error
        finally:
            self._connection.set_authorizer(None)

    def _too_many(self, what: str, count: int, most: float) -> None:
        raise InputError(
            f"{self.path}: has more than {most:,.0f} {what} of events, expected fewer ({how_to_raise(count / most)})"
        )

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self.path}: cannot be read as a SQLite database: {str(error)[:200]}")


def _authorize(action: int, one: str | None, two: str | None, base: str | None, view: str | None) -> int:
    # A view that took the name of a table would read through its own name.
    return sqlite3.SQLITE_OK if action in _ALLOWED and view is None else sqlite3.SQLITE_DENY
