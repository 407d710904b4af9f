"""The tables of the physical engine: a program, which does not change, and the state of its run.

An *item* is what a node asks of the network or of a memory. A *chunk flow* is one collective on one line of ranks, or
one channel of point-to-point messages; it serves one chunk at a time. Times are ticks of 1 ns. Volumes are in units, a
binary fraction of a byte (`Scale`), and rates in units per tick, so that both are integers.
"""

from __future__ import annotations

from armillary.base.tables import Layout, record
from armillary.engine.common import layout as common

FIXED, COLLECTIVE, SEND, RECV = common.FIXED, common.COLLECTIVE, common.SEND, common.RECV
MEMORY, SKIP, TRANSFER, STORE = common.MEMORY, common.SKIP, common.TRANSFER, common.STORE
OK, GROW, MISMATCH, TOO_LONG = common.OK, common.GROW, common.MISMATCH, common.TOO_LONG
LAST_TICK = (1 << 62) // 1000
"""Where messages are moved a run stops here: links count picoseconds."""
EVENT, HEAP_COLUMNS = common.SHORT_EVENT, common.SHORT
CODE_BITS = 4
# Above every tick; the sum of two still fits int64.
NEVER = 1 << 61

PROGRAM = Layout("physical program", common.PROGRAM)
NODES, CHILDREN = common.NODES, common.CHILDREN
PACES, N_COLUMNS = common.PACES, common.N_COLUMNS
N_KIND, N_SLOT, N_ITEM, N_INDEGREE = common.N_KIND, common.N_SLOT, common.N_ITEM, common.N_INDEGREE

TURNS = PROGRAM.rows("TURNS", "nodes", "The place of a node of NODES in its slot.")
TURNS.column("place", "how many nodes of its slot come before it in the program")

RANKS = PROGRAM.rows("RANKS", "ranks", "One class of ranks that behave alike.")
R_NODES = RANKS.column("nodes", "the first of its nodes, in NODES")
R_PACE = RANKS.column("pace", "the duration of the first of them, in PACES")
R_COUNT = RANKS.column("count", "how many nodes it has")
# Ranks of one graph share NODES but not the state, hence two addresses.
R_STATE = RANKS.column("state", "the first of its nodes, in the state")
R_ITEMS = RANKS.column("items", "the first of its items")
R_SLOTS = RANKS.column("slots", "how many slots it has; nodes of slot 0 wait for no others")
R_SLOT = RANKS.column("slot", "the first of its slots, among those of all ranks")
R_DELAY = RANKS.column("delay", "when it starts", "ticks")
R_COLUMNS = RANKS.width

ITEMS = PROGRAM.rows(
    "ITEMS", "items", "What a node asks for: a collective, a message, or an access of a memory."
)
I_PLAN = ITEMS.column("plan", "of a collective: its plan")
I_COMM = ITEMS.column("comm", "its communicator")
I_LOCAL = ITEMS.column("local", "number of the rank in the communicator")
I_CHUNKS = ITEMS.column("chunks", "how many chunks it has")
I_ROW = ITEMS.column("row", "its first row of the timeline")
I_RANK = ITEMS.column("rank", "whose it is")
I_NODE = ITEMS.column("node", "its node")
I_ORDINAL = ITEMS.column("ordinal", "the counter of the collectives of this rank in the communicator")
I_PRIORITY = ITEMS.column("priority", "lowest is served first; of messages, too")
# Messages and accesses reuse the first places of a row (`at`): an item is of one kind only.
I_CHANNEL = ITEMS.column("channel", "of a message, or a transfer of hierarchical memory: its channel", at=0)
I_LATENCY = ITEMS.column("latency", "how long its last byte is on its way", "ticks", at=1)
I_VOLUME = ITEMS.column("volume", "its bytes", "units", at=2)
I_SERVER = ITEMS.column("server", "of an access: the memory that serves one after the other, -1: none", at=0)
I_SERVICE = ITEMS.column("service", "how long it takes", "ticks", at=1)
I_COLUMNS = ITEMS.width

PLANS = PROGRAM.rows("PLANS", "plans", "How a kind of collective is carried out in a communicator.")
PL_PHASES = PLANS.column("phases", "phases of a chunk")
PL_CHUNKS = PLANS.column("chunks", "its first chunk, in CHUNKS")
PL_LINES = PLANS.column("lines", "lines of all phases together")
PL_CHOICES = PLANS.column("choices", "levels among which a chunk chooses its route while it runs, 0: none")
PL_CHUNK_BATCH = PLANS.column("chunk_batch", "1: its chunks are a chunk batch, see `share_kernel`")
PL_BIGGER = PLANS.column(
    "bigger", "of a chunk batch: how many chunks are of the bigger of two sizes; they come first"
)
PL_COLUMNS = PLANS.width

PHASES = PROGRAM.rows("PHASES", "phases", "One phase of a chunk of a plan.")
PH_RING = PHASES.column("ring", "where its communicator stands in RING_ENTRY")
PH_LINE = PHASES.column("line", "its first counter of arrivals, among those of a chunk")
PH_CHUNK_FLOW = PHASES.column("chunk_flow", "add a line to get its chunk flow, among those of an instance")
PH_LATENCY = PHASES.column("latency", "how long its last byte is on its way", "ticks")
PH_VOLUME = PHASES.column("volume", "what a rank moves", "units")
PH_FIRST = PHASES.column("first", "its first line")
PH_LINES = PHASES.column("lines", "how many lines")
PH_TICKS = PHASES.column("ticks", "how long it takes at full rate", "ticks")
PH_COLUMNS = PHASES.width

COMMS = PROGRAM.rows("COMMS", "communicators", "A communicator. Its n-th collective is its instance n.")
CO_INSTANCE = COMMS.column("instance", "its first instance, among those of all")
CO_REPS = COMMS.column("reps", "classes of ranks in it")
CO_ARRIVED = COMMS.column("arrived", "its first counter of arrivals")
CO_STRIDE = COMMS.column("stride", "counters of an instance")
CO_ITEMS = COMMS.column("items", "its first member, among those of all instances")
CO_CHUNK_FLOW = COMMS.column("chunk_flow", "its first chunk flow")
CO_CHUNK_FLOWS = COMMS.column("chunk_flows", "chunk flows of an instance")
CO_CHOSEN = COMMS.column("chosen", "its first chunk that chooses its route")
CO_CHUNKS = COMMS.column("chunks", "such chunks of an instance")
CO_COLUMNS = COMMS.width

RING_ENTRY = PROGRAM.rows("RING_ENTRY", "members of rings", "Where a member stands in a kind of phase.")
RING_ENTRY.column("line", "its line")
RING_ENTRY.column("place", "and its place there")

LINE_ROWS = PROGRAM.rows(
    "LINE_ROWS", "lines", "Members of a communicator that run a phase together; or a channel."
)
LN_MEMBERS = LINE_ROWS.column("members", "how many, 0: a channel")
LN_LOCAL = LINE_ROWS.column("local", "the first of them, in LINES")
LN_PORTS = LINE_ROWS.column("ports", "its first port, in LINE_PORTS")
LN_PORT_COUNT = LINE_ROWS.column("port_count", "how many ports it uses")
LN_COLUMNS = LINE_ROWS.width
LINES = PROGRAM.rows("LINES", "members of lines", "Members of lines, side by side.")
LINES.column("local", "number in the communicator")

LINE_PORTS = PROGRAM.rows("LINE_PORTS", "ports of lines", "The use that a line makes of a port.")
LP_PORT = LINE_PORTS.column("port", "the port")
LP_FACTOR = LINE_PORTS.column("factor", "how much of it one byte of the line takes")
LP_WEIGHT = LINE_PORTS.column("weight", "lines of the machine that this one stands for there")
LP_COLUMNS = LINE_PORTS.width
PORTS = PROGRAM.rows("PORTS", "ports", "One direction of a port.")
PORTS.column("rate", "what it carries", "units/tick")

CHANNELS = PROGRAM.rows(
    "CHANNELS", "channels", "Messages of a pair of ranks; the k-th send meets the k-th receive."
)
CN_FIRST = CHANNELS.column("first", "its first message, among those of all")
CN_SENDER = CHANNELS.column("sender", "rank")
CN_RECEIVER = CHANNELS.column("receiver", "rank")
CN_CHUNK_FLOW = CHANNELS.column("chunk_flow", "its chunk flow")
CN_LINE = CHANNELS.column("line", "its line, which has no members")
CN_COLUMNS = CHANNELS.width
CHUNKS = PROGRAM.rows("CHUNKS", "chunks of plans", "Chunks of a plan, side by side.")
CHUNKS.column("phase", "its first phase")

Z_POLICY = PROGRAM.scalar("how chunk flows share a port: FAIR, ORDERED")
Z_SIGN = PROGRAM.scalar("1: who came first is served first; -1: who came last")
Z_STORAGE = PROGRAM.scalar("server at which operations of the storage wait their turn")
Z_WITHIN = PROGRAM.scalar("which chunk a chunk flow serves first: EARLIEST_PHASE, FIFO, SMALLEST")
FAIR, ORDERED = range(2)
EARLIEST_PHASE, FIFO, SMALLEST = range(3)

STATE = Layout("physical state")
NODE_STATE = STATE.columns("NODE", "states", "Nodes of all ranks.")
NODE_STATE.column("start", "when it started; before that, -1 less the nodes that it still waits for", "ticks")
NODE_STATE.column("end", "when it ended, -1: not yet", "ticks", start=-1)
SLOTS = STATE.rows("SLOTS", "slots", "A stream or thread of a rank, or its slot 0, which never is busy.")
SLOT_WAITING = SLOTS.column("waiting", "how many nodes may start")
SLOT_HEAP = SLOTS.column("heap", "where the heap of these begins in READY")
SLOTS.column("busy", "1: a node occupies it")
SLOTS.column("begun", "how many of its nodes have started")
SLOTS.column("reach", "1 + the last of these in the program")
SLOT_COLUMNS = SLOTS.width
READY = STATE.rows("READY", "states", "Heaps of nodes that may start, one of every slot, the lowest first.")
READY.column("node", "number in its graph")
RANK_STATE = STATE.columns("", "ranks", "A rank.")
RANK_STATE.column("left", "nodes that have not ended")
RANK_STATE.column("finish", "when the last has", "ticks")
RANK_STATE.column("is_touched", "1: it is in TOUCHED")
TOUCHED = STATE.rows("TOUCHED", "ranks", "Heap of ranks that may issue nodes at the end of this tick.")
TOUCHED.column("rank", "rank")

ITEM_STATE = STATE.columns("ITEM", "items", "An item.")
ITEM_STATE.column("left", "chunks that have not ended")
ITEM_STATE.column("instance", "which instance of its communicator it has joined")
CHUNK_BATCHES = STATE.columns(
    "CHUNK_BATCH", "items", "The chunk batch of an item, if its rate never changed."
)
CHUNK_BATCHES.column("start", "when it left", "ticks")
CHUNK_BATCHES.column("rate", "at which rate, 0: there is no such chunk batch", "units/tick")
ORDINALS = STATE.rows("ORDINALS", "ordinals", "A rank in a communicator.")
ORDINALS.column("joined", "collectives that it has joined")
INSTANCES = STATE.columns("INSTANCE", "instances", "The n-th collective of a communicator.")
INSTANCES.column("leader", "the item that joined first, whose plan holds for all; -1: none has", start=-1)
MEMBERS = STATE.rows("INSTANCE_ITEM", "instance_items", "A member of an instance.")
MEMBERS.column("item", "with which item it has joined")
ARRIVALS = STATE.rows("ARRIVED", "arrived", "A line in a phase of a chunk.")
ARRIVALS.column("count", "members that are ready for it")
ROWS = STATE.columns("ROW", "rows", "A phase of a chunk of an item: a row of the timeline.")
ROWS.column("start", "when its first byte left", "ticks")
ROWS.column("end", "when its last byte was there", "ticks")
ROWS.column("next", "the row behind it in the list of its chunk flow, -1: none")
ROWS.column("place", "its place in that list: lowest first")

# Columns that stand apart: a kernel that uses few of them touches less memory.
CHUNK_FLOWS = STATE.columns("CHUNK_FLOW", "chunk_flows", "A chunk flow.")
CHUNK_FLOWS.column("head", "phase of a chunk that it serves, as a row of its item; -1: none", start=-1)
CHUNK_FLOWS.column("queue", "the first that waits, -1: none; of a chunk batch also WHOLE, BROKEN", start=-1)
CHUNK_FLOWS.column("tail", "the last that waits")
CHUNK_FLOWS.column("remaining", "what is left of the head since its rate was set", "units")
CHUNK_FLOWS.column("rate", "how fast it moves", "units/tick")
CHUNK_FLOWS.column("since", "when that was set", "ticks")
CHUNK_FLOWS.column("version", "how often it was set: an end that was scheduled before is void")
CHUNK_FLOWS.column("reset", "1: its head is new")
CHUNK_FLOWS.column("entry", "its entries in the lists of its ports, 0: it is on none")
CHUNK_FLOWS.column("priority", "its place in the global order: the lowest is served first, …")
CHUNK_FLOWS.column("key", "… of equal ones that with the lowest key; 0: none yet")
CHUNK_FLOWS.column("dirty", "1: to be looked at when the tick ends; 2: its rate, too")
CHUNK_FLOWS.column("item", "the item whose rows tell the times of its line")
CHUNK_FLOWS.column("line", "its line")
CHUNK_FLOWS.column("load", "how long all takes that was sent to it and has not left", "ticks")
CHUNK_FLOWS.column("chunks", "of a chunk batch: its chunks")
CHUNK_FLOWS.column("through", "of one that is alone on its ports: when it has passed them", "ticks")
DIRTY = STATE.rows("DIRTY", "dirty", "What is to be looked at when the tick ends.")
DIRTY.column("chunk_flow", "chunk_flow")
STALE = STATE.rows("STALE", "chunk_flows", "Chunk flows whose rate may have changed.")
STALE.column("chunk_flow", "chunk_flow")
WHOLE, BROKEN = -1, -2
"""`CHUNK_FLOWS.queue` of a chunk flow with a chunk batch: its rate has never changed, or it has."""

PORT_STATE = STATE.columns("PORT", "ports", "One direction of a port.")
PORT_STATE.column("first", "list of chunk flows on it, an address in working memory; 0: none")
PORT_STATE.column("count", "chunk flows on it, with those that they stand for")
PORT_STATE.column("alone", "1 + the chunk flow that is alone on it, see `batch_kernel`, 0: none")
PORT_STATE.column("priority", "which place in the global order comes first on it")
PORT_STATE.column("key", "see `CHUNK_FLOWS`")
PORT_STATE.column("first_count", "how many chunk flows have that place")
PORT_STATE.column("dirty", "1: chunk flows have come or gone in this tick")
DIRTY_PORTS = STATE.rows(
    "DIRTY_PORTS", "ports", "Ports that chunk flows have come to or gone from in this tick."
)
DIRTY_PORTS.column("port", "port")
LINE_STATE = STATE.columns("LINE", "lines", "A line.")
LINE_STATE.column("free", "list of entries for its ports that are free, 0: none")

CHANNEL_STATE = STATE.columns("", "channels", "A channel.")
CHANNEL_STATE.column("sent", "messages that were sent")
CHANNEL_STATE.column("started", "of these, those that have begun to move")
CHANNEL_STATE.column("posted", "receives that wait, or have ended")
CHANNEL_STATE.column("came", "messages that are there")
MESSAGE_STATE = STATE.columns("", "pairs", "A message of a channel.")
MESSAGE_STATE.column("send_node", "the node that sends it")
MESSAGE_STATE.column("send_priority", "its place in the global order")
MESSAGE_STATE.column("send_key", "see `CHUNK_FLOWS`")
MESSAGE_STATE.column("recv_node", "the node that receives it")
SERVERS = STATE.columns("SERVER", "servers", "A memory that serves one access after the other.")
SERVERS.column("free", "when it is free", "ticks")

CHOSEN = STATE.rows("CHOSEN", "chosen", "A chunk that chooses its route level by level.")
CH_ROUTE = CHOSEN.column("route", "its route as far as it is known: number of the first with these levels")
CHOSEN.column("levels", "levels chosen so far")
CHOSEN.column("item", "1 + the item that asks for the next level, 0: none does")
CH_COLUMNS = CHOSEN.width
QUERIED = STATE.rows(
    "QUERIED", "chosen", "Heap of the chunks whose next level is to be chosen when the tick ends."
)
QUERIED.column("chunk", "number in CHOSEN")
ASKING = STATE.rows("ASKING", "asking", "A member that waits for that.")
ASKING.column("item", "its item")
ASKING.column("chunk", "its chunk")
ASKING.column("phase", "the phase that it is ready for")

V_HEAP = STATE.scalar("events in the heap")
V_STATUS = STATE.scalar("OK, GROW, MISMATCH, TOO_LONG")
V_A = STATE.scalar("GROW: events for which there must be room; MISMATCH: an item")
V_B = STATE.scalar("GROW: words of entries for which there must be room; MISMATCH: another item")
V_EVENTS = STATE.scalar("events so far")
V_TOUCHED = STATE.scalar("ranks that are touched")
V_DIRTY = STATE.scalar("chunk flows to be looked at")
V_PORTS = STATE.scalar("ports to be looked at")
V_ENTRIES = STATE.scalar("words of entries in use")
V_STALE = STATE.scalar("chunk flows whose rate may have changed")
V_SEQUENCE = STATE.scalar("events made so far")
V_QUERIED = STATE.scalar("chunks whose next level is to be chosen")
V_ASKING = STATE.scalar("members that wait for that")
V_NOW = STATE.scalar("the tick")
V_SETTLING = STATE.scalar("1: its second half has begun")
V_LOOKED = STATE.scalar("chunk flows looked at in it")

ENTRY = record(
    "ENTRY", "A chunk flow on a port, in working memory; those of a chunk flow stand side by side."
)
ENTRY.column("chunk_flow", "the chunk flow")
ENTRY.column("next", "the entry behind it in the list of the port, 0: none; of a free one: the next free one")
ENTRY.column("previous", "the entry before it")
ENTRY.column("weight", "chunk flows that it stands for")
EN_COLUMNS = ENTRY.width

# The first half of a tick processes these in any order with the same result.
EV_NODE, EV_VOLUME, EV_PHASE, EV_ARRIVED, EV_START = range(5)
EV_OFFERED, EV_ALONE = 8, 9
"""An operation of the storage has had its turn, and its bytes begin (rank, node): where messages are moved only."""
"""Events: a node ends (rank, node); the head of a chunk flow has passed its ports (chunk flow, version); its last byte
has arrived (chunk flow, row); a message is there (channel); a rank begins (rank); a chunk batch that was alone on its
ports has arrived (chunk flow, version)."""
