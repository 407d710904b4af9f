"""Facts that anybody can read from a trace: who communicates with whom, how much, and the nodes of a rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base.units import whole
from armillary.trace.axis_sets import AxisSets, routes_of
from armillary.trace.columns import CollectiveType, NodeType
from armillary.trace.graph import Graph
from armillary.trace.trace import WORLD, Trace, read_groups

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Circle:
    """Groups of ranks of one size and stride that run collectives together.

    Attributes:
        size: Members.
        stride: Distance of the first two members in rank numbers.
        calls: Collectives of a rank, on average over all ranks.
        sizes: Bytes of a rank by collective type, on average over all ranks.
        largest: Bytes of the largest collective.
    """

    size: int
    stride: int
    calls: float
    sizes: dict[int, float]
    largest: int

    @property
    def bytes(self) -> float:
        """Bytes of a rank, over all collective types."""
        return sum(self.sizes.values())


@dataclass(frozen=True, eq=False)
class Facts:
    """A trace as an attacker sees it.

    Attributes:
        trace: The trace.
        ranks: How many ranks run each graph, (graphs,).
        circles: Groups by stride and size.
        stages: Number of ranks that messages join and that run different graphs (a pipeline); 1: there are none.
        ring: Number of ranks that messages join and that run the same graph; 1: there are none.
    """

    trace: Trace
    ranks: I64
    circles: tuple[Circle, ...]
    stages: int
    ring: int


def facts_of(trace: Trace) -> Facts:
    """Return the facts of a trace.

    Raises:
        InputError: it cannot be read.
    """
    ranks = np.bincount(trace.rank_graph, minlength=len(trace.graphs))
    return Facts(trace, ranks, _circles(trace, ranks), *_joined(trace))


def _circles(trace: Trace, ranks: I64) -> tuple[Circle, ...]:
    members = _members(trace)
    found: dict[tuple[int, int], tuple[list[float], dict[int, float], list[int]]] = {}
    for graph, count in zip(trace.graphs, ranks.tolist(), strict=True):
        at = graph.types == NodeType.COMM_COLL_NODE
        codes, names = graph.strings("pg_name")
        operation, size = graph.ints("comm_type", -1), graph.ints("comm_size")
        for code in np.unique(codes[at]).tolist():
            mine = at & (codes == code)
            # A node without a pg_name (code -1) is for all ranks.
            calls, sizes, largest = found.setdefault(members(names[code] if code >= 0 else ""), ([], {}, []))
            calls.append(count * int(mine.sum()) / trace.n_ranks)
            largest.append(int(size[mine].max()))
            for kind in np.unique(operation[mine]).tolist():
                total = float(size[mine & (operation == kind)].sum()) * count / trace.n_ranks
                sizes[kind] = sizes.get(kind, 0.0) + total
    return tuple(
        Circle(*key, sum(calls), sizes, max(largest))
        for key, (calls, sizes, largest) in sorted(found.items())
    )


def _members(trace: Trace) -> Callable[[str], tuple[int, int]]:
    """Return a function from the name of a group to (members, stride)."""
    if trace.grid is not None:
        axis_sets = AxisSets(trace)

        def of_axis_set(name: str) -> tuple[int, int]:
            table = axis_sets.all[axis_sets.find(name)].members
            return table.shape[1], int(table[0, 1] - table[0, 0]) if table.shape[1] > 1 else 0

        return of_axis_set
    groups, _ = read_groups(trace)

    def of_group(name: str) -> tuple[int, int]:
        # Names that are no number, or of no listed group, mean all ranks.
        ranks = groups.get(whole(name) or WORLD, groups[WORLD])
        return len(ranks), int(ranks[1] - ranks[0]) if len(ranks) > 1 else 0

    return of_group


def _joined(trace: Trace) -> tuple[int, int]:
    """Return the largest number of ranks that messages join: of different graphs (stages), and of the same (a ring)."""
    # Pipeline stages run graphs of different structure and pass messages on; ranks of a ring (context
    # parallelism) run the same. Where both exist, the parts that messages join are stages.
    alike, _ = trace.structures()
    pairs: set[tuple[int, int]] = set()
    if trace.grid is not None:
        for number, graph in enumerate(trace.graphs):
            mine = np.flatnonzero(trace.rank_graph == number)
            for route in routes_of(graph, trace.grid)[1] if len(mine) else ():
                pairs |= set(zip(mine.tolist(), route.peers(trace.grid, mine).tolist(), strict=True))
    else:
        for rank in range(trace.n_ranks):
            graph = trace.graph(rank)
            send = graph.types == NodeType.COMM_SEND_NODE
            pairs |= {(rank, peer) for peer in np.unique(graph.ints("comm_dst", rank)[send]).tolist()}
    different = {(a, b) for a, b in pairs if alike[a] != alike[b]}
    stages = _largest(trace.n_ranks, pairs) if different else 1
    same = {(a, b) for a, b in pairs if alike[a] == alike[b]} if not different else set()
    return stages, _largest(trace.n_ranks, same)


def _largest(n: int, pairs: set[tuple[int, int]]) -> int:
    """Return the size of the largest connected component of the ranks that `pairs` join."""
    label = np.arange(n)
    table = np.array(sorted((a, b) for a, b in pairs if 0 <= a < n and 0 <= b < n), np.int64).reshape(-1, 2)
    while len(table):
        # Label propagation: both ends of a pair take the smaller label until nothing changes.
        least = np.minimum(label[table[:, 0]], label[table[:, 1]])
        after = label.copy()
        np.minimum.at(after, table[:, 0], least)
        np.minimum.at(after, table[:, 1], least)
        if np.array_equal(after, label):
            break
        label = after
    return int(np.bincount(label).max())


def work_of(graph: Graph) -> tuple[I64, I64]:
    """Return operations and bytes of the kernels of a graph."""
    kernels = graph.types == NodeType.COMP_NODE
    return graph.ints("num_ops")[kernels], graph.ints("tensor_size")[kernels]


OPERATIONS = tuple(
    int(kind)
    for kind in (
        CollectiveType.ALL_REDUCE,
        CollectiveType.ALL_GATHER,
        CollectiveType.REDUCE_SCATTER,
        CollectiveType.ALL_TO_ALL,
    )
)
"""Collective types that training uses."""
