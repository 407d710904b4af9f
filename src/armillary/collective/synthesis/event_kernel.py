"""What the kernels of synthesis share: a heap of events, random numbers, and links that are held for a message."""

from __future__ import annotations

from armillary.base.jit import inner, use

heaps = use("armillary.base.heap_kernel")
rise, sink = heaps.rise, heaps.sink
H_WHAT, H_COLUMNS = 2, 3
# State of a kernel: events in the heap, events so far, random state, sends so far, what is missing, last arrival
S_HEAP, S_ORDER, S_RANDOM, S_SENDS, S_MISSING, S_END = range(6)
STATE = 6
TICK = 1000
"""ps of a tick: what arrives within one is seen at its end."""


@inner
def push(st, heap, time, what):
    """Add an event; of those at the same time the first made is the first."""
    rise(heap, st[S_HEAP], time, st[S_ORDER], what)
    st[S_ORDER] += 1
    st[S_HEAP] += 1


@inner
def pop(st, heap):
    """Remove the first event and return what it is; before the call its time is `heap[0]`."""
    first = heap[H_WHAT]
    size = st[S_HEAP] - 1
    st[S_HEAP] = size
    last = size * H_COLUMNS
    sink(heap, size, heap[last], heap[last + 1], heap[last + 2])
    return first


@inner
def draw(st, below):
    """Return a random number of at least 0 and less than `below`, at most 2**23."""
    # Knuth's MMIX constants do not fit a product of 63 bits; these are those of the C standard's example.
    st[S_RANDOM] = (st[S_RANDOM] * 1103515245 + 12345) & 0x7FFFFFFF
    return (st[S_RANDOM] >> 8) % below


@inner
def clear_at(free, links, first, end, latency, now):
    """Return when a message that leaves now finds all links after its first free: `now`, or when to ask again."""
    head = now
    ask = now
    for i in range(first, end):
        # The first link is the port, which is free: otherwise it would not be matched.
        if i > first and free[links[i]] > head:
            ask = max(ask, now + free[links[i]] - head)
        head += latency[links[i]]
    return ask


@inner
def hold(free, links, first, end, duration, latency, now):
    """Let a message take its links, cut through, first come first served; return when its last byte is there, ps.

    As network model `congestion` does it.
    """
    head = now
    tail = now
    for i in range(first, end):
        link = links[i]
        start = max(head, free[link])
        # The tail cannot leave before it came over a slower link.
        tail = max(start + duration[link], tail)
        free[link] = tail
        head = start + latency[link]
        tail += latency[link]
    # What arrives within a tick is seen at its end, as ranks see it in the engine.
    return (tail + TICK - 1) // TICK * TICK
