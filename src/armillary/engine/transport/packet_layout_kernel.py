"""The layout of packets and of the output ports of links, for every transport that sends packets."""

from __future__ import annotations

from armillary.engine.transport.layout_kernel import N_OWN, T_OWN

# Row of a packet. It stands at, or is on, the link at place K_AT of the links of routes; its way goes on while
# K_AT is not K_LAST, by K_STEP: 1, or -1 for the way back, on which it takes the reverse of every link.
# Bytes on the wire; ps at which it arrives; the link it came by, -1: made here; marked for congestion. Columns
# from K_OWN on, and P_COOKIE, are the protocol's.
K_SIZE, K_AT, K_LAST, K_STEP, K_TIME, K_FROM, K_MARK = range(2, 9)
K_OWN = 9

PORTS = N_OWN
"""State of all ports: rows of PO_COLUMNS, one per link."""
REVERSE = T_OWN
"""(links) the link from the head of each to its tail, -1: none. Only packets with K_STEP -1 need it."""

# Port: ps at which it is free; 1 when START will come; first and last packet of its queue, and on its wire; 1 when
# it is shut, and since when though something waits (-1: nothing does). Columns from PO_OWN on are the protocol's.
PO_FREE, PO_ARMED, PO_FIRST, PO_LAST, PO_WIRE, PO_WIRE_LAST, PO_SHUT, PO_SINCE = range(8)
PO_OWN = 8
PO_COLUMNS = 16

# Events of links: ``link * CODES + code``; codes from 2 on are the protocol's
START, ARRIVE = range(2)
BEFORE = 1 << 60
"""At equal times events of links come first, by number of link, then others in the order of their making."""

# What follows is of model `packet` only
# Tables by link: bytes above which, and down to which, it pauses
XOFF, XON = T_OWN + 1, T_OWN + 2
# Options: bytes of packets and of their headers; marking: bytes (lowest -1: none), chance of CERTAIN, seed; whether
# rates are controlled, and how: gain of ONE; periods of decay, of rising and between notifications in ps; bytes of a
# round; steps of fast recovery; what is added, in bytes/s; the least rate
(
    O_MTU, O_HEADER, O_LOWEST, O_HIGHEST, O_MOST, O_SEED,
    O_CONTROL, O_GAIN, O_DECAY, O_TIMER, O_QUIET, O_BYTES, O_FAST, O_ADD, O_HYPER, O_LEAST,
) = range(16)  # fmt: skip
CERTAIN = 1 << 31
ONE = 1 << 20
SECOND = 10**12
MOST_RATE = 1 << 40
# Row of a message: first and last place of its way; key; bytes not yet sent, and not yet arrived; state of its rate;
# route
M_FIRST, M_LAST, M_KEY, M_SEND, M_LEFT, M_FLOW, M_ROUTE = range(2, 9)
# Row of the messages with one key that have packets to send by one link: the next such row has a higher key
C_KEY, C_FIRST, C_LAST = range(2, 5)
# State of a rate; P_COOKIE is its message: notifications under way; 1: the message has arrived; bytes/s; the rate to
# rise to; estimate of congestion, of ONE; ps of its last decay and of the last rise by time; rises by time and by
# bytes since the last notification; bytes of the round; ps from which on marks are notified
(
    F_UNDER_WAY, F_DONE, F_RATE, F_TARGET, F_ALPHA, F_DECAYED, F_RISEN, F_TIMES, F_ROUNDS, F_BYTES, F_QUIET,
) = range(2, 13)  # fmt: skip
# Packet: its message
K_MESSAGE = 1
# Port: first row of messages to be sent; whether one of them is next; bytes in the buffer at the link's end; 1 when
# the link was told to pause; packets that have come
PO_CLASS, PO_TURN, PO_HELD, PO_TOLD, PO_COUNT = range(PO_OWN, PO_OWN + 5)
# Events: of a message: it is there, to its own NPU; it may send again. Of a link: pause; resume. Of a rate: notified
HERE, READY, PAUSE, RESUME, NOTIFIED = range(2, 7)
