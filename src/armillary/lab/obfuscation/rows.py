"""The part of a graph that decides how it runs, as columns in the order of ids; nothing else is ever written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.trace import columns as c
from armillary.trace.columns import KINDS, VERSION, Columns, NodeType
from armillary.trace.expand import TEXTS as DEFINITION
from armillary.trace.graph import Graph
from armillary.trace.structure import csr, owners, validate

I64 = NDArray[np.int64]

MISSING = -(2**63)
"""Stands for an attribute that a node does not have."""
NUMBERS = (
    "is_cpu_op", "num_ops", "tensor_size", "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "comm_root",
    "comm_priority", "tensor_loc", "in_switch", "stream", "tid", "duration_ns", "delay_ns",
)  # fmt: skip
"""Attributes with one integer that simulators read."""
WORDS = ("pg_name", "comm_axis", "precision")
LISTS = ("comm_splits", "involved_dim")
_KIND = {
    "is_cpu_op": "bool", "in_switch": "bool", "tensor_size": "uint64", "tensor_loc": "uint32",
    "comm_splits": "int64_list", "involved_dim": "bool_list",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Coded:
    """A dictionary-encoded column: node i has the value ``values[codes[i]]``, or none where the code is -1."""

    codes: I64
    values: tuple[Any, ...]

    def take(self, nodes: I64) -> Coded:
        """Return the column of some nodes."""
        return Coded(self.codes[nodes], self.values)


@dataclass(frozen=True, eq=False)
class Rows:
    """The nodes of one graph.

    Attributes:
        types: `NodeType` of each, (n,).
        ptr: CSR offsets, (n + 1), into `parent`.
        parent: Nodes that each waits for.
        micros: Recorded durations in µs, (n,).
        numbers: One column per attribute of `NUMBERS`; `MISSING` where a node has none.
        words: Columns of `WORDS` and of node names ("name").
        lists: Columns of `LISTS`.
    """

    types: I64
    ptr: I64
    parent: I64
    micros: I64
    numbers: Mapping[str, I64]
    words: Mapping[str, Coded]
    lists: Mapping[str, Coded]

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.types)

    def number(self, name: str, default: int = 0) -> I64:
        """Return a column of `NUMBERS` with a default for nodes that have none."""
        found = self.numbers[name]
        return np.where(found == MISSING, default, found)

    def take(self, nodes: I64, child: I64, parent: I64) -> Rows:
        """Return rows of the given nodes with the edges `child` waits for `parent`, numbered as in the new rows."""
        ptr, parents = csr(child, parent, len(nodes))
        return Rows(
            self.types[nodes], ptr, parents, self.micros[nodes],
            {name: column[nodes] for name, column in self.numbers.items()},
            {name: column.take(nodes) for name, column in self.words.items()},
            {name: column.take(nodes) for name, column in self.lists.items()},
        )  # fmt: skip


def read(graph: Graph) -> Rows:
    """Return the rows of a graph.

    METADATA nodes without dependencies or dependants are left out.

    Raises:
        InputError: the graph has a cycle, ids twice, or an attribute of another kind than simulators expect.
    """
    validate(graph)
    ptr, parent = graph.parents()
    order = kept(graph)
    # Dropped nodes have no edges, so no edge maps to -1.
    place = np.full(graph.n_nodes, -1, np.int64)
    place[order] = np.arange(len(order))
    ptr, before = csr(place[owners(ptr)], place[parent], len(order))

    def coded(found: tuple[NDArray[Any], Sequence[Any]]) -> Coded:
        return Coded(found[0][order].astype(np.int64), tuple(found[1]))

    return Rows(
        graph.types[order].astype(np.int64), ptr, before, graph.duration_micros[order].view(np.int64),
        {name: np.where(graph.has(name), graph.ints(name), MISSING)[order] for name in NUMBERS},
        {name: coded(graph.strings(name)) for name in WORDS} | {"name": coded(graph.name_codes())},
        {"comm_splits": coded(graph.int_lists("comm_splits")), "involved_dim": coded(graph.bool_lists("involved_dim"))},
    )  # fmt: skip


def kept(graph: Graph) -> I64:
    """Return the positions of the nodes that become rows, in the order of ids."""
    ptr, parent = graph.parents()
    # A METADATA node in the middle of a chain orders its neighbours and must stay.
    tied = np.diff(ptr) > 0
    tied[parent] = True
    order = np.argsort(graph.ids, kind="stable")
    found: I64 = order[((graph.types != NodeType.METADATA_NODE) | tied)[order]]
    return found


class _Strings:
    """A pool of texts; text 0 is empty."""

    def __init__(self) -> None:
        self.ends, self.pool, self.known = [0, 0], bytearray(), {"": 0}

    def add(self, text: str) -> int:
        if text not in self.known:
            self.known[text] = len(self.known)
            self.pool += text.encode()
            self.ends.append(len(self.pool))
        return self.known[text]


def write(rows: Rows, source: str, groups: str = "", ids: I64 | None = None) -> Graph:
    """Return the graph of rows.

    Args:
        rows: The nodes.
        source: What messages call the graph.
        groups: Text that defines the groups, in a METADATA node behind the others; empty: none.
        ids: Ids in ascending order, by default from 0.
    """
    n, extra = rows.n, int(bool(groups))
    ids = np.arange(n) if ids is None else ids
    strings = _Strings()
    # (attribute, kind, nodes that have it, value or code): one entry per attribute, flattened and sorted by
    # node below.
    entries: list[tuple[str, int, I64, I64]] = []
    for name in NUMBERS:
        at = np.flatnonzero(rows.numbers[name] != MISSING)
        entries.append((name, KINDS[_KIND.get(name, "int64")], at, rows.numbers[name][at]))
    for name in WORDS:
        at = np.flatnonzero(rows.words[name].codes >= 0)
        code = np.array([strings.add(text) for text in rows.words[name].values], np.int64)
        entries.append((name, KINDS["string"], at, code[rows.words[name].codes[at]] if len(at) else at))
    items: list[int] = []
    ends = [0]
    for name in LISTS:
        at, base = np.flatnonzero(rows.lists[name].codes >= 0), len(ends) - 1
        for each in rows.lists[name].values:
            items += map(int, each)
            ends.append(len(items))
        entries.append((name, KINDS[_KIND[name]], at, rows.lists[name].codes[at] + base))
    entries = [entry for entry in entries if len(entry[2])]
    node = np.concatenate([entry[2] for entry in entries] or [np.zeros(0, np.int64)])
    name_of = np.repeat(np.arange(len(entries)), [len(entry[2]) for entry in entries])
    # Stable: within a node, attributes are in the order of NUMBERS, whatever order the original had.
    order = np.argsort(node, kind="stable")
    kinds = np.array([entry[1] for entry in entries], np.int64)
    value = np.concatenate([entry[3] for entry in entries] or [np.zeros(0, np.int64)])
    # Row 0 is the GlobalMetadata frame, rows 1 to n the nodes, then the definition of groups, then the end of
    # the offsets.
    table = np.zeros((c.ROW_FIELDS, n + 2 + extra), np.int64)
    table[c.NAME_AT, 0] = strings.add(VERSION)
    table[c.ID, 1 : n + 1] = ids
    table[c.TYPE, 1 : n + 1] = rows.types
    table[c.DURATION, 1 : n + 1] = rows.micros
    called = np.array([*(strings.add(text) for text in rows.words["name"].values), 0], np.int64)
    table[c.NAME_AT, 1 : n + 1] = called[rows.words["name"].codes]
    table[c.DATA_AT, 1 : n + 2] = rows.ptr
    # Row 0 has no attributes, so the offsets begin at row 1 with 0.
    table[c.ATTR_AT, 2 : n + 2] = np.cumsum(np.bincount(node, minlength=n))
    io = np.zeros((5, 0), np.int64)
    if extra:
        texts = [text.decode() for text in DEFINITION]
        table[c.ID, n + 1] = int(ids.max(initial=-1)) + 1
        table[c.TYPE, n + 1], table[c.NAME_AT, n + 1] = NodeType.METADATA_NODE, strings.add(texts[0])
        table[c.DATA_AT :, n + 2] = table[c.DATA_AT :, n + 1]
        io = np.array([[n + 1], [0], *([strings.add(text)] for text in (groups, *texts[1:]))])
    columns = Columns(
        frame_ptr=np.array([0, n + 1 + extra]), unknown=np.zeros(1, np.int64), rows=table,
        ctrl=np.zeros(0, np.int64), data=ids[rows.parent].astype(np.int64), attr_name=name_of[order].astype(np.int32),
        attr_kind=kinds[name_of[order]].astype(np.uint8), attr_value=value[order].astype(np.int64),
        list_ptr=np.array(ends, np.int64), items=np.array(items, np.int64),
        string_ptr=np.array(strings.ends, np.int64), pool=np.frombuffer(bytes(strings.pool), np.uint8), io=io,
        docs=np.zeros((2, 0), np.int64), names=[entry[0] for entry in entries],
    )  # fmt: skip
    return Graph(columns, 0, source)
