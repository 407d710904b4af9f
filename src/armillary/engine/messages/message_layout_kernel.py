"""The layout of a program of profile `physical` whose messages cross a network; it extends `fluid_layout_kernel`."""

from __future__ import annotations

from armillary.engine.physical.fluid_layout_kernel import *
from armillary.engine.physical.fluid_layout_kernel import PROGRAM_HEAD as _FLUID_HEAD
from armillary.engine.physical.fluid_layout_kernel import STATE_HEAD as _FLUID_STATE

# fmt: off
# More tables of the program
(
    PHASE_SHAPE, SHAPES, ROUNDS, SENDS, RECEIVES, RECEIVED, MOVES, SIZES, LINE_ROUTES, ROUTE_OF, CHANNEL_ROUTE,
    STAGES,
) = range(_FLUID_HEAD, _FLUID_HEAD + 12)
# Scalars: most chunks of a lane under way at a time; ticks of every message at its end; routes per stage
Z_WINDOW, Z_ENDPOINT, Z_ROUTES, Z_STAGES = range(_FLUID_HEAD + 12, _FLUID_HEAD + 16)
PROGRAM_HEAD = _FLUID_HEAD + 16

# More tables of the state: chunks under way in each lane; free blocks of working memory by size
LANE_ACTIVE, FREE_BLOCKS = range(_FLUID_STATE, _FLUID_STATE + 2)
# Scalars: working memory in use, stage, messages under way, sent in all, the tick, what is done in it next, and
# the list of messages that have come in it
(
    V_MEMORY, V_STAGE, V_FLYING, V_SENT, V_TICK, V_STEP, V_CAME, V_CAME_LAST,
) = range(_FLUID_STATE + 2, _FLUID_STATE + 10)
STATE_HEAD = _FLUID_STATE + 10
# fmt: on

WAIT, COLLECT, START = range(3)
# Of a phase: its shape, its first row of sizes, where the routes of its lines are, chunks under way at a time
PS_SHAPE, PS_SIZE, PS_LINES, PS_WINDOW = range(4)
PS_COLUMNS = 4
# A shape: members, rounds (rows), first of them, messages, first of them
SH_MEMBERS, SH_ROUNDS, SH_FIRST, SH_MOVES, SH_MOVE = range(5)
SH_COLUMNS = 5
# A round: times it is repeated, where the offsets of its members begin in SENDS and in RECEIVES
RO_REPEAT, RO_SENDS, RO_RECEIVES = range(3)
RO_COLUMNS = 3
# A message of a shape: members, class of its size, whether the receiver reduces it
MV_SOURCE, MV_TARGET, MV_SIZE, MV_REDUCE = range(4)
MV_COLUMNS = 4
# A size: bytes and ticks to reduce them
SZ_BYTES, SZ_REDUCE = range(2)
SZ_COLUMNS = 2
# A run of a shape in working memory: lane, chunk and phase, its phase row, its line's routes, members that are
# not through, shape; then per member: round (row in the shape), times it is still to be repeated, messages left,
# tick until which it reduces
RU_LANE, RU_KEY, RU_PHASE, RU_ROUTES, RU_LEFT, RU_SHAPE = range(6)
RU_HEAD = 6
ME_ROUND, ME_TIMES, ME_LEFT, ME_BUSY = range(4)
ME_COLUMNS = 4
MOVE_BITS = 27
"""A cookie is (address of a run, number of its message) or (channel, its number); its last bit says which."""
EV_SENT, EV_RECEIVED, EV_OVER = range(5, 8)
