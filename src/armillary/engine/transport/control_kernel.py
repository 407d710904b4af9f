"""How fast a connection of protocol `rdma` sends: DCQCN, TIMELY, Swift, HPCC; others are in `nscc_kernel`.

* DCQCN (Zhu et al., SIGCOMM 2015): see `dcqcn_kernel`.
* TIMELY (Mittal et al., SIGCOMM 2015, algorithm 1): a rate, by the gradient of round trips; a step per 16 KiB.
* Swift (Kumar et al., SIGCOMM 2020, algorithm 1): a window, by the distance of the round trip from a target that grows
  with links and with 1 / sqrt(window); below one packet the packets are spaced.
* HPCC (Li et al., SIGCOMM 2019, algorithm 1): a window, by the utilisation of the busiest link, which every link tells.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport import packet_layout as pk
from armillary.engine.transport import rdma_layout as rl

link_row = use("armillary.engine.transport.use_kernel").link_row
drop_records = use("armillary.engine.transport.rdma_port_kernel").drop_records
dcqcn_kernel = use("armillary.engine.transport.dcqcn_kernel")
new_flow, slow_down, next_time, resumed = (
    dcqcn_kernel.new_flow,
    dcqcn_kernel.slow_down,
    dcqcn_kernel.next_time,
    dcqcn_kernel.resumed,
)
nscc_kernel = use("armillary.engine.transport.nscc_kernel")
nscc_ack, nscc_loss = nscc_kernel.nscc_ack, nscc_kernel.nscc_loss
flows, links, option = accessors(rl.FLOW, lk.LINK, rl.OPTION)
packets, records = accessors(rl.PACKET, rl.RECORD)

SEGMENT = 16 << 10
"""Bytes per step of TIMELY: its smallest segment."""
HYPER = 5
"""Steps in a row of falling round trips after which TIMELY adds five times as much."""
LEAST_RATE = 12_500_000
"""Bytes/s below which TIMELY does not go: 100 Mb/s, the least rate of HPCC's ns-3 programs."""
MOST_USE = 64 * pk.ONE


@inner
def line_rate(table, net, flow):
    """Return bytes/s of the link by which a connection leaves."""
    at = link_row(table, net, flows.out(net, flow))
    return min(pk.MOST_RATE, links.fast(table, at) * pk.SECOND // max(1, links.slow(table, at)))


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
        _timely(table, net, flow, acked, delay)
    elif rule == rl.SWIFT:
        _swift(table, net, flow, acked, delay, now)
    elif rule == rl.HPCC:
        _hpcc(table, net, pool, flow, row)
    elif rule == rl.NSCC:
        nscc_ack(table, net, flow, acked, packets.mark(pool, row), delay, now)
    flows.set_recent(net, flow, delay)


@inner
def on_loss(table, net, pool, flow, lost, now):
    """Packets of `lost` bytes are known to be lost."""
    rule = option.rule(table, table[lk.T_OPTIONS])
    if rule == rl.SWIFT and now - flows.since(net, flow) >= flows.recent(net, flow):
        flows.set_since(net, flow, now)
        _set_window(table, net, flow, flows.window(net, flow) // 2)
    elif rule == rl.NSCC:
        nscc_loss(table, net, flow, lost)


@inner
def on_timeout(table, net, pool, flow, lost, now):
    """All that was in flight counts as lost."""
    options = table[lk.T_OPTIONS]
    if option.rule(table, options) == rl.SWIFT:
        _set_window(table, net, flow, option.mtu(table, options) * rl.PART)
    elif option.rule(table, options) == rl.NSCC:
        nscc_loss(table, net, flow, lost)


@inner
def _set_window(table, net, flow, window):
    """Set a window within a hundredth of a packet and the largest (Swift: a tenth)."""
    options = table[lk.T_OPTIONS]
    least = option.mtu(table, options) * rl.PART // (10 if option.rule(table, options) == rl.SWIFT else 100)
    flows.set_window(net, flow, max(least, min(window, option.largest(table, options) * rl.PART)))


@inner
def _timely(table, net, flow, acked, delay):
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
def _swift(table, net, flow, acked, delay, now):
    options = table[lk.T_OPTIONS]
    target = swift_target(table, net, flow)
    window = flows.window(net, flow)
    mtu = option.mtu(table, options)
    if delay < target:
        more = option.gain_up(table, options) * acked
        window += more * rl.PART // mtu if window < mtu * rl.PART else more * rl.PART * rl.PART // window
        _set_window(table, net, flow, window)
    elif now - flows.since(net, flow) >= delay:
        flows.set_since(net, flow, now)
        cut = min(pk.ONE // 2, 4 * (((delay - target) << 20) // delay) // 5)
        _set_window(table, net, flow, window - window * cut // pk.ONE)


@inner
def _hpcc(table, net, pool, flow, row):
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
    _set_window(table, net, flow, window)
    # The reference moves once per round trip: with the first ACK of a packet sent after it last did.
    if packets.number(pool, row) >= flows.mark(net, flow):
        flows.set_mark(net, flow, flows.sent(net, flow))
        flows.set_stage(net, flow, 0 if far else flows.stage(net, flow) + 1)
        flows.set_agreed(net, flow, flows.window(net, flow))
