"""Joining of graphs: what one NPU runs for several jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from armillary.trace import columns as c
from armillary.trace.columns import BYTES, I64, KINDS, RAW, STRING, VERSION, Columns, NodeType
from armillary.trace.expand import part_of
from armillary.trace.graph import Graph
from armillary.trace.node import DELAY

TEXTS = (STRING, BYTES, RAW)
TEXT_LISTS = (STRING + 1, BYTES + 1)


@dataclass(frozen=True)
class Edit:
    """An attribute set on some nodes, replacing one of the same name: int64 numbers or text."""

    name: str
    nodes: I64
    values: I64 | list[str]


@dataclass(frozen=True)
class Part:
    """A graph to be joined with others."""

    graph: Graph
    ids: I64
    """New id of every node, (n_nodes,)."""
    prefix: str = ""
    """Put before the names of its nodes."""
    edits: list[Edit] = field(default_factory=list)
    gate: int | None = None
    """Id of a node that all nodes without dependencies wait for; None for no delay."""


@dataclass(frozen=True)
class Gate:
    """A node that delays others."""

    id: int
    name: str
    delay_ns: int


def join_graphs(gates: Sequence[Gate], parts: Sequence[Part], source: str) -> Graph:
    """Return one graph: the nodes of `gates`, then those of each part, in the order given.

    All dependencies become data dependencies, those on gates control dependencies; IOInfo, doc strings and
    attributes that are lists of text are left out.
    """
    pool = _Pool()
    return Graph(_assemble(pool, [_gates(gates, pool), *(_nodes(part, pool) for part in parts)]), 0, source)


class _Pool:
    """Strings, attribute names and lists, each stored once."""

    def __init__(self) -> None:
        self.texts: dict[bytes, int] = {b"": 0}
        self.names: dict[str, int] = {}
        self.lists: list[I64] = []

    def text(self, raw: bytes) -> int:
        return self.texts.setdefault(raw, len(self.texts))

    def name(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))


@dataclass
class _Rows:
    """The nodes of one part: `rows` without offsets, and the numbers of dependencies and attributes of each node."""

    rows: I64
    ctrl_counts: I64
    ctrl: I64
    data_counts: I64
    data: I64
    attr_counts: I64
    attrs: I64
    """(3, attributes): name, kind, value."""


def _gates(gates: Sequence[Gate], pool: _Pool) -> _Rows:
    n = len(gates)
    rows = np.zeros((c.ROW_FIELDS, n), np.int64)
    rows[c.ID] = [gate.id for gate in gates]
    rows[c.TYPE] = NodeType.METADATA_NODE
    rows[c.NAME_AT] = [pool.text(gate.name.encode()) for gate in gates]
    none = np.zeros(0, np.int64)
    attrs = [[pool.name(DELAY), KINDS["int64"], gate.delay_ns] for gate in gates]
    zeros = np.zeros(n, np.int64)
    return _Rows(rows, zeros, none, zeros, none, zeros + 1, np.array(attrs, np.int64).reshape(-1, 3).T)


def _nodes(part: Part, pool: _Pool) -> _Rows:
    columns, n = part_of(part.graph), part.graph.n_nodes
    ptr, parent = part.graph.parents()
    # Dependencies of both kinds, resolved: ids change, and positions do not.
    waits = np.diff(ptr)
    rows = columns.rows[:, 1 : n + 1].copy()
    rows[c.ID] = part.ids
    rows[c.NAME_AT] = _texts(columns, rows[c.NAME_AT], pool, part.prefix.encode())
    # The gate reaches all nodes through those that wait for no other.
    roots = (waits == 0).astype(np.int64) if part.gate is not None else np.zeros(n, np.int64)
    ctrl = np.full(int(roots.sum()), part.gate or 0, np.int64)
    owner, attrs = _attributes(part, columns, pool)
    counts = np.bincount(owner, minlength=n).astype(np.int64)
    return _Rows(rows, roots, ctrl, waits, part.ids[parent], counts, attrs)


def _attributes(part: Part, columns: Columns, pool: _Pool) -> tuple[I64, I64]:
    """Return the node of every attribute, in order, and the attributes after the edits."""
    n = part.graph.n_nodes
    # -1 is the GlobalMetadata; index -1 of `edited` is its spare last entry, never set.
    owner = np.repeat(np.arange(-1, n), np.diff(columns.rows[c.ATTR_AT]))
    kind, value = columns.attr_kind.astype(np.int64), columns.attr_value.copy()
    keep = (owner >= 0) & ~np.isin(kind, TEXT_LISTS)
    for edit in part.edits:
        edited = np.zeros(n + 1, np.bool_)
        edited[edit.nodes] = True
        # An edit replaces what a node has; nodes that the edit does not name keep theirs.
        keep &= ~((columns.attr_name == columns.name_code.get(edit.name, -1)) & edited[owner])
    text = keep & np.isin(kind, TEXTS)
    value[text] = _texts(columns, value[text], pool)
    listed = keep & (kind > 0) & (kind % 2 == 0)
    value[listed] = _lists(columns, value[listed], pool)
    used = np.unique(columns.attr_name[keep])
    code = np.zeros(len(columns.names), np.int64)
    code[used] = [pool.name(columns.names[name]) for name in used.tolist()]
    owners = [owner[keep]]
    found = [np.stack([code[columns.attr_name[keep]], kind[keep], value[keep]])]
    for edit in part.edits:
        text_edit = isinstance(edit.values, list)
        bits = [pool.text(v.encode()) for v in edit.values] if isinstance(edit.values, list) else edit.values
        head = np.full(
            (2, len(edit.nodes)), [[pool.name(edit.name)], [STRING if text_edit else KINDS["int64"]]]
        )
        owners.append(edit.nodes)
        found.append(np.concatenate([head, np.array(bits, np.int64).reshape(1, -1)]))
    of_node = np.concatenate(owners)
    order = np.argsort(of_node, kind="stable")
    return of_node[order], np.concatenate(found, axis=1)[:, order]


def _texts(columns: Columns, strings: I64, pool: _Pool, prefix: bytes = b"") -> I64:
    used, place = np.unique(strings, return_inverse=True)
    numbers = [pool.text(prefix + raw) for raw in columns.raws(used)]
    return np.array(numbers, np.int64)[place]


def _lists(columns: Columns, lists: I64, pool: _Pool) -> I64:
    used, place = np.unique(lists, return_inverse=True)
    first = len(pool.lists)
    pool.lists += [columns.items[columns.list_ptr[i] : columns.list_ptr[i + 1]] for i in used.tolist()]
    return np.asarray(first + place, np.int64)


def _assemble(pool: _Pool, parts: list[_Rows]) -> Columns:
    version = pool.text(VERSION.encode())
    n = 1 + sum(part.rows.shape[1] for part in parts)
    rows = np.zeros((c.ROW_FIELDS, n + 1), np.int64)
    rows[:, 1:n] = np.concatenate([part.rows for part in parts], axis=1)
    rows[c.NAME_AT, 0] = version
    for at, counts in (
        (c.CTRL_AT, [part.ctrl_counts for part in parts]),
        (c.DATA_AT, [part.data_counts for part in parts]),
        (c.ATTR_AT, [part.attr_counts for part in parts]),
    ):
        # Two zeros: the GlobalMetadata, frame 0, has no entries.
        rows[at] = np.concatenate([[0, 0], np.cumsum(np.concatenate(counts))])
    name, kind, value = np.concatenate([part.attrs for part in parts], axis=1)
    raws = list(pool.texts)
    return Columns(
        frame_ptr=np.array([0, n]), unknown=np.zeros(1, np.int64), rows=rows,
        ctrl=np.concatenate([part.ctrl for part in parts]), data=np.concatenate([part.data for part in parts]),
        attr_name=name.astype(np.int32), attr_kind=kind.astype(np.uint8), attr_value=value.copy(),
        list_ptr=np.cumsum([0, *map(len, pool.lists)]),
        items=np.concatenate([np.zeros(0, np.int64), *pool.lists]),
        string_ptr=np.cumsum([0, *map(len, raws)]), pool=np.frombuffer(b"".join(raws), np.uint8),
        io=np.zeros((5, 0), np.int64), docs=np.zeros((2, 0), np.int64), names=list(pool.names),
    )  # fmt: skip
