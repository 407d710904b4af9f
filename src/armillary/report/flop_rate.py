"""Achieved FLOP/s, and the share of the peak that they are (MFU)."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.engine.timeline import Timeline
from armillary.report.ranks import class_sizes, nanoseconds


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of a step, and the rate at which they were done."""

    total: int
    """Operations of all ranks."""
    busiest: int
    """Operations of the rank that has the most."""
    rate: float
    """FLOP/s of all NPUs together: total ÷ step time."""
    rate_per_npu: float
    """FLOP/s per NPU, the mean over all NPUs of the machine."""
    peak: float | None
    """FLOP/s that one NPU can do, None where the timeline does not say."""
    utilisation: float | None
    """Model FLOPs utilisation (MFU): rate per NPU ÷ peak."""


def flops(timeline: Timeline) -> Flops | None:
    """Return what is known of FLOPs, None where no node that ran has any or no time passed."""
    each = []
    for cls in range(len(timeline.finish)):
        table, (start, _) = timeline.table(cls), timeline.spans(cls)
        done = table.flops[start >= 0]
        # Sums of halves, since a step may have more than 2**63.
        each.append((int((done >> 32).sum()) << 32) + int((done & 0xFFFFFFFF).sum()))
    total = sum(count * size for count, size in zip(each, class_sizes(timeline).tolist(), strict=True))
    seconds = float(nanoseconds(timeline, timeline.total_ticks)) / 1e9
    if not total or not seconds:
        return None
    npus = int(timeline.info.get("npus", timeline.n_ranks)) or 1
    peak = timeline.info.get("peak_flops_per_ns")
    rate = total / seconds
    return Flops(
        total=total,
        busiest=max(each),
        rate=rate,
        rate_per_npu=rate / npus,
        peak=float(peak) * 1e9 if peak else None,
        utilisation=rate / npus / (float(peak) * 1e9) if peak else None,
    )
