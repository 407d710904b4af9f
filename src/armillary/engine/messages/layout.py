"""The tables of a program of profile `physical` whose messages cross a network; they extend `engine.physical.layout`.

All members of a line carry out a *shape*: a schedule of rounds, in each of which a member sends and receives messages.
A *run* is one chunk in one phase on one chunk flow. Nodes are NPUs, and switches that add up what arrives.
"""

from __future__ import annotations

from armillary.base.tables import Layout, record
from armillary.engine.physical import layout as physical

PROGRAM = Layout("program of messages", physical.PROGRAM)
PHASE_SHAPE = PROGRAM.rows("PHASE_SHAPE", "phases", "What a phase has besides `PHASES`.")
PHASE_SHAPE.column("size", "its first row of sizes")
PHASE_SHAPE.column("lines", "add a line to get its row of LINE_ROUTES")
PHASE_SHAPE.column("window", "chunks that may be in flight on a line at a time")
PHASE_SHAPE.column("latency", "of a message in a switch that adds it up", "ticks")
PS_COLUMNS = PHASE_SHAPE.width
SHAPES = PROGRAM.rows("SHAPES", "shapes", "A schedule of rounds.")
SH_MEMBERS = SHAPES.column("members", "members, with switches")
SH_ROUNDS = SHAPES.column("rounds", "rounds")
SH_FIRST = SHAPES.column("first", "the first of them")
SHAPES.column("moves", "messages")
SHAPES.column("move", "the first of them")
SH_COLUMNS = SHAPES.width
ROUNDS = PROGRAM.rows("ROUNDS", "rounds", "A round of a shape.")
RO_REPEAT = ROUNDS.column("repeat", "how often it is carried out")
RO_SENDS = ROUNDS.column("sends", "where its members begin in SENDS")
RO_RECEIVES = ROUNDS.column("receives", "and in RECEIVES")
RO_COLUMNS = ROUNDS.width
SENDS = PROGRAM.rows(
    "SENDS", "members of rounds", "What a member sends in a round; its end is where the next begins."
)
SENDS.column("first", "the first of its messages, in MOVES")
RECEIVES = PROGRAM.rows(
    "RECEIVES", "members of rounds", "What it receives; its end is where the next begins."
)
RECEIVES.column("first", "the first of its messages, in RECEIVED")
RECEIVED = PROGRAM.rows("RECEIVED", "messages of shapes", "Messages by their receivers.")
RECEIVED.column("move", "number in its shape")
MOVES = PROGRAM.rows("MOVES", "messages of shapes", "A message of a shape.")
MOVES.column("source", "member")
MOVES.column("target", "member")
MOVES.column("size", "class of its size")
MOVES.column(
    "reduce", "what the receiver does with it: RETAINED, REDUCED, ADDED_IN_SWITCH, RETAINED_IN_SWITCH"
)
MV_SOURCE, MV_TARGET, MV_SIZE, MV_REDUCE = range(4)
MV_COLUMNS = MOVES.width
RETAINED, REDUCED, ADDED_IN_SWITCH, RETAINED_IN_SWITCH = range(4)
SIZES = PROGRAM.rows("SIZES", "sizes", "A class of sizes in a phase.")
SIZES.column("bytes", "its bytes", "bytes")
SIZES.column("reduce", "how long it takes to add them up", "ticks; in a switch ps")
SIZES.column("edge", "how long they take on a link at least", "ps")
SZ_COLUMNS = SIZES.width
LINE_ROUTES = PROGRAM.rows("LINE_ROUTES", "lines of phases", "A line in a phase.")
LINE_ROUTES.column("routes", "its first message, in ROUTE_OF")
LINE_ROUTES.column("shape", "its shape")
LINE_ROUTES.column("switch", "the first switch with a limit that it needs, in SWITCHES")
LINE_ROUTES.column("switches", "how many")
LI_COLUMNS = LINE_ROUTES.width
ROUTE_OF = PROGRAM.rows("ROUTE_OF", "messages of lines", "A message of a line.")
ROUTE_OF.column("pair", "its pair of nodes")
CHANNEL_ROUTE = PROGRAM.rows("CHANNEL_ROUTE", "channels", "A channel of point-to-point messages.")
CHANNEL_ROUTE.column("pair", "its pair of nodes")
CHANNEL_ROUTE.column("size", "of a message", "bytes")
# Routes are stored stage by stage, so a route is stage * Z_ROUTES + pair.
STAGES = PROGRAM.rows("STAGES", "stages", "A span of time in which the network stays as it is.")
STAGES.column("begin", "when it begins", "ps")
SWITCHES = PROGRAM.rows("SWITCHES", "switches of lines", "Switches with a limit, line by line.")
SWITCHES.column("switch", "number in SWITCH_LIMIT")
SWITCH_LIMIT = PROGRAM.rows("SWITCH_LIMIT", "switches", "A switch with a limit.")
SWITCH_LIMIT.column("limit", "chunks that it adds up at a time")
Z_ENDPOINT = PROGRAM.scalar("how long every message takes at its end, ticks")
Z_ROUTES = PROGRAM.scalar("routes of a stage")
Z_STAGES = PROGRAM.scalar("stages")

STATE = Layout("state of messages", physical.STATE)
CHUNK_FLOW_RUNS = STATE.columns("CHUNK_FLOW", "chunk_flows", "What a chunk flow has besides `CHUNK_FLOWS`.")
CHUNK_FLOW_RUNS.column("active", "chunks in flight")
CHUNK_FLOW_RUNS.column("waits", "1: it waits for a switch")
FREE_BLOCKS = STATE.rows("FREE_BLOCKS", "block sizes", "Free blocks of working memory of 2**i words.")
FREE_BLOCKS.column("block", "address of the first, whose first word is that of the next; 0: none")
SWITCH_STATE = STATE.columns("SWITCH", "switches", "A switch with a limit.")
SWITCH_STATE.column("used", "chunks that it adds up")
WAITING = STATE.rows("WAITING", "chunk_flows", "Chunk flows that wait for a switch.")
WAITING.column("chunk_flow", "chunk_flow")
PAIR_STATE = STATE.columns("PAIR", "pairs of nodes", "A pair of nodes.")
PAIR_STATE.column("busy", "until when its switch adds up what came from it", "ps")
V_MEMORY = STATE.scalar("words of working memory in use")
V_STAGE = STATE.scalar("stage")
V_FLYING = STATE.scalar("messages in flight")
V_SENT = STATE.scalar("messages sent so far")
V_TICK = STATE.scalar("the tick")
V_STEP = STATE.scalar("what is done in it next: WAIT, COLLECT, HAPPEN, START")
V_CAME = STATE.scalar("list of the messages that have come in it: a row of the pool, 0: none")
V_CAME_LAST = STATE.scalar("the last of them")
V_WAITING = STATE.scalar("chunk flows that wait for a switch")
V_COUNT = STATE.scalar("of the chunk flows to be looked at, those of this round")
WAIT, COLLECT, HAPPEN, START = range(4)
"""Steps of a tick, in turn: run the network to the next delivery; collect all deliveries up to the end of the tick;
process them and the events that are due; start nodes and chunks."""

RUN = record("RUN", "A run, in working memory; its members (MEMBER) stand behind it.")
RUN.column("chunk_flow", "its chunk flow")
RUN.column("key", "chunk * phases + phase, as in `CHUNK_FLOWS.queue`")
RUN.column("phase", "its phase")
RUN.column("line", "its row of LINE_ROUTES")
RUN.column("left", "members that have not finished")
RUN.column("shape", "its shape")
RU_HEAD = RUN.width
MEMBER = record("MEMBER", "A member of a run.")
MEMBER.column("round", "its round")
MEMBER.column("times", "how often it is still to be carried out")
MEMBER.column("left", "messages to send and to receive before it is over")
MEMBER.column("busy", "until when it adds up what it has received", "ticks")
ME_COLUMNS = MEMBER.width
EVENTS = 2
"""Events, at most, that the arrival of a message or the start of a chunk makes."""
# Messages of a shape, and of a channel, stay below 2**27; 63 - 27 - 1 bits are left for the address or
# channel.
MOVE_BITS = 27
"""A cookie is (address of a run, number of its message) or (channel, number of the message); bit 0 tells which."""
EV_SENT, EV_RECEIVED, EV_OVER = range(5, 8)
"""More events: a message of a run was sent (run, member), or received; all members of a run have finished (run)."""
