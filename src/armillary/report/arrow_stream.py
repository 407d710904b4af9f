"""Columns as a stream of Arrow's C data interface, by which pandas, Polars, pyarrow and DuckDB take tables.

The three structures and who releases what are those of https://arrow.apache.org/docs/format/CDataInterface.html and
CStreamInterface.html; that a Python object hands a stream out as a capsule is its PyCapsule interface. No library is
needed: the structures are made here, and what they point at lives until whoever took them releases it.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Mapping, Sequence
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int64, c_void_p
from typing import Any, NamedTuple

import numpy as np

_NULLABLE = 2
"""Flag of a field that may have no value (ARROW_FLAG_NULLABLE)."""
_NAME = b"arrow_array_stream"


class _Schema(Structure):
    pass


class _Array(Structure):
    pass


class _Stream(Structure):
    pass


# Pointers to functions are plain addresses: one that is NULL says that the structure has been released.
_Schema._fields_ = [
    ("format", c_char_p), ("name", c_char_p), ("metadata", c_char_p), ("flags", c_int64), ("n_children", c_int64),
    ("children", POINTER(POINTER(_Schema))), ("dictionary", c_void_p),
    ("release", c_void_p), ("private_data", c_void_p),
]  # fmt: skip
_Array._fields_ = [
    ("length", c_int64), ("null_count", c_int64), ("offset", c_int64), ("n_buffers", c_int64), ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)), ("children", POINTER(POINTER(_Array))), ("dictionary", c_void_p),
    ("release", c_void_p), ("private_data", c_void_p),
]  # fmt: skip
_Stream._fields_ = [
    ("get_schema", c_void_p), ("get_next", c_void_p), ("get_last_error", c_void_p), ("release", c_void_p),
    ("private_data", c_void_p),
]  # fmt: skip

_held: dict[int, Any] = {}
"""Number in `private_data` -> what must live until the structure is released."""
_streams: dict[int, _Stream] = {}
"""Address of a stream in a capsule -> the stream."""
_numbers = itertools.count(1)


class Column(NamedTuple):
    """A column: its type in Arrow's letters, its missing values, and its buffers."""

    format: bytes
    missing: int
    buffers: list[np.ndarray[Any, Any] | None]


def column(values: Sequence[Any]) -> Column:
    """Return a column of truths, whole numbers, numbers or texts; None is a value that is missing.

    Values of any other kind are written as texts.
    """
    known = np.array([value is not None for value in values], dtype=bool)
    missing = int(len(values) - known.sum())
    valid = np.packbits(known, bitorder="little") if missing else None
    given = [value for value in values if value is not None]

    def all_of(*kinds: type) -> bool:
        return all(isinstance(value, kinds) for value in given)

    if given and all_of(bool, np.bool_):
        truths = np.array([bool(value) for value in values], dtype=bool)
        return Column(b"b", missing, [valid, np.packbits(truths, bitorder="little")])
    if given and all_of(int, np.integer) and all(-(2**63) <= value < 2**63 for value in given):
        return Column(b"l", missing, [valid, np.array([value or 0 for value in values], dtype=np.int64)])
    if all_of(int, float, np.integer, np.floating):
        return Column(
            b"g",
            missing,
            [valid, np.array([0.0 if value is None else value for value in values], dtype=np.float64)],
        )
    texts = [b"" if value is None else str(value).encode() for value in values]
    ends = np.concatenate(([0], np.cumsum([len(text) for text in texts]))).astype(np.int64)
    return Column(b"U", missing, [valid, ends, np.frombuffer(b"".join(texts) or b"\0", dtype=np.uint8)])


def capsule(columns: Mapping[str, Sequence[Any]], rows: int) -> object:
    """Return a capsule of a stream that has one batch of so many rows."""
    made = [(name.encode(), column(values)) for name, values in columns.items()]
    stream = _Stream(
        _address(_get_schema), _address(_get_next), _address(_get_last_error), _address(_release_stream)
    )
    stream.private_data = _hold([made, rows])
    # The structure lives as long as its capsule: who takes the stream may copy it.
    place = ctypes.addressof(stream)
    _streams[place] = stream
    return _new_capsule(place, _NAME, _address(_destroy))


def _hold(what: Any) -> int:
    number = next(_numbers)
    _held[number] = what
    return number


def _address(function: Any) -> int:
    return ctypes.cast(function, c_void_p).value or 0


def _fill_schema(out: Any, kind: bytes, name: bytes, children: list[Any]) -> None:
    array = (POINTER(_Schema) * len(children))(*map(ctypes.pointer, children))
    out.format, out.name, out.metadata, out.flags = kind, name, None, _NULLABLE if name else 0
    out.n_children, out.children = len(children), ctypes.cast(array, POINTER(POINTER(_Schema)))
    out.dictionary, out.release = None, _address(_release_schema)
    out.private_data = _hold([kind, name, children, array])


def _fill_array(out: Any, length: int, missing: int, buffers: list[Any], children: list[Any]) -> None:
    pointers = (c_void_p * max(len(buffers), 1))(
        *(None if each is None else each.ctypes.data for each in buffers)
    )
    array = (POINTER(_Array) * len(children))(*map(ctypes.pointer, children))
    out.length, out.null_count, out.offset = length, missing, 0
    out.n_buffers, out.buffers = len(buffers), ctypes.cast(pointers, POINTER(c_void_p))
    out.n_children, out.children = len(children), ctypes.cast(array, POINTER(POINTER(_Array)))
    out.dictionary, out.release = None, _address(_release_array)
    out.private_data = _hold([buffers, pointers, children, array])


def _do_get_schema(stream: Any, out: Any) -> int:
    made, _ = _held[stream.contents.private_data]
    children = []
    for name, each in made:
        children.append(_Schema())
        _fill_schema(children[-1], each.format, name, [])
    _fill_schema(out.contents, b"+s", b"", children)
    return 0


def _do_get_next(stream: Any, out: Any) -> int:
    held = _held[stream.contents.private_data]
    made, rows = held
    if rows < 0:
        # The end of the stream is an array that has been released.
        out.contents.release = None
        return 0
    held[1] = -1
    children = []
    for _, each in made:
        children.append(_Array())
        _fill_array(children[-1], rows, each.missing, each.buffers, [])
    _fill_array(out.contents, rows, 0, [None], children)
    return 0


def _do_get_last_error(stream: Any) -> None:
    return None


def _releasing(kind: Any) -> Callable[[Any], None]:
    def release(given: Any) -> None:
        mine = given.contents
        # A child may have been taken by somebody else, who then releases it.
        for at in range(mine.n_children):
            child = mine.children[at]
            if child.contents.release:
                CFUNCTYPE(None, POINTER(kind))(child.contents.release)(child)
        _held.pop(mine.private_data, None)
        mine.release = None

    return release


_release_schema = CFUNCTYPE(None, POINTER(_Schema))(_releasing(_Schema))
_release_array = CFUNCTYPE(None, POINTER(_Array))(_releasing(_Array))


def _do_release_stream(stream: Any) -> None:
    _held.pop(stream.contents.private_data, None)
    stream.contents.release = None


def _do_destroy(given: int) -> None:
    stream = _streams.pop(_pointer(given, _NAME))
    # Nobody took it.
    if stream.release:
        _held.pop(stream.private_data, None)


_get_schema = CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Schema))(_do_get_schema)
_get_next = CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Array))(_do_get_next)
_get_last_error = CFUNCTYPE(c_void_p, POINTER(_Stream))(_do_get_last_error)
_release_stream = CFUNCTYPE(None, POINTER(_Stream))(_do_release_stream)
# The capsule is being taken away: as an object it would be counted once more, and taken away twice.
_destroy = PYFUNCTYPE(None, c_void_p)(_do_destroy)
# Not attributes of `ctypes.pythonapi`, whose types whoever imports it may set.
_new_capsule = PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))
_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
