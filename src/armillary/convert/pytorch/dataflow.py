"""Which recorded operators depend on which by data: who wrote what they read, and who used what they overwrite.

The trace names the storage of every tensor and where in it the tensor lies, so dependencies are those between
overlapping byte ranges, whatever views were made in between; views make none.
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
"""The bytes of a tensor of which only the id was recorded."""

ALLOCATE = ("aten::empty", "aten::new_empty")
PASS_ON = ("_c10d_functional::wait_tensor", "c10d_functional::wait_tensor")
"""What these return is what they got, but complete: whoever reads it waits for them."""


@dataclass(frozen=True, slots=True)
class Access:
    """The bytes that an operator touches."""

    reads: Sequence[Range] = ()
    writes: Sequence[Range] = ()
    """Also what is updated in place: a write comes after all before it on these bytes."""
    fresh: Sequence[int] = ()
    """Storages that begin here; what an earlier storage of the same id held is forgotten."""


def access(op_schema: str, inputs: Arguments, outputs: Arguments, *, allocates: bool = True) -> Access:
    """Return what an operator touches, from what the trace records of its call.

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
    if name.startswith(ALLOCATE):
        return Access((), (), tuple({found[0]: None for _, found in _ranges(outputs)}))
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
    """Yield the position of an argument and the bytes of a tensor in it, for all tensors."""
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
    if len(value) < 5:
        if value:
            yield (value[1] if len(value) > 1 else value[0], *WHOLE)
        return
    _, storage, offset, elements, size = value[:5]
    if elements * size:
        extent = _extent(shape, stride, elements)
        yield storage, offset * size, (offset + extent) * size


def _extent(shape: Any, stride: Any, elements: int) -> int:
    """Return how many elements of the storage lie between the first and the last of a tensor, both included.

    Without strides, which came with schema 1.1.1, its elements are taken to be dense.
    """
    if type(shape) is not list or type(stride) is not list or len(shape) != len(stride):
        return elements
    last = 0
    for size, step in zip(shape, stride, strict=True):
        if type(size) is not int or type(step) is not int or size < 1 or step < 0:
            return elements
        last += (size - 1) * step
    return last + 1


class _Storage:
    """Who touched which bytes of a storage last: disjoint pieces in ascending order."""

    __slots__ = ("after", "first", "readers", "writer")

    def __init__(self) -> None:
        self.first: list[int] = []
        self.after: list[int] = []
        self.writer: list[int] = []
        """Who wrote a piece last; -1 for none."""
        self.readers: list[tuple[int, ...]] = []
        """Who has read it since."""

    def cut(self, at: int) -> None:
        """Split the piece around byte `at`, if there is one, there."""
        piece = bisect_right(self.first, at) - 1
        if piece >= 0 and self.first[piece] < at < self.after[piece]:
            self.first.insert(piece + 1, at)
            self.after.insert(piece, at)
            self.writer.insert(piece, self.writer[piece])
            self.readers.insert(piece, self.readers[piece])

    def read(self, op: int, first: int, after: int, found: set[int]) -> None:
        """Note that `op` reads these bytes; add to `found` who wrote them."""
        self.cut(first)
        self.cut(after)
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
                if self.readers[piece][-1:] != (op,):
                    self.readers[piece] += (op,)
            at = self.after[piece]
            piece += 1

    def write(self, op: int, first: int, after: int, found: set[int]) -> None:
        """Note that `op` writes these bytes; add to `found` who read them since the last write, or else wrote them."""
        self.cut(first)
        self.cut(after)
        low, high = bisect_left(self.first, first), bisect_left(self.first, after)
        for piece in range(low, high):
            readers = self.readers[piece]
            if readers and readers != (op,):
                found.update(readers)
            elif self.writer[piece] >= 0:
                found.add(self.writer[piece])
        self.first[low:high], self.after[low:high] = [first], [after]
        self.writer[low:high], self.readers[low:high] = [op], [()]


def data_dependencies(ops: Sequence[Access]) -> list[tuple[int, ...]]:
    """Return for every operator the earlier ones that it must come after, ascending.

    Read after write, write after read, and write after write. What follows from these is left out: after a
    write, only that write and the reads since are named. So there are few, but for many ranges that are
    each read by many.

    Args:
        ops: what each touches, in the order in which they take effect: by start, but an operator that runs kernels
            of its own after those that it calls, as these make its results.
    """
    storages: dict[int, _Storage] = {}
    result: list[tuple[int, ...]] = []
    for op, touched in enumerate(ops):
        found: set[int] = set()
        for storage in touched.fresh:
            storages.pop(storage, None)
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
