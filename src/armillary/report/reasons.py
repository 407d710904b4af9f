"""The largest reasons for the time of a run, in words, with what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base.text import on_one_line
from armillary.base.units import format_bytes, format_flops, format_time
from armillary.engine.common.timeline import KINDS, Timeline
from armillary.report.critical import Late
from armillary.report.lower_bound import bound, dimension_name
from armillary.report.plain import class_name, class_sizes, nanoseconds, slowest
from armillary.report.time_breakdown import (
    KINDS_OF,
    Breakdown,
    Interval,
    Spans,
    breakdown,
    measure,
    union,
    waited_for,
)

_MOST = 5
_GROUPS = 8
_FREE_WORDS = {"compute": "Faster compute", "network": "A faster network", "memory": "Faster remote memory"}
_COLLECTIVE, _SEND, _RECV = (KINDS.index(kind) for kind in ("collective", "send", "recv"))


@dataclass(frozen=True)
class Reason:
    """One reason for the time of the slowest rank."""

    kind: str
    """A part of its breakdown."""
    ticks: int
    text: str
    """What happened, with numbers and units."""
    help: str
    """What would help."""
    saves: int | None
    """Most ticks that it could save; None if unknown."""


def explain(timeline: Timeline) -> list[Reason]:
    """Return at most five reasons for the time of the slowest rank, the largest first.

    Communication is divided by the operations in flight: its ticks, those of waiting, and those of the other parts of
    the breakdown add up to the step time if there are at most five.
    """
    cls = slowest(timeline)
    if cls is None or not timeline.total_ticks:
        return []
    return _Explainer(timeline, cls).reasons()


class _Explainer:
    """Builds the reasons from one breakdown, its intervals and the bound."""

    def __init__(self, timeline: Timeline, cls: int) -> None:
        self.timeline, self.cls = timeline, cls
        self.table = timeline.table(cls)
        self.late = Late(timeline)
        self.found: Breakdown = breakdown(timeline, cls, self.late)
        self.spans = Spans(timeline, cls, self.late)
        self.bound = bound(timeline)

    def reasons(self) -> list[Reason]:
        """Return the largest reasons, the largest first."""
        # Each reason first, then what it could save: this needs a bound each, so only for the shown.
        every = [
            *self.communication(),
            self.compute(),
            self.cpu(),
            self.waiting(),
            self.memory(),
            self.idle(),
        ]
        ranked = sorted((one for one in every if one.ticks > 0), key=lambda one: -one.ticks)
        return [
            Reason(one.kind, one.ticks, one.text, *self.helped(one.help, one.saves)) for one in ranked[:_MOST]
        ]

    def compute(self) -> Reason:
        """Return the reason for compute: what ran longest, and how fast."""
        ticks = self.found.compute
        nodes = self.nodes("compute")
        text = f"Compute runs for {self.amount(ticks)}: {self.largest(nodes)}"
        done = sum(self.table.flops[nodes].tolist())
        peaks = self.timeline.peaks(self.cls)[nodes]
        if done:
            rate = done / (nanoseconds(self.timeline, ticks) / 1e9) if ticks else 0.0
            text += f"; {format_flops(rate)} while it runs"
            if ticks and peaks.all():
                at_peak = float((self.table.flops[nodes] / peaks).sum())
                text += f", {_percent(at_peak / nanoseconds(self.timeline, ticks))} of the peak"
        return Reason("compute", ticks, text + ".", "compute", None)

    def cpu(self) -> Reason:
        """Return the reason for time in which only the CPU ran."""
        ticks = self.found.cpu
        text = f"Only the CPU works for {self.amount(ticks)}: {self.largest(self.nodes('cpu'))}."
        return Reason("cpu", ticks, text, "compute", None)

    def memory(self) -> Reason:
        """Return the reason for exposed remote memory."""
        ticks, nodes = self.found.memory, self.nodes("memory")
        size = format_bytes(int(self.table.size[nodes].sum()))
        text = f"Remote memory is exposed for {self.amount(ticks)}: {_count(len(nodes), 'access')} of {size} in all."
        return Reason("memory", ticks, text, "memory", None)

    def waiting(self) -> Reason:
        """Return the reason for waiting inside communication: the ranks waited for."""
        ticks, sizes = self.found.waiting, class_sizes(self.timeline)
        whom = [
            f"{class_name(self.timeline, cls, int(sizes[cls]))} for {self.time(spent)}"
            for cls, spent in waited_for(self.timeline, self.cls, self.late, limit=3)
        ]
        text = f"It waits for others to begin for {self.amount(ticks)}: for {', '.join(whom)}."
        helps = "Work spread more evenly over the ranks"
        return Reason("waiting", ticks, text, helps, ticks)

    def idle(self) -> Reason:
        """Return the reason for time in which nothing ran."""
        ticks = self.found.idle
        text = f"Nothing runs for {self.amount(ticks)}: each next node depends on one that has not ended."
        if self.timeline.total_ticks and not len(self.table.kind):
            text = f"Nothing runs for {self.amount(ticks)}."
        return Reason("idle", ticks, text, "A shorter critical path", ticks)

    def communication(self) -> Iterator[Reason]:
        """Yield a reason for each group of communication with one label and size."""
        covered = union(*_both(self.spans.of("compute"), self.spans.of("cpu")))
        start, end = self.spans.active, self.spans.end
        for title, nodes in self.groups():
            # Longest group first: a tick in which several are open counts for the longest, so the ticks
            # of all groups add up to exposed communication.
            before, covered = covered, union(*_both(covered, (start[nodes], end[nodes])))
            ticks = measure(*covered) - measure(*before)
            text = f"Communication is exposed for {self.amount(ticks)}: {title}"
            busiest, share = self.busiest(nodes, before, covered, ticks)
            helps = "network"
            if busiest >= 0:
                name = dimension_name(self.timeline, busiest)
                text += f"; dimension {name} is busy {_percent(share)} of that time"
                helps = f"dimension {busiest}"
            yield Reason("communication", ticks, text + ".", helps, None)

    def groups(self) -> list[tuple[str, NDArray[np.int64]]]:
        """Return (words, nodes) of the communication of a kind, label and size, the longest first."""
        table, spans = self.table, self.spans
        nodes = np.flatnonzero(np.isin(table.kind, [_COLLECTIVE, _SEND, _RECV]) & (spans.start >= 0))
        if not len(nodes):
            return []
        labels, label = np.unique(table.label[nodes], return_inverse=True)
        sizes, size = np.unique(table.size[nodes], return_inverse=True)
        key = (table.kind[nodes].astype(np.int64) * len(labels) + label) * len(sizes) + size
        _, first, of = np.unique(key, return_index=True, return_inverse=True)
        time = np.bincount(of, weights=(spans.end - spans.active)[nodes])
        ranked = np.argsort(-time, kind="stable").tolist()
        found = []
        for g in ranked[:_GROUPS]:
            mine, example = nodes[of == g], nodes[first[g]]
            word = {_SEND: "send", _RECV: "receive"}.get(int(table.kind[example]), str(table.label[example]))
            operation, at, group = (word or "collective").partition("@")
            title = f"{_count(len(mine), operation)} of {format_bytes(int(table.size[example]))}"
            found.append((title + (f" in group {group}" if at else ""), mine))
        rest = np.isin(of, ranked[_GROUPS:])
        if rest.any():
            found.append((f"{_count(int(rest.sum()), 'other operation')}", nodes[rest]))
        return found

    def busiest(
        self, nodes: NDArray[np.int64], before: Interval, after: Interval, ticks: int
    ) -> tuple[int, float]:
        """Return the dimension that `nodes` use most in `after` without `before`, and its share of `ticks`."""
        line = self.timeline
        rows = line.phases(self.cls)
        rows = rows[np.isin(line.phase_node[rows], nodes) & (line.phase_dim[rows] >= 0)]
        best = (-1, 0.0)
        for d in np.unique(line.phase_dim[rows]).tolist():
            mine = rows[line.phase_dim[rows] == d]
            busy = union(line.phase_start[mine], line.phase_end[mine])
            # Ticks in which the dimension was busy among those that this group added.
            within = _overlap(busy, after) - _overlap(busy, before)
            if ticks and within / ticks > best[1]:
                best = (int(d), within / ticks)
        return best

    def helped(self, what: str, saves: int | None) -> tuple[str, int | None]:
        """Return what would help, in words with a limit, and the limit in ticks."""
        words = _FREE_WORDS.get(what, what)
        if what.startswith("dimension "):
            words = f"More bandwidth in dimension {dimension_name(self.timeline, int(what.split()[1]))}"
        # A run below its bound: a difference to a bound would mean nothing.
        if self.bound.efficiency is None:
            return f"{words} would help.", None
        if saves is not None:
            # Without this part the step still cannot beat the bound.
            most = min(saves, self.timeline.total_ticks - self.bound.ticks)
            return f"{words} would save at most {self.time(most)}.", most
        # The bound with this resource free: what the step would still take.
        without = bound(self.timeline, {what})
        if not without.ticks:
            return f"{words} would help; by how much at most cannot be said.", None
        most = max(self.timeline.total_ticks - without.ticks, 0)
        article = "" if without.parts[0].kind in ("compute", "flops") else "the "
        then = f"then {article}{without.what} is the limit"
        return f"{words} would save at most {self.time(most)}; {then}.", most

    def nodes(self, part: str) -> NDArray[np.int64]:
        """Return the nodes of a part that ran."""
        kinds = [KINDS.index(kind) for kind in KINDS_OF[part]]
        return np.flatnonzero(np.isin(self.table.kind, kinds) & (self.spans.start >= 0))

    def largest(self, nodes: NDArray[np.int64]) -> str:
        """Return "3 nodes, the longest forward 1.2 ms"."""
        if not len(nodes):
            return "none"
        took = (self.spans.end - self.spans.start)[nodes]
        at = int(np.argmax(took))
        name = on_one_line(str(self.table.name[nodes[at]]))
        name = name if len(name) <= 40 else name[:39] + "…"
        longest = f" ({name})" if name else ""
        return f"{_count(len(nodes), 'node')}, the longest {self.time(int(took[at]))}{longest}"

    def amount(self, ticks: int) -> str:
        """Return "5.46 ms (15.9 %)"."""
        return f"{self.time(ticks)} ({_percent(ticks / self.found.finish)})"

    def time(self, ticks: int) -> str:
        """Return ticks as a time with a unit."""
        return _time(self.timeline, ticks)


def _both(one: Interval, other: Interval) -> Interval:
    return np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1]))


def _overlap(one: Interval, other: Interval) -> int:
    """Return the ticks in both of two sets of disjoint intervals."""
    return measure(*one) + measure(*other) - measure(*union(*_both(one, other)))


def _count(number: int, what: str) -> str:
    plural = {"access": "accesses"}.get(what, what + ("es" if what.endswith("h") else "s"))
    return f"{number:,} {what if number == 1 else plural}"


def _time(timeline: Timeline, ticks: int) -> str:
    return format_time(nanoseconds(timeline, ticks))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
