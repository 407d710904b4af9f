"""The fewest ticks each node can take on an otherwise idle machine: what a lower bound may count on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.engine.items import View
from armillary.engine.physical import fluid_layout_kernel as lk

Ints = NDArray[np.int64]


def least_ticks(tables: dict[str, Ints], views: list[View], plans: Ints | None = None) -> Ints:
    """Return the least ticks of every node, in graph order, concatenated by class.

    A computation takes its own time. A collective takes at least one chunk through all its phases, and
    all its chunks through any one dimension; a message its latency and its bytes. A receive counts nothing.

    Args:
        tables: Of a program.
        views: Of its classes.
        plans: (plans, 2) ticks of one chunk through all phases, and of each chunk in the fullest dimension; None: as
            volumes and latencies of the phases say, one after the other.
    """
    if plans is None:
        plans = np.array([_plan(tables, row) for row in _rows(tables, "PLANS", lk.PL_COLUMNS)], np.int64)
    channels = np.array(
        [_rate(tables, int(row[lk.CN_LINE])) for row in _rows(tables, "CHANNELS", lk.CN_COLUMNS)]
    )
    items = tables["ITEMS"].reshape(-1, lk.I_COLUMNS)
    parts, at = [], 0
    for view in views:
        nodes = view.nodes
        least = np.where(nodes.kind == lk.FIXED, nodes.ticks, 0)
        kind = nodes.kind[nodes.items]
        own = items[at : at + len(kind)]
        at += len(kind)
        for code in (lk.COLLECTIVE, lk.SEND, lk.TRANSFER, lk.MEMORY):
            which = kind == code
            if not which.any():
                continue
            if code == lk.COLLECTIVE:
                value = _chunks(plans[own[which, lk.I_PLAN]], own[which, lk.I_CHUNKS])
            elif code in (lk.SEND, lk.TRANSFER):
                value = (
                    own[which, lk.I_LATENCY] + own[which, lk.I_VOLUME] // channels[own[which, lk.I_CHANNEL]]
                )
            else:
                value = own[which, lk.I_SERVICE]
            least[nodes.items[which]] = value
        ordered = np.empty_like(least)
        ordered[nodes.order] = least
        parts.append(ordered)
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _rows(tables: dict[str, Ints], name: str, columns: int) -> Ints:
    return tables[name].reshape(-1, columns)


def _rate(tables: dict[str, Ints], line: int) -> int:
    """Return the rate of a line that has its ports for itself, in units per tick."""
    row = _rows(tables, "LINE_ROWS", lk.LN_COLUMNS)[line]
    used = _rows(tables, "LINE_PORTS", lk.LP_COLUMNS)[
        row[lk.LN_PORTS] : row[lk.LN_PORTS] + row[lk.LN_PORT_COUNT]
    ]
    return int((tables["PORTS"][used[:, lk.LP_PORT]] // used[:, lk.LP_FACTOR]).min())


def _plan(tables: dict[str, Ints], plan: Ints) -> tuple[int, int]:
    """Return the ticks of one chunk through all phases, and of each chunk in the fullest dimension."""
    phases = _rows(tables, "PHASES", lk.PH_COLUMNS)[
        plan[lk.PL_FIRST] : plan[lk.PL_FIRST] + plan[lk.PL_PHASES]
    ]
    entries = tables["RING_ENTRY"].reshape(-1, 2)
    through: dict[int, int] = {}
    once = 0
    for phase in phases:
        line = int(entries[phase[lk.PH_RING], 0])
        rate = _rate(tables, line)
        ticks = int(phase[lk.PH_VOLUME2]) // rate
        once += int(phase[lk.PH_LATENCY2]) + ticks
        lane = int(phase[lk.PH_LANE]) + line  # both phases of an all-reduce in a dimension are on one lane
        through[lane] = through.get(lane, 0) + ticks
    return once, max(through.values(), default=0)


def _chunks(plan: Ints, chunks: Ints) -> Ints:
    result: Ints = np.maximum(plan[:, 0], plan[:, 1] * chunks)
    return result
