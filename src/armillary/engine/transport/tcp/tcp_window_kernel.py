"""The congestion window of a TCP connection: how it grows and shrinks.

NewReno: RFC 5681 section 3.1. CUBIC: RFC 9438. DCTCP: RFC 8257, which grows and, on loss, shrinks as NewReno.
Windows are whole bytes.
"""

from __future__ import annotations

from armillary.base.accessors import accessors
from armillary.base.jit import inner
from armillary.engine.transport import layout as lk
from armillary.engine.transport.tcp import layout as tk

connections, option = accessors(tk.CONNECTION, tk.OPTION)


CUBIC_C = 0.4
"""Segments per s^3 (RFC 9438 section 5.1)."""
CUBIC_BETA = 0.7
CUBIC_ALPHA = 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA)
PS_PER_S = 1e12
GAIN = 16
"""DCTCP: a round counts 1 / GAIN in the mean (RFC 8257 section 4.2)."""


@inner
def grow(table, net, connection, acked, flight, now):
    """Enlarge the window after `acked` new bytes, when `flight` were in flight before."""
    options = table[lk.T_OPTIONS]
    mss = option.mss(table, options)
    window = connections.cwnd(net, connection)
    counted = min(acked, option.growth(table, options) * mss)
    if window < connections.ssthresh(net, connection):
        # Slow start grows only while at least half the window is used, as in Linux: idle windows must not
        # double.
        if window < 2 * flight:
            connections.set_cwnd(net, connection, window + counted)
    elif flight + mss <= window:
        return  # what there was to send did not fill it
    elif option.rule(table, options) == tk.CUBIC:
        _grow_cubic(net, connection, mss, acked, now)
    else:
        # About one segment per round trip; at least a byte, so that large windows still grow.
        connections.set_cwnd(net, connection, window + max(1, mss * counted // window))


@inner
def after_loss(table, net, connection, flight):
    """Return the window that a loss leaves, and end what CUBIC was at; `flight`: bytes in flight."""
    mss = option.mss(table, table[lk.T_OPTIONS])
    # RFC 5681: half of what was in flight, not of the window, which may be larger than the flow used.
    if option.rule(table, table[lk.T_OPTIONS]) != tk.CUBIC:
        return max(flight // 2, 2 * mss)
    window = connections.cwnd(net, connection)
    # Fast convergence, RFC 9438 section 4.7
    connections.set_w_max(
        net,
        connection,
        int(window * (1 + CUBIC_BETA) / 2) if window < connections.w_max(net, connection) else window,
    )
    connections.set_epoch(net, connection, 0)
    return max(int(flight * CUBIC_BETA), 2 * mss)


@inner
def _grow_cubic(net, connection, mss, acked, now):
    """RFC 9438 sections 4.2 to 4.5."""
    window = connections.cwnd(net, connection)
    # 0 marks an epoch not begun, so one that begins at time 0 is put at 1 ps.
    if connections.epoch(net, connection) == 0:
        connections.set_epoch(net, connection, max(now, 1))
        connections.set_w_reno(net, connection, window)
        connections.set_w_max(net, connection, max(connections.w_max(net, connection), window))
        # K: when the cubic is back at w_max.
        connections.set_k(
            net,
            connection,
            int(PS_PER_S * _cube_root((connections.w_max(net, connection) - window) / mss / CUBIC_C)),
        )
    elapsed = now - connections.epoch(net, connection)
    # One round trip ahead: the window reaches the target by then (section 4.2).
    away = (elapsed + connections.srtt(net, connection) - connections.k(net, connection)) / PS_PER_S
    target = CUBIC_C * away * away * away * mss + connections.w_max(net, connection)
    # At most half as much again per round trip (section 4.2).
    target = min(max(target, window), 1.5 * window)
    away = (elapsed - connections.k(net, connection)) / PS_PER_S
    now_cubic = CUBIC_C * away * away * away * mss + connections.w_max(net, connection)
    # Section 4.3: once Reno's window is back at the old one it grows by 1 segment per round trip.
    alpha = CUBIC_ALPHA if connections.w_reno(net, connection) < connections.w_max(net, connection) else 1.0
    connections.add_w_reno(net, connection, int(alpha * mss * acked / window))
    if now_cubic < connections.w_reno(net, connection):
        connections.set_cwnd(net, connection, max(window, connections.w_reno(net, connection)))
    else:
        connections.set_cwnd(net, connection, window + int((target - window) * acked / window))


@inner
def _cube_root(value):
    """Return the cube root of a value >= 0, by Newton's steps from above: the same in every mode."""
    # Newton's method converges from above monotonically, so the first step that does not fall ends it.
    root = max(value, 1.0)
    for _ in range(100):
        closer = (2 * root + value / (root * root)) / 3
        if closer >= root:
            break
        root = closer
    return root


@inner
def echoed(table, net, connection, acked, marked):
    """Count marks that came back with `acked` bytes, and cut the window once per round (RFC 8257 section 3.3)."""
    connections.add_acked(net, connection, acked)
    if marked > 0:
        connections.add_echoed(net, connection, acked)
    # A round ends when all that was in flight at its begin is acknowledged.
    if connections.una(net, connection) >= connections.round(net, connection):
        share = connections.echoed(net, connection) * tk.ALL // max(1, connections.acked(net, connection))
        connections.add_alpha(net, connection, (share - connections.alpha(net, connection)) // GAIN)
        connections.set_acked(net, connection, 0)
        connections.set_echoed(net, connection, 0)
        connections.set_round(net, connection, connections.sent_to(net, connection))
    # One cut per window of data: bytes sent before the last cut must not cause another.
    if (
        marked > 0
        and connections.state(net, connection) == tk.OPEN
        and (connections.una(net, connection) > connections.cut(net, connection))
    ):
        window = connections.cwnd(net, connection)
        window = max(
            window - window * connections.alpha(net, connection) // (2 * tk.ALL),
            2 * option.mss(table, table[lk.T_OPTIONS]),
        )
        connections.set_cwnd(net, connection, window)
        connections.set_ssthresh(net, connection, window)
        connections.set_cut(net, connection, connections.sent_to(net, connection))
