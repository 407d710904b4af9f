"""NSCC, the sender's congestion control of Ultra Ethernet (specification 1.0, section 3.6.13), as htsim has it.

Delay is the round trip above the shortest seen. Of the four cases of (marked, delay above target) the window grows by
the distance from the target if neither, a little if delay alone says congested, stays if a mark alone does, and falls
if both do, at most once per round trip and by the mean delay. Quick adapt: after a loss or a delay of four targets, if
little arrived in a round trip, the window becomes what arrived. While nothing waits for a whole window it grows fast.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner
from armillary.engine.transport import layout as lk
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.switch import layout as pk

flows, option = accessors(rl.FLOW, rl.OPTION)
NO_DELAY = 1_000_000
"""ps below which nothing waits."""
EVERY = 8
"""Packets after whose ACKs increases are applied."""


@inner
def _set(table, net, flow, window):
    options = table[lk.T_OPTIONS]
    least = option.mtu(table, options) * rl.PART
    flows.set_window(net, flow, max(least, min(window, option.largest(table, options) * rl.PART)))


@inner
def nscc_ack(table, net, flow, acked, marked, rtt, now):
    """An ACK of `acked` new bytes has come, after a round trip of `rtt` ps."""
    options = table[lk.T_OPTIONS]
    if rtt < flows.least(net, flow):
        flows.set_least(net, flow, rtt)
    base = flows.least(net, flow)
    target = option.target(table, options)
    delay = rtt - base
    flows.add_trend(net, flow, (delay - flows.trend(net, flow)) // 80)
    if _quick(table, net, flow, acked, delay, base, target, now):
        return
    skip = flows.skip(net, flow)
    if skip > 0:
        flows.set_skip(net, flow, max(0, skip - acked))
        return
    mtu = option.mtu(table, options)
    step = option.gain_up(table, options)
    window = flows.window(net, flow)
    if marked == 0 and delay < NO_DELAY:
        flows.add_idle_bytes(net, flow, acked)
    else:
        flows.set_idle_bytes(net, flow, 0)
    mean = flows.trend(net, flow)
    if marked == 0 and flows.idle_bytes(net, flow) * rl.PART > window:
        _set(table, net, flow, window + acked * option.quick(table, options) * rl.PART // pk.ONE)
    elif marked == 0 and delay >= target:
        flows.add_growth(net, flow, step * acked)
    elif marked == 0:
        # The slope is per us.
        flows.add_growth(net, flow, option.slope(table, options) * acked * ((target - delay) // 1000) // 1000)
    elif delay >= target and mean > target and now - flows.since(net, flow) >= base:
        flows.set_since(net, flow, now)
        cut = min(pk.ONE // 2, 4 * (((mean - target) << 20) // mean) // 5)
        _set(table, net, flow, window - window * cut // pk.ONE)
    flows.add_segment(net, flow, acked)
    if flows.segment(net, flow) >= EVERY * mtu or now - flows.grown(net, flow) >= base:
        window = flows.window(net, flow)
        window += flows.growth(net, flow) * rl.PART * rl.PART // window
        flows.set_growth(net, flow, 0)
        flows.set_segment(net, flow, 0)
        flows.set_grown(net, flow, now)
        if now - flows.round(net, flow) >= base:
            flows.set_round(net, flow, now)
            window += option.eta(table, options) * rl.PART
        _set(table, net, flow, window)


@inner
def _quick(table, net, flow, acked, delay, base, target, now):
    """Adapt to what arrives if little does; tells whether it has."""
    if delay > 4 * target:
        flows.set_trigger(net, flow, 1)
    flows.add_period_bytes(net, flow, acked)
    if now < flows.period(net, flow):
        return False
    arrived = flows.period_bytes(net, flow)
    few = arrived < option.largest(table, table[lk.T_OPTIONS]) // 8
    done = flows.period(net, flow) > 0 and flows.trigger(net, flow) > 0 and few
    if done:
        _set(table, net, flow, arrived * rl.PART)
        flows.set_skip(net, flow, flows.flight(net, flow))
        flows.set_growth(net, flow, 0)
    flows.set_period(net, flow, now + base + target)
    flows.set_period_bytes(net, flow, 0)
    flows.set_trigger(net, flow, 0)
    return done


@inner
def nscc_loss(table, net, flow, lost):
    """Packets of `lost` bytes are lost."""
    flows.set_trigger(net, flow, 1)
    if flows.skip(net, flow) > 0:
        flows.set_skip(net, flow, max(0, flows.skip(net, flow) - lost))
        return
    _set(table, net, flow, flows.window(net, flow) - lost * rl.PART)
