"""What all that happens on a rank needs: the rows of its nodes, and events of it."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import in_variant, inner, use
from armillary.engine.astra_sim import layout as lk

push = use("armillary.engine.common.heap_kernel").push
at_rank = use("armillary.engine.astra_sim.congestion.queue_kernel").at_rank
paces, ranks = accessors(lk.PACES, lk.RANKS)
CONTENTION = in_variant("contention")
"""Messages wait for links (`armillary.engine.astra_sim.congestion`)."""


@inner
def node_row(prog, r, node):
    """Return the address of a node row."""
    return ranks.nodes(prog, r) + node


@inner
def ticks_of_node(prog, r, node):
    """Return how long a node of a rank takes, or of a message of a custom collective its collective."""
    return paces.ticks(prog, ranks.pace(prog, r) + node)


@inner
def schedule(prog, st, mem, heap, r, tick, registered, sent, seq, code, a, b):
    """Put an event of rank `r` on the heap."""
    if CONTENTION:
        at_rank(prog, st, mem, heap, r, tick, code, a, b)
    else:
        st[lk.V_HEAP] = push(heap, 0, st[lk.V_HEAP], tick, registered, sent, seq, code, a, b)


@inner
def next_seq(st):
    """Return a new sequence number."""
    st[lk.V_SEQ] += 1
    return st[lk.V_SEQ]


@inner
def schedule_now(prog, st, mem, heap, r, tick, now, code, a, b):
    """Put an event of rank `r` on the heap that is registered, and whose cause is sent, at tick `now`."""
    schedule(prog, st, mem, heap, r, tick, now, now, next_seq(st), code, a, b)
