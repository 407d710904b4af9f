"""Build the graphs of all ranks from one rank's nodes: they differ only in group numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from armillary.base.errors import InputError
from armillary.convert.groups import Groups
from armillary.convert.text.kinds import Scope
from armillary.convert.text.layout import Layout
from armillary.trace import Graph, GraphBuilder, Node, Trace, graph_of

_MOST_VALUES = 2**29


def trace_of(
    nodes: Sequence[Node], scopes: Sequence[Scope], layout: Layout, source: str
) -> tuple[Trace, dict[int, tuple[int, ...]]]:
    """Return the trace in which all ranks run `nodes`, each in its own groups, and the groups by number.

    Args:
        nodes: of any rank; ids from 1.
        scopes: participants of each collective that has a ``pg_name``, in the order of `nodes`.
        layout: the groups.
        source: name of the graphs in messages.

    Raises:
        InputError: the graphs are too many and too big.
    """
    # All collectives span all ranks, or name network dimensions: every rank has the same graph.
    if not scopes:
        return Trace.replicate(graph_of(nodes, source), layout.npus), {}
    groups = Groups(layout.npus)
    used = sorted(set(scopes))
    of_rank = np.empty((len(used), layout.npus), np.int64)
    for row, scope in enumerate(used):
        first = layout.first(scope)
        for leader in np.unique(first).tolist():
            of_rank[row, first == leader] = groups.number(layout.members(scope, leader))
    head = GraphBuilder()
    groups.metadata(head)
    template = graph_of([*head.nodes, *nodes], source)
    # A column is the group numbers of a rank; ranks of equal columns share a graph.
    numbers, like, rank_graph = np.unique(of_rank, axis=1, return_index=True, return_inverse=True)
    if len(like) * len(template.columns.attr_value) > _MOST_VALUES:
        raise InputError(
            f"{source}: {len(like)} graphs of {template.n_nodes} nodes, expected fewer ranks, layers or passes, or "
            "--dims, with which all ranks share one graph"
        )
    row_of = np.searchsorted(used, scopes)
    graphs = _with_groups(template, numbers.T[:, row_of], [f"{source}, rank {rank}" for rank in like])
    return Trace(graphs, rank_graph.ravel().astype(np.int32)), groups.ranks


def _with_groups(
    template: Graph, numbers: np.ndarray[tuple[int, int], np.dtype[np.int64]], sources: list[str]
) -> tuple[Graph, ...]:
    """Return copies of `template` whose k-th ``pg_name`` is ``numbers[copy, k]``; they share all other columns."""
    columns = template.columns
    # All group numbers as texts, appended once to the strings, so that a copy needs new attribute values alone.
    texts = [str(number).encode() for number in range(int(numbers.max()) + 1)]
    ends = columns.string_ptr[-1] + np.cumsum([len(text) for text in texts])
    shared = replace(
        columns,
        string_ptr=np.concatenate([columns.string_ptr, ends]),
        pool=np.concatenate([columns.pool, np.frombuffer(b"".join(texts), np.uint8)]),
    )
    base = len(columns.string_ptr) - 1
    at = np.flatnonzero(columns.attr_name == columns.name_code["pg_name"])
    graphs = []
    for mine, source in zip(numbers, sources, strict=True):
        value = columns.attr_value.copy()
        value[at] = base + mine
        graphs.append(Graph(replace(shared, attr_value=value), 0, source))
    return tuple(graphs)
