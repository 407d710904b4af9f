"""Shapes of HLO values: arrays and tuples, their elements and bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from math import prod

from armillary.convert.hlo.source import Source

# A pred takes a byte. Other names carry their bits: s4, bf16 and c64 do not follow the pattern, f8e4m3fn does.
_BITS = {
    "pred": 8, "token": 0, "opaque": 0, "bf16": 16, "tf32": 32, "c64": 64, "c128": 128,
}  # fmt: skip
_SIZES = frozenset((0, 1, 2, 4, 6, 8, 16, 32, 64, 128))
_NUMBER = re.compile(r"[suf](\d{1,18})(?:e\d+m\d+\w*)?")

ARRAY = re.compile(r"([a-z]\w*)\[([^\]\n]*)\](?:\{[^{}\n]*\})?")
# A bounded dynamic dimension, <=8, counts at its bound.
_DIMENSION = re.compile(r"\s*(?:<=)?(\d{1,18})\s*")
_DEEPEST = 100


@dataclass(frozen=True, eq=False)
class Shape:
    """An array of `dims`, or a tuple of `parts`."""

    bits: int = 0
    """Bits of one element."""
    dims: tuple[int, ...] = ()
    parts: tuple[Shape, ...] | None = None

    @cached_property
    def elements(self) -> int:
        """Elements of the array, or of all arrays of the tuple."""
        return prod(self.dims) if self.parts is None else sum(part.elements for part in self.parts)

    @cached_property
    def bytes(self) -> int:
        """Bytes of the array, or of all arrays of the tuple; elements below a byte are packed."""
        if self.parts is None:
            return (self.elements * self.bits + 7) // 8
        return sum(part.bytes for part in self.parts)

    @cached_property
    def leaves(self) -> tuple[Shape, ...]:
        """The arrays in it."""
        if self.parts is None:
            return (self,)
        return tuple(leaf for part in self.parts for leaf in part.leaves)


class Shapes:
    """Reads shapes; equal texts return the same object."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.arrays: dict[str, Shape] = {}

    def read(self, at: int, depth: int = 0) -> tuple[Shape, int]:
        """Return the shape at a position, and the position after it.

        Raises:
            InputError: there is no shape.
        """
        text = self.source.text
        match = ARRAY.match(text, at)
        if match:
            found = self.arrays.get(match[0])
            if found is None:
                found = self.arrays[match[0]] = self._array(match)
            return found, match.end()
        if depth > _DEEPEST:
            self.source.fail(at, f"a tuple is nested deeper than {_DEEPEST}")
        if text.startswith("b(", at):  # a buffer
            found, at = self.read(at + 2, depth + 1)
            if not text.startswith(")", at):
                self.source.fail(at, f"found {self.source.excerpt(at)}, expected ')'")
            return found, at + 1
        if not text.startswith("(", at):
            self.source.fail(
                at, f"found {self.source.excerpt(at)}, expected a shape such as f32[8,64]{{1,0}} or a tuple"
            )
        return self._tuple(at, depth)

    def _tuple(self, at: int, depth: int) -> tuple[Shape, int]:
        text, parts = self.source.text, []
        at = _blank(text, at + 1)
        while not text.startswith(")", at):
            part, at = self.read(at, depth + 1)
            parts.append(part)
            at = _blank(text, at)
            if text.startswith(",", at):
                at = _blank(text, at + 1)
            elif not text.startswith(")", at):
                self.source.fail(
                    at, f"found {self.source.excerpt(at)}, expected ',' or ')' in a tuple's shape"
                )
        return Shape(parts=tuple(parts)), at + 1

    def _array(self, match: re.Match[str]) -> Shape:
        name, dims = match[1], match[2].strip()
        number = _NUMBER.fullmatch(name)
        bits = _BITS.get(name, int(number[1]) if number else -1)
        if bits not in _SIZES:
            self.source.fail(
                match.start(), f"element type '{name}' is unknown, expected one such as f32 or s8"
            )
        sizes = []
        for part in dims.split(",") if dims else ():
            size = _DIMENSION.fullmatch(part)
            if size is None or len(size[1]) > 18:
                self.source.fail(match.start(2), f"dimension '{part.strip()}' has no size, expected a number")
            sizes.append(int(size[1]))
        return Shape(bits, tuple(sizes))


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\n\r":
        at += 1
    return at
