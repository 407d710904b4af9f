"""Graphs built from templates: fragments that occur many times, packed once and copied as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from armillary.trace import columns as c
from armillary.trace.columns import VERSION, Columns
from armillary.trace.graph import Graph, distinct
from armillary.trace.node import Attribute, Node, Packer

Ints = NDArray[np.int64]
LABEL = -1
"""Value of an int32 attribute that every placement of a template fills in by itself."""


@dataclass(eq=False)
class Template:
    """Nodes with dependencies among them, and ports: named inputs that each placement connects to its own nodes."""

    nodes: list[Node] = field(default_factory=list)
    ports: dict[str, list[int]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        kind: int,
        attrs: Iterable[Attribute],
        after: Iterable[int] = (),
        ports: Iterable[str] = (),
    ) -> int:
        """Add a node that depends on nodes of the template and on what `ports` connect; return its index."""
        index = len(self.nodes)
        self.nodes.append(Node(index, name, kind, (), tuple(after), attrs=list(attrs)))
        for port in ports:
            self.ports.setdefault(port, []).append(index)
        return index


class GraphOfTemplates:
    """The graph of one rank while templates are placed; the k-th node placed has id k."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.n_nodes = 0
        self._packer = Packer(source)
        self._packer.add(Node(name=VERSION), "GlobalMetadata")
        self._first: dict[int, int] = {}
        self._templates: list[Template] = []
        """The packed templates; a reference keeps their `id()` from being reused."""
        self._placed: list[tuple[int, int, int]] = []
        """First frame, first id and number of nodes of every placement."""
        self._labels: dict[str, list[int]] = {}
        self._children: list[int] = []
        self._parents: list[int] = []

    def place(self, template: Template, ports: Mapping[str, Sequence[int]], labels: Mapping[str, int]) -> int:
        """Place a template and return the id of its first node.

        Args:
            template: What to place.
            ports: By port, ids of the nodes that its nodes wait for; a port left out waits for nothing.
            labels: Values of the attributes that are `LABEL` in the template; every placement has the same ones.
        """
        # Packed at the first placement; later placements copy the packed frames.
        if id(template) not in self._first:
            self._first[id(template)] = len(self._packer.rows)
            self._templates.append(template)
            for each in template.nodes:
                self._packer.add(each, f"node '{each.name}'")
        base = self.n_nodes
        for port, parents in ports.items():
            # Edges through ports differ between placements, so they are kept apart from the packed ones.
            for node in template.ports.get(port, ()):
                self._children += [base + node] * len(parents)
                self._parents += parents
        self._placed.append((self._first[id(template)], base, len(template.nodes)))
        for name, value in labels.items():
            self._labels.setdefault(name, []).append(value)
        self.n_nodes += len(template.nodes)
        return base

    def graph(self) -> Graph:
        """Return the graph."""
        packed = self._packer.columns()
        # Everything below is one gather: node k is a copy of packed frame `frames[k]`.
        placed = np.array(self._placed, np.int64).reshape(-1, 3)
        base = np.repeat(placed[:, 1], placed[:, 2])
        frames = np.arange(self.n_nodes) - base + np.repeat(placed[:, 0], placed[:, 2])
        data_ptr, at = _gather(packed.rows[c.DATA_AT], frames)
        counts = np.diff(data_ptr)
        child = np.concatenate(
            [np.repeat(np.arange(self.n_nodes), counts), np.array(self._children, np.int64)]
        )
        # Inside a template a dependency is an index; the placement's first id turns it into an id.
        parent = np.concatenate(
            [packed.data[at] + np.repeat(base, counts), np.array(self._parents, np.int64)]
        )
        # Sorts by child, and drops edges that both a template and a port give.
        child, parent = np.divmod(distinct(child * max(self.n_nodes, 1) + parent), max(self.n_nodes, 1))
        attr_ptr, at = _gather(packed.rows[c.ATTR_AT], frames)
        attr_name, attr_value = packed.attr_name[at], packed.attr_value[at]
        for name, values in self._labels.items():
            # Attribute i belongs to the last node whose attributes begin at or before i.
            which = np.flatnonzero((attr_name == packed.name_code.get(name, -1)) & (attr_value == LABEL))
            of_node = np.repeat(np.array(values, np.int64), placed[:, 2])
            attr_value[which] = of_node[np.searchsorted(attr_ptr, which, side="right") - 1]
        rows = np.zeros((c.ROW_FIELDS, self.n_nodes + 2), np.int64)
        # Frame 0 is the GlobalMetadata: no dependencies and no attributes, hence offsets of 0.
        rows[: c.CTRL_AT, 0] = packed.rows[: c.CTRL_AT, 0]
        rows[: c.CTRL_AT, 1:-1] = packed.rows[: c.CTRL_AT, frames]
        rows[c.ID, 1:-1] = np.arange(self.n_nodes)
        rows[c.DATA_AT, 1:] = np.concatenate([[0], np.cumsum(np.bincount(child, minlength=self.n_nodes))])
        rows[c.ATTR_AT, 1:] = attr_ptr
        columns = Columns(
            frame_ptr=np.array([0, self.n_nodes + 1], np.int64), unknown=packed.unknown, rows=rows,
            ctrl=packed.ctrl, data=parent, attr_name=attr_name, attr_kind=packed.attr_kind[at],
            attr_value=attr_value, list_ptr=packed.list_ptr, items=packed.items, string_ptr=packed.string_ptr,
            pool=packed.pool, io=packed.io, docs=packed.docs, names=packed.names,
        )  # fmt: skip
        return Graph(columns, 0, self.source)


def _gather(offsets: Ints, frames: Ints) -> tuple[Ints, Ints]:
    """Return CSR offsets (frames + 1) of these frames' entries, and the indices of the entries."""
    counts = offsets[frames + 1] - offsets[frames]
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # Output entry j of frame i is input entry offsets[frames[i]] + (j - ptr[i]).
    at = np.arange(ptr[-1]) + np.repeat(offsets[frames] - ptr[:-1], counts)
    return ptr, at
