"""A store as readers see it: SQLite, at any time, also while a run writes to it."""

from __future__ import annotations

import math
import re
import sqlite3
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.json_text import json_within
from armillary.base.reading import MOST_TEXT, check_size
from armillary.explore.runner.salvage import Salvaged, salvage, seal
from armillary.explore.sweep.point import MOST_NUMBER, Row, Status

APPLICATION = 0x41524D4C
"""SQLite's `application_id` of our stores: "ARML"."""
LAYOUT = 1
"""SQLite's `user_version`: version of the table layout."""
# Rows of work are only added: the newest of a key is the one with the largest id.
TABLES = f"""
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE sweeps(id INTEGER PRIMARY KEY, digest TEXT UNIQUE, path TEXT, document TEXT, study TEXT, version TEXT,
  started TEXT);
CREATE TABLE points(sweep INTEGER, number INTEGER, key TEXT, rules TEXT, point TEXT, vals TEXT, seal INTEGER,
  PRIMARY KEY(sweep, number)) WITHOUT ROWID;
CREATE TABLE work(id INTEGER PRIMARY KEY, key TEXT, rules TEXT, status TEXT, reason TEXT, measures TEXT,
  seconds REAL, limits TEXT, version TEXT, finished TEXT, seal INTEGER);
CREATE INDEX work_by_key ON work(key, rules);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {LAYOUT};
"""
_COMPUTES = re.compile(r"\b(as|check|generated|where)\b", re.IGNORECASE)
"""What tables and indexes with expressions have in their definition, and ours do not."""
_EXPRESSION = -2
"""In the place of the number of a column of an index."""
_EXPECTED = "a store of sweeps (SQLite), or a new file"


_NEEDED = {
    "meta": {"name", "value"},
    "sweeps": {"id", "document"},
    "points": {"sweep", "number", "key", "rules", "point", "vals"},
    "work": {
        "id",
        "key",
        "rules",
        "status",
        "reason",
        "measures",
        "seconds",
        "limits",
        "version",
        "finished",
    },
}
"""Columns of a store that are read; versions without checksums had no others."""


def connection(name: str | Path, **options: Any) -> sqlite3.Connection:
    """Connect to a database in which a text may be none: it is replaced, and its row does not fit its checksum."""
    base: sqlite3.Connection = sqlite3.connect(name, **options)
    base.text_factory = partial(str, encoding="utf-8", errors="replace")
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_TEXT)
    base.execute("PRAGMA trusted_schema = OFF")
    return base


def _computed(base: sqlite3.Connection) -> str:
    """Return what SQLite would compute when our tables are read or written to, as no store of ours has it.

    A view or a trigger of a stranger may never end.
    """
    rows = base.execute("SELECT type, name, lower(tbl_name), rootpage, coalesce(sql, '') FROM sqlite_master")
    for kind, name, table, page, text in rows.fetchall():
        if table not in _NEEDED:
            continue
        computes = kind in ("view", "trigger") or not page or bool(_COMPUTES.search(text))
        if kind == "index" and not computes:
            columns = base.execute("SELECT cid FROM pragma_index_xinfo(?)", (name,))
            computes = any(number == _EXPRESSION for (number,) in columns.fetchall())
        if computes:
            return f"{kind} {show(name)}"
    return ""


def fits(known: int | None, values: tuple[object, ...]) -> bool:
    """Tell whether the checksum of a row fits; older versions wrote none."""
    return known is None or known == seal(values)


def fill(base: sqlite3.Connection, found: Salvaged) -> None:
    """Make the tables of a store in an empty database, and put into them what is whole of another."""
    base.executescript(f"BEGIN;{TABLES}COMMIT;")
    base.execute("BEGIN")
    if found.last_sweep is not None:
        base.execute("INSERT INTO meta VALUES ('last sweep', ?)", (found.last_sweep,))
    for table, columns, rows in (
        ("sweeps", 7, ((number, *row) for number, row in found.sweeps.items())),
        ("points", 7, iter(found.points.values())),
        ("work", 11, ((number, *row) for number, row in sorted(found.work.items()))),
    ):
        # OR REPLACE: of rows that were changed, an older copy may have been found, too.
        base.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({','.join('?' * columns)})", rows)
    base.execute("COMMIT")


def counted(found: Salvaged) -> str:
    """Return in words what is whole of a store, and what is lost."""
    lost = f"at least {found.lost:,} are lost" if found.lost else "none is known to be lost"
    return f"{len(found.work):,} results are whole and kept, {lost}"


def say(warning: str) -> None:
    """Warn on standard error."""
    sys.stderr.write(f"warning: {warning}\n")


def _row(
    number: int, values: str, point: str, status: Status, reason: str, measures: str, seconds: float
) -> Row:
    """Return a row as it is stored.

    Raises:
        ValueError, TypeError: a stranger wrote what no run writes.
    """
    known, found = json_within(values), json_within(measures)
    if not isinstance(known, dict) or not isinstance(found, dict):
        raise TypeError("values or measures are no mapping")
    texts = (point, status, reason, *known, *found)
    numbers = (seconds, *found.values(), *(each for each in known.values() if isinstance(each, int | float)))
    if not all(isinstance(each, str) for each in texts) or status not in get_args(Status):
        raise TypeError("a text, or a status, is none")
    if not all(isinstance(each, int | float) and abs(each) < MOST_NUMBER for each in numbers):
        raise TypeError("a number is none")
    if any(isinstance(each, list | dict) for each in known.values()):
        raise TypeError("a value is none")
    return Row(number, known, point, status, reason, found, seconds)


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
        if not self.path.exists():
            raise InputError(f"{self.path}: there is no such store")
        try:
            check_size(self.path, math.inf)
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be read ({error.strerror}), expected a store of sweeps"
            ) from error
        name = self.path.resolve().as_uri()
        try:
            # mode=ro also takes locks in a WAL store, so that it sees complete transactions.
            self._base = connection(f"{name}?mode=ro", uri=True, timeout=30)
            problem = self._problem()
        except sqlite3.OperationalError:  # a folder that cannot be written, where SQLite would put its index
            # immutable: no locks and no index file; safe only because nobody can write there.
            self._base = connection(f"{name}?immutable=1", uri=True)
            try:
                problem = self._problem()
            except sqlite3.OperationalError as error:  # no lock, no index, and still unreadable
                problem = str(error)
        if problem:
            self._read_what_is_whole(problem)
        self._seals = "seal" in self._columns("points")

    def _problem(self) -> str:
        """Return what is wrong with a store that is damaged, or perhaps none at all; "" if it is whole.

        Raises:
            InputError: it is whole, but none of ours, or has another layout.
        """
        try:
            known = self._pragma("application_id"), self._pragma("user_version")
            # Before the integrity is checked: that computes, too.
            if found := _computed(self._base):
                raise InputError(f"{self.path}: SQLite would compute its {found}, expected {_EXPECTED}")
            wrong = self._pragma("integrity_check(1)")
        except sqlite3.OperationalError:
            # A subclass of DatabaseError: locked or unreadable, which is no damage.
            raise
        # SQLite's own message may quote what is no text.
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            return str(error)
        if wrong != "ok":
            return str(wrong).strip().splitlines()[-1]
        if known[0] != APPLICATION:
            raise InputError(f"{self.path}: is another database, expected {_EXPECTED}")
        if known[1] != LAYOUT:
            raise InputError(
                f"{self.path}: has layout {known[1]} of another version, expected layout {LAYOUT}"
            )
        sealed = {"seal"} & self._columns("points")
        needed = _NEEDED | {"work": _NEEDED["work"] | sealed}
        lacking = [name for name, columns in needed.items() if not columns <= self._columns(name)]
        return f"table {lacking[0]} lacks a column" if lacking else ""

    def _whole(self, problem: str) -> Salvaged:
        """Return what is whole of a damaged store.

        Raises:
            InputError: nothing of it is ours.
        """
        self._base.close()
        found = salvage(self.path)
        if not (found.work or found.sweeps or found.points):
            raise InputError(f"{self.path}: is another kind of file, expected {_EXPECTED}")
        return found

    def _read_what_is_whole(self, problem: str) -> None:
        found = self._whole(problem)
        self._base = connection(":memory:", isolation_level=None)
        fill(self._base, found)
        say(f"{self.path}: is damaged ({problem}): {counted(found)}; a sweep that is run into it mends it")

    def _columns(self, table: str) -> set[str]:
        return {name for _, name, *_ in self._base.execute(f"PRAGMA table_info({table})")}

    def _pragma(self, name: str) -> Any:
        return self._base.execute(f"PRAGMA {name}").fetchone()[0]

    def rows(self, sweep: int | None = None) -> list[Row]:
        """Return the rows of a sweep of this store, by default the last, in the order of its points.

        Points that are not done are not there.
        """
        return list(self._rows(self.last_sweep if sweep is None else sweep))

    def _rows(self, sweep: int) -> Iterator[Row]:
        # Work is only added: the newest row of the same work, max(id), counts.
        seals = "w.key, w.rules, w.limits, w.version, w.finished, w.seal, p.seal" if self._seals else ""
        found = self._base.execute(
            f"""SELECT p.number, p.vals, p.point, w.status, w.reason, w.measures, w.seconds
            {"," * self._seals}{seals} FROM points p
            JOIN work w ON w.id = (SELECT max(id) FROM work WHERE key = p.key AND rules = p.rules)
            WHERE p.sweep = ? ORDER BY p.number""",
            (sweep,),
        )
        damaged = 0
        # A generator over the cursor: rows are decoded as they are read.
        for number, values, point, status, reason, measures, seconds, *sealed in found:
            if sealed:
                key, rules, limits, version, finished, of_work, of_point = sealed
                work = key, rules, status, reason, measures, seconds, limits, version, finished
                if not (fits(of_work, work) and fits(of_point, (sweep, number, key, rules, point, values))):
                    damaged += 1
                    continue
            try:
                row = _row(number, values, point, status, reason, measures, seconds)
            except (ValueError, TypeError):
                damaged += 1
                continue
            yield row
        if damaged:
            say(
                f"{self.path}: {damaged} rows are damaged and left out; a sweep that is run into it does them again"
            )

    @property
    def last_sweep(self) -> int:
        """The number of the sweep that was run last; 0 if none was."""
        found = self._base.execute("SELECT value FROM meta WHERE name = 'last sweep'").fetchone()
        # 0 is the number of no sweep, so that `rows` finds nothing.
        return int(found[0]) if found and str(found[0]).isdecimal() and len(str(found[0])) < 19 else 0

    def document(self, sweep: int | None = None) -> dict[str, Any]:
        """Return the content of a sweep file of this store, by default the last."""
        number = self.last_sweep if sweep is None else sweep
        found = self._base.execute("SELECT document FROM sweeps WHERE id = ?", (number,)).fetchone()
        try:
            document = json_within(found[0]) if found else {}
        except (ValueError, TypeError):
            return {}
        return document if isinstance(document, dict) else {}

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
