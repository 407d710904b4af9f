"""The schema of Chakra nodes, and the columns that store graphs; codes of texts, and columns that are equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.trace.layout import (
    ATTR_AT,
    CTRL_AT,
    DATA_AT,
    DURATION,
    ID,
    NAME_AT,
    RAW,
    ROW_FIELDS,
    START,
    TYPE,
)

__all__ = [
    "ATTR_AT",
    "BOOL",
    "BOOL_LIST",
    "BYTES",
    "COMMUNICATION",
    "CTRL_AT",
    "DATA_AT",
    "DOUBLE",
    "DURATION",
    "FIXED64",
    "FLOAT",
    "FLOAT_KINDS",
    "ID",
    "INTEGER_KINDS",
    "KINDS",
    "KIND_NAMES",
    "NAME_AT",
    "RANGES",
    "RAW",
    "ROW_FIELDS",
    "START",
    "STRING",
    "TYPE",
    "UINT64",
    "VERSION",
    "CollectiveType",
    "Columns",
    "NodeType",
    "distinct_columns",
    "fold_numbers",
    "intern",
    "type_name",
]

VERSION = "0.0.4"
"""Schema version written into new files; 1.0.0 has the same schema."""


class NodeType(IntEnum):
    """Type of a node (``NodeType`` of et_def.proto)."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7
    # Of mlcommons/chakra's pull request 216; what a storage or checkpoint node does is in its field 11.
    STORAGE_NODE = 8
    BATCH_NODE = 9
    CHECKPOINT_NODE = 10


class CollectiveType(IntEnum):
    """Value of the attribute ``comm_type`` of a collective (``CollectiveCommType`` of et_def.proto)."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


_SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64",
    "fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes",
)  # fmt: skip

KIND_NAMES: tuple[str, ...] = (
    "unset",
    "",
    "",
    *(s + end for s in _SCALARS for end in ("", "_list")),
    "field",
)
"""Name of an attribute kind by the field number of its oneof member: 9 is ``int64``, 10 ``int64_list``.

The last one is no member: a whole field of a node, of a newer schema, which is written as it was read.
"""

KINDS: dict[str, int] = {name: number for number, name in enumerate(KIND_NAMES) if name}
"""Field number of the oneof member by kind name; 0 stands for a value that is not set."""

DOUBLE, FLOAT, UINT64, FIXED64, BOOL, BOOL_LIST, STRING, BYTES = 3, 5, 13, 21, 27, 28, 29, 31

INTEGER_KINDS = frozenset(range(7, 29, 2))
FLOAT_KINDS = frozenset((DOUBLE, FLOAT))

RANGES: dict[int, tuple[int, int]] = {
    kind: (-(2**31), 2**31 - 1)
    if name in ("int32", "sint32", "sfixed32")
    else (-(2**63), 2**63 - 1)
    if name in ("int64", "sint64", "sfixed64")
    else (0, 2**32 - 1)
    if name in ("uint32", "fixed32")
    else (0, 2**64 - 1)
    if name in ("uint64", "fixed64")
    else (0, 1)
    for name, kind in KINDS.items()
    if kind in INTEGER_KINDS
}
"""Smallest and largest value of every integer kind."""


COMMUNICATION = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)


def type_name(number: int) -> str:
    """Return the name of node type `number`, or the number as text where the schema has no name for it."""
    return NodeType(number).name if number in NodeType.__members__.values() else str(number)


I64 = NDArray[np.int64]
_FEW = 1000


@dataclass(frozen=True, eq=False)
class Columns:
    """All frames of a batch of files, in file order; a frame is a GlobalMetadata or a node.

    Unsigned 64-bit values keep their bits in int64. Strings are numbered; string 0 is empty.
    """

    frame_ptr: I64
    """(graphs + 1): the frames of each graph; the first of them is its GlobalMetadata."""
    unknown: I64
    """(graphs): number of unknown protobuf fields that were skipped."""
    rows: I64
    """(ROW_FIELDS, frames + 1): id, type, start, duration, name (a string; the version in a
    GlobalMetadata) and the CSR offsets of control dependencies, data dependencies, attributes."""
    ctrl: I64
    """Ids of control dependencies as written."""
    data: I64
    """Ids of data dependencies as written."""
    attr_name: NDArray[np.int32]
    """(attributes): index into `names`."""
    attr_kind: NDArray[np.uint8]
    """(attributes): field number of the oneof member, see `schema.KIND_NAMES`."""
    attr_value: I64
    """(attributes): the scalar's value (bits of a double, float or unsigned), a string or a list."""
    list_ptr: I64
    """(lists + 1): offsets into `items`."""
    items: I64
    """Scalars of the lists, encoded as in `attr_value`."""
    string_ptr: I64
    """(strings + 1): offsets into `pool`."""
    pool: NDArray[np.uint8]
    io: I64
    """(5, IOInfos): frame, side (0 inputs, 1 outputs), and the strings values, shapes, types."""
    docs: I64
    """(2, documented attributes): attribute, string."""
    names: list[str]
    """Distinct attribute names."""

    @cached_property
    def bounds(self) -> list[int]:
        """`frame_ptr` as a list."""
        bounds: list[int] = self.frame_ptr.tolist()
        return bounds

    @cached_property
    def name_code(self) -> dict[str, int]:
        """Index into `names` by attribute name."""
        return {name: code for code, name in enumerate(self.names)}

    @cached_property
    def pool_bytes(self) -> bytes:
        """The string pool as one bytes object."""
        return self.pool.tobytes()

    def raw(self, string: int) -> bytes:
        """Return the bytes of one string."""
        return self.pool[self.string_ptr[string] : self.string_ptr[string + 1]].tobytes()

    def text(self, string: int) -> str:
        """Return one string as text."""
        return self.raw(string).decode()

    def raws(self, strings: I64) -> list[bytes]:
        """Return the bytes of many strings."""
        if len(strings) < _FEW:  # not worth a copy of the whole pool
            return [self.raw(string) for string in strings.tolist()]
        first, after = self.string_ptr[strings].tolist(), self.string_ptr[strings + 1].tolist()
        # Slicing one bytes object creates no array object per string.
        pool = self.pool_bytes
        return [pool[a:b] for a, b in zip(first, after, strict=True)]


TEXT_KERNEL = "armillary.trace.text_kernel"

COMPILED_FROM = 50_000
"""Texts from which the compiled kernel wins over a dictionary, loading Numba included."""

FEW_TEXTS = 100
"""Below so many texts, each is decoded without looking for repeats first."""

_NUMBER = re.compile(rb"[0-9]+")


def intern(columns: Columns, strings: I64, mode: jit.Mode | None = None) -> tuple[I64, I64]:
    """Return a code for every string of a batch, equal where the bytes are, and the first string of each code.

    Args:
        columns: the batch.
        strings: which of its strings; codes are in the order of first use.
        mode: "compiled" for the kernel, "interpreted" for a dictionary; by default the faster one.
    """
    if mode == "compiled" or (mode is None and len(strings) >= COMPILED_FROM):
        return _intern(columns.string_ptr, columns.pool, strings)
    if len(strings) < FEW_TEXTS:
        return _look_up(columns.raws(strings), strings)
    # Texts that were packed once are one string: look at each once.
    used, inverse = np.unique(strings, return_inverse=True)
    codes, _ = _look_up(columns.raws(used), used)
    of_string = codes[inverse]
    # Codes above are in the order of string numbers: renumber by first use.
    _, first = np.unique(of_string, return_index=True)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(first), np.int64)
    number[order] = np.arange(len(first))
    return number[of_string], strings[first[order]]


def _intern(ptr: I64, pool: NDArray[np.uint8], strings: I64) -> tuple[I64, I64]:
    n = len(strings)
    # At most half full, so that probing stays short.
    table = np.zeros(1 << (2 * n).bit_length(), dtype=np.int64)
    hashes, first, codes = (np.empty(n, dtype=np.int64) for _ in range(3))
    found = jit.load(TEXT_KERNEL, "compiled").intern(ptr, pool, strings, table, hashes, first, codes)
    return codes, strings[first[:found]]


def _look_up(texts: Sequence[bytes], strings: I64) -> tuple[I64, I64]:
    index: dict[bytes, int] = {}
    codes = np.array([index.setdefault(text, len(index)) for text in texts], dtype=np.int64)
    first = np.zeros(len(index), dtype=np.int64)
    # Reversed, so that the first occurrence is written last and stays.
    first[codes[::-1]] = strings[::-1]
    return codes, first


def fold_numbers(columns: Columns, strings: I64) -> tuple[I64, list[str]]:
    """Return a code for every string, equal where the texts differ only in numbers, and the texts with ``#`` for these.

    ``layer.12.mlp`` and ``layer.7.mlp`` are both ``layer.#.mlp``.
    """
    codes, first = intern(columns, strings)
    if len(first) < COMPILED_FROM:
        # Few texts: a regular expression on each is faster than the array form below.
        index: dict[str, int] = {}
        folded = [_NUMBER.sub(b"#", raw).decode() for raw in columns.raws(first)]
        merged = np.array([index.setdefault(text, len(index)) for text in folded], dtype=np.int64)
        return merged[codes], list(index)
    ptr, text = columns.string_ptr, columns.pool
    size = ptr[first + 1] - ptr[first]
    offsets = np.zeros(len(first) + 1, dtype=np.int64)
    np.cumsum(size, out=offsets[1:])
    text = text[np.repeat(ptr[first] - offsets[:-1], size) + np.arange(offsets[-1])]
    # A run of digits becomes one "#": its first digit is replaced, the others are dropped.
    digit = (text >= ord("0")) & (text <= ord("9"))
    again = np.zeros(len(text), dtype=np.bool_)
    again[1:] = digit[1:] & digit[:-1]
    # A digit that begins a text continues no run, whatever the text before it ends with.
    again[offsets[:-1][size > 0]] = False
    kept = np.zeros(len(text) + 1, dtype=np.int64)
    np.cumsum(~again, out=kept[1:])
    text[digit] = ord("#")
    ptr, text = kept[offsets], text[~again]
    merged, examples = _intern(ptr, text, np.arange(len(first)))
    return merged[codes], [text[ptr[at] : ptr[at + 1]].tobytes().decode() for at in examples.tolist()]


_RADIX = 1 << 62


def distinct_columns(table: I64) -> tuple[I64, I64]:
    """Return the first index of each distinct column of `table` (rows, n), in order, and each column's number (n,)."""
    n = table.shape[1]
    if not n:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # Rows become the digits of one mixed-radix integer per column, which sorts like the column.
    code, width = np.zeros(n, np.int64), 1
    for row in table:
        least, most = int(row.min()), int(row.max())
        if most == least:
            continue
        digits, span = (row - least, most - least + 1) if most - least < _RADIX else _numbered(row)
        # Renumber before the code overflows: ranks need at most log2(n) bits.
        if width * span >= _RADIX:
            code, width = _numbered(code)
        if width * span >= _RADIX:
            digits, span = _numbered(digits)
        code = code * span + digits
        width *= span
    # Few possible codes: a table of them instead of a sort.
    if width <= 4 * n:
        first = np.full(width, n)
        # Backwards, so that the first of equal ones is written last.
        first[code[::-1]] = np.arange(n - 1, -1, -1)
        used = first < n
        number = np.cumsum(used) - 1
        return first[used], number[code]
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return first, inverse


def distinct_rows(table: I64) -> tuple[I64, I64]:
    """Return the first index of each distinct row of `table` (n, columns), ascending, and each row's number (n,)."""
    n, columns = table.shape
    # A step per column costs as much as 16 rows.
    if 16 * columns < n:
        found, of_row = distinct_columns(np.ascontiguousarray(table.T))
        order = np.argsort(found, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return found[order], rank[of_row]
    known: dict[bytes, int] = {}
    number = np.array([known.setdefault(row.tobytes(), len(known)) for row in table], np.int64)
    return np.unique(number, return_index=True)[1], number


def _numbered(values: I64) -> tuple[I64, int]:
    """Return ranks 0, 1, … with the same order and the same ties as `values`, and how many there are."""
    found, inverse = np.unique(values, return_inverse=True)
    return inverse, len(found)
