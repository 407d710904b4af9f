"""Encoder of one graph: columns to Chakra ET bytes, written from the end to the front.

Backwards, the length of a message is known when its turn comes. Functions return the position of
the first byte written. Fields are in order of their numbers and defaults are left out, as protobuf
does it.
"""

from __future__ import annotations

from typing import Any

from armillary.base.jit import inner, njit, use
from armillary.trace.layout import ATTR_AT, CTRL_AT, DATA_AT, DURATION, ID, NAME_AT, RAW, START, TYPE

wire_of = use("armillary.trace.wire_kernel").wire_of


@inner
def put_varint(out: Any, pos: int, value: int) -> Any:
    """Write the 64 bits of `value` as a varint."""
    size = 1
    # The mask 2**57 - 1 makes the shift a logical one, for values from 2**63 on.
    rest = (value >> 7) & 144115188075855871
    while rest:
        size += 1
        rest >>= 7
    pos -= size
    for i in range(size - 1):
        out[pos + i] = (value & 127) | 128
        value = (value >> 7) & 144115188075855871
    out[pos + size - 1] = value & 127
    return pos


@inner
def put_string(out: Any, pos: int, field: int, pool: Any, first: int, after: int) -> Any:
    """Write a length-delimited field that holds ``pool[first:after]``."""
    pos -= after - first
    for i in range(after - first):
        out[pos + i] = pool[first + i]
    pos = put_varint(out, pos, after - first)
    return put_varint(out, pos, field << 3 | 2)


@inner
def put_default(out: Any, pos: int, field: int, value: int) -> Any:
    """Write a varint field unless it is zero."""
    if value == 0:
        return pos
    pos = put_varint(out, pos, value)
    return put_varint(out, pos, field << 3)


@inner
def put_number(out: Any, pos: int, kind: int, value: int) -> Any:
    """Write a number of a scalar kind, without its tag."""
    wire = wire_of(kind)
    if wire == 0:
        if kind == 15 or kind == 17:  # noqa: PLR1714
            # Zigzag: 0, -1, 1, -2 become 0, 1, 2, 3, so that small negative numbers stay short.
            value = (
                (value << 1) ^ (value >> 63) if kind == 17 else ((value << 1) ^ (value >> 31)) & 4294967295
            )
            value &= -1
        return put_varint(out, pos, value)
    size = 8 if wire == 1 else 4
    pos -= size
    for i in range(size):
        out[pos + i] = (value >> (8 * i)) & 255
    return pos


@inner
def put_value(out: Any, pos: int, kind: int, value: int, table: Any) -> Any:
    """Write the oneof member of an attribute."""
    list_ptr, items, string_ptr, pool = table[5], table[6], table[7], table[8]
    # Field numbers of scalars are odd, and from 29 on they are text.
    if kind & 1:
        if kind >= 29:
            return put_string(out, pos, kind, pool, string_ptr[value], string_ptr[value + 1])
        pos = put_number(out, pos, kind, value)
        return put_varint(out, pos, kind << 3 | wire_of(kind))
    end = pos
    first, after = list_ptr[value], list_ptr[value + 1]
    # Text items are a field each; numbers are packed into one field, written below.
    for back in range(after - first):
        item = items[after - 1 - back]
        if kind >= 30:
            pos = put_string(out, pos, 1, pool, string_ptr[item], string_ptr[item + 1])
        else:
            pos = put_number(out, pos, kind - 1, item)
    if kind < 30 and after > first:
        pos = put_varint(out, pos, end - pos)
        # 10 is the tag of field 1, delimited.
        pos = put_varint(out, pos, 10)
    pos = put_varint(out, pos, end - pos)
    return put_varint(out, pos, kind << 3 | 2)


@inner
def put_dependencies(out: Any, pos: int, field: int, deps: Any, first: int, after: int) -> Any:
    """Write a packed field of ids unless it is empty."""
    if first == after:
        return pos
    end = pos
    for back in range(after - first):
        pos = put_varint(out, pos, deps[after - 1 - back])
    pos = put_varint(out, pos, end - pos)
    return put_varint(out, pos, field << 3 | 2)


@njit
def encode(
    rows: Any,
    metadata: int,
    first: int,
    after: int,
    table: Any,
    io_end: int,
    doc_end: int,
    out: Any,
    ends: Any,
) -> Any:
    """Write frames `first` to `after` to the end of `out`; `metadata` is the number of the GlobalMetadata.

    `table` holds ctrl, data, attr_name, attr_kind, attr_value, list_ptr, items, string_ptr, pool, io,
    docs and, for the attribute names, offsets and bytes; `io_end` and `doc_end` are the ends of this
    graph's part of io and docs. `ends`, unless it is empty, gets where the value of each attribute ends in `out`.
    """
    ctrl, data, attr_name, attr_kind, attr_value = table[0], table[1], table[2], table[3], table[4]
    string_ptr, pool, io, docs, name_ptr, name_pool = (
        table[7],
        table[8],
        table[9],
        table[10],
        table[11],
        table[12],
    )
    pos = len(out)
    for back in range(after - first):
        row = after - 1 - back
        head = row == metadata
        frame_end = pos
        for attr_back in range(rows[ATTR_AT, row + 1] - rows[ATTR_AT, row]):
            attr = rows[ATTR_AT, row + 1] - 1 - attr_back
            end = pos
            kind = attr_kind[attr] & 63
            if kind == RAW:
                # A field of the node itself, of a newer schema: its tag is among the bytes.
                text = attr_value[attr]
                for i in range(string_ptr[text + 1] - string_ptr[text]):
                    out[pos - 1 - i] = pool[string_ptr[text + 1] - 1 - i]
                pos -= string_ptr[text + 1] - string_ptr[text]
                continue
            # Everything is written backwards, so a value ends where its attribute began.
            if len(ends) > 0:
                ends[attr] = pos
            if kind != 0:
                pos = put_value(out, pos, kind, attr_value[attr], table)
            # Doc strings are sorted by attribute: walking back, the last one left is the next one.
            if doc_end > 0 and docs[0, doc_end - 1] == attr:
                doc_end -= 1
                text = docs[1, doc_end]
                pos = put_string(out, pos, 2, pool, string_ptr[text], string_ptr[text + 1])
            name = attr_name[attr]
            if name_ptr[name + 1] > name_ptr[name]:
                pos = put_string(out, pos, 1, name_pool, name_ptr[name], name_ptr[name + 1])
            pos = put_varint(out, pos, end - pos)
            # Field attr of GlobalMetadata is 2, that of Node 10.
            pos = put_varint(out, pos, (2 if head else 10) << 3 | 2)
        if not head:
            # The table of IOInfo is sorted by frame, so it is walked back like doc strings.
            while io_end > 0 and io[0, io_end - 1] == row:
                io_end -= 1
                end = pos
                for field in range(3):
                    text = io[4 - field, io_end]
                    if string_ptr[text + 1] > string_ptr[text]:
                        pos = put_string(out, pos, 3 - field, pool, string_ptr[text], string_ptr[text + 1])
                pos = put_varint(out, pos, end - pos)
                pos = put_varint(out, pos, (8 + io[1, io_end]) << 3 | 2)
            pos = put_default(out, pos, 7, rows[DURATION, row])
            pos = put_default(out, pos, 6, rows[START, row])
            pos = put_dependencies(out, pos, 5, data, rows[DATA_AT, row], rows[DATA_AT, row + 1])
            pos = put_dependencies(out, pos, 4, ctrl, rows[CTRL_AT, row], rows[CTRL_AT, row + 1])
            pos = put_default(out, pos, 3, rows[TYPE, row])
        name = rows[NAME_AT, row]
        if string_ptr[name + 1] > string_ptr[name]:
            pos = put_string(out, pos, 1 if head else 2, pool, string_ptr[name], string_ptr[name + 1])
        if not head:
            pos = put_default(out, pos, 1, rows[ID, row])
        # A Chakra ET is a stream of messages, each behind its length.
        pos = put_varint(out, pos, frame_end - pos)
    return pos
