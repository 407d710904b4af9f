"""A network that moves messages: its table, its state, and the rows and events of its run.

Four flat arrays: `table`, which does not change; `net`, the state of fixed size; `pool`, rows that come and go;
`queue`, the heap of events. A transport has tables of its own behind those that are declared here.
"""

from __future__ import annotations

from armillary.base.tables import Layout, record

OK, GROW = range(2)
# Twice this overflows int64: times may be added to it, but not another FOREVER.
FOREVER = 1 << 62
PS = 1000
"""Times here are ps, 1000 to a tick of the engine: packets are shorter than a tick."""

TABLE = Layout("network")
T_LINKS = TABLE.scalar("links")
T_NODES = TABLE.scalar("nodes")
T_NPUS = TABLE.scalar("NPUs")
T_STAGES = TABLE.scalar("stages")
T_ROUTES = TABLE.scalar("routes")
T_PARTS = TABLE.scalar("parts of a message, each on a route of its own")
LINK = TABLE.rows(
    "LINK", "links of stages", "A link in a stage, stage by stage. A byte takes slow / fast ps."
)
L_SLOW = LINK.column("slow", "see above, 0: it is down", "ps")
L_FAST = LINK.column("fast", "see above", "bytes")
L_LATENCY = LINK.column("latency", "latency", "ps")
L_BUFFER = LINK.column("buffer", "what fits the buffer at its end", "bytes")
L_TAIL = LINK.column("tail", "the node that it leaves")
L_HEAD = LINK.column("head", "the node that it leads to")
L_COLUMNS = LINK.width
T_LINK = TABLE.places["LINK"]
ROUTE_FIRST = TABLE.rows("ROUTE_FIRST", "routes", "A route; its end is where the next begins.")
ROUTE_FIRST.column("first", "the first of its links, in ROUTE_LINK")
T_ROUTE_FIRST = TABLE.places["ROUTE_FIRST"]
ROUTE_LINK = TABLE.rows("ROUTE_LINK", "links of routes", "Links of routes, side by side.")
ROUTE_LINK.column("link", "link")
T_ROUTE_LINK = TABLE.places["ROUTE_LINK"]
T_OPTIONS = TABLE.place("OPTIONS")
"""Address of the transport's options; each transport declares its own record."""
T_OWN = TABLE.head
TABLE_HEAD = T_OWN + 16

NET = Layout("state of a network")
N_STATUS = NET.scalar("OK, GROW")
N_STAGE = NET.scalar("stage")
N_NOW = NET.scalar("time, ps")
N_EVENTS = NET.scalar("events so far")
N_QUEUE = NET.scalar("events in the queue")
N_SEQUENCE = NET.scalar("events made so far")
N_POOL = NET.scalar("words of the pool in use")
N_FREE = NET.scalar("list of free rows of the pool, 0: none")
N_POOL_ROOM = NET.scalar("words that may be in use before an event")
N_QUEUE_ROOM = NET.scalar("events that may be in the queue before one")
N_DELIVERED = NET.scalar("list of the messages that have arrived, 0: none")
N_DELIVERED_LAST = NET.scalar("the last of them")
N_STOPPED = NET.scalar("list of the messages that wait for a link that is down, 0: none")
N_STOPPED_LAST = NET.scalar("the last of them")
N_IN_FLIGHT = NET.scalar("messages in flight")
N_BIN_BITS = NET.scalar("a bin is ``1 << this`` ps wide: times are shifted to it, not divided")
# Halved pairwise when they widen: a power of two.
BIN_BITS = 8
BINS = 1 << BIN_BITS
"""Equal spans of time in which the use of every link is counted; twice as wide when the run outlasts them."""
USE = NET.rows("USE", "links", "What a link has carried.")
U_BYTES = USE.column("bytes", "bytes carried", "bytes")
U_BUSY = USE.column("busy", "how long it was busy", "ps")
U_DEPTH = USE.column("depth", "most bytes that waited for it", "bytes")
U_DROPS = USE.column("drops", "packets dropped")
U_MARKS = USE.column("marks", "packets marked")
U_PAUSED = USE.column("paused", "how long it was paused", "ps")
U_WAITING = USE.column("waiting", "bytes that wait for it now", "bytes")
U_COLUMNS = USE.width
N_USE = NET.places["USE"]
BIN_BYTES = NET.rows("BIN_BYTES", "links in bins", "A link in a bin, bin by bin.")
BIN_BYTES.column("bytes", "bytes carried", "bytes")
N_BINS_BYTES = NET.places["BIN_BYTES"]
BIN_DEPTH = NET.rows("BIN_DEPTH", "links in bins", "A link in a bin, bin by bin.")
BIN_DEPTH.column("depth", "most bytes that waited for it", "bytes")
N_BINS_DEPTH = NET.places["BIN_DEPTH"]
GATE = NET.rows("GATE", "routes", "The gate of a route, through which one message leaves at a time.")
GA_BUSY = GATE.column("busy", "1: a message is leaving")
GATE.column("first", "the first of those that wait in the order in which they came, 0: none")
GATE.column("last", "the last of them")
GATE.column("root", "root of the heap of the others, 0: none")
GATE.column("count", "messages that have waited so far")
GA_COLUMNS = GATE.width
N_GATES = NET.places["GATE"]
N_OFFERING = NET.scalar("see `offer_kernel`")
N_OWN = NET.head
NET_HEAD = N_OWN + 40

ROW = record("ROW", "A row of the pool; all rows are as long.")
P_NEXT = ROW.column("next", "what comes behind it in its list, 0: nothing")
P_COOKIE = ROW.column("cookie", "of a message: what its sender calls it")
# Beyond the columns that a transport sets before the gate. `flow` uses the same word for the place in the
# queue, which a message has only after the gate.
P_TURN = ROW.column("turn", "of one that waits at a gate: its place in the order of arrival there", at=13)
P_CHILD = ROW.column("child", "its first child in the heap of the gate", at=15)
P_COLUMNS = ROW.width
EVENT = record("EVENT", "An event of the queue; by time, then sequence.")
Q_TIME = EVENT.column("time", "when it happens", "ps")
Q_SEQUENCE = EVENT.column("sequence", "its place among those of the same ps")
Q_WHAT = EVENT.column("what", "row * CODES + code")
Q_COLUMNS = EVENT.width
WHOLE = record("WHOLE", "A row of the pool: a message that was sent in parts.")
WHOLE.column("next", "see ROW")
WHOLE.column("cookie", "what its sender calls it")
WHOLE.column("left", "parts that have not arrived")
# A power of two, so that taking an event apart needs no division.
CODES = 8
"""An event is ``row * CODES + code``."""
