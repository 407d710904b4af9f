"""Composition of several jobs on one machine into one trace of all NPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from armillary.base.errors import InputError, nearest
from armillary.trace.columns import I64, NodeType
from armillary.trace.expand import expand_for
from armillary.trace.graph import Graph
from armillary.trace.join import Edit, Gate, Part, join_graphs
from armillary.trace.trace import WORLD, Groups, Trace, check_whole, read_groups

MOST_NODES = 20_000_000
"""Most nodes of all ranks of a job with a grid for which it is expanded."""
SAME_TAG = 5 * 10**8
"""The engine compares tags modulo this number."""


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """A trace, the NPU of each of its ranks, and when it arrives."""

    name: str
    trace: Trace
    npus: Sequence[int]
    arrival_ns: int = 0


class Place(NamedTuple):
    """Where a rank of a job is in a composed trace: positions `first` to `first + n_nodes` of an NPU's graph."""

    npu: int
    first: int
    n_nodes: int


@dataclass(frozen=True, eq=False)
class Composed:
    """Several jobs as one trace of all NPUs."""

    trace: Trace
    jobs: tuple[PlacedJob, ...]
    """Without grids."""
    groups: dict[int, tuple[int, ...]]
    """NPUs of every group by number, in the order of its members; the platform takes them."""
    group_names: dict[int, str]
    """JOB for the group of all ranks of a job, JOB.NUMBER for the others."""
    job_groups: dict[str, list[str]]
    """By name of a job: numbers of its groups, without that of all its ranks."""
    places: tuple[tuple[Place, ...], ...]
    """Places by job and rank."""
    warnings: tuple[str, ...] = ()


def compose(
    jobs: Sequence[PlacedJob], n_npus: int, starts: Mapping[tuple[int, int], I64] | None = None
) -> Composed:
    """Return the trace that runs all jobs on a machine of `n_npus`; what no job uses gets an empty graph.

    Groups and tags of different jobs never meet. On an NPU that several jobs use, their k-th compute streams (in
    order of first use) are one, so of their kernels one runs at a time; CPU threads and communication streams
    belong to a job. Of several ready nodes, the one with the earliest `starts` runs first.

    Args:
        jobs: What runs where.
        n_npus: Number of NPUs.
        starts: By (job, rank), when each node would start if the job were alone, in graph order; by default the
            place among the nodes of its graph.

    Raises:
        InputError: a job does not fit, or names a group or a rank that it does not have.
    """
    jobs = tuple(_listed(job) for job in jobs)
    _check(jobs, n_npus)
    starts = starts or {}
    members, tags = _Members(), 0
    tenants: list[list[tuple[int, int]]] = [[] for _ in range(n_npus)]
    for j, job in enumerate(jobs):
        members.add(job)
        tags += members.tags[j].size
        for rank, npu in enumerate(job.npus):
            tenants[npu].append((j, rank))
    if tags > SAME_TAG:
        raise InputError(f"the messages of all jobs have {tags} tags together; expected at most {SAME_TAG}")
    known: dict[object, int] = {}
    graphs: list[Graph] = []
    rank_graph = np.zeros(n_npus, np.int32)
    places: list[list[Place | None]] = [[None] * len(job.npus) for job in jobs]
    for npu, found in enumerate(tenants):
        shared = len(found) > 1
        keys = [starts.get(tenant) if shared else None for tenant in found]
        # NPUs with the same tenants, in the same order of issue, share a graph.
        key = tuple(
            (j, int(jobs[j].trace.rank_graph[rank]), None if order is None else order.tobytes())
            for (j, rank), order in zip(found, keys, strict=True)
        )
        if key not in known:
            known[key] = len(graphs)
            graphs.append(members.graph(npu, found, keys))
        rank_graph[npu] = known[key]
        # Gates come first in a composed graph, one per late job.
        first = sum(jobs[j].arrival_ns > 0 for j, _ in found)
        for j, rank in found:
            n_nodes = jobs[j].trace.graph(rank).n_nodes
            places[j][rank] = Place(npu, first, n_nodes)
            first += n_nodes
    whole = tuple(tuple(place for place in row if place is not None) for row in places)
    trace = Trace(tuple(graphs), rank_graph)
    own = {
        job.name: [str(number) for number in numbers if number != WORLD]
        for job, numbers in zip(jobs, members.numbers, strict=True)
    }
    return Composed(trace, jobs, members.groups, members.names, own, whole, tuple(members.warnings))


def _listed(job: PlacedJob) -> PlacedJob:
    trace = expand_for(job.trace, f"job '{job.name}' beside others", MOST_NODES)
    return PlacedJob(job.name, trace, [int(npu) for npu in job.npus], job.arrival_ns)


def _check(jobs: Sequence[PlacedJob], n_npus: int) -> None:
    """Check names, places and arrivals.

    Raises:
        InputError: names the job and the value.
    """
    if not jobs:
        raise InputError("no job is given; expected at least one")
    names: set[str] = set()
    for job in jobs:
        where = f"job '{job.name}'"
        if job.name in names:
            raise InputError(f"{where} is there twice; expected another name for each job")
        names.add(job.name)
        if len(job.npus) != job.trace.n_ranks:
            raise InputError(
                f"{where} has {job.trace.n_ranks} ranks and {len(job.npus)} NPUs; expected an NPU for each rank"
            )
        outside = [npu for npu in job.npus if not 0 <= npu < n_npus]
        if outside:
            raise InputError(f"{where}: NPU {outside[0]} is not there; expected 0 to {n_npus - 1}")
        if len(set(job.npus)) < len(job.npus):
            counts = Counter(job.npus)
            twice = next(npu for npu in job.npus if counts[npu] > 1)
            raise InputError(f"{where}: NPU {twice} is given twice; expected each NPU once")
        if job.arrival_ns < 0:
            raise InputError(f"{where} arrives at {job.arrival_ns} ns; expected 0 or later")


@dataclass
class _Members:
    """The jobs that share a machine: their groups by number and tags, and the graphs of NPUs."""

    jobs: list[PlacedJob] = field(default_factory=list)
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    numbers: list[dict[int, int]] = field(default_factory=list)
    """For every job, the number in the composed trace of each of its groups."""
    tags: list[I64] = field(default_factory=list)
    """For every job, its tags, sorted and distinct."""
    first_tag: list[int] = field(default_factory=list)
    """For every job, how many tags the jobs before it have."""
    warnings: list[str] = field(default_factory=list)
    known: dict[tuple[int, int], list[Edit]] = field(default_factory=dict)
    """By (job, graph): what `edits` returned."""

    def add(self, job: PlacedJob) -> None:
        check_whole(job.trace)
        own, problems = read_groups(job.trace)
        if problems:
            raise InputError(f"job '{job.name}': {problems[0].message}")
        self.numbers.append(self._numbers(job, own))
        tags = [np.zeros(0, np.int64)]
        for graph in job.trace.graphs:
            tags.append(_tags(graph)[_is_message(graph)])
            if graph.dangling:
                self.warnings.append(
                    f"job '{job.name}': {graph.source}: {len(graph.dangling)} dependencies on absent nodes were dropped"
                )
        self.first_tag.append(self.first_tag[-1] + self.tags[-1].size if self.tags else 0)
        self.tags.append(np.unique(np.concatenate(tags)))
        self.jobs.append(job)

    def _numbers(self, job: PlacedJob, own: Groups) -> dict[int, int]:
        found = {}
        for number, ranks in own.items():
            # Renumbered over all jobs; 0 stays the group of all NPUs, which no job may use.
            found[number] = len(self.groups) + 1
            self.names[found[number]] = job.name if number == WORLD else f"{job.name}.{number}"
            self.groups[found[number]] = tuple(job.npus[rank] for rank in ranks.tolist())
        return found

    def edits(self, j: int, number: int) -> list[Edit]:
        """Return the edits of a job's graph that hold on every NPU: groups, peers and tags."""
        if (j, number) not in self.known:
            graph = self.jobs[j].trace.graphs[number]
            self.known[(j, number)] = [*self._group_edits(j, graph), *self._message_edits(j, graph)]
        return self.known[(j, number)]

    def _group_edits(self, j: int, graph: Graph) -> list[Edit]:
        at = np.flatnonzero(graph.types == NodeType.COMM_COLL_NODE)
        if not at.size:
            return []
        codes, names = graph.strings("pg_name")
        mine = {str(number): str(found) for number, found in self.numbers[j].items()}
        # All ranks of a job are a group of the machine, not its world.
        mine[""] = mine[str(WORLD)]
        texts = [mine.get(name.lstrip("0") if name.isdecimal() else name, "") for name in names]
        texts.append(mine[""])  # of code -1
        chosen = [texts[code] for code in codes[at].tolist()]
        for position, text in zip(at.tolist(), chosen, strict=True):
            if not text:
                name = names[int(codes[position])]
                known = [str(number) for number in self.numbers[j]]
                raise InputError(
                    f"job '{self.jobs[j].name}': {graph.node(position)} has pg_name '{name}'; expected a group that "
                    f"its trace defines{nearest(name, known) or f', one of {known[:8]}'}"
                )
        return [Edit("pg_name", at, chosen)]

    def _message_edits(self, j: int, graph: Graph) -> list[Edit]:
        at = np.flatnonzero(_is_message(graph))
        if not at.size:
            return []
        job, first = self.jobs[j], self.first_tag[j]
        # Dense tags, each job behind those of the jobs before it, so that none coincide.
        tags = first + np.searchsorted(self.tags[j], _tags(graph)[at])
        edits = [Edit("comm_tag", at, tags.astype(np.int64))]
        npus = np.array(job.npus, np.int64)
        for name in ("comm_src", "comm_dst"):
            ends = np.flatnonzero(_is_message(graph) & graph.has(name))
            ranks = graph.ints(name)[ends]
            for bad in np.flatnonzero((ranks < 0) | (ranks >= len(npus))).tolist()[:1]:
                raise InputError(
                    f"job '{job.name}': {graph.node(int(ends[bad]))} has {name} {ranks[bad]}; expected a rank from 0 "
                    f"to {len(npus) - 1}"
                )
            edits.append(Edit(name, ends, npus[ranks]))
        return edits

    def graph(self, npu: int, tenants: list[tuple[int, int]], starts: list[I64 | None]) -> Graph:
        """Return the graph of an NPU with these tenants (job, rank)."""
        late = [j for j, _ in tenants if self.jobs[j].arrival_ns > 0]
        gate = {j: number for number, j in enumerate(late)}
        graphs = [self.jobs[j].trace.graph(rank) for j, rank in tenants]
        ids = _ids(graphs, starts, len(late))
        shared = len(tenants) > 1
        parts = [
            Part(
                graph, own, f"{self.jobs[j].name}: ",
                [*self.edits(j, int(self.jobs[j].trace.rank_graph[rank])), *(_streams(graph, k) if shared else [])],
                gate.get(j),
            )
            for k, ((j, rank), graph, own) in enumerate(zip(tenants, graphs, ids, strict=True))
        ]  # fmt: skip
        gates = [
            Gate(i, f"{self.jobs[j].name}: arrival", self.jobs[j].arrival_ns) for i, j in enumerate(late)
        ]
        return join_graphs(gates, parts, f"NPU {npu}")


def _ids(graphs: list[Graph], starts: list[I64 | None], first: int) -> list[I64]:
    """Return new ids of all nodes, from `first`: in the order of their starts, and within a job of their old ids."""
    orders = [np.argsort(graph.ids, kind="stable") for graph in graphs]
    keys = [
        # Starts may decrease along ids; the running maximum keeps the order of ids within a job.
        np.arange(len(order)) if start is None else np.maximum.accumulate(start[order])
        for order, start in zip(orders, starts, strict=True)
    ]
    tenant = np.repeat(np.arange(len(graphs)), [len(order) for order in orders])
    merged = np.lexsort((tenant, np.concatenate([np.zeros(0, np.int64), *keys])))
    number = np.empty(len(merged), np.int64)
    number[merged] = np.arange(first, first + len(merged))
    found, at = [], 0
    for order in orders:
        ids = np.empty(len(order), np.int64)
        ids[order] = number[at : at + len(order)]
        at += len(order)
        found.append(ids)
    return found


def _streams(graph: Graph, tenant: int) -> list[Edit]:
    """Return the edits of streams on a shared NPU: compute streams are shared by place, others stay separate."""
    compute, cpu = graph.types == NodeType.COMP_NODE, graph.ints("is_cpu_op", 0) != 0
    stream = graph.ints("stream", -1)
    edits = []
    at = np.flatnonzero(compute & ~cpu)
    if at.size:
        at = at[np.argsort(graph.ids[at], kind="stable")]
        _, first, place = np.unique(stream[at], return_index=True, return_inverse=True)
        # The k-th stream by first use, whatever its number in the job.
        edits.append(
            Edit(
                "stream",
                at,
                np.argsort(np.argsort(first, kind="stable"), kind="stable")[place.ravel()].astype(np.int64),
            )
        )
    for name, chosen in (
        ("tid", compute & cpu),
        ("stream", (graph.types == NodeType.COMM_COLL_NODE) & (stream >= 0)),
    ):
        at = np.flatnonzero(chosen)
        if at.size:
            _, place = np.unique(graph.ints(name, -1)[at], return_inverse=True)
            # A range of numbers per tenant keeps threads and communication streams apart.
            edits.append(Edit(name, at, tenant * 2**32 + place.ravel().astype(np.int64)))
    return edits


def _is_message(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isin(graph.types, (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE))


def _tags(graph: Graph) -> I64:
    return graph.ints("comm_tag", 0) % SAME_TAG
