"""The file in which Optuna keeps the trials of a search; one that is damaged is made anew of the trials that are whole.

A trial carries the row of its point with a checksum, as text. So it can be taken from any place of the file, an SQLite
base or a journal, without trusting anything around it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.json_text import json_within
from armillary.base.reading import read_bytes
from armillary.explore.runner.stored import say
from armillary.explore.sweep.point import Row
from armillary.explore.sweep.space import Space

NAME = "armillary"
"""Of the study in the file."""
ROW = "row"
"""User attribute of a trial that stores the row of its point."""
_BEGIN = re.compile(rb'\{"number": ?\d{1,18}, ?"status": ?"')
_LONGEST = 1 << 16
"""Characters of a row, at most."""


def is_base(path: Path) -> bool:
    """Tell whether a storage is an SQLite base; else it is a journal."""
    return path.suffix == ".db"


def opened(optuna: Any, path: Path, base: bool) -> Any:
    """Return Optuna's storage in a file."""
    if base:
        return optuna.storages.RDBStorage(f"sqlite:///{path}")
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))


def written(row: Row, identity: str) -> dict[str, Any]:
    """Return what a trial keeps of its row: with a checksum, which is also of what the search is of."""
    kept = {
        "number": row.number, "status": row.status, "reason": row.reason, "measures": dict(row.measures),
        "seconds": row.seconds,
    }  # fmt: skip
    return kept | {"seal": _seal(kept, identity)}


def _seal(kept: dict[str, Any], identity: str) -> str:
    text = json.dumps([kept[key] for key in ("number", "status", "reason", "measures", "seconds")])
    return hashlib.sha256(f"{identity}\n{text}".encode()).hexdigest()[:16]


def fits(kept: dict[str, Any], identity: str) -> bool:
    """Tell whether what a trial keeps is as it was written; older versions wrote no checksum."""
    return "seal" not in kept or bool(kept["seal"] == _seal(kept, identity))


def row_of(kept: dict[str, Any], space: Space) -> Row:
    """Return the row that a trial keeps."""
    point = space.at(kept["number"])
    parts = (kept[key] for key in ("status", "reason", "measures", "seconds"))
    return Row(point.number, point.values, point.key, *parts)


def damage(path: Path) -> str:
    """Return what is wrong with a file that is there, "" if nothing is.

    Raises:
        InputError: it cannot be read.
    """
    if not path.is_file() or not path.stat().st_size:
        return ""
    if not is_base(path):
        return _damage_of_journal(path)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            (said,) = base.execute("PRAGMA integrity_check(1)").fetchone()
            return "" if said == "ok" else str(said).splitlines()[0]
    # Locked, or not readable: another one may write to it.
    except sqlite3.OperationalError:
        return ""
    except sqlite3.DatabaseError as error:
        return str(error)


def _damage_of_journal(path: Path) -> str:
    lines = _bytes(path).split(b"\n")
    # After the last line end there is nothing; a process that was killed may leave a part of a line.
    for number, line in enumerate(lines, 1):
        try:
            whole = not line if number == len(lines) else isinstance(json_within(line)["op_code"], int)
        except (ValueError, TypeError, KeyError, RecursionError):
            whole = False
        if not whole:
            return f"line {number} is none of its own"
    return ""


def _bytes(path: Path) -> bytes:
    try:
        return bytes(read_bytes(path))
    except OSError as error:
        raise InputError(f"storage {path}: cannot be read ({error.strerror})") from None


def whole(path: Path, identity: str) -> Iterator[dict[str, Any]]:
    """Yield what trials kept, wherever it stands, if its checksum fits."""
    data = _bytes(path)
    seen: set[int] = set()
    decoder = json.JSONDecoder()
    for found in _BEGIN.finditer(data):
        text = data[found.start() : found.start() + _LONGEST].decode("utf-8", "replace")
        try:
            kept, _ = decoder.raw_decode(text)
            if kept["seal"] == _seal(kept, identity) and kept["number"] not in seen:
                seen.add(kept["number"])
                yield kept
        except (ValueError, KeyError, TypeError, RecursionError):
            continue


def mend(
    optuna: Any,
    path: Path,
    problem: str,
    identity: str,
    begin: Callable[[Any], Any],
    again: Callable[[Any, dict[str, Any]], None],
) -> None:
    """Put a storage with the trials that are whole in the place of a damaged one, which stays beside it.

    Args:
        optuna: The package.
        path: The file.
        problem: What is wrong with it.
        identity: What the search is of.
        begin: Makes the study in a storage.
        again: Adds to a study what one trial kept.
    """
    kept = list(whole(path, identity))
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in range(1000))
    beside = next(name for name in names if not os.path.lexists(name))
    with replacing(path) as temporary:
        storage = opened(optuna, temporary, is_base(path))
        study = begin(storage)
        for each in kept:
            again(study, each)
        if is_base(path):
            # Its connections are to a file that gets another name.
            storage.engine.dispose()
        shutil.copy2(path, beside)
    say(
        f"storage {path}: was damaged ({problem}): {len(kept)} trials are whole and kept; the damaged file is now "
        f"{beside}"
    )
