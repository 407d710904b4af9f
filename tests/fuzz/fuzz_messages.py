"""Ways to break protobuf messages, alone and in files of them, whose lengths still fit."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fuzz_mutations import BYTES, Mutation


def _varint(data: bytes, start: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[start]
        start += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, start


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(data: bytes) -> list[tuple[int, int, bytes]]:
    """Return number, wire type and payload of the fields of a message.

    Raises:
        ValueError, IndexError: it is none.
    """
    found, start = [], 0
    while start < len(data):
        tag, begin = _varint(data, start)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            end = _varint(data, begin)[1]
        elif wire == 2:
            size, begin = _varint(data, begin)
            end = begin + size
        else:
            end = begin + {1: 8, 5: 4}[wire]
        if end > len(data) or not number:
            raise ValueError(end)
        found.append((number, wire, data[begin:end]))
        start = end
    return found


def _message(fields: Sequence[tuple[int, int, bytes]]) -> bytes:
    return b"".join(
        _encoded(number << 3 | wire) + (_encoded(len(payload)) if wire == 2 else b"") + payload
        for number, wire, payload in fields
    )


def message(data: bytes, rng: Random) -> bytes:
    """Break a field of a message, or of a message in it, and give all around it the right length."""
    try:
        fields = _fields(data)
    except (IndexError, KeyError, ValueError):
        return rng.choice(BYTES)(data, rng)
    if not fields:
        return rng.choice(BYTES)(data, rng)
    which = rng.randrange(len(fields))
    number, wire, payload = fields[which]
    how = rng.randrange(8)
    if how == 0:
        del fields[which]
    elif how == 1:
        fields.insert(rng.randrange(len(fields) + 1), fields[which])
    elif how == 2:
        fields[which] = (
            rng.choice([number + 1, rng.randrange(1, 40), (1 << 29) - 1, 1 << 29]),
            wire,
            payload,
        )
    elif how == 3 and wire != 2:
        fields[which] = (
            number,
            0,
            _encoded(rng.choice([0, 1, 2, 2**31, 2**32 - 1, 2**63, 2**64 - 1, rng.getrandbits(40)])),
        )
    elif how == 4:
        fields[which] = (number, rng.choice([0, 1, 2, 5, 3, 4, 6, 7]), payload)
    elif wire == 2:
        fields[which] = (number, wire, message(payload, rng))
    else:
        fields[which] = (number, wire, rng.choice(BYTES)(payload, rng))
    return _message(fields)


def frame(data: bytes, rng: Random) -> bytes:
    """Break one message of a file of messages, each after its length; or move, drop, repeat one."""
    frames, start = [], 0
    try:
        while start < len(data):
            size, start = _varint(data, start)
            frames.append(data[start : start + size])
            start += size
    except IndexError:
        pass
    if not frames:
        return rng.choice(BYTES)(data, rng)
    which = rng.randrange(len(frames))
    how = rng.randrange(8)
    if how == 0:
        frames.insert(rng.randrange(len(frames) + 1), frames.pop(which))
    elif how == 1:
        frames[which] = rng.choice(frames)
    else:
        frames[which] = message(frames[which], rng)
    return b"".join(_encoded(len(each)) + each for each in frames)


FRAMES: list[Mutation] = [frame] * 4
