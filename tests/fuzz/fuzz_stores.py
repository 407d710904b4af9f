"""Stores of sweeps as a stranger may send them, for the fuzz targets."""

from __future__ import annotations

import itertools
import json
import sqlite3
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from armillary.explore.runner.identity import Identity
from armillary.explore.runner.salvage import seal
from armillary.explore.runner.store import Store
from armillary.explore.runner.stored import Stored
from armillary.explore.search.storage import damage, fits, whole, written
from armillary.explore.sweep.load import load_sweep
from armillary.explore.sweep.point import Row
from armillary.explore.views.page import page_data
from armillary.explore.views.stored_rows import csv_text, stored_columns


@cache
def trials() -> list[bytes]:
    """Return a journal of Optuna's with the row of one trial."""
    row = Row(3, {"size": "1 MiB"}, "key", "ok", "", {"step_time": 0.5}, 0.1)
    lines = [
        {"op_code": 0, "worker_id": "w", "study_name": "armillary", "directions": [1]},
        {"op_code": 8, "worker_id": "w", "trial_id": 0, "user_attr": {"row": written(row, "of")}},
    ]
    return ["".join(json.dumps(line) + "\n" for line in lines).encode()]


def trials_of(path: Path) -> None:
    """Look what of a storage of a search is whole, as its next run does."""
    damage(path)
    assert all(fits(kept, "of") for kept in whole(path, "of"))


@cache
def stored(sweep: str) -> list[bytes]:
    """Return a store with four points of a sweep that are done."""
    with tempfile.TemporaryDirectory() as name:
        source, path = Path(name, "sweep.yaml"), Path(name, "store.db")
        source.write_text(sweep)
        found = load_sweep(source)
        points = list(itertools.islice(found.space.points(), 4))
        known = [Identity(f"work {point.number}", "rules") for point in points]
        done = [
            Row(point.number, point.values, point.key, "ok", "", {"step_time": 0.5}, 0.1) for point in points
        ]
        with Store(path) as kept:
            kept.ask(kept.begin(found), zip(points, known, strict=True))
            kept.add(zip(known, done, strict=True))
        base = sqlite3.connect(path)
        base.execute("PRAGMA journal_mode = DELETE")
        base.close()
        return [path.read_bytes()]


def store(path: Path) -> None:
    """Read a store as a page and a table do, and go on with it as a run does."""
    with Stored(path) as found:
        found.document()
    columns = stored_columns(path)
    page_data(columns)
    csv_text(columns.rows, columns)
    with Store(path) as kept:
        kept.rows()
    # Each mended store leaves a copy of what was damaged.
    for copy in path.parent.glob("*.damaged*"):
        copy.unlink()


SEALED = {
    "work": (
        "key = ? AND rules = ?",
        "key, rules, status, reason, measures, seconds, limits, version, finished",
    ),
    "points": ("sweep = ? AND number = ?", "sweep, number, key, rules, point, vals"),
}
"""Table of a store -> which row has two first values, and what its checksum is of, in order."""


def store_of(sweep: str, path: Path) -> None:
    """Read a store in whose columns of text stands what the file says, by the names of the columns."""
    try:
        texts = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    if not isinstance(texts, dict):
        return
    made = path.with_name("made.db")
    made.write_bytes(stored(sweep)[0])
    base = sqlite3.connect(made)
    for column, table in (("vals", "points"), ("measures", "work"), ("status", "work"), ("reason", "work"),
                          ("seconds", "work"), ("document", "sweeps"), ("path", "sweeps")):  # fmt: skip
        if column in texts:
            value = texts[column]
            text = value if isinstance(value, str | None) else json.dumps(value)
            with suppress(sqlite3.Error, UnicodeError):
                base.execute(f"UPDATE {table} SET {column} = ?", (text,))
    # With checksums that fit: rows without are left out before anything reads them.
    for table, (keys, columns) in SEALED.items():
        for values in base.execute(f"SELECT {columns} FROM {table}").fetchall():
            base.execute(f"UPDATE {table} SET seal = ? WHERE {keys}", (seal(values), *values[:2]))
    base.commit()
    base.close()
    store(made)
