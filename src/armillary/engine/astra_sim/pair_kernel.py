"""Point-to-point messages; `prog`, `st`, `mem` and `heap` are as in `collective_kernel`."""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.common.layout_kernel import *

rank = use("armillary.engine.astra_sim.rank_kernel")
at_end = use("armillary.engine.astra_sim.congestion.queue_kernel").at_end
send_message = use("armillary.engine.astra_sim.congestion.link_kernel").send_message
node_row, schedule, next_seq = rank.node_row, rank.schedule, rank.next_seq
CONTENTION = rank.CONTENTION


@inner
def post_send(prog, st, mem, heap, r, node, item, tick):
    """Send a point-to-point message; under rendezvous it waits for the receive."""
    at = prog[ITEMS] + item * I_COLUMNS
    channel = prog[at + I_CHANNEL]
    number = st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT]
    st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT] = number + 1
    first = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_FIRST]
    st[st[SEND_NODE] + first + number] = node
    inject = tick
    control = prog[at + I_CONTROL]
    if CONTENTION:
        if control < 0:
            inject_pair(prog, st, mem, heap, r, node, item, tick)
        elif st[st[CHANNEL] + channel * CS_COLUMNS + CS_CLEARED] > number:
            at_end(prog, st, mem, heap, tick, EV_GO_PAIR, r, node)
        return
    if control >= 0:
        if st[st[CHANNEL] + channel * CS_COLUMNS + CS_POSTED] <= number:
            st[st[SEND_TICK] + first + number] = tick
            return
        inject = max(tick, st[st[SEND_TICK] + first + number] + control)
    schedule(
        prog, st, mem, heap, r, inject + prog[at + I_DELAY], inject, tick, next_seq(st), EV_SEND, r, node
    )


@inner
def inject_pair(prog, st, mem, heap, r, node, item, tick):
    """Put a point-to-point message on the links."""
    at = prog[ITEMS] + item * I_COLUMNS
    to = prog[prog[CHANNELS] + prog[at + I_CHANNEL] * CN_COLUMNS + CN_RECEIVER]
    send_message(prog, st, mem, heap, r, to, prog[at + I_DELAY], EV_SEND, r, node, tick)


@inner
def clear_pair(prog, st, mem, heap, channel, tick):
    """The control message of the next receive of a channel is at the sender (rendezvous)."""
    number = st[st[CHANNEL] + channel * CS_COLUMNS + CS_CLEARED]
    st[st[CHANNEL] + channel * CS_COLUMNS + CS_CLEARED] = number + 1
    if st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT] > number:
        row = prog[CHANNELS] + channel * CN_COLUMNS
        go_pair(
            prog,
            st,
            mem,
            heap,
            prog[row + CN_SENDER],
            st[st[SEND_NODE] + prog[row + CN_FIRST] + number],
            tick,
        )


@inner
def go_pair(prog, st, mem, heap, r, node, tick):
    """Send a point-to-point message that its receiver has cleared."""
    item = prog[prog[RANKS] + r * R_COLUMNS + R_ITEMS] + prog[node_row(prog, r, node) + N_ITEM]
    inject_pair(prog, st, mem, heap, r, node, item, tick)


@inner
def post_recv(prog, st, mem, heap, r, node, item, tick):
    """Post a point-to-point receive; it completes at once if its message has arrived."""
    at = prog[ITEMS] + item * I_COLUMNS
    channel = prog[at + I_CHANNEL]
    number = st[st[CHANNEL] + channel * CS_COLUMNS + CS_POSTED]
    st[st[CHANNEL] + channel * CS_COLUMNS + CS_POSTED] = number + 1
    first = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_FIRST]
    st[st[RECV_NODE] + first + number] = node
    control = prog[at + I_CONTROL]
    if CONTENTION:
        if st[st[CHANNEL] + channel * CS_COLUMNS + CS_ARRIVED] > number:
            at_end(prog, st, mem, heap, tick, EV_RECV, r, node)
        elif control >= 0:
            to = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_SENDER]
            send_message(prog, st, mem, heap, r, to, control, EV_CLEAR_PAIR, channel, 0, tick)
        return
    if st[st[CHANNEL] + channel * CS_COLUMNS + CS_ARRIVED] > number:
        schedule(prog, st, mem, heap, r, tick, tick, tick, next_seq(st), EV_RECV, r, node)
    elif control >= 0 and st[st[CHANNEL] + channel * CS_COLUMNS + CS_SENT] > number:
        sent = st[st[SEND_TICK] + first + number]
        inject = max(sent, tick + control)
        sender = prog[prog[CHANNELS] + channel * CN_COLUMNS + CN_SENDER]
        schedule(
            prog,
            st,
            mem,
            heap,
            sender,
            inject + prog[at + I_DELAY],
            inject,
            sent,
            next_seq(st),
            EV_SEND,
            sender,
            st[st[SEND_NODE] + first + number],
        )
    else:
        st[st[SEND_TICK] + first + number] = tick
