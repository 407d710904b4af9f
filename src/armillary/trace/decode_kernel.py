"""Decoder of length-delimited Chakra ET: many files in one buffer to columns, in two passes or in one.

Of two passes, the first (`fill` is `COUNT`) checks everything and counts, the second (`WRITE`) writes. One pass
(`BOTH`) checks and writes into columns of estimated sizes; it gives up before they could overflow. `buf` is a uint8
array or, interpreted, a bytes object. All state and all columns live in one int64 array `m`, since every
array handed to a function costs time: ``m[0:BASES]`` are cursors and counts, ``m[BASES:FILES]`` the
first index of every column. Text goes to the uint8 array `pool`, name and kind of
attributes (name << 6 | kind) to the int32 array `heads`. Unsigned 64-bit values keep their bits.
Functions return a negative error code where they would return a position; ``m[ERROR_AT]`` says where.
"""

from __future__ import annotations

from typing import Any

from armillary.base.jit import inlined, inner, njit, use
from armillary.base.spans import spans
from armillary.trace.layout import ATTR_AT, CTRL_AT, DATA_AT, DURATION, ID, NAME_AT, RAW, START, TYPE

copy, same = spans()
wire = use("armillary.trace.wire_kernel")
varint, fixed, field, valid_text, wire_of, convert = (
    wire.varint, wire.fixed, wire.field, wire.valid_text, wire.wire_of, wire.convert,
)  # fmt: skip
LENGTH, UTF8, ERROR_AT = wire.LENGTH, wire.UTF8, wire.ERROR_AT
OLD_SCHEMA, EMPTY, NAMES, GROW = -7, -8, -9, -10
COUNT, WRITE, BOTH = 0, 1, 2

# Cursors, which end as counts. The *_CAP ones are high-water marks, since a oneof can be overwritten.
ROW, CTRL, DATA, ATTR, LIST, ITEM, STRING, BYTE, IO, DOC, NAME = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
ITEM_CAP, STRING_CAP, BYTE_CAP, LAST, UNKNOWN, FILE, SPANS = 11, 12, 13, 14, 15, 17, 18

# First index in `m` of each column, and the strides and the mask that go with some.
BASES = 30
AT_FRAME_PTR, AT_UNKNOWN, AT_ROWS, AT_CTRL, AT_DATA, AT_VALUE, AT_LIST = 30, 31, 32, 33, 34, 35, 36
AT_ITEM, AT_STRING, AT_IO, AT_DOC, AT_TABLE = 37, 38, 39, 40, 41
AT_NAME_FIRST, AT_NAME_SIZE, AT_NAME_NEXT = 42, 43, 44
ROW_STRIDE, IO_STRIDE, DOC_STRIDE, MASK, N_FILES = 45, 46, 47, 48, 49
ROOM, FILES = 50, 61
"""From `ROOM` on, the sizes of the columns that the cursors from `CTRL` to `DOC` fill, for `BOTH`, and most names."""


@inlined
def add_string(buf: Any, pos: int, end: int, fill: int, m: Any, pool: Any) -> Any:
    """Append bytes to the pool as one more string; return its index."""
    index = m[STRING]
    if fill:
        copy(pool, m[BYTE], buf, pos, end)
        m[m[AT_STRING] + index + 1] = m[BYTE] + end - pos
    m[STRING] = index + 1
    m[BYTE] += end - pos
    m[STRING_CAP] = max(m[STRING_CAP], m[STRING])
    m[BYTE_CAP] = max(m[BYTE_CAP], m[BYTE])
    return index


@inlined
def intern(buf: Any, pos: int, end: int, m: Any) -> Any:
    """Return the number (from 1) of an attribute name, UTF8 if it is not valid text, NAMES if there are too many."""
    # Names are kept as spans of the buffer: text is copied only once, after decoding.
    at_first, at_size, last, size = m[AT_NAME_FIRST], m[AT_NAME_SIZE], m[AT_NAME_NEXT] + m[LAST], end - pos
    # Nodes repeat one another: try the name that followed the previous one the last time.
    known = m[last]
    if known == 0 or m[at_size + known] != size or not same(buf, m[at_first + known], pos, size):
        # FNV-1a of 32 bits, into an open-addressing table that is at most half full.
        code = 2166136261
        for i in range(pos, end):
            code = ((code ^ buf[i]) * 16777619) & 4294967295
        slot = code & m[MASK]
        known = m[m[AT_TABLE] + slot]
        while known != 0 and (m[at_size + known] != size or not same(buf, m[at_first + known], pos, size)):
            slot = (slot + 1) & m[MASK]
            known = m[m[AT_TABLE] + slot]
        if known == 0:
            if not valid_text(buf, pos, end):
                return UTF8
            # A head is an int32 of which the kind takes 6 bits; 25 are left for the name.
            if m[NAME] >= min(33554430, m[ROOM + NAME]):
                return NAMES
            m[NAME] += 1
            known = m[NAME]
            m[m[AT_TABLE] + slot] = known
            m[at_first + known] = pos
            m[at_size + known] = size
        m[last] = known
    m[LAST] = known
    return known


@inner
def add_items(buf: Any, pos: int, end: int, kind: int, fill: int, m: Any, pool: Any) -> Any:
    """Read a list message whose items are of a scalar kind and append them; return `end` or an error."""
    wire_item = wire_of(kind)
    at = m[AT_ITEM]
    while pos < end:
        number, wire, value, after = field(buf, pos, end, m)
        if number < 0:
            return number
        if number == 1 and wire == wire_item:
            # Delimited fields of a list are strings; packed numbers come in the next branch.
            if wire == 2:
                if kind == 29 and fill != WRITE and not valid_text(buf, value, after):
                    return UTF8
                value = add_string(buf, value, after, fill, m, pool)
            else:
                value = convert(kind, value)
            if fill:
                m[at + m[ITEM]] = value
            m[ITEM] += 1
        elif number == 1 and wire == 2:
            # Packed: one delimited field with all items. Unpacked ones, a field each, may be mixed in.
            pos = value
            while pos < after:
                if wire_item == 0:
                    value, pos = varint(buf, pos, after)
                else:
                    value, pos = fixed(buf, pos, after, wire_item)
                if pos < 0:
                    return pos
                if fill:
                    m[at + m[ITEM]] = convert(kind, value)
                m[ITEM] += 1
        else:
            m[UNKNOWN] += 1
        pos = after
        m[ITEM_CAP] = max(m[ITEM_CAP], m[ITEM])
    return end


@inlined
def add_attribute(buf: Any, pos: int, end: int, fill: int, m: Any, heads: Any, pool: Any) -> Any:
    """Read an AttributeProto and append it; return `end` or an error."""
    name_at, name_end, doc_at, doc_end, kind, bits = pos, pos, pos, pos, 0, 0
    # Where to go back to if a later member of the oneof replaces the first.
    item0, string0, byte0 = m[ITEM], m[STRING], m[BYTE]
    while pos < end:
        number, wire, value, after = field(buf, pos, end, m)
        if number < 0:
            return number
        if number == 1 and wire == 2:
            if name_end > name_at and fill != WRITE and not valid_text(buf, name_at, name_end):
                return UTF8
            name_at, name_end = value, after
        elif 3 <= number <= 32 and wire == (wire_of(number) if number & 1 else 2):
            # The last member of the oneof wins, but a list message that occurs twice is merged.
            # Undo what the member before has appended; the *_CAP marks keep the room it took.
            if number != kind or number & 1:
                m[ITEM], m[STRING], m[BYTE] = item0, string0, byte0
            kind = number
            if number & 1 == 0:
                error = add_items(buf, value, after, number - 1, fill, m, pool)
                if error < 0:
                    return error
            elif wire == 2:
                if number == 29 and fill != WRITE and not valid_text(buf, value, after):
                    return UTF8
                bits = add_string(buf, value, after, fill, m, pool)
            else:
                bits = convert(number, value)
        elif number == 2 and wire == 2:
            if fill != WRITE and not valid_text(buf, value, after):
                return UTF8
            doc_at, doc_end = value, after
        else:
            m[UNKNOWN] += 1
        pos = after
    # A list ends where its items do, which is known only after all its parts.
    if kind > 0 and kind & 1 == 0:
        if fill:
            m[m[AT_LIST] + m[LIST] + 1] = m[ITEM]
        bits = m[LIST]
        m[LIST] += 1
    if fill:
        # Only when filling: the first pass has no table yet, and counts are enough for it.
        known = intern(buf, name_at, name_end, m)
        if known < 0:
            m[ERROR_AT] = name_at
            return known
        heads[m[ATTR]] = (known - 1) << 6 | kind
        m[m[AT_VALUE] + m[ATTR]] = bits
    if doc_end > doc_at:
        doc = add_string(buf, doc_at, doc_end, fill, m, pool)
        if fill:
            # Doc strings are rare, so they are a sparse table (attribute, string) in two rows.
            m[m[AT_DOC] + m[DOC]] = m[ATTR]
            m[m[AT_DOC] + m[DOC_STRIDE] + m[DOC]] = doc
        m[DOC] += 1
    m[ATTR] += 1
    return end


@inlined
def add_dependencies(buf: Any, pos: int, end: int, at: int, fill: int, m: Any) -> Any:
    """Write packed ids to ``m[at:]``; return how many, or an error."""
    count = 0
    while pos < end:
        value, pos = varint(buf, pos, end)
        if pos < 0:
            return pos
        if fill:
            m[at + count] = value
        count += 1
    return count


@inner
def read_io(buf: Any, pos: int, end: int, at: int, fill: int, m: Any) -> Any:
    """Read an IOInfo into the six span slots from ``m[at]``; return `end` or an error."""
    while pos < end:
        number, wire, value, after = field(buf, pos, end, m)
        if number < 0:
            return number
        if number <= 3 and wire == 2:
            if fill != WRITE and not valid_text(buf, value, after):
                return UTF8
            m[at + 2 * number - 2] = value
            m[at + 2 * number - 1] = after
        else:
            m[UNKNOWN] += 1
        pos = after
    return end


@inner
def add_io(buf: Any, side: int, at: int, fill: int, m: Any, pool: Any) -> None:
    """Append the IOInfo in the span slots from ``m[at]`` to the sparse table of them."""
    at_io, stride = m[AT_IO] + m[IO], m[IO_STRIDE]
    if fill:
        m[at_io] = m[ROW]
        m[at_io + stride] = side
    for part in range(3):
        first, after = m[at + 2 * part], m[at + 2 * part + 1]
        text = 0
        if after > first:
            text = add_string(buf, first, after, fill, m, pool)
        if fill:
            m[at_io + (2 + part) * stride] = text
    m[IO] += 1


@inlined
def add_frame(buf: Any, pos: int, end: int, head: bool, fill: int, m: Any, heads: Any, pool: Any) -> Any:
    """Read one frame, the GlobalMetadata (`head`) or a Node, and append it; return `end` or an error."""
    # GlobalMetadata has version = 1 and attr = 2, Node has name = 2 and attr = 10.
    name_field, attr_field = (1, 2) if head else (2, 10)
    ident, kind, start, duration, name_at, name_end, seen = 0, 0, 0, 0, pos, pos, 0
    at_row, stride = m[AT_ROWS] + m[ROW], m[ROW_STRIDE]
    if fill:
        m[at_row + CTRL_AT * stride], m[at_row + DATA_AT * stride] = m[CTRL], m[DATA]
        m[at_row + ATTR_AT * stride] = m[ATTR]
        # Nodes of one kind list the same names in the same order, so the chain of guesses
        # starts anew in each frame.
        m[LAST] = 0
    while pos < end:
        number, wire, value, after = field(buf, pos, end, m)
        if number < 0:
            return number
        if wire == 2 and number == attr_field:
            error = add_attribute(buf, value, after, fill, m, heads, pool)
            if error < 0:
                return error
        elif wire == 2 and number == name_field:
            if fill != WRITE and not valid_text(buf, value, after):
                return UTF8
            name_at, name_end = value, after
        elif head:
            # GlobalMetadata has no varint: this is the id or the type of a node, as files begin
            # that were written before schema 0.0.4.
            if wire == 0 and number < 12:
                return OLD_SCHEMA
            m[UNKNOWN] += 1
        elif wire == 0 and number == 1:
            ident = value
        elif wire == 0 and number == 3:
            # An enum is an int32, which protobuf writes as a varint of 64 bits if it is negative.
            kind = value & 4294967295
            if kind > 2147483647:
                kind -= 4294967296
        elif (wire == 0 or wire == 2) and (number == 4 or number == 5):  # noqa: PLR1714
            # Dependencies come packed, or from old writers as one field each.
            cursor, at = (CTRL, m[AT_CTRL]) if number == 4 else (DATA, m[AT_DATA])
            at += m[cursor]
            if wire == 2:
                count = add_dependencies(buf, value, after, at, fill, m)
                if count < 0:
                    return count
                m[cursor] += count
            else:
                if fill:
                    m[at] = value
                m[cursor] += 1
        elif wire == 0 and number == 6:
            start = value
        elif wire == 0 and number == 7:
            duration = value
        elif wire == 2 and (number == 8 or number == 9):  # noqa: PLR1714
            if seen == 0:
                # Both sides have six slots each; an absent part must read as an empty span.
                for i in range(SPANS, SPANS + 12):
                    m[i] = 0
            seen |= number - 7
            error = read_io(buf, value, after, SPANS + 6 * (number - 8), fill, m)
            if error < 0:
                return error
        elif number > 10:
            # A field of a newer schema, with its tag, is a nameless attribute.
            bits = add_string(buf, pos, after, fill, m, pool)
            if fill:
                known = intern(buf, pos, pos, m)
                if known < 0:
                    return known
                heads[m[ATTR]] = (known - 1) << 6 | RAW
                m[m[AT_VALUE] + m[ATTR]] = bits
            m[ATTR] += 1
        else:
            m[UNKNOWN] += 1
        pos = after
    # After the loop since the last name wins, as in protobuf.
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


@njit
def decode(buf: Any, fill: int, m: Any, heads: Any, pool: Any) -> Any:
    """Decode the files that lie between the offsets at ``m[FILES:]``; return 0 or an error."""
    for i in range(BASES):
        m[i] = 0
    m[STRING], m[STRING_CAP] = 1, 1  # string 0 is the empty one
    for f in range(m[N_FILES]):
        m[FILE] = f
        pos, end = m[FILES + f], m[FILES + f + 1]
        m[m[AT_FRAME_PTR] + f] = m[ROW]
        # Counted by file: it is a finding about each of them.
        m[UNKNOWN] = 0
        m[ERROR_AT] = pos
        if pos == end:
            return EMPTY
        head = True
        while pos < end:
            m[ERROR_AT] = pos
            size, pos = varint(buf, pos, end)
            if pos < 0:
                return pos
            if size < 0 or size > end - pos:
                return LENGTH
            if fill == BOTH:
                # A byte of a frame appends no more than one of anything.
                for cursor in range(CTRL, DOC + 1):
                    if m[cursor] + size > m[ROOM + cursor]:
                        return GROW
            pos = add_frame(buf, pos, pos + size, head, fill, m, heads, pool)
            if pos < 0:
                return pos
            head = False
        m[m[AT_UNKNOWN] + f] = m[UNKNOWN]
    m[m[AT_FRAME_PTR] + m[N_FILES]] = m[ROW]
    if fill:
        # The column after the last frame closes the CSR offsets.
        last, stride = m[AT_ROWS] + m[ROW], m[ROW_STRIDE]
        m[last + CTRL_AT * stride], m[last + DATA_AT * stride] = m[CTRL], m[DATA]
        m[last + ATTR_AT * stride] = m[ATTR]
    return 0
