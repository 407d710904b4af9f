"""Names and sizes of classes of ranks, and the time that their ticks stand for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import Timeline


def nanoseconds(timeline: Timeline, ticks: int) -> int | float:
    """Return `ticks` in ns; an integer if a tick is a whole number of ns."""
    tick_ns = timeline.info.get("tick_ns", 1)
    # Integers stay exact at any size; floats round above 2**53.
    return ticks * int(tick_ns) if tick_ns == int(tick_ns) else ticks * float(tick_ns)


def class_sizes(timeline: Timeline) -> NDArray[np.int64]:
    """Return the number of ranks of each class."""
    return np.bincount(timeline.rank_class, minlength=len(timeline.finish)).astype(np.int64)


def slowest(timeline: Timeline) -> int | None:
    """Return the class that finishes last (the lowest of equals), or None where there is no class."""
    return int(np.argmax(timeline.finish)) if len(timeline.finish) else None


def class_name(timeline: Timeline, cls: int, size: int) -> str:
    """Return "rank 3 (+127 alike)" for a class of 128 ranks whose representative is rank 3."""
    alike = f" (+{size - 1:,} alike)" if size > 1 else ""
    return f"rank {int(timeline.representative[cls]):,}{alike}"
