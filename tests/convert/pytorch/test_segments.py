"""Segments of a thread: whose time is it, at every moment."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from armillary.convert.pytorch.segments import Item, Segment, segments, split

Span = tuple[int, int]
SPANS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)
"""Any spans: nested, beside each other, overlapping, empty."""


def items(spans: list[Span]) -> list[Item]:
    """Return items of these spans, parents first."""
    ordered = sorted(enumerate(spans), key=lambda pair: (pair[1][0], -pair[1][1], pair[0]))
    return [Item(f"op{at}", start, end, at) for at, (start, end) in ordered]


def owners(spans: list[Span]) -> dict[int, int]:
    """Return the innermost item of every nanosecond, by going through all of them."""
    inner: dict[int, int] = {}
    cut: list[tuple[int, int, int]] = []
    for item in items(spans):
        end = item.end
        for start, other_end, _ in cut:
            if start <= item.start < other_end:
                end = min(end, other_end)
        cut.append((item.start, end, item.host))
        inner |= dict.fromkeys(range(item.start, end), item.host)
    return inner


def check(found: list[Segment]) -> None:
    """One after the other, none before the one before it ends."""
    assert all(segment.start <= segment.end for segment in found)
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(segment.end > segment.start or segment.head for segment in found)


@given(SPANS)
def test_every_moment_belongs_to_the_innermost_item(spans: list[Span]) -> None:
    found = segments(items(spans))
    check(found)
    times = {
        time: segment.owner.host
        for segment in found
        if segment.owner
        for time in range(segment.start, segment.end)
    }
    assert times == owners(spans)


@given(SPANS)
def test_every_item_has_one_head_where_it_starts(spans: list[Span]) -> None:
    found = segments(items(spans))
    heads = {segment.owner.host: segment.start for segment in found if segment.head and segment.owner}
    assert len([segment for segment in found if segment.head]) == len(spans)
    assert heads == {at: start for at, (start, _) in enumerate(spans)}


@given(SPANS, st.lists(st.integers(0, 90), max_size=6))
def test_cuts_take_nothing_away(spans: list[Span], cuts: list[int]) -> None:
    found = segments(items(spans))
    parts, begun = split(found, cuts)
    check([part for part in parts if part.end > part.start or part.head])
    assert sum(part.end - part.start for part in parts) == sum(one.end - one.start for one in found)
    assert [part.owner for part in parts if part.head] == [one.owner for one in found if one.head]
    within = {cut for cut in cuts for one in found if one.start < cut < one.end}
    assert {parts[at].start for at in begun} == within


def test_parents_and_children() -> None:
    outer, inner, beside = Item("outer", 0, 100), Item("inner", 20, 50), Item("beside", 120, 130)
    found = segments([outer, inner, beside])
    assert [(s.owner.name if s.owner else None, s.start, s.end, s.head) for s in found] == [
        ("outer", 0, 20, True),
        ("inner", 20, 50, True),
        ("outer", 50, 100, False),
        (None, 100, 120, False),
        ("beside", 120, 130, True),
    ]
    assert inner.above is outer
    assert (outer.has_children, inner.has_children, outer.above, beside.above) == (True, False, None, None)


def test_an_item_that_outlives_the_one_around_it_is_cut() -> None:
    found = segments([Item("outer", 0, 50), Item("late", 40, 80)])
    assert [(s.start, s.end) for s in found] == [(0, 40), (40, 50)]


def test_nothing() -> None:
    assert segments([]) == []
    assert split([], [5]) == ([], set())
