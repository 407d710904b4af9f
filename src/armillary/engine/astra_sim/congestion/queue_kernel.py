"""The event queue of a network with contention: first come, first served within a tick, in two levels.

Every tick has a list. What happens on links stands in it itself; what happens on a rank is collected in a batch per
rank and tick, which has the place of its first event in the list. Events that a list adds to itself still run in it.
This is the order of ASTRA-sim (spec: 1(c), Clock), on which the order of messages on a link depends.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.engine.common.layout_kernel import *


@inner
def push(st, heap, tick, row):
    """Add a tick, which is not there yet, and the list of it."""
    i = st[V_HEAP]
    st[V_HEAP] = i + 1
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
    size = st[V_HEAP] - 1
    st[V_HEAP] = size
    tick = heap[2 * size]
    i = 0
    child = 1
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
    row = st[V_ROWS]
    if row > 0:
        st[V_ROWS] = mem[row]
        return row
    row = st[V_MACHINE]
    st[V_MACHINE] = row + ROW_COLUMNS
    return row


@inner
def free_row(st, mem, row):
    """Give a row back."""
    mem[row] = st[V_ROWS]
    st[V_ROWS] = row


@inner
def new_event(st, mem, code, a, b):
    """Return an event as a list holds it."""
    row = new_row(st, mem)
    mem[row + G_CODE] = code
    mem[row + G_A] = a
    mem[row + G_B] = b
    return EVENT + KINDS * row


@inner
def append(mem, head, what):
    """Append to the list whose head is at `head`, its tail after it."""
    mem[what // KINDS + W_NEXT] = 0
    if mem[head] == 0:
        mem[head] = what
    else:
        mem[mem[head + 1] // KINDS + W_NEXT] = what
    mem[head + 1] = what


@inner
def take(mem, head):
    """Remove and return the first of the list whose head is at `head`, 0 if it is empty."""
    what = mem[head]
    if what > 0:
        mem[head] = mem[what // KINDS + W_NEXT]
    return what


@inner
def bucket(prog, st, r, tick):
    """Return where the lists start that rank `r` has at ticks like this one."""
    return st[BUCKETS] + (((tick ^ (tick >> 9) ^ (tick >> 18)) + (r + 1) * 40503) & (prog[Z_BUCKETS] - 1))


@inner
def find(prog, st, mem, r, tick):
    """Return the list of a rank at a tick; a new, empty one if there is none yet."""
    first = bucket(prog, st, r, tick)
    row = st[first]
    while row > 0 and (mem[row + B_TICK] != tick or mem[row + B_RANK] != r):
        row = mem[row + B_CHAIN]
    if row > 0:
        return row
    row = new_row(st, mem)
    mem[row + B_RANK] = r
    mem[row + B_TICK] = tick
    mem[row + B_HEAD] = 0
    mem[row + B_TAIL] = 0
    mem[row + B_CHAIN] = st[first]
    st[first] = row
    return row


@inner
def forget(prog, st, mem, row):
    """Remove a list that has run."""
    at = bucket(prog, st, mem[row + B_RANK], mem[row + B_TICK])
    if st[at] == row:
        st[at] = mem[row + B_CHAIN]
    else:
        before = st[at]
        while mem[before + B_CHAIN] != row:
            before = mem[before + B_CHAIN]
        mem[before + B_CHAIN] = mem[row + B_CHAIN]
    free_row(st, mem, row)


@inner
def due(prog, st, mem, heap, tick, what):
    """Put something at the end of the list of a tick."""
    row = find(prog, st, mem, EVERY, tick)
    # Lists in the heap are never empty, the one that is running may be.
    if mem[row + B_HEAD] == 0 and row != st[V_NOW]:
        push(st, heap, tick, row)
    append(mem, row + B_HEAD, what)


@inner
def at_rank(prog, st, mem, heap, r, tick, code, a, b):
    """Let something happen on a rank."""
    batch = find(prog, st, mem, r, tick)
    # A batch that is running has its place in the list of the tick behind it.
    if mem[batch + B_HEAD] == 0 and batch != st[V_BATCH]:
        due(prog, st, mem, heap, tick, BATCH + KINDS * batch)
    append(mem, batch + B_HEAD, new_event(st, mem, code, a, b))


@inner
def at_end(prog, st, mem, heap, tick, code, a, b):
    """Let something happen after all that is due at this tick so far."""
    due(prog, st, mem, heap, tick, new_event(st, mem, code, a, b))


@inner
def at_once(st, mem, code, a, b):
    """Let something happen right after the event that is being processed."""
    what = new_event(st, mem, code, a, b)
    mem[what // KINDS + W_NEXT] = 0
    if st[V_ONCE] == 0:
        st[V_ONCE] = what
    else:
        mem[st[V_ONCE_TAIL] // KINDS + W_NEXT] = what
    st[V_ONCE_TAIL] = what
