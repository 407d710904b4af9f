"""DCQCN: the rate of a message by the marks on its packets (Zhu et al., SIGCOMM 2015, section 3.1).

Timers need no events: a message catches up with expired timers when it sends or is notified.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk

queue_kernel = use("armillary.engine.transport.queue_kernel")
new_row, free_row = queue_kernel.new_row, queue_kernel.free_row
flows, option = accessors(pk.FLOW, pk.OPTION)


@inner
def new_flow(net, pool, line):
    """Return the state of a message that begins at `line` bytes/s, the rate of its first link."""
    row = new_row(net, pool)
    flows.set_notices(pool, row, 0)
    flows.set_done(pool, row, 0)
    flows.set_rate(pool, row, line)
    flows.set_target(pool, row, line)
    flows.set_alpha(pool, row, pk.ONE)
    # Timers do not run before the first notification. Half of FOREVER, so that adding a period does not
    # overflow.
    flows.set_decayed(pool, row, lk.FOREVER >> 1)
    flows.set_risen(pool, row, lk.FOREVER >> 1)
    flows.set_times(pool, row, 0)
    flows.set_rounds(pool, row, 0)
    flows.set_sent(pool, row, 0)
    flows.set_quiet(pool, row, 0)
    flows.set_wait(pool, row, 0)
    return row


@inner
def flow_done(net, pool, flow):
    """Free the state once the message has arrived and no notification of it is in flight."""
    if flows.done(pool, flow) > 0 and flows.notices(pool, flow) == 0:
        free_row(net, pool, flow)


@inner
def _rise(table, pool, flow, line):
    """Raise the rate half way to the target; after the steps of fast recovery the target itself rises."""
    options = table[lk.T_OPTIONS]
    fast = option.fast(table, options)
    times = flows.times(pool, flow)
    rounds = flows.rounds(pool, flow)
    target = flows.target(pool, flow)
    # Hyper increase: timer and byte counter are both past fast recovery; additive increase: one of them is.
    if min(times, rounds) > fast:
        target += (min(times, rounds) - fast) * option.hyper(table, options)
    elif max(times, rounds) >= fast:
        target += option.more(table, options)
    target = min(target, line)
    flows.set_target(pool, flow, target)
    # Rounded up, so that the rate reaches the target.
    flows.set_rate(pool, flow, min(line, (flows.rate(pool, flow) + target + 1) // 2))


@inner
def _catch_up(table, pool, flow, line, now):
    """Let both timers run out as often as they have up to `now`."""
    options = table[lk.T_OPTIONS]
    period = option.decay(table, options)
    # A loop and not a power: the integer rounding of each step is part of the result.
    while flows.decayed(pool, flow) + period <= now:
        flows.add_decayed(pool, flow, period)
        flows.add_alpha(pool, flow, -(flows.alpha(pool, flow) * option.gain(table, options) // pk.ONE))
    period = option.timer(table, options)
    while flows.risen(pool, flow) + period <= now:
        flows.add_risen(pool, flow, period)
        flows.add_times(pool, flow, 1)
        _rise(table, pool, flow, line)


@inner
def slow_down(table, pool, flow, line, now):
    """React to a notification: cut the rate, raise the estimate of congestion and restart both timers."""
    _catch_up(table, pool, flow, line, now)
    options = table[lk.T_OPTIONS]
    gain = option.gain(table, options)
    # The line rate may have fallen since, with another stage of the network.
    rate = min(line, flows.rate(pool, flow))
    alpha = flows.alpha(pool, flow)
    flows.set_target(pool, flow, rate)
    # R = R (1 - alpha / 2) with the old alpha; then alpha = (1 - g) alpha + g.
    flows.set_rate(
        pool, flow, max(min(line, option.least(table, options)), rate - rate * alpha // (2 * pk.ONE))
    )
    flows.set_alpha(pool, flow, alpha - alpha * gain // pk.ONE + gain)
    flows.set_decayed(pool, flow, now)
    flows.set_risen(pool, flow, now)
    flows.set_times(pool, flow, 0)
    flows.set_rounds(pool, flow, 0)
    flows.set_sent(pool, flow, 0)


@inner
def next_time(table, pool, flow, line, size, now):
    """Return the ps at which the message may send again, after `size` bytes sent now, or `resumed` is to be asked."""
    _catch_up(table, pool, flow, line, now)
    # At line rate the port alone paces, and neither timer nor counter has anything to raise.
    if flows.rate(pool, flow) >= line:
        return now
    per_round = option.per_round(table, table[lk.T_OPTIONS])
    flows.add_sent(pool, flow, size)
    if flows.sent(pool, flow) >= per_round:
        flows.add_sent(pool, flow, -per_round)
        flows.add_rounds(pool, flow, 1)
        _rise(table, pool, flow, line)
    flows.set_wait(pool, flow, size)
    return _until(table, pool, flow, now)


@inner
def _until(table, pool, flow, now):
    """Return when the rate has made up for what was sent, or when it rises before that."""
    rate = flows.rate(pool, flow)
    wait = flows.wait(pool, flow)
    # Rounded up, so that the average stays at or below the rate.
    time = now + (wait * pk.SECOND + rate - 1) // rate
    rise = flows.risen(pool, flow) + option.timer(table, table[lk.T_OPTIONS])
    flows.set_wait(pool, flow, 0)
    if time <= rise:
        return time
    # At its least rate a packet takes 33 ms, in which the timer raises the rate 600 times.
    flows.set_wait(pool, flow, max(1, wait - rate * (rise - now) // pk.SECOND))
    return rise


@inner
def resumed(table, pool, flow, line, now):
    """The time of `next_time` has come: return `now` if the message may send, else when to ask again."""
    if flows.wait(pool, flow) == 0:
        return now
    _catch_up(table, pool, flow, line, now)
    return _until(table, pool, flow, now)


@inner
def notifies(table, pool, flow, now):
    """Tell whether a marked packet that has arrived is notified: one per message and interval."""
    if now < flows.quiet(pool, flow):
        return False
    flows.set_quiet(pool, flow, now + option.quiet(table, table[lk.T_OPTIONS]))
    flows.add_notices(pool, flow, 1)
    return True
