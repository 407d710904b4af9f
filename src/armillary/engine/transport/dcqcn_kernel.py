"""DCQCN: the rate of a message by the marks on its packets (Zhu et al., SIGCOMM 2015, section 3.1).

Timers need no events: a message catches up with those that have run out when it sends or is told of congestion.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.layout_kernel import *
from armillary.engine.transport.packet_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
new_row, free_row = events.new_row, events.free_row


@inner
def new_flow(net, pool, line):
    """Return the state of a message that begins at `line` bytes/s, the rate of its first link."""
    row = new_row(net, pool)
    pool[row + F_UNDER_WAY] = 0
    pool[row + F_DONE] = 0
    pool[row + F_RATE] = line
    pool[row + F_TARGET] = line
    pool[row + F_ALPHA] = ONE
    pool[row + F_DECAYED] = FOREVER >> 1
    pool[row + F_RISEN] = FOREVER >> 1
    pool[row + F_TIMES] = 0
    pool[row + F_ROUNDS] = 0
    pool[row + F_BYTES] = 0
    pool[row + F_QUIET] = 0
    return row


@inner
def flow_done(net, pool, flow):
    """The message has arrived, or the last notification of one that has: forget the state when both are so."""
    if pool[flow + F_DONE] > 0 and pool[flow + F_UNDER_WAY] == 0:
        free_row(net, pool, flow)


@inner
def _rise(table, pool, flow, line):
    """Raise the rate: half way to the target, which itself rises after some steps."""
    options = table[T_OPTIONS]
    fast = table[options + O_FAST]
    times = pool[flow + F_TIMES]
    rounds = pool[flow + F_ROUNDS]
    target = pool[flow + F_TARGET]
    if min(times, rounds) > fast:
        target += (min(times, rounds) - fast) * table[options + O_HYPER]
    elif max(times, rounds) >= fast:
        target += table[options + O_ADD]
    target = min(target, line)
    pool[flow + F_TARGET] = target
    # Rounded up, so that the rate reaches the target.
    pool[flow + F_RATE] = min(line, (pool[flow + F_RATE] + target + 1) // 2)


@inner
def _catch_up(table, pool, flow, line, now):
    """Let both timers run out as often as they have up to `now`."""
    options = table[T_OPTIONS]
    period = table[options + O_DECAY]
    while pool[flow + F_DECAYED] + period <= now:
        pool[flow + F_DECAYED] += period
        pool[flow + F_ALPHA] -= pool[flow + F_ALPHA] * table[options + O_GAIN] // ONE
    period = table[options + O_TIMER]
    while pool[flow + F_RISEN] + period <= now:
        pool[flow + F_RISEN] += period
        pool[flow + F_TIMES] += 1
        _rise(table, pool, flow, line)


@inner
def slow_down(table, pool, flow, line, now):
    """The sender is told that a packet was marked."""
    _catch_up(table, pool, flow, line, now)
    options = table[T_OPTIONS]
    gain = table[options + O_GAIN]
    rate = min(line, pool[flow + F_RATE])
    alpha = pool[flow + F_ALPHA]
    pool[flow + F_TARGET] = rate
    pool[flow + F_RATE] = max(min(line, table[options + O_LEAST]), rate - rate * alpha // (2 * ONE))
    pool[flow + F_ALPHA] = alpha - alpha * gain // ONE + gain
    pool[flow + F_DECAYED] = now
    pool[flow + F_RISEN] = now
    pool[flow + F_TIMES] = 0
    pool[flow + F_ROUNDS] = 0
    pool[flow + F_BYTES] = 0


@inner
def next_time(table, pool, flow, line, size, now):
    """A packet of `size` bytes is sent now: return from when on the next may be."""
    _catch_up(table, pool, flow, line, now)
    if pool[flow + F_RATE] >= line:
        return now
    per_round = table[table[T_OPTIONS] + O_BYTES]
    pool[flow + F_BYTES] += size
    if pool[flow + F_BYTES] >= per_round:
        pool[flow + F_BYTES] -= per_round
        pool[flow + F_ROUNDS] += 1
        _rise(table, pool, flow, line)
    rate = pool[flow + F_RATE]
    return now + (size * SECOND + rate - 1) // rate


@inner
def notifies(table, pool, flow, now):
    """A marked packet has arrived: tell whether the sender is told so now."""
    if now < pool[flow + F_QUIET]:
        return False
    pool[flow + F_QUIET] = now + table[table[T_OPTIONS] + O_QUIET]
    pool[flow + F_UNDER_WAY] += 1
    return True
