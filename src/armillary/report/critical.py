"""The chain of work and waiting that determines when a rank finishes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.engine.timeline import KINDS, GraphTable, Timeline

SHARES = ("compute", "cpu", "communication", "memory", "waiting")
"""What a step of the path can be, for `shares`."""

_SHARE_OF = {"none": "waiting"} | dict.fromkeys(("collective", "send", "recv"), "communication")
# Nodes of one slot run one after the other; receives and nodes of no kind hold none.
_SLOT_OF = np.array([{"compute": 0, "cpu": 1, "none": -1, "recv": -1}.get(kind, 2) for kind in KINDS])
_COLLECTIVE, _SEND, _RECV = (KINDS.index(kind) for kind in ("collective", "send", "recv"))


class Step(NamedTuple):
    """One stretch of the path; the steps of a path cover 0 to finish without gap or overlap."""

    cls: int
    """The class of ranks it happened on."""
    node: int
    """Position in the graph of that class, -1 for waiting."""
    start: int
    """Tick from which it held up the finish; later than the node's own start if another rank was late."""
    end: int
    why: str
    """What let it start: "first", "dependency", "slot", "late rank", "late send" or "waiting"."""


def critical_path(timeline: Timeline, cls: int) -> list[Step]:
    """Return the steps, first to last, that determine the finish tick of class `cls`.

    The walk goes back from the node that ends last. Before a node that started at tick s comes a
    parent that ended at s ("dependency"), else a node of the same slot that ended at s ("slot"), else
    the parent or slot holder that ended last, and a step of waiting in between. Two things lead to
    another class: a collective of all ranks (any collective if no ranks were folded) that the other
    class entered later, and a receive whose message, known by size and arrival tick, only one send
    there can have been, posted after the receive.
    """
    others = _Others(timeline)
    order = cache(lambda of: _predecessors(timeline, of))
    walked: list[Step] = []
    at = int(timeline.finish[cls])
    start, end = timeline.spans(cls)
    node = int(np.argmax(end)) if len(end) and end.max() >= 0 else -1
    while node >= 0:
        start, end = timeline.spans(cls)
        finished = min(int(end[node]), at)
        if finished < at:
            walked.append(Step(cls, -1, finished, at, "waiting"))
            at = finished
        late = others.later(cls, node, at)
        why, late_cls, late_node, began = late or (order(cls)[1][node], cls, node, int(start[node]))
        walked.append(Step(cls, node, began, at, why))
        cls, node, at = late_cls, order(late_cls)[0][late_node], began
    if at > 0:
        walked.append(Step(cls, -1, 0, at, "waiting"))
    return walked[::-1]


def shares(timeline: Timeline, steps: Sequence[Step]) -> dict[str, int]:
    """Return the ticks of the path by kind of work, in the order of `SHARES`; they add up to finish."""
    total = dict.fromkeys(SHARES, 0)
    for step in steps:
        kind = KINDS[timeline.table(step.cls).kind[step.node]] if step.node >= 0 else "none"
        total[_SHARE_OF.get(kind, kind)] += step.end - step.start
    return total


def contributors(timeline: Timeline, steps: Sequence[Step], limit: int = 5) -> list[tuple[str, int, int]]:
    """Return (node name and label, ticks, steps) of what the path spent most on, the most first."""
    spent: dict[str, tuple[int, int]] = {}
    for step in steps:
        name = "waiting"
        if step.node >= 0:
            table = timeline.table(step.cls)
            name = " ".join(filter(None, (str(table.name[step.node]), str(table.label[step.node]))))
        ticks, count = spent.get(name, (0, 0))
        spent[name] = (ticks + step.end - step.start, count + 1)
    ranked = sorted(((name, *value) for name, value in spent.items()), key=lambda row: (-row[1], row[0]))
    return [row for row in ranked if row[1] > 0][:limit]


def _predecessors(timeline: Timeline, cls: int) -> tuple[list[int], list[str]]:
    """Return for every node of a class what it came after (-1: nothing) and why, for all at once."""
    table = timeline.table(cls)
    start, end = timeline.spans(cls)
    parent, parent_end = _last_parent(table, end)
    holder, holder_end = _last_holder(table, start, end)
    use_holder = holder_end > parent_end
    before = np.where(use_holder, holder, parent)
    why = np.where(use_holder, "slot", "dependency")
    why[before < 0] = "first"
    return before.tolist(), why.tolist()


def _last_parent(table: GraphTable, end: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the parent that ended last of every node, and its end; -1 and -1 without parents."""
    count = np.diff(table.parent_ptr)
    child = np.repeat(np.arange(len(count)), count)
    order = np.lexsort((end[table.parent], child))
    last = np.full(len(count), -1, np.int64)
    last[child[order]] = table.parent[order]  # of equal children the last assignment stays
    return last, np.where(last >= 0, end[last], -1) if len(end) else last


def _last_holder(
    table: GraphTable, start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the node of the same slot that ended last at or before the start of every node, and its end.

    Only nodes that took time count, so that nodes of no length can not hold up each other.
    """
    holder = np.full(len(start), -1, np.int64)
    slot = _SLOT_OF[table.kind]
    for which in range(3):
        nodes = np.flatnonzero(slot == which)
        held = nodes[end[nodes] > start[nodes]]
        if not len(held):
            continue
        held = held[np.argsort(end[held], kind="stable")]
        place = np.searchsorted(end[held], start[nodes], side="right")
        holder[nodes] = np.where(place > 0, held[place - 1], -1)
    return holder, np.where(holder >= 0, end[holder], -1) if len(end) else holder


class _Others:
    """Finds the rank that a collective or a receive waited for."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.code_of: dict[str, int] = {}
        self.collectives = cache(self._collectives)
        self.place = cache(self._place)
        self.latest = cache(self._latest)
        self.sends = cache(self._sends)

    def later(self, cls: int, node: int, at: int) -> tuple[str, int, int, int] | None:
        """Return (why, class, node, start) of the late one, None if this rank itself was the last."""
        kind = self.timeline.table(cls).kind[node]
        if len(self.timeline.finish) < 2 or kind not in (_COLLECTIVE, _RECV):
            return None
        start, end = self.timeline.spans(cls)
        if kind == _COLLECTIVE:
            why, code, nth = "late rank", *(int(row[node]) for row in self.place(cls))
            if code < 0:
                return None
            late_start, late_cls, late_node = (int(row[nth]) for row in self.latest()[code])
        else:
            why, sends = "late send", self.sends()
            arrived = slice(*(np.searchsorted(sends[0], end[node], side) for side in ("left", "right")))
            same = arrived.start + np.flatnonzero(sends[1, arrived] == self.timeline.table(cls).size[node])
            if len(same) != 1:
                return None
            late_start, late_cls, late_node = sends[2:, same[0]].tolist()
        late = late_cls != cls and int(start[node]) < late_start < at
        return (why, late_cls, late_node, late_start) if late else None

    def _collectives(self, cls: int) -> dict[int, NDArray[np.int64]]:
        """Return the nodes of a class by label code, in the order it entered them.

        With folded ranks a label with a group may name different groups, so those are left out.
        """
        table, (start, _) = self.timeline.table(cls), self.timeline.spans(cls)
        folded = bool(self.timeline.info.get("folded", True))
        nodes = np.flatnonzero((table.kind == _COLLECTIVE) & (start >= 0))
        codes = np.array(
            [
                -1 if folded and "@" in label else self.code_of.setdefault(label, len(self.code_of))
                for label in table.label[nodes].tolist()
            ],
            dtype=np.int64,
        )
        order = np.lexsort((start[nodes], codes))
        found, first = np.unique(codes[order], return_index=True)
        groups = np.split(nodes[order], first[1:])
        return {code: group for code, group in zip(found.tolist(), groups, strict=False) if code >= 0}

    def _place(self, cls: int) -> NDArray[np.int64]:
        """Return int64 (2, nodes): label code and which of that label, -1 where a node has none."""
        place = np.full((2, len(self.timeline.table(cls).kind)), -1, np.int64)
        for code, nodes in self.collectives(cls).items():
            place[0, nodes] = code
            place[1, nodes] = np.arange(len(nodes))
        return place

    def _latest(self) -> dict[int, NDArray[np.int64]]:
        """Return for each label code (start, class, node) of the last to enter its k-th collective."""
        latest: dict[int, NDArray[np.int64]] = {}
        for cls in range(len(self.timeline.finish)):
            start, _ = self.timeline.spans(cls)
            for code, nodes in self.collectives(cls).items():
                mine = np.stack((start[nodes], np.full(len(nodes), cls), nodes))
                known = latest.get(code, mine)
                if known.shape[1] < mine.shape[1]:
                    known, mine = mine, known
                common = known[:, : mine.shape[1]]
                latest[code] = known
                np.copyto(common, mine, where=mine[0] > common[0])
        return latest

    def _sends(self) -> NDArray[np.int64]:
        """Return the rows (end, size, start, class, node) of all sends, by end."""
        rows = [np.empty((5, 0), np.int64)]
        for cls in range(len(self.timeline.finish)):
            table, (start, end) = self.timeline.table(cls), self.timeline.spans(cls)
            nodes = np.flatnonzero((table.kind == _SEND) & (start >= 0))
            rows.append(
                np.stack((end[nodes], table.size[nodes], start[nodes], np.full(len(nodes), cls), nodes))
            )
        every = np.concatenate(rows, axis=1)
        return every[:, np.argsort(every[0], kind="stable")]
