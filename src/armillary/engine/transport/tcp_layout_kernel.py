"""The layout of TCP: its options and tables, rows of connections, packets and intervals, and its events."""

from __future__ import annotations

from armillary.engine.transport.layout_kernel import *

# fmt: off
# Options: congestion control; bytes of payload and of headers; segments of the first window and by which one ACK
# may enlarge it; times in ps; segments that share an ACK; whether the receiver tells what it holds; most bytes in
# flight; depth of a queue from which packets are marked; timeouts in a row that end a connection; whether windows
# outlast messages
(
    O_RULE, O_MSS, O_HEADER, O_INITIAL, O_GROWTH, O_MIN_RTO, O_MAX_RTO, O_ACK_DELAY, O_ACK_EVERY, O_SACK, O_WINDOW,
    O_MARK, O_RETRIES, O_PERSISTENT,
) = range(14)
NEWRENO, CUBIC, DCTCP = range(3)
# Tables: (routes) connection, -1 for a message to itself; (links) bytes that fit the queue; links of connections
T_CONNECTION, T_BUFFER, T_WAYS = range(T_OWN, T_OWN + 3)
# State: (links) ps when the link is free, first and last packet that waits; (connections) rows
N_FREE_AT, N_FIRST, N_LAST, N_CONNECTIONS = range(N_OWN, N_OWN + 4)
# Row of a connection. Both ways, as places in T_WAYS. Sender: bytes acknowledged, sent and given; windows in bytes;
# ACKs repeated; end of what was sent when a loss was seen; up to where it was sent again; bytes that the receiver
# holds and their intervals; times of the round trip; when the timer ends (0: off) and when its event comes (0: none);
# timeouts in a row; proportional rate reduction: bytes delivered, sent, in flight at first; more may go at once
(
    C_OUT, C_OUT_END, C_BACK, C_BACK_END, C_STATE, C_UNA, C_NEXT, C_END, C_CWND, C_SSTHRESH, C_REPEATED, C_RECOVER,
    C_RESENT, C_SACKED, C_BOARD, C_BASE, C_SRTT, C_VAR, C_RTO, C_DEADLINE, C_TIMER, C_TRIES, C_DELIVERED, C_OUT_NOW,
    C_FLIGHT, C_MORE,
) = range(26)
# Receiver: bytes in order; intervals held beyond; segments not yet acknowledged, the time of sending of the first;
# when that ACK is due (0: not) and when its event comes; whether the last segment was marked; its messages
C_IN_ORDER, C_HELD, C_OWED, C_STAMP, C_DUE, C_DUE_EVENT, C_MARKED, C_MESSAGE, C_MESSAGE_LAST = range(26, 35)
# CUBIC: window before the last loss, begin of its epoch (0: none), time to that window, window of Reno.
# DCTCP: share of marks (in 1 / ALL), bytes acknowledged and marked in this round, its end, end of the last cut
C_W_MAX, C_EPOCH, C_K, C_W_RENO, C_ALPHA, C_ACKED, C_ECHOED, C_ROUND, C_CUT = range(35, 44)
C_COLUMNS = 44
OPEN, RECOVERY, LOSS = range(3)
ALL = 1 << 20
# Row of a packet: its connection, place of its next link and after its last, when its last link began with it; first
# byte, or the byte that is expected next; payload (0: an ACK); bytes on the wire; when the segment was sent; marked;
# an interval that the receiver holds
K_CONNECTION, K_AT, K_END, K_START, K_SEQUENCE, K_SIZE, K_WIRE, K_STAMP, K_MARK, K_FROM, K_TO = range(2, 13)
# Row of a message (after its cookie) and of an interval
M_LAST = 2
S_FROM, S_TO = range(2, 4)
# Events: a packet is at the next node; timers of a connection; more may be sent; a message to itself
ARRIVED, TIMEOUT, ACK_DUE, CONTINUE, LOCAL = range(5)
MOST_AT_ONCE = 32
"""Segments that one event sends; then others that fall in the same ps have their turn."""
# fmt: on
