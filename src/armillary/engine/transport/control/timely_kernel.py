"""TIMELY (Mittal et al., SIGCOMM 2015, algorithm 1): a rate, by the gradient of round trips; a step per 16 KiB."""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl

line_rate = use("armillary.engine.transport.control.rate_kernel").line_rate
flows, option = accessors(rl.FLOW, rl.OPTION)
SEGMENT = 16 << 10
"""Bytes per step of TIMELY: its smallest segment."""
HYPER = 5
"""Steps in a row of falling round trips after which TIMELY adds five times as much."""
LEAST_RATE = 12_500_000
"""Bytes/s below which TIMELY does not go: 100 Mb/s, the least rate of HPCC's ns-3 programs."""


@inner
def timely(table, net, flow, acked, delay):
    """An ACK of `acked` bytes has come, after a round trip of `delay` ps."""
    flows.add_segment(net, flow, acked)
    if flows.segment(net, flow) < SEGMENT:
        return
    flows.set_segment(net, flow, 0)
    options = table[lk.T_OPTIONS]
    before = flows.trend(net, flow)
    # The first sample has none before it.
    change = delay - flows.recent(net, flow) if flows.recent(net, flow) > 0 else 0
    trend = (before + 7 * change) // 8
    flows.set_trend(net, flow, trend)
    rate = flows.rate(net, flow)
    step = option.gain_up(table, options)
    high = option.high(table, options)
    if delay < option.target(table, options):
        rate += step
        flows.set_falls(net, flow, 0)
    elif delay > high:
        rate -= rate // 1000 * (800 * (delay - high) // delay)
        flows.set_falls(net, flow, 0)
    elif trend <= 0:
        flows.add_falls(net, flow, 1)
        rate += (HYPER if flows.falls(net, flow) >= HYPER else 1) * step
    else:
        flows.set_falls(net, flow, 0)
        # Not below half, which the paper leaves open: a gradient above 1.25 would stop the sender.
        rate -= rate // 1000 * min(500, 800 * trend // max(1, flows.base(net, flow)))
    flows.set_rate(net, flow, max(LEAST_RATE, min(rate, line_rate(table, net, flow))))
