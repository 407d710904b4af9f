"""HPCC (Li et al., SIGCOMM 2019, algorithm 1): a window, by the use of the busiest link, which every link tells."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

link_row = use("armillary.engine.transport.use_kernel").link_row
drop_records = use("armillary.engine.transport.rdma.rdma_port_kernel").drop_records
set_window = use("armillary.engine.transport.control.rate_kernel").set_window
flows, links, option = accessors(rl.FLOW, lk.LINK, rl.OPTION)
packets, records = accessors(rl.PACKET, rl.RECORD)
MOST_USE = 64 * pk.ONE


@inner
def hpcc(table, net, pool, flow, row):
    """An ACK has come with what links told its packet."""
    options = table[lk.T_OPTIONS]
    base = flows.base(net, flow)
    new = packets.trail(pool, row)
    old = flows.trail(net, flow)
    most = 0
    tau = base
    # Both begin with the last link of the way.
    while new > 0 and old > 0:
        span = records.time(pool, new) - records.time(pool, old)
        if records.link(pool, new) == records.link(pool, old) and span > 0:
            at = link_row(table, net, records.link(pool, new))
            slow = links.slow(table, at)
            fast = links.fast(table, at)
            sent = (records.bytes(pool, new) - records.bytes(pool, old)) * slow // fast
            waits = min(records.depth(pool, new), records.depth(pool, old)) * slow // fast
            use = (sent << 20) // span + (waits << 20) // base
            if use > most:
                most = min(use, MOST_USE)
                tau = min(span, base)
        new = records.next(pool, new)
        old = records.next(pool, old)
    first = flows.trail(net, flow) == 0
    drop_records(net, pool, flows.trail(net, flow))
    flows.set_trail(net, flow, packets.trail(pool, row))
    packets.set_trail(pool, row, 0)
    if first:
        return
    used = (flows.use(net, flow) * (base - tau) + most * tau) // base
    flows.set_use(net, flow, used)
    agreed = flows.agreed(net, flow)
    step = option.gain_up(table, options) * rl.PART
    aim = option.aim(table, options)
    far = used >= aim or flows.stage(net, flow) >= option.stages(table, options)
    window = agreed * aim // max(1, used) + step if far else agreed + step
    set_window(table, net, flow, window)
    # The reference moves once per round trip: with the first ACK of a packet sent after it last did.
    if packets.number(pool, row) >= flows.mark(net, flow):
        flows.set_mark(net, flow, flows.sent(net, flow))
        flows.set_stage(net, flow, 0 if far else flows.stage(net, flow) + 1)
        flows.set_agreed(net, flow, flows.window(net, flow))
