"""The critical path: what the step waits for, from its end back to its start; and who comes late where ranks meet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import KINDS, GraphTable, Timeline

Ticks = NDArray[np.int64]
NEEDS_ALL = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier", "reduce-scatter-block")
"""Operations that no member can finish before the last has begun."""

_COLLECTIVE, _SEND, _RECV = (KINDS.index(kind) for kind in ("collective", "send", "recv"))


def _needs_all(label: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Return for each label whether its operation is in `NEEDS_ALL`."""
    texts = label.tolist()
    known = {text: text.partition("@")[0] in NEEDS_ALL for text in set(texts)}
    return np.array([known[text] for text in texts], np.bool_)


class Late:
    """Finds the class that a collective or a receive waited for, and caches the results."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        # Not of methods of this object: it would hold itself, and with it the arrays of the whole run.
        self.collectives = cache(partial(_collectives, timeline, {}))
        self.pairs = cache(partial(_pairs, timeline))
        self._begun: dict[int, Ticks] = {}

    def later(self, cls: int, node: int, at: int) -> tuple[str, int, int, int] | None:
        """Return (why, class, node, start) of the late one, None if this rank itself was the last.

        With folded ranks a label with a group may stand for different groups; unless the engine recorded who took
        part, such collectives are left out.
        """
        table = self.timeline.table(cls)
        kind = table.kind[node]
        if len(self.timeline.finish) < 2 or kind not in (_COLLECTIVE, _RECV):
            return None
        start, end = self.timeline.spans(cls)
        if kind == _COLLECTIVE:
            why = "late rank"
            late_start, late_cls, late_node = self.begun(cls)[:, node].tolist()
            said = self.timeline.node_late[int(self.timeline.node_ptr[cls]) + node] >= 0
            # Guessed by label: with folded ranks a label with a group may stand for several groups.
            guess = not said and self.timeline.info.get("folded", True) and "@" in str(table.label[node])
            if late_start < 0 or guess:
                return None
        else:
            why, sends = "late send", self.sends
            # A receive ends in the tick in which its message arrives: look for sends of the same end.
            arrived = slice(*(np.searchsorted(sends[0], end[node], side) for side in ("left", "right")))
            same = arrived.start + np.flatnonzero(sends[1, arrived] == table.size[node])
            # Several sends fit: which of them it was cannot be known.
            if len(same) != 1:
                return None
            late_start, late_cls, late_node = sends[2:, same[0]].tolist()
        # Late only if it began after this rank had, and before the tick in question.
        late = late_cls != cls and int(start[node]) < late_start < at
        return (why, late_cls, late_node, late_start) if late else None

    def waits(self, cls: int) -> tuple[Ticks, Ticks, Ticks]:
        """Return (nodes, until, for whom) of the nodes of `cls` that waited for another rank to begin.

        A collective waits from its start until the last of its members enters it, if its operation `NEEDS_ALL`;
        a receive waits until its send starts. Nodes for which this is unknown are left out.
        """
        start, end = self.timeline.spans(cls)
        begun = self.begun(cls)
        calls = np.flatnonzero(begun[0] >= 0)
        calls = calls[_needs_all(self.timeline.table(cls).label[calls])]
        nodes, until, who = np.concatenate(
            (np.stack((calls, *begun[:2, calls])), *self._receives(cls)), axis=1
        )
        # A node that ended before the other began was paired wrongly, so nothing is known about it.
        real = (until > start[nodes]) & (until <= end[nodes])
        return nodes[real], until[real], who[real]

    def begun(self, cls: int) -> Ticks:
        """Return int64 (3, nodes): start, class and node of the last member to begin a collective, -1 if unknown.

        The engine records it. Where it does not (recorded times, timelines made by hand), the k-th collectives of a
        label on all ranks are taken to be one call.
        """
        if cls not in self._begun:
            self._begun[cls] = self._members(cls)
        return self._begun[cls]

    def _members(self, cls: int) -> Ticks:
        timeline = self.timeline
        # Numbers over all classes; `node_ptr` gives the class back.
        late = timeline.node_late[int(timeline.node_ptr[cls]) : int(timeline.node_ptr[cls + 1])]
        other = np.searchsorted(timeline.node_ptr, late, side="right") - 1
        found = np.where(
            late >= 0, np.stack((timeline.node_start[late], other, late - timeline.node_ptr[other])), -1
        )
        table = timeline.table(cls)
        unsaid = (late < 0) & (table.kind == _COLLECTIVE)
        if len(timeline.finish) < 2 or not unsaid.any():
            return found
        for code, nodes in self.collectives(cls).items():
            guessed = unsaid[nodes]
            # The k-th call here is the k-th column; other classes may have more calls.
            found[:, nodes[guessed]] = self.latest[code][:, : len(nodes)][:, guessed]
        return found

    def _receives(self, cls: int) -> list[Ticks]:
        """Return rows (nodes, start of the send, its class) of the receives whose sends are known.

        The k-th receive of a size from a class meets the k-th send of that size to this class, if each side
        communicates with only one rank of the other class.
        """
        rows = []
        for (other, size), mine in self.pairs(cls, _RECV).items():
            theirs = self.pairs(other, _SEND).get((cls, size))
            # Unequal numbers: some messages meet others, so the k-th need not meet the k-th.
            if theirs is None or len(theirs) != len(mine):
                continue
            begun = self.timeline.spans(other)[0][theirs]
            rows.append(np.stack((mine, begun, np.full(len(mine), other))))
        return rows

    @cached_property
    def latest(self) -> dict[int, Ticks]:
        """By label code, rows (start, class, node) of the last class to enter the k-th collective."""
        latest: dict[int, Ticks] = {}
        for cls in range(len(self.timeline.finish)):
            start, _ = self.timeline.spans(cls)
            for code, nodes in self.collectives(cls).items():
                mine = np.stack((start[nodes], np.full(len(nodes), cls), nodes))
                known = latest.get(code, mine)
                # The longer table stays, and the shorter is merged into its first columns.
                if known.shape[1] < mine.shape[1]:
                    known, mine = mine, known
                common = known[:, : mine.shape[1]]
                latest[code] = known
                np.copyto(common, mine, where=mine[0] > common[0])
        return latest

    @cached_property
    def sends(self) -> Ticks:
        """The rows (end, size, start, class, node) of all sends, by end."""
        rows = [np.empty((5, 0), np.int64)]
        for cls in range(len(self.timeline.finish)):
            table, (start, end) = self.timeline.table(cls), self.timeline.spans(cls)
            nodes = np.flatnonzero((table.kind == _SEND) & (start >= 0))
            rows.append(
                np.stack((end[nodes], table.size[nodes], start[nodes], np.full(len(nodes), cls), nodes))
            )
        every = np.concatenate(rows, axis=1)
        return every[:, np.argsort(every[0], kind="stable")]


def _pairs(timeline: Timeline, cls: int, kind: int) -> dict[tuple[int, int], Ticks]:
    """Return (class of the peer, bytes) -> nodes by start, where only one rank of that class is a peer."""
    table, (start, _) = timeline.table(cls), timeline.spans(cls)
    chosen = np.flatnonzero((table.kind == kind) & (table.peer >= 0) & (start >= 0))
    chosen = chosen[np.argsort(start[chosen], kind="stable")]
    peer, size = table.peer[chosen].astype(np.int64), table.size[chosen]
    other = timeline.rank_class[peer].astype(np.int64)
    found: dict[tuple[int, int], Ticks] = {}
    order = np.lexsort((size, other))
    key = np.stack((other[order], size[order]))
    first = np.flatnonzero(np.concatenate(([True], (np.diff(key, axis=1) != 0).any(axis=0)))[: len(order)])
    for group in np.split(order, first[1:]) if len(order) else ():
        # Several peers of one class interleave in an order that the timeline does not keep.
        if (peer[group] == peer[group[0]]).all():
            found[int(other[group[0]]), int(size[group[0]])] = chosen[group]
    return found


def _collectives(timeline: Timeline, code_of: dict[str, int], cls: int) -> dict[int, Ticks]:
    """Return the collectives of a class by label code, in the order in which it entered them."""
    table, (start, _) = timeline.table(cls), timeline.spans(cls)
    nodes = np.flatnonzero((table.kind == _COLLECTIVE) & (start >= 0))
    codes = np.array(
        [code_of.setdefault(label, len(code_of)) for label in table.label[nodes].tolist()],
        dtype=np.int64,
    )
    order = np.lexsort((start[nodes], codes))
    found, first = np.unique(codes[order], return_index=True)
    groups = np.split(nodes[order], first[1:])
    return dict(zip(found.tolist(), groups, strict=False))


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
    # As lists, of which single numbers are read three times as fast.
    spans = cache(lambda of: [each.tolist() for each in timeline.spans(of)])
    met = cache(lambda of: np.isin(timeline.table(of).kind, (_COLLECTIVE, _RECV)).tolist())
    walked: list[Step] = []
    at = int(timeline.finish[cls])
    _, end = timeline.spans(cls)
    # From the node that ends last, backwards, until nothing comes before.
    node = int(np.argmax(end)) if len(end) and end.max() >= 0 else -1
    while node >= 0:
        starts, ends = spans(cls)
        # A node may have gone on after `at`, the moment when it let another class begin.
        finished = min(ends[node], at)
        if finished < at:
            walked.append(Step(cls, -1, finished, at, "waiting"))
            at = finished
        # Another rank goes first: if it was late, this rank did nothing but wait from then on.
        late = others.later(cls, node, at) if met(cls)[node] else None
        why, late_cls, late_node, began = late or (order(cls)[1][node], cls, node, starts[node])
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
    kinds = cache(lambda of: timeline.table(of).kind.tolist())
    for step in steps:
        kind = KINDS[kinds(step.cls)[step.node]] if step.node >= 0 else "none"
        total[_SHARE_OF.get(kind, kind)] += step.end - step.start
    return total


def contributors(timeline: Timeline, steps: Sequence[Step], limit: int = 5) -> list[tuple[str, int, int]]:
    """Return (node name and label, ticks, steps) of the largest contributors to the path, the largest first."""
    spent: dict[str, tuple[int, int]] = {}
    names = _names(timeline, steps)
    for step in steps:
        name = names[step.cls][step.node] if step.node >= 0 else "waiting"
        ticks, count = spent.get(name, (0, 0))
        spent[name] = (ticks + step.end - step.start, count + 1)
    ranked = sorted(((name, *value) for name, value in spent.items()), key=lambda row: (-row[1], row[0]))
    return [row for row in ranked if row[1] > 0][:limit]


def _names(timeline: Timeline, steps: Sequence[Step]) -> dict[int, dict[int, str]]:
    """Return class -> node -> its name and label, of the nodes of a path only."""
    met: dict[int, set[int]] = {}
    for step in steps:
        if step.node >= 0:
            met.setdefault(step.cls, set()).add(step.node)
    found = {}
    for cls, nodes in met.items():
        at, table = np.array(sorted(nodes)), timeline.table(cls)
        texts = zip(table.name[at].tolist(), table.label[at].tolist(), strict=True)
        found[cls] = dict(zip(at.tolist(), (" ".join(filter(None, each)) for each in texts), strict=True))
    return found


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
