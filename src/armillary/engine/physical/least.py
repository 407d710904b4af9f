"""The fewest ticks each node can take on an otherwise idle machine: what a lower bound may count on."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.items import View
from armillary.engine.physical import layout as lk

Ints = NDArray[np.int64]


def least_ticks(
    tables: dict[str, Ints], views: list[View], plans: Ints | None = None, sends: Sequence[Ints] | None = None
) -> Ints:
    """Return the least ticks of every node, in graph order, concatenated by class.

    A computation takes its own time, a receive counts nothing.

    Args:
        tables: Of a program.
        views: Of its classes.
        plans: Least ticks of each plan; None: one chunk through all phases of its algorithm, one after the other, and
            all its chunks through any one dimension.
        sends: Least ticks of the items of each class that send; None: latency and bytes as the program has them.
    """
    if plans is None:
        plans = plan_ticks(tables)
    channels = np.array(
        [_rate(tables, int(row[lk.CN_LINE])) for row in _rows(tables, "CHANNELS", lk.CN_COLUMNS)]
    )
    items = tables["ITEMS"].reshape(-1, lk.I_COLUMNS)
    found, at = [], 0
    for cls, view in enumerate(views):
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
                value = plans[own[which, lk.I_PLAN]]
            elif code == lk.SEND and sends is not None:
                value = sends[cls][which]
            elif code in (lk.SEND, lk.TRANSFER):
                # Floor division: a lower bound may be too low, never too high.
                value = (
                    own[which, lk.I_LATENCY] + own[which, lk.I_VOLUME] // channels[own[which, lk.I_CHANNEL]]
                )
            else:
                value = own[which, lk.I_SERVICE]
            least[nodes.items[which]] = value
        ordered = np.empty_like(least)
        ordered[nodes.order] = least
        found.append(ordered)
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def plan_ticks(tables: dict[str, Ints]) -> Ints:
    """Return the least ticks of each plan by its own algorithm."""
    rows = _rows(tables, "PLANS", lk.PL_COLUMNS)
    parts = np.split(tables["CHUNKS"], rows[1:, lk.PL_CHUNKS])
    return np.array([_plan(tables, *each) for each in zip(rows, parts, strict=False)], np.int64)


def _rows(tables: dict[str, Ints], name: str, columns: int) -> Ints:
    return tables[name].reshape(-1, columns)


def _rate(tables: dict[str, Ints], line: int) -> int:
    """Return the rate of a line that has its ports for itself, in units per tick."""
    row = _rows(tables, "LINE_ROWS", lk.LN_COLUMNS)[line]
    used = _rows(tables, "LINE_PORTS", lk.LP_COLUMNS)[
        row[lk.LN_PORTS] : row[lk.LN_PORTS] + row[lk.LN_PORT_COUNT]
    ]
    return int((tables["PORTS"][used[:, lk.LP_PORT]] // used[:, lk.LP_FACTOR]).min())


def _plan(tables: dict[str, Ints], plan: Ints, chunks: Ints) -> int:
    """Return the least ticks of a plan, whose chunks begin at these rows.

    That is one chunk through all its phases, or all chunks through any one dimension, whichever is more. Where routes
    are chosen while running, the cheapest route counts.
    """
    width, choices = int(plan[lk.PL_PHASES]), int(plan[lk.PL_CHOICES])
    table, entries = _rows(tables, "PHASES", lk.PH_COLUMNS), tables["RING_ENTRY"].reshape(-1, 2)
    once, through = 0, dict[int, int]()
    firsts, times = np.unique(chunks, return_counts=True)
    for first, count in zip(firsts.tolist(), times.tolist(), strict=True):
        routes = []
        # factorial(0) is 1: without choices there is one route.
        for route in range(factorial(choices)):
            phases = table[first + route * width : first + (route + 1) * width]
            lines = entries[phases[:, lk.PH_RING], 0]
            # both phases of an all-reduce in a dimension are on one chunk flow
            chunk_flows = (phases[:, lk.PH_CHUNK_FLOW] + lines).tolist()
            ticks = [
                volume // _rate(tables, line)
                for volume, line in zip(phases[:, lk.PH_VOLUME].tolist(), lines.tolist(), strict=True)
            ]
            moved = dict.fromkeys(chunk_flows, 0)
            for chunk_flow, each in zip(chunk_flows, ticks, strict=True):
                moved[chunk_flow] += each
            routes.append((int(phases[:, lk.PH_LATENCY].sum()) + sum(ticks), moved))
        # Any chunk may be the slowest, on the best of its routes.
        once = max(once, min(total for total, _ in routes))
        for chunk_flow in routes[0][1]:
            # Chunks may divide over routes, so each counts with what it must leave on this chunk flow at
            # least.
            least = min(moved[chunk_flow] for _, moved in routes)
            through[chunk_flow] = through.get(chunk_flow, 0) + count * least
    return max([once, *through.values()])
