"""Packets and output ports of links, for every transport that sends packets; and what model `packet` adds to them.

A packet stands at, or is on, the link at place `at` of the links of routes; its route goes on while `at` is not `last`,
by `step`: 1, or -1 for the way back, on which it takes the reverse of every link.
"""

from __future__ import annotations

from armillary.base.tables import Layout, extended, record
from armillary.engine.transport import layout as lk

PACKET = record("PACKET", "A packet of any protocol, in the pool.")
PACKET.column("next", "what comes behind it in its list, 0: nothing")
K_MESSAGE = PACKET.column("message", "its message, or connection")
K_SIZE = PACKET.column("size", "what it is on the wire", "bytes")
K_AT = PACKET.column("at", "see above")
K_LAST = PACKET.column("last", "see above")
K_STEP = PACKET.column("step", "see above")
K_TIME = PACKET.column("time", "when it arrives", "ps")
K_FROM = PACKET.column("source", "the link that it came by, -1: made here")
K_MARK = PACKET.column("mark", "1: marked for congestion")
K_OWN = PACKET.width
"""Columns from here on are the protocol's."""

TABLE = Layout("network of packets", lk.TABLE)
REVERSES = TABLE.rows("REVERSE", "links", "A link.")
REVERSES.column("link", "that from its head to its tail, -1: none. Only packets with step -1 need it")
REVERSE = TABLE.places["REVERSE"]
NET = Layout("state of packets", lk.NET)
# Wider than its columns: protocols extend it.
PORT = NET.rows("PORT", "links", "The port of a link, at its tail.", width=16)
PO_FREE = PORT.column("free", "when it is free", "ps")
PO_ARMED = PORT.column("armed", "1: a START is scheduled")
PO_FIRST = PORT.column("first", "the first packet of its queue, 0: none")
PO_LAST = PORT.column("last", "the last")
PO_WIRE = PORT.column("wire", "the first packet on its wire, 0: none")
PO_WIRE_LAST = PORT.column("wire_last", "the last")
PO_SHUT = PORT.column("shut", "1: it may not send")
PO_SINCE = PORT.column("since", "since when something waits while it is shut, -1: nothing does", "ps")
PO_COLUMNS = PORT.width
PORTS = NET.places["PORT"]

START, ARRIVE = range(2)
"""Events of links: ``link * CODES + code``; codes from 2 on are the protocol's."""
BEFORE = 1 << 60
"""At equal times events of links come first, by number of link, then others in the order of their making."""

# What follows is of model `packet` only
PAUSES = Layout("network of model packet", TABLE)
PAUSE_AT = PAUSES.columns("PAUSE", "links", "A link, whose tail is told to pause and to go on.")
PAUSE_AT.column("above", "bytes in the buffer at its end above which it pauses", "bytes")
PAUSE_AT.column("down_to", "bytes at or below which it goes on", "bytes")
OPTION = record("OPTION", "Options of model `packet`.")
OPTION.column("mtu", "payload of a packet", "bytes")
OPTION.column("header", "its header", "bytes")
OPTION.column("lowest", "bytes in a queue up to which none is marked, -1: none ever is", "bytes")
OPTION.column("highest", "above which all are", "bytes")
OPTION.column("most", "chance of a mark there, of CERTAIN")
OPTION.column("seed", "random seed of the marks")
OPTION.column("control", "1: DCQCN controls the rates")
OPTION.column("gain", "gain of the estimate, of ONE")
OPTION.column("decay", "period of its decay", "ps")
OPTION.column("timer", "period of a rise", "ps")
OPTION.column("quiet", "between two notifications", "ps")
OPTION.column("per_round", "bytes of a round", "bytes")
OPTION.column("fast", "steps of fast recovery")
OPTION.column("more", "what a later step adds", "bytes/s")
OPTION.column("hyper", "what a step of hyper increase adds", "bytes/s")
OPTION.column("least", "the least rate", "bytes/s")
OPTION_WORDS = OPTION.width
CERTAIN = 1 << 31
ONE = 1 << 20
SECOND = 10**12  # ps
# rate * ONE stays below 2**60.
MOST_RATE = 1 << 40
MESSAGE = record("MESSAGE", "A message, in the pool.")
MESSAGE.column("next", "what comes behind it in its list")
MESSAGE.column("cookie", "what its sender calls it")
MESSAGE.column("first", "the first of its links, in ROUTE_LINK")
MESSAGE.column("last", "the last")
M_KEY = MESSAGE.column("key", "lowest leaves first")
MESSAGE.column("send", "not yet sent", "bytes")
MESSAGE.column("left", "not yet arrived", "bytes")
MESSAGE.column("flow", "the state of its rate (FLOW), 0: not controlled")
MESSAGE.column("route", "its route")
CLASS = record("CLASS", "Messages of one key that have packets to send by one link, in the pool.")
CLASS.column("next", "those of the next higher key")
# At 2, where MESSAGE has its first link: 0 and 1 are the links of lists and the cookie.
CLASS.column("key", "their key", at=2)
CLASS.column("first", "the first of them")
CLASS.column("last", "the last")
FLOW = record("FLOW", "The rate of a message, in the pool.")
FLOW.column("message", "its message", at=1)
FLOW.column("notices", "notifications in flight")
FLOW.column("done", "1: the message has arrived")
FLOW.column("rate", "its rate", "bytes/s")
FLOW.column("target", "the rate to rise to", "bytes/s")
FLOW.column("alpha", "estimate of congestion, of ONE")
FLOW.column("decayed", "when that last decayed", "ps")
FLOW.column("risen", "when the rate last rose by time", "ps")
FLOW.column("times", "rises by time since the last notification")
FLOW.column("rounds", "rises by bytes since then")
FLOW.column("sent", "bytes of the round", "bytes")
FLOW.column("quiet", "from when on marks are notified", "ps")
FLOW.column("wait", "of what it sent last, what its rate has not made up for when that next rises", "bytes")
FAIR_PORT = extended(PORT, "FAIR_PORT", "The port of a link, of model `packet`.")
PO_CLASS = FAIR_PORT.column("class_", "the first class of messages to be sent, 0: none")
FAIR_PORT.column("turn", "1: its own messages are next, if forwarded packets wait, too")
FAIR_PORT.column("held", "bytes in the buffer at the link's end", "bytes")
FAIR_PORT.column("paused", "1: a pause was sent to the link's tail")
PO_COUNT = FAIR_PORT.column("count", "packets that have come")
HERE, READY, PAUSE, RESUME, NOTIFIED = range(2, 7)
"""Events. Of a message: it is at its own NPU; may send again. Of a link: pause, resume. Of a rate: notification."""
