"""The caching allocator: sizes of PyTorch's segments, and what lists of blocks would reserve that are searched."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.capture.allocator import MIB, Allocator, Options, library_bytes, options_of

GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ((1,), 2 * MIB),
        ((MIB, MIB), 2 * MIB),
        ((MIB, MIB, 1), 4 * MIB),
        ((MIB + 1,), 20 * MIB),
        ((9 * MIB, 9 * MIB), 20 * MIB),
        ((10 * MIB - 1, 10 * MIB), 20 * MIB),
        ((10 * MIB, 10 * MIB), 20 * MIB),
        ((10 * MIB + 1,), 12 * MIB),
        ((101 * MIB,), 102 * MIB),
    ],
)
def test_segments_have_the_sizes_of_pytorch(sizes: tuple[int, ...], reserved: int) -> None:
    allocator = Allocator()
    for size in sizes:
        allocator.take(size, 0)
    assert allocator.reserved == allocator.peak == reserved


def test_free_blocks_are_taken_again_on_their_stream_only_and_joined_with_their_neighbours() -> None:
    allocator = Allocator()
    parts = [allocator.take(size, 0) for size in (40 * MIB, 60 * MIB)]
    for part in parts:
        allocator.give(part)
    # Two segments: they do not join.
    allocator.take(100 * MIB, 0)
    assert allocator.reserved == 200 * MIB
    first, second = allocator.take(20 * MIB, 0), allocator.take(20 * MIB, 0)
    assert allocator.reserved == 200 * MIB, "of the first segment"
    allocator.give(first)
    allocator.give(second)
    allocator.take(40 * MIB, 0)
    assert allocator.reserved == 200 * MIB, "joined"
    allocator.take(60 * MIB, 1)
    assert allocator.reserved == 260 * MIB, "another stream has segments of its own"


def test_expandable_segments_grow_by_what_is_missing() -> None:
    allocator = Allocator(options=Options(expandable=True))
    for part in [allocator.take(size, 0) for size in (40 * MIB, 60 * MIB)]:
        allocator.give(part)
    allocator.take(120 * MIB, 0)
    assert allocator.reserved == 120 * MIB


def test_a_full_device_gets_back_what_is_free() -> None:
    allocator = Allocator(capacity=100 * MIB)
    allocator.give(allocator.take(60 * MIB, 0))
    kept = allocator.take(80 * MIB, 0)
    assert (allocator.reserved, allocator.full) == (80 * MIB, 1)
    allocator.take(40 * MIB, 0)
    assert (allocator.reserved, allocator.full) == (120 * MIB, 2), (
        "more than there is: a program would end here"
    )
    allocator.give(kept)
    growing = Allocator(capacity=100 * MIB, options=Options(expandable=True))
    growing.give(growing.take(80 * MIB, 1))
    growing.take(60 * MIB, 0)
    assert (growing.reserved, growing.full) == (60 * MIB, 1)
    growing.take(40 * MIB, 1)
    assert growing.reserved == 100 * MIB


def test_options_are_those_of_the_environment_the_newer_name_first() -> None:
    found, others = options_of(
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True, max_split_size_mb:64,x:1"}
    )
    assert found == Options(True, 64 * MIB) and others == ["x"]
    both = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": ""}
    assert options_of(both) == (Options(), []) and options_of({}) == (Options(), [])


def test_hopper_has_more_to_work_in() -> None:
    assert library_bytes((9, 0)) == 32 * MIB and library_bytes((8, 0)) == 8519680


class Reference:
    """Segments as lists of [size, age where free]; what is wanted is searched in all of them."""

    def __init__(self, options: Options) -> None:
        self.options, self.ages = options, count(1)
        self.segments: list[tuple[tuple[int, bool], list[list[int]]]] = []

    @property
    def reserved(self) -> int:
        return sum(part[0] for _, parts in self.segments for part in parts)

    def take(self, size: int, stream: int) -> list[int]:
        size = max(512, -(-size // 512) * 512)
        pool, grows = (stream, size <= MIB), self.options.expandable
        fits = sorted(
            (part[0], part[1], which, at)
            for which, (of, parts) in enumerate(self.segments)
            if of == pool
            for at, part in enumerate(parts)
            if part[1] and part[0] >= size
        )
        if grows and len(fits) > 1 and fits[0][3] == len(self.segments[fits[0][2]][1]) - 1:
            fits = fits[1:]
        limit = 0 if grows else self.options.most_split
        if limit and fits:
            apart = size < limit <= fits[0][0] or (size >= limit and fits[0][0] >= size + 20 * MIB)
            fits = [] if apart else fits
        if fits:
            _, _, which, at = fits[0]
        else:
            which, at = self.more(pool, size)
        parts = self.segments[which][1]
        rest = parts[at][0] - size
        if rest >= 512 if pool[1] or grows else rest > MIB and not (limit and size >= limit):
            parts[at : at + 1] = [[size, 0], [rest, next(self.ages)]]
        parts[at][1] = 0
        return parts[at]

    def more(self, pool: tuple[int, bool], size: int) -> tuple[int, int]:
        if not self.options.expandable:
            wanted = 2 * MIB if pool[1] else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            self.segments.append((pool, [[wanted, 0]]))
            return len(self.segments) - 1, 0
        page = 2 * MIB if pool[1] else 20 * MIB
        for which, (of, parts) in enumerate(self.segments):
            if of == pool:
                if not parts[-1][1]:
                    parts.append([0, 1])
                parts[-1][0] += -(-(size - parts[-1][0]) // page) * page
                return which, len(parts) - 1
        self.segments.append((pool, [[-(-size // page) * page, 0]]))
        return len(self.segments) - 1, 0

    def give(self, block: list[int]) -> None:
        for _, parts in self.segments:
            for at, part in enumerate(parts):
                if part is block:
                    first = at - (at > 0 and parts[at - 1][1] > 0)
                    last = at + (at + 1 < len(parts) and parts[at + 1][1] > 0)
                    joined = [sum(each[0] for each in parts[first : last + 1]), next(self.ages)]
                    parts[first : last + 1] = [joined]
                    return


SIZES = st.one_of(st.integers(1, 3 * MIB), st.integers(1, 80).map(lambda size: size * MIB))
CALLS = st.lists(st.tuples(SIZES, st.integers(0, 1), st.booleans(), st.integers(0, 99)), max_size=60)


@given(CALLS, st.sampled_from([Options(), Options(True), Options(False, 25 * MIB)]))
def test_it_reserves_what_lists_of_blocks_would(
    calls: list[tuple[int, int, bool, int]], options: Options
) -> None:
    allocator, reference = Allocator(options=options), Reference(options)
    held = []
    for size, stream, gives, which in calls:
        if gives and held:
            ours, theirs = held.pop(which % len(held))
            allocator.give(ours)
            reference.give(theirs)
        else:
            ours, theirs = allocator.take(size, stream), reference.take(size, stream)
            assert ours.size == theirs[0]
            held.append((ours, theirs))
        assert allocator.reserved == reference.reserved
