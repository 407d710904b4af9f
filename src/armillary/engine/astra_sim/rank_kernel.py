"""What all that happens on a rank needs: the rows of its nodes, and events of it."""

from __future__ import annotations

from armillary.base.jit import in_variant, inner, use
from armillary.engine.common.layout_kernel import *

push = use("armillary.engine.common.heap_kernel").push
at_rank = use("armillary.engine.astra_sim.congestion.queue_kernel").at_rank
CONTENTION = in_variant("contention")
"""Messages wait for links (`armillary.engine.astra_sim.congestion`)."""


@inner
def node_row(prog, r, node):
    """Return the address of a node row."""
    return prog[NODES] + (prog[prog[RANKS] + r * R_COLUMNS + R_NODES] + node) * N_COLUMNS


@inner
def schedule(prog, st, mem, heap, r, tick, registered, sent, seq, code, a, b):
    """Put an event of rank `r` on the heap."""
    if CONTENTION:
        at_rank(prog, st, mem, heap, r, tick, code, a, b)
    else:
        st[V_HEAP] = push(heap, 0, st[V_HEAP], tick, registered, sent, seq, code, a, b)


@inner
def next_seq(st):
    """Return a new sequence number."""
    st[V_SEQ] += 1
    return st[V_SEQ]
