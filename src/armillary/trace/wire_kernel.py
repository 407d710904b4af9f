"""The protobuf wire format: varints, fields, text and the kinds of values.

Where a position is returned, an error is a negative one.
"""

from __future__ import annotations

from typing import Any

from armillary.base.jit import inlined, inner

TRUNCATED, LONG_VARINT, LENGTH, WIRE, FIELD, UTF8 = -1, -2, -3, -4, -5, -6

ERROR_AT = 16
"""Where in the kernel's memory `field` leaves the position it reads from, for messages."""


@inner
def long_varint(buf: Any, pos: int, end: int) -> Any:
    """Read a varint of any length; return (value as int64, next position)."""
    value = 0
    shift = 0
    while pos < end:
        byte = buf[pos]
        pos += 1
        # The tenth byte holds bit 63 alone, which is the sign of an int64.
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


@inlined
def varint(buf: Any, pos: int, end: int) -> Any:
    """Read a varint; return (value as int64, next position)."""
    # Most are one byte long; this part is small enough to be inlined.
    if pos < end and buf[pos] < 128:
        return buf[pos] & 127, pos + 1
    return long_varint(buf, pos, end)


@inner
def fixed(buf: Any, pos: int, end: int, wire: int) -> Any:
    """Read 8 bytes as int64 (wire type 1) or 4 as uint32 (5); return (value, next position)."""
    size = 8 if wire == 1 else 4
    if end - pos < size:
        return 0, TRUNCATED
    value = 0
    for i in range(size):
        # The mask widens a uint8 before it is shifted; a bytes object is not changed by it.
        byte = buf[pos + i] & 255
        # The top byte carries the sign: the sum must stay within int64.
        if i == 7 and byte > 127:
            byte -= 256
        value |= byte << (8 * i)
    return value, pos + size


@inlined
def field(buf: Any, pos: int, end: int, m: Any) -> Any:
    """Read one field of a message.

    Returns:
        Its number (or an error), its wire type, its value (the first position where it is
        delimited) and the position after it.
    """
    m[ERROR_AT] = pos
    tag, pos = varint(buf, pos, end)
    if pos < 0:
        return pos, 0, 0, 0
    number, wire = tag >> 3, tag & 7
    # 2**29 - 1 is the highest field number of protobuf.
    if number < 1 or number > 536870911:
        return FIELD, 0, 0, 0
    value = 0
    if wire == 0:
        value, pos = varint(buf, pos, end)
    elif wire == 2:
        size, value = varint(buf, pos, end)
        # Delimited: the value is where the bytes begin; an error of the size comes first.
        pos = value + size
        if value < 0:
            pos = value
        elif size < 0 or size > end - value:
            pos = LENGTH
    elif wire == 1 or wire == 5:  # noqa: PLR1714
        value, pos = fixed(buf, pos, end, wire)
    else:
        # 3 and 4 are groups, which proto3 does not have; 6 and 7 are not assigned.
        pos = WIRE
    if pos < 0:
        number = pos
    return number, wire, value, pos


@inner
def valid_text(buf: Any, pos: int, end: int) -> bool:
    """Return whether the bytes are UTF-8 (no surrogates, no overlong forms)."""
    # No byte with its top bit set means ASCII, which nearly all texts are.
    seen = 0
    # What is never true tells the compiler that no index counts from the end of the array.
    if pos < 0:
        return False
    for i in range(pos, end):
        seen |= buf[i]
    if seen < 128:
        return True
    while pos < end:
        first = buf[pos] & 255
        pos += 1
        if first < 128:
            continue
        # Table 3-7 of the Unicode standard: 0xC0 and 0xC1 could only start overlong forms.
        low, high = 128, 191
        if 194 <= first <= 223:
            more = 1
        elif 224 <= first <= 239:
            more = 2
            # 0xE0 below 0xA0 is overlong; 0xED from 0xA0 on would be a surrogate.
            if first == 224:
                low = 160
            elif first == 237:
                high = 159
        elif 240 <= first <= 244:
            more = 3
            # 0xF0 below 0x90 is overlong; 0xF4 from 0x90 on is above U+10FFFF.
            if first == 240:
                low = 144
            elif first == 244:
                high = 143
        else:
            return False
        for _ in range(more):
            if pos >= end or buf[pos] < low or buf[pos] > high:
                return False
            # Only the first continuation byte has bounds of its own.
            low, high = 128, 191
            pos += 1
    return True


@inlined
def wire_of(kind: int) -> Any:
    """Return the wire type of a scalar kind."""
    if kind >= 29:
        return 2
    if kind == 3 or kind == 21 or kind == 25:  # noqa: PLR1714  Numba compiles this faster than a tuple
        return 1
    if kind == 5 or kind == 19 or kind == 23:  # noqa: PLR1714
        return 5
    return 0


@inlined
def convert(kind: int, value: int) -> int:
    """Return the number that the wire bits `value` stand for in a scalar kind."""
    # Kinds of 32 bits keep the low ones, as protobuf does with longer varints.
    if kind == 7 or kind == 11 or kind == 15:  # noqa: PLR1714
        value &= 4294967295
    if kind == 15 or kind == 17:  # noqa: PLR1714
        # Undo zigzag; the mask makes the shift a logical one.
        return ((value >> 1) & 9223372036854775807) ^ -(value & 1)
    if kind == 27:
        return 1 if value != 0 else 0
    if (kind == 7 or kind == 23) and value > 2147483647:  # noqa: PLR1714
        return value - 4294967296
    return value
