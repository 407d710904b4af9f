"""Expansion of a trace with a grid to one graph per rank: the reference that every symbolic computation must equal."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace import columns as c
from armillary.trace.axis_sets import AxisSets, Route, routes_of
from armillary.trace.columns import KINDS, Columns, NodeType
from armillary.trace.graph import Graph
from armillary.trace.grid import AXIS, MOST_NODES, RankGrid
from armillary.trace.trace import WORLD, Trace

Ints = NDArray[np.int64]
TEXTS = (b"## process_group:init ##", b"[[]]", b"['String']")
"""Name, shapes and types of the node in which PyTorch keeps the process groups."""


def expand(trace: Trace) -> Trace:
    """Return the trace with a separate graph for every rank and no grid; a trace without a grid is returned unchanged.

    Raises:
        InputError: a node names a group or an axis that is not there, or a group that its rank is not in.
    """
    if trace.grid is None:
        return trace
    expansion = Expansion(trace)
    graphs = tuple(expansion.graph(rank) for rank in range(trace.n_ranks))
    return Trace(graphs, np.arange(trace.n_ranks, dtype=np.int32))


def expand_for(trace: Trace, what: str, most: int = MOST_NODES) -> Trace:
    """Return `expand` of a trace; `what` names the purpose in errors.

    Raises:
        InputError: all ranks together have more than `most` nodes; also what `expand` raises.
    """
    if trace.grid is not None and trace.total_nodes > most:
        raise InputError(
            f"{what} needs every rank on its own: {trace.n_ranks} ranks with {trace.total_nodes} nodes together; "
            f"expected at most {most} nodes, that is, fewer ranks or layers"
        )
    return expand(trace)


def rank_graph(trace: Trace, rank: int) -> Graph:
    """Return the graph of one rank: groups by number, peers by rank, and a node that defines the groups.

    Raises:
        InputError: as `expand`.
    """
    return trace.graph(rank) if trace.grid is None else Expansion(trace).graph(rank)


class Expansion:
    """Makes the graphs of the ranks of a trace with a grid."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.axis_sets = AxisSets(trace)
        self._forms: dict[int, Form] = {}

    def form(self, rank: int) -> Form:
        """Return the form of the class of a rank."""
        number = int(self.trace.rank_graph[rank])
        if number not in self._forms:
            self._forms[number] = Form.of(self.trace.graphs[number], self.axis_sets)
        return self._forms[number]

    def graph(self, rank: int) -> Graph:
        """Return the graph of a rank."""
        return self.form(rank).fill(rank, self.axis_sets)


@dataclass(frozen=True, eq=False)
class Form:
    """The columns of a class graph with gaps for what differs between its ranks."""

    graph: Graph
    columns: Columns
    used: list[int]
    """Axis sets whose group numbers `texts` lists, before the string that defines the groups."""
    group_at: Ints
    """Attributes whose value is the number of a group."""
    own_at: Ints
    """Attributes whose value is the rank itself."""
    peer_at: Ints
    route: Ints
    """Route of each attribute of `peer_at`."""
    routes: list[Route]

    @classmethod
    def of(cls, graph: Graph, axis_sets: AxisSets) -> Form:
        """Lay out the columns of a class graph."""
        part = part_of(graph)
        codes, names = graph.strings("pg_name")
        # Code -1, a node without a group, indexes the last entry: the world.
        axis_set = np.array([axis_sets.find(name) for name in names] + [WORLD], np.int64)[codes]
        used = sorted(set(axis_set.tolist()) - {WORLD})
        route, routes = routes_of(graph, axis_sets.grid)
        code = {name: i for i, name in enumerate(part.names)}
        for name in ("comm_src", "comm_dst"):
            code.setdefault(name, len(code))
        # -1 stands for attributes of the GlobalMetadata, which stay as they are.
        node = np.repeat(np.arange(part.rows.shape[1] - 1), np.diff(part.rows[c.ATTR_AT])) - 1
        send = graph.types == NodeType.COMM_SEND_NODE
        peer_name = np.where(send, code["comm_dst"], code["comm_src"])
        own_name = np.where(send, code["comm_src"], code["comm_dst"])
        has_own = np.where(send, graph.has("comm_src"), graph.has("comm_dst"))
        # An end that an absolute message names is kept, so that a wrong one is still found.
        filled = (route >= 0) & (graph.has(AXIS) | ~has_own)
        # Each attribute is dropped, copied, or, where it names a peer along a route, replaced by
        # the pair comm_src and comm_dst.
        inside = node >= 0
        called = part.attr_name
        group = inside & (called == code.get("pg_name", -1))
        drop = inside & (called == code.get(AXIS, -1))
        # The world needs no group: a node without pg_name is in it.
        drop |= group & (axis_set[node] == WORLD)
        drop |= inside & filled[node] & (called == own_name[node])
        ends = inside & filled[node] & (called == peer_name[node])
        times = np.where(ends, 2, np.where(drop, 0, 1))
        source = np.repeat(np.arange(len(times)), times)
        new = _take(part, source, times)
        first = (np.cumsum(times) - times)[ends]
        # Of the pair, a send is its own source, a receive its own destination.
        is_send = send[node[ends]]
        own_at, peer_at = first + ~is_send, first + is_send
        new.attr_name[first], new.attr_name[first + 1] = code["comm_src"], code["comm_dst"]
        new.attr_kind[first] = new.attr_kind[first + 1] = KINDS["int32"]
        # Group numbers and the definition are strings that `fill` appends for each rank; only
        # their indices are fixed here, after `TEXTS`.
        texts = len(new.string_ptr) - 1
        number = np.full(len(axis_sets.all), -1, np.int64)
        number[used] = texts + len(TEXTS) + np.arange(len(used))
        group_at = np.flatnonzero(group[source])
        new.attr_value[group_at] = number[axis_set[node[source[group_at]]]]
        new = replace(new, names=list(code))
        if used:
            new = _with_metadata(new, graph, texts, texts + len(TEXTS) + len(used))
        return cls(graph, new, used, group_at, own_at, peer_at, route[node[ends]], routes)

    def fill(self, rank: int, axis_sets: AxisSets) -> Graph:
        """Return the graph of a rank.

        Raises:
            InputError: the rank is not in a group that it uses.
        """
        values = self.columns.attr_value.copy()
        values[self.own_at] = rank
        # All that differs between the ranks of a class: own rank, peers and texts.
        values[self.peer_at] = self.peers(rank, axis_sets.grid)[self.route]
        texts = self.texts(rank, axis_sets)
        ends = np.cumsum([len(self.columns.pool), *map(len, texts)])[1:]
        columns = replace(
            self.columns,
            attr_value=values,
            string_ptr=np.concatenate([self.columns.string_ptr, ends]),
            pool=np.concatenate([self.columns.pool, np.frombuffer(b"".join(texts), np.uint8)]),
        )
        return Graph(columns, 0, f"rank {rank}")

    def peers(self, rank: int, grid: RankGrid) -> Ints:
        """Return the peer of a rank on every route."""
        found = [int(route.peers(grid, np.array([rank]))[0]) for route in self.routes]
        return np.array(found, np.int64)

    def texts(self, rank: int, axis_sets: AxisSets) -> list[bytes]:
        """Return the strings of a rank: the numbers of its groups, then the text that defines the groups."""
        if not self.used:
            return []
        numbers = [axis_sets.number(axis_set, rank) for axis_set in self.used]
        for axis_set, number in zip(self.used, numbers, strict=True):
            if number < 0:
                refuse_outsider(self.graph, axis_sets, axis_set, rank)
        # Only the groups of this rank are listed: a table of all would grow with ranks squared.
        groups = {number: axis_sets.members(number).tolist() for number in numbers}
        table = [
            {"pg_name": str(number), "ranks": ranks, "group_size": len(ranks)}
            for number, ranks in groups.items()
        ]
        return [*(str(number).encode() for number in numbers), f"['{json.dumps(table)}']".encode()]


def refuse_outsider(graph: Graph, axis_sets: AxisSets, axis_set: int, rank: int) -> None:
    """Raise the error for a rank whose graph has collectives of an axis set, but which is in none of its groups.

    Raises:
        InputError: names the node.
    """
    codes, names = graph.strings("pg_name")
    mine = [code for code, name in enumerate(names) if axis_sets.find(name) == axis_set]
    position = int(np.argmax(np.isin(codes, mine)))
    expected = axis_sets.all[axis_set].members[:, 0][:8].tolist()
    raise InputError(
        f"{graph.node(position)}: rank {rank} is in no group '{axis_sets.all[axis_set].name}'; expected one that is, "
        f"such as {expected}"
    )


def _take(columns: Columns, source: Ints, times: Ints) -> Columns:
    """Return the columns with attribute i repeated `times[i]` times; `source` is the old index of each new one."""
    before = np.zeros(len(times) + 1, np.int64)
    np.cumsum(times, out=before[1:])
    rows = columns.rows.copy()
    # Offsets follow the attributes: drops shift them down, pairs up.
    rows[c.ATTR_AT] = before[rows[c.ATTR_AT]]
    docs = columns.docs[:, times[columns.docs[0]] > 0]
    docs[0] = before[docs[0]]
    return replace(
        columns, rows=rows, docs=docs, attr_name=columns.attr_name[source],
        attr_kind=columns.attr_kind[source], attr_value=columns.attr_value[source],
    )  # fmt: skip


def part_of(graph: Graph) -> Columns:
    """Return the columns of one graph alone."""
    columns = graph.columns
    first, after = graph.first - 1, graph.first + graph.n_nodes
    rows = columns.rows[:, first : after + 1].copy()
    span = {
        field: slice(int(rows[field, 0]), int(rows[field, -1])) for field in (c.CTRL_AT, c.DATA_AT, c.ATTR_AT)
    }
    for field in span:
        rows[field] -= rows[field, 0]
    attrs = span[c.ATTR_AT]
    io = columns.io[:, slice(*np.searchsorted(columns.io[0], (first, after)).tolist())].copy()
    docs = columns.docs[
        :, slice(*np.searchsorted(columns.docs[0], (attrs.start, attrs.stop)).tolist())
    ].copy()
    io[0] -= first
    docs[0] -= attrs.start
    return replace(
        columns, frame_ptr=np.array([0, rows.shape[1] - 1]), unknown=np.zeros(1, np.int64), rows=rows,
        ctrl=columns.ctrl[span[c.CTRL_AT]], data=columns.data[span[c.DATA_AT]],
        attr_name=columns.attr_name[attrs], attr_kind=columns.attr_kind[attrs],
        attr_value=columns.attr_value[attrs], io=io, docs=docs,
    )  # fmt: skip


def _with_metadata(part: Columns, graph: Graph, texts: int, definition: int) -> Columns:
    """Return the columns with a first node that defines the groups in string `definition`.

    `TEXTS` are the strings from `texts`. The node's id is the highest, so the others keep their order of ids.
    """
    # Its offsets are those of the node that was first, so it has no entries of its own.
    row = part.rows[:, 1:2].copy()
    row[: c.CTRL_AT] = 0
    row[c.ID], row[c.TYPE] = _free_id(graph), NodeType.METADATA_NODE
    row[c.NAME_AT] = texts
    io = part.io.copy()
    io[0] += 1
    return replace(
        part,
        frame_ptr=np.array([0, part.rows.shape[1]]),
        rows=np.concatenate([part.rows[:, :1], row, part.rows[:, 1:]], axis=1),
        io=np.concatenate([np.array([[1], [0], [definition], [texts + 1], [texts + 2]]), io], axis=1),
        string_ptr=np.concatenate(
            [part.string_ptr, part.string_ptr[-1] + np.cumsum([len(t) for t in TEXTS])]
        ),
        pool=np.concatenate([part.pool[: part.string_ptr[-1]], np.frombuffer(b"".join(TEXTS), np.uint8)]),
    )


def _free_id(graph: Graph) -> int:
    highest = int(graph.ids.max(initial=0))
    # The id above all others keeps the order of the rest; with ids up to the top of int64
    # any free one must do.
    if highest < 2**63 - 1:
        return highest + 1
    taken = set(graph.ids.tolist())
    return next(number for number in range(len(taken) + 1) if number not in taken)
