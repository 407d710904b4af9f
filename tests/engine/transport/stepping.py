"""A transport by itself, step by step."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from armillary.engine.transport import layout as lk
from armillary.engine.transport.transport import Room


def advanced(kernel: ModuleType, table: Any, net: Any, room: Room, limit: int) -> int:
    """Run up to `limit` (ps) or to an arrival, with as much room as that needs; returns the time."""
    now, net[lk.N_STATUS] = 0, lk.GROW
    while net[lk.N_STATUS] == lk.GROW:
        net[lk.N_STATUS] = lk.OK
        room.fit(net)
        now = kernel.advance(table, net, room.pool, room.queue, limit)
    return now
