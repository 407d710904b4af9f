"""Graphs made of templates: fragments that occur many times, packed once and copied as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from armillary.trace import columns as c
from armillary.trace.columns import VERSION, Columns
from armillary.trace.graph import Graph, distinct
from armillary.trace.node import Attribute, Node, Packer
from armillary.trace.structure import children, owners

Ints = NDArray[np.int64]
T = TypeVar("T", bound=np.signedinteger[Any])
V = TypeVar("V")
DURATION = "duration_ns"
LABEL = -1
"""Value of an int32 attribute that every placement of a template fills in by itself."""


@dataclass(eq=False)
class Template:
    """Nodes with dependencies among them, and ports: named inputs that each placement connects to its own nodes."""

    nodes: list[Node] = field(default_factory=list)
    ports: dict[str, list[int]] = field(default_factory=dict)
    multiples: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Of nodes whose ``duration_ns`` is a sum of multiples of times: how many of each, see `of_times`."""

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


@dataclass(eq=False)
class Placement:
    """Which templates were placed in which order, and what their nodes wait for.

    Graphs share one where their templates differ in nothing but the attributes of nodes, as those of ranks with the
    same tasks and other loads do; what follows from it alone is computed once for all of them.
    """

    copies: Ints
    """Which packed node each node is a copy of, int64 (n_nodes,)."""
    placed: Ints
    """First frame, first id and number of nodes of every placement, (placements, 3)."""
    edges: tuple[Ints, Ints]
    """Children and parents of the dependencies through ports."""
    labels: dict[str, Ints]
    """Values of labels, by name, (placements)."""
    inside: tuple[Ints, Ints]
    """Dependencies inside templates: CSR offsets by packed frame, and indices in the template."""

    @cached_property
    def parents(self) -> tuple[Ints, NDArray[np.int32]]:
        """See `Graph.parents`."""
        count = len(self.copies)
        n = max(count, 1)
        ptr, at = gather(self.inside[0], self.copies + 1)
        # Inside a template a dependency is an index; the placement's first id turns it into an id.
        base = np.repeat(self.placed[:, 1], self.placed[:, 2])
        inside = np.repeat(np.arange(count) * n + base, np.diff(ptr)) + self.inside[1][at]
        # Sorts by child, and drops edges that both a template and a port give.
        child, parent = np.divmod(distinct(np.concatenate([inside, self.edges[0] * n + self.edges[1]])), n)
        ptr = np.concatenate([[0], np.cumsum(np.bincount(child, minlength=count))])
        return ptr, parent.astype(np.int32)

    @cached_property
    def children(self) -> tuple[Ints, Ints]:
        """See `structure.children`."""
        ptr, parent = self.parents
        return children(parent, owners(ptr), len(self.copies))


class PackedGraph(Graph):
    """The nodes of templates, each once, without dependencies: what all copies of a node share, also in several graphs.

    Nodes are in the order of their first copies, those of the first graph first, so that what a reader finds first here
    is what it would find first in the graphs of the copies.
    """

    def __init__(self, templates: Sequence[Template], parts: Sequence[tuple[str, Ints]]) -> None:
        """Pack templates.

        Args:
            templates: In the order of their first placements.
            parts: Of every graph its source, and which packed node each of its nodes is a copy of.
        """
        packer = Packer(parts[0][0])
        packer.add(Node(name=VERSION), "GlobalMetadata")
        for template in templates:
            for each in template.nodes:
                packer.add(each, f"node '{each.name}'")
        super().__init__(packer.columns(), 0, parts[0][0])
        self.templates, self.parts = templates, parts
        self.other: PackedGraph | None = None
        """The nodes that these differ from in durations only, see `of_times`."""

    @cached_property
    def times(self) -> Ints:
        """How often each node was placed, int64 (n_nodes,)."""
        return np.bincount(np.concatenate([copies for _, copies in self.parts]), minlength=self.n_nodes)

    @property
    def ids(self) -> NDArray[np.uint64]:
        """Node ids, uint64 (n_nodes,): places among the packed nodes."""
        return np.arange(self.n_nodes, dtype=np.uint64)

    @cached_property
    def _multiples(self) -> tuple[Ints, Ints]:
        """Of nodes with multiples of times the attribute with the duration, and these multiples, (nodes, times)."""
        first = 0
        found: dict[int, tuple[int, ...]] = {}
        for template in self.templates:
            found |= {first + node: each for node, each in template.multiples.items()}
            first += len(template.nodes)
        columns = self.columns
        _, at = gather(columns.rows[c.ATTR_AT], np.array([*found], np.int64) + 1)
        which = columns.attr_name[at] == columns.name_code.get(DURATION, -1)
        return at[which], np.array([*found.values()], np.int64)

    def of_times(self, times: Sequence[int]) -> PackedGraph:
        """Return nodes with other durations where these are sums of multiples of times."""
        at, multiples = self._multiples
        found, value = copy(self), self.columns.attr_value.copy()
        if len(at):
            value[at] = multiples @ np.array(times, np.int64)
        found.columns = replace(self.columns, attr_value=value)
        found.kept = {key: each for key, each in self.kept.items() if DURATION not in key}
        found.other = self.other or self
        return found

    @cached_property
    def _parents(self) -> tuple[Ints, NDArray[np.int32], list[tuple[int, int]]]:
        return np.zeros(self.n_nodes + 1, np.int64), np.zeros(0, np.int32), []

    def node(self, position: int) -> str:
        """Return the text by which messages identify the first copy of a node."""
        name = self.name(position)
        for source, copies in self.parts:
            if len(at := np.flatnonzero(copies == position)):
                return f"{source}: node {int(at[0])} '{name}'"
        return f"{self.source}: node '{name}'"


class PlacedGraph(Graph):
    """A graph of placed templates: every node is a copy of a packed one, but for its id, labels and dependencies.

    What readers ask for is read from the packed nodes, which are few, and copied; `columns` are made on first use.

    Attributes:
        packed: The packed nodes; graphs that were placed together share them.
        placement: Where they were placed.
        copies: Which packed node each node is a copy of, int64 (n_nodes,).
    """

    def __init__(self, packed: PackedGraph, placement: Placement, source: str) -> None:
        self.packed, self.placement, self.copies = packed, placement, placement.copies
        self.first, self.index, self.source, self.n_nodes = 1, 0, source, len(self.copies)
        self.kept = {}

    @cached_property
    def own(self) -> Ints:
        """The packed nodes that this graph has copies of, in the order of first copies, int64."""
        first = np.full(self.packed.n_nodes, self.n_nodes)
        first[self.copies[::-1]] = np.arange(self.n_nodes)[::-1]
        return np.argsort(first, kind="stable")[: int((first < self.n_nodes).sum())]

    def _copied(self, codes: NDArray[T], values: list[V]) -> tuple[NDArray[T], list[V]]:
        """Return codes of packed nodes and their values as those of this graph's nodes, in the order of first use."""
        used = [code for code in dict.fromkeys(codes[self.own].tolist()) if code >= 0]
        if used != list(range(len(values))):
            number = np.full(len(values) + 1, -1, codes.dtype)
            number[used] = np.arange(len(used))
            codes = number[codes]
        return codes[self.copies], [values[code] for code in used]

    @cached_property
    def columns(self) -> Columns:  # type: ignore[override]  # the base class has an attribute of this name
        """The columns of this graph alone."""
        packed, n = self.packed.columns, self.n_nodes
        attr_ptr, at = gather(packed.rows[c.ATTR_AT], self.copies + 1)
        attr_name, attr_value = packed.attr_name[at], packed.attr_value[at]
        for name in self.placement.labels:
            # Attribute i belongs to the last node whose attributes begin at or before i.
            which = np.flatnonzero((attr_name == packed.name_code.get(name, -1)) & (attr_value == LABEL))
            attr_value[which] = self._label(name)[np.searchsorted(attr_ptr, which, side="right") - 1]
        rows = np.zeros((c.ROW_FIELDS, n + 2), np.int64)
        # Frame 0 is the GlobalMetadata: no dependencies and no attributes, hence offsets of 0.
        rows[: c.CTRL_AT, 0] = packed.rows[: c.CTRL_AT, 0]
        rows[: c.CTRL_AT, 1:-1] = packed.rows[: c.CTRL_AT, self.copies + 1]
        rows[c.ID, 1:-1] = np.arange(n)
        ptr, parent = self.parents()
        rows[c.DATA_AT, 1:], rows[c.ATTR_AT, 1:] = ptr, attr_ptr
        return replace(
            packed, frame_ptr=np.array([0, n + 1], np.int64), rows=rows, data=parent.astype(np.int64),
            attr_name=attr_name, attr_kind=packed.attr_kind[at], attr_value=attr_value,
        )  # fmt: skip

    def _label(self, name: str) -> Ints:
        return np.repeat(self.placement.labels[name], self.placement.placed[:, 2])

    @property
    def _parents(self) -> tuple[Ints, NDArray[np.int32], list[tuple[int, int]]]:
        return (*self.placement.parents, [])

    @property
    def ids(self) -> NDArray[np.uint64]:
        """Node ids, uint64 (n_nodes,)."""
        return np.arange(self.n_nodes, dtype=np.uint64)

    @cached_property
    def types(self) -> NDArray[np.int32]:
        """`NodeType` of every node, int32 (n_nodes,)."""
        return self.packed.types[self.copies]

    @property
    def duration_micros(self) -> NDArray[np.uint64]:
        """Durations in microseconds, uint64 (n_nodes,)."""
        return self.packed.duration_micros[self.copies]

    @property
    def attr_names(self) -> list[str]:
        """Attribute names."""
        packed = self.packed.columns
        _, at = gather(packed.rows[c.ATTR_AT], np.sort(self.own) + 1)
        return [self.packed.attr_names[code] for code in dict.fromkeys(packed.attr_name[at].tolist())]

    @cached_property
    def metadata(self) -> list[tuple[str, str, Any]]:
        """GlobalMetadata.attr as (name, kind, value) triples."""
        return self.packed.metadata

    def name_codes(self) -> tuple[Ints, list[str]]:
        """Return the names of all nodes as codes, int64 (n_nodes,), and the distinct names."""
        return self._copied(*self.packed.name_codes())

    def has(self, name: str) -> NDArray[np.bool_]:
        """Return for every node whether it has the attribute, bool (n_nodes,)."""
        return self.packed.has(name)[self.copies]

    def ints(self, name: str, default: int = 0) -> Ints:
        """Return an integer attribute of every node, int64 (n_nodes,); see `AttributeColumns.ints`."""
        found = self.packed.ints(name, default)[self.copies]
        if name not in self.placement.labels:
            return found
        return np.where(self.has(name) & (found == LABEL), self._label(name), found)

    def ints_at(self, at: Ints, name: str, default: int = 0) -> Ints:
        """Return an integer attribute of the nodes `at`, int64 (len(at),); see `ints`."""
        if name in self.placement.labels:
            return self.ints(name, default)[at]
        return self.packed.ints(name, default)[self.copies[at]]

    def strings(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """Return a string attribute: codes int32 (n_nodes,), -1 where absent, and the distinct values."""
        return self._copied(*self.packed.strings(name))

    def int_lists(self, name: str) -> tuple[NDArray[np.int32], list[tuple[int, ...]]]:
        """Return an attribute that is a list of integers: codes int32 (n_nodes,), -1 where absent, and the lists."""
        return self._copied(*self.packed.int_lists(name))


def with_templates(graphs: Sequence[PlacedGraph], others: Mapping[int, Template]) -> list[PlacedGraph]:
    """Return graphs of other templates in the same places.

    Args:
        graphs: Graphs that share their packed nodes.
        others: By the ``id`` of a template of theirs, one with as many nodes, and the same dependencies and ports; what
            is left out stays.
    """
    known = graphs[0].packed
    packed = PackedGraph([others.get(id(each), each) for each in known.templates], known.parts)
    return [PlacedGraph(packed, graph.placement, graph.source) for graph in graphs]


def of_times(graphs: Sequence[PlacedGraph], times: Sequence[int]) -> list[PlacedGraph]:
    """Return graphs with other durations where these are sums of multiples of times.

    Args:
        graphs: Any; all that share their packed nodes do so again.
        times: In ns, in the order of `Template.multiples`.
    """
    packed = {id(graph.packed): graph.packed for graph in graphs}
    found = {key: each.of_times(times) for key, each in packed.items()}
    return [PlacedGraph(found[id(graph.packed)], graph.placement, graph.source) for graph in graphs]


def differ_in_times(one: Sequence[Graph], other: Sequence[Graph]) -> bool:
    """Tell whether graphs are known to differ in nothing but durations, see `of_times`."""
    return len(one) == len(other) and all(
        isinstance(a, PlacedGraph)
        and isinstance(b, PlacedGraph)
        and a.placement is b.placement
        and (a.packed.other or a.packed) is (b.packed.other or b.packed)
        for a, b in zip(one, other, strict=True)
    )


def gather(offsets: Ints, frames: Ints) -> tuple[Ints, Ints]:
    """Return CSR offsets (frames + 1) of these frames' entries, and the indices of the entries."""
    counts = offsets[frames + 1] - offsets[frames]
    ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    # Output entry j of frame i is input entry offsets[frames[i]] + (j - ptr[i]).
    at = np.arange(ptr[-1]) + np.repeat(offsets[frames] - ptr[:-1], counts)
    return ptr, at
