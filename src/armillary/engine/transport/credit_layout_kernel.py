"""The layout of network model `credit`, beside the one that all transports share.

A slot is the buffer of one virtual channel (VC) at the end of a link; those at a node stand side by side, so that
an output finds all that may want it. An address is where a row begins in `net` or in `pool`; 0 is none.
"""

from __future__ import annotations

# fmt: off
# Options: bytes of a packet, bytes of a flit, VCs, ps in a router, 1: packets move on when they are whole
O_PACKET, O_FLIT, O_VCS, O_DELAY, O_WHOLE = range(5)
# table[T_OWN], row of a link: number of its sort of ring (0: none), whether it is a dateline, first slot at its
# end, first slot at the node it leaves, how many slots there are
C_RING, C_DATELINE, C_END, C_FIRST, C_SLOTS = range(5)
C_COLUMNS = 5
# net[N_OWN], row of a link: when its last byte has gone; slots that want it; when it is next arbitrated (FOREVER:
# never); which slot it served last, as a place at its node, C_SLOTS for the NIC; which VC it tries first; first
# group of messages in its NIC; 1 + the ps since which something waits for credits only (0: nothing does)
S_FREE, S_WANTED, S_WAKE, S_TURN, S_VC, S_NIC, S_STALLED = range(7)
S_COLUMNS = 8
# net[N_OWN + 1], row of a slot: 1 + the link that its first packet wants (0: none), and when it may leave
W_LINK, W_FROM = range(2)
W_COLUMNS = 2
# net[N_OWN + 2], row of a slot: its packets, flits that still fit as far as the upstream knows, credits on their way
# there, when what left it last has gone
V_FIRST, V_LAST, V_CREDITS, V_BACK, V_BACK_LAST, V_FREE = range(6)
V_COLUMNS = 8
# Row of a message: where its route is, and ends; bytes not sent; packets that have not arrived, when the last does;
# route and key
M_AT, M_END, M_LEFT, M_OPEN, M_LAST, M_ROUTE, M_KEY = range(2, 9)
# Row of a group of messages with one key in a NIC: the last of them, whose next is the first
G_KEY, G_LAST = range(1, 3)
# Row of a packet: its message; place in its route of the link it takes next, and the end of that; bytes, flits; when
# its head and its tail are through the router; the sort of ring it came by, whether it crossed its dateline; the
# link it came by
K_MESSAGE, K_AT, K_END, K_SIZE, K_FLITS, K_HEAD, K_TAIL, K_RING, K_CROSSED, K_LINK = range(1, 11)
# Row of credits on their way upstream
B_TIME, B_FLITS = range(1, 3)
ARBITRATE, ARRIVED, EMPTY, REVIEW = range(4)
"""Events: of a link, of a message, of a slot with more that has come to its end, of the links from one on."""
STEP = 16
"""At most so many packets leave a slot, or links are reviewed, in one event: the room is checked between events."""
# fmt: on
