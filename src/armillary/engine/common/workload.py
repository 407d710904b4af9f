"""A trace on a platform, read: views of ranks, communicators and channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.common.communicators import Communicators
from armillary.engine.common.items import Channel, Channels, View, check_own_ends, views_of
from armillary.engine.common.nodes import Nodes
from armillary.platform.model import Platform
from armillary.trace import Graph, NodeType, Trace

if TYPE_CHECKING:
    from armillary.compute import KernelTimes

Ints = NDArray[np.int64]


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
        # Views are few, ranks many: look up per view.
        used, inverse = np.unique(self.view_of[ranks], return_inverse=True)
        of_view = [self.slots_of_view[v].get(number, -1) for v in used.tolist()]
        return np.array(of_view, np.int64)[inverse].reshape(ranks.shape)

    def channel(self, channel: Channel) -> tuple[list[int], list[int]]:
        """Return the items that send on a channel and those that receive."""
        return self.channels[channel]


def read_workload(
    trace: Trace,
    platform: Platform,
    lower_nodes: Callable[[Graph, Platform, KernelTimes | None], Nodes],
    *,
    fill: bool = False,
) -> tuple[list[View], NDArray[np.int32], Communicators, NDArray[np.int32]]:
    """Read a trace for a platform: distinct views, the view of every rank, communicators, structures.

    With `fill` kernels that name work and have no time take that of the roofline model.

    Raises:
        InputError: the trace does not fit the machine, or has a node that cannot be simulated.
    """
    check_fits(trace, platform)
    # Graphs of one structure share their node rows, which are lowered once.
    structure, examples = trace.structures()
    graphs = [trace.graphs[g] for g in examples]
    times = kernel_times(platform, graphs, fill=fill)
    nodes = {s: lower_nodes(graph, platform, times) for s, graph in enumerate(graphs)}
    if times and nodes:
        nodes[0].warnings += times.warnings
    comms = Communicators(platform)
    for s, found in nodes.items():
        if (found.graph.types == NodeType.METADATA_NODE).any():
            for g in np.unique(trace.rank_graph[structure == s]).tolist():
                comms.read_metadata(trace.graphs[g])
    views, view_of = views_of(trace, platform, nodes, structure, comms)
    check_own_ends(trace, views, view_of)
    return views, view_of, comms, structure


def kernel_times(platform: Platform, graphs: Iterable[Graph], *, fill: bool) -> KernelTimes | None:
    """Return the times that the compute model of a platform gives the kernels of graphs; None: it has none to ask.

    Raises:
        InputError: the model, its options or a node is wrong.
    """
    if not platform.compute.asked:
        return None
    from armillary.compute import KernelTimes

    return KernelTimes(platform, graphs, fill=fill)


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


def check_members(workload: Workload) -> None:
    """Check that every rank is in the groups it uses.

    Raises:
        InputError: names the node and the group.
    """
    for v, view in enumerate(workload.views):
        for j, call in enumerate(view.calls):
            if not workload.comms.get(call.comm).world:
                _check_members(workload, v, j)


def node_of(view: View, j: int) -> str:
    """Return how errors call the first node that makes a call."""
    item = int(np.flatnonzero(view.call == j)[0])
    return view.nodes.graph.node(int(view.nodes.order[view.nodes.items[item]]))


def _check_members(workload: Workload, v: int, j: int) -> None:
    view = workload.views[v]
    number = view.calls[j].comm
    members = workload.comms.get(number).members
    ranks = np.flatnonzero(workload.view_of == v)
    outside = ranks[~np.isin(ranks, members)]
    if outside.size:
        raise InputError(
            f"{node_of(view, j)}: rank {outside[0]} is not in group {number}; expected one of {members[:8].tolist()}"
        )
