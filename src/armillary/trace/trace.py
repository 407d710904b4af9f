"""A workload: the graphs of all ranks, each distinct one stored once, and the process groups that they define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.json_text import json_within
from armillary.base.units import whole
from armillary.trace.columns import NodeType
from armillary.trace.graph import Graph
from armillary.trace.grid import RankGrid
from armillary.trace.node import Node, graph_of
from armillary.trace.structure import Diagnostic

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
        # One graph for all ranks, as generated traces have it, is equal to nothing else.
        if len(self.graphs) == 1:
            return np.zeros_like(self.rank_graph), [0]
        from armillary.trace.partition import partition

        of_graph, examples = partition(self.graphs, ignore)
        return of_graph[self.rank_graph], examples


def _graph(nodes: Graph | Iterable[Node], source: str) -> Graph:
    return nodes if isinstance(nodes, Graph) else graph_of(nodes, source)


WORLD = 0
"""Number of the group of all ranks, which needs no definition."""

RANK, WORLD_SIZE = "rank", "world_size"
"""Metadata of a graph that was recorded alone: its rank, and the number of ranks of the run."""

Groups = dict[int, NDArray[np.int64]]
"""Ranks of every group, in its order, by its number."""


def read_groups(
    trace: Trace, given: Mapping[int, tuple[int, ...]] | None = None
) -> tuple[Groups, list[Diagnostic]]:
    """Return the groups of a trace: those of its METADATA nodes (as PyTorch writes them) and those given.

    A definition is a JSON list of ``{"pg_name": "<number>", "ranks": [...]}`` in a list of one text; no
    ranks mean all. What cannot be read, or contradicts another definition, is a finding.
    """
    # A trace may hold some ranks only: its groups name ranks of the whole run.
    world = tuple(range(max([trace.n_ranks, *(recorded_world(graph) for graph in trace.graphs)])))
    groups: dict[int, tuple[int, ...]] = {WORLD: world, **(given or {})}
    findings = []
    seen: set[str] = set()
    for graph in trace.graphs:
        for position, text in definitions(graph):
            # All ranks of a run usually repeat the same long text.
            if text in seen:
                continue
            seen.add(text)
            try:
                define(groups, text, world)
            except ValueError as error:
                findings.append(_finding(graph, position, error))
    return {number: np.array(ranks, dtype=np.int64) for number, ranks in groups.items()}, findings


def recorded_world(graph: Graph) -> int:
    """Return the number of ranks of the run in which a graph was recorded, 0 if the graph does not record it."""
    return _metadata_number(graph, WORLD_SIZE) or 0


def recorded_rank(graph: Graph) -> int | None:
    """Return the rank on which a graph was recorded, None if the graph does not record it."""
    return _metadata_number(graph, RANK)


def missing_ranks(trace: Trace) -> str:
    """Return a text that says how many ranks of its run a trace lacks, "" if it is complete."""
    world = max((recorded_world(graph) for graph in trace.graphs), default=0)
    ranks = [recorded_rank(graph) for graph in trace.graphs]
    # A trace extrapolated from one rank repeats that rank's metadata on every rank.
    apart = trace.grid is None and len(set(ranks)) == trace.n_ranks
    if not apart or world <= trace.n_ranks:
        return ""
    shown = f"rank {', '.join(map(str, ranks[:4]))}{'…' if len(ranks) > 4 else ''}"
    return f"the trace has {trace.n_ranks} of the {world} ranks of its run ({shown})"


def check_whole(trace: Trace) -> None:
    """Check that a trace has all ranks of the run in which it was recorded.

    Raises:
        InputError: some are missing, so that collectives and messages lack members.
    """
    if missing := missing_ranks(trace):
        raise InputError(
            f"{trace.graphs[0].source}: {missing}, whose communication needs all; expected a machine that replays "
            "(run --pytorch without a machine), the trace of all ranks, or what `armillary trace extrapolate "
            "--from-one-rank` makes of one (run --pytorch … --from-one-rank does it itself)"
        )


def _metadata_number(graph: Graph, name: str) -> int | None:
    found = next((value for key, _, value in graph.metadata if key == name), None)
    # `type`, not isinstance: a bool is no rank.
    return found if type(found) is int and 0 <= found < 1 << 31 else None


def definitions(graph: Graph) -> Iterator[tuple[int, str]]:
    """Yield the position and the text of every node that defines groups."""
    for position in np.flatnonzero(graph.types == NodeType.METADATA_NODE).tolist():
        text = graph.io_inputs(position)
        if "pg_name" in text:
            yield position, text


def define(groups: dict[int, tuple[int, ...]], text: str, world: tuple[int, ...]) -> None:
    """Add the groups that `text` defines.

    Raises:
        ValueError: it cannot be read, names ranks outside of `world`, or contradicts another definition.
    """
    try:
        found = _parse(text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"process groups cannot be read ({error}); expected a JSON list of "
            '{"pg_name": "<number>", "ranks": [...]}'
        ) from error
    for number, ranks in found:
        # PyTorch lists the default group, too, whose members are known.
        if number == WORLD:
            continue
        members = ranks or world
        outside = [rank for rank in members if not 0 <= rank < len(world)]
        if outside:
            raise ValueError(
                f"group {number} has rank {outside[0]}; expected ranks from 0 to {len(world) - 1}"
            )
        if len(set(members)) < len(members):
            raise ValueError(f"group {number} is {list(members)[:8]}; expected each rank once")
        if groups.setdefault(number, members) != members:
            raise ValueError(
                f"group {number} is {list(members)[:8]}, but another definition says {list(groups[number])[:8]}; "
                "expected the same members everywhere"
            )


def _finding(graph: Graph, position: int, error: Exception) -> Diagnostic:
    return Diagnostic(
        "error",
        position,
        f"node {int(graph.ids[position])} '{graph.name(position)}' defines process groups that cannot be used: {error}",
    )


def _parse(text: str) -> list[tuple[int, tuple[int, ...]]]:
    found = []
    # PyTorch writes the JSON as the only text of a list: ['[…]'].
    for group in json_within(text[2:-2]):
        name, ranks = group["pg_name"], group["ranks"]
        number = whole(str(name))
        if number is None:
            raise ValueError(f"pg_name is {name!r}, expected a number")
        if not isinstance(ranks, list) or any(type(rank) is not int for rank in ranks):
            raise ValueError(f"the ranks of group {number} are {ranks!r}, expected a list of ranks")
        found.append((number, tuple(ranks)))
    return found
