"""Whether a simulated plan fits into the memory of an NPU, which reports state first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armillary.base.units import format_bytes
from armillary.engine.common.timeline import Timeline
from armillary.report.table import Parts


class Memory(Parts):
    """What the rank that needs most takes, in bytes: as attributes, by name, and as a table.

    Attributes:
        peak_bytes: Allocated at the peak.
        reserved_bytes: What the allocator then holds.
        needed_bytes: The same with the context of the device and the buffers of NCCL: what must fit.
        capacity_bytes: Of a device; None: not known.
    """

    def __init__(
        self, peak_bytes: int, reserved_bytes: int, needed_bytes: int, capacity_bytes: int | None
    ) -> None:
        """Keep them."""
        self.peak_bytes, self.reserved_bytes = peak_bytes, reserved_bytes
        self.needed_bytes, self.capacity_bytes = needed_bytes, capacity_bytes
        super().__init__(vars(self), ("memory", "bytes"))

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None: not known."""
        return None if self.capacity_bytes is None else self.needed_bytes <= self.capacity_bytes


def memory_of_run(timeline: Timeline) -> Memory | None:
    """Return the memory of the fullest rank of a result, None if it is not known."""
    found = memory_fit(timeline)
    if found is None:
        return None
    allocated, needed = found.get("allocated_bytes"), found["needed_bytes"]
    # Traces of before say what is needed alone.
    peak = needed if allocated is None else allocated
    return Memory(peak, found.get("reserved_bytes", needed), needed, found["capacity_bytes"])


def memory_fit(timeline: Timeline) -> dict[str, Any] | None:
    """Return the memory facts of a result (see `armillary.engine.common.assumptions`), None if it has none."""
    found: dict[str, Any] | None = timeline.info.get("memory")
    return found


def does_not_fit(timeline: Timeline) -> bool:
    """Return whether the workload is known not to fit."""
    found = memory_fit(timeline)
    # None is unknown: without a capacity nothing is claimed.
    return found is not None and found["fits"] is False


def fit_text(found: Mapping[str, Any]) -> str:
    """Return "fits, 40.1 GiB of 74.5 GiB per NPU" and what that counts, for one line."""
    needed, capacity = found["needed_bytes"], found["capacity_bytes"]
    if capacity is None:
        return f"{format_bytes(needed)} needed per NPU, whose npu.memory.capacity is not given"
    fits = "fits" if found["fits"] else "DOES NOT FIT"
    text = f"{fits}, {format_bytes(needed)} of {format_bytes(capacity)} per NPU"
    # Traces of before hold no parts.
    return f"{text} (reserved and CUDA context)" if "reserved_bytes" in found else text


def fit_line(timeline: Timeline) -> str:
    """Return "Memory: fits, 40.1 GiB of 74.5 GiB per NPU", the excess if it does not fit, or "" if unknown."""
    found = memory_fit(timeline)
    if found is None:
        return ""
    needed, capacity = found["needed_bytes"], found["capacity_bytes"]
    if found["fits"] is not False:
        return f"Memory: {fit_text(found)}"
    return (
        f"DOES NOT FIT: {found['model']} needs {format_bytes(needed)} on ranks of pipeline stage "
        f"{found['pipeline_rank']} at the peak, in the {found['at']}: {format_bytes(needed - capacity)} more than "
        f"npu.memory.capacity, {format_bytes(capacity)} (`armillary generate memory` proposes changes)"
    )
