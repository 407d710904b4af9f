"""The items of a rank, that is its communication and memory nodes: calls, peers and bytes, per distinct graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.common import layout as lk
from armillary.engine.common.network import CollectiveCall, Communicators
from armillary.engine.common.nodes import OPERATION, Nodes, moved
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, Graph, NodeType, Trace
from armillary.trace.columns import distinct_columns
from armillary.trace.graph import LIMIT
from armillary.trace.node import PACE, WHOLE_PACE
from armillary.trace.trace import IGNORED, WORLD

if TYPE_CHECKING:
    from armillary.compute import KernelTimes

TAGS = 5 * 10**8
"""ASTRA-sim keeps tags modulo this number."""
Channel = tuple[int, int, int, int]
"""(tag, source, destination, bytes): the k-th send meets the k-th receive."""
FROM_MEMORY = {
    NodeType.MEM_LOAD_NODE: "all-gather from memory",
    NodeType.MEM_STORE_NODE: "reduce-scatter to memory",
}
"""Names of the collectives that stand for an access by all members of a group at once."""
MEMORY_OPERATIONS = tuple(FROM_MEMORY.values())
"""The collectives of such accesses."""
Channels = dict[Channel, tuple[list[int], list[int]]]
Ints = NDArray[np.int64]


@dataclass
class View:
    """The items of one graph, in issue order: columns over `Nodes.items`."""

    nodes: Nodes
    calls: list[CollectiveCall]
    """The distinct calls."""
    call: Ints
    """Index in `calls` of a collective, else -1."""
    peer: Ints
    """Peer rank of a send or receive, else -1."""
    tag: Ints
    size: Ints
    parts: Ints | None = None
    """(items, 2) first inner node and number of inner nodes of custom collectives."""
    kept: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What was read of it: a view lives as long as its trace, on whatever machines that is simulated."""

    def pairs(self) -> list[int]:
        """Return the items that send or receive point to point."""
        found: list[int] = np.flatnonzero(self.peer >= 0).tolist()
        return found

    def sends(self, item: int) -> bool:
        """Tell whether a point-to-point item sends."""
        return int(self.nodes.kind[self.nodes.items[item]]) in (lk.SEND, lk.PART_SEND)

    def messages(self) -> tuple[Ints, Ints, Ints]:
        """Return the items that send or receive, which of their kinds each is, and the first item of each kind.

        Those of a kind do the same thing with the same peer, tag and size.
        """
        if "messages" not in self.kept:
            items = np.flatnonzero(self.peer >= 0)
            kind = self.nodes.kind[self.nodes.items[items]]
            columns = np.stack([kind, self.peer[items], self.tag[items], self.size[items]])
            first, which = distinct_columns(columns)
            self.kept["messages"] = items, which, items[first]
        found: tuple[Ints, Ints, Ints] = self.kept["messages"]
        return found

    def slots(self) -> dict[int, int]:
        """Return communicator number -> its index in order of first use."""
        slots: dict[int, int] = self.kept.setdefault("slots", {})
        if not slots:
            called = self.call[self.call >= 0]
            for call in called[np.sort(distinct_columns(called[None])[0])].tolist():
                slots.setdefault(self.calls[call].comm, len(slots))
        return slots

    def pattern(self) -> bytes:
        """Return for each collective the slot of its communicator, as a key."""
        slots = self.slots()
        # With one communicator there is no order among communicators.
        if len(slots) < 2:
            return b""
        of_call = np.array([slots[call.comm] for call in self.calls], np.int64)
        return of_call[self.call[self.call >= 0]].tobytes()


def views_of(
    trace: Trace,
    platform: Platform,
    lowered: dict[int, Nodes],
    structure: NDArray[np.int32],
    comms: Communicators,
) -> tuple[list[View], NDArray[np.int32]]:
    """Return the distinct views and the view of every rank.

    Ranks of one structure share a view, unless the trace has attributes that may differ between them.
    """
    # Graphs of many ranks often share their columns.
    seen = {id(graph.columns): graph.attr_names for graph in trace.graphs}
    differ = any(not set(IGNORED).isdisjoint(names) for names in seen.values())
    key_of_rank = trace.rank_graph if differ else structure
    keys, first, view_of = np.unique(key_of_rank, return_index=True, return_inverse=True)
    views, known = [], dict[int, View]()
    for _, rank in zip(keys.tolist(), first.tolist(), strict=True):
        graph, nodes = trace.graph(int(rank)), lowered[int(structure[rank])]
        # Views of graphs that differ in durations only share their columns, if each is that of its own graph.
        of = id(nodes.like or nodes) if nodes.graph is graph else 0
        view = replace(known[of], nodes=nodes) if of in known else read_view(graph, nodes, platform, comms)
        if of and nodes.like is None:
            known[of] = view
        views.append(view)
    return views, view_of.astype(np.int32)


def read_view(
    graph: Graph, nodes: Nodes, platform: Platform, comms: Communicators, peer: Ints | None = None
) -> View:
    """Read the items of `graph`; `nodes` may be lowered from another graph of the same structure.

    `peer` replaces the peer of every node; by default it is the rank that the node names.

    Raises:
        InputError: a missing or impossible attribute, or an unknown group.
    """
    ids = graph.ids
    order = nodes.order if nodes.graph is graph else np.argsort(ids, kind="stable")
    at = order[nodes.items]
    kind = nodes.kind[nodes.items]
    collective, send = kind == lk.COLLECTIVE, kind == lk.SEND
    memory = np.isin(graph.types[at], list(FROM_MEMORY))
    size = np.where(memory, graph.ints_at(at, "tensor_size"), graph.ints_at(at, "comm_size"))
    if (stored := kind == lk.STORE).any():
        size = np.where(stored, moved(graph)[at], size)
    for bad in np.flatnonzero((size < 0) | (size >= LIMIT)).tolist():
        name = "tensor_size" if memory[bad] else "comm_size"
        raise InputError(f"{graph.node(at[bad])} has {name} {size[bad]}; expected 0 to {LIMIT - 1} bytes")
    view = View(
        nodes, [], np.full(len(at), -1), np.full(len(at), -1), graph.ints_at(at, "comm_tag") % TAGS, size
    )
    pair = send | (kind == lk.RECV)
    if pair.any():
        ends = np.where(send, graph.ints_at(at, "comm_dst", -1), graph.ints_at(at, "comm_src", -1))
        ends = ends if peer is None else peer[at]
        view.peer[pair] = ends[pair]
        # With a grid, peers are numbers of routes and not ranks; their range is checked later.
        most = comms.npus if peer is None else LIMIT
        for bad in np.flatnonzero(pair & ((ends < 0) | (ends >= most) | (size == 0))).tolist():
            _refuse_pair(graph, int(at[bad]), bool(send[bad]), int(ends[bad]), comms.npus)
    if collective.any():
        _read_calls(graph, at[collective], view, np.flatnonzero(collective), comms, platform)
    return view


def _read_calls(
    graph: Graph, at: Ints, view: View, items: Ints, comms: Communicators, platform: Platform
) -> None:
    pg_code, pg_names = graph.strings("pg_name")
    involved_code, involved = graph.bool_lists("involved_dim")
    custom = platform.astra_sim.custom_by_node
    # A number per prefix, so that all columns of a call are integers.
    prefixes = ["", *dict.fromkeys(custom.values())]
    by_node = np.zeros(len(at), np.int64)
    for node, prefix in custom.items():
        by_node[graph.ids[at] == np.uint64(node)] = prefixes.index(prefix)
    roots = graph.ints("comm_root", 0)[at]
    kinds = graph.ints("comm_type", -1)[at]
    paces = graph.ints(PACE, 0)[at]
    for bad in np.flatnonzero((paces < 0) | (paces > WHOLE_PACE)).tolist():
        raise InputError(f"{graph.node(int(at[bad]))} has {PACE} {paces[bad]}; expected 0 to {WHOLE_PACE}")
    for position, node_type in enumerate(FROM_MEMORY):
        # Negative codes for in-switch accesses, which have no comm_type.
        kinds[graph.types[at] == node_type] = -1 - position
    columns = [
        pg_code[at],
        kinds,
        view.size[items],
        involved_code[at],
        by_node,
        roots,
        paces,
    ]
    table: Ints = np.array(columns, np.int64)
    # A graph of thousands of collectives has few distinct calls.
    first, inverse = distinct_columns(table)
    groups = {-1: WORLD}
    for (code, kind, size, dims, prefix, root, pace), example in zip(
        table[:, first].T.tolist(), first.tolist(), strict=True
    ):
        if code not in groups:
            groups[code] = comms.resolve(graph, int(at[example]), pg_names[code])
        mask = involved[dims] if dims >= 0 else None
        operation = OPERATION[CollectiveType(kind)] if kind >= 0 else list(FROM_MEMORY.values())[-1 - kind]
        replaced = prefixes[prefix] or platform.astra_sim.custom.get(operation, "")
        view.calls.append(CollectiveCall(groups[code], operation, size, mask, replaced, root, pace=pace))
    view.call[items] = inverse


def _refuse_pair(graph: Graph, position: int, send: bool, peer: int, npus: int) -> None:
    name = "comm_dst" if send else "comm_src"
    if 0 <= peer < npus:
        raise InputError(f"{graph.node(position)} moves 0 bytes; expected a comm_size above 0")
    found = f"has {name} {peer}" if graph.has(name)[position] else f"has no {name}"
    raise InputError(f"{graph.node(position)} {found}; expected a rank from 0 to {npus - 1}")


def check_own_ends(trace: Trace, views: list[View], view_of: NDArray[np.int32]) -> None:
    """Check that sends leave from, and receives arrive at, the rank that runs them, and from another one.

    Raises:
        InputError: names the node.
    """
    for v, view in enumerate(views):
        pairs = view.pairs()
        for rank in np.flatnonzero(view_of == v).tolist() if pairs else []:
            graph = trace.graph(rank)
            at = np.argsort(graph.ids, kind="stable")[view.nodes.items[pairs]]
            send = view.nodes.kind[view.nodes.items[pairs]] == lk.SEND
            own = np.where(send, graph.ints("comm_src", -1)[at], graph.ints("comm_dst", -1)[at])
            for bad in np.flatnonzero((own != -1) & (own != rank)).tolist():
                name = "comm_src" if send[bad] else "comm_dst"
                raise InputError(
                    f"{graph.node(at[bad])} has {name} {own[bad]}; expected {rank}, the rank that runs it"
                )
            for bad in np.flatnonzero(view.peer[pairs] == rank).tolist():
                raise InputError(
                    f"{graph.node(at[bad])} on rank {rank} has itself as peer; expected another rank"
                )


def channels_of(views: list[View], view_of: NDArray[np.int32]) -> Channels:
    """Return the point-to-point channels: items that send on each and items that receive, in issue order."""
    found: Channels = defaultdict(lambda: ([], []))
    for v, view in enumerate(views):
        pairs = view.pairs()
        for rank in np.flatnonzero(view_of == v).tolist() if pairs else []:
            for item in pairs:
                found[channel_at(view, item, rank)][0 if view.sends(item) else 1].append(item)
    return found


def channel_at(view: View, item: int, rank: int) -> Channel:
    """Return the channel of a point-to-point item when `rank` runs the view."""
    peer = int(view.peer[item])
    ends = (rank, peer) if view.sends(item) else (peer, rank)
    return (int(view.tag[item]), *ends, int(view.size[item]))


def unreceived(channels: Channels) -> list[str]:
    """Return a warning if messages are sent that no rank receives: the sender continues, as in ASTRA-sim."""
    lost = [(channel, len(sends) - len(receives)) for channel, (sends, receives) in channels.items()]
    lost = [(channel, count) for channel, count in lost if count > 0]
    if not lost:
        return []
    (tag, source, destination, size), _ = lost[0]
    return [
        f"{sum(count for _, count in lost)} messages are never received, the first of {size} bytes with tag {tag} "
        f"from rank {source} to rank {destination}"
    ]


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
        if len(self.views) <= ranks.size:
            slots = np.array([slots.get(number, -1) for slots in self.slots_of_view], np.int64)
            return slots[self.view_of[ranks]]
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
        # Graphs that differ in durations have the types of one of them, which a graph keeps once they were read.
        if ((found.like or found).graph.types == NodeType.METADATA_NODE).any():
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
        ranks = f"{trace.n_ranks} rank" + "s" * (trace.n_ranks != 1)
        raise InputError(
            f"the trace has {ranks}, but the network has {platform.npus} NPUs; expected one rank per NPU"
            f"{grown if trace.n_ranks < platform.npus else ''}"
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
    number = workload.views[v].calls[j].comm
    members = workload.comms.get(number).members
    outside = np.setdiff1d(np.flatnonzero(workload.view_of == v), members)
    if outside.size:
        raise InputError(
            f"{node_of(workload.views[v], j)}: rank {outside[0]} is not in group {number}; "
            f"expected one of {members[:8].tolist()}"
        )
