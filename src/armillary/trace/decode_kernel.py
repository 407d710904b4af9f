"""Decoder of length-delimited Chakra ET: many files in one buffer to columns, in two passes.

The first pass (``fill`` false) checks everything and counts, the second writes. `buf` is a uint8
array or, interpreted, a bytes object. Values are int64: unsigned 64-bit ones keep their bits.
Functions return a negative error code where they would return a position; ``st[ERROR_AT]`` says where.
"""

from __future__ import annotations

from typing import Any

from armillary.jit import njit

TRUNCATED, LONG_VARINT, LENGTH, WIRE, FIELD, UTF8, OLD_SCHEMA, EMPTY = -1, -2, -3, -4, -5, -6, -7, -8

# Cursors and counts in `st`; the *_CAP ones are high-water marks, since a oneof can be overwritten.
ROW, CTRL, DATA, ATTR, LIST, ITEM, STRING, BYTE, IO, DOC, NAME = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
ITEM_CAP, STRING_CAP, BYTE_CAP, LAST, UNKNOWN, ERROR_AT, FILE, SPANS, STATE_SIZE = (
    11,
    12,
    13,
    14,
    15,
    16,
    17,
    18,
    32,
)

# Rows of the matrix with one column per frame.
ID, TYPE, START, DURATION, NAME_AT, CTRL_AT, DATA_AT, ATTR_AT, ROW_FIELDS = 0, 1, 2, 3, 4, 5, 6, 7, 8


@njit
def varint(buf: Any, pos: int, end: int) -> Any:
    """Read a varint; return (value as int64, next position)."""
    value = 0
    shift = 0
    while pos < end:
        byte = buf[pos]
        pos += 1
        if shift == 63:
            if byte > 1:
                return 0, LONG_VARINT
            if byte == 1:
                value += -9223372036854775808
            return value, pos
        value |= (byte & 127) << shift
        if byte < 128:
            return value, pos
        shift += 7
    return 0, TRUNCATED


@njit
def fixed(buf: Any, pos: int, end: int, size: int) -> Any:
    """Read `size` little-endian bytes, 8 of them as int64, 4 as uint32; return (value, next position)."""
    if end - pos < size:
        return 0, TRUNCATED
    value = 0
    for i in range(size):
        byte = buf[pos + i] & 255
        if i == 7 and byte > 127:
            byte -= 256
        value |= byte << (8 * i)
    return value, pos + size


@njit
def span(buf: Any, pos: int, end: int) -> Any:
    """Read the length of a delimited field; return (first position, position after it)."""
    size, at = varint(buf, pos, end)
    if at < 0:
        return 0, at
    if size < 0 or size > end - at:
        return 0, LENGTH
    return at, at + size


@njit
def skip(buf: Any, pos: int, end: int, wire: int) -> int:
    """Return the position after an unknown field."""
    if wire == 0:
        return varint(buf, pos, end)[1]  # type: ignore[no-any-return]
    if wire == 1:
        return pos + 8 if end - pos >= 8 else TRUNCATED
    if wire == 5:
        return pos + 4 if end - pos >= 4 else TRUNCATED
    if wire == 2:
        return span(buf, pos, end)[1]  # type: ignore[no-any-return]
    return WIRE


@njit
def valid_text(buf: Any, pos: int, end: int) -> bool:
    """Say whether the bytes are UTF-8 (no surrogates, no overlong forms)."""
    seen = 0
    for i in range(pos, end):
        seen |= buf[i]
    if seen < 128:
        return True
    while pos < end:
        first = buf[pos] & 255
        pos += 1
        if first < 128:
            continue
        low, high = 128, 191
        if 194 <= first <= 223:
            more = 1
        elif 224 <= first <= 239:
            more = 2
            if first == 224:
                low = 160
            elif first == 237:
                high = 159
        elif 240 <= first <= 244:
            more = 3
            if first == 240:
                low = 144
            elif first == 244:
                high = 143
        else:
            return False
        for _ in range(more):
            if pos >= end or buf[pos] < low or buf[pos] > high:
                return False
            low, high = 128, 191
            pos += 1
    return True


@njit
def add_string(buf: Any, pos: int, end: int, fill: bool, st: Any, out: Any) -> int:
    """Append bytes to the pool as one more string; return its index."""
    index = st[STRING]
    if fill:
        string_ptr, pool = out[7], out[8]
        at = st[BYTE] - pos
        for i in range(pos, end):
            pool[at + i] = buf[i]
        string_ptr[index + 1] = at + end
    st[STRING] += 1
    st[BYTE] += end - pos
    st[STRING_CAP] = max(st[STRING_CAP], st[STRING])
    st[BYTE_CAP] = max(st[BYTE_CAP], st[BYTE])
    return index  # type: ignore[no-any-return]


@njit
def intern(buf: Any, pos: int, end: int, st: Any, out: Any) -> int:
    """Return the number (from 1) of an attribute name, or UTF8 if it is new and not valid text."""
    spans, table = out[11], out[12]
    last = st[LAST]
    size = end - pos
    # Nodes repeat one another: try the name that followed the previous one the last time.
    guess = spans[2, last]
    if guess > 0 and spans[1, guess] == size:
        at = spans[0, guess]
        same = True
        for i in range(size):
            if buf[at + i] != buf[pos + i]:
                same = False
                break
        if same:
            st[LAST] = guess
            return guess  # type: ignore[no-any-return]
    code = 2166136261
    for i in range(pos, end):
        code = ((code ^ buf[i]) * 16777619) & 4294967295
    slot = code & (len(table) - 1)
    while True:
        known = table[slot]
        if known == 0:
            if not valid_text(buf, pos, end):
                return UTF8
            st[NAME] += 1
            known = st[NAME]
            table[slot] = known
            spans[0, known] = pos
            spans[1, known] = size
            break
        same = spans[1, known] == size
        at = spans[0, known]
        for i in range(size):
            if not same:
                break
            same = buf[at + i] == buf[pos + i]
        if same:
            break
        slot = (slot + 1) & (len(table) - 1)
    spans[2, last] = known
    st[LAST] = known
    return known  # type: ignore[no-any-return]


@njit
def wire_of(kind: int) -> int:
    """Return the wire type of a scalar kind."""
    if kind >= 29:
        return 2
    if kind == 3 or kind == 21 or kind == 25:  # noqa: PLR1714  Numba compiles this faster than a tuple
        return 1
    if kind == 5 or kind == 19 or kind == 23:  # noqa: PLR1714
        return 5
    return 0


@njit
def scalar(buf: Any, pos: int, end: int, kind: int, fill: bool, st: Any, out: Any) -> Any:
    """Read a value of a scalar kind; return (value or string index, next position)."""
    wire = wire_of(kind)
    if wire == 2:
        first, after = span(buf, pos, end)
        if after < 0:
            return 0, after
        if kind == 29 and not fill and not valid_text(buf, first, after):
            return 0, UTF8
        return add_string(buf, first, after, fill, st, out), after
    if wire == 0:
        value, pos = varint(buf, pos, end)
        if kind == 7 or kind == 11 or kind == 15:  # noqa: PLR1714
            value &= 4294967295
        if kind == 15 or kind == 17:  # noqa: PLR1714
            value = ((value >> 1) & 9223372036854775807) ^ -(value & 1)
        elif kind == 7 and value > 2147483647:
            value -= 4294967296
        elif kind == 27 and value != 0:
            value = 1
        return value, pos
    value, pos = fixed(buf, pos, end, 8 if wire == 1 else 4)
    if kind == 23 and value > 2147483647:
        value -= 4294967296
    return value, pos


@njit
def add_items(buf: Any, pos: int, end: int, kind: int, fill: bool, st: Any, out: Any) -> int:
    """Read a list message and append its items; return `end` or an error."""
    items = out[6]
    wire_item = wire_of(kind)
    while pos < end:
        st[ERROR_AT] = pos
        tag, pos = varint(buf, pos, end)
        if pos < 0:
            return pos
        number, wire = tag >> 3, tag & 7
        stop = -1
        if number == 1 and wire == wire_item:
            stop = pos
        elif number == 1 and wire == 2:
            pos, stop = span(buf, pos, end)
            if stop < 0:
                return stop
        elif number < 1 or number > 536870911:
            return FIELD
        else:
            st[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
            if pos < 0:
                return pos
            continue
        packed = wire != wire_item
        while pos < stop or not packed:
            value, pos = scalar(buf, pos, stop if packed else end, kind, fill, st, out)
            if pos < 0:
                return pos
            if fill:
                items[st[ITEM]] = value
            st[ITEM] += 1
            if not packed:
                break
        st[ITEM_CAP] = max(st[ITEM_CAP], st[ITEM])
    return end


@njit
def add_attribute(buf: Any, pos: int, end: int, fill: bool, st: Any, out: Any) -> int:
    """Read an AttributeProto and append it; return `end` or an error."""
    name_at, name_end, doc_at, doc_end, kind, value = pos, pos, pos, pos, 0, 0
    item0, string0, byte0 = st[ITEM], st[STRING], st[BYTE]
    while pos < end:
        st[ERROR_AT] = pos
        tag, pos = varint(buf, pos, end)
        if pos < 0:
            return pos
        number, wire = tag >> 3, tag & 7
        if number == 1 and wire == 2:
            if name_end > name_at and not fill and not valid_text(buf, name_at, name_end):
                return UTF8
            name_at, name_end = span(buf, pos, end)
            pos = name_end
        elif number == 2 and wire == 2:
            doc_at, doc_end = span(buf, pos, end)
            pos = doc_end
            if pos >= 0 and not fill and not valid_text(buf, doc_at, doc_end):
                return UTF8
        elif 3 <= number <= 32 and wire == (wire_of(number) if number & 1 else 2):
            # The last member of the oneof wins, but a list message that occurs twice is merged.
            if number != kind or number & 1:
                st[ITEM], st[STRING], st[BYTE] = item0, string0, byte0
            kind = number
            if number & 1:
                value, pos = scalar(buf, pos, end, number, fill, st, out)
            else:
                first, after = span(buf, pos, end)
                if after < 0:
                    return after
                pos = add_items(buf, first, after, number - 1, fill, st, out)
        elif number < 1 or number > 536870911:
            return FIELD
        else:
            st[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
        if pos < 0:
            return pos
    if kind > 0 and kind & 1 == 0:
        if fill:
            out[5][st[LIST] + 1] = st[ITEM]
        value = st[LIST]
        st[LIST] += 1
    if fill:
        known = intern(buf, name_at, name_end, st, out)
        if known < 0:
            st[ERROR_AT] = name_at
            return known
        out[2][st[ATTR]] = known - 1
        out[3][st[ATTR]] = kind
        out[4][st[ATTR]] = value
    if doc_end > doc_at:
        doc = add_string(buf, doc_at, doc_end, fill, st, out)
        if fill:
            out[10][0, st[DOC]] = st[ATTR]
            out[10][1, st[DOC]] = doc
        st[DOC] += 1
    st[ATTR] += 1
    return end


@njit
def add_dependencies(
    buf: Any, pos: int, end: int, wire: int, cursor: int, fill: bool, st: Any, deps: Any
) -> int:
    """Read a (packed) uint64 field of dependencies; return the next position or an error."""
    stop = end
    if wire == 2:
        pos, stop = span(buf, pos, end)
        if stop < 0:
            return stop
    at = st[cursor]
    while pos < stop:
        value, pos = varint(buf, pos, stop)
        if pos < 0:
            return pos
        if fill:
            deps[at] = value
        at += 1
        if wire == 0:
            break
    else:
        if wire == 0:
            return TRUNCATED
    st[cursor] = at
    return pos


@njit
def read_io(buf: Any, pos: int, end: int, at: int, fill: bool, st: Any) -> int:
    """Read an IOInfo into the six span slots from ``st[at]``; return `end` or an error."""
    while pos < end:
        st[ERROR_AT] = pos
        tag, pos = varint(buf, pos, end)
        if pos < 0:
            return pos
        number, wire = tag >> 3, tag & 7
        if 1 <= number <= 3 and wire == 2:
            first, pos = span(buf, pos, end)
            if pos >= 0 and not fill and not valid_text(buf, first, pos):
                return UTF8
            st[at + 2 * number - 2] = first
            st[at + 2 * number - 1] = pos
        elif number < 1 or number > 536870911:
            return FIELD
        else:
            st[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
        if pos < 0:
            return pos
    return end


@njit
def add_io(buf: Any, side: int, at: int, fill: bool, st: Any, out: Any) -> None:
    """Append the IOInfo in the span slots from ``st[at]`` to the sparse table of them."""
    if fill:
        out[9][0, st[IO]] = st[ROW]
        out[9][1, st[IO]] = side
    for field in range(3):
        first, after = st[at + 2 * field], st[at + 2 * field + 1]
        text = 0
        if after > first:
            text = add_string(buf, first, after, fill, st, out)
        if fill:
            out[9][2 + field, st[IO]] = text
    st[IO] += 1


@njit
def add_frame(buf: Any, pos: int, end: int, head: bool, fill: bool, st: Any, rows: Any, out: Any) -> int:
    """Read one frame, the GlobalMetadata (`head`) or a Node, and append it; return `end` or an error."""
    name_field, attr_field = (1, 2) if head else (2, 10)
    ident, kind, start, duration, name_at, name_end, seen = 0, 0, 0, 0, pos, pos, 0
    row = st[ROW]
    if fill:
        rows[CTRL_AT, row], rows[DATA_AT, row], rows[ATTR_AT, row] = st[CTRL], st[DATA], st[ATTR]
        st[LAST] = 0
    while pos < end:
        st[ERROR_AT] = pos
        tag, pos = varint(buf, pos, end)
        if pos < 0:
            return pos
        number, wire = tag >> 3, tag & 7
        if number == attr_field and wire == 2:
            first, after = span(buf, pos, end)
            if after < 0:
                return after
            pos = add_attribute(buf, first, after, fill, st, out)
        elif number == name_field and wire == 2:
            name_at, name_end = span(buf, pos, end)
            pos = name_end
            if pos >= 0 and not fill and not valid_text(buf, name_at, name_end):
                return UTF8
        elif number < 1 or number > 536870911:
            return FIELD
        elif head and wire == 0 and number < 12:
            return OLD_SCHEMA
        elif head:
            st[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
        elif number == 1 and wire == 0:
            ident, pos = varint(buf, pos, end)
        elif number == 3 and wire == 0:
            kind, pos = varint(buf, pos, end)
            kind &= 4294967295
            if kind > 2147483647:
                kind -= 4294967296
        elif number == 4 and (wire == 2 or wire == 0):  # noqa: PLR1714
            pos = add_dependencies(buf, pos, end, wire, CTRL, fill, st, out[0])
        elif number == 5 and (wire == 2 or wire == 0):  # noqa: PLR1714
            pos = add_dependencies(buf, pos, end, wire, DATA, fill, st, out[1])
        elif number == 6 and wire == 0:
            start, pos = varint(buf, pos, end)
        elif number == 7 and wire == 0:
            duration, pos = varint(buf, pos, end)
        elif (number == 8 or number == 9) and wire == 2:  # noqa: PLR1714
            if seen == 0:
                for i in range(SPANS, SPANS + 12):
                    st[i] = 0
            seen |= number - 7
            first, after = span(buf, pos, end)
            if after < 0:
                return after
            pos = read_io(buf, first, after, SPANS + 6 * (number - 8), fill, st)
        else:
            st[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
        if pos < 0:
            return pos
    name = 0
    if name_end > name_at:
        name = add_string(buf, name_at, name_end, fill, st, out)
    for side in range(2):
        if seen & (1 << side):
            add_io(buf, side, SPANS + 6 * side, fill, st, out)
    if fill:
        rows[ID, row], rows[TYPE, row], rows[START, row] = ident, kind, start
        rows[DURATION, row], rows[NAME_AT, row] = duration, name
    st[ROW] += 1
    return end


@njit
def decode(
    buf: Any, files: Any, fill: bool, st: Any, frame_ptr: Any, unknown: Any, rows: Any, out: Any
) -> int:
    """Decode the files between the offsets `files`; return 0, or an error with ``st[FILE]`` set.

    `out` holds ctrl, data, attr_name, attr_kind, attr_value, list_ptr, items, string_ptr, pool, io,
    docs, spans and table (the last two: interned attribute names and their hash table).
    """
    for i in range(STATE_SIZE):
        st[i] = 0
    st[STRING] = 1  # string 0 is the empty one
    st[STRING_CAP] = 1
    for f in range(len(files) - 1):
        st[FILE] = f
        pos, end = files[f], files[f + 1]
        frame_ptr[f] = st[ROW]
        st[UNKNOWN] = 0
        st[ERROR_AT] = pos
        if pos == end:
            return EMPTY
        head = True
        while pos < end:
            st[ERROR_AT] = pos
            first, after = span(buf, pos, end)
            if after < 0:
                return after
            pos = add_frame(buf, first, after, head, fill, st, rows, out)
            if pos < 0:
                return pos
            head = False
        unknown[f] = st[UNKNOWN]
    frame_ptr[len(files) - 1] = st[ROW]
    if fill:
        rows[CTRL_AT, st[ROW]], rows[DATA_AT, st[ROW]], rows[ATTR_AT, st[ROW]] = st[CTRL], st[DATA], st[ATTR]
    return 0
