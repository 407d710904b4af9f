"""The events of profile `physical`, in a binary heap: by tick, then in the order in which they were made.

Sequence numbers are unique, so the order is total, and the same compiled and interpreted.
"""

from __future__ import annotations

from armillary.base.jit import inlined
from armillary.engine.physical import layout as lk


@inlined
def put_event(heap, size, tick, sequence, what, b):
    """Add an event to a heap of `size`; the caller sees to the room."""
    i = size
    # The hole moves up instead of swapping: half the writes.
    while i > 0:
        parent = (i - 1) >> 1
        at = parent * lk.HEAP_COLUMNS
        if heap[at] < tick or (heap[at] == tick and heap[at + 1] <= sequence):
            break
        to = i * lk.HEAP_COLUMNS
        heap[to] = heap[at]
        heap[to + 1] = heap[at + 1]
        heap[to + 2] = heap[at + 2]
        heap[to + 3] = heap[at + 3]
        i = parent
    to = i * lk.HEAP_COLUMNS
    heap[to] = tick
    heap[to + 1] = sequence
    heap[to + 2] = what
    heap[to + 3] = b


@inlined
def drop_event(st, heap):
    """Remove the first event, which the caller has read."""
    size = st[lk.V_HEAP] - 1
    st[lk.V_HEAP] = size
    last = size * lk.HEAP_COLUMNS
    tick = heap[last]
    sequence = heap[last + 1]
    i = 0
    child = 1
    # The last event fills the hole at the root, and sinks.
    while child < size:
        at = child * lk.HEAP_COLUMNS
        if child + 1 < size:
            other = at + lk.HEAP_COLUMNS
            if heap[other] < heap[at] or (heap[other] == heap[at] and heap[other + 1] < heap[at + 1]):
                at = other
                child += 1
        if heap[at] > tick or (heap[at] == tick and heap[at + 1] > sequence):
            break
        to = i * lk.HEAP_COLUMNS
        heap[to] = heap[at]
        heap[to + 1] = heap[at + 1]
        heap[to + 2] = heap[at + 2]
        heap[to + 3] = heap[at + 3]
        i = child
        child = 2 * i + 1
    to = i * lk.HEAP_COLUMNS
    heap[to] = tick
    heap[to + 1] = sequence
    heap[to + 2] = heap[last + 2]
    heap[to + 3] = heap[last + 3]


@inlined
def schedule(st, heap, tick, code, a, b):
    """Put an event on the heap; of events at one tick, the one made first comes first."""
    st[lk.V_SEQUENCE] += 1
    put_event(heap, st[lk.V_HEAP], tick, st[lk.V_SEQUENCE], (a << lk.CODE_BITS) + code, b)
    st[lk.V_HEAP] += 1


@inlined
def code_of(what):
    """Return what happens; `what` shifted by CODE_BITS is to which."""
    return what & ((1 << lk.CODE_BITS) - 1)
