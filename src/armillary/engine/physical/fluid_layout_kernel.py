"""The layout of a physical program and of its run; see `armillary.engine.common.layout_kernel` for the scheme."""

from __future__ import annotations

# fmt: off
# Tables of the program
(
    NODES, CHILDREN, RANKS, ITEMS, PLANS, PHASES, COMMS, RING_ENTRY, LINE_ROWS, LINES, LINE_PORTS, PORTS, CHANNELS,
    CHUNKS,
) = range(14)
# Scalars: ranks, sharing policy, 1 or -1: first or last come, first served, which chunk a lane serves first
Z_RANKS, Z_POLICY, Z_SIGN, Z_WITHIN = range(14, 18)
PROGRAM_HEAD = 18
FAIR, ORDERED = range(2)
EARLIEST_PHASE, FIFO, SMALLEST = range(3)

# Tables of the state: nodes and slots; collectives; lanes; ports; channels
(
    INDEGREE, NODE_START, NODE_END, READY, READY_SIZE, BUSY, LEFT, FINISH, TOUCHED, IS_TOUCHED,
    ITEM_LEFT, ITEM_INSTANCE, ORDINALS, INSTANCE_PLAN, INSTANCE_ITEM, ARRIVED, ROW_START, ROW_END, ROW_NEXT,
    LANE_HEAD, LANE_QUEUE, LANE_REMAINING, LANE_RATE, LANE_SINCE, LANE_VERSION, LANE_ENTRY, LANE_KEY, LANE_DIRTY, DIRTY,
    LANE_RESET, LANE_ITEM, LANE_LINE, PORT_FIRST, PORT_COUNT, PORT_DIRTY, DIRTY_PORTS, LINE_FREE,
    SENT, STARTED, POSTED, CAME, SEND_NODE, SEND_KEY, RECV_NODE, SERVER_FREE, STALE,
    ROW_PLACE, LANE_LOAD, CHOSEN, ASKED, ASKING, LANE_CHUNKS, TRAIN_START, TRAIN_RATE, PORT_KEY, PORT_FIRST_COUNT,
    LANE_TAIL,
) = range(57)
# Scalars of the state: heap size, status and its operands, events, touched ranks, dirty lanes, dirty ports,
# entries in use, lanes whose rate may have changed, events made so far, chunks whose next level is to be chosen,
# members that wait for that; the tick, whether its second half has begun, dirty lanes looked at in it. With status
# GROW the operands are the events, and integers of entries, for which there must be room beyond those in use
(
    V_HEAP, V_STATUS, V_A, V_B, V_EVENTS, V_TOUCHED, V_DIRTY, V_PORTS, V_ENTRIES, V_STALE, V_SEQUENCE,
    V_ASKED, V_ASKING, V_NOW, V_SETTLING, V_LOOKED,
) = range(57, 73)
STATE_HEAD = 73
# fmt: on

OK, GROW, MISMATCH = range(3)
# Node kinds
FIXED, COLLECTIVE, SEND, RECV, MEMORY, SKIP = range(6)
TRANSFER = 9  # as in `armillary.engine.common.layout_kernel`
# Columns of a node row, and of a rank row: R_SLOT is the number of its first slot among those of all ranks
N_KIND, N_SLOT, N_TICKS, N_ITEM, N_INDEGREE, N_CHILD, N_CHILDREN = range(7)
N_COLUMNS = 7
R_NODES, R_COUNT, R_STATE, R_ITEMS, R_SLOTS, R_SLOT, R_DELAY = range(7)
R_COLUMNS = 7
# READY_SIZE has two numbers for every slot: free nodes on its heap, and where that begins in READY
# Columns of an item: a collective; a send, a receive or a transfer of hierarchical memory; an access of another
I_PLAN, I_COMM, I_LOCAL, I_CHUNKS, I_ROW, I_RANK, I_NODE, I_ORDINAL, I_PRIORITY = range(9)
I_CHANNEL, I_LATENCY, I_VOLUME = range(3)  # and I_PRIORITY
I_SERVER, I_SERVICE = range(2)
I_COLUMNS = 9
# Columns of a plan: phases of a chunk, place of its chunks in CHUNKS (row of the first phase of each), lines of all
# phases, levels among which a chunk chooses its way (0: none), whether its chunks are a train, and how many of these
# are of the bigger of two sizes
PL_PHASES, PL_CHUNKS, PL_LINES, PL_CHOICES, PL_TRAIN, PL_BIGGER = range(6)
PL_COLUMNS = 6
# A phase: its ring and lines, latency and volume of one chunk, its first line and how many, ticks at full rate
PH_RING, PH_LINE, PH_LANE, PH_LATENCY, PH_VOLUME, PH_FIRST, PH_LINES, PH_TICKS = range(8)
PH_COLUMNS = 8
CO_INSTANCE, CO_REPS, CO_ARRIVED, CO_STRIDE, CO_ITEMS, CO_LANE, CO_LANES, CO_CHOSEN, CO_CHUNKS = range(9)
CO_COLUMNS = 9
# What LANE_QUEUE of a lane with a train is: its rate has never changed, or has
WHOLE, BROKEN = -1, -2
# A chunk that chooses: its way so far, levels chosen, the item that asks for the next and 1; then who waits for that
CH_WAY, CH_LEVELS, CH_ITEM = range(3)
CH_COLUMNS = 3
AS_ITEM, AS_CHUNK, AS_PHASE = range(3)
AS_COLUMNS = 3
# Columns of a line: machines, their local indices, its ports (first, count)
LN_MACHINES, LN_LOCAL, LN_PORTS, LN_PORT_COUNT = range(4)
LN_COLUMNS = 4
# A port of a line: the port, how much of it one byte of the line takes, lines of the machine that it stands for
# there; a port: its rate
LP_PORT, LP_FACTOR, LP_WEIGHT = range(3)
LP_COLUMNS = 3
# Columns of a channel: first message place, sender, receiver, its lane and its line
CN_FIRST, CN_SENDER, CN_RECEIVER, CN_LANE, CN_LINE = range(5)
CN_COLUMNS = 5
# Entry of an active lane in the list of a port (in `mem`): lane, next, previous, lanes that it stands for
EN_LANE, EN_NEXT, EN_PREVIOUS, EN_WEIGHT = range(4)
EN_COLUMNS = 4
# Event codes
EV_NODE, EV_VOLUME, EV_PHASE, EV_ARRIVED, EV_START = range(5)
NEVER = 1 << 61
