"""The end of a collective that runs alone: one port per dimension, which serves one chunk at a time.

The rules are those of `engine.physical`: a port serves one chunk at a time, its latency comes after that and leaves
the port free; all that ends at a tick comes before what starts.
"""

from __future__ import annotations

from armillary.base.jit import njit

EARLIEST_PHASE, FIFO, SMALLEST = range(3)
# Columns of a phase: its port, ticks besides, ticks at the port, bytes there
LN_PORT, LN_LATENCY, LN_TICKS, LN_VOLUME = range(4)
LN_COLUMNS = 4
WAITING, MOVING, FLYING, OVER = range(4)
NEVER = 1 << 61


@njit
def finish(phases, first, steps, policy, busy, stage, step, until):
    """Return the tick at which the last chunk is done.

    `phases`: rows of LN_COLUMNS; `first`: row of the first phase of each chunk; `steps`: phases of a chunk. Room:
    `busy` per port, and per chunk `stage`, `step`, and `until`, the tick at which it came or will be done.
    """
    chunks = len(first)
    for port in range(len(busy)):
        busy[port] = 0
    for c in range(chunks):
        stage[c] = WAITING
        step[c] = 0
        until[c] = 0
    tick = 0
    left = chunks
    while True:
        # Every free port starts the waiting chunk that its policy puts first.
        for port in range(len(busy)):
            if busy[port] == 1:
                continue
            best = -1
            best_place = NEVER
            for c in range(chunks):
                if stage[c] != WAITING:
                    continue
                row = (first[c] + step[c]) * LN_COLUMNS
                if phases[row + LN_PORT] != port:
                    continue
                # EARLIEST_PHASE: all places are equal, and the tie rule below decides by phase.
                place = 0
                if policy == FIFO:
                    place = until[c]
                elif policy == SMALLEST:
                    place = phases[row + LN_VOLUME]
                # Ties: the earlier phase, then the lower chunk, as chunks are scanned in order.
                if best < 0 or place < best_place or (place == best_place and step[c] < step[best]):
                    best = c
                    best_place = place
            if best >= 0:
                busy[port] = 1
                stage[best] = MOVING
                until[best] = tick + phases[(first[best] + step[best]) * LN_COLUMNS + LN_TICKS]
        # Jump to the next tick at which something ends.
        then = NEVER
        for c in range(chunks):
            if stage[c] == MOVING or stage[c] == FLYING:
                then = min(then, until[c])
        tick = then
        for c in range(chunks):
            if stage[c] == MOVING and until[c] == tick:
                row = (first[c] + step[c]) * LN_COLUMNS
                busy[phases[row + LN_PORT]] = 0
                # The port is free, but the chunk arrives only after the latency.
                stage[c] = FLYING
                until[c] = tick + phases[row + LN_LATENCY]
            # Not `else`: a latency of 0 ends at the same tick.
            if stage[c] == FLYING and until[c] == tick:
                step[c] += 1
                stage[c] = WAITING
                if step[c] == steps:
                    stage[c] = OVER
                    left -= 1
        if left == 0:
            return tick
