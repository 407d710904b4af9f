"""The state of a run with contention before its first event."""

from __future__ import annotations

from typing import Any

from armillary.engine.astra_sim import layout as lk


def first_rows(links: int, ranks: int) -> int:
    """Return the integers of `mem` that links and the first events take."""
    return (2 + ranks) * lk.ROW_COLUMNS + links * lk.LK_COLUMNS


def fire(state: Any, mem: Any, links: int, ranks: int) -> None:
    """Set up the rows of links, and let every rank issue its first nodes at tick 0, in rank order."""
    # Row 0 is none; then the links, the list of tick 0 and its events.
    now = lk.ROW_COLUMNS + links * lk.LK_COLUMNS
    state[lk.V_MEMBER_STATE] = first_rows(links, ranks)
    # Tick 0 of no rank in particular is in the first bucket.
    state[lk.V_NOW] = state[state[lk.STATE.places["BUCKETS"]]] = now
    first = now + lk.ROW_COLUMNS
    last = first + (ranks - 1) * lk.ROW_COLUMNS
    mem[now + lk.B_RANK] = lk.EVERY
    mem[now + lk.B_HEAD], mem[now + lk.B_TAIL] = (lk.EVENT + lk.KINDS * row for row in (first, last))
    for r in range(ranks):
        row = first + r * lk.ROW_COLUMNS
        mem[row + lk.W_NEXT] = lk.EVENT + lk.KINDS * (row + lk.ROW_COLUMNS) if r + 1 < ranks else 0
        mem[row + lk.G_CODE], mem[row + lk.G_A] = lk.EV_FIRE, r
