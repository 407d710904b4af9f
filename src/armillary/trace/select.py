"""Selection of nodes of a trace by id, name, type, start time and dependencies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, nearest, one_of
from armillary.trace import columns as c
from armillary.trace.columns import CollectiveType, NodeType, intern
from armillary.trace.graph import Graph
from armillary.trace.reach import ancestors, around, descendants
from armillary.trace.trace import Trace

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Selection:
    """Criteria for nodes: a node must match one value of every criterion that is not empty."""

    ids: Sequence[tuple[int, int]] = ()
    """Ranges of ids, both ends included."""
    names: Sequence[str] = ()
    """Regular expressions that are found somewhere in the name."""
    types: Sequence[str] = ()
    """Node types (``COMP_NODE`` or ``comp``) and collectives (``ALL_REDUCE`` or ``all-reduce``)."""
    first_ns: float | None = None
    """Earliest start time."""
    last_ns: float | None = None
    """Latest start time."""
    around: Sequence[int] = ()
    """Ids; these nodes and all within `depth` dependencies of them, in either direction."""
    depth: int = 1
    ancestors_of: Sequence[int] = ()
    """Ids; these nodes and all that they wait for."""
    descendants_of: Sequence[int] = ()
    """Ids; these nodes and all that wait for them."""

    def masks(self, trace: Trace) -> list[Mask]:
        """Return for every distinct graph which nodes are chosen.

        Raises:
            InputError: no node is, no graph has an id, a name is no regular expression, or a type is unknown.
        """
        for ident in (*self.around, *self.ancestors_of, *self.descendants_of):
            # np.uint64 of a number outside would raise OverflowError.
            known = 0 <= ident < 2**64
            if not known or not any((graph.ids == np.uint64(ident)).any() for graph in trace.graphs):
                highest = max((int(graph.ids.max()) for graph in trace.graphs if graph.n_nodes), default=0)
                raise InputError(f"{_sources(trace)}: no node has id {ident}, expected one up to {highest}")
        patterns = [_pattern(text) for text in self.names]
        kinds = [_kind(text) for text in self.types]
        found = [self._mask(graph, patterns, kinds) for graph in trace.graphs]
        if not any(mask.any() for mask in found):
            raise InputError(f"{_sources(trace)}: no node is selected, expected at least one")
        return found

    def _mask(
        self, graph: Graph, patterns: list[re.Pattern[str]], kinds: list[NodeType | CollectiveType]
    ) -> Mask:
        ids, start = graph.ids, graph.start_micros.astype(np.float64) * 1000
        chosen = np.ones(graph.n_nodes, dtype=np.bool_)
        if self.ids:
            chosen &= _any(graph, [(ids >= np.uint64(a)) & (ids <= np.uint64(b)) for a, b in self.ids])
        if patterns:
            chosen &= _named(graph, patterns)
        if kinds:
            chosen &= _any(graph, [_of_kind(graph, kind) for kind in kinds])
        if self.first_ns is not None:
            chosen &= start >= self.first_ns
        if self.last_ns is not None:
            chosen &= start <= self.last_ns
        reaches: list[tuple[Sequence[int], Callable[[Mask], Mask]]] = [
            (self.around, lambda nodes: around(graph, nodes, self.depth)),
            (self.ancestors_of, lambda nodes: ancestors(graph, nodes)),
            (self.descendants_of, lambda nodes: descendants(graph, nodes)),
        ]
        for roots, reach in reaches:
            if roots:
                chosen &= reach(np.isin(ids, np.array(roots, dtype=np.uint64)))
        return chosen


def first_start(trace: Trace) -> int:
    """Return the earliest start time of all nodes in ns."""
    return min((int(graph.start_micros.min()) * 1000 for graph in trace.graphs if graph.n_nodes), default=0)


def _sources(trace: Trace) -> str:
    more = f" and {len(trace.graphs) - 1} more" if len(trace.graphs) > 1 else ""
    return f"{trace.graphs[0].source}{more}"


def _any(graph: Graph, masks: list[Mask]) -> Mask:
    return np.logical_or.reduce(masks, axis=0) if masks else np.zeros(graph.n_nodes, dtype=np.bool_)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"name '{text}' is no regular expression: {error}") from error


def _kind(text: str) -> NodeType | CollectiveType:
    word = text.upper().replace("-", "_")
    known: dict[str, NodeType | CollectiveType] = {kind.name: kind for kind in (*NodeType, *CollectiveType)}
    # Without the suffix: `comp` and `comm_coll` are what people type.
    known |= {kind.name.removesuffix("_NODE"): kind for kind in NodeType}
    if word not in known:
        raise InputError(f"type '{text}' is unknown, expected {one_of(known)}{nearest(word, known)}")
    return known[word]


def _of_kind(graph: Graph, kind: NodeType | CollectiveType) -> Mask:
    if isinstance(kind, NodeType):
        return np.asarray(graph.types == kind)
    return np.asarray((graph.types == NodeType.COMM_COLL_NODE) & (graph.ints("comm_type", -1) == kind))


def _named(graph: Graph, patterns: list[re.Pattern[str]]) -> Mask:
    names = graph.columns.rows[c.NAME_AT, graph.first : graph.first + graph.n_nodes]
    # Patterns run once per distinct name.
    codes, first = intern(graph.columns, names)
    texts = [raw.decode() for raw in graph.columns.raws(first)]
    chosen = [any(pattern.search(text) for pattern in patterns) for text in texts]
    return np.array(chosen, dtype=np.bool_)[codes]
