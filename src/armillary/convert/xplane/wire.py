"""Walk protobuf messages without their schema's program: fields of bytes that nobody vouches for."""

from __future__ import annotations

from collections.abc import Iterator

from armillary.base import jit
from armillary.base.errors import InputError

_wire = jit.load("armillary.trace.wire_kernel", "interpreted")

Part = tuple[int, int]
"""Where a message begins, and the byte behind it."""


class Wire:
    """The bytes of a message, and what it is for errors."""

    def __init__(self, data: bytes, name: str, expected: str) -> None:
        self.data, self.name, self.expected = data, name, expected
        self.whole = (0, len(data))

    def fields(self, part: Part) -> Iterator[tuple[int, int, int, int]]:
        """Yield number, wire type, value (or first byte) and the byte behind it of each field of a message.

        Raises:
            InputError: the bytes are no message; names the byte.
        """
        at, end = part
        state = [0] * (_wire.ERROR_AT + 1)
        while at < end:
            number, wire, value, after = _wire.field(self.data, at, end, state)
            if number < 0:
                raise self.damaged(at, f"expected fields of {self.expected}")
            yield number, wire, value, after
            at = after

    def messages(self, part: Part) -> Iterator[tuple[int, Part]]:
        """Yield number and place of the fields of a message that have a length."""
        for number, wire, value, after in self.fields(part):
            if wire == 2:
                yield number, (value, after)

    def numbers(self, part: Part, wanted: int) -> list[int]:
        """Return the whole numbers of a repeated field, which may be packed."""
        found = []
        for number, wire, value, after in self.fields(part):
            if number == wanted and wire == 0:
                found.append(value)
            elif number == wanted and wire == 2:
                at = value
                while at < after:
                    one, at = _wire.varint(self.data, at, after)
                    if at < 0:
                        raise self.damaged(value, "expected whole numbers")
                    found.append(one)
        return found

    def text(self, part: Part) -> str:
        """Return a text."""
        return self.data[part[0] : part[1]].decode("utf-8", "replace")

    def damaged(self, at: int, what: str) -> InputError:
        """Return the refusal of what stands at a byte."""
        return InputError(f"{self.name}: byte {at} of {len(self.data)}: {what}")
