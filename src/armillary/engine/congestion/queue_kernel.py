"""The event queue of a network with contention: first come, first served within a tick, in two levels.

What happens on links stands in the queue itself. What happens on a rank is collected in a batch per rank and
tick, which has the place of its first event in the queue; events that a batch adds to itself still run in it.
This is the order of ASTRA-sim (spec: 1(c), Clock), on which the order of messages on a link depends.
"""

from __future__ import annotations

from armillary.engine.layout_kernel import *
from armillary.jit import inner


@inner
def push(st, heap, tick, seq, what):
    """Add an event to the heap, ordered by (tick, sequence number)."""
    i = st[V_HEAP]
    st[V_HEAP] = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        at = parent * QUEUE_COLUMNS
        if heap[at] < tick or (heap[at] == tick and heap[at + 1] < seq):
            break
        to = i * QUEUE_COLUMNS
        heap[to] = heap[at]
        heap[to + 1] = heap[at + 1]
        heap[to + 2] = heap[at + 2]
        i = parent
    to = i * QUEUE_COLUMNS
    heap[to] = tick
    heap[to + 1] = seq
    heap[to + 2] = what


@inner
def drop(st, heap):
    """Remove the first event; the caller has read it."""
    size = st[V_HEAP] - 1
    st[V_HEAP] = size
    last = size * QUEUE_COLUMNS
    tick = heap[last]
    seq = heap[last + 1]
    i = 0
    child = 1
    while child < size:
        at = child * QUEUE_COLUMNS
        if child + 1 < size:
            beside = at + QUEUE_COLUMNS
            if heap[beside] < heap[at] or (heap[beside] == heap[at] and heap[beside + 1] < heap[at + 1]):
                at = beside
                child += 1
        if heap[at] > tick or (heap[at] == tick and heap[at + 1] > seq):
            break
        to = i * QUEUE_COLUMNS
        heap[to] = heap[at]
        heap[to + 1] = heap[at + 1]
        heap[to + 2] = heap[at + 2]
        i = child
        child = 2 * i + 1
    to = i * QUEUE_COLUMNS
    heap[to] = tick
    heap[to + 1] = seq
    heap[to + 2] = heap[last + 2]


@inner
def new_row(st, mem):
    """Return a row of `mem`."""
    row = st[V_ROWS]
    if row > 0:
        st[V_ROWS] = mem[row]
        return row
    # Address 0 means none.
    row = max(st[V_MACHINE], 1)
    st[V_MACHINE] = row + ROW_COLUMNS
    return row


@inner
def free_row(st, mem, row):
    """Give a row back."""
    mem[row] = st[V_ROWS]
    st[V_ROWS] = row


@inner
def new_event(st, mem, code, a, b):
    """Return a row that holds an event."""
    row = new_row(st, mem)
    mem[row + W_NEXT] = 0
    mem[row + G_CODE] = code
    mem[row + G_A] = a
    mem[row + G_B] = b
    return row


@inner
def bucket(prog, st, r, tick):
    """Return the address of the list of batches that rank `r` has at ticks like this one."""
    return st[BUCKETS] + ((tick * 31 + r) & (prog[Z_BUCKETS] - 1))


@inner
def at_rank(prog, st, mem, heap, r, tick, code, a, b):
    """Let something happen on a rank."""
    event = new_event(st, mem, code, a, b)
    first = bucket(prog, st, r, tick)
    batch = st[first]
    while batch > 0 and (mem[batch + B_TICK] != tick or mem[batch + B_RANK] != r):
        batch = mem[batch + W_NEXT]
    if batch > 0:
        if mem[batch + B_HEAD] == 0:
            mem[batch + B_HEAD] = event
        else:
            mem[mem[batch + B_TAIL] + W_NEXT] = event
        mem[batch + B_TAIL] = event
        return
    batch = new_row(st, mem)
    mem[batch + W_NEXT] = st[first]
    st[first] = batch
    mem[batch + B_RANK] = r
    mem[batch + B_TICK] = tick
    mem[batch + B_HEAD] = event
    mem[batch + B_TAIL] = event
    st[V_SEQ] += 1
    push(st, heap, tick, st[V_SEQ], BATCH + KINDS * batch)


@inner
def end_batch(prog, st, mem, batch):
    """Forget a batch that has run."""
    at = bucket(prog, st, mem[batch + B_RANK], mem[batch + B_TICK])
    if st[at] == batch:
        st[at] = mem[batch + W_NEXT]
    else:
        before = st[at]
        while mem[before + W_NEXT] != batch:
            before = mem[before + W_NEXT]
        mem[before + W_NEXT] = mem[batch + W_NEXT]
    free_row(st, mem, batch)


@inner
def at_end(st, mem, heap, tick, code, a, b):
    """Let something happen after all that is due at this tick so far."""
    st[V_SEQ] += 1
    push(st, heap, tick, st[V_SEQ], ITEM + KINDS * new_event(st, mem, code, a, b))


@inner
def at_once(st, mem, heap, tick, code, a, b):
    """Let something happen right after the event that is being processed."""
    push(st, heap, tick, -1, ITEM + KINDS * new_event(st, mem, code, a, b))
