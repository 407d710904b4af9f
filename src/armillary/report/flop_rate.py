"""Achieved FLOP/s, and the share of the peak that they are.

It is the MFU unless a run computes more than its model needs, as recomputation does: then it is the HFU (hardware FLOPs
utilisation), and only the model's part of it the MFU. Traces of elsewhere do not say what their model needs.

Where kernels differ in precision, each counts against the peak of its own: the share is the time that all
operations take at their peaks, over the step time, and cannot exceed 100 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from armillary.engine.common.timeline import Timeline
from armillary.platform.kernels import PRECISIONS
from armillary.report.plain import class_sizes, nanoseconds
from armillary.trace.graph import exact_sum

SEEN = 1e-3
"""Share of the operations beyond which two shares of the peak differ as they are printed, to 0.1 %."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of a step, and their rates."""

    total: int
    """Operations of all ranks."""
    busiest: int
    """Operations of the rank that has the most."""
    rate: float
    """FLOP/s of all NPUs together: total ÷ step time."""
    rate_per_npu: float
    """FLOP/s per NPU, the mean over all NPUs of the machine."""
    by_precision: dict[str, int]
    """Operations of all ranks by the precision that their nodes name; "" for none."""
    peak: float | None
    """Peak FLOP/s of one NPU for nodes that name no precision (bf16), None if the timeline does not have it."""
    utilisation: float | None
    """Rate per NPU ÷ peak, each operation against the peak of its precision; None also if that exceeds 1."""
    above_peak: bool = False
    """Whether kernels exceed the peak of the machine: their times were recorded elsewhere, or overridden."""
    needed: int | None = None
    """Operations that the model needs; None: not known."""

    @property
    def repeats(self) -> bool:
        """Whether more is computed than the model needs, by what can be seen."""
        return self.needed is not None and self.total > (1 + SEEN) * self.needed

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation: the part of `utilisation` that the model needs; all of it if that is not known."""
        if self.utilisation is None or not self.repeats or self.needed is None:
            return self.utilisation
        return self.utilisation * self.needed / self.total


def flops(timeline: Timeline) -> Flops | None:
    """Return FLOPs and their rates, None if no node that ran has any, or if nodes take no time."""
    # Nodes that took no time would make the rate of the others look higher than it is.
    if timeline.info.get("free_nodes"):
        return None
    each, by_precision = [], dict.fromkeys((*PRECISIONS, ""), 0)
    for cls, ranks in enumerate(class_sizes(timeline).tolist()):
        table, ran = timeline.table(cls), timeline.spans(cls)[0] >= 0
        done = np.flatnonzero(ran & (table.flops != 0))
        precision, own = table.precision[done], 0
        # -1: the node names no precision.
        for which in np.flatnonzero(np.bincount(precision + 1)).tolist():
            name = (*PRECISIONS, "")[which - 1]
            operations = exact_sum(table.flops[done[precision == which - 1]])
            own += operations
            by_precision[name] += operations * ranks
        each.append(own)
    peaks = timeline.peak_of_precisions()
    # Time in ns at the peaks, exactly: the share is the same however ranks were folded. Without a peak (0): none.
    at_peak = sum(
        (Fraction(done) / Fraction(peaks[name]) for name, done in by_precision.items() if peaks[name]),
        Fraction(0),
    )
    total = sum(by_precision.values())
    seconds = float(nanoseconds(timeline, timeline.total_ticks)) / 1e9
    if not total or not seconds:
        return None
    # NPUs that run nothing count, too: they were paid for.
    npus = int(timeline.info.get("npus", timeline.n_ranks)) or 1
    peak = timeline.info.get("peak_flops_per_ns")
    rate = total / seconds
    share = float(at_peak) / 1e9 / seconds / npus if peak else None
    above = share is not None and share > 1 + 1e-9  # a sum of quotients may be off by its last bits
    return Flops(
        total=total,
        busiest=max(each),
        rate=rate,
        rate_per_npu=rate / npus,
        peak=float(peak) * 1e9 if peak else None,
        by_precision={name: done for name, done in by_precision.items() if done},
        utilisation=None if above or share is None else min(share, 1.0),
        above_peak=above,
        needed=timeline.info.get("model_flops"),
    )


def peak_text(found: Flops, peak: str = "the peak") -> str:
    """Return "40.1 % of the peak (MFU)", or where more is computed than needed both shares; "" if not known."""
    if found.utilisation is None or found.mfu is None:
        return ""
    text = f"{100 * found.utilisation:.1f} % of {peak}"
    if not found.repeats:
        return f"{text} (MFU)"
    return f"{text} (HFU), {100 * found.mfu:.1f} % without what is computed again (MFU)"
