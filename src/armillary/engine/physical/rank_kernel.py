"""Nodes of a rank that become free and end, and messages that end those of two ranks."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.physical.fluid_layout_kernel import *

heaps = use("armillary.engine.common.heap_kernel")
put = heaps.put


@inner
def node_row(prog, r, node):
    """Return the address of a node row."""
    return prog[NODES] + (prog[prog[RANKS] + r * R_COLUMNS + R_NODES] + node) * N_COLUMNS


@inner
def touch_rank(st, r):
    """Have the rank issue what is free when the tick ends."""
    if st[st[IS_TOUCHED] + r] == 0:
        st[st[IS_TOUCHED] + r] = 1
        put(st, st[TOUCHED], st[V_TOUCHED], r)
        st[V_TOUCHED] += 1


@inner
def heap_of(prog, r, slot):
    """Return the number of a slot of rank `r` among all slots."""
    return prog[prog[RANKS] + r * R_COLUMNS + R_SLOT] + slot


@inner
def add_ready(prog, st, r, node):
    """Put a free node on the ready heap of its slot (lowest node first)."""
    number = heap_of(prog, r, prog[node_row(prog, r, node) + N_SLOT])
    ready = st[READY_SIZE] + 2 * number
    put(st, st[READY] + st[ready + 1], st[ready], node)
    st[ready] += 1


@inner
def complete_node(prog, st, r, node, tick):
    """Finish one node: free its slot and its children."""
    row = node_row(prog, r, node)
    state = prog[prog[RANKS] + r * R_COLUMNS + R_STATE]
    st[st[NODE_END] + state + node] = tick
    st[st[BUSY] + heap_of(prog, r, prog[row + N_SLOT])] = 0
    st[st[LEFT] + r] -= 1
    if st[st[LEFT] + r] == 0:
        st[st[FINISH] + r] = tick
    first = prog[row + N_CHILD]
    for i in range(first, first + prog[row + N_CHILDREN]):
        child = prog[prog[CHILDREN] + i]
        st[st[INDEGREE] + state + child] -= 1
        if st[st[INDEGREE] + state + child] == 0:
            add_ready(prog, st, r, child)
    touch_rank(st, r)


@inner
def arrived(prog, st, channel, tick):
    """A point-to-point message is there: its send completes, and its receive if it is posted."""
    row = prog[CHANNELS] + channel * CN_COLUMNS
    number = st[st[CAME] + channel]
    st[st[CAME] + channel] = number + 1
    place = prog[row + CN_FIRST] + number
    complete_node(prog, st, prog[row + CN_SENDER], st[st[SEND_NODE] + place], tick)
    if st[st[POSTED] + channel] > number:
        complete_node(prog, st, prog[row + CN_RECEIVER], st[st[RECV_NODE] + place], tick)
