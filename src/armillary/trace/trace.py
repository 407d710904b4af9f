"""A workload: the graphs of all ranks, each distinct one stored once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.trace.graph import Graph
from armillary.trace.grid import RankGrid
from armillary.trace.node import Node, graph_of

IGNORED = ("comm_src", "comm_dst", "pg_name", "comm_splits")
"""Attributes that usually differ between ranks that otherwise do the same."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Rank r runs ``graphs[rank_graph[r]]``; with a `grid`, the graphs name groups and peers by its rules.

    `about` holds facts about the whole trace from its producer, as JSON values; a timeline repeats them in `info`.
    Trace files do not store them.
    """

    graphs: tuple[Graph, ...]
    rank_graph: NDArray[np.int32]
    grid: RankGrid | None = None
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the grid and the trace have the same number of ranks.

        Raises:
            InputError: they differ.
        """
        if self.grid is not None and self.grid.n_ranks != len(self.rank_graph):
            raise InputError(
                f"the grid has {self.grid.n_ranks} ranks; expected {len(self.rank_graph)}, one per rank of the trace"
            )

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.rank_graph)

    @property
    def total_nodes(self) -> int:
        """Number of nodes of all ranks together."""
        # Exact integers of Python: a million ranks of large graphs overflow no sum.
        ranks = np.bincount(self.rank_graph, minlength=len(self.graphs)).tolist()
        return sum(count * graph.n_nodes for count, graph in zip(ranks, self.graphs, strict=True))

    def graph(self, rank: int) -> Graph:
        """Return the graph of `rank`; with a grid it holds rules, see `expand.rank_graph`."""
        return self.graphs[int(self.rank_graph[rank])]

    @classmethod
    def replicate(cls, nodes: Graph | Iterable[Node], ranks: int) -> Trace:
        """Return the trace in which `ranks` ranks all run the same graph.

        Raises:
            InputError: `ranks` is not a positive number.
        """
        if ranks < 1:
            raise InputError(f"Trace.replicate: ranks is {ranks}, expected at least 1")
        return cls((_graph(nodes, "every rank"),), np.zeros(ranks, dtype=np.int32))

    @classmethod
    def from_ranks(
        cls, ranks: Mapping[int, Graph | Iterable[Node]] | Sequence[Graph | Iterable[Node]]
    ) -> Trace:
        """Return the trace in which every rank has a graph of its own; equal objects are stored once.

        Args:
            ranks: graphs (or nodes) by rank, or in rank order; ranks must be 0, 1, 2, …

        Raises:
            InputError: there is no rank, or one is missing.
        """
        given = dict(ranks) if isinstance(ranks, Mapping) else dict(enumerate(ranks))
        if not given:
            raise InputError("Trace.from_ranks: no rank is given, expected at least rank 0")
        for rank in range(len(given)):
            if rank not in given:
                raise InputError(
                    f"Trace.from_ranks: rank {rank} is missing, expected ranks 0 to {len(given) - 1}, "
                    f"found {sorted(given)[-1]}"
                )
        index: dict[int, int] = {}
        graphs: list[Graph] = []
        rank_graph = np.empty(len(given), dtype=np.int32)
        for rank in range(len(given)):
            nodes = given[rank]
            # By identity, not by value: comparing contents is what `structures` is for.
            if id(nodes) not in index:
                index[id(nodes)] = len(graphs)
                graphs.append(_graph(nodes, f"rank {rank}"))
            rank_graph[rank] = index[id(nodes)]
        return cls(tuple(graphs), rank_graph)

    def structures(self, ignore: Sequence[str] = IGNORED) -> tuple[NDArray[np.int32], list[int]]:
        """Partition the ranks by the structure of their graphs.

        Two graphs have the same structure if, with nodes sorted by id, they have the same node
        types, durations, dependencies and attributes, apart from the attributes in `ignore` and
        blind to id values, node names, start times, GlobalMetadata and IOInfo (except that of
        metadata nodes that do not define groups). The comparison is exact.

        Returns:
            The structure of every rank, int32 (n_ranks,), and the index of one graph per structure.
        """
        from armillary.trace.structure import partition

        of_graph, examples = partition(self.graphs, ignore)
        return of_graph[self.rank_graph], examples


def _graph(nodes: Graph | Iterable[Node], source: str) -> Graph:
    return nodes if isinstance(nodes, Graph) else graph_of(nodes, source)
