"""The chain of work and waiting that determines when a rank finishes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import KINDS, GraphTable, Timeline
from armillary.report.late import Late

SHARES = ("compute", "cpu", "communication", "memory", "waiting")
"""What a step of the path can be, for `shares`."""

_SHARE_OF = {"none": "waiting"} | dict.fromkeys(("collective", "send", "recv"), "communication")
# Nodes of one slot run one after the other; receives and nodes of no kind hold none.
_SLOT_OF = np.array([{"compute": 0, "cpu": 1, "none": -1, "recv": -1}.get(kind, 2) for kind in KINDS])


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
    """Why it started then: "first", "dependency", "slot", "late rank", "late send" or "waiting"."""


def critical_path(timeline: Timeline, cls: int) -> list[Step]:
    """Return the steps, first to last, that determine the finish tick of class `cls`.

    The walk starts at the node that ends last and moves backwards. Before a node that started at tick s comes a
    parent that ended at s ("dependency"), else a node of the same slot that ended at s ("slot"), else
    the parent or slot holder that ended last, and a step of waiting in between. Two things lead to
    another class: a collective of all ranks (any collective if no ranks were folded) that the other
    class entered later, and a receive whose message, known by size and arrival tick, only one send
    there can have been, posted after the receive.
    """
    others = Late(timeline)
    order = cache(lambda of: _predecessors(timeline, of))
    walked: list[Step] = []
    at = int(timeline.finish[cls])
    start, end = timeline.spans(cls)
    # From the node that ends last, backwards, until nothing comes before.
    node = int(np.argmax(end)) if len(end) and end.max() >= 0 else -1
    while node >= 0:
        start, end = timeline.spans(cls)
        # A node may have gone on after `at`, the moment when it let another class begin.
        finished = min(int(end[node]), at)
        if finished < at:
            walked.append(Step(cls, -1, finished, at, "waiting"))
            at = finished
        # Another rank goes first: if it was late, this rank did nothing but wait from then on.
        late = others.later(cls, node, at)
        why, late_cls, late_node, began = late or (order(cls)[1][node], cls, node, int(start[node]))
        walked.append(Step(cls, node, began, at, why))
        # The next node is what came before the late node on its own class.
        cls, node, at = late_cls, order(late_cls)[0][late_node], began
    # Whatever is left before the first node, such as a late start of the rank.
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
    """Return (node name and label, ticks, steps) of the largest contributors to the path, the largest first."""
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
    """Return for every node of a class its predecessor on the path (-1 for none), and why it is that one."""
    table = timeline.table(cls)
    start, end = timeline.spans(cls)
    parent, parent_end = _last_parent(table, end)
    holder, holder_end = _last_holder(table, start, end)
    # At equal ends the dependency is named: it would have held the node back without the slot.
    use_holder = holder_end > parent_end
    before = np.where(use_holder, holder, parent)
    why = np.where(use_holder, "slot", "dependency")
    why[before < 0] = "first"
    return before.tolist(), why.tolist()


def _last_parent(table: GraphTable, end: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the parent that ended last of every node, and its end; -1 and -1 without parents."""
    count = np.diff(table.parent_ptr)
    child = np.repeat(np.arange(len(count)), count)
    # Within a child its parents ascend by end, so the last assignment is the latest parent.
    order = np.lexsort((end[table.parent], child))
    last = np.full(len(count), -1, np.int64)
    last[child[order]] = table.parent[order]  # for equal children the last assignment stays
    return last, np.where(last >= 0, end[last], -1) if len(end) else last


def _last_holder(
    table: GraphTable, start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the node of the same slot that ended last at or before the start of every node, and its end.

    Only nodes that took time count, so that nodes of no length cannot delay each other.
    """
    holder = np.full(len(start), -1, np.int64)
    slot = _SLOT_OF[table.kind]
    for which in range(3):
        nodes = np.flatnonzero(slot == which)
        held = nodes[end[nodes] > start[nodes]]
        if not len(held):
            continue
        held = held[np.argsort(end[held], kind="stable")]
        # The last holder whose end is at or before the start of each node.
        place = np.searchsorted(end[held], start[nodes], side="right")
        holder[nodes] = np.where(place > 0, held[place - 1], -1)
    return holder, np.where(holder >= 0, end[holder], -1) if len(end) else holder
