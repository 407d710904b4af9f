"""The sender of a TCP connection: what the window lets go, and how losses are seen and repaired.

With SACK: RFC 6675, the window in recovery by proportional rate reduction (RFC 6937). Without: NewReno (RFC 6582);
every repeated ACK then counts as a segment that the receiver holds, which does what that RFC does by inflating the
window. Timeouts: RFC 6298; all that is not known to have arrived is then sent again, in slow start.
"""

from __future__ import annotations

from armillary.base.jit import inner, use
from armillary.engine.transport.tcp_layout_kernel import *

events = use("armillary.engine.transport.queue_kernel")
push, push_ordered = events.push, events.push_ordered
intervals = use("armillary.engine.transport.tcp_interval_kernel")
add, cut, gap = intervals.add, intervals.cut, intervals.gap
missing, edge, highest = intervals.missing, intervals.edge, intervals.highest
windows = use("armillary.engine.transport.tcp_window_kernel")
grow, after_loss, echoed = windows.grow, windows.after_loss, windows.echoed
send = use("armillary.engine.transport.tcp_segment_kernel").send

REPEATS = 3


@inner
def _lost(table, net, pool, connection):
    """Return up to where bytes are lost unless they are known to have arrived, or were sent again."""
    if net[connection + C_STATE] == OPEN:
        return 0
    if net[connection + C_STATE] == LOSS:
        return net[connection + C_RECOVER]
    mss = table[table[T_OPTIONS] + O_MSS]
    head = min(net[connection + C_UNA] + mss, net[connection + C_NEXT])
    if net[connection + C_BOARD] == 0:
        return head
    known = edge(net, pool, connection + C_BOARD, net[connection + C_SACKED], (REPEATS - 1) * mss)
    return max(head, known)


@inner
def _pipe(net, pool, connection, lost):
    """Return how many bytes are thought to be on their way (RFC 6675 section 4)."""
    begin = max(net[connection + C_UNA], net[connection + C_RESENT])
    under_way = net[connection + C_NEXT] - net[connection + C_UNA] - net[connection + C_SACKED]
    return under_way - missing(net, pool, connection + C_BOARD, begin, lost)


@inner
def transmit(table, net, pool, queue, connection, now):
    """Send what the window lets go: first what is lost, then what is new, then, in recovery, what may be lost."""
    options = table[T_OPTIONS]
    mss = table[options + O_MSS]
    window = min(net[connection + C_CWND], table[options + O_WINDOW])
    lost = _lost(table, net, pool, connection)
    pipe = _pipe(net, pool, connection, lost)
    sent = 0
    while True:
        una = net[connection + C_UNA]
        begin, end = -1, -1
        if lost > una:
            resent = max(una, net[connection + C_RESENT])
            begin, end = gap(net, pool, connection + C_BOARD, resent, lost)
            if begin < 0 and net[connection + C_NEXT] >= net[connection + C_END]:
                limit = highest(net, pool, connection + C_BOARD)
                begin, end = gap(net, pool, connection + C_BOARD, resent, limit)
        again = begin >= 0
        if not again:
            begin, end = net[connection + C_NEXT], net[connection + C_END]
        size = min(mss, end - begin)
        # The first segment that is lost goes whatever the window says.
        head = again and begin == una and net[connection + C_STATE] == RECOVERY
        if size <= 0 or (pipe + size > window and not head):
            break
        if sent == MOST_AT_ONCE:
            if net[connection + C_MORE] == 0:
                net[connection + C_MORE] = 1
                push_ordered(net, queue, now, FIRST, connection * CODES + CONTINUE)
            break
        send(table, net, pool, queue, connection, begin, size, now, now)
        sent += 1
        pipe += size
        if again:
            net[connection + C_RESENT] = begin + size
        else:
            net[connection + C_NEXT] = begin + size
        if net[connection + C_STATE] == RECOVERY:
            net[connection + C_SENT] += size
    if sent > 0 and net[connection + C_DEADLINE] == 0:
        _set_timer(net, queue, connection, now + net[connection + C_RTO])


@inner
def acknowledged(table, net, pool, queue, segment, now):
    """Take an ACK that has arrived; its row stays the caller's."""
    options = table[T_OPTIONS]
    mss = table[options + O_MSS]
    connection = pool[segment + K_CONNECTION]
    una = net[connection + C_UNA]
    acked = pool[segment + K_BYTE] - una
    flight = net[connection + C_NEXT] - una
    if acked < 0 or flight == 0 or net[connection + C_CWND] == 0:
        return  # old, or of a connection that was given up
    fresh = 0
    begin = max(pool[segment + K_HELD], una + acked)
    if table[options + O_SACK] > 0 and begin < pool[segment + K_HELD_END]:
        _, fresh = add(net, pool, connection + C_BOARD, begin, pool[segment + K_HELD_END])
        net[connection + C_SACKED] += fresh
    if acked == 0:
        _repeated(table, net, pool, connection, fresh, flight)
        delivered = fresh
    else:
        known = cut(net, pool, connection + C_BOARD, una + acked)
        delivered = acked - known + fresh
        net[connection + C_UNA] = una + acked
        net[connection + C_TRIES] = 0
        _round_trip(table, net, connection, now - pool[segment + K_STAMP])
        net[connection + C_DEADLINE] = 0
        if acked < flight:
            _set_timer(net, queue, connection, now + net[connection + C_RTO])
        if table[options + O_SACK] > 0:
            net[connection + C_SACKED] -= known
        elif net[connection + C_STATE] == RECOVERY:
            net[connection + C_SACKED] = max(0, net[connection + C_SACKED] - acked + mss)
        else:
            net[connection + C_SACKED] = 0
        if table[options + O_RULE] == DCTCP:
            echoed(table, net, connection, acked, pool[segment + K_MARK])
        _advanced(table, net, connection, acked, flight, now)
    if net[connection + C_STATE] == RECOVERY and table[options + O_SACK] > 0:
        _reduce(table, net, pool, connection, delivered)
    _transmit_soon(table, net, pool, queue, connection, now)


@inner
def _transmit_soon(table, net, pool, queue, connection, now):
    """Transmit, after a random time."""
    most = table[table[T_OPTIONS] + O_JITTER]
    if most == 0:
        transmit(table, net, pool, queue, connection, now)
    elif net[connection + C_MORE] == 0:
        drawn = net[net[N_DRAWN]] * 48271 % DRAWS
        net[net[N_DRAWN]] = drawn
        net[connection + C_MORE] = 1
        push(net, queue, now + drawn * most // DRAWS, connection * CODES + CONTINUE)


@inner
def _repeated(table, net, pool, connection, fresh, flight):
    """An ACK came again: something is missing, or late."""
    mss = table[table[T_OPTIONS] + O_MSS]
    sack = table[table[T_OPTIONS] + O_SACK] > 0
    if sack and fresh == 0:
        return
    if not sack and net[connection + C_STATE] != LOSS:
        net[connection + C_SACKED] = min(net[connection + C_SACKED] + mss, max(0, flight - mss))
    if net[connection + C_STATE] != OPEN:
        return
    net[connection + C_REPEATED] += 1
    una = net[connection + C_UNA]
    if not sack and una <= net[connection + C_RECOVER]:
        return  # repeated because of what was sent twice (RFC 6582 section 3.2)
    if net[connection + C_REPEATED] < REPEATS and (
        not sack
        or edge(net, pool, connection + C_BOARD, net[connection + C_SACKED], (REPEATS - 1) * mss) == 0
    ):
        return
    left = after_loss(table, net, connection, flight - (net[connection + C_SACKED] if sack else 0))
    net[connection + C_STATE] = RECOVERY
    net[connection + C_SSTHRESH] = left
    net[connection + C_CWND] = left
    net[connection + C_RECOVER] = net[connection + C_NEXT]
    net[connection + C_RESENT] = una
    net[connection + C_FLIGHT] = flight
    net[connection + C_DELIVERED] = 0
    net[connection + C_SENT] = 0


@inner
def _advanced(table, net, connection, acked, flight, now):
    """New bytes were acknowledged: grow, or end the recovery."""
    net[connection + C_REPEATED] = 0
    state = net[connection + C_STATE]
    if state != OPEN and net[connection + C_UNA] >= net[connection + C_RECOVER]:
        net[connection + C_STATE] = OPEN
        if table[table[T_OPTIONS] + O_SACK] == 0:
            net[connection + C_SACKED] = 0
    if state != RECOVERY:
        grow(table, net, connection, acked, flight, now)
    elif net[connection + C_STATE] == OPEN:
        net[connection + C_CWND] = net[connection + C_SSTHRESH]


@inner
def _reduce(table, net, pool, connection, delivered):
    """Set the window in recovery (RFC 6937 section 3)."""
    mss = table[table[T_OPTIONS] + O_MSS]
    target = net[connection + C_SSTHRESH]
    net[connection + C_DELIVERED] += delivered
    total, sent = net[connection + C_DELIVERED], net[connection + C_SENT]
    pipe = _pipe(net, pool, connection, _lost(table, net, pool, connection))
    if pipe > target:
        allowed = -(-total * target // net[connection + C_FLIGHT]) - sent
    else:
        allowed = min(target - pipe, max(total - sent, delivered) + mss)
    net[connection + C_CWND] = pipe + max(0, allowed)


@inner
def _round_trip(table, net, connection, sample):
    """Take a sample of the round trip (RFC 6298 section 2)."""
    options = table[T_OPTIONS]
    srtt, var = net[connection + C_SRTT], net[connection + C_VAR]
    var += (abs(srtt - sample) - var) // 4
    srtt += (sample - srtt) // 8
    net[connection + C_VAR] = var
    net[connection + C_SRTT] = srtt
    net[connection + C_RTO] = min(max(srtt + 4 * var, table[options + O_MIN_RTO]), table[options + O_MAX_RTO])


@inner
def _set_timer(net, queue, connection, time):
    net[connection + C_DEADLINE] = time
    if net[connection + C_TIMER] == 0 or time < net[connection + C_TIMER]:
        net[connection + C_TIMER] = time
        push(net, queue, time, connection * CODES + TIMEOUT)


@inner
def timeout(table, net, pool, queue, connection, now):
    """The event of the timer has come; it may have been set anew since."""
    if net[connection + C_TIMER] != now:
        return
    net[connection + C_TIMER] = 0
    deadline = net[connection + C_DEADLINE]
    if deadline > now:
        _set_timer(net, queue, connection, deadline)
    if deadline == 0 or deadline > now:
        return
    options = table[T_OPTIONS]
    net[connection + C_DEADLINE] = 0
    net[connection + C_TRIES] += 1
    if net[connection + C_TRIES] > table[options + O_RETRIES]:
        net[connection + C_CWND] = 0  # nothing comes through: give up, so that the run ends
        return
    if table[options + O_SACK] == 0:
        net[connection + C_SACKED] = 0
    if net[connection + C_TRIES] == 1:
        flight = net[connection + C_NEXT] - net[connection + C_UNA] - net[connection + C_SACKED]
        net[connection + C_SSTHRESH] = after_loss(table, net, connection, flight)
    net[connection + C_STATE] = LOSS
    net[connection + C_RECOVER] = net[connection + C_NEXT]
    net[connection + C_RESENT] = net[connection + C_UNA]
    net[connection + C_REPEATED] = 0
    net[connection + C_CWND] = table[options + O_MSS]
    net[connection + C_RTO] = min(2 * net[connection + C_RTO], table[options + O_MAX_RTO])
    _set_timer(net, queue, connection, now + net[connection + C_RTO])
    transmit(table, net, pool, queue, connection, now)
