"""Where the time of a rank goes: parts that add up to its finish tick, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.engine.timeline import KINDS, Timeline
from armillary.report.intervals import measure, union

PARTS = ("compute", "cpu", "communication", "memory", "idle")
"""The parts of a breakdown, by priority: a tick belongs to the first that was busy in it."""

TITLES = {
    "compute": "compute",
    "cpu": "CPU only",
    "communication": "exposed communication",
    "memory": "exposed memory",
    "idle": "idle",
}
"""What each part is called where people read it."""

KINDS_OF = {
    "compute": ("compute",),
    "cpu": ("cpu",),
    "communication": ("collective", "send", "recv"),
    "memory": ("memory",),
}
"""The node kinds of each part but idle."""


@dataclass(frozen=True)
class Breakdown:
    """Ticks of one class; ``compute + cpu + communication + memory + idle == finish``."""

    compute: int
    """A compute node was running."""
    cpu: int
    """A CPU node was running and no compute node."""
    communication: int
    """Exposed communication: a collective, send or receive was open, and neither compute nor CPU ran.

    A receive is open from the tick it was posted, a collective from the tick this rank entered it, so
    waiting for another rank inside of them counts here.
    """
    memory: int
    """A remote-memory node was running and none of the above."""
    idle: int
    """Nothing was running."""
    communication_hidden: int
    """Communication under compute or CPU work; part of those, so not part of the sum."""
    finish: int

    def parts(self) -> dict[str, int]:
        """Return the parts that add up to `finish`, in the order of `PARTS`."""
        return {name: getattr(self, name) for name in PARTS}


def breakdown(timeline: Timeline, cls: int) -> Breakdown:
    """Return the breakdown of class `cls`, in ticks.

    With U(k) the number of ticks in which a node of one of the first k parts ran, part k is U(k) - U(k-1),
    and idle is finish - U(4); hidden communication is all communication less its exposed part.
    """
    start, end = timeline.spans(cls)
    finish = int(timeline.finish[cls])
    kind = timeline.table(cls).kind
    # A node that never ran has -1 for both ticks: an empty interval.
    end = np.minimum(end, finish)
    covered, parts, hidden = 0, {}, 0
    union_start = union_end = np.empty(0, np.int64)
    for part, kinds in KINDS_OF.items():
        chosen = np.isin(kind, [KINDS.index(name) for name in kinds])
        own_start, own_end = union(start[chosen], end[chosen])
        union_start, union_end = union(
            np.concatenate((union_start, own_start)), np.concatenate((union_end, own_end))
        )
        total = measure(union_start, union_end)
        parts[part] = total - covered
        covered = total
        if part == "communication":
            hidden = measure(own_start, own_end) - parts[part]
    return Breakdown(**parts, idle=finish - covered, communication_hidden=hidden, finish=finish)


def astra_exposed(timeline: Timeline) -> NDArray[np.int64]:
    """Return what ASTRA-sim calls exposed communication, in ticks per class.

    That is finish minus the sum of the durations of the compute nodes: it counts idle time, CPU and
    memory nodes too, and would go below 0 if compute nodes overlapped.
    """
    exposed = timeline.finish.astype(np.int64)
    for cls in range(len(exposed)):
        start, end = timeline.spans(cls)
        compute = timeline.table(cls).kind == KINDS.index("compute")
        exposed[cls] -= int((end - start)[compute].sum())
    return exposed
