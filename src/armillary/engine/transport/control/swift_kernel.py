"""Swift (Kumar et al., SIGCOMM 2020, algorithm 1): a window, by the distance of the round trip from a target.

The target grows with links and with 1 / sqrt(window). Below a window of one packet `control_kernel` spaces packets.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

set_window = use("armillary.engine.transport.control.rate_kernel").set_window
flows, option = accessors(rl.FLOW, rl.OPTION)


@inner
def root(value):
    """Return the whole part of a square root, by Newton's method."""
    if value < 2:
        return value
    x = 1 << 31
    while True:
        y = (x + value // x) // 2
        if y >= x:
            return x
        x = y


@inner
def swift_target(table, net, flow):
    """Return the round trip at which a connection of Swift aims."""
    options = table[lk.T_OPTIONS]
    scaled = option.scaled(table, options)
    # In 2**20ths of packets, so that the root is in 1024ths.
    packets_2 = (flows.window(net, flow) << 10) // option.mtu(table, options)
    extra = scaled * 1024 // max(1, root(packets_2)) - scaled // 10
    base = option.target(table, options)
    return base + flows.links(net, flow) * option.hop(table, options) + max(0, min(extra, 5 * base))


@inner
def swift(table, net, flow, acked, delay, now):
    """An ACK of `acked` bytes has come at `now`, after a round trip of `delay` ps."""
    options = table[lk.T_OPTIONS]
    target = swift_target(table, net, flow)
    window = flows.window(net, flow)
    mtu = option.mtu(table, options)
    if delay < target:
        more = option.gain_up(table, options) * acked
        window += more * rl.PART // mtu if window < mtu * rl.PART else more * rl.PART * rl.PART // window
        set_window(table, net, flow, window)
    elif now - flows.since(net, flow) >= delay:
        flows.set_since(net, flow, now)
        cut = min(pk.ONE // 2, 4 * (((delay - target) << 20) // delay) // 5)
        set_window(table, net, flow, window - window * cut // pk.ONE)
