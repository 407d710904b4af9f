"""A CPU thread as segments: at every moment, the innermost operator is the one at work.

An operator's *head* is the time until its first child begins; the rest of its own time are further segments. Time
that no operator covers has no owner.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Item:
    """An interval recorded on a CPU thread: an operator, an annotation, or a blocking runtime call; times in ns."""

    name: str
    start: int
    end: int
    host: int = -1
    """Index of its host node, or -1."""
    call: int = 0
    """Correlation of a runtime call, else 0."""
    is_call: bool = False
    above: Item | None = None
    """The item around it."""
    has_children: bool = False


@dataclass(slots=True)
class Segment:
    """A stretch of a thread; `owner` is None where nothing was recorded."""

    owner: Item | None
    start: int
    end: int
    head: bool


def segments(items: Iterable[Item]) -> list[Segment]:
    """Return the segments of one thread, given its items with parents before children.

    Every item has exactly one head, which may be empty. An item that outlives the one around it is cut off there.
    """
    result: list[Segment] = []
    stack: list[Item] = []
    cursor: int | None = None

    def until(time: int) -> None:
        nonlocal cursor
        assert cursor is not None
        # The innermost item is on top. At every moment it is the one at work; those around it wait for it.
        while stack and stack[-1].end <= time:
            top = stack.pop()
            add(top, cursor, top.end)
            cursor = max(cursor, top.end)
        if cursor < time:
            add(stack[-1] if stack else None, cursor, time)
            cursor = time

    def add(owner: Item | None, start: int, end: int) -> None:
        last = result[-1] if result else None
        # Time up to the first child extends the head; everything later is a segment of its own.
        if last and last.head and last.owner is owner and last.end == start:
            last.end = max(end, start)
        elif end > start:
            result.append(Segment(owner, start, end, False))

    for item in items:
        if cursor is None:
            cursor = item.start
        until(item.start)
        if stack:
            item.above = stack[-1]
            stack[-1].has_children = True
            # Clock jitter lets a child end a little after its parent; items must nest for the stack to hold.
            item.end = max(min(item.end, stack[-1].end), item.start)
        # The head is made at once, empty, so that even an operator without time of its own has one.
        result.append(Segment(item, item.start, item.start, True))
        stack.append(item)
    if cursor is not None and stack:
        # The outermost one ends last, so this closes all.
        until(stack[0].end)
    return result


def split(found: Sequence[Segment], cuts: Iterable[int]) -> tuple[list[Segment], set[int]]:
    """Return the segments, each cut in two at the times in `cuts`, and the indices of those that begin at a cut."""
    times = sorted(set(cuts))
    result: list[Segment] = []
    begun: set[int] = set()
    at = 0
    for segment in found:
        start, head = segment.start, segment.head
        at = max(at, bisect_right(times, start, lo=at))
        while at < len(times) and times[at] < segment.end:
            result.append(Segment(segment.owner, start, times[at], head))
            # Only the first part is the head, of which an operator has one.
            start, head = times[at], False
            begun.add(len(result))
            at += 1
        result.append(Segment(segment.owner, start, segment.end, head))
    return result, begun
