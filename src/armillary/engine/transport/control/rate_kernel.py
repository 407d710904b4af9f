"""What congestion controls of protocol `rdma` share: the rate of a link, and the bounds of a window."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

link_row = use("armillary.engine.transport.use_kernel").link_row
flows, links, option = accessors(rl.FLOW, lk.LINK, rl.OPTION)


@inner
def line_rate(table, net, flow):
    """Return bytes/s of the link by which a connection leaves."""
    at = link_row(table, net, flows.out(net, flow))
    return min(pk.MOST_RATE, links.fast(table, at) * pk.SECOND // max(1, links.slow(table, at)))


@inner
def set_window(table, net, flow, window):
    """Set a window within a hundredth of a packet and the largest (Swift: a tenth)."""
    options = table[lk.T_OPTIONS]
    least = option.mtu(table, options) * rl.PART // (10 if option.rule(table, options) == rl.SWIFT else 100)
    flows.set_window(net, flow, max(least, min(window, option.largest(table, options) * rl.PART)))
