"""Check for deadlocks: ranks that wait for each other in a circle."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from armillary.trace.check_collectives import Use, sure_order
from armillary.trace.check_rehearsal import rehearse
from armillary.trace.communication import I64, Communication, group_name, name_of
from armillary.trace.structure import Diagnostic, csr, cycle_in, owners

_SHOWN = 6
_TRIES = 8
"""Circles examined before the search for a certain one ends."""


@dataclass(frozen=True)
class _Web:
    """Communication of all graphs as one graph: its nodes, then one vertex for each collective of a group.

    That vertex stands for the moment when the last member arrives: it waits for what every member's node
    waits for, and every member's node waits for it.
    """

    communication: list[Communication]
    base: list[int]
    """First vertex of every graph, and the number of nodes."""
    meeting: I64
    """Vertex of the collective that a node belongs to, else the node itself."""
    group: list[int]
    """Group of every such vertex."""
    pairs: tuple[I64, I64]
    """Sends, and the receives that wait for them."""

    @property
    def size(self) -> int:
        """Number of vertices."""
        return self.base[-1] + len(self.group)


def check_deadlock(
    communication: list[Communication], uses: dict[int, dict[int, Use]], agreed: list[int]
) -> list[Diagnostic]:
    """Return a finding if ranks wait for each other in a circle.

    It is an error where dependencies alone close the circle, and a warning where `rehearse` stalls.
    Only groups whose members agree are examined, and messages of graphs that a single rank runs.
    """
    # Ranks of one graph issue the same collectives in the same order.
    if len(communication) < 2:
        return []
    web = _weave(communication, uses, agreed)
    # What is acyclic with all communication of a rank in a row is so with its dependencies alone.
    if not _cycle(web, _in_a_row(web)):
        return []
    # The order of issue closes a circle; an error needs one of dependencies alone.
    depends = _dependencies(web)
    known = agreed
    for _ in range(_TRIES):
        cycle = _cycle(web, depends)
        # A circle is sure only if every group on it runs its collectives in a sure order. Else
        # these groups are left out, and the next circle is looked at.
        groups = {web.group[vertex - web.base[-1]] for vertex in cycle if vertex >= web.base[-1]}
        loose = {number for number in groups if not all(map(sure_order, uses[number].values()))}
        if cycle and not loose:
            text = f"deadlock: ranks wait for each other in a circle: {_text(web, cycle)}"
            return [Diagnostic("error", None, text)]
        if not cycle:
            break
        known = [number for number in known if number not in loose]
        web = _weave(communication, uses, known)
    text = rehearse(communication, uses, agreed)
    if not text:
        return []
    where = "possible deadlock where a rank runs one collective at a time, as in profile astra-sim"
    return [Diagnostic("warning", None, f"{where}: {text}")]


def _weave(communication: list[Communication], uses: dict[int, dict[int, Use]], agreed: list[int]) -> _Web:
    base = np.cumsum([0, *(found.graph.n_nodes for found in communication)]).tolist()
    meeting = np.arange(base[-1])
    group: list[int] = []
    for number in agreed:
        # A group within one graph connects no two graphs.
        if len(uses[number]) > 1:
            first = base[-1] + len(group)
            for graph, use in uses[number].items():
                nodes = use.by.collectives.position[use.at] + base[graph]
                meeting[nodes] = first + np.arange(len(nodes))
                # The first graph creates the vertices; for the others, which run as many, this adds none.
                group += [number] * (first + len(nodes) - base[-1] - len(group))
    return _Web(communication, base, meeting, group, _pairs(communication, base))


def _pairs(communication: list[Communication], base: list[int]) -> tuple[I64, I64]:
    """Return the k-th send and the k-th receive of the same ends, tag and size."""
    columns = []
    for at, found in enumerate(communication):
        if len(found.ranks) == 1:
            m, rank = found.messages, found.ranks[0]
            source, to = np.where(m.send, rank, m.peer), np.where(m.send, m.peer, rank)
            columns.append(np.stack([source, to, m.tag, m.size, ~m.send, m.position + base[at]]))
    if not columns:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    rows = np.concatenate(columns, axis=1)
    # `lexsort` is stable: equal messages stay in order of issue, and `number` counts them.
    rows = rows[:, np.lexsort(rows[4::-1])]
    change = np.ones(rows.shape[1], dtype=np.bool_)
    change[1:] = np.any(rows[:5, 1:] != rows[:5, :-1], axis=0)
    first = np.flatnonzero(change)
    number = np.arange(rows.shape[1]) - np.repeat(first, np.diff(np.append(first, rows.shape[1])))
    rows = np.concatenate([rows[:4], [number], rows[4:]])
    rows = rows[:, np.lexsort(rows[5::-1])]
    # By ends, tag, size and number, then side: a send is directly before its receive.
    met = np.flatnonzero(np.all(rows[:5, 1:] == rows[:5, :-1], axis=0))
    return rows[6, met], rows[6, met + 1]


def _in_a_row(web: _Web) -> tuple[I64, I64]:
    """Return (parents, children): every collective and message after the one before it."""
    rows = [found.order + base for base, found in zip(web.base, web.communication, strict=False)]
    return np.concatenate([row[:-1] for row in rows]), np.concatenate([row[1:] for row in rows])


def _dependencies(web: _Web) -> tuple[I64, I64]:
    """Return (parents, children) of the dependencies of all graphs."""
    parents, children = [], []
    for base, found in zip(web.base, web.communication, strict=False):
        ptr, parent = found.graph.parents()
        parents.append(parent.astype(np.int64) + base)
        children.append(owners(ptr) + base)
    return np.concatenate(parents), np.concatenate(children)


def _cycle(web: _Web, *edges: tuple[I64, I64]) -> list[int]:
    """Return a cycle of `edges` (parents, children) together with the edges between ranks, [] if there is none."""
    # Members wait for the vertex of their collective, and the vertex waits for whatever
    # its members wait for; receives wait for sends.
    met = np.flatnonzero(web.meeting >= web.base[-1])
    parent = np.concatenate([web.meeting[met], web.pairs[0], *(edge[0] for edge in edges)])
    child = np.concatenate([met, web.pairs[1], *(web.meeting[edge[1]] for edge in edges)])
    return cycle_in(*csr(child, parent, web.size))


def _text(web: _Web, cycle: list[int]) -> str:
    # A meeting belongs to no graph and gets the number after the last one.
    graph = [bisect_right(web.base, vertex) - 1 for vertex in cycle]
    starts = [at for at in range(len(cycle)) if graph[at] != graph[at - 1] and cycle[at] < web.base[-1]]
    # A circle has no first step: the text starts at the lowest graph, so it is reproducible.
    first = min(range(len(starts)), key=lambda i: graph[starts[i]])
    starts = [*starts[first:], *(at + len(cycle) for at in starts[:first])]
    steps = []
    for at, after in zip(starts, [*starts[1:], starts[0] + len(cycle)], strict=True):
        at, after = at % len(cycle), after % len(cycle)
        mine = graph[at]
        last = cycle[after - 1]
        if last >= web.base[-1]:  # the member of this rank
            last = web.base[mine] + int(
                np.flatnonzero(web.meeting[web.base[mine] : web.base[mine + 1]] == last)[0]
            )
        rank = web.communication[mine].ranks[0]
        steps.append(f"rank {rank} runs {_name(web, mine, cycle[at])} before {_name(web, mine, last)}")
    more = f"; … ({len(steps) - _SHOWN} more)" if len(steps) > _SHOWN else ""
    return "; ".join(steps[:_SHOWN]) + more


def _name(web: _Web, graph: int, vertex: int) -> str:
    met = int(web.meeting[vertex]) - web.base[-1]
    of_group = f" of {group_name(web.group[met])}" if met >= 0 else ""
    return name_of(web.communication[graph].graph, vertex - web.base[graph]) + of_group
