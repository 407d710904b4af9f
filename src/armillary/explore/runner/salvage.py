"""What is whole of a store that is damaged: its pages are read one by one, whatever became of those between them.

SQLite gives up at the first page that does not fit. Rows of work and points carry a checksum (`seal`), so that one
can be taken from any page on which it is found, also of the log beside the store, without trusting anything around it.
The format is that of https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.json_text import json_within
from armillary.base.reading import read_bytes

_PAGE = 4096
"""Bytes of a page where the header of the file does not say."""
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER = 0x0D, 0x0A, 0x02
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Serial type of an integer -> its bytes."""
_WORK, _SWEEP, _POINT, _META = 10, 7, 6, 2
"""Columns of each table, without the checksum."""
_NOT_WHOLE = (IndexError, KeyError, ValueError, TypeError, struct.error)

Row = tuple[Any, ...]


def seal(values: Sequence[object]) -> int:
    """Return the checksum of the other columns of a row of work (but its id) or of a point."""
    return zlib.crc32("\x1f".join(map(repr, values)).encode())


@dataclass
class Salvaged:
    """Rows that are whole.

    Attributes:
        work: By id; without it, with the checksum.
        sweeps: By id; without it.
        points: By sweep and number; with both, and the checksum.
        last_sweep: Number of the sweep that was run last, as text; None if that is lost.
    """

    work: dict[int, Row] = field(default_factory=dict)
    sweeps: dict[int, Row] = field(default_factory=dict)
    points: dict[tuple[int, int], Row] = field(default_factory=dict)
    last_sweep: str | None = None

    @property
    def lost(self) -> int:
        """How many rows of work are lost, at least: ids have no gaps."""
        return max(self.work, default=0) - len(self.work)


def salvage(path: Path) -> Salvaged:
    """Return what is whole of the store at a path, and of the log beside it.

    Raises:
        InputError: it is larger than a file may be.
        OSError: it cannot be read.
    """
    data = bytes(read_bytes(path))
    log = path.with_name(f"{path.name}-wal")
    frames = bytes(read_bytes(log)) if log.exists() else b""
    size = _page_size(data, frames)
    pages = _Pages(size)
    for start in range(0, len(data), size):
        pages.add(start // size + 1, data[start : start + size])
    for start in range(_WAL_HEADER, len(frames), _FRAME_HEADER + size):
        number = int.from_bytes(frames[start : start + 4], "big")
        pages.add(number, frames[start + _FRAME_HEADER : start + _FRAME_HEADER + size])
    found = Salvaged()
    # In the order in which they were written: of a row that was changed, the last counts.
    for number, page in pages.every:
        for rowid, row in pages.records(number, page):
            with suppress(*_NOT_WHOLE):
                _take(found, rowid, row)
    return found


def _page_size(data: bytes, frames: bytes) -> int:
    said = [int.from_bytes(data[16:18], "big"), int.from_bytes(frames[8:12], "big")]
    # 1 stands for 65536, which two bytes cannot hold.
    sizes = [65536 if size == 1 else size for size in said]
    return next((size for size in sizes if 512 <= size <= 65536 and size & (size - 1) == 0), _PAGE)


def _take(found: Salvaged, rowid: int | None, row: Row) -> None:
    """Add a record to what is whole, if it is a row of ours and its checksum fits."""
    columns = len(row)
    if rowid is not None and columns in (_WORK, _WORK + 1):
        # SQLite writes whole numbers of a REAL column as integers.
        values = _sealed((*row[1:6], float(row[6]), *row[7:]), _WORK - 1)
        key, rules, status, reason, measures, seconds, *rest = values[:-1]
        texts = (key, rules, status, reason, *rest)
        if all(isinstance(text, str) for text in texts) and math.isfinite(seconds):
            dict(json_within(measures))
            found.work[rowid] = values
    elif rowid is not None and columns == _SWEEP and row[0] is None:
        # No checksum: its parts are texts, two of them JSON.
        _, digest, path, document, study, version, started = row
        dict(json_within(document)), dict(json_within(study))
        if all(isinstance(text, str) for text in (digest, path, version, started)):
            found.sweeps[rowid] = row[1:]
    elif rowid is None and columns in (_POINT, _POINT + 1):
        values = _sealed(row, _POINT)
        sweep, number, key, rules, point, known, _ = values
        dict(json_within(known))
        if isinstance(sweep, int) and isinstance(number, int) and isinstance(point, str):
            found.points[sweep, number] = values
    elif rowid is None and columns == _META and row[0] == "last sweep":
        found.last_sweep = str(int(row[1]))


def _sealed(row: Row, columns: int) -> Row:
    """Return a row with its checksum, which must fit; older versions wrote none."""
    if len(row) > columns and row[columns] is not None:
        if row[columns] != seal(row[:columns]):
            raise ValueError("the checksum does not fit")
        return row
    return (*row[:columns], None)


class _Pages:
    """Pages of a file and of its log, and the records on them."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._newest: dict[int, bytes] = {}
        self.every: list[tuple[int, bytes]] = []

    def add(self, number: int, page: bytes) -> None:
        self._newest[number] = page
        self.every.append((number, page))

    def records(self, number: int, page: bytes) -> Iterator[tuple[int | None, Row]]:
        """Yield the records of a page that can be read, with their row ids; an index has none."""
        # The first page begins with the header of the file.
        start = 100 if number == 1 else 0
        if len(page) < start + 12 or page[start] not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INNER):
            return
        kind = page[start]
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        pointers = start + (12 if kind == _INDEX_INNER else 8)
        for at in range(pointers, min(pointers + 2 * count, len(page) - 1), 2):
            with suppress(*_NOT_WHOLE):
                yield self._record(page, int.from_bytes(page[at : at + 2], "big"), kind)

    def _record(self, page: bytes, at: int, kind: int) -> tuple[int | None, Row]:
        if kind == _INDEX_INNER:
            at += 4
        length, at = _varint(page, at)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
        usable = self._size
        most = usable - 35 if kind == _TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        local = length
        if length > most:
            least = (usable - 12) * 32 // 255 - 23
            local = least + (length - least) % (usable - 4)
            local = local if local <= most else least
        payload = bytearray(page[at : at + local])
        further = int.from_bytes(page[at + local : at + local + 4], "big") if local < length else 0
        seen = set()
        while further:
            if further in seen:
                raise ValueError("its pages go in a circle")
            seen.add(further)
            rest = self._newest[further]
            payload += rest[4 : 4 + length - len(payload)]
            further = int.from_bytes(rest[:4], "big") if len(payload) < length else 0
        if len(payload) != length:
            raise ValueError("it is cut short")
        return rowid, _values(bytes(payload))


def _values(record: bytes) -> Row:
    header, at = _varint(record, 0)
    kinds = []
    while at < header:
        kind, at = _varint(record, at)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        if kind in (0, 8, 9):
            values.append(None if kind == 0 else kind - 8)
            continue
        size = 8 if kind == 7 else _INTEGERS[kind] if kind < 12 else (kind - 12) // 2
        piece = record[at : at + size]
        at += size
        if kind == 7:
            values.append(struct.unpack(">d", piece)[0])
        elif kind < 12:
            values.append(int.from_bytes(piece, "big", signed=True))
        else:
            values.append(piece.decode() if kind % 2 else piece)
    if at != len(record):
        raise ValueError("it has another length")
    return tuple(values)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of up to nine bytes, the most significant first, and where it ends."""
    value = 0
    for length in range(9):
        byte = data[at + length]
        if length == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, at + length + 1
