"""Whether what a workload holds fits into the memory of an NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.platform.model import Platform
    from armillary.trace import Trace

MEMORY = "memory"
"""What a trace says of itself (`Trace.about`): what its fullest rank needs; recorded and old traces do not say."""


def memory_of(trace: Trace, platform: Platform) -> dict[str, Any]:
    """Return what a timeline says of memory: need, capacity (None: not given) and whether it fits (None: not known)."""
    needs = trace.about.get(MEMORY)
    if needs is None:
        return {}
    capacity = platform.physical.memory.capacity
    fits = needs["needed_bytes"] <= capacity if capacity else None
    return {MEMORY: {**needs, "capacity_bytes": capacity or None, "fits": fits}}
