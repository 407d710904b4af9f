"""A lower bound of a run for those who ask thousands of times: `bound` without what comes before and after."""

from __future__ import annotations

import numpy as np

from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.communication import port_bandwidths
from armillary.report.lower_bound import SAFE, least_ticks

_COMPUTE = KINDS.index("compute")


def quick_bound(timeline: Timeline) -> int:
    """Return ticks that no run can beat: the kernels of the fullest stream, or what collectives move through ports.

    It is never more than ``bound(timeline).ticks``, which knows paths through the graph besides.
    """
    most, classes = 0.0, len(timeline.finish)
    times = np.zeros((classes, len(timeline.call_group)))
    for cls in range(classes):
        table, part = timeline.table(cls), slice(int(timeline.node_ptr[cls]), int(timeline.node_ptr[cls + 1]))
        ran = timeline.spans(cls)[0] >= 0
        nodes = np.flatnonzero((table.kind == _COMPUTE) & ran)
        if len(nodes):
            least = least_ticks(timeline, cls)[nodes]
            _, stream = np.unique(table.stream[nodes], return_inverse=True)
            most = max(most, float(np.bincount(stream, weights=least).max()))
        call = timeline.node_call[part]
        np.add.at(times[cls], call[(call >= 0) & ran], 1)
    ranks = np.bincount(timeline.rank_class, minlength=classes) / max(timeline.n_ranks, 1)
    tick, rates = float(timeline.info.get("tick_ns", 1)), port_bandwidths(timeline)
    for c, (dims, _) in enumerate(timeline.cuts):
        rate = np.array([sum(rates[d][way] for d in dims) for way in range(2)])
        if rate.all():
            moved = (times @ timeline.call_each[:, c], ranks @ times @ timeline.call_bytes[:, c])
            most = max(most, *(float((each / rate / tick).max(initial=0)) * SAFE for each in moved))
    return int(most * (1 - 1e-9))
