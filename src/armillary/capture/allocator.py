"""PyTorch's caching allocator without a device: what it reserves for the tensors that a program has.

It takes memory from the device in segments, gives out blocks of them, and keeps the segments when their blocks are
free. What it reserves is therefore more than what tensors take: blocks are rounded up, free ones lie between others,
and each stream has blocks of its own. Sizes and rules are those of ``c10/cuda/CUDACachingAllocator.cpp``.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 2**20
BLOCK = 512
"""Sizes are rounded up to this (`kMinBlockSize`)."""
SMALL = MIB
"""Up to here a block comes from a small segment (`kSmallSize`)."""
SMALL_SEGMENT, LARGE_SEGMENT = 2 * MIB, 20 * MIB
"""Segments of small blocks, and of those below `LARGE` (`kSmallBuffer`, `kLargeBuffer`)."""
LARGE = 10 * MIB
"""From here on a block has a segment of its own, rounded up to `ROUND` (`kMinLargeAlloc`, `kRoundLarge`)."""
ROUND = 2 * MIB
HOPPER = 9
"""Compute capability from which cuBLAS has more to work in (`getChosenWorkspaceSize`)."""
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Of the environment, that set its options; the first that is there counts."""


@dataclass(frozen=True)
class Options:
    """Options of the allocator that change what it reserves.

    Attributes:
        expandable: Segments grow in place: one for each stream and kind.
        most_split: Larger blocks are not split, in bytes; 0: all are.
    """

    expandable: bool = False
    most_split: int = 0


def options_of(environment: Mapping[str, str]) -> tuple[Options, list[str]]:
    """Return what a program's environment asks for, and the names of options that are not followed."""
    text = next((environment[name] for name in VARIABLES if name in environment), "")
    found, others = Options(), []
    for part in filter(None, text.replace(" ", "").split(",")):
        name, _, value = part.partition(":")
        if name == "expandable_segments" and value in ("True", "False"):
            found = Options(value == "True", found.most_split)
        elif name == "max_split_size_mb" and value.isdecimal() and len(value) < 9:
            found = Options(found.expandable, int(value) * MIB)
        else:
            others.append(name)
    return found, others


def library_bytes(capability: tuple[int, int]) -> int:
    """Return what PyTorch gives cuBLAS to work in (``aten/src/ATen/cuda/CublasHandlePool.cpp``)."""
    # CUBLAS_WORKSPACE_CONFIG of its own: so many blocks of so many KiB.
    return 4096 * 8 * 1024 if capability[0] >= HOPPER else (4096 * 2 + 16 * 8) * 1024


@dataclass(eq=False)
class _Block:
    """A part of a segment.

    Attributes:
        pool: Stream, and whether it is small.
        size: Bytes.
        before: The part below it; None: it is the first.
        after: The part above it.
        free: Whether nobody has it.
    """

    pool: tuple[int, bool]
    size: int
    before: _Block | None = None
    after: _Block | None = None
    free: bool = True


@dataclass
class Allocator:
    """What is reserved, block by block.

    Attributes:
        capacity: Bytes of the device that it may take; 0: no limit.
        options: Of the program.
        reserved: Bytes that it has from the device.
        peak: Most of them since `restart`.
        full: How often the device had no more: it then gave back what was free.
    """

    capacity: int = 0
    options: Options = Options()
    reserved: int = 0
    peak: int = 0
    full: int = 0
    _count: int = 0
    # Free blocks of a pool, by size: the smallest that is large enough is taken, of equal ones the oldest; PyTorch
    # takes that of the lowest address.
    _free: dict[tuple[int, bool], list[tuple[int, int]]] = field(default_factory=dict)
    _numbers: dict[_Block, int] = field(default_factory=dict)
    _blocks: dict[int, _Block] = field(default_factory=dict)
    # The last part of the expandable segment of a pool.
    _ends: dict[tuple[int, bool], _Block] = field(default_factory=dict)

    def restart(self) -> None:
        """Let the peak begin anew."""
        self.peak = self.reserved

    def take(self, size: int, stream: int) -> _Block:
        """Return a block of at least `size` bytes for work on a stream."""
        size = max(BLOCK, -(-size // BLOCK) * BLOCK)
        pool = stream, size <= SMALL
        block = self._found(pool, size)
        if block is None:
            block = self._more(pool, size)
        rest = block.size - size
        if self._splits(pool[1], size, rest):
            self._split(block, size)
        block.free = False
        return block

    def give(self, block: _Block) -> None:
        """Take a block back, and join it with free ones beside it."""
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._forget(other)
                self._join(block, other)
        self._remember(block)

    def _splits(self, small: bool, size: int, rest: int) -> bool:
        if small or self.options.expandable:
            return rest >= BLOCK
        limit = self.options.most_split
        return rest > SMALL and not (limit and size >= limit)

    def _found(self, pool: tuple[int, bool], size: int) -> _Block | None:
        held = self._free.get(pool, [])
        at = bisect_left(held, (size, 0))
        if at == len(held):
            return None
        if self.options.expandable:
            # The last block can grow, and is taken last.
            last = self._blocks[held[at][1]] is self._ends.get(pool)
            at += last and at + 1 < len(held)
        elif self._too_large(size, held[at][0]):
            return None
        block = self._blocks[held[at][1]]
        self._forget(block)
        return block

    def _too_large(self, size: int, block: int) -> bool:
        """Return whether a block that is not split is kept from a small size, or from one that is much smaller."""
        limit = self.options.most_split
        return limit > 0 and (size < limit <= block or (size >= limit and block >= size + LARGE_SEGMENT))

    def _more(self, pool: tuple[int, bool], size: int) -> _Block:
        if self.options.expandable:
            return self._grown(pool, size)
        wanted = SMALL_SEGMENT if pool[1] else LARGE_SEGMENT if size < LARGE else -(-size // ROUND) * ROUND
        self._reserve(wanted)
        return _Block(pool, wanted)

    def _grown(self, pool: tuple[int, bool], size: int) -> _Block:
        """Map more memory at the end of a segment, where a free block may lie already."""
        end, page = self._ends.get(pool), SMALL_SEGMENT if pool[1] else LARGE_SEGMENT
        have = end.size if end is not None and end.free else 0
        more = -(-(size - have) // page) * page
        if have:
            assert end is not None
            self._forget(end)
            self._reserve(more)
            end.size += more
            return end
        self._reserve(more)
        block = _Block(pool, more, before=end)
        if end is not None:
            end.after = block
        self._ends[pool] = block
        return block

    def _reserve(self, size: int) -> None:
        if self.capacity and self.reserved + size > self.capacity:
            self.full += 1
            self._release()
        self.reserved += size
        self.peak = max(self.peak, self.reserved)

    def _release(self) -> None:
        """Give free segments back to the device."""
        for block in list(self._numbers):
            if self.options.expandable:
                page = SMALL_SEGMENT if block.pool[1] else LARGE_SEGMENT
                # Whole pages only, and only at the end: holes in the middle are mapped again by who needs them.
                if self._ends.get(block.pool) is block and block.size >= page:
                    kept = block.size % page
                    self._forget(block)
                    self.reserved -= block.size - kept
                    block.size = kept
                    if kept:
                        self._remember(block)
                    else:
                        self._drop_end(block)
            elif block.before is None and block.after is None:
                self._forget(block)
                self.reserved -= block.size

    def _drop_end(self, block: _Block) -> None:
        if block.before is None:
            del self._ends[block.pool]
        else:
            block.before.after = None
            self._ends[block.pool] = block.before

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.pool, block.size - size, before=block, after=block.after)
        if block.after is not None:
            block.after.before = rest
        block.size, block.after = size, rest
        if self._ends.get(block.pool) is block:
            self._ends[block.pool] = rest
        self._remember(rest)

    def _join(self, block: _Block, other: _Block) -> None:
        if block.before is other:
            block.before = other.before
            if other.before is not None:
                other.before.after = block
        else:
            block.after = other.after
            if other.after is not None:
                other.after.before = block
        block.size += other.size
        if self._ends.get(block.pool) is other:
            self._ends[block.pool] = block

    def _remember(self, block: _Block) -> None:
        self._count += 1
        self._numbers[block] = self._count
        self._blocks[self._count] = block
        insort(self._free.setdefault(block.pool, []), (block.size, self._count))

    def _forget(self, block: _Block) -> None:
        number = self._numbers.pop(block)
        del self._blocks[number]
        held = self._free[block.pool]
        del held[bisect_left(held, (block.size, number))]
