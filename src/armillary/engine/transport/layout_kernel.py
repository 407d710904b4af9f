"""The layout of a network that moves messages: its table, its state, and the rows and events of its run.

Three flat arrays besides the `table`, which does not change: `net`, the state of fixed size; `pool`, rows that
come and go; `queue`, the heap of events. Offsets of tables stand in the heads of `table` and `net`.
"""

from __future__ import annotations

# fmt: off
# Head of the table: counts; offsets of the link rows (of one stage after the other), of where the links of each
# route begin, of the links of routes; of what the transport was told; then what it has for itself
(
    T_LINKS, T_NODES, T_NPUS, T_STAGES, T_ROUTES, T_LINK, T_ROUTE_FIRST, T_ROUTE_LINK, T_OPTIONS,
) = range(9)
T_OWN = 16
TABLE_HEAD = 32
# Head of the state
(
    N_STATUS, N_STAGE, N_NOW, N_EVENTS, N_QUEUE, N_SEQUENCE, N_POOL, N_FREE, N_POOL_ROOM, N_QUEUE_ROOM,
    N_DELIVERED, N_DELIVERED_LAST, N_UNDER_WAY, N_BIN, N_USE, N_BINS_BYTES, N_BINS_DEPTH, N_A, N_GATES,
    N_OFFERING,
) = range(20)
N_OWN = 24
NET_HEAD = 64
# fmt: on

OK, GROW, STUCK = range(3)
FOREVER = 1 << 62
PS = 1000
"""Times here are ps, 1000 to a tick of the engine: packets are shorter than a tick."""

# Link row: a byte takes SLOW / FAST ps (SLOW 0: the link is down), latency in ps, buffer in bytes, its two nodes
L_SLOW, L_FAST, L_LATENCY, L_BUFFER, L_TAIL, L_HEAD = range(6)
L_COLUMNS = 6
# Use of a link: bytes carried, ps in which it was busy, most bytes that waited for it, packets dropped, packets
# marked, ps in which it was paused, bytes that wait for it now
U_BYTES, U_BUSY, U_DEPTH, U_DROPS, U_MARKS, U_PAUSED, U_WAITING = range(7)
U_COLUMNS = 7
# Gate of a route: whether a message leaves on it; the first and last of those that wait in the order in which they
# came; root of the heap of the others; how many have waited
GA_BUSY, GA_FIRST, GA_LAST, GA_ROOT, GA_COUNT = range(5)
GA_COLUMNS = 5
BINS = 256
"""Equal spans of time in which the use of every link is counted; twice as wide when the run outlasts them."""
# Row of the pool; the first column links rows to lists
P_NEXT, P_COOKIE = range(2)
# Of a message that waits at a gate, besides: the how-manieth to wait there, its first child in the heap
P_TURN, P_CHILD = 13, 15
P_COLUMNS = 16
# Row of the queue
Q_TIME, Q_SEQUENCE, Q_WHAT = range(3)
Q_COLUMNS = 3
CODES = 8
"""An event is ``row * CODES + code``."""
