"""Perfetto's own trace format, encoded from columns: tracks with slices and counters as protobuf messages.

The messages are those of Perfetto's ``trace.proto``. Only what a timeline needs is known here: descriptors of
processes, threads and counters, and begins and ends of slices. Rows are encoded together, as a matrix of bytes of which
each row keeps as many as its numbers need. Packets are kept in compressed packets, which every reader of the format
unpacks.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.files import replacing

Ints = NDArray[Any]
Bytes = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""One field of many rows: its bytes, (rows, most bytes), and how many of them each row has."""

ENDINGS = (".pftrace", ".perfetto-trace")
"""How the names of files of this format end, before ``.gz``."""
_ROWS = 1 << 15
"""Rows encoded at a time: their matrix, of about 100 columns, fits into the cache."""
_PACKED = 1 << 20
"""Bytes of packets that are compressed together."""
_LEVEL = 3
"""Of the compression: for the 70B model of `benchmarks/timeline.py`, 6 takes a quarter longer for a tenth less."""

# Numbers of fields, by message.
_PACKET, _TIMESTAMP, _SEQUENCE, _FLAGS, _EVENT, _INTERNED, _COMPRESSED, _DEFAULTS, _DESCRIPTOR = (
    1, 8, 10, 13, 11, 12, 50, 59, 60,
)  # fmt: skip
_TYPE, _NAME_IID, _CATEGORY_IID, _ANNOTATION, _TRACK, _COUNTER_INT, _COUNTER_FLOAT = 9, 10, 3, 4, 11, 30, 44
_BEGIN, _END, _COUNTER = 1, 2, 4
_CLEARED, _NEEDS = 1, 2
"""Flags: interned names begin anew; a packet needs them."""
_CATEGORIES, _NAMES, _KEYS, _STRINGS = 1, 2, 3, 29


@dataclass(frozen=True)
class Texts:
    """A column of texts of which few are distinct: the distinct ones, and the index of each row's."""

    distinct: Sequence[str]
    code: NDArray[np.int64]

    @classmethod
    def of(cls, values: Iterable[str]) -> Texts:
        """Make the column of a list of texts."""
        known: dict[str, int] = {}
        code = [known.setdefault(value, len(known)) for value in values]
        return cls(list(known), np.array(code, np.int64))

    def __getitem__(self, rows: Any) -> Texts:
        """Return some rows."""
        return Texts(self.distinct, self.code[rows])


@dataclass(frozen=True)
class Slices:
    """Intervals of a thread.

    Attributes:
        start: Their begins in ns, int64 (n).
        end: Their ends in ns, int64 (n).
        name: Their names.
        category: Their categories.
        args: By key, what is shown of each, and for which of them it is; a number is not below 0.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    name: Texts
    category: Texts
    args: Sequence[tuple[str, Ints | Texts, NDArray[np.bool_]]]

    def __getitem__(self, rows: Any) -> Slices:
        """Return some rows."""
        args = [(key, values[rows], given[rows]) for key, values, given in self.args]
        return Slices(self.start[rows], self.end[rows], self.name[rows], self.category[rows], args)


@dataclass(frozen=True)
class Counter:
    """A number over time: name, unit, times in ns, int64 (n), and its value from there on, (n)."""

    name: str
    unit: str
    at: NDArray[np.int64]
    value: Ints


class Writer:
    """Encodes one trace; each of `process`, `thread` and `counter` returns the packets of one descriptor or track."""

    def __init__(self) -> None:
        self._tracks = 0
        self._process = 0

    def process(self, pid: int, name: str, labels: Sequence[str] = ()) -> Iterator[bytes]:
        """Begin a process; the threads and counters after it are its own."""
        own = _number(1, pid) + _text(6, name) + b"".join(_text(8, label) for label in labels)
        self._tracks += 1
        self._process = self._tracks
        # Tracks in the order in which they are written.
        descriptor = _number(1, self._process) + _message(3, own) + _number(11, 3)
        yield _packet(_number(_SEQUENCE, self._process) + _message(_DESCRIPTOR, descriptor))

    def thread(self, pid: int, name: str, slices: Slices) -> Iterator[bytes]:
        """Write a thread with slices that do not overlap, in order of time."""
        self._tracks += 1
        uuid = self._tracks
        thread = _number(1, pid) + _number(2, uuid) + _text(5, name) + _number(3, uuid)
        descriptor = _number(1, uuid) + _number(5, self._process) + _message(4, thread) + _number(12, uuid)
        texts = [(_CATEGORIES, slices.category.distinct), (_NAMES, slices.name.distinct)]
        texts.append((_KEYS, [key for key, _, _ in slices.args]))
        strings: list[str] = []
        for _, values, _ in slices.args:
            strings += values.distinct if isinstance(values, Texts) else ()
        yield self._begin(uuid, descriptor, [*texts, (_STRINGS, strings)])
        for first in range(0, len(slices.start), _ROWS):
            yield _slices(slices[first : first + _ROWS], uuid)

    def counter(self, counter: Counter) -> Iterator[bytes]:
        """Write a counter, its values in order of time."""
        self._tracks += 1
        uuid = self._tracks
        own = (
            _message(8, _text(6, counter.unit))
            + _text(2, f"{counter.name} {counter.unit}")
            + _number(12, uuid)
        )
        yield self._begin(uuid, _number(1, uuid) + _number(5, self._process) + own, [])
        for first in range(0, len(counter.at), _ROWS):
            yield _values(counter.at[first : first + _ROWS], counter.value[first : first + _ROWS], uuid)

    def _begin(self, uuid: int, descriptor: bytes, texts: Iterable[tuple[int, Sequence[str]]]) -> bytes:
        """Return the first packet of a track: a sequence of its own, so that its number is written once."""
        interned = b"".join(
            _message(field, _number(1, iid) + _text(2, text))
            for field, distinct in texts
            for iid, text in enumerate(distinct, 1)
        )
        defaults = _message(11, _number(_TRACK, uuid))
        return _packet(
            _number(_SEQUENCE, uuid) + _number(_FLAGS, _CLEARED) + _message(_DESCRIPTOR, descriptor)
            + _message(_INTERNED, interned) + _message(_DEFAULTS, defaults)
        )  # fmt: skip


def write(path: str | os.PathLike[str], packets: Iterable[bytes]) -> None:
    """Write encoded packets as a trace file, compressed as a whole, too, if `path` ends in ``.gz``.

    Raises:
        InputError: the file cannot be written; then there is none.
    """
    with replacing(path) as temporary, temporary.open("wb") as raw:
        if str(path).endswith(".gz"):
            # No time stamp and no name, so that the same events give the same file.
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_LEVEL, mtime=0) as packed:
                packed.writelines(packets)
        else:
            raw.writelines(map(_compressed, _batches(packets)))


def _batches(packets: Iterable[bytes]) -> Iterator[bytes]:
    batch, size = [], 0
    for each in packets:
        batch.append(each)
        size += len(each)
        if size >= _PACKED:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)


def _compressed(packets: bytes) -> bytes:
    return _packet(_message(_COMPRESSED, zlib.compress(packets, _LEVEL)))


def _slices(slices: Slices, uuid: int) -> bytes:
    """Return the packets of slices: a begin and an end of each."""
    n = len(slices.start)
    annotations: list[Bytes] = []
    strings = 0
    for iid, (_, values, given) in enumerate(slices.args, 1):
        if isinstance(values, Texts):
            value = _column(17, values.code + 1 + strings)
            strings += len(values.distinct)
        else:
            value = _column(3, values)
        one = _nested(_ANNOTATION, [_same(_number(1, iid), n), value])
        annotations += [(part, np.where(given, count, 0)) for part, count in one]
    begin = [
        _same(_number(_TYPE, _BEGIN), n), _column(_NAME_IID, slices.name.code + 1),
        _column(_CATEGORY_IID, slices.category.code + 1), *annotations,
    ]  # fmt: skip
    sequence = _number(_SEQUENCE, uuid)
    needs = _same(sequence + _number(_FLAGS, _NEEDS), n)
    end = _same(sequence + _message(_EVENT, _number(_TYPE, _END)), n)
    return _rows([
        *_nested(_PACKET, [_column(_TIMESTAMP, slices.start), needs, *_nested(_EVENT, begin)]),
        *_nested(_PACKET, [_column(_TIMESTAMP, slices.end), end]),
    ])  # fmt: skip


def _values(at: NDArray[np.int64], value: Ints, uuid: int) -> bytes:
    """Return the packets of a counter."""
    n = len(at)
    if value.dtype.kind == "f":
        doubles = np.ascontiguousarray(value, "<f8").view(np.uint8).reshape(n, 8)
        number = [_same(_key(_COUNTER_FLOAT, 1), n), (doubles, np.full(n, 8))]
    else:
        number = [_column(_COUNTER_INT, value)]
    event = _nested(_EVENT, [_same(_number(_TYPE, _COUNTER), n), *number])
    return _rows(_nested(_PACKET, [_column(_TIMESTAMP, at), _same(_number(_SEQUENCE, uuid), n), *event]))


def _rows(fields: Sequence[Bytes]) -> bytes:
    """Return the bytes of all rows, one after the other."""
    kept = [np.arange(part.shape[1]) < count[:, None] for part, count in fields]
    return np.hstack([part for part, _ in fields])[np.hstack(kept)].tobytes()


def _same(value: bytes, n: int) -> Bytes:
    return np.broadcast_to(np.frombuffer(value, np.uint8), (n, len(value))), np.full(n, len(value))


def _column(field: int, values: Ints) -> Bytes:
    """Return a field of numbers, each with its key."""
    key, numbers = _key(field, 0), _varints(values)
    return np.hstack([_same(key, len(values))[0], numbers[0]]), numbers[1] + len(key)


def _varints(values: Ints) -> Bytes:
    """Return numbers of 0 or more in base 128, least significant digits first, all but the last marked by 128."""
    left = values.astype(np.uint64)
    most = max(1, -(-int(left.max(initial=np.uint64(0))).bit_length() // 7))
    digits = left[:, None] >> np.arange(0, 7 * most, 7, dtype=np.uint64)
    count = np.maximum((digits > 0).sum(axis=1), 1)
    more = np.arange(1, most + 1) < count[:, None]
    return ((digits & np.uint64(127)) | (more.astype(np.uint64) << np.uint64(7))).astype(np.uint8), count


def _nested(field: int, parts: Sequence[Bytes]) -> list[Bytes]:
    """Return a message of each row."""
    length = np.sum([count for _, count in parts], axis=0)
    return [_same(_key(field, 2), len(length)), _varints(length), *parts]


def _packet(content: bytes) -> bytes:
    return _message(_PACKET, content)


def _key(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _text(field: int, value: str) -> bytes:
    # Lone surrogates are no UTF-8.
    return _message(field, value.encode("utf-8", "replace"))


def _message(field: int, content: bytes) -> bytes:
    return _key(field, 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
