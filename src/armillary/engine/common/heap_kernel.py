"""Binary heaps in flat arrays: of events, ordered by four integers, and of plain integers.

Row of an event: tick, tick at which it was registered, tick at which its cause was sent, sequence number, then code and
two operands. The first four are the order. Profile `astra-sim` needs all four to break ties as ASTRA-sim does (see
`armillary.engine.astra_sim`). Profile `physical` passes 0 for the second and third: of equal ticks the event made first
comes first. Sequence numbers are unique, so the order is total, and the same compiled and interpreted.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.engine.common.layout import HEAP_COLUMNS


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
