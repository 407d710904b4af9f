"""Breakdown of the time of a rank into parts that add up to its finish tick exactly."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.critical import Late

Ticks = NDArray[np.int64]


def union(start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
    """Return the union of the intervals as disjoint ones in order; empty intervals vanish.

    Intervals that touch are joined. O(n log n).
    """
    real = end > start
    start, end = start[real], end[real]
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start = start[order]
    # The latest end so far; a new interval begins where the next start is beyond it.
    reach = np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > reach[:-1]))
    return start[first], reach[np.concatenate((first[1:], [True]))]


def measure(start: Ticks, end: Ticks) -> int:
    """Return the length in ticks of disjoint intervals."""
    return int((end - start).sum())


def lanes(start: Ticks, end: Ticks) -> NDArray[np.int64]:
    """Give each interval the lowest lane that is free at its start, so that none overlap in a lane.

    A lane is free again at the end of its interval. Uses as few lanes as the deepest overlap.
    """
    lane = np.zeros(len(start), dtype=np.int64)
    # Greedy by start: a new lane only if all are busy, so no assignment needs fewer.
    left = np.lexsort((end, start))
    for number in itertools.count():
        if not len(left):
            return lane
        begin = start[left]
        # Half-open intervals: one that ends where another begins frees its lane. No interval follows itself.
        following = np.maximum(np.searchsorted(begin, end[left]), np.arange(1, len(left) + 1))
        mine = _chain(following)
        lane[left[mine]] = number
        left = left[~mine]
        if number == _LANES:
            lane[left] = number + 1 + _queued(begin[~mine], end[left])
            return lane
    raise AssertionError


_LANES = 16
"""Lanes filled one after the other; more are found interval by interval, as each costs a pass over all that is left."""


def _chain(following: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which intervals a lane takes: the first, and after each one the one that follows it."""
    taken = np.zeros(len(following), np.bool_)
    steps, at, found = following.tolist(), 0, []
    while at < len(steps):
        found.append(at)
        at = steps[at]
    taken[found] = True
    return taken


def _queued(start: Ticks, end: Ticks) -> NDArray[np.int64]:
    """Return the lanes of intervals in order, from a heap of the free ones."""
    lane = np.zeros(len(start), dtype=np.int64)
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    opened = 0
    for i, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            chosen = heapq.heappop(free)
        else:
            chosen, opened = opened, opened + 1
        lane[i] = chosen
        heapq.heappush(busy, (stop, chosen))
    return lane


def depth(start: Ticks, end: Ticks) -> tuple[Ticks, Ticks]:
    """Return the ticks at which the number of open intervals changes, and that number from there on."""
    ticks = np.concatenate((start, end))
    steps = np.concatenate((np.ones(len(start), np.int64), np.full(len(end), -1, np.int64)))
    at, group = np.unique(ticks, return_inverse=True)
    change = np.bincount(group, weights=steps, minlength=len(at)).astype(np.int64)
    # Ticks at which as many intervals end as begin change nothing.
    changed = change != 0
    return at[changed], np.cumsum(change[changed])


Interval = tuple[Ticks, Ticks]
_NOTHING: Interval = (np.empty(0, np.int64), np.empty(0, np.int64))

PARTS = ("compute", "cpu", "communication", "waiting", "memory", "idle")
"""The parts of a breakdown, by priority: a tick belongs to the first that was busy in it."""

TITLES = {
    "compute": "compute",
    "cpu": "CPU only",
    "communication": "exposed communication",
    "waiting": "waiting for others",
    "memory": "exposed memory",
    "idle": "idle",
}
"""Title of each part in reports."""

KINDS_OF = {
    "compute": ("compute",),
    "cpu": ("cpu",),
    "communication": ("collective", "send", "recv"),
    "memory": ("memory",),
}
"""The node kinds of each part except idle and waiting; nodes of communication include their waiting."""


@dataclass(frozen=True)
class Breakdown:
    """Ticks of one class; ``compute + cpu + communication + waiting + memory + idle == finish``."""

    compute: int
    """A compute node was running."""
    cpu: int
    """A CPU node was running and no compute node."""
    communication: int
    """Exposed communication: a collective, send or receive was open, and neither compute nor CPU ran.

    A receive is open from the tick it was posted, a collective from the tick this rank entered it.
    Waiting for another rank inside them counts here if it cannot be separated.
    """
    waiting: int
    """As exposed communication, but every open one waited for another rank to begin it (`Late.waits`)."""
    memory: int
    """A remote-memory node was running and none of the above."""
    idle: int
    """Nothing was running."""
    communication_hidden: int
    """Communication under compute or CPU work; part of those, so not part of the sum."""
    communication_beside_cpu: int
    """Communication while a CPU node ran and no compute node; part of `cpu`, so not part of the sum."""
    finish: int

    def parts(self) -> dict[str, int]:
        """Return the parts that add up to `finish`, in the order of `PARTS`."""
        return {name: getattr(self, name) for name in PARTS}


def breakdown(timeline: Timeline, cls: int, late: Late | None = None) -> Breakdown:
    """Return the breakdown of class `cls`, in ticks.

    With U(k) the number of ticks in which a node of one of the first k parts ran, part k is U(k) - U(k-1),
    and idle is finish - U(5); hidden communication is all communication less its exposed part.

    Args:
        timeline: The run.
        cls: The class.
        late: Shared between calls for several classes, it saves time.
    """
    spans = Spans(timeline, cls, late or Late(timeline))
    covered, parts = _NOTHING, {}
    before = 0
    # Covering by priority: a part counts the ticks that it adds to all before it.
    for part in PARTS[:-1]:
        covered = _join(covered, spans.of(part))
        total = measure(*covered)
        parts[part], before = total - before, total
    exposed = parts["communication"] + parts["waiting"]
    # All communication, waiting included, without what was exposed.
    open_ = _join(spans.of("communication"), spans.of("waiting"))
    hidden = measure(*open_) - exposed
    # What communication adds to compute alone, without what it adds to both compute and CPU work.
    beside = measure(*_join(spans.of("compute"), open_)) - parts["compute"] - exposed
    return Breakdown(
        **parts, idle=spans.finish - before, communication_hidden=hidden, communication_beside_cpu=beside,
        finish=spans.finish,
    )  # fmt: skip


def waited_for(
    timeline: Timeline, cls: int, late: Late | None = None, limit: int = 5
) -> list[tuple[int, int]]:
    """Return (class, ticks) of the classes that `cls` waited for in `Breakdown.waiting`, the longest first.

    A tick of waiting for several classes counts for the one with the longest total.
    """
    spans = Spans(timeline, cls, late or Late(timeline))
    # Waiting comes after these parts, so their ticks are covered before it is divided.
    covered = _NOTHING
    for part in ("compute", "cpu", "communication"):
        covered = _join(covered, spans.of(part))
    start, until = spans.start[spans.waits[0]], spans.waits[1]
    who, of = np.unique(spans.waits[2], return_inverse=True)
    total = np.bincount(of, weights=until - start, minlength=len(who))
    before, found = measure(*covered), []
    # The class waited for longest takes the ticks that it shares with others.
    for which in np.argsort(-total, kind="stable").tolist():
        mine = of == which
        covered = _join(covered, (start[mine], np.minimum(until[mine], spans.finish)))
        now = measure(*covered)
        found.append((int(who[which]), now - before))
        before = now
    return [row for row in sorted(found, key=lambda row: -row[1]) if row[1]][:limit]


class Spans:
    """The intervals in which the nodes of a part ran."""

    def __init__(self, timeline: Timeline, cls: int, late: Late) -> None:
        self.finish = int(timeline.finish[cls])
        self.kind = timeline.table(cls).kind
        self.start, end = timeline.spans(cls)
        # A node that never ran has -1 for both ticks: an empty interval.
        self.end = np.minimum(end, self.finish)
        self.waits = late.waits(cls)
        self.active = self.start.copy()
        """Starts after waiting for other ranks."""
        self.active[self.waits[0]] = self.waits[1]

    def of(self, part: str) -> Interval:
        """Return the intervals of `part`; those of "waiting" include the communication that follows."""
        kinds = KINDS_OF.get(part, KINDS_OF["communication"])
        start = self.active if part == "communication" else self.start
        wanted = np.array([name in kinds for name in KINDS])
        chosen = wanted[self.kind]
        return start[chosen], self.end[chosen]


def _join(one: Interval, other: Interval) -> Interval:
    return union(np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1])))


def astra_exposed(timeline: Timeline) -> NDArray[np.int64]:
    """Return exposed communication as ASTRA-sim defines it, in ticks per class.

    That is finish minus the sum of the durations of the compute nodes: it counts idle time, CPU and
    memory nodes too, and would go below 0 if compute nodes overlapped.
    """
    exposed = timeline.finish.astype(np.int64)
    for cls in range(len(exposed)):
        start, end = timeline.spans(cls)
        compute = timeline.table(cls).kind == KINDS.index("compute")
        exposed[cls] -= int((end - start)[compute].sum())
    return exposed
