"""Changes of kernels and collectives between runs, and the composition of the critical path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.communication import transfers
from armillary.report.critical import critical_path, shares
from armillary.report.plain import nanoseconds, slowest
from armillary.report.trace_drawing import pattern

_TIMED = ("compute", "cpu", "collective", "send", "recv", "memory")


@dataclass(frozen=True)
class NodeChange:
    """Nodes of one name on the slowest rank of two sides; names that differ only in numbers are merged.

    Attributes:
        kind: One of `KINDS`, or "waiting": time that collectives waited for late ranks, which their own time excludes.
        name: Name of a kernel; operation and group of communication.
        calls: Number of calls before and after.
        ns: Total time before and after.
    """

    kind: str
    name: str
    calls: tuple[int, int]
    ns: tuple[float, float]

    @property
    def change(self) -> float:
        """Return the change of the total time in ns."""
        return self.ns[1] - self.ns[0]


def node_changes(before: Timeline, after: Timeline, limit: int = 10) -> list[NodeChange]:
    """Return the nodes whose time changed most, whether or not it was hidden behind others."""
    sides = [_totals(timeline) for timeline in (before, after)]
    keys = dict.fromkeys((*sides[0], *sides[1]))
    none = (0, 0.0)
    changes = [
        NodeChange(*key, *zip(sides[0].get(key, none), sides[1].get(key, none), strict=True))  # type: ignore[arg-type]
        for key in keys
    ]
    # Hidden or not: a kernel that got longer matters once it is no longer hidden.
    moved = [one for one in changes if one.change]
    return sorted(moved, key=lambda one: (-abs(one.change), one.kind, one.name))[:limit]


def _totals(timeline: Timeline) -> dict[tuple[str, str], tuple[int, float]]:
    """Return (calls, ns) by kind and name on the slowest rank."""
    cls = slowest(timeline)
    if cls is None:
        return {}
    table = timeline.table(cls)
    start, end = timeline.spans(cls)
    moving = transfers(timeline, cls)
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for kind in _TIMED:
        chosen = np.flatnonzero((table.kind == KINDS.index(kind)) & (start >= 0))
        named = table.label if kind == "collective" else table.name
        # `bincount` and `add.at` by name: traces have millions of nodes and few names.
        names, which = np.unique(named[chosen], return_inverse=True)
        calls = np.bincount(which, minlength=len(names))
        # Waiting for a late rank is no change of the collective: counted apart.
        for what, each in ((kind, moving), ("waiting", end - start - moving)):
            ticks = np.zeros(len(names), np.int64)
            np.add.at(ticks, which, each[chosen])
            for i in np.flatnonzero(ticks).tolist() if what == "waiting" else range(len(names)):
                # Kernels of all layers share a pattern; collectives have labels without numbers of layers.
                key = what, str(names[i]) if kind == "collective" else pattern(str(names[i]))
                old = found.get(key, (0, 0.0))
                found[key] = old[0] + int(calls[i]), old[1] + nanoseconds(timeline, int(ticks[i]))
    return found


def path_shares(timelines: Sequence[Timeline]) -> list[dict[str, float]]:
    """Return, for each timeline, the share of each kind of work of its critical path, from 0 to 1."""
    found = []
    for timeline in timelines:
        cls = slowest(timeline)
        ticks = shares(timeline, critical_path(timeline, cls)) if cls is not None else {}
        whole = sum(ticks.values())
        found.append({kind: part / whole if whole else 0.0 for kind, part in ticks.items()})
    return found
