"""The state and the phases that `plan_kernel` reads."""

from __future__ import annotations

from armillary.base.tables import Layout
from armillary.collective.synthesis.event_kernel import STATE as HEAP_STATE

STATE = Layout("state of a schedule")
STATE.head = HEAP_STATE
"""It begins with the state of the heap of events."""
S_TICK = STATE.scalar("the tick, ps")
S_COLLECT = STATE.scalar("1: what arrives in it is still collected")
S_LAST = STATE.scalar("when the last message was used, ps")
S_RECEIVED = STATE.scalar("how many were")
S_DIRTY = STATE.scalar("NPUs to be looked at")
S_REDUCE = STATE.scalar("how long a reduction takes, ps")
S_DELAY = STATE.scalar("from the arrival of a message to its use, ps")
S_CHUNKS = STATE.scalar("chunks")
PLAN_STATE = STATE.head
A_FIRST, A_NEXT, A_ORDER, A_EDGE, A_CHUNK, A_NEED = range(6)
"""Arrays of a phase. By port: its first place in the order, and the place of its next message. The order of messages by
port; edge and chunk of each message; how many messages each (NPU, chunk) still needs before it may be sent."""
