"""The event queue of a network with contention: first come, first served within a tick, in two levels.

Every tick has a list. It holds the events of links itself; events on a rank are collected in a batch per
rank and tick, which has the place of its first event in the list. Events that a list adds to itself still run in it.
This is the order of ASTRA-sim (spec: 1(c), Clock), on which the order of messages on a link depends.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner
from armillary.engine.astra_sim import layout as lk

buckets, pending_rows, hops, tasks = accessors(lk.BUCKETS, lk.PENDING, lk.HOPS, lk.TASK)


@inner
def push(st, heap, tick, row):
    """Add a tick, which is not there yet, and the list of it."""
    i = st[lk.V_HEAP]
    st[lk.V_HEAP] = i + 1
    # Each tick is in the heap once, so times never tie.
    while i > 0:
        parent = (i - 1) >> 1
        if heap[2 * parent] < tick:
            break
        heap[2 * i] = heap[2 * parent]
        heap[2 * i + 1] = heap[2 * parent + 1]
        i = parent
    heap[2 * i] = tick
    heap[2 * i + 1] = row


@inner
def pop(st, heap):
    """Remove the first tick and return its list."""
    first = heap[1]
    size = st[lk.V_HEAP] - 1
    st[lk.V_HEAP] = size
    tick = heap[2 * size]
    i = 0
    child = 1
    # The last entry sinks from the root; entries are (tick, list).
    while child < size:
        if child + 1 < size and heap[2 * child + 2] < heap[2 * child]:
            child += 1
        if heap[2 * child] > tick:
            break
        heap[2 * i] = heap[2 * child]
        heap[2 * i + 1] = heap[2 * child + 1]
        i = child
        child = 2 * i + 1
    heap[2 * i] = tick
    heap[2 * i + 1] = heap[2 * size + 1]
    return first


@inner
def new_row(st, mem):
    """Return a row of `mem`; address 0 is none."""
    row = st[lk.V_ROWS]
    if row > 0:
        st[lk.V_ROWS] = mem[row]
        return row
    row = st[lk.V_MEMBER_STATE]
    st[lk.V_MEMBER_STATE] = row + lk.ROW_COLUMNS
    return row


@inner
def free_row(st, mem, row):
    """Give a row back."""
    mem[row] = st[lk.V_ROWS]
    st[lk.V_ROWS] = row


@inner
def new_event(st, mem, code, a, b):
    """Return an event as a list holds it."""
    # Rows of all kinds have the same width and one free list: the kind is stored with the reference.
    row = new_row(st, mem)
    tasks.set_code(mem, row, code)
    tasks.set_a(mem, row, a)
    tasks.set_b(mem, row, b)
    return lk.EVENT + lk.KINDS * row


@inner
def append(mem, head, what):
    """Append to the list whose head is at `head`, its tail after it."""
    hops.set_next(mem, what // lk.KINDS, 0)
    if mem[head] == 0:
        mem[head] = what
    else:
        hops.set_next(mem, mem[head + 1] // lk.KINDS, what)
    mem[head + 1] = what


@inner
def take(mem, head):
    """Remove and return the first of the list whose head is at `head`, 0 if it is empty."""
    what = mem[head]
    if what > 0:
        mem[head] = hops.next(mem, what // lk.KINDS)
    return what


@inner
def bucket(prog, st, r, tick):
    """Return the bucket of the lists that rank `r` has at ticks like this one."""
    # Ticks are often multiples of one another: fold the high bits in, and set ranks apart by an odd number.
    hashed = (tick ^ (tick >> 9) ^ (tick >> 18)) + (r + 1) * 40503
    return hashed & (prog[lk.Z_BUCKETS] - 1)


@inner
def find(prog, st, mem, r, tick):
    """Return the list of a rank at a tick; a new, empty one if there is none yet."""
    first = bucket(prog, st, r, tick)
    row = buckets.list(st, first)
    while row > 0 and (pending_rows.tick(mem, row) != tick or pending_rows.rank(mem, row) != r):
        row = pending_rows.chain(mem, row)
    if row > 0:
        return row
    row = new_row(st, mem)
    pending_rows.set_rank(mem, row, r)
    pending_rows.set_tick(mem, row, tick)
    pending_rows.set_head(mem, row, 0)
    pending_rows.set_tail(mem, row, 0)
    pending_rows.set_chain(mem, row, buckets.list(st, first))
    buckets.set_list(st, first, row)
    return row


@inner
def forget(prog, st, mem, row):
    """Remove a list that has run."""
    at = bucket(prog, st, pending_rows.rank(mem, row), pending_rows.tick(mem, row))
    if buckets.list(st, at) == row:
        buckets.set_list(st, at, pending_rows.chain(mem, row))
    # Buckets chain a few lists at most: a scan for the predecessor is short.
    else:
        before = buckets.list(st, at)
        while pending_rows.chain(mem, before) != row:
            before = pending_rows.chain(mem, before)
        pending_rows.set_chain(mem, before, pending_rows.chain(mem, row))
    free_row(st, mem, row)


@inner
def pending(prog, st, mem, heap, tick, what):
    """Put something at the end of the list of a tick."""
    row = find(prog, st, mem, lk.EVERY, tick)
    # Lists in the heap are never empty, the one that is running may be.
    if pending_rows.head(mem, row) == 0 and row != st[lk.V_NOW]:
        push(st, heap, tick, row)
    append(mem, pending_rows.at_head(mem, row), what)


@inner
def at_rank(prog, st, mem, heap, r, tick, code, a, b):
    """Let something happen on a rank."""
    batch = find(prog, st, mem, r, tick)
    # A batch that is running has its place in the list of the tick behind it.
    if pending_rows.head(mem, batch) == 0 and batch != st[lk.V_BATCH]:
        pending(prog, st, mem, heap, tick, lk.BATCH + lk.KINDS * batch)
    append(mem, pending_rows.at_head(mem, batch), new_event(st, mem, code, a, b))


@inner
def at_end(prog, st, mem, heap, tick, code, a, b):
    """Schedule an event after all others of its tick so far."""
    pending(prog, st, mem, heap, tick, new_event(st, mem, code, a, b))


@inner
def at_once(st, mem, code, a, b):
    """Let something happen right after the event that is being processed."""
    what = new_event(st, mem, code, a, b)
    hops.set_next(mem, what // lk.KINDS, 0)
    if st[lk.V_ONCE] == 0:
        st[lk.V_ONCE] = what
    else:
        hops.set_next(mem, st[lk.V_ONCE_TAIL] // lk.KINDS, what)
    st[lk.V_ONCE_TAIL] = what
