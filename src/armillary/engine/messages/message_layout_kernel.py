"""The layout of a program of profile `physical` whose messages cross a network; it extends `fluid_layout_kernel`."""

from __future__ import annotations

from armillary.engine.physical.fluid_layout_kernel import *
from armillary.engine.physical.fluid_layout_kernel import PROGRAM_HEAD as _FLUID_HEAD
from armillary.engine.physical.fluid_layout_kernel import STATE_HEAD as _FLUID_STATE

# fmt: off
# More tables of the program
(
    PHASE_SHAPE, SHAPES, ROUNDS, SENDS, RECEIVES, RECEIVED, MOVES, SIZES, LINE_ROUTES, ROUTE_OF, CHANNEL_ROUTE,
    STAGES, SWITCHES, SWITCH_LIMIT,
) = range(_FLUID_HEAD, _FLUID_HEAD + 14)
# Scalars: ticks of every message at its end; routes per stage
Z_ENDPOINT, Z_ROUTES, Z_STAGES = range(_FLUID_HEAD + 14, _FLUID_HEAD + 17)
PROGRAM_HEAD = _FLUID_HEAD + 17

# More tables of the state: chunks under way in each lane; free blocks of working memory by size; chunks that each
# switch with a limit works on; lanes that wait for a switch, and whether each does; ps until which what comes from a
# pair is added up at its switch
LANE_ACTIVE, FREE_BLOCKS, SWITCH_USED, WAITING, LANE_WAITS, PAIR_BUSY = range(_FLUID_STATE, _FLUID_STATE + 6)
# Scalars: working memory in use, stage, messages under way, sent in all, the tick, what is done in it next, and
# the list of messages that have come in it; lanes that wait for a switch; of the dirty lanes, those of this round
(
    V_MEMORY, V_STAGE, V_FLYING, V_SENT, V_TICK, V_STEP, V_CAME, V_CAME_LAST, V_WAITING, V_COUNT,
) = range(_FLUID_STATE + 6, _FLUID_STATE + 16)
STATE_HEAD = _FLUID_STATE + 16
# fmt: on

WAIT, COLLECT, HAPPEN, START = range(4)
"""What is done in a tick, in turn: the network runs to it, then to its end; what has come and is due; what starts."""
# Of a phase: its first row of sizes, where its lines are, chunks under way at a time, ticks of a message in a switch
PS_SIZE, PS_LINES, PS_WINDOW, PS_LATENCY = range(4)
PS_COLUMNS = 4
# A line in a phase: where its routes are, its shape, and the switches with a limit that it needs: first and count
LI_ROUTES, LI_SHAPE, LI_SWITCH, LI_SWITCHES = range(4)
LI_COLUMNS = 4
# A shape: members (with switches), rounds (rows), first of them, messages, first of them
SH_MEMBERS, SH_ROUNDS, SH_FIRST, SH_MOVES, SH_MOVE = range(5)
SH_COLUMNS = 5
# A round: times it is repeated, where the offsets of its members begin in SENDS and in RECEIVES
RO_REPEAT, RO_SENDS, RO_RECEIVES = range(3)
RO_COLUMNS = 3
# A message of a shape: members, class of its size, what the receiver does with it
MV_SOURCE, MV_TARGET, MV_SIZE, MV_REDUCE = range(4)
MV_COLUMNS = 4
KEPT, REDUCED, ADDED_IN_SWITCH, KEPT_IN_SWITCH = range(4)
# A size: bytes, ticks (in a switch: ps) to reduce them, and ps on the wire at least
SZ_BYTES, SZ_REDUCE, SZ_WIRE = range(3)
SZ_COLUMNS = 3
# A run of a shape in working memory: lane, chunk and phase, its phase row, the row of its line, members that are
# not through, shape; then per member: round (row in the shape), times it is still to be repeated, messages left,
# tick until which it reduces
RU_LANE, RU_KEY, RU_PHASE, RU_LINE, RU_LEFT, RU_SHAPE = range(6)
RU_HEAD = 6
ME_ROUND, ME_TIMES, ME_LEFT, ME_BUSY = range(4)
ME_COLUMNS = 4
EVENTS = 2
"""Events that a message that has come, or a chunk that begins, makes at most."""
MOVE_BITS = 27
"""A cookie is (address of a run, number of its message) or (channel, its number); its last bit says which."""
EV_SENT, EV_RECEIVED, EV_OVER = range(5, 8)
