"""Data dependencies between recorded operators: on the writers of what they read, and the users of what they overwrite.

The trace gives the storage of every tensor and its offset there, so dependencies hold between overlapping byte
ranges, whatever views were made in between; views themselves make none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.convert.pytorch.arguments import UNDEFINED, Arguments, kind_of
from armillary.convert.pytorch.op_schema import parse_schema

Range = tuple[int, int, int]
"""Storage, first byte, byte after the last."""

WHOLE = (0, 1 << 62)
"""The byte range of a tensor whose id alone was recorded."""

ALLOCATE = ("aten::empty", "aten::new_empty")
PASS_ON = ("_c10d_functional::wait_tensor", "c10d_functional::wait_tensor")
"""These return their argument, but complete: readers of the result depend on them, so they count as its writers."""


@dataclass(frozen=True, slots=True)
class Access:
    """The bytes that an operator touches."""

    reads: Sequence[Range] = ()
    writes: Sequence[Range] = ()
    """Includes in-place updates: a write comes after every earlier access to these bytes."""
    fresh: Sequence[int] = ()
    """Storages allocated here; accesses to an earlier storage with the same id are forgotten."""


def access(op_schema: str, inputs: Arguments, outputs: Arguments, *, allocates: bool = True) -> Access:
    """Return the byte ranges that an operator reads and writes, from its recorded call.

    It reads its tensor arguments, but writes those that the schema marks (``Tensor(a!)``) and those that c10d's
    collectives fill; results that share no storage with an argument are written too. What is malformed counts
    as no tensor.

    Args:
        op_schema: the recorded schema; without one, arguments are read and new results written.
        inputs: its arguments, as recorded.
        outputs: its results, as recorded.
        allocates: the storage of new results begins here. Say False for an operator that calls others in the list:
            these made it.
    """
    schema = parse_schema(op_schema)
    if schema and schema.view:
        return Access()
    name = schema.name if schema else ""
    marks = [argument.written for argument in schema.arguments] if schema else []
    reads: list[Range] = []
    writes: list[Range] = []
    for at, found in _ranges(inputs):
        (writes if at < len(marks) and marks[at] else reads).append(found)
    # Allocation touches no data. It begins a storage, whose id an earlier one may have had.
    if name.startswith(ALLOCATE):
        return Access((), (), tuple({found[0]: None for _, found in _ranges(outputs)}))
    # A result in the storage of an argument is an alias, and its write is on that argument already.
    given = {found[0] for found in (*reads, *writes)}
    fresh: dict[int, None] = {}
    for _, found in _ranges(outputs):
        if found[0] not in given:
            writes.append(found)
            fresh[found[0]] = None
        elif name in PASS_ON:
            writes.append(found)
    return Access(tuple(reads), tuple(writes), tuple(fresh) if allocates else ())


def _ranges(side: Arguments) -> Iterator[tuple[int, Range]]:
    """Yield (position of the argument, byte range) for every tensor."""
    strides = side.strides if type(side.strides) is list else []
    for at, (text, value) in enumerate(zip(side.types, side.values, strict=False)):
        if type(text) is not str or "Tensor" not in text:
            continue
        shape = side.shapes[at] if at < len(side.shapes) else None
        stride = strides[at] if at < len(strides) else None
        for found in _tensors(kind_of(text), value, shape, stride):
            yield at, found


def _tensors(kind: Any, value: Any, shape: Any, stride: Any) -> Iterator[Range]:
    if kind is None or kind == UNDEFINED:
        return
    if isinstance(kind, tuple):
        if type(value) is list:
            size = len(value)
            shapes = shape if type(shape) is list and len(shape) == size else [None] * size
            strides = stride if type(stride) is list and len(stride) == size else [None] * size
            for each in zip(kind, value, shapes, strides, strict=False):
                yield from _tensors(*each)
        return
    if type(value) is int:
        value = [value]
    if type(value) is not list or not all(type(number) is int and number >= 0 for number in value[:5]):
        return
    # Only the ids of the tensor and its storage, or one id, were recorded: take the whole storage.
    if len(value) < 5:
        if value:
            yield (value[1] if len(value) > 1 else value[0], *WHOLE)
        return
    _, storage, offset, elements, size = value[:5]
    # Empty tensors touch no byte, so they order nothing.
    if elements * size:
        extent = _extent(shape, stride, elements)
        yield storage, offset * size, (offset + extent) * size


def _extent(shape: Any, stride: Any, elements: int) -> int:
    """Return the elements of the storage from the first to the last one of a tensor, both included.

    Without strides (recorded since schema 1.1.1) the tensor is taken to be dense.
    """
    if type(shape) is not list or type(stride) is not list or len(shape) != len(stride):
        return elements
    last = 0
    for size, step in zip(shape, stride, strict=True):
        if type(size) is not int or type(step) is not int or size < 1 or step < 0:
            return elements
        # The last element's offset: every index at its maximum.
        last += (size - 1) * step
    return last + 1


class _Storage:
    """The last accesses to a storage: disjoint byte ranges (pieces) in ascending order."""

    __slots__ = ("after", "first", "readers", "writer")

    def __init__(self) -> None:
        self.first: list[int] = []
        self.after: list[int] = []
        self.writer: list[int] = []
        """Operator that wrote the piece last; -1 for none."""
        self.readers: list[tuple[int, ...]] = []
        """Operators that have read it since."""

    def cut(self, at: int) -> None:
        """Split the piece that contains byte `at`, if any, at that byte."""
        piece = bisect_right(self.first, at) - 1
        if piece >= 0 and self.first[piece] < at < self.after[piece]:
            self.first.insert(piece + 1, at)
            self.after.insert(piece, at)
            self.writer.insert(piece, self.writer[piece])
            self.readers.insert(piece, self.readers[piece])

    def read(self, op: int, first: int, after: int, found: set[int]) -> None:
        """Record that `op` reads these bytes; add their writers to `found`."""
        self.cut(first)
        self.cut(after)
        # Cut at both ends, so every piece lies wholly inside or outside. Holes become pieces without a writer.
        piece, at = bisect_left(self.first, first), first
        while at < after:
            if piece == len(self.first) or self.first[piece] > at:
                end = after if piece == len(self.first) else min(after, self.first[piece])
                self.first.insert(piece, at)
                self.after.insert(piece, end)
                self.writer.insert(piece, -1)
                self.readers.insert(piece, (op,))
            else:
                if self.writer[piece] >= 0:
                    found.add(self.writer[piece])
                # Ops come in order, so only the last reader can be this one.
                if self.readers[piece][-1:] != (op,):
                    self.readers[piece] += (op,)
            at = self.after[piece]
            piece += 1

    def write(self, op: int, first: int, after: int, found: set[int]) -> None:
        """Record that `op` writes these bytes; add to `found` the readers since the last write, or else its writer."""
        self.cut(first)
        self.cut(after)
        low, high = bisect_left(self.first, first), bisect_left(self.first, after)
        # The readers came after the writer, so waiting for them implies waiting for it.
        for piece in range(low, high):
            readers = self.readers[piece]
            if readers and readers != (op,):
                found.update(readers)
            elif self.writer[piece] >= 0:
                found.add(self.writer[piece])
        # All pieces become one. This keeps the list short for storages that are rewritten as a whole.
        self.first[low:high], self.after[low:high] = [first], [after]
        self.writer[low:high], self.readers[low:high] = [op], [()]


def data_dependencies(ops: Sequence[Access]) -> list[tuple[int, ...]]:
    """Return for every operator the earlier ones that it must follow, ascending.

    These are read after write, write after read, and write after write. Transitive ones are left out: after a
    write, only that write and the reads since are named. The lists stay short, except where many ranges each have
    many readers.

    Args:
        ops: the accesses of each operator, in the order in which they take effect: by start, but an operator that
            runs kernels of its own comes after those that it calls, as these make its results.
    """
    storages: dict[int, _Storage] = {}
    result: list[tuple[int, ...]] = []
    for op, touched in enumerate(ops):
        found: set[int] = set()
        for storage in touched.fresh:
            storages.pop(storage, None)
        # Reads first: an operator that updates in place depends on the writer, not on itself.
        for ranges, write in ((touched.reads, False), (touched.writes, True)):
            for storage, first, after in ranges:
                if after <= first:
                    continue
                known = storages.get(storage)
                if known is None:
                    known = storages[storage] = _Storage()
                if write:
                    known.write(op, first, after, found)
                else:
                    known.read(op, first, after, found)
        found.discard(op)
        result.append(tuple(sorted(found)))
    return result
