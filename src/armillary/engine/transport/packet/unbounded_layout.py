"""Tables of model `packet` where queues are unbounded: what `switch.layout` has, and the tree of events.

An event is one word, ``(time - base) << bits | link``, so that the lowest is the first and equal times go by number of
link. Those of a link are one: the earlier of its START and of the first ARRIVE on its wire. The last place, behind the
links, is of messages at their own NPU.
"""

from __future__ import annotations

from armillary.base.tables import Layout, extended, record
from armillary.engine.transport import layout as lk
from armillary.engine.transport.switch import layout as pk

OPTION = record("OPTION", "Options of model `packet` where queues are unbounded.")
OPTION.column("mtu", "payload of a packet", "bytes")
OPTION.column("header", "its header", "bytes")
OPTION.column("bits", "of a word of the tree that say which link")
OPTION.column("leaves", "leaves of the tree, a power of two")
TABLE = Layout("network of unbounded queues", lk.TABLE)
PACE = TABLE.rows("PACE", "links", "A link.", width=4)
PACE.column("full", "what a full packet takes", "ps")
PACE.column("latency", "its latency", "ps")
PACE.column("own", "1: messages begin with it, so that what it sends next is not known before")
WAY = TABLE.rows("WAY", "links of routes", "A place in ROUTE_LINK.")
WAY.column(
    "after", "next link of its route << 1 | 1: that is the last one; at the last of a route it has no meaning"
)
NET = Layout("state of unbounded queues", pk.NET)
NODE = NET.rows(
    "NODE", "twice the leaves", "A node of the tree: the lower of the two below it. The first is no node."
)
NODE.column("first", "see above")
N_BASE = NET.scalar("base of times in the tree, ps")
N_HERE = NET.scalar("list of messages at their own NPU, 0: none")
N_HERE_LAST = NET.scalar("the last of them")
NOTHING = 1 << 62
"""The word of a place without event; all others are lower."""

PORT = extended(
    pk.FAIR_PORT,
    "PORT",
    "The port of a link; each of three places in the list of what it sends has a number.",
)
PORT.column("wire_number", "number of the first on its wire that has an event", at=5)
PORT.column("first_number", "number of the first that waits", at=6)
PORT.column("last_number", "number of the place for the next", at=7)
PORT.column("begins", "when the first that waits is transmitted", "ps", at=10)
PORT.column("queue", "what waits where messages begin: the first", at=11)
PORT.column("queue_last", "the place for the next", at=12)
PORT.column("due", "when the first on its wire arrives, FOREVER: nothing does", "ps")
PORT.column("start", "when a START is scheduled, FOREVER: none is", "ps")
MESSAGE = extended(pk.MESSAGE, "MESSAGE", "A message.")
M_ROUTE = MESSAGE.column("its_route", "its route", at=6)
PACKET = record(
    "PACKET", "A packet in a list of a link, of which each row of the pool has some, behind the next row."
)
PACKET.column("time", "when it arrives", "ps")
PACKET.column("place", "place of its link << SIZE_BITS | what it is on the wire in bytes")
PACKET.column("goal", "see below, NOWHERE: it has no event when it arrives")
NOWHERE = -1
SIZE_BITS, LINK_BITS = 22, 24
"""A goal is ``message << LINK_BITS | next link << 1 | 1: that is the last of its route``, with 0 as message unless the
packet is the last one of it; at the end of its route -message.
"""
WORDS = PACKET.width
LAST_OF_ROW = 1 + ((lk.P_COLUMNS - 1) // WORDS - 1) * WORDS
"""Where the last packet of a row stands."""
