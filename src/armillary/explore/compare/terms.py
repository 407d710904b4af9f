"""The parts of a step on several sides; they add up to the step exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import KINDS, Timeline
from armillary.explore.compare.sides import Side
from armillary.report.communication import dimensions
from armillary.report.critical import Late
from armillary.report.plain import nanoseconds, slowest
from armillary.report.time_breakdown import TITLES, Spans, Ticks, breakdown, measure, union

Interval = tuple[Ticks, Ticks]
OTHER = "other"
BETWEEN_TWO = "sends and receives"
OUTSIDE = "outside the phases of collectives"
_NAMED = ("compute", "communication", "waiting", "idle")


@dataclass(frozen=True)
class Term:
    """A part of the step of the slowest rank, in ns on each side.

    Attributes:
        name: Its title.
        ns: Time by side.
    """

    name: str
    ns: tuple[float, ...]

    @property
    def change(self) -> float:
        """From the first side to the last, in ns."""
        return self.ns[-1] - self.ns[0]


@dataclass(frozen=True)
class Terms:
    """A step in parts.

    Attributes:
        total: The step time.
        parts: Terms that add up to `total`, on each side and in their changes.
        by_group: Exposed communication by operation and group; empty if a side has no timeline.
        by_dimension: Exposed communication by network dimension.
    """

    total: Term
    parts: tuple[Term, ...]
    by_group: tuple[Term, ...] = ()
    by_dimension: tuple[Term, ...] = ()


def terms_of(sides: Sequence[Side]) -> Terms:
    """Return the parts of the steps of some sides.

    Times are those of the slowest rank. A tick of exposed communication with several groups in flight counts
    for the group with the most time over all sides; likewise for dimensions.
    """
    found = [_parts(side) for side in sides]
    # The order of the report, then whatever else a side has.
    names = list(dict.fromkeys([*TITLES.values(), *(name for one in found for name in one)]))
    parts = tuple(Term(name, tuple(one.get(name, 0) for one in found)) for name in names)
    total = Term("step time", tuple(fsum(one.values()) for one in found))
    kept = tuple(term for term in parts if any(term.ns))
    timelines = [side.timeline for side in sides if side.timeline is not None]
    if len(timelines) < len(sides):
        return Terms(total, kept)
    scopes = [_Exposed(timeline) for timeline in timelines]
    return Terms(
        total,
        kept,
        _shared(scopes, lambda scope: scope.groups, BETWEEN_TWO),
        _shared(scopes, lambda scope: scope.dimensions, OUTSIDE),
    )


def _parts(side: Side) -> Mapping[str, float]:
    """Return the parts of one side by title, in ns."""
    if side.timeline is not None:
        cls = slowest(side.timeline)
        if cls is None:
            return {}
        found = breakdown(side.timeline, cls).parts()
        return {TITLES[name]: nanoseconds(side.timeline, ticks) for name, ticks in found.items()}
    # Measures are seconds of whole nanoseconds: rounding gives these back, and the parts add up again.
    known = {name: round(side.measures.get(name, 0.0) * 1e9) for name in (*_NAMED, "step_time")}
    # Measures lack CPU and memory time; the rest keeps the parts adding up to the step.
    rest = known.pop("step_time") - sum(known.values())
    return {TITLES[name]: ns for name, ns in known.items()} | {OTHER: rest}


class _Exposed:
    """The exposed communication of the slowest rank, to be divided among the groups or dimensions in flight."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.groups: dict[str, Interval] = {}
        self.dimensions: dict[str, Interval] = {}
        none: Interval = (np.empty(0, np.int64), np.empty(0, np.int64))
        self.busy = self.reach = none
        cls = slowest(timeline)
        if cls is None:
            return
        spans = Spans(timeline, cls, Late(timeline))
        # Exposed ticks are those of `reach` without those of `busy`.
        self.busy = _joined(spans.of("compute"), spans.of("cpu"))
        self.reach = _joined(self.busy, spans.of("communication"))
        for name, nodes in _groups(timeline, cls).items():
            self.groups[name] = union(spans.active[nodes], spans.end[nodes])
        mine = timeline.phases(cls)
        for row in dimensions(timeline, cls):
            of = mine[timeline.phase_dim[mine] == row.index]
            if len(of):
                # Phases may end after the rank does: others go on.
                ends = np.minimum(timeline.phase_end[of], spans.finish)
                self.dimensions[row.name] = union(timeline.phase_start[of], ends)

    def whole(self) -> int:
        """Return the ticks of exposed communication."""
        return measure(*self.reach) - measure(*self.busy)

    def inside(self, shown: Interval) -> int:
        """Return the ticks of exposed communication in some intervals."""
        both = _joined(self.busy, shown)
        # |A and B| is |A| + |B| - |A or B|; being busy is within the reach.
        return (
            measure(*both) + measure(*self.reach) - measure(*_joined(both, self.reach)) - measure(*self.busy)
        )


def _groups(timeline: Timeline, cls: int) -> dict[str, NDArray[np.int64]]:
    table = timeline.table(cls)
    kinds = [KINDS.index(kind) for kind in ("send", "recv")]
    pairs = np.flatnonzero(np.isin(table.kind, kinds))
    found = {BETWEEN_TWO: pairs} if len(pairs) else {}
    nodes = np.flatnonzero(table.kind == KINDS.index("collective"))
    labels, which = np.unique(table.label[nodes], return_inverse=True)
    for i, label in enumerate(labels.tolist()):
        found[label or "collective"] = nodes[which == i]
    return found


def _shared(
    scopes: Sequence[_Exposed], of: Callable[[_Exposed], Mapping[str, Interval]], rest: str
) -> tuple[Term, ...]:
    """Return the exposed communication of each side by group or dimension in flight, with the remainder as `rest`."""
    names = dict.fromkeys(name for scope in scopes for name in of(scope))
    alone = {
        name: sum(scope.inside(of(scope)[name]) for scope in scopes if name in of(scope)) for name in names
    }
    # One order for all sides, or a change of order would look like a change of time.
    order = sorted(names, key=lambda name: (-alone[name], name))
    columns = []
    for scope in scopes:
        covered: Interval = (np.empty(0, np.int64), np.empty(0, np.int64))
        before, column = 0, dict.fromkeys((*order, rest), 0)
        for name in order:
            # A side without this name adds nothing to what is covered.
            covered = _joined(covered, of(scope).get(name, covered))
            now = scope.inside(covered)
            column[name] += now - before
            before = now
        column[rest] += scope.whole() - before
        columns.append({name: nanoseconds(scope.timeline, ticks) for name, ticks in column.items()})
    every = (Term(name, tuple(column[name] for column in columns)) for name in dict.fromkeys((*order, rest)))
    return tuple(term for term in every if any(term.ns))


def _joined(one: Interval, other: Interval) -> Interval:
    return union(np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1])))
