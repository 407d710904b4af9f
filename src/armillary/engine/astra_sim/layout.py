"""The tables of profile `astra-sim`: a program, which does not change, and the state of its run.

A *stream* is a chunk of a collective on one rank; it waits in a queue of a dimension and runs there, phase by phase.
A *member state* is one member of a phase whose messages are moved one by one; it stands in working memory. Addresses
are those of rows in the program (costs, lines) or in working memory; times are ticks.
"""

from __future__ import annotations

from armillary.base.tables import Layout, record
from armillary.engine.common import layout as common

FIXED, COLLECTIVE, MEMORY, SEND = common.FIXED, common.COLLECTIVE, common.MEMORY, common.SEND
RECV, CARRIED, HEAP_COLUMNS = common.RECV, common.CARRIED, common.HEAP_COLUMNS
SKIP, PART, PART_SEND, PART_RECV = common.SKIP, common.PART, common.PART_SEND, common.PART_RECV
OK, GROW, MISMATCH, TOO_LONG = common.OK, common.GROW, common.MISMATCH, common.TOO_LONG
CPU, COMPUTE, COMM, NONE, INNER = common.CPU, common.COMPUTE, common.COMM, common.NONE, common.INNER
NODES, CHILDREN, PACES, N_COLUMNS = common.NODES, common.CHILDREN, common.PACES, common.N_COLUMNS
N_SLOT, N_ITEM, N_INDEGREE = common.N_SLOT, common.N_ITEM, common.N_INDEGREE
LATE = 1 << 60
"""Registered after all else."""
LAST_TICK = 1 << 62
"""With contention a run stops here: any single duration may still be added."""

PROGRAM = Layout("program of astra-sim", common.PROGRAM)
RANKS = PROGRAM.rows("RANKS", "ranks", "A class of ranks that behave alike.")
R_NODES = RANKS.column("nodes", "the first of its nodes, in NODES")
R_PACE = RANKS.column("pace", "the duration of the first of them, in PACES")
R_COUNT = RANKS.column("count", "number of its nodes")
R_STATE = RANKS.column("state", "the first of its nodes, in the state")
R_ITEMS = RANKS.column("items", "the first of its items")
R_READY = RANKS.column("ready", "where the heap of each slot but INNER begins, in READY", many=5)
R_COLUMNS = RANKS.width
ITEMS = PROGRAM.rows("ITEMS", "items", "A communication or memory node of one rank.")
I_PLAN = ITEMS.column("plan", "of a collective: its plan")
I_COMM = ITEMS.column("comm", "its communicator")
I_LOCAL = ITEMS.column("local", "number of the rank in the communicator")
I_CHUNKS = ITEMS.column("chunks", "number of its chunks")
I_STREAM = ITEMS.column("stream", "its first stream")
I_ROW = ITEMS.column("row", "its first row of the timeline")
I_BASE = ITEMS.column("base", "its first turn at queues and trees")
I_RANK = ITEMS.column("rank", "class of ranks that it belongs to")
I_NODE = ITEMS.column("node", "its node")
I_ORDINAL = ITEMS.column("ordinal", "the counter of the collectives of this rank in the communicator")
I_FIRST = ITEMS.column("first", "of a custom collective: its first node")
I_PARTS = ITEMS.column("parts", "number of its nodes, 0: it is no custom collective")
# Sends, receives and memory nodes reuse the columns of collectives: an item is one of these.
I_CHANNEL = ITEMS.column("channel", "of a send or receive: its channel", at=0)
I_DELAY = ITEMS.column("delay", "how long it takes; with links: its size class", "ticks", at=1)
I_CONTROL = ITEMS.column("control", "how long the control message takes, -1: no rendezvous", "ticks", at=2)
I_SERVER = ITEMS.column("server", "of a memory node: what serves one after the other, -1: none", at=0)
I_TICKS = ITEMS.column("ticks", "how long it takes", "ticks", at=1)
I_COLUMNS = ITEMS.width
PLANS = PROGRAM.rows(
    "PLANS", "plans", "How a kind of collective is carried out; phases stand route by route."
)
PL_PHASES = PLANS.column("phases", "phases of a chunk")
PL_FIRST = PLANS.column("first", "the first of them")
PL_LINES = PLANS.column("lines", "lines of all phases together")
PL_ROUTES = PLANS.column("routes", "where its routes stand in ROUTES, -1: one route")
PL_IN_TURN = PLANS.column("in_turn", "1: routes are taken from where the collective before stopped")
PL_GREEDY = PLANS.column("greedy", "1: routes follow from what the dimensions have left over, see AFTER")
PL_COLUMNS = PLANS.width
PHASES = PROGRAM.rows("PHASES", "phases", "One phase of a route of a plan.")
PH_LEVEL = PHASES.column("level", "its dimension")
PH_FAMILY = PHASES.column("family", "which queues of it: ALL, FIRST, LAST")
PH_COUNT = PHASES.column("count", "phases of the plan that take turns at these")
PH_INDEX = PHASES.column("index", "its place among them, from 0")
PH_TREE = PHASES.column("tree", "the trees that it takes turns at, -1: none")
PH_TREE_COUNT = PHASES.column("tree_count", "phases of the plan that do")
PH_TREE_INDEX = PHASES.column("tree_index", "its place among them, from 0")
PH_COST0 = PHASES.column("cost0", "address of its cost in the one direction, or by the one tree")
PH_COST1 = PHASES.column("cost1", "address of its cost in the other direction, or by the other tree")
PH_RING = PHASES.column("ring", "where its communicator stands in RING_ENTRY")
PH_LINE = PHASES.column("line", "its first counter of arrivals, among those of a chunk")
PH_KIND = PHASES.column("kind", "OTHER, SCATTERS, GATHERS")
PH_BYTES = PHASES.column("bytes", "what a member holds", "bytes")
PH_COLUMNS = PHASES.width
OTHER, SCATTERS, GATHERS = range(3)
ALL, FIRST, LAST = range(3)
COMMS = PROGRAM.rows("COMMS", "communicators", "A communicator. Its n-th collective is its instance n.")
COMMS.column("instance", "its first instance, among those of all")
COMMS.column("reps", "classes of ranks in it")
COMMS.column("arrived", "its first counter of arrivals")
COMMS.column("stride", "counters of an instance")
COMMS.column("items", "its first member, among those of all instances")
RING_ENTRY = PROGRAM.rows("RING_ENTRY", "members of rings", "Where a member stands in a kind of phase.")
RING_ENTRY.column("line", "its line")
RING_ENTRY.column("place", "its member state there")
LINE_ROWS = PROGRAM.rows("LINE_ROWS", "lines", "Members of a communicator that run a phase together.")
LINE_ROWS.column("n", "number of members")
LN_MEMBER_STATES = LINE_ROWS.column("member_states", "member states, one for all members that behave alike")
LN_INDEX = LINE_ROWS.column("index", "address of the member state of each position")
LN_LOCAL = LINE_ROWS.column("local", "address of the number of each member state in the communicator")
LN_POSITION = LINE_ROWS.column("position", "address of its position")
LN_RANK = LINE_ROWS.column("rank", "address of its rank")
LN_COLUMNS = LINE_ROWS.width
PROGRAM.place("LINES")
CHANNELS = PROGRAM.rows(
    "CHANNELS", "channels", "Messages of a pair of ranks; the k-th send meets the k-th receive."
)
CHANNELS.column("first", "its first message, among those of all")
CHANNELS.column("sender", "rank")
CHANNELS.column("receiver", "rank")
PROGRAM.place("COSTS")
ROUTES = PROGRAM.rows(
    "ROUTES", "routes of plans", "How many chunks until the routes repeat, then the route of each."
)
ROUTES.column("route", "route, or that number")
AFTER = PROGRAM.rows("AFTER", "pairs of plans", "The routes of a plan where another one left work over.")
AFTER.column("routes", "as in PLANS, -1: not known")
LINK_DIMS = PROGRAM.rows("LINK_DIMS", "dimensions", "A dimension of links.")
LINK_DIMS.column("kind", "LOOP, LINE, ALL_PAIRS, STAR")
LINK_DIMS.column("size", "NPUs along it")
LINK_DIMS.column("stride", "from one of these to the next")
LINK_DIMS.column("first", "its first link")
LOOP, LINE, ALL_PAIRS, STAR = range(4)
LINK_COSTS = PROGRAM.rows("LINK_COSTS", "dimensions of size classes", "A message on a link.")
LINK_COSTS.column("held", "how long it holds the link", "ticks")
LINK_COSTS.column("there", "how long until it is at the other end", "ticks")
Z_RANKS = PROGRAM.scalar("ranks")
Z_LEVELS = PROGRAM.scalar("dimensions")
Z_QUEUES = PROGRAM.scalar("queues of a dimension")
Z_LIMIT = PROGRAM.scalar("streams that run in a queue at a time")
Z_TREES = PROGRAM.scalar("pairs of trees")
Z_MESSAGES = PROGRAM.scalar("1: messages of phases are moved one by one")
Z_ORDER = PROGRAM.scalar("order of what waits for a dimension: IN_TURN, ALTERNATE, SMALLEST, FEWEST_LEFT")
Z_CARRIES = PROGRAM.scalar("1: work may be left over from one collective to the next")
Z_PLANS = PROGRAM.scalar("plans")
Z_BUS_L = PROGRAM.scalar("LogGP bus: L, ticks")
Z_BUS_O = PROGRAM.scalar("LogGP bus: o, ticks")
Z_BUS_G = PROGRAM.scalar("LogGP bus: g, ticks")
Z_LINKS = PROGRAM.scalar("dimensions with links, 0: messages wait for none")
Z_NPUS = PROGRAM.scalar("NPUs")
Z_BUCKETS = PROGRAM.scalar("buckets of lists")
IN_TURN, ALTERNATE, SMALLEST, FEWEST_LEFT = range(4)

COST = record("COST", "What a phase costs: its schedule, and how long its messages take.")
PC_N = COST.column("n", "members")
PC_RELATIVE = COST.column("relative", "how peers are given: 0 rotate, 1 pair, 2 absolute")
PC_ROLES = COST.column("roles", "address of its first role, one for all members or one each")
PC_DELAY = COST.column("delay", "address of the delays of its messages")
PC_DELAY_STRIDE = COST.column("delay_stride", "delays of a member, 0: all members share them")
PC_CHAIN = COST.column("chain", "1: one chunk step at a time")
PC_CONTROL = COST.column(
    "control", "address of the delays of control messages, as of the others; -1: no rendezvous"
)
PC_EQUAL = COST.column("equal", "address of (finish, registered, sent) after equal starts at tick 0")
PC_EQUAL_ROWS = COST.column("equal_rows", "of these: 1, or one for each member")
PC_COLUMNS = COST.width
ROLE = record("ROLE", "What a member does in a phase.")
RO_INITIAL = ROLE.column("initial", "chunk steps that it begins with")
RO_SENDS = ROLE.column("sends", "messages that it sends")
RO_RECEIVES = ROLE.column("receives", "messages that it receives")
RO_SEND = ROLE.column("send", "address of the rows of these sends")
RO_RECEIVE = ROLE.column("receive", "address of the rows of these receives")
RO_CHARGE = ROLE.column("charge", "address of the charges of its chunk steps")
RO_COLUMNS = ROLE.width
SEND_ROW = record("SEND_ROW", "A send of a role.")
SE_PEER = SEND_ROW.column("peer", "position to send to, relative to the member")
SE_DELAY = SEND_ROW.column("delay", "its delay, among those of the member")
SE_DONE = SEND_ROW.column("done", "chunk steps that must have completed before")
SE_RECEIVED = SEND_ROW.column("received", "messages that must have been received before")
SE_MATCH = SEND_ROW.column("match", "the receive that it meets at the peer")
SE_COLUMNS = SEND_ROW.width
RECEIVE_ROW = record("RECEIVE_ROW", "A receive of a role.")
RE_PEER = RECEIVE_ROW.column("peer", "position to receive from, relative to the member")
RE_DONE = RECEIVE_ROW.column("done", "chunk steps that must have completed before")
RE_RECEIVED = RECEIVE_ROW.column("received", "messages that must have been received before")
RE_MATCH = RECEIVE_ROW.column("match", "the send that it meets at the peer")
RE_COLUMNS = RECEIVE_ROW.width
CHARGE = record(
    "CHARGE", "What a chunk step costs its member when it has come; the last four with a shared bus only."
)
CH_WAIT = CHARGE.column("wait", "endpoint delay", "ticks")
CH_REDUCE = CHARGE.column("reduce", "reduction, 0: none", "ticks")
CH_BUS = CHARGE.column("bus", "on the bus, -1: it does not go over it", "ticks")
CH_INNER = CHARGE.column("inner", "on the inner pair of ends", "ticks")
CH_PROCESS = CHARGE.column("process", "in processing", "ticks")
CH_LOADS = CHARGE.column("loads", "0: it does not move from memory to the NPU, 1: it does, 2: and back")
CH_REDUCES = CHARGE.column("reduces", "1: it is processed")
CH_COLUMNS = CHARGE.width

STATE = Layout("state of astra-sim")
NODE_STATE = STATE.columns("", "states", "Nodes of all ranks.")
NODE_STATE.column("indegree", "nodes that it still waits for")
NODE_STATE.column("node_start", "when it started, -1: not yet", "ticks", start=-1)
NODE_STATE.column("node_end", "when it ended, -1: not yet", "ticks", start=-1)
READY = STATE.rows("READY", "states", "Heaps of nodes that may start, one of every slot, the lowest first.")
READY.column("node", "number in its graph")
READY_SIZE = STATE.rows("READY_SIZE", "ranks", "A rank.")
READY_SIZE.column("waiting", "nodes on the heap of each slot", many=4)
BUSY = STATE.rows("BUSY", "ranks", "A rank.")
BUSY.column("slot", "1: a node occupies this slot", many=3)
RANK_STATE = STATE.columns("", "ranks", "A rank.")
RANK_STATE.column("flying", "nodes that were issued and have not ended")
RANK_STATE.column("left", "nodes that have not ended")
RANK_STATE.column("finish", "when the last node ended", "ticks")
RANK_STATE.column("finisher", "its place among the ranks that finished, from 1; 0: it has no node")
RANK_STATE.column("turn", "which route the next collective begins with, where these are taken in turn")
DEFERRED = STATE.rows(
    "DEFERRED", "deferred", "Children of skipped nodes, which wait for the end of an event."
)
DEFERRED.column("node", "node")
QUEUES = STATE.columns("QUEUE", "queues", "A queue of streams.")
QUEUES.column("head", "the first that waits, -1: none", start=-1)
QUEUES.column("tail", "the last")
QUEUES.column("running", "streams of it that run")
STREAMS = STATE.columns("STREAM", "streams", "A stream.")
STREAMS.column("next", "the one behind it in its queue")
STREAMS.column("phase", "the phase that it is in")
STREAMS.column("item", "its item")
BASES = STATE.columns("", "bases", "A phase of an item whose chunks take one route.")
BASES.column("queue_base", "turn of its first chunk at its queues")
BASES.column("tree_base", "and at its trees")
COUNTERS = STATE.rows("COUNTERS", "ranks", "Turns at queues (3 of each dimension) and trees, rank by rank.")
COUNTERS.column("turn", "the next turn")
ITEM_STATE = STATE.columns("", "items", "An item.")
ITEM_STATE.column("item_left", "chunks that have not ended")
ITEM_STATE.column("parts_left", "of a custom collective: nodes that have not ended")
ITEM_STATE.column("item_instance", "which instance of its communicator it has joined")
ORDINALS = STATE.rows("ORDINALS", "ordinals", "A rank in a communicator.")
ORDINALS.column("joined", "collectives that it has joined")
INSTANCES = STATE.columns("INSTANCE", "instances", "The n-th collective of a communicator.")
INSTANCES.column("plan", "the item that joined first, whose plan holds for all; -1: none has", start=-1)
INSTANCES.column("routes", "its routes, -1: not chosen yet", start=-1)
MEMBERS = STATE.rows("INSTANCE_ITEM", "instance_items", "A member of an instance.")
MEMBERS.column("item", "with which item it has joined")
ARRIVALS = STATE.rows("ARRIVED_AT", "arrived", "A line in a phase of a chunk.")
ARRIVALS.column("count", "members that have come + cost << 24; or 1 + the block of its member states")
CHANNEL = STATE.rows("CHANNEL", "channels", "A channel.")
CHANNEL.column("sent", "messages sent")
CHANNEL.column("posted", "receives posted")
CHANNEL.column("arrived", "messages that have arrived")
CHANNEL.column("cleared", "sends that were cleared")
CS_COLUMNS = CHANNEL.width
MESSAGES = STATE.columns("", "pairs", "A message of a channel.")
MESSAGES.column("send_tick", "when it was sent, or its receive posted", "ticks")
MESSAGES.column("send_node", "the node that sends it")
MESSAGES.column("recv_node", "the node that receives it")
SERVERS = STATE.columns("", "servers", "A memory that serves one access after the other.")
SERVERS.column("server_free", "when it is free", "ticks")
SERVERS.column(
    "served_at", "twice the tick of its last request, + 1: not of a rank's first nodes; -1: none", start=-1
)
ROWS = STATE.columns("ROW", "rows", "A phase of a chunk of an item: a row of the timeline.")
ROWS.column("start", "when it started", "ticks")
ROWS.column("end", "when it ended", "ticks")
ROWS.column("seq", "sequence number of its start")
ROUTED = STATE.columns("ROW", "routed", "The same, where chunks take several routes.")
ROUTED.column("phase", "its phase", start=-1)
ROUTED.column("queue", "its turn at its queues")
ROUTED.column("tree", "its turn at its trees")
FREE = STATE.rows("FREE", "lines", "A line.")
FREE.column("block", "list of blocks of member states that are free, -1: none")
RETAINED = STATE.rows("RETAINED", "1", "Work that an earlier collective has left over.")
RETAINED.column("plan", "its plan, -1: there is none")
TOUCH = STATE.rows("LAST_TOUCH", "queues", "How a queue last changed (`tie_kernel.touch`).")
TOUCH.column("tick", "when", "ticks")
TOUCH.column("registered", "when its event was registered", "ticks")
TOUCH.column("stream", "by which stream")
TOUCH.column("phase", "after which of its phases")
TO_COLUMNS = TOUCH.width
COMPLETED = STATE.rows("COMPLETED", "ranks", "What completed last on a rank.")
COMPLETED.column("tick", "when", "ticks")
COMPLETED.column("registered", "when its event was registered", "ticks")
COMPLETED.column("pair", "1: a message completed at this tick")
COMPLETED.column("skipped", "1: a node was skipped")
COMPLETED.column("fresh", "for each slot but NONE: 1: a node became free for it", many=3)
COMPLETED.column("issued", "1: one took it", many=3)
D_COLUMNS = COMPLETED.width
SCRATCH = ("STARTS", "ENDS", "REGISTERED", "SENT", "SEND_AT", "ARRIVE_AT", "READY_AT")
"""What a phase that is evaluated at once begins and ends with, one value for each member."""
MEMBER = STATE.columns("", "members", "A member of the phase that is being evaluated.")
MEMBER.column("starts", "when it starts", "ticks")
MEMBER.column("ends", "when it finishes", "ticks")
MEMBER.column("registered", "when the event of its finish was registered", "ticks")
MEMBER.column("sent", "when the cause of that event was sent", "ticks")
MEMBER.column("send_at", "when the message that it waits for was posted", "ticks")
MEMBER.column("arrive_at", "when that is there", "ticks")
MEMBER.column("ready_at", "when its chunk step is complete", "ticks")
BUS = STATE.rows(
    "BUS", "ends", "An end of the shared bus of a rank; partners differ in the last bit of the number."
)
BUS.column("state", "FREE_END, SENDING, RECEIVING")
BUS.column("previous", "what it was before")
BUS.column("last", "since when it is in this state", "ticks")
BUS.column("sent", "sends in a row")
BUS.column("waiting", "requests in flight to it")
BUS.column("processing", "1: it processes one")
E_SENDS = BUS.column("sends", "list of requests to send, 0: none; then its last", many=2)
E_RECEIVES = BUS.column("receives", "of requests to receive", many=2)
E_PROCESS = BUS.column("process", "of requests to process", many=2)
E_COLUMNS = BUS.width
ENDS_PER_RANK = 4
"""Outer NPU, outer memory, inner NPU, inner memory."""
FREE_END, SENDING, RECEIVING = range(3)
BURST = 8
BUCKETS = STATE.rows("BUCKETS", "buckets", "Lists of the ranks at ticks, by a hash of both.")
BUCKETS.column("list", "the first of a chain, 0: none")
V_HEAP = STATE.scalar("events in the heap")
V_SEQ = STATE.scalar("sequence number")
V_MEMBER_STATE = STATE.scalar("words of working memory in use")
V_STATUS = STATE.scalar("OK, GROW, MISMATCH, TOO_LONG, CARRIED")
V_A = STATE.scalar("MISMATCH, CARRIED: an item")
V_B = STATE.scalar("another item, or a plan")
V_EVENTS = STATE.scalar("events so far")
V_FINISHERS = STATE.scalar("ranks that have finished")
V_DEFERRED = STATE.scalar("children of skipped nodes")
V_REQUESTS = STATE.scalar("list of free requests of the bus, 0: none")
V_THROUGH = STATE.scalar("the member state whose chunk step just left the bus, 0: none")
V_SERVED = STATE.scalar("1 + the outer end that an inner one has served, 0: none")
V_REGISTERED = STATE.scalar("when the event that is processed was registered")
V_TIED = STATE.scalar("1: what came first within a tick made a difference that only messages tell")
V_DOUBT = STATE.scalar("1: the node that completes might have done so before another one of this tick")
V_ROWS = STATE.scalar("with contention: list of free rows, 0: none")
V_NOW = STATE.scalar("the list of the tick that is processed")
V_BATCH = STATE.scalar("in it, that of a rank")
V_ONCE = STATE.scalar("what cannot wait, a list")
V_ONCE_TAIL = STATE.scalar("the last of it")

MEMBER_STATE = record(
    "MEMBER_STATE", "A member of a phase, in working memory; then (state, tick) of each of its receives."
)
MEMBER_STATE.column("done", "chunk steps that have completed")
MEMBER_STATE.column("received", "messages taken")
MEMBER_STATE.column("sends", "sends posted")
MEMBER_STATE.column("receives", "receives posted")
MEMBER_STATE.column("sent", "when the last message that it took was sent", "ticks")
MEMBER_STATE.column("seq", "its sequence number")
MEMBER_STATE.column("early", "when the last message came that met no receive", "ticks")
MEMBER_STATE.column("owner", "what the caller wants to know when it finishes")
M_COST = MEMBER_STATE.column("cost", "address of the cost of its phase")
MEMBER_STATE.column("position", "its position")
MEMBER_STATE.column("block", "address of the member states of this phase")
MEMBER_STATE.column("size", "integers of each of them")
MEMBER_STATE.column("line", "address of the member state of each position")
MEMBER_STATE.column("rank", "whose bus it uses")
M_COLUMNS = MEMBER_STATE.width
IDLE, POSTED, ARRIVED, WAITING, CLEARED = range(5)
"""States of a receive. WAITING (rendezvous): the sender waits until it is posted; CLEARED (rendezvous with
contention): the receiver has cleared a send that is not posted yet."""
REQUEST = record("REQUEST", "A request of the bus, in working memory.")
REQUEST.column("next", "the next one of its list, 0: none")
REQUEST.column("ticks", "how long it takes", "ticks")
REQUEST.column("inner", "how long on the inner pair", "ticks")
REQUEST.column("process_ticks", "how long in processing", "ticks")
REQUEST.column("process", "1: it is to be processed")
REQUEST.column("back", "1: it is to be sent back")
REQUEST.column("then", "what follows when it is done: THEN_CHUNK_STEP ...")
REQUEST.column("ref", "for which member state, or request")
REQUEST.column("reduce", "and a reduction, 0: none", "ticks")
Q_COLUMNS = REQUEST.width
THEN_CHUNK_STEP, THEN_SEND, THEN_PROCESS, THEN_RETIRE = range(4)

EV_CHUNK_STEP, EV_MESSAGE, EV_START = range(3)
"""Events of a member state: the first operand is the member state, the second the receive."""
EV_NODE, EV_PHASE, EV_SEND, EV_RECV, EV_SERVE, EV_FIRE = range(3, 9)
EV_BUS_SENT, EV_BUS_RECEIVED, EV_BUS_PROCESSED = range(9, 12)
EV_LATE, EV_CLEAR, EV_GO, EV_CLEAR_PAIR, EV_GO_PAIR = range(12, 17)
"""Events that only contention has: a receive finds its message; a control message arrives, or its send is posted later
than that, in a collective or point to point."""

# Events with contention. The heap has rows of a tick and its list; lists hold what = kind + KINDS * address of a row.
QUEUE_COLUMNS = 2
KINDS = 4
HOP, EVENT, BATCH, FREE_LINK = range(4)
"""A message in flight; an event; the events of a rank at a tick; a link."""
ROW_COLUMNS = 8
"""Integers of each of these but links, in working memory; the first is what comes after it in its list."""
HOPS = record("HOPS", "A message in flight.")
W_NEXT = HOPS.column("next", "what comes after it in its list, 0: nothing")
HOPS.column("at", "the device that it is at")
HOPS.column("to", "its destination")
HOPS.column("size", "the first row of LINK_COSTS of its size")
HOPS.column("cost", "that of the link that it takes")
HOPS.column("code", "what happens on arrival")
HOPS.column("a", "to which")
HOPS.column("b", "and to which")
PENDING = record("PENDING", "The events of a rank at a tick.")
PENDING.column("next", "what comes after it in its list")
B_RANK = PENDING.column("rank", "the rank; EVERY: whatever is due at the tick")
B_TICK = PENDING.column("tick", "the tick", "ticks")
B_HEAD = PENDING.column("head", "list of what is due, 0: nothing")
B_TAIL = PENDING.column("tail", "the last of it")
PENDING.column("chain", "the next list of its bucket")
EVERY = -1
TASK = record("TASK", "An event.")
TASK.column("next", "what comes after it in its list")
G_CODE = TASK.column("code", "what happens")
G_A = TASK.column("a", "to which")
G_B = TASK.column("b", "and to which")
LINK = record("LINK", "A link; the first stands at ROW_COLUMNS.")
LINK.column("busy", "1: a message holds it", at=1)
LK_HEAD = LINK.column("head", "list of messages that wait for it, 0: none")
LINK.column("tail", "the last of them")
LK_COLUMNS = LINK.width
