"""A lower bound of a run for those who ask thousands of times: `bound` without what comes before and after."""

from __future__ import annotations

import numpy as np

from armillary.engine.timeline import KINDS, Timeline
from armillary.report.communication import port_bandwidths
from armillary.report.lower_bound import least_ticks

_COMPUTE = KINDS.index("compute")
_SAFE = 1 - 1e-9
"""Sums are floats here."""


def quick_bound(timeline: Timeline) -> int:
    """Return ticks that no run can beat: the kernels of the fullest stream, or the bytes through the fullest port.

    It is never more than ``bound(timeline).ticks``, which knows paths through the graph besides.
    """
    most = 0.0
    for cls in range(len(timeline.finish)):
        table = timeline.table(cls)
        nodes = np.flatnonzero((table.kind == _COMPUTE) & (timeline.spans(cls)[0] >= 0))
        if len(nodes):
            least = least_ticks(timeline, cls)[nodes]
            _, stream = np.unique(table.stream[nodes], return_inverse=True)
            most = max(most, float(np.bincount(stream, weights=least).max()))
    tick = float(timeline.info.get("tick_ns", 1))
    through = timeline.traffic()[:, :, 1].max(axis=0)
    for d, (out, into) in enumerate(port_bandwidths(timeline)):
        if max(out, into):
            most = max(most, float(through[d]) / (max(out, into) * tick))
    return int(most * _SAFE)
