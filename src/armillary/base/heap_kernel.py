"""A binary heap of events of three integers: time, order among those of the same time, and what happens.

Orders are unique, so the order of events is total, and the same compiled and interpreted. The caller keeps the size.
"""

from __future__ import annotations

from armillary.base.jit import inner

COLUMNS = 3


@inner
def rise(heap, size, time, order, what):
    """Add an event to a heap of `size`."""
    i = size
    # The hole moves up instead of swapping: half the writes.
    while i > 0:
        parent = (i - 1) >> 1
        at = parent * COLUMNS
        if heap[at] < time or (heap[at] == time and heap[at + 1] <= order):
            break
        to = i * COLUMNS
        heap[to] = heap[at]
        heap[to + 1] = heap[at + 1]
        heap[to + 2] = heap[at + 2]
        i = parent
    to = i * COLUMNS
    heap[to] = time
    heap[to + 1] = order
    heap[to + 2] = what


@inner
def sink(heap, size, time, order, what):
    """Put an event where the first was in a heap of `size`."""
    i = 0
    child = 1
    while child < size:
        at = child * COLUMNS
        if child + 1 < size:
            other = at + COLUMNS
            if heap[other] < heap[at] or (heap[other] == heap[at] and heap[other + 1] < heap[at + 1]):
                at = other
                child += 1
        if heap[at] > time or (heap[at] == time and heap[at + 1] > order):
            break
        to = i * COLUMNS
        heap[to] = heap[at]
        heap[to + 1] = heap[at + 1]
        heap[to + 2] = heap[at + 2]
        i = child
        child = 2 * i + 1
    to = i * COLUMNS
    heap[to] = time
    heap[to + 1] = order
    heap[to + 2] = what
