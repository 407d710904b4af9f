"""Late ranks: the class that a collective or a receive of another class waited for."""

from __future__ import annotations

from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import KINDS, Timeline

Ticks = NDArray[np.int64]
NEEDS_ALL = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier", "reduce-scatter-block")
"""Operations that no member can finish before the last has begun."""

_COLLECTIVE, _SEND, _RECV = (KINDS.index(kind) for kind in ("collective", "send", "recv"))


def _needs_all(label: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Return for each label whether its operation is in `NEEDS_ALL`."""
    texts, code = np.unique(label, return_inverse=True)
    known = np.array([text.partition("@")[0] in NEEDS_ALL for text in texts.tolist()], np.bool_)
    found: NDArray[np.bool_] = known[code]
    return found


class Late:
    """Finds the class that a collective or a receive waited for, and caches the results."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.code_of: dict[str, int] = {}
        self.collectives = cache(self._collectives)
        self.pairs = cache(self._pairs)
        self.begun = cache(self._begun)

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
        begun, needs_all = self.begun(cls), _needs_all(self.timeline.table(cls).label)
        calls = np.flatnonzero((begun[0] >= 0) & needs_all)
        nodes, until, who = np.concatenate(
            (np.stack((calls, *begun[:2, calls])), *self._receives(cls)), axis=1
        )
        # A node that ended before the other began was paired wrongly, so nothing is known about it.
        real = (until > start[nodes]) & (until <= end[nodes])
        return nodes[real], until[real], who[real]

    def _begun(self, cls: int) -> Ticks:
        """Return int64 (3, nodes): start, class and node of the last member to begin a collective, -1 if unknown.

        The engine records it. Where it does not (recorded times, timelines made by hand), the k-th collectives of a
        label on all ranks are taken to be one call.
        """
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

    def _pairs(self, cls: int, kind: int) -> dict[tuple[int, int], Ticks]:
        """Return (class of the peer, bytes) -> nodes by start, where only one rank of that class is a peer."""
        table, (start, _) = self.timeline.table(cls), self.timeline.spans(cls)
        chosen = np.flatnonzero((table.kind == kind) & (table.peer >= 0) & (start >= 0))
        chosen = chosen[np.argsort(start[chosen], kind="stable")]
        peer, size = table.peer[chosen].astype(np.int64), table.size[chosen]
        other = self.timeline.rank_class[peer].astype(np.int64)
        found: dict[tuple[int, int], Ticks] = {}
        order = np.lexsort((size, other))
        key = np.stack((other[order], size[order]))
        first = np.flatnonzero(
            np.concatenate(([True], (np.diff(key, axis=1) != 0).any(axis=0)))[: len(order)]
        )
        for group in np.split(order, first[1:]) if len(order) else ():
            # Several peers of one class interleave in an order that the timeline does not keep.
            if (peer[group] == peer[group[0]]).all():
                found[int(other[group[0]]), int(size[group[0]])] = chosen[group]
        return found

    def _collectives(self, cls: int) -> dict[int, Ticks]:
        """Return the collectives of a class by label code, in the order in which it entered them."""
        table, (start, _) = self.timeline.table(cls), self.timeline.spans(cls)
        nodes = np.flatnonzero((table.kind == _COLLECTIVE) & (start >= 0))
        codes = np.array(
            [self.code_of.setdefault(label, len(self.code_of)) for label in table.label[nodes].tolist()],
            dtype=np.int64,
        )
        order = np.lexsort((start[nodes], codes))
        found, first = np.unique(codes[order], return_index=True)
        groups = np.split(nodes[order], first[1:])
        return dict(zip(found.tolist(), groups, strict=False))

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
