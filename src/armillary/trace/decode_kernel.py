"""Decoder of length-delimited Chakra ET: many files in one buffer to columns, in two passes.

The first pass (`fill` false) checks everything and counts, the second writes. `buf` is a uint8 array
or, interpreted, a bytes object. All state and all columns live in one int64 array `m`, since every
array handed to a function costs time: ``m[0:BASES]`` are cursors and counts, ``m[BASES:FILES]`` the
first index of every column. Text goes to the uint8 array `pool`, name and kind of
attributes (name << 6 | kind) to the int32 array `heads`. Unsigned 64-bit values keep their bits.
Functions return a negative error code where they would return a position; ``m[ERROR_AT]`` says where.
"""

from __future__ import annotations

from typing import Any

from armillary.jit import njit_no_alloc

TRUNCATED, LONG_VARINT, LENGTH, WIRE, FIELD, UTF8, OLD_SCHEMA, EMPTY, NAMES = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
    -7,
    -8,
    -9,
)

# Cursors, which end as counts. The *_CAP ones are high-water marks, since a oneof can be overwritten.
ROW, CTRL, DATA, ATTR, LIST, ITEM, STRING, BYTE, IO, DOC, NAME = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
ITEM_CAP, STRING_CAP, BYTE_CAP, LAST, UNKNOWN, ERROR_AT, FILE, SPANS = 11, 12, 13, 14, 15, 16, 17, 18

# First index in `m` of each column, and the strides and the mask that go with some.
BASES = 30
AT_FRAME_PTR, AT_UNKNOWN, AT_ROWS, AT_CTRL, AT_DATA, AT_VALUE, AT_LIST, AT_ITEM = (
    30,
    31,
    32,
    33,
    34,
    35,
    36,
    37,
)
AT_STRING, AT_IO, AT_DOC, AT_NAME_FIRST, AT_NAME_SIZE, AT_NAME_NEXT, AT_TABLE = 38, 39, 40, 41, 42, 43, 44
ROW_STRIDE, IO_STRIDE, DOC_STRIDE, MASK, N_FILES, FILES = 45, 46, 47, 48, 49, 50

# Rows of the matrix with one column per frame.
ID, TYPE, START, DURATION, NAME_AT, CTRL_AT, DATA_AT, ATTR_AT, ROW_FIELDS = 0, 1, 2, 3, 4, 5, 6, 7, 8


@njit_no_alloc
def long_varint(buf: Any, pos: int, end: int) -> Any:
    """Read a varint of any length; return (value as int64, next position)."""
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


@njit_no_alloc
def varint(buf: Any, pos: int, end: int) -> Any:
    """Read a varint; return (value as int64, next position)."""
    # Most are one byte long; this part is small enough to be inlined.
    if pos < end and buf[pos] < 128:
        return buf[pos] & 127, pos + 1
    return long_varint(buf, pos, end)


@njit_no_alloc
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


@njit_no_alloc
def span(buf: Any, pos: int, end: int) -> Any:
    """Read the length of a delimited field; return (first position, position after it)."""
    size, at = varint(buf, pos, end)
    if at < 0:
        return 0, at
    if size < 0 or size > end - at:
        return 0, LENGTH
    return at, at + size


@njit_no_alloc
def skip(buf: Any, pos: int, end: int, wire: int) -> Any:
    """Return the position after an unknown field."""
    if wire == 0:
        return varint(buf, pos, end)[1]
    if wire == 1:
        return pos + 8 if end - pos >= 8 else TRUNCATED
    if wire == 5:
        return pos + 4 if end - pos >= 4 else TRUNCATED
    if wire == 2:
        return span(buf, pos, end)[1]
    return WIRE


@njit_no_alloc
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


@njit_no_alloc
def add_string(buf: Any, pos: int, end: int, fill: bool, m: Any, pool: Any) -> Any:
    """Append bytes to the pool as one more string; return its index."""
    index = m[STRING]
    if fill:
        at = m[BYTE] - pos
        for i in range(pos, end):
            pool[at + i] = buf[i]
        m[m[AT_STRING] + index + 1] = at + end
    m[STRING] = index + 1
    m[BYTE] += end - pos
    m[STRING_CAP] = max(m[STRING_CAP], m[STRING])
    m[BYTE_CAP] = max(m[BYTE_CAP], m[BYTE])
    return index


@njit_no_alloc
def equal(buf: Any, a: int, b: int, size: int) -> bool:
    """Say whether two parts of the buffer hold the same bytes."""
    for i in range(size):  # noqa: SIM110  a generator would need reference counts
        if buf[a + i] != buf[b + i]:
            return False
    return True


@njit_no_alloc
def intern(buf: Any, pos: int, end: int, m: Any) -> Any:
    """Return the number (from 1) of an attribute name, or UTF8 if it is new and not valid text."""
    at_first, at_size, last, size = m[AT_NAME_FIRST], m[AT_NAME_SIZE], m[AT_NAME_NEXT] + m[LAST], end - pos
    # Nodes repeat one another: try the name that followed the previous one the last time.
    known = m[last]
    if known == 0 or m[at_size + known] != size or not equal(buf, m[at_first + known], pos, size):
        code = 2166136261
        for i in range(pos, end):
            code = ((code ^ buf[i]) * 16777619) & 4294967295
        slot = code & m[MASK]
        known = m[m[AT_TABLE] + slot]
        while known != 0 and (m[at_size + known] != size or not equal(buf, m[at_first + known], pos, size)):
            slot = (slot + 1) & m[MASK]
            known = m[m[AT_TABLE] + slot]
        if known == 0:
            if not valid_text(buf, pos, end):
                return UTF8
            if m[NAME] >= 33554430:
                return NAMES
            m[NAME] += 1
            known = m[NAME]
            m[m[AT_TABLE] + slot] = known
            m[at_first + known] = pos
            m[at_size + known] = size
        m[last] = known
    m[LAST] = known
    return known


@njit_no_alloc
def wire_of(kind: int) -> Any:
    """Return the wire type of a scalar kind."""
    if kind >= 29:
        return 2
    if kind == 3 or kind == 21 or kind == 25:  # noqa: PLR1714  Numba compiles this faster than a tuple
        return 1
    if kind == 5 or kind == 19 or kind == 23:  # noqa: PLR1714
        return 5
    return 0


@njit_no_alloc
def scalar(buf: Any, pos: int, end: int, kind: int, fill: bool, m: Any, pool: Any) -> Any:
    """Read a value of a scalar kind; return (value or string index, next position)."""
    wire = wire_of(kind)
    if wire == 2:
        first, after = span(buf, pos, end)
        if after < 0:
            return 0, after
        if kind == 29 and not fill and not valid_text(buf, first, after):
            return 0, UTF8
        return add_string(buf, first, after, fill, m, pool), after
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


@njit_no_alloc
def add_items(buf: Any, pos: int, end: int, kind: int, fill: bool, m: Any, pool: Any) -> Any:
    """Read a list message and append its items; return `end` or an error."""
    wire_item = wire_of(kind)
    while pos < end:
        m[ERROR_AT] = pos
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
            m[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
            if pos < 0:
                return pos
            continue
        packed = wire != wire_item
        while pos < stop or not packed:
            value, pos = scalar(buf, pos, stop if packed else end, kind, fill, m, pool)
            if pos < 0:
                return pos
            if fill:
                m[m[AT_ITEM] + m[ITEM]] = value
            m[ITEM] += 1
            if not packed:
                break
        m[ITEM_CAP] = max(m[ITEM_CAP], m[ITEM])
    return end


@njit_no_alloc
def add_attribute(buf: Any, pos: int, end: int, fill: bool, m: Any, heads: Any, pool: Any) -> Any:
    """Read an AttributeProto and append it; return `end` or an error."""
    name_at, name_end, doc_at, doc_end, kind, value = pos, pos, pos, pos, 0, 0
    item0, string0, byte0 = m[ITEM], m[STRING], m[BYTE]
    while pos < end:
        m[ERROR_AT] = pos
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
                m[ITEM], m[STRING], m[BYTE] = item0, string0, byte0
            kind = number
            if number & 1:
                value, pos = scalar(buf, pos, end, number, fill, m, pool)
            else:
                first, after = span(buf, pos, end)
                if after < 0:
                    return after
                pos = add_items(buf, first, after, number - 1, fill, m, pool)
        elif number < 1 or number > 536870911:
            return FIELD
        else:
            m[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
        if pos < 0:
            return pos
    if kind > 0 and kind & 1 == 0:
        if fill:
            m[m[AT_LIST] + m[LIST] + 1] = m[ITEM]
        value = m[LIST]
        m[LIST] += 1
    if fill:
        known = intern(buf, name_at, name_end, m)
        if known < 0:
            m[ERROR_AT] = name_at
            return known
        heads[m[ATTR]] = (known - 1) << 6 | kind
        m[m[AT_VALUE] + m[ATTR]] = value
    if doc_end > doc_at:
        doc = add_string(buf, doc_at, doc_end, fill, m, pool)
        if fill:
            m[m[AT_DOC] + m[DOC]] = m[ATTR]
            m[m[AT_DOC] + m[DOC_STRIDE] + m[DOC]] = doc
        m[DOC] += 1
    m[ATTR] += 1
    return end


@njit_no_alloc
def add_dependencies(
    buf: Any, pos: int, end: int, wire: int, cursor: int, fill: bool, m: Any, base: int
) -> Any:
    """Read a (packed) uint64 field of dependencies; return the next position or an error."""
    stop = end
    if wire == 2:
        pos, stop = span(buf, pos, end)
        if stop < 0:
            return stop
    at = m[cursor]
    while pos < stop:
        value, pos = varint(buf, pos, stop)
        if pos < 0:
            return pos
        if fill:
            m[base + at] = value
        at += 1
        if wire == 0:
            break
    else:
        if wire == 0:
            return TRUNCATED
    m[cursor] = at
    return pos


@njit_no_alloc
def read_io(buf: Any, pos: int, end: int, at: int, fill: bool, m: Any) -> Any:
    """Read an IOInfo into the six span slots from ``m[at]``; return `end` or an error."""
    while pos < end:
        m[ERROR_AT] = pos
        tag, pos = varint(buf, pos, end)
        if pos < 0:
            return pos
        number, wire = tag >> 3, tag & 7
        if 1 <= number <= 3 and wire == 2:
            first, pos = span(buf, pos, end)
            if pos >= 0 and not fill and not valid_text(buf, first, pos):
                return UTF8
            m[at + 2 * number - 2] = first
            m[at + 2 * number - 1] = pos
        elif number < 1 or number > 536870911:
            return FIELD
        else:
            m[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
        if pos < 0:
            return pos
    return end


@njit_no_alloc
def add_io(buf: Any, side: int, at: int, fill: bool, m: Any, pool: Any) -> None:
    """Append the IOInfo in the span slots from ``m[at]`` to the sparse table of them."""
    at_io, stride = m[AT_IO] + m[IO], m[IO_STRIDE]
    if fill:
        m[at_io] = m[ROW]
        m[at_io + stride] = side
    for field in range(3):
        first, after = m[at + 2 * field], m[at + 2 * field + 1]
        text = 0
        if after > first:
            text = add_string(buf, first, after, fill, m, pool)
        if fill:
            m[at_io + (2 + field) * stride] = text
    m[IO] += 1


@njit_no_alloc
def add_frame(buf: Any, pos: int, end: int, head: bool, fill: bool, m: Any, heads: Any, pool: Any) -> Any:
    """Read one frame, the GlobalMetadata (`head`) or a Node, and append it; return `end` or an error."""
    name_field, attr_field = (1, 2) if head else (2, 10)
    ident, kind, start, duration, name_at, name_end, seen = 0, 0, 0, 0, pos, pos, 0
    row = m[ROW]
    at_row, stride = m[AT_ROWS] + row, m[ROW_STRIDE]
    if fill:
        m[at_row + CTRL_AT * stride], m[at_row + DATA_AT * stride] = m[CTRL], m[DATA]
        m[at_row + ATTR_AT * stride] = m[ATTR]
        m[LAST] = 0
    while pos < end:
        m[ERROR_AT] = pos
        tag, pos = varint(buf, pos, end)
        if pos < 0:
            return pos
        number, wire = tag >> 3, tag & 7
        if number == attr_field and wire == 2:
            first, after = span(buf, pos, end)
            if after < 0:
                return after
            pos = add_attribute(buf, first, after, fill, m, heads, pool)
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
            m[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
        elif number == 1 and wire == 0:
            ident, pos = varint(buf, pos, end)
        elif number == 3 and wire == 0:
            kind, pos = varint(buf, pos, end)
            kind &= 4294967295
            if kind > 2147483647:
                kind -= 4294967296
        elif number == 4 and (wire == 2 or wire == 0):  # noqa: PLR1714
            pos = add_dependencies(buf, pos, end, wire, CTRL, fill, m, m[AT_CTRL])
        elif number == 5 and (wire == 2 or wire == 0):  # noqa: PLR1714
            pos = add_dependencies(buf, pos, end, wire, DATA, fill, m, m[AT_DATA])
        elif number == 6 and wire == 0:
            start, pos = varint(buf, pos, end)
        elif number == 7 and wire == 0:
            duration, pos = varint(buf, pos, end)
        elif (number == 8 or number == 9) and wire == 2:  # noqa: PLR1714
            if seen == 0:
                for i in range(SPANS, SPANS + 12):
                    m[i] = 0
            seen |= number - 7
            first, after = span(buf, pos, end)
            if after < 0:
                return after
            pos = read_io(buf, first, after, SPANS + 6 * (number - 8), fill, m)
        else:
            m[UNKNOWN] += 1
            pos = skip(buf, pos, end, wire)
        if pos < 0:
            return pos
    name = 0
    if name_end > name_at:
        name = add_string(buf, name_at, name_end, fill, m, pool)
    for side in range(2):
        if seen & (1 << side):
            add_io(buf, side, SPANS + 6 * side, fill, m, pool)
    if fill:
        m[at_row + ID * stride], m[at_row + TYPE * stride], m[at_row + START * stride] = ident, kind, start
        m[at_row + DURATION * stride], m[at_row + NAME_AT * stride] = duration, name
    m[ROW] += 1
    return end


@njit_no_alloc
def decode(buf: Any, fill: bool, m: Any, heads: Any, pool: Any) -> Any:
    """Decode the files that lie between the offsets at ``m[FILES:]``; return 0 or an error."""
    for i in range(BASES):
        m[i] = 0
    m[STRING], m[STRING_CAP] = 1, 1  # string 0 is the empty one
    for f in range(m[N_FILES]):
        m[FILE] = f
        pos, end = m[FILES + f], m[FILES + f + 1]
        m[m[AT_FRAME_PTR] + f] = m[ROW]
        m[UNKNOWN] = 0
        m[ERROR_AT] = pos
        if pos == end:
            return EMPTY
        head = True
        while pos < end:
            m[ERROR_AT] = pos
            first, after = span(buf, pos, end)
            if after < 0:
                return after
            pos = add_frame(buf, first, after, head, fill, m, heads, pool)
            if pos < 0:
                return pos
            head = False
        m[m[AT_UNKNOWN] + f] = m[UNKNOWN]
    m[m[AT_FRAME_PTR] + m[N_FILES]] = m[ROW]
    if fill:
        last, stride = m[AT_ROWS] + m[ROW], m[ROW_STRIDE]
        m[last + CTRL_AT * stride], m[last + DATA_AT * stride] = m[CTRL], m[DATA]
        m[last + ATTR_AT * stride] = m[ATTR]
    return 0
