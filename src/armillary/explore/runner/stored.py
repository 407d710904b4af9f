"""A store as readers see it: SQLite, at any time, also while a run writes to it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from armillary.base.errors import InputError
from armillary.explore.sweep.point import Row

APPLICATION = 0x41524D4C
"""SQLite's `application_id` of our stores: "ARML"."""
LAYOUT = 1
"""SQLite's `user_version`: version of the table layout."""


class Stored:
    """Reads a store.

    Tables ``sweeps`` (each sweep file that was run into it), ``points`` (what each of them asks for) and ``work``
    (what was evaluated, never changed or removed); view ``results``: points of the last sweep with a column for each
    value and measure.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a store for reading.

        Raises:
            InputError: there is none, or it is none.
        """
        self.path = Path(path)
        # SQLite would make an empty file.
        if not self.path.is_file():
            raise InputError(f"{self.path}: there is no such store")
        name = self.path.resolve().as_uri()
        try:
            # mode=ro also takes locks in a WAL store, so that it sees complete transactions.
            self._base = sqlite3.connect(f"{name}?mode=ro", uri=True, timeout=30)
            self._check()
        except sqlite3.OperationalError:  # a folder that cannot be written, where SQLite would put its index
            # immutable: no locks and no index file; safe only because nobody can write there.
            self._base = sqlite3.connect(f"{name}?immutable=1", uri=True)
            self._check()

    def _check(self) -> None:
        expected = "a store of sweeps (SQLite), or a new file"
        try:
            known = self._pragma("application_id"), self._pragma("user_version")
        except sqlite3.OperationalError:
            # A subclass of DatabaseError: locked or unreadable, which is not another kind of file.
            raise
        except sqlite3.DatabaseError:
            raise InputError(f"{self.path}: is another kind of file, expected {expected}") from None
        if known[0] != APPLICATION:
            raise InputError(f"{self.path}: is another database, expected {expected}")
        if known[1] != LAYOUT:
            raise InputError(
                f"{self.path}: has layout {known[1]} of another version, expected layout {LAYOUT}"
            )

    def _pragma(self, name: str) -> Any:
        return self._base.execute(f"PRAGMA {name}").fetchone()[0]

    def rows(self, sweep: int | None = None) -> list[Row]:
        """Return the rows of a sweep of this store, by default the last, in the order of its points.

        Points that are not done are not there.
        """
        return list(self._rows(self.last_sweep if sweep is None else sweep))

    def _rows(self, sweep: int) -> Iterator[Row]:
        # Work is only added: the newest row of the same work, max(id), counts.
        found = self._base.execute(
            """SELECT p.number, p.vals, p.point, w.status, w.reason, w.measures, w.seconds FROM points p
            JOIN work w ON w.id = (SELECT max(id) FROM work WHERE key = p.key AND rules = p.rules)
            WHERE p.sweep = ? ORDER BY p.number""",
            (sweep,),
        )
        # A generator over the cursor: rows are decoded as they are read.
        for number, values, point, status, reason, measures, seconds in found:
            yield Row(number, json.loads(values), point, status, reason, json.loads(measures), seconds)

    @property
    def last_sweep(self) -> int:
        """The number of the sweep that was run last; 0 if none was."""
        found = self._base.execute("SELECT value FROM meta WHERE name = 'last sweep'").fetchone()
        # 0 is the number of no sweep, so that `rows` finds nothing.
        return int(found[0]) if found else 0

    def document(self, sweep: int | None = None) -> dict[str, Any]:
        """Return the content of a sweep file of this store, by default the last."""
        number = self.last_sweep if sweep is None else sweep
        found = self._base.execute("SELECT document FROM sweeps WHERE id = ?", (number,)).fetchone()
        return dict(json.loads(found[0])) if found else {}

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
