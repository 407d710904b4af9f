"""Kernels of a rank joined into a few long ones, cut at random places rather than at layers or microbatches.

The kernels of a rank run one after the other, in an order that a simulation shows. That sequence is cut into *windows*
at random places, and where a message leaves or is waited for, so that pipelines keep their timing. The kernels of a
window become one. A collective waits for one kernel and is waited for by another; all collectives between the same two
windows become one. The part of a collective that overlapped with kernels goes beside a window, the exposed rest between
two windows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from armillary.lab.obfuscation.keyed import I64, Floats
from armillary.lab.obfuscation.rows import MISSING, Rows
from armillary.trace.columns import NodeType
from armillary.trace.structure import topological

_KNOWN = (
    NodeType.COMP_NODE, NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE,
    NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE,
)  # fmt: skip
WORK = ("num_ops", "tensor_size", "comm_size", "duration_ns")
"""Numbers that add up when nodes are joined."""
_SHARED = 0.1
"""An overlapped share below this counts as 0, one above 1 minus this as 1, to avoid slivers of collectives."""


@dataclass(frozen=True, eq=False)
class Spans:
    """Start and end of the nodes of a graph in ticks, in the order of ids, (n,) each; -1: the node never ran."""

    start: I64
    end: I64


@dataclass(frozen=True, eq=False)
class Joined:
    """New nodes, each made of one or more old ones.

    Attributes:
        like: The old node whose other attributes each new node takes, (n,).
        child: The waiting node of each edge, (edges,).
        parent: The node it waits for, (edges,).
        work: New columns of `WORK`, (n,) each.
    """

    like: I64
    child: I64
    parent: I64
    work: dict[str, I64]

    def of(self, rows: Rows) -> Rows:
        """Return the new rows of a graph, which may be any graph alike to the one that was joined."""
        found = rows.take(self.like, self.child, self.parent)
        micros = self.work["duration_ns"]
        # The schema's microseconds are rounded up, so that a kernel of 1 ns is not one of 0.
        micros = np.where(micros == MISSING, 0, -(-micros // 1000))
        return replace(found, numbers={**found.numbers, **self.work}, micros=micros)


def coarsen(
    rows: Rows, spans: Spans, fixed: NDArray[np.bool_], group: I64, windows: int, draw: np.random.Generator
) -> Joined | None:
    """Return the graph joined into windows; None where its kernels do not run one after the other.

    Args:
        rows: The graph.
        spans: When its nodes ran.
        fixed: Communication that stays as it is.
        group: A number for the communicator of each node, (n,).
        windows: How many windows to add to those that messages require.
        draw: Source of the places where they begin.
    """
    compute = rows.types == NodeType.COMP_NODE
    if not np.isin(rows.types, _KNOWN).all() or not compute.any() or (spans.start < 0).any():
        return None
    # Host operators and several streams run beside each other: no single sequence of kernels describes them.
    if (rows.number("is_cpu_op") != 0).any() or len(np.unique(rows.number("stream", -1)[compute])) > 1:
        return None
    chain = np.flatnonzero(compute)
    # Kernels in the order in which they ran; stable, so that kernels of 0 ticks keep the order of ids.
    chain = chain[np.argsort(spans.start[chain], kind="stable")]
    if (spans.start[chain][1:] < spans.end[chain][:-1]).any():
        return None
    before, after, level = _reach(rows, chain, fixed)
    bounds = _bounds(spans, chain, before[fixed], after[fixed], windows, draw)
    window = np.searchsorted(bounds, np.arange(len(chain)), side="right") - 1
    return _Weaver(rows, chain, window, group, fixed).weave(
        before, after, level, _overlap(spans, chain, compute)
    )


def _reach(rows: Rows, chain: I64, fixed: NDArray[np.bool_]) -> tuple[I64, I64, I64]:
    """Return three columns, (n,): last kernel that a node waits for, first that waits for it, and its level.

    Kernels are positions in `chain`; -1 and ``len(chain)`` mean none. The level is the number of fixed nodes between
    that last kernel and the node.
    """
    n, last = rows.n, len(chain)
    place = np.full(n, -1, np.int64)
    place[chain] = np.arange(last)
    at, before, after, level = place.tolist(), [-1] * n, [last] * n, [0] * n
    ptr, parent, stays = rows.ptr.tolist(), rows.parent.tolist(), fixed.tolist()
    order = topological(rows.ptr, rows.parent).tolist()
    for node in order:
        # Through communication, the answer of the parent is passed on; a kernel is its own answer.
        near = parent[ptr[node] : ptr[node + 1]]
        found = max((at[each] if at[each] >= 0 else before[each] for each in near), default=-1)
        before[node] = found
        # Only paths from that last kernel count: fixed nodes before it are ordered by the kernel itself.
        level[node] = max(
            (level[each] + stays[each] for each in near if at[each] < 0 and before[each] == found), default=0
        )
    for node in reversed(order):
        mine = at[node] if at[node] >= 0 else after[node]
        for each in parent[ptr[node] : ptr[node + 1]]:
            after[each] = min(after[each], mine)
    return np.array(before, np.int64), np.array(after, np.int64), np.array(level, np.int64)


def _bounds(
    spans: Spans, chain: I64, before: I64, after: I64, windows: int, draw: np.random.Generator
) -> I64:
    """Return the first kernel of each window: where messages leave or are awaited, and at random times."""
    # One cut in each of `windows` equal parts of the busy time (stratified sampling), so that no window is
    # huge.
    busy = np.concatenate([[0], np.cumsum((spans.end - spans.start)[chain])])
    inner = np.searchsorted(busy, (np.arange(windows) + draw.random(windows)) / max(windows, 1) * busy[-1])
    # A fixed message needs a window that ends with the kernel it waits for, and one that begins where it is
    # awaited.
    cuts = np.concatenate([[0], before + 1, after, inner])
    return np.unique(cuts[(cuts >= 0) & (cuts < len(chain))])


def _overlap(spans: Spans, chain: I64, compute: NDArray[np.bool_]) -> Floats:
    """Return the overlapped share of each communication: the part of its time during which a kernel ran, (n,)."""
    start, end = spans.start[chain], spans.end[chain]
    # Busy time as a piecewise linear function of the tick: flat between kernels, slope 1 inside of them.
    times = np.stack([start, end], axis=1).ravel()
    ran = np.stack([np.cumsum(end - start) - (end - start), np.cumsum(end - start)], axis=1).ravel()
    share = np.interp(spans.end, times, ran) - np.interp(spans.start, times, ran)
    share = np.where(compute, 0.0, share / np.maximum(spans.end - spans.start, 1))
    return np.where(share < _SHARED, 0.0, np.where(share > 1 - _SHARED, 1.0, share))


Key = tuple[int, int, int, int, int, int]
"""Window before, level, 1 if fixed, window behind, the node itself if fixed else -1, kind. Equal keys are joined."""


class _Weaver:
    """Joins the kernels of each window and the communication between windows, and orders the new nodes."""

    def __init__(self, rows: Rows, chain: I64, window: I64, group: I64, fixed: NDArray[np.bool_]) -> None:
        self.rows, self.chain, self.window, self.group, self.fixed = rows, chain, window, group, fixed
        self.work = {name: rows.numbers[name] for name in WORK}
        # Communication is joined only where it agrees in all that is not summed: type, communicator, peer,
        # tag, and so on.
        columns = [
            rows.types, group, *(column for name, column in rows.numbers.items() if name not in WORK),
            *(column.codes for column in rows.lists.values()),
        ]  # fmt: skip
        self.kind = np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel()

    def weave(self, before: I64, after: I64, level: I64, overlap: Floats) -> Joined:
        """Return the new nodes."""
        parts = self._parts(before, after, level, overlap)
        last = int(self.window[-1]) + 1
        order: list[tuple[Key | int, list[tuple[int, float]]]] = []
        by_window: dict[int, list[Key]] = defaultdict(list)
        # Sorted by level within a window, so that new nodes come after the fixed ones that they wait for.
        for key in sorted(parts):
            by_window[key[0]].append(key)
        for number in range(last + 1):
            order += [(key, parts[key]) for key in by_window[number - 1]]
            if number < last:
                order += self._kernels(number)
        place = {key: at for at, (key, _) in enumerate(order) if not isinstance(key, int)}
        like = np.array([members[0][0] for _, members in order], np.int64)
        return Joined(like, *self._edges(order, place, parts), self._sums([members for _, members in order]))

    def _parts(
        self, before: I64, after: I64, level: I64, overlap: Floats
    ) -> dict[Key, list[tuple[int, float]]]:
        """Return for each new communication the old nodes, and the share of each, that it is made of."""
        last = int(self.window[-1]) + 1
        # Positions -1 and len(chain), no kernel, index the two entries added here: -1 takes the last one.
        window = np.append(self.window, [last, -1])
        parts: dict[Key, list[tuple[int, float]]] = defaultdict(list)
        communication = np.flatnonzero(self.rows.types != NodeType.COMP_NODE)
        messages = np.isin(self.rows.types, (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)).tolist()
        table = zip(
            communication.tolist(), window[before[communication]].tolist(), window[after[communication]].tolist(),
            level[communication].tolist(), overlap[communication].tolist(), self.kind[communication].tolist(),
            self.fixed[communication].tolist(), strict=True,
        )  # fmt: skip
        for node, first, behind, depth, share, kind, stays in table:
            if stays:
                parts[first, depth, 1, behind, node, kind].append((node, 1.0))
                continue
            if messages[node]:  # both ends must join the same ones, whoever waits for them
                parts[first if depth or first < 0 else first - 1, depth, 0, first + 1, -1, kind].append(
                    (node, 1.0)
                )
                continue
            # Behind a fixed node, or before all kernels, there is no window beside which it could run.
            if depth or first < 0:
                share = 0.0
            if share < 1:
                parts[first, depth, 0, max(behind, first + 1), -1, kind].append((node, 1 - share))
            if share:
                # With a window between the two it runs beside that one; else it starts one window earlier,
                # beside `first`.
                begin = first if behind > first + 1 else first - 1
                parts[begin, 0, 0, max(behind, first + 1), -1, kind].append((node, share))
        return parts

    def _kernels(self, number: int) -> list[tuple[Key | int, list[tuple[int, float]]]]:
        """Return the kernels of a window: one for each precision, with work and with recorded times apart."""
        low, high = np.searchsorted(self.window, [number, number + 1])
        nodes = self.chain[low:high]
        named = (self.work["num_ops"][nodes] != MISSING) | (self.work["tensor_size"][nodes] != MISSING)
        kinds: dict[tuple[bool, int], list[tuple[int, float]]] = defaultdict(list)
        precision = self.rows.words["precision"].codes[nodes].tolist()
        for node, *kind in zip(nodes.tolist(), named.tolist(), precision, strict=True):
            kinds[kind[0], kind[1]].append((node, 1.0))
        return [(number, members) for members in kinds.values()]

    def _edges(
        self,
        order: list[tuple[Key | int, list[tuple[int, float]]]],
        place: dict[Key, int],
        parts: dict[Key, list[tuple[int, float]]],
    ) -> tuple[I64, I64]:
        """Return edges (child, parent): kernels and calls of a communicator in a chain, the rest between windows."""
        edges: set[tuple[int, int]] = set()
        kernel = -1
        ends: dict[int, int] = {}
        waited: dict[int, list[int]] = defaultdict(list)
        called: dict[int, int] = {}
        for at, (key, members) in enumerate(order):
            # A kernel waits for the kernel before it, and for communication that the old ones awaited.
            if isinstance(key, int):
                edges |= {(at, each) for each in (kernel, *waited.pop(key, ())) if each >= 0}
                kernel = ends[key] = at
                continue
            if key[0] in ends:
                edges.add((at, ends[key[0]]))
            waited[key[3]].append(at)
            if self.rows.types[members[0][0]] == NodeType.COMM_COLL_NODE:
                group = int(self.group[members[0][0]])
                if group in called:
                    edges.add((at, called[group]))
                called[group] = at
        # Dependencies between communication hold for their parts; `b < a` drops those that would point
        # forward.
        homes: dict[int, list[int]] = defaultdict(list)
        for key, members in parts.items():
            for node, _ in members:
                homes[node].append(place[key])
        ptr, parent = self.rows.ptr, self.rows.parent
        for node, mine in homes.items():
            for each in parent[ptr[node] : ptr[node + 1]].tolist():
                edges |= {(a, b) for a in mine for b in homes.get(each, ()) if b < a}
        table = np.array(sorted(edges), np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def _sums(self, groups: list[list[tuple[int, float]]]) -> dict[str, I64]:
        """Return the work of the new nodes."""
        node = np.array([node for members in groups for node, _ in members], np.int64)
        share = np.array([share for members in groups for _, share in members])
        new = np.repeat(np.arange(len(groups)), [len(members) for members in groups])
        found = {}
        for name, column in self.work.items():
            there = column[node] != MISSING
            total = np.bincount(new[there], column[node][there] * share[there], len(groups))
            some = np.bincount(new[there], minlength=len(groups)) > 0
            # 1 where any part had work: a share of a small number must not round to 0.
            least = np.bincount(new[there], column[node][there] > 0, len(groups)) > 0
            found[name] = np.where(some, np.maximum(np.rint(total).astype(np.int64), least), MISSING)
        return found
