"""Binary heaps in flat arrays: of events, ordered by four integers or by two, and of plain integers.

Row of an event of profile `astra-sim`: tick, tick at which it was registered, tick at which its cause was sent,
sequence number, then code and two operands. The first four are the order: it needs all four to break ties as ASTRA-sim
does (see `armillary.engine.astra_sim`). In profile `physical` the event made first comes first of equal ticks, and rows
are shorter: tick, sequence number, and two words of what happens. Sequence numbers are unique, so the order is total,
and the same compiled and interpreted.
"""

from __future__ import annotations

from armillary.base.jit import inlined, inner
from armillary.engine.common.layout import HEAP_COLUMNS, SHORT


@inner
def before(heap, a, b):
    """Tell whether the event at offset `a` comes before the one at offset `b`."""
    for j in range(4):
        if heap[a + j] != heap[b + j]:
            return heap[a + j] < heap[b + j]
    return False


@inner
def push(heap, base, size, tick, registered, sent, seq, code, a, b):
    """Insert an event; returns the new size. The caller sees to the capacity."""
    i = size
    # Sift up by moving parents into the hole; the event itself is written once. The comparison is `before`
    # spelled out, because the event is in registers, not in the heap.
    while i > 0:
        parent = (i - 1) >> 1
        at = base + parent * HEAP_COLUMNS
        if heap[at] < tick:
            break
        if heap[at] == tick:
            if heap[at + 1] < registered:
                break
            if heap[at + 1] == registered:
                if heap[at + 2] < sent:
                    break
                if heap[at + 2] == sent and heap[at + 3] <= seq:
                    break
        to = base + i * HEAP_COLUMNS
        for j in range(HEAP_COLUMNS):
            heap[to + j] = heap[at + j]
        i = parent
    to = base + i * HEAP_COLUMNS
    heap[to] = tick
    heap[to + 1] = registered
    heap[to + 2] = sent
    heap[to + 3] = seq
    heap[to + 4] = code
    heap[to + 5] = a
    heap[to + 6] = b
    return size + 1


@inner
def pop(heap, base, size):
    """Remove the first event (the caller has read it at `base`); returns the new size."""
    size -= 1
    # The last event fills the hole at the root and sifts down. It stays readable where it is: that place is
    # just beyond the heap.
    last = base + size * HEAP_COLUMNS
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        at = base + child * HEAP_COLUMNS
        if child + 1 < size and before(heap, at + HEAP_COLUMNS, at):
            at += HEAP_COLUMNS
            child += 1
        if not before(heap, at, last):
            break
        to = base + i * HEAP_COLUMNS
        for j in range(HEAP_COLUMNS):
            heap[to + j] = heap[at + j]
        i = child
    to = base + i * HEAP_COLUMNS
    for j in range(HEAP_COLUMNS):
        heap[to + j] = heap[last + j]
    return size


@inlined
def write_event(heap, i, tick, sequence, what, b):
    """Write the event at place `i` of a heap of four columns."""
    to = i * SHORT
    heap[to] = tick
    heap[to + 1] = sequence
    heap[to + 2] = what
    heap[to + 3] = b


@inlined
def put_event(heap, size, tick, sequence, what, b):
    """Add an event to a heap of `size` and of four columns; the caller sees to the room."""
    i = size
    # The hole moves up instead of swapping: half the writes.
    while i > 0:
        parent = (i - 1) >> 1
        at = parent * SHORT
        if heap[at] < tick or (heap[at] == tick and heap[at + 1] <= sequence):
            break
        write_event(heap, i, heap[at], heap[at + 1], heap[at + 2], heap[at + 3])
        i = parent
    write_event(heap, i, tick, sequence, what, b)


@inlined
def drop_event(heap, size):
    """Remove the first event, which the caller has read, from a heap of four columns; `size` is that without it."""
    last = size * SHORT
    tick = heap[last]
    sequence = heap[last + 1]
    i = 0
    child = 1
    # The last event fills the hole at the root, and sinks.
    while child < size:
        at = child * SHORT
        if child + 1 < size:
            other = at + SHORT
            if heap[other] < heap[at] or (heap[other] == heap[at] and heap[other + 1] < heap[at + 1]):
                at = other
                child += 1
        if heap[at] > tick or (heap[at] == tick and heap[at + 1] > sequence):
            break
        write_event(heap, i, heap[at], heap[at + 1], heap[at + 2], heap[at + 3])
        i = child
        child = 2 * i + 1
    write_event(heap, i, tick, sequence, heap[last + 2], heap[last + 3])


@inner
def put(st, base, size, value):
    """Add a value to a heap of `size` integers, lowest first; the caller increments `size`."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if st[base + parent] <= value:
            break
        st[base + i] = st[base + parent]
        i = parent
    st[base + i] = value


@inner
def take(st, base, size):
    """Remove and return the lowest of a heap of `size` integers; the caller decrements `size`."""
    size -= 1
    first = st[base]
    last = st[base + size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and st[base + child + 1] < st[base + child]:
            child += 1
        if st[base + child] >= last:
            break
        st[base + i] = st[base + child]
        i = child
    st[base + i] = last
    return first
