"""The store as the run sees it: rows are added, never changed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from armillary.base import VERSION
from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.json_text import json_within
from armillary.base.posix import needs_posix
from armillary.explore.runner.executor import CutShortError
from armillary.explore.runner.identity import Identity, sweep_digest
from armillary.explore.runner.salvage import seal
from armillary.explore.runner.stored import TABLES, Stored, connection, counted, fill, fits, say
from armillary.explore.sweep.measures import MEASURES
from armillary.explore.sweep.point import Point, Row, Status

if TYPE_CHECKING:
    from armillary.explore.sweep.sweep import Sweep


class WriterLock:
    """Holds FILE.lock until it is closed; the file names the holder."""

    def __init__(self, path: Path) -> None:
        """Take the lock of the store at `path`.

        Raises:
            InputError: another process writes to it (or this one, by another `Store`), or the folder cannot be written.
        """
        needs_posix("a sweep or search")
        import fcntl

        self._name = path.with_name(f"{path.name}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Again, if the file was removed between open and lock.
            while True:
                self._file = os.open(self._name, os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    # flock is released by the kernel when the process dies: no stale locks.
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    owner = os.pread(self._file, 1000, 0).decode(errors="replace").strip()
                    os.close(self._file)
                    raise InputError(
                        f"{path}: {owner or 'another process'} is writing to it, expected one writer at a time: "
                        "wait until it is done, stop it, or name another store"
                    ) from None
                if self._still_there():
                    break
                os.close(self._file)  # its last owner removed it between our two calls
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from error
        # For the error that another process gets; on a full disk it has to do without.
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]
        with suppress(OSError):
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()} ({command})".encode(), 0)

    def _still_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self._name.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Release the lock; the file is removed while it is still held."""
        # Unlink before close: who opens the file from now on makes a new one, and `_still_there` catches who
        # did before.
        with suppress(OSError):
            self._name.unlink(missing_ok=True)
        os.close(self._file)


_COLUMNS = "key, rules, status, reason, measures, seconds, limits, version, finished"


class Store(Stored):
    """Adds rows to a store, as the only process that does.

    Any sweep may be run into any store: work is known by what it depends on (`identity`), so what another sweep, or
    an older version of this one, has done is used where it is the same work, and not seen where it is not.
    A transaction is complete or not there, whenever the process is killed.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a store for writing, or make it.

        Raises:
            InputError: it is another kind of file, or another process writes to it.
            CutShortError: it cannot be written.
        """
        self.path = Path(path)
        if self.path.is_dir():
            raise InputError(f"{self.path}: is a folder, expected a file name")
        self._lock = WriterLock(self.path)
        try:
            self._open()
        except sqlite3.Error as error:
            self._lock.close()
            raise self._cut_short(error) from error
        except BaseException:
            self._lock.close()
            raise

    def _open(self) -> None:
        self._connect()
        if self._is_new():
            # In one transaction: a process that is killed here leaves an empty file and no half of a
            # layout.
            self._base.executescript(f"BEGIN;{TABLES}COMMIT;")
        if problem := self._problem():
            self._mend(problem)
        # WAL lets others read while this process writes.
        self._base.execute("PRAGMA journal_mode = WAL")
        # NORMAL: in WAL a crash of the machine may lose the last commits, but never corrupts the file.
        self._base.execute("PRAGMA synchronous = NORMAL")
        for table in ("points", "work"):
            # Earlier versions had no checksums. In front of everything that reads them.
            if "seal" not in self._columns(table):
                self._base.execute(f"ALTER TABLE {table} ADD COLUMN seal INTEGER")
        self._seals = True

    def _connect(self) -> None:
        # isolation_level None: transactions are explicit, see `_Transaction`.
        self._base = connection(self.path, timeout=30, isolation_level=None)

    def _is_new(self) -> bool:
        # Not a database: `_problem` says so.
        # A message about a damaged layout may hold bytes of the file that are no text.
        with suppress(sqlite3.DatabaseError, UnicodeDecodeError):
            return not self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return False

    def _mend(self, problem: str) -> None:
        """Put what is whole of a damaged store in its place, and keep the damaged one beside it."""
        found = self._whole(problem)
        names = (self.path.with_name(f"{self.path.name}.damaged{number or ''}") for number in count())
        beside = next(name for name in names if not os.path.lexists(name))
        # Links stay: what they lead to is mended.
        target = Path(os.path.realpath(self.path))
        with replacing(target) as temporary:
            with closing(sqlite3.connect(temporary, isolation_level=None)) as made:
                fill(made, found)
            shutil.copy2(target, beside)
            # A log that belongs to the damaged file would be read into the new one.
            for end in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    target.with_name(target.name + end).replace(beside.with_name(beside.name + end))
        say(f"{self.path}: was damaged ({problem}): {counted(found)}; the damaged file is now {beside}")
        self._connect()

    def _cut_short(self, error: sqlite3.Error) -> CutShortError:
        """Return what to tell of an error of SQLite."""
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL" or "IOERR" in name:
            said = (
                "no room is left on its disk"
                if name == "SQLITE_FULL"
                else "its disk does not take what is written"
            )
            return CutShortError(f"{self.path}: {said} ({error}); what was done before is kept")
        if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
            return CutShortError(
                f"{self.path}: was damaged meanwhile ({error}); the next run keeps what is whole"
            )
        return CutShortError(f"{self.path}: {error}, expected a store that can be written")

    def told(self, points: int) -> str:
        """Return how many points of the last sweep are done, of so many, and how to go on."""
        try:
            done = f"{len(self.rows()):,} of {points:,} points are done and kept in {self.path}"
        except sqlite3.Error:
            done = f"what was done before is kept in {self.path}"
        return f"{done}; the same command goes on from there"

    def begin(self, sweep: Sweep) -> int:
        """Note that a sweep is run, make ``results`` its view, and return its number in this store."""
        known = sweep_digest(sweep)
        document, study = (json.dumps(each, default=str) for each in (sweep.document.data, sweep.base.data))
        with self.transaction():
            self._base.execute(
                "INSERT OR IGNORE INTO sweeps(digest, path, document, study, version, started) VALUES (?,?,?,?,?,?)",
                (known, str(sweep.path or ""), document, study, VERSION, _now()),
            )
            number = int(self._base.execute("SELECT id FROM sweeps WHERE digest = ?", (known,)).fetchone()[0])
            self._base.execute("INSERT OR REPLACE INTO meta VALUES ('last sweep', ?)", (number,))
            # The view is made anew: it has a column per axis of this sweep.
            self._make_view(number, [axis.name for axis in sweep.space.axes])
        return number

    def _make_view(self, sweep: int, axes: list[str]) -> None:
        # An axis may be called like a fixed column; it then gets an underscore.
        taken = {"number", "status", "reason", "seconds", *MEASURES}
        chosen = (
            f"""json_extract(p.vals, '$.{name}') AS "{name}{"_" * (name in taken)}", """ for name in axes
        )
        measured = (f"""json_extract(w.measures, '$.{name}') AS "{name}", """ for name in MEASURES)
        self._base.execute("DROP VIEW IF EXISTS results")
        # The inner SELECT is the newest result of the same work, by whatever sweep.
        self._base.execute(
            f"""CREATE VIEW results AS SELECT p.number, {"".join(chosen)} w.status, w.reason, {"".join(measured)}
            w.seconds FROM points p
            JOIN work w ON w.id = (SELECT max(id) FROM work WHERE key = p.key AND rules = p.rules)
            WHERE p.sweep = {sweep}"""
        )

    def ask(self, sweep: int, points: Iterable[tuple[Point, Identity]]) -> None:
        """Note what a sweep asks for now: files that it names, or this program, may have changed."""
        rows = (
            (sweep, point.number, known.work, known.rules, point.key, json.dumps(dict(point.values)))
            for point, known in points
        )
        with self.transaction():
            # Rows that did not change are not written: resuming a large sweep asks for all of its points again.
            self._base.executemany(
                """INSERT INTO points(sweep, number, key, rules, point, vals, seal) VALUES (?,?,?,?,?,?,?)
                ON CONFLICT(sweep, number) DO UPDATE SET key = excluded.key, rules = excluded.rules,
                point = excluded.point, vals = excluded.vals, seal = excluded.seal
                WHERE seal IS NOT excluded.seal OR key != excluded.key OR rules != excluded.rules""",
                ((*row, seal(row)) for row in rows),
            )

    def done(self) -> dict[Identity, tuple[Status, str]]:
        """Return what was done: the status, and the limits under which it was."""
        done: dict[Identity, tuple[Status, str]] = {}
        damaged = 0
        # In order of id, so that later results replace earlier ones in the mapping.
        for known, *work in self._base.execute(f"SELECT seal, {_COLUMNS} FROM work ORDER BY id"):
            if fits(known, tuple(work)):
                key, rules, status, _, _, _, limits, *_ = work
                done[Identity(key, rules)] = (status, limits)
            else:
                damaged += 1
        if damaged:
            say(f"{self.path}: {damaged} rows of work are damaged; their points are done again")
        return done

    def kept(self, known: Identity) -> tuple[Status, str, dict[str, float]] | None:
        """Return status, reason and measures of the newest result of some work; None: there is none that is whole."""
        found = self._base.execute(
            f"SELECT seal, {_COLUMNS} FROM work WHERE key = ? AND rules = ? ORDER BY id DESC LIMIT 1", known
        ).fetchone()
        if found is None or not fits(found[0], tuple(found[1:])):
            return None
        _, _, _, status, reason, measures, *_ = found
        try:
            known_measures = json_within(measures)
        except ValueError:
            return None
        return (status, reason, known_measures) if isinstance(known_measures, dict) else None

    def add(self, rows: Iterable[tuple[Identity, Row]], limits: str = "") -> None:
        """Add results, all or none of them."""
        about = limits, VERSION, _now()
        values = (
            (
                *known,
                row.status,
                row.reason,
                # NaN and infinity are no JSON; `task.do` has turned such points into failures.
                json.dumps(dict(row.measures), allow_nan=False),
                float(row.seconds),
                *about,
            )
            for known, row in rows
        )
        with self.transaction():
            self._base.executemany(
                f"INSERT INTO work({_COLUMNS}, seal) VALUES (?,?,?,?,?,?,?,?,?,?)",
                ((*each, seal(each)) for each in values),
            )

    def transaction(self) -> _Transaction:
        """Return a context in which all is written, or nothing.

        Raises:
            CutShortError: it cannot be written: the disk is full, or the file was damaged meanwhile.
        """
        return _Transaction(self._base, self._cut_short)

    def close(self) -> None:
        """Close the file and let others write."""
        super().close()
        self._lock.close()


class _Transaction:
    def __init__(self, base: sqlite3.Connection, told: Callable[[sqlite3.Error], CutShortError]) -> None:
        self._base = base
        self._told = told

    def __enter__(self) -> None:
        try:
            # IMMEDIATE takes the write lock at once, so that it cannot fail half-way.
            self._base.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._told(error) from error

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        try:
            if kind is None:
                self._base.execute("COMMIT")
        except sqlite3.Error as failed:
            error = failed
        if error is None:
            return
        # An error of the disk may have ended it already; what cannot be undone now is undone by who opens it next.
        with suppress(sqlite3.Error):
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise self._told(error) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
