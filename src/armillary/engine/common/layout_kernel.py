"""The layout of a program and of a run: two flat integer arrays, and what their columns mean.

The program `prog` and the state `st` begin with a header of offsets: table X starts at ``prog[X]``, so its
element i is ``prog[prog[X] + i]``. A table of rows is flat too: column C of row r is at ``r * X_COLUMNS + C``.
Few, large arrays keep the compiled kernels small: Numba carries every array argument through every call.
"""

from __future__ import annotations

# fmt: off
# Tables of the program
(
    NODES, CHILDREN, RANKS, ITEMS, PLANS, PHASES, COMMS, RING_ENTRY, LINE_ROWS, LINES, CHANNELS, COSTS, ROUTES, AFTER,
) = range(14)
# Scalars of the program, after the addresses of its tables
Z_RANKS, Z_LEVELS, Z_QUEUES, Z_LIMIT, Z_TREES, Z_MESSAGES, Z_ORDER, Z_CARRIES, Z_PLANS = range(14, 23)
# LogGP shared bus: L, o, g
Z_BUS_L, Z_BUS_O, Z_BUS_G = range(23, 26)
# Events in the order of registration: tables of links, how many dimensions have some (0: messages wait for none)
LINK_DIMS, LINK_COSTS, Z_LINKS, Z_NPUS, Z_BUCKETS = range(26, 31)
PROGRAM_HEAD = 31

# Tables of the state: nodes and slots; queues and streams; collectives; channels and memory; phases; scratch
(
    INDEGREE, NODE_START, NODE_END, READY, READY_SIZE, BUSY, FLYING, LEFT, FINISH, DEFERRED,
    QUEUE_HEAD, QUEUE_TAIL, QUEUE_RUNNING, STREAM_NEXT, STREAM_PHASE, STREAM_ITEM, QUEUE_BASE, TREE_BASE, COUNTERS,
    ITEM_LEFT, PARTS_LEFT, ITEM_INSTANCE, ORDINALS, INSTANCE_PLAN, INSTANCE_ITEM, ARRIVED_AT,
    CHANNEL, SEND_TICK, SEND_NODE, RECV_NODE, SERVER_FREE,
    ROW_START, ROW_END, ROW_SEQ, ROW_PHASE, ROW_QUEUE, ROW_TREE, TURN, FREE,
    INSTANCE_ROUTES, KEPT, LAST_TOUCH, COMPLETED, SERVED_AT,
    STARTS, ENDS, REGISTERED, SENT, SEND_AT, ARRIVE_AT, READY_AT,
    BUS,
) = range(52)
SCRATCH = ("STARTS", "ENDS", "REGISTERED", "SENT", "SEND_AT", "ARRIVE_AT", "READY_AT")
# Scalars of the state, after the addresses of its tables: heap size, sequence number, machine memory in use,
# status and its two operands, events so far, children of skipped nodes, free bus
# requests, the bundle that just got through the bus, the outer end that an inner one has served (+ 1); when the
# event that is processed was registered; 1: what came first within a tick made a difference, and only messages tell
# it; 1: the node that completes might have done so before another one of this tick
V_HEAP, V_SEQ, V_MACHINE, V_STATUS, V_A, V_B, V_EVENTS, V_DEFERRED = range(52, 60)
V_REQUESTS, V_THROUGH, V_SERVED, V_REGISTERED, V_TIED, V_DOUBT = range(60, 66)
# Contention: buckets of lists, free rows; lists being processed: the tick, a rank at it, what cannot wait; the last
BUCKETS, V_ROWS, V_NOW, V_BATCH, V_ONCE, V_ONCE_TAIL = range(66, 72)
STATE_HEAD = 72
# fmt: on

# Columns of an event: tick, registered, sent, sequence number, code, two operands.
HEAP_COLUMNS = 7

# Columns of how a queue last changed (`tie_kernel.touch`): tick, when its event was registered, stream, phase.
TO_TICK, TO_REGISTERED, TO_STREAM, TO_PHASE = range(4)
TO_COLUMNS = 4

# Columns of a phase cost.
PC_N = 0  # members
PC_RELATIVE = 1  # 0 rotate, 1 pair, 2 absolute
PC_ROLES = 2  # first role row, one row for all members or one each
PC_DELAY = 3  # address of the message delays
PC_DELAY_STRIDE = 4  # delays per member, 0 when all members share them
PC_CHAIN = 5  # 1: one bundle at a time
PC_CONTROL = 6  # address of rendezvous control delays (same layout as the message delays), -1: none
PC_EQUAL = 7  # address of (finish, reg, sent) after equal starts at tick 0, 1 row or n rows
PC_EQUAL_ROWS = 8  # 1 or n
PC_COLUMNS = 9

# Columns of a role.
RO_INITIAL = 0
RO_SENDS = 1
RO_RECEIVES = 2
RO_SEND = 3  # address of the send rows
RO_RECEIVE = 4
RO_CHARGE = 5  # address of charge rows
RO_COLUMNS = 6

# Columns of a send row.
SE_PEER = 0
SE_DELAY = 1  # index in the delays of the member
SE_DONE = 2
SE_RECEIVED = 3
SE_MATCH = 4  # the receive it meets at the peer
SE_COLUMNS = 5

# Columns of a receive row.
RE_PEER = 0
RE_DONE = 1
RE_RECEIVED = 2
RE_MATCH = 3  # the send it meets at the peer
RE_COLUMNS = 4

# Columns of a charge row: the endpoint delay, then the reduction (0: none). With a shared bus: the ticks that
# the bytes take on it (-1: they do not go over it), on the inner pair and in processing; whether the bundle
# moves from memory to the NPU (and back), and whether it is processed.
CH_WAIT, CH_REDUCE, CH_BUS, CH_INNER, CH_PROCESS, CH_LOADS, CH_REDUCES = range(7)
CH_COLUMNS = 7

# Header of a member's machine; then (state, tick) per receive.
M_DONE = 0
M_RECEIVED = 1
M_SENDS = 2  # sends posted
M_RECEIVES = 3  # receives posted
M_SENT = 4  # tick at which the last received message was sent
M_SEQ = 5
M_OWNER = 6  # what the caller wants to know when the machine finishes
M_COST = 7
M_POSITION = 8
M_BLOCK = 9  # address of the machines of this phase
M_SIZE = 10  # integers per machine of this phase
M_LINE = 11  # address of position -> machine
M_RANK = 12  # whose bus it uses
M_COLUMNS = 13

# States of a receive.
IDLE = 0
POSTED = 1
ARRIVED = 2
WAITING = 3  # rendezvous: the sender waits for the receive to be posted
CLEARED = 4  # rendezvous with contention: the receiver has cleared a send that is not posted yet

# Codes of the two events of a machine: operand a is the machine, b the receive.
EV_BUNDLE = 0
EV_MESSAGE = 1
EV_START = 2

# V_STATUS
OK, GROW, MISMATCH, TOO_LONG, CARRIED = range(5)
# Node kinds
FIXED, COLLECTIVE, SEND, RECV, MEMORY, SKIP, PART, PART_SEND, PART_RECV, TRANSFER = range(10)
# Slots; a node of slot NONE is issued as soon as it is free, one of slot INNER by its collective.
CPU, COMPUTE, COMM, NONE, INNER = range(5)
# Columns of a node row, a rank row, an item row (a communication or memory node of one rank)
N_KIND, N_SLOT, N_TICKS, N_ITEM, N_INDEGREE, N_CHILD, N_CHILDREN = range(7)
N_COLUMNS = 7
R_NODES, R_COUNT, R_STATE, R_ITEMS, R_READY = range(5)
R_COLUMNS = 9  # R_READY: one offset per slot but INNER
I_PLAN, I_COMM, I_LOCAL, I_CHUNKS, I_STREAM, I_ROW, I_BASE, I_RANK, I_NODE, I_ORDINAL, I_FIRST, I_PARTS = (
    range(12)
)
I_CHANNEL, I_DELAY, I_CONTROL = range(3)  # of a send or recv
I_SERVER, I_TICKS = range(2)  # of a memory node
I_COLUMNS = 12
# Columns of a plan, a phase of a plan, a communicator. Where the chunks of a plan go several ways, its phases stand
# way by way. In ROUTES stands how many chunks until they repeat, then the way of each (if in turn, from where the
# collective before stopped); PL_ROUTES -1: one way. PL_GREEDY: the ways follow from the work of the dimensions, which
# may be left over from another plan: then AFTER has, in row plan and column other plan, what PL_ROUTES is, -1: unknown.
PL_PHASES, PL_FIRST, PL_LINES, PL_ROUTES, PL_IN_TURN, PL_GREEDY = range(6)
PL_COLUMNS = 6
PH_LEVEL, PH_FAMILY, PH_COUNT, PH_INDEX, PH_TREE, PH_TREE_COUNT, PH_TREE_INDEX = range(7)
PH_COST0, PH_COST1, PH_RING, PH_LINE, PH_KIND, PH_BYTES = range(7, 13)
PH_COLUMNS = 13
# Kinds of phases, and orders of those that wait for a dimension (Z_ORDER)
OTHER, SCATTERS, GATHERS = range(3)
IN_TURN, ALTERNATE, SMALLEST, FEWEST_LEFT = range(4)
ALL, FIRST, LAST = range(3)
CO_INSTANCE, CO_REPS, CO_ARRIVED, CO_STRIDE, CO_ITEMS = range(5)
CO_COLUMNS = 5
# Entry of a local member in a ring: (line, machine); a line row; a channel row and its counters
LN_N, LN_MACHINES, LN_INDEX, LN_LOCAL, LN_POSITION, LN_RANK = range(6)
LN_COLUMNS = 6
CN_FIRST, CN_SENDER, CN_RECEIVER = range(3)
CN_COLUMNS = 3
CS_SENT, CS_POSTED, CS_ARRIVED, CS_CLEARED = range(4)
CS_COLUMNS = 4
# What completed last on a rank: tick, when it was registered; at this tick, whether a message completed, whether a
# node was skipped, and for each slot but NONE whether a node became free for it and whether one took it
D_TICK, D_REGISTERED, D_PAIR, D_SKIPPED, D_FRESH, D_ISSUED = 0, 1, 2, 3, 4, 7
D_COLUMNS = 10
# Further event codes
EV_NODE, EV_PHASE, EV_SEND, EV_RECV, EV_SERVE, EV_FIRE, EV_BUS_SENT, EV_BUS_RECEIVED, EV_BUS_PROCESSED = (
    range(3, 12)
)
LATE = 1 << 60
# With contention a run stops here: any single duration may still be added
LAST_TICK = 1 << 62

# Ends of the shared bus of a rank (outer NPU, outer memory, inner NPU, inner memory; partners differ in
# the last bit) and the columns of an end
ENDS_PER_RANK = 4
E_STATE, E_PREVIOUS, E_LAST, E_SENT, E_WAITING, E_PROCESSING = range(6)
E_SENDS, E_SENDS_TAIL, E_RECEIVES, E_RECEIVES_TAIL, E_PROCESS, E_PROCESS_TAIL = range(6, 12)
E_COLUMNS = 12
FREE_END, SENDING, RECEIVING = range(3)
BURST = 8
# Columns of a request of the bus, and what to do when it is through
Q_NEXT, Q_TICKS, Q_INNER, Q_PROCESS_TICKS, Q_PROCESS, Q_BACK, Q_THEN, Q_REF, Q_REDUCE = range(9)
Q_COLUMNS = 9
THEN_BUNDLE, THEN_SEND, THEN_PROCESS, THEN_RETIRE = range(4)

# Events with contention. The heap has rows of a tick and its list; lists hold what = kind + KINDS * address of a row.
QUEUE_COLUMNS = 2
KINDS = 4
HOP, EVENT, BATCH, FREE_LINK = range(4)
# Rows in `mem` and the first column of each, what comes after it in its list: a message on its way; what is due on
# a rank at a tick (rank EVERY: whatever is due at the tick), first the next such row of its bucket; an event; a link
ROW_COLUMNS = 8
W_NEXT = 0
W_AT, W_TO, W_SIZE, W_COST, W_CODE, W_A, W_B = range(1, 8)
B_RANK, B_TICK, B_HEAD, B_TAIL, B_CHAIN = range(1, 6)
G_CODE, G_A, G_B = range(1, 4)
LK_BUSY, LK_HEAD, LK_TAIL = range(1, 4)
LK_COLUMNS = 4  # the first link stands at ROW_COLUMNS
EVERY = -1
# Events that only contention has: a receive finds its message; a control message arrives, or its send is posted
# later than that, in a collective or point to point
EV_LATE, EV_CLEAR, EV_GO, EV_CLEAR_PAIR, EV_GO_PAIR = range(12, 17)
# Columns of a dimension of links, and its kinds
LD_KIND, LD_SIZE, LD_STRIDE, LD_FIRST = range(4)
LD_COLUMNS = 4
LOOP, LINE, ALL_PAIRS, STAR = range(4)
