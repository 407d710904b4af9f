"""The sender of a TCP connection: what the window lets go, and how losses are seen and repaired.

With SACK: RFC 6675, the window in recovery by proportional rate reduction (RFC 6937). Without: NewReno (RFC 6582);
every repeated ACK then counts as a segment that the receiver holds, which does what that RFC does by inflating the
window. Timeouts: RFC 6298; all that is not known to have arrived is then sent again, in slow start.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner, use
from armillary.engine.transport import layout as lk
from armillary.engine.transport.tcp import layout as tk

queue_kernel = use("armillary.engine.transport.queue_kernel")
push, push_ordered = queue_kernel.push, queue_kernel.push_ordered
tcp_interval_kernel = use("armillary.engine.transport.tcp.tcp_interval_kernel")
add, cut, gap = tcp_interval_kernel.add, tcp_interval_kernel.cut, tcp_interval_kernel.gap
missing, edge, highest = tcp_interval_kernel.missing, tcp_interval_kernel.edge, tcp_interval_kernel.highest
tcp_window_kernel = use("armillary.engine.transport.tcp.tcp_window_kernel")
grow, after_loss, echoed = tcp_window_kernel.grow, tcp_window_kernel.after_loss, tcp_window_kernel.echoed
send = use("armillary.engine.transport.tcp.tcp_segment_kernel").send
connections, draws, option, segments = accessors(tk.CONNECTION, tk.DRAWN, tk.OPTION, tk.SEGMENT)

REPEATS = 3


@inner
def _known(net, pool, connection, mss):
    """Return the byte below which holes count as lost: REPEATS - 1 segments beyond it are held; 0: none is."""
    board = connections.at_board(net, connection)
    return edge(net, pool, board, connections.sacked(net, connection), (REPEATS - 1) * mss)


@inner
def _lost(table, net, pool, connection):
    """Return up to where bytes are lost unless they are known to have arrived, or were sent again."""
    # OPEN: nothing counts as lost. LOSS (after a timeout): everything that was in flight does.
    if connections.state(net, connection) == tk.OPEN:
        return 0
    if connections.state(net, connection) == tk.LOSS:
        return connections.recover(net, connection)
    mss = option.mss(table, table[lk.T_OPTIONS])
    # Recovery begins with the first unacknowledged segment, even if SACK does not prove it lost.
    head = min(connections.una(net, connection) + mss, connections.sent_to(net, connection))
    if connections.board(net, connection) == 0:
        return head
    known = edge(
        net,
        pool,
        connections.at_board(net, connection),
        connections.sacked(net, connection),
        (REPEATS - 1) * mss,
    )
    return max(head, known)


@inner
def _pipe(net, pool, connection, lost):
    """Return the estimated bytes in flight (RFC 6675 section 4)."""
    # Below `resent` a hole was sent again, and is in flight once more.
    begin = max(connections.una(net, connection), connections.resent(net, connection))
    in_flight = (
        connections.sent_to(net, connection)
        - connections.una(net, connection)
        - connections.sacked(net, connection)
    )
    return in_flight - missing(net, pool, connections.at_board(net, connection), begin, lost)


@inner
def transmit(table, net, pool, queue, connection, now):
    """Send what the window lets go: first what is lost, then what is new, then, in recovery, what may be lost."""
    options = table[lk.T_OPTIONS]
    mss = option.mss(table, options)
    window = min(connections.cwnd(net, connection), option.window(table, options))
    lost = _lost(table, net, pool, connection)
    pipe = _pipe(net, pool, connection, lost)
    sent = 0
    while True:
        una = connections.una(net, connection)
        begin, end = -1, -1
        if lost > una:
            resent = max(una, connections.resent(net, connection))
            # The lowest hole that was not sent again yet.
            begin, end = gap(net, pool, connections.at_board(net, connection), resent, lost)
            # Rule 3 of NextSeg (RFC 6675): without new data, holes that are not proven lost are sent.
            if begin < 0 and connections.sent_to(net, connection) >= connections.end(net, connection):
                limit = highest(net, pool, connections.at_board(net, connection))
                begin, end = gap(net, pool, connections.at_board(net, connection), resent, limit)
        again = begin >= 0
        if not again:
            begin, end = (connections.sent_to(net, connection), connections.end(net, connection))
        size = min(mss, end - begin)
        # The first segment that is lost goes whatever the window says.
        head = again and begin == una and (connections.state(net, connection) == tk.RECOVERY)
        if size <= 0 or (pipe + size > window and not head):
            break
        if sent == tk.MOST_AT_ONCE:
            if connections.more(net, connection) == 0:
                connections.set_more(net, connection, 1)
                # Before all other events of this ps, so that the window leaves as a whole.
                push_ordered(net, queue, now, tk.FIRST, connection * lk.CODES + tk.CONTINUE)
            break
        send(table, net, pool, queue, connection, begin, size, now, now)
        sent += 1
        pipe += size
        if again:
            connections.set_resent(net, connection, begin + size)
        else:
            connections.set_sent_to(net, connection, begin + size)
        if connections.state(net, connection) == tk.RECOVERY:
            connections.add_sent(net, connection, size)
    # The timer runs while anything is unacknowledged; it is not restarted by sending (RFC 6298 section 5.1).
    if sent > 0 and connections.deadline(net, connection) == 0:
        _set_timer(net, queue, connection, now + connections.rto(net, connection))


@inner
def acknowledged(table, net, pool, queue, segment, now):
    """Process an ACK that has arrived; the caller frees its row."""
    options = table[lk.T_OPTIONS]
    mss = option.mss(table, options)
    connection = segments.message(pool, segment)
    una = connections.una(net, connection)
    acked = segments.byte(pool, segment) - una
    flight = connections.sent_to(net, connection) - una
    if acked < 0 or flight == 0 or connections.cwnd(net, connection) == 0:
        return  # old, or of a connection that was given up
    fresh = 0
    # Bytes below the new `una` are acknowledged anyway, and must not be counted as held.
    begin = max(segments.held(pool, segment), una + acked)
    if option.sack(table, options) > 0 and begin < segments.held_end(pool, segment):
        _, fresh = add(
            net, pool, connections.at_board(net, connection), begin, segments.held_end(pool, segment)
        )
        connections.add_sacked(net, connection, fresh)
    if acked == 0:
        _repeated(table, net, pool, connection, fresh, flight)
        delivered = fresh
    else:
        known = cut(net, pool, connections.at_board(net, connection), una + acked)
        # What SACK had reported was counted as delivered before.
        delivered = acked - known + fresh
        connections.set_una(net, connection, una + acked)
        connections.set_tries(net, connection, 0)
        _round_trip(table, net, connection, now - segments.stamp(pool, segment))
        connections.set_deadline(net, connection, 0)
        # Restarted by new data acknowledged while more is in flight (RFC 6298 section 5.3).
        if acked < flight:
            _set_timer(net, queue, connection, now + connections.rto(net, connection))
        if option.sack(table, options) > 0:
            connections.add_sacked(net, connection, -known)
        elif connections.state(net, connection) == tk.RECOVERY:
            # Partial ACK: deflate by what it acknowledges, inflate by one segment (RFC 6582 section 3.2).
            connections.set_sacked(net, connection, max(0, connections.sacked(net, connection) - acked + mss))
        else:
            connections.set_sacked(net, connection, 0)
        if option.rule(table, options) == tk.DCTCP:
            echoed(table, net, connection, acked, segments.mark(pool, segment))
        _advanced(table, net, connection, acked, flight, now)
    if connections.state(net, connection) == tk.RECOVERY and option.sack(table, options) > 0:
        _reduce(table, net, pool, connection, delivered)
    _transmit_soon(table, net, pool, queue, connection, now)


@inner
def _transmit_soon(table, net, pool, queue, connection, now):
    """Transmit, after a random time."""
    most = option.jitter(table, table[lk.T_OPTIONS])
    if most == 0:
        transmit(table, net, pool, queue, connection, now)
    elif connections.more(net, connection) == 0:
        # Only if no CONTINUE is scheduled: that one sends for this ACK, too. Park and Miller's generator.
        drawn = draws.number(net, 0) * 48271 % tk.DRAWS
        draws.set_number(net, 0, drawn)
        connections.set_more(net, connection, 1)
        push(net, queue, now + drawn * most // tk.DRAWS, connection * lk.CODES + tk.CONTINUE)


@inner
def _repeated(table, net, pool, connection, fresh, flight):
    """An ACK came again: something is missing, or late."""
    mss = option.mss(table, table[lk.T_OPTIONS])
    sack = option.sack(table, table[lk.T_OPTIONS]) > 0
    # With SACK only an ACK with news is a duplicate (RFC 6675 section 2).
    if sack and fresh == 0:
        return
    if not sack and connections.state(net, connection) != tk.LOSS:
        # Without SACK every repeat stands for one segment held; never more than all but the missing one.
        connections.set_sacked(
            net, connection, min(connections.sacked(net, connection) + mss, max(0, flight - mss))
        )
    if connections.state(net, connection) != tk.OPEN:
        return
    connections.add_repeated(net, connection, 1)
    una = connections.una(net, connection)
    if not sack and una <= connections.recover(net, connection):
        return  # repeated because of what was sent twice (RFC 6582 section 3.2)
    # Three repeats, or with SACK as many bytes beyond the hole.
    few = connections.repeated(net, connection) < REPEATS
    if few and (not sack or _known(net, pool, connection, mss) == 0):
        return
    left = after_loss(table, net, connection, flight - (connections.sacked(net, connection) if sack else 0))
    connections.set_state(net, connection, tk.RECOVERY)
    connections.set_ssthresh(net, connection, left)
    connections.set_cwnd(net, connection, left)
    # Recovery lasts until everything sent so far is acknowledged.
    connections.set_recover(net, connection, connections.sent_to(net, connection))
    connections.set_resent(net, connection, una)
    connections.set_flight(net, connection, flight)
    connections.set_delivered(net, connection, 0)
    connections.set_sent(net, connection, 0)


@inner
def _advanced(table, net, connection, acked, flight, now):
    """New bytes were acknowledged: grow, or end the recovery."""
    connections.set_repeated(net, connection, 0)
    state = connections.state(net, connection)
    if state != tk.OPEN and connections.una(net, connection) >= connections.recover(net, connection):
        connections.set_state(net, connection, tk.OPEN)
        if option.sack(table, table[lk.T_OPTIONS]) == 0:
            connections.set_sacked(net, connection, 0)
    # After a timeout growth goes on, in slow start; in fast recovery `_reduce` sets the window.
    if state != tk.RECOVERY:
        grow(table, net, connection, acked, flight, now)
    elif connections.state(net, connection) == tk.OPEN:
        connections.set_cwnd(net, connection, connections.ssthresh(net, connection))


@inner
def _reduce(table, net, pool, connection, delivered):
    """Set the window in recovery (RFC 6937 section 3)."""
    mss = option.mss(table, table[lk.T_OPTIONS])
    target = connections.ssthresh(net, connection)
    connections.add_delivered(net, connection, delivered)
    total, sent = (connections.delivered(net, connection), connections.sent(net, connection))
    pipe = _pipe(net, pool, connection, _lost(table, net, pool, connection))
    # Proportional part while more is in flight than the target; after that slow start with reduction bound.
    # RFC 6937 calls these values prr_delivered, prr_out, RecoverFS and ssthresh.
    if pipe > target:
        allowed = -(-total * target // connections.flight(net, connection)) - sent
    else:
        allowed = min(target - pipe, max(total - sent, delivered) + mss)
    connections.set_cwnd(net, connection, pipe + max(0, allowed))


@inner
def _round_trip(table, net, connection, sample):
    """Take a sample of the round trip (RFC 6298 section 2)."""
    options = table[lk.T_OPTIONS]
    srtt, var = (connections.srtt(net, connection), connections.var(net, connection))
    # The deviation uses the old mean: it must be updated first (RFC 6298 section 2.3).
    var += (abs(srtt - sample) - var) // 4
    srtt += (sample - srtt) // 8
    connections.set_var(net, connection, var)
    connections.set_srtt(net, connection, srtt)
    connections.set_rto(
        net,
        connection,
        min(max(srtt + 4 * var, option.min_rto(table, options)), option.max_rto(table, options)),
    )


@inner
def _set_timer(net, queue, connection, time):
    connections.set_deadline(net, connection, time)
    # One live event: a later deadline is followed up when the earlier event comes, as deadlines move with
    # every ACK.
    if connections.timer(net, connection) == 0 or time < connections.timer(net, connection):
        connections.set_timer(net, connection, time)
        push(net, queue, time, connection * lk.CODES + tk.TIMEOUT)


@inner
def timeout(table, net, pool, queue, connection, now):
    """The event of the timer has come; it may have been set anew since."""
    # A timer set to an earlier time has replaced this event.
    if connections.timer(net, connection) != now:
        return
    connections.set_timer(net, connection, 0)
    deadline = connections.deadline(net, connection)
    if deadline > now:
        _set_timer(net, queue, connection, deadline)
    if deadline == 0 or deadline > now:
        return
    options = table[lk.T_OPTIONS]
    connections.set_deadline(net, connection, 0)
    connections.add_tries(net, connection, 1)
    if connections.tries(net, connection) > option.retries(table, options):
        connections.set_cwnd(net, connection, 0)  # nothing comes through: give up, so that the run ends
        return
    # The receiver's bytes are unknown without SACK: all counts as lost.
    if option.sack(table, options) == 0:
        connections.set_sacked(net, connection, 0)
    # Repeated timeouts of the same data keep the threshold (RFC 5681 section 3.1).
    if connections.tries(net, connection) == 1:
        flight = (
            connections.sent_to(net, connection)
            - connections.una(net, connection)
            - connections.sacked(net, connection)
        )
        connections.set_ssthresh(net, connection, after_loss(table, net, connection, flight))
    connections.set_state(net, connection, tk.LOSS)
    connections.set_recover(net, connection, connections.sent_to(net, connection))
    connections.set_resent(net, connection, connections.una(net, connection))
    connections.set_repeated(net, connection, 0)
    # The loss window: one segment.
    connections.set_cwnd(net, connection, option.mss(table, options))
    connections.set_rto(
        net, connection, min(2 * connections.rto(net, connection), option.max_rto(table, options))
    )
    _set_timer(net, queue, connection, now + connections.rto(net, connection))
    transmit(table, net, pool, queue, connection, now)
