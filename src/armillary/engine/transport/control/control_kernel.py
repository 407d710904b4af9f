"""How fast a connection of protocol `rdma` sends: which control hears of ACKs and losses, and when it may send again.

Each has a kernel of its own: `dcqcn_kernel`, `timely_kernel`, `swift_kernel`, `hpcc_kernel`, `nscc_kernel`; those that
the receiver paces are in `rdma_receiver_kernel`.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

rate_kernel = use("armillary.engine.transport.control.rate_kernel")
line_rate, set_window = rate_kernel.line_rate, rate_kernel.set_window
timely = use("armillary.engine.transport.control.timely_kernel").timely
swift = use("armillary.engine.transport.control.swift_kernel").swift
hpcc = use("armillary.engine.transport.control.hpcc_kernel").hpcc
dcqcn_kernel = use("armillary.engine.transport.control.dcqcn_kernel")
new_flow, slow_down, next_time, resumed = (
    dcqcn_kernel.new_flow,
    dcqcn_kernel.slow_down,
    dcqcn_kernel.next_time,
    dcqcn_kernel.resumed,
)
nscc_kernel = use("armillary.engine.transport.control.nscc_kernel")
nscc_ack, nscc_loss = nscc_kernel.nscc_ack, nscc_kernel.nscc_loss
flows, option, packets = accessors(rl.FLOW, rl.OPTION, rl.PACKET)


@inner
def begin(table, net, pool, flow):
    """A message is added to a connection."""
    if option.rule(table, table[lk.T_OPTIONS]) == rl.DCQCN and flows.control(net, flow) == 0:
        flows.set_control(net, flow, new_flow(net, pool, line_rate(table, net, flow)))


@inner
def paced(table, net, pool, flow, size, now):
    """Return the ps from which on a connection may send again, after `size` bytes sent now."""
    options = table[lk.T_OPTIONS]
    rule = option.rule(table, options)
    window = flows.window(net, flow)
    if rule == rl.DCQCN:
        return next_time(table, pool, flows.control(net, flow), line_rate(table, net, flow), size, now)
    if rule == rl.TIMELY and flows.rate(net, flow) < line_rate(table, net, flow):
        return now + size * pk.SECOND // flows.rate(net, flow)
    if rule == rl.HPCC:
        return now + size * rl.PART * flows.base(net, flow) // window
    if rule == rl.SWIFT and window < option.mtu(table, options) * rl.PART:
        return now + flows.recent(net, flow) * ((size * rl.PART << 10) // window) // 1024
    return now


@inner
def woken(table, net, pool, flow, now):
    """The time of `paced` has come: put it off if a rate of DCQCN says so."""
    if option.rule(table, table[lk.T_OPTIONS]) == rl.DCQCN:
        line = line_rate(table, net, flow)
        flows.set_time(net, flow, resumed(table, pool, flows.control(net, flow), line, now))


@inner
def on_ack(table, net, pool, flow, row, acked, now):
    """An ACK of `acked` new bytes has come."""
    rule = option.rule(table, table[lk.T_OPTIONS])
    delay = now - packets.stamp(pool, row)
    if rule == rl.DCQCN:
        if packets.mark(pool, row) > 0:
            slow_down(table, pool, flows.control(net, flow), line_rate(table, net, flow), now)
    elif rule == rl.TIMELY:
        timely(table, net, flow, acked, delay)
    elif rule == rl.SWIFT:
        swift(table, net, flow, acked, delay, now)
    elif rule == rl.HPCC:
        hpcc(table, net, pool, flow, row)
    elif rule in (rl.NSCC, rl.BOTH):
        nscc_ack(table, net, flow, acked, packets.mark(pool, row), delay, now)
    flows.set_recent(net, flow, delay)


@inner
def on_loss(table, net, pool, flow, lost, now):
    """Packets of `lost` bytes are known to be lost."""
    rule = option.rule(table, table[lk.T_OPTIONS])
    if rule == rl.SWIFT and now - flows.since(net, flow) >= flows.recent(net, flow):
        flows.set_since(net, flow, now)
        set_window(table, net, flow, flows.window(net, flow) // 2)
    elif rule in (rl.NSCC, rl.BOTH):
        nscc_loss(table, net, flow, lost)


@inner
def on_timeout(table, net, pool, flow, lost, now):
    """All that was in flight counts as lost."""
    options = table[lk.T_OPTIONS]
    if option.rule(table, options) == rl.SWIFT:
        set_window(table, net, flow, option.mtu(table, options) * rl.PART)
    elif option.rule(table, options) in (rl.NSCC, rl.BOTH):
        nscc_loss(table, net, flow, lost)
