"""Receivers of protocol `rdma`: what has come, ACKs, what is asked for again, and the credit that they grant.

An ACK answers every packet at once; it says which, and up to where all have come. With DCQCN its mark is a
notification, at most one per interval and connection. Messages of a connection arrive in order.

Credit (NDP, SIGCOMM 2017; EQDS, NSDI 2022, and Ultra Ethernet's RCCC): a sender begins with a window of its own, and
says with each packet how much credit it wants in all. The NPU grants it in quanta, to its senders in turn, at the rate
of the last link, so that only the first windows meet in the network. A header without payload says what to grant again.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, deliver = queue_kernel.push, queue_kernel.deliver
use_kernel = use("armillary.engine.transport.use_kernel")
link_row, duration = use_kernel.link_row, use_kernel.duration
rdma_sender_kernel = use("armillary.engine.transport.rdma.rdma_sender_kernel")
say, slot_of, by_credit = rdma_sender_kernel.say, rdma_sender_kernel.slot_of, rdma_sender_kernel.by_credit
rccc_kernel = use("armillary.engine.transport.control.rccc_kernel")
count, adapt, granted = rccc_kernel.count, rccc_kernel.adapt, rccc_kernel.granted
notifies = use("armillary.engine.transport.control.dcqcn_kernel").notifies
flows, messages, option, packets = accessors(rl.FLOW, rl.MESSAGE, rl.OPTION, rl.PACKET)
slots, rows, pacers = accessors(rl.SLOT, lk.ROW, rl.PACER)


@inner
def received(table, net, pool, queue, row, now):
    """A packet with or without its payload is at its destination."""
    flow = packets.message(pool, row)
    options = table[lk.T_OPTIONS]
    number = packets.number(pool, row)
    path = packets.path(pool, row)
    if by_credit(table):
        lost = packets.payload(pool, row) if packets.kind(pool, row) == rl.HEADER else 0
        asked(table, net, queue, flow, packets.told(pool, row), lost, now)
        count(table, net, flows.pacer(net, flow), packets.kind(pool, row), packets.mark(pool, row), now)
    if packets.kind(pool, row) == rl.HEADER:
        _answer(table, net, pool, queue, row, rl.NACK, number, path, 0, now)
        return
    expected = flows.expected(net, flow)
    if number > expected and option.backward(table, options) > 0:
        # Once per gap: what follows was sent before the request arrived.
        if flows.nacked(net, flow) == 0:
            flows.set_nacked(net, flow, 1)
            _answer(table, net, pool, queue, row, rl.NACK, expected, path, 0, now)
        return
    if number >= expected:
        slots.set_held(net, slot_of(table, flow, number), 1)
    while slots.held(net, slot_of(table, flow, expected)) > 0:
        slots.set_held(net, slot_of(table, flow, expected), 0)
        expected += 1
        flows.set_nacked(net, flow, 0)
    flows.set_expected(net, flow, expected)
    mark = packets.mark(pool, row)
    if option.rule(table, options) == rl.DCQCN and mark > 0:
        # The state is the sender's, whose packets are marked; only its interval is looked at here.
        mark = 1 if notifies(table, pool, flows.control(net, flow), now) else 0
    _answer(table, net, pool, queue, row, rl.ACK, number, path, mark, now)
    message = flows.first(net, flow)
    while message > 0 and messages.end(pool, message) <= expected:
        after = rows.next(pool, message)
        deliver(net, pool, message)
        message = after
    flows.set_first(net, flow, message)


@inner
def _answer(table, net, pool, queue, row, kind, number, path, mark, now):
    """Answer a packet; the answer takes over its stamp, and what links told it."""
    flow = packets.message(pool, row)
    answer = say(table, net, pool, queue, flow, kind, number, path, False, now)
    packets.set_stamp(pool, answer, packets.stamp(pool, row))
    packets.set_told(pool, answer, flows.expected(net, flow))
    packets.set_mark(pool, answer, mark)
    packets.set_trail(pool, answer, packets.trail(pool, row))
    packets.set_trail(pool, row, 0)


@inner
def asked(table, net, queue, flow, wants, lost, now):
    """A sender has said how much credit it wants in all; besides, `lost` bytes must come again."""
    known = flows.known(net, flow)
    if wants > known or lost > 0:
        flows.set_known(net, flow, max(known, wants))
        flows.add_owed(net, flow, max(0, wants - known) + lost)
        _pull_later(table, net, queue, flow, now)


@inner
def _pull_later(table, net, queue, flow, now):
    """Put a connection that is owed credit on the list of its pacer."""
    if flows.pulling(net, flow) > 0:
        return
    pacer = flows.pacer(net, flow)
    flows.set_pulling(net, flow, 1)
    flows.set_next_pull(net, flow, 0)
    if pacers.first(net, pacer) == 0:
        pacers.set_first(net, pacer, flow + 1)
    else:
        flows.set_next_pull(net, pacers.last(net, pacer) - 1, flow + 1)
    pacers.set_last(net, pacer, flow + 1)
    if pacers.armed(net, pacer) == 0:
        pacers.set_armed(net, pacer, 1)
        push(net, queue, max(now, pacers.free(net, pacer)), pacer * lk.CODES + rl.PULLS)


@inner
def pulls(table, net, pool, queue, pacer, now):
    """An NPU may grant credit: to the connection whose turn it is."""
    pacers.set_armed(net, pacer, 0)
    flow = pacers.first(net, pacer) - 1
    pacers.set_first(net, pacer, flows.next_pull(net, flow))
    flows.set_pulling(net, flow, 0)
    options = table[lk.T_OPTIONS]
    adapt(table, net, pacer, now)
    grant = min(flows.owed(net, flow), option.quantum(table, options))
    flows.add_owed(net, flow, -grant)
    row = say(table, net, pool, queue, flow, rl.PULL, 0, flows.expected(net, flow), False, now)
    packets.set_told(pool, row, grant)
    mtu = option.mtu(table, options)
    # The last link of the way is the reverse of the one by which ACKs leave, and as fast.
    size = grant + -(-grant // mtu) * option.header(table, options)
    long = duration(table, link_row(table, net, flows.back(net, flow)), size)
    pacers.set_free(net, pacer, now + long * pk.ONE // granted(table, net, pacer))
    if flows.owed(net, flow) > 0:
        _pull_later(table, net, queue, flow, now)
    if pacers.first(net, pacer) > 0 and pacers.armed(net, pacer) == 0:
        pacers.set_armed(net, pacer, 1)
        push(net, queue, pacers.free(net, pacer), pacer * lk.CODES + rl.PULLS)
