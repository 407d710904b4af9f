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
