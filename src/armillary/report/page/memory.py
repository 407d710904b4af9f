"""The block of the memory that a rank holds over a step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from armillary.base.units import format_bytes
from armillary.report.memory_tables import TITLES
from armillary.report.page.blocks import Block
from armillary.workload.memory.footprint import Footprint

POINTS = 600


def memory_block(held: Footprint, capacity: int | None) -> Block:
    """Return the bytes by category while each layer of each task runs, in order and not to scale in time."""
    total = held.total
    kept = np.arange(len(total))
    if len(total) > POINTS:
        # Of each stretch the point that holds most, so that the peak stays.
        ends = np.linspace(0, len(total), POINTS + 1).astype(np.int64)
        kept = np.array([a + total[a:b].argmax() for a, b in pairwise(ends)], np.int64)
    note = (
        f"Pipeline rank {held.stage}, layer by layer in order, not to scale in time. Allocated at the peak: "
        f"{format_bytes(held.peak)}, {held.where}; with allowances {format_bytes(held.needed)}."
    )
    return {
        "kind": "memory",
        "title": "Memory over the step",
        "note": note,
        "tasks": [held.name(int(point)) for point in kept],
        "parts": [
            {"name": TITLES[name], "values": line[kept].tolist()}
            for name, line in held.timeline.items()
            if line.any()
        ],
        "limit": capacity,
    }
