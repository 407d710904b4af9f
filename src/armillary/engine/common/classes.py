"""From ranks to classes: the phases of all jobs, the fold, and the communicators of the classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.compute import KernelTimes
from armillary.engine.common import layout as lk
from armillary.engine.common.communicators import Communicators
from armillary.engine.common.fold import Order, Ring, by_place, fold, order_of, pairs_of, world_lines
from armillary.engine.common.items import Channel, Channels, View, check_own_ends, views_of
from armillary.engine.common.jobs import Job, JobChunks, JobPhase, job_chunks
from armillary.engine.common.nodes import Nodes
from armillary.engine.common.quotient import QuotientComm
from armillary.platform.model import Platform
from armillary.trace import Graph, NodeType, Trace

Ints = NDArray[np.int64]
JobPhases = dict[Job, JobChunks]
Carried = frozenset[tuple[Job, Job]]
"""Pairs of jobs: work of the first may be left over when the second begins."""


@dataclass(frozen=True)
class Workload:
    """A trace on a platform, read: the view of every rank, its communicators and channels."""

    trace: Trace
    platform: Platform
    comms: Communicators
    views: list[View]
    view_of: NDArray[np.int32]
    channels: Channels

    @cached_property
    def slots_of_view(self) -> list[dict[int, int]]:
        """`View.slots` of every view."""
        return [view.slots() for view in self.views]

    def slots(self, rank: int) -> dict[int, int]:
        """Return the communicators of a rank by number, with their place in order of first use."""
        return self.slots_of_view[int(self.view_of[rank])]

    def slots_in(self, number: int, ranks: Ints) -> Ints:
        """Return the slot of communicator `number` on each of `ranks`, -1 where it is not used."""
        used, inverse = np.unique(self.view_of[ranks], return_inverse=True)
        of_view = [self.slots_of_view[v].get(number, -1) for v in used.tolist()]
        return np.array(of_view, np.int64)[inverse].reshape(ranks.shape)

    def channel(self, channel: Channel) -> tuple[list[int], list[int]]:
        """Return the items that send on a channel and those that receive."""
        return self.channels[channel]


class Slots(Protocol):
    """What `quotient_comms` asks a workload."""

    @property
    def comms(self) -> Communicators:
        """The communicators by number."""

    def slots(self, rank: int) -> dict[int, int]:
        """See `Workload.slots`."""


def read_workload(
    trace: Trace,
    platform: Platform,
    lower_nodes: Callable[[Graph, Platform, KernelTimes], Nodes],
    *,
    fill: bool = False,
) -> tuple[list[View], NDArray[np.int32], Communicators, NDArray[np.int32]]:
    """Read a trace for a platform: distinct views, the view of every rank, communicators, structures.

    With `fill` kernels that name work and have no time take that of the roofline model.

    Raises:
        InputError: the trace does not fit the machine, or has a node that cannot be simulated.
    """
    check_fits(trace, platform)
    structure, examples = trace.structures()
    graphs = [trace.graphs[g] for g in examples]
    times = KernelTimes(platform, graphs, fill=fill)
    nodes = {s: lower_nodes(graph, platform, times) for s, graph in enumerate(graphs)}
    if nodes:
        nodes[0].warnings += times.warnings
    comms = Communicators(platform)
    for s, found in nodes.items():
        if (found.graph.types == NodeType.METADATA_NODE).any():
            for g in np.unique(trace.rank_graph[structure == s]).tolist():
                comms.read_metadata(trace.graphs[g])
    views, view_of = views_of(trace, platform, nodes, structure, comms)
    check_own_ends(trace, views, view_of)
    return views, view_of, comms, structure


def check_fits(trace: Trace, platform: Platform) -> None:
    """Check that the machine has an NPU for each rank.

    Raises:
        InputError: it has fewer or more.
    """
    if trace.n_ranks != platform.npus:
        how = "--from-one-rank --ranks" if trace.n_ranks == 1 else "--ranks"
        grown = f", such as `armillary trace extrapolate … {how} {platform.npus}` makes of it"
        grown = grown if trace.n_ranks < platform.npus else ""
        ranks = f"{trace.n_ranks} rank" + "s" * (trace.n_ranks != 1)
        raise InputError(
            f"the trace has {ranks}, but the network has {platform.npus} NPUs; expected one rank per NPU{grown}"
        )


def find_phases(workload: Workload, carried: Carried = frozenset()) -> tuple[JobPhases, list[str]]:
    """Return the phases of every job, and warnings of what is odd about them; `carried`: see `lower`.

    Raises:
        InputError: a rank uses a group it is not in, or a collective cannot run.
    """
    found: JobPhases = {}
    warnings: list[str] = []
    check_members(workload)
    for view in workload.views:
        for j, job in enumerate(view.jobs):
            comm = workload.comms.get(job.comm)
            if job not in found:
                where = _where(view, j)
                found[job] = job_chunks(
                    job, comm, workload.platform, where, [a for a, b in sorted(carried, key=repr) if b == job]
                )
                warnings += _oddities(job, found[job].routes[0], where)
    return found, warnings


def check_members(workload: Workload) -> None:
    """Check that every rank is in the groups it uses.

    Raises:
        InputError: names the node and the group.
    """
    for v, view in enumerate(workload.views):
        for j, job in enumerate(view.jobs):
            if not workload.comms.get(job.comm).world:
                _check_members(workload, v, j)


def _where(view: View, j: int) -> str:
    item = int(np.flatnonzero(view.job == j)[0])
    return view.nodes.graph.node(int(view.nodes.order[view.nodes.items[item]]))


def _oddities(job: Job, found: Sequence[JobPhase], where: str) -> list[str]:
    if not found:
        return [f"{where}: no dimension takes part; the collective takes no time"]
    odd = [f"{where} moves 0 bytes"] if job.size == 0 else []
    for phase in found:
        if phase.schedules and phase.schedules[0].relative == "pair" and phase.n & (phase.n - 1):
            odd.append(
                f"{where}: halvingDoubling all-gather over {phase.n} members runs as in ASTRA-sim, "
                "but not every member gets every block"
            )
    return odd


def _check_members(workload: Workload, v: int, j: int) -> None:
    view = workload.views[v]
    number = view.jobs[j].comm
    members = workload.comms.get(number).members
    ranks = np.flatnonzero(workload.view_of == v)
    outside = ranks[~np.isin(ranks, members)]
    if outside.size:
        raise InputError(
            f"{_where(view, j)}: rank {outside[0]} is not in group {number}; expected one of {members[:8].tolist()}"
        )


def classify(workload: Workload, job_phases: JobPhases, structure: NDArray[np.int32]) -> Ints:
    """Return the class of every rank; ranks that share a memory server are each their own."""
    views, view_of = workload.views, workload.view_of
    if workload.platform.memory.kind in ("pool", "per-node") and any(
        (view.nodes.kind == lk.MEMORY).any() for view in views
    ):
        return np.arange(workload.trace.n_ranks)
    patterns: dict[bytes, int] = {}
    pattern = np.array([patterns.setdefault(view.pattern(), len(patterns)) for view in views])
    colour = structure.astype(np.int64) * len(patterns) + pattern[view_of]
    pairs = pairs_of(views, view_of, workload.channels, workload.platform)
    colour = by_place(colour, workload.channels)
    return fold(colour, _rings(workload, job_phases), pairs, workload.platform.dimensions)


def _rings(workload: Workload, job_phases: JobPhases) -> list[Ring]:
    orders: dict[tuple[int, int], frozenset[Order]] = defaultdict(frozenset)
    for job, found in job_phases.items():
        for phase in {phase for route in found.routes for phase in route}:
            orders[(job.comm, phase.dim)] |= order_of(phase)
    rings = []
    for (number, dim), seen in orders.items():
        members = workload.comms.get(number).members
        lines = members[None, :] if dim < 0 else world_lines(workload.platform, dim)
        rings.append(Ring(dim, lines, seen, workload.slots_in(number, lines)))
    return rings


def quotient_comms(
    workload: Slots, classes: Ints, representatives: Ints
) -> tuple[dict[tuple[int, int], QuotientComm], list[QuotientComm]]:
    """Return the communicators of the classes, by (class, slot) and in order.

    They are those of the representatives, merged where classes meet in them.
    """
    comm_at: dict[tuple[int, int], QuotientComm] = {}
    quotients: list[QuotientComm] = []
    for cls, rank in enumerate(representatives.tolist()):
        for number, slot in workload.slots(rank).items():
            if (cls, slot) in comm_at:
                continue
            comm = QuotientComm(len(quotients), workload.comms.get(number))
            quotients.append(comm)
            members = comm.real.members
            _, first = np.unique(classes[members], return_index=True)
            for member in members[np.sort(first)].tolist():
                there = workload.slots(member).get(number)
                if there is not None:
                    comm_at[(int(classes[member]), there)] = comm
                comm.local[int(classes[member])] = len(comm.local)
    return comm_at, quotients
