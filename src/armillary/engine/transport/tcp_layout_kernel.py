"""The layout of TCP: its options and tables, rows of connections, segments and intervals, and its events."""

from __future__ import annotations

from armillary.engine.transport.layout_kernel import *
from armillary.engine.transport.packet_layout_kernel import *

# fmt: off
# Options: congestion control; bytes of payload and of headers; first window in bytes; segments by which one ACK may
# enlarge it; ps: shortest and longest timeout, delay of ACKs; segments that share an ACK; whether the receiver tells
# what it holds; most bytes in flight; bytes in a queue from which on packets are marked; timeouts in a row that end a
# connection; whether windows outlast messages; whether connections must be opened; most ps that an
# answer to an ACK takes
(
    O_RULE, O_MSS, O_HEADER, O_INITIAL, O_GROWTH, O_MIN_RTO, O_MAX_RTO, O_ACK_DELAY, O_ACK_EVERY, O_SACK, O_WINDOW,
    O_MARK, O_RETRIES, O_PERSISTENT, O_HANDSHAKE, O_JITTER,
) = range(16)
NEWRENO, CUBIC, DCTCP = range(3)
# Tables: (routes) place of the connection in the state, -1 for a message to itself; (links) bytes that fit the queue
T_CONNECTION, T_BUFFER = range(REVERSE + 1, REVERSE + 3)
# State: rows of all connections; the last number drawn at random
N_CONNECTIONS, N_DRAWN = range(PORTS + 1, PORTS + 3)
DRAWS = (1 << 31) - 1
"""Numbers drawn are 1 to DRAWS - 1 (Park and Miller's generator, with the factor 48271)."""
# Row of a connection. Places of its first and last link. Sender: bytes acknowledged, sent and given; windows in bytes;
# ACKs repeated; end of what was sent when a loss was seen, and up to where it was sent again; bytes that the receiver
# holds and their intervals; ps: round trip of an empty network, its mean and deviation, timeout, when the timer ends
# (0: off) and when its event comes (0: none); timeouts in a row; since a loss was seen, bytes delivered, sent, and in
# flight at first; whether CONTINUE will come; whether it
# has sent nothing yet
(
    C_FIRST, C_LAST, C_STATE, C_UNA, C_NEXT, C_END, C_CWND, C_SSTHRESH, C_REPEATED, C_RECOVER, C_RESENT, C_SACKED,
    C_BOARD, C_BASE, C_SRTT, C_VAR, C_RTO, C_DEADLINE, C_TIMER, C_TRIES, C_DELIVERED, C_SENT, C_FLIGHT, C_MORE, C_NEW,
) = range(25)
# Receiver: bytes in order; intervals held beyond; segments not yet acknowledged and when the first was sent; when that
# ACK is due (0: not) and when its event comes (0: none); whether the last segment was marked; its messages
(
    C_IN_ORDER, C_HELD, C_OWED, C_STAMP, C_DUE, C_DUE_EVENT, C_MARKED, C_MESSAGE, C_MESSAGE_LAST,
) = range(25, 34)
# CUBIC: window before the last loss, begin of its epoch (0: none), ps to that window, window of Reno.
# DCTCP: share of marked bytes (of ALL), bytes acknowledged and marked in this round, its end, end of the last cut
C_W_MAX, C_EPOCH, C_K, C_W_RENO, C_ALPHA, C_ACKED, C_ECHOED, C_ROUND, C_CUT = range(34, 43)
C_COLUMNS = 43
OPEN, RECOVERY, LOSS = range(3)
ALL = 1 << 20
# Segment: its connection; first byte, of an ACK the byte expected next; payload (0: an ACK); when it was sent, of an
# ACK what it answers; an interval that the receiver holds
K_CONNECTION = P_COOKIE
K_BYTE, K_PAYLOAD, K_STAMP, K_HELD, K_HELD_END = range(K_OWN, K_OWN + 5)
# Message (after its cookie): its end on the connection; interval
M_END = 2
S_FROM, S_TO = range(2, 4)
# Events of connections; of messages to their own NPU
TIMEOUT, ACK_DUE, CONTINUE, HERE = range(2, 6)
MOST_AT_ONCE = 16
"""Segments that one event sends; the next event sends more, so that a window leaves as a whole."""
FIRST = -FOREVER
"""Order of an event that comes before all others of its ps."""
# fmt: on
