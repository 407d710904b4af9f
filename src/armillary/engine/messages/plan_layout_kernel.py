"""The state and the phases that `plan_kernel` reads."""

from __future__ import annotations

from armillary.collective.synthesis.event_kernel import STATE

# State, after that of the heap: the tick in ps, whether what arrives in it is still collected, when the last message
# was used, how many were, NPUs to look at, ps of a reduction, ps between arrival and use, chunks
S_TICK, S_COLLECT, S_LAST, S_RECEIVED, S_DIRTY, S_REDUCE, S_DELAY, S_CHUNKS = range(STATE, STATE + 8)
PLAN_STATE = STATE + 8
# A phase: lanes' first places, place of the next message of each, order of messages, wire and chunk of each,
# what (NPU, chunk) still needs
A_FIRST, A_NEXT, A_ORDER, A_WIRE, A_CHUNK, A_NEED = range(6)
