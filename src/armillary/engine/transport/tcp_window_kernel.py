"""The congestion window of a TCP connection: how it grows and shrinks.

NewReno: RFC 5681 section 3.1. CUBIC: RFC 9438. DCTCP: RFC 8257, which grows and, on loss, shrinks as NewReno.
Windows are whole bytes.
"""

from __future__ import annotations

from armillary.base.jit import inner
from armillary.engine.transport.tcp_layout_kernel import *

CUBIC_C = 0.4
"""Segments per s^3 (RFC 9438 section 5.1)."""
CUBIC_BETA = 0.7
CUBIC_ALPHA = 3 * (1 - CUBIC_BETA) / (1 + CUBIC_BETA)
PS_PER_S = 1e12
GAIN = 16
"""DCTCP: a round counts 1 / GAIN in the mean (RFC 8257 section 4.2)."""


@inner
def grow(table, net, connection, acked, flight, now):
    """Enlarge the window after `acked` new bytes, when `flight` were under way before."""
    options = table[T_OPTIONS]
    mss = table[options + O_MSS]
    window = net[connection + C_CWND]
    counted = min(acked, table[options + O_GROWTH] * mss)
    if window < net[connection + C_SSTHRESH]:
        if window < 2 * flight:
            net[connection + C_CWND] = window + counted
    elif flight + mss <= window:
        return  # what there was to send did not fill it
    elif table[options + O_RULE] == CUBIC:
        _grow_cubic(net, connection, mss, acked, now)
    else:
        net[connection + C_CWND] = window + max(1, mss * counted // window)


@inner
def after_loss(table, net, connection, flight):
    """Return the window that a loss leaves, and end what CUBIC was at; `flight`: bytes under way."""
    mss = table[table[T_OPTIONS] + O_MSS]
    if table[table[T_OPTIONS] + O_RULE] != CUBIC:
        return max(flight // 2, 2 * mss)
    window = net[connection + C_CWND]
    # Fast convergence, RFC 9438 section 4.7
    net[connection + C_W_MAX] = (
        int(window * (1 + CUBIC_BETA) / 2) if window < net[connection + C_W_MAX] else window
    )
    net[connection + C_EPOCH] = 0
    return max(int(flight * CUBIC_BETA), 2 * mss)


@inner
def _grow_cubic(net, connection, mss, acked, now):
    """RFC 9438 sections 4.2 to 4.5."""
    window = net[connection + C_CWND]
    if net[connection + C_EPOCH] == 0:
        net[connection + C_EPOCH] = max(now, 1)
        net[connection + C_W_RENO] = window
        net[connection + C_W_MAX] = max(net[connection + C_W_MAX], window)
        net[connection + C_K] = int(
            PS_PER_S * _cube_root((net[connection + C_W_MAX] - window) / mss / CUBIC_C)
        )
    elapsed = now - net[connection + C_EPOCH]
    away = (elapsed + net[connection + C_SRTT] - net[connection + C_K]) / PS_PER_S
    target = CUBIC_C * away * away * away * mss + net[connection + C_W_MAX]
    target = min(max(target, window), 1.5 * window)
    away = (elapsed - net[connection + C_K]) / PS_PER_S
    now_cubic = CUBIC_C * away * away * away * mss + net[connection + C_W_MAX]
    alpha = CUBIC_ALPHA if net[connection + C_W_RENO] < net[connection + C_W_MAX] else 1.0
    net[connection + C_W_RENO] += int(alpha * mss * acked / window)
    if now_cubic < net[connection + C_W_RENO]:
        net[connection + C_CWND] = max(window, net[connection + C_W_RENO])
    else:
        net[connection + C_CWND] = window + int((target - window) * acked / window)


@inner
def _cube_root(value):
    """Return the cube root of a value >= 0, by Newton's steps from above: the same in every mode."""
    root = max(value, 1.0)
    for _ in range(100):
        closer = (2 * root + value / (root * root)) / 3
        if closer >= root:
            break
        root = closer
    return root


@inner
def echoed(table, net, connection, acked, marked):
    """Count marks that came back with `acked` bytes, and give way to them once per round (RFC 8257 section 3.3)."""
    net[connection + C_ACKED] += acked
    if marked > 0:
        net[connection + C_ECHOED] += acked
    if net[connection + C_UNA] >= net[connection + C_ROUND]:
        share = net[connection + C_ECHOED] * ALL // max(1, net[connection + C_ACKED])
        net[connection + C_ALPHA] += (share - net[connection + C_ALPHA]) // GAIN
        net[connection + C_ACKED] = 0
        net[connection + C_ECHOED] = 0
        net[connection + C_ROUND] = net[connection + C_NEXT]
    if marked > 0 and net[connection + C_STATE] == OPEN and net[connection + C_UNA] > net[connection + C_CUT]:
        window = net[connection + C_CWND]
        window = max(
            window - window * net[connection + C_ALPHA] // (2 * ALL), 2 * table[table[T_OPTIONS] + O_MSS]
        )
        net[connection + C_CWND] = window
        net[connection + C_SSTHRESH] = window
        net[connection + C_CUT] = net[connection + C_NEXT]
