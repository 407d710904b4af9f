"""The interface between lowering and a trace on a platform, whether its ranks are listed or follow from rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.collective.algorithms import ROOTED
from armillary.engine.common import network
from armillary.engine.common.fold import Order, Ring, fold, pairs_of, world_lines
from armillary.engine.common.items import (
    MEMORY_OPERATIONS,
    Channel,
    View,
    Workload,
    channels_of,
    check_members,
    read_workload,
    unreceived,
)
from armillary.engine.common.network import CollectiveCall, Communicator, Communicators, between, node_size
from armillary.engine.common.nodes import Nodes
from armillary.engine.physical import layout as lk
from armillary.engine.physical.chunk_routes import ChunkRoutes, chunk_routes_of, place_of
from armillary.engine.physical.memory import Groups, RemoteAccesses, refined, uneven
from armillary.engine.physical.nodes import PhysicalNodes, lower_nodes
from armillary.platform.model import Platform
from armillary.platform.network import TOPOLOGIES
from armillary.trace import Trace

Ints = NDArray[np.int64]


def special_of(platform: Platform) -> Ints:
    """Return a number for every rank that is equal where its speed, start delay and shares of ports are."""
    # Most ranks are ordinary and have 0.
    whole = (1.0,) * len(platform.dimensions)
    kinds: dict[object, int] = {(1.0, 0.0, whole): 0}
    special = np.zeros(platform.npus, np.int64)
    for rank in {*platform.npu.speed, *platform.stragglers, *platform.port_speed}:
        speed, delay = platform.npu.speed.get(rank, 1.0), platform.stragglers.get(rank, 0.0)
        own = (speed, delay, platform.port_speed.get(rank, whole))
        special[rank] = kinds.setdefault(own, len(kinds))
    return special


def path_code(platform: Platform, source: Ints, destination: Ints) -> Ints:
    """Return one number per pair of ranks that encodes the links of each dimension between them."""
    code = np.zeros(np.broadcast(source, destination).shape, np.int64)
    for dimension, hop in zip(
        platform.dimensions, network.path(platform.dimensions, source, destination), strict=True
    ):
        # A mixed-radix number: hops of a dimension are at most its size plus one.
        code = code * (dimension.size + 2) + hop
    return code


def lines_of(platform: Platform, comm: Communicator, dim: int) -> Ints:
    """Return the lines of a communicator along one dimension, (lines, n); dim -1: all its members."""
    if dim < 0:
        return comm.members[None, :]
    if comm.world:
        return world_lines(platform, dim)
    stride, size = network.strides(platform.dimensions)[dim], platform.dimensions[dim].size
    place = comm.members // stride % size
    # Members sorted by line, and along each line by position.
    order = np.lexsort((place, comm.members - place * stride))
    return comm.members[order].reshape(-1, len(np.unique(place, return_counts=True)[0]))


def uneven_between(platform: Platform, comm: Communicator, one: int, other: int) -> list[str]:
    """Return the names of the dimensions that do not look the same from two members of a communicator."""
    found = []
    strides = network.strides(platform.dimensions)
    for dimension, stride in zip(platform.dimensions, strides, strict=True):
        places = {int(place) for place in comm.members // stride % dimension.size}
        topology = TOPOLOGIES[dimension.topology]
        # Part of a ring has ends; behind a switch, and where all are joined, any part looks the same from everywhere.
        even = topology.turns and (len(places) == dimension.size or not topology.loop)
        if not even and one // stride % dimension.size != other // stride % dimension.size:
            found.append(f"{dimension.name} ({dimension.topology})")
    return found


def largest_message(platform: Platform, sizes: Collection[int]) -> int:
    """Return the most bytes that a port carries for any message of these sizes."""
    found = []
    for dim in range(len(platform.dimensions)):
        more = 1 + Fraction(platform.terms.communication_share(between(platform, (dim,))))
        found.append(ceil(max(sizes, default=0) * more))
        if platform.collectives.fit:
            from armillary.engine.common.fits import fitted_message

            hops = [int(d == dim) for d in range(len(platform.dimensions))]
            messages = (fitted_message(platform, hops, size) for size in set(sizes))
            found += [ceil(message.volume * more) for message in messages if message]
    return max(found)


SET = frozenset({Order("set", (), True)})
"""A member of a line deals with all the others alike."""


class PhysicalWorkload(ABC):
    """A trace on a platform: what each rank does and with whom.

    `lower` calls `classify`. From then on it only queries the representatives of classes, the ranks that they exchange
    messages with, and one member of each class in their communicators.
    """

    platform: Platform
    comms: Communicators
    views: list[View]
    """Distinct views; with rules, their calls and peers are rules too."""
    fluid = True
    """Whether volumes move at the rates of ports; if not, messages move."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.accesses = RemoteAccesses(platform)
        self._chunk_routes: dict[CollectiveCall, ChunkRoutes] = {}
        self._at_places: dict[tuple[CollectiveCall, tuple[int, ...] | None], ChunkRoutes] = {}
        """By call, whatever its group, and by the places of its members, see `place_of`."""
        self.slot_numbers: dict[tuple[int, ...], Ints] = {}
        """Numbers of slots by the ``id`` of all that they follow from, see `Paces`."""
        self.paced: tuple[dict[Any, PhysicalNodes], dict[Any, View]] = {}, {}
        """Nodes and views of `Paces`."""
        self.lines: tuple[Ints, dict[tuple[int, int], list[list[int]]]] = np.zeros(0, np.int64), {}
        """Classes of ranks, and the lines of `lines_of_classes`."""

    @abstractmethod
    def view(self, rank: int) -> View:
        """Return what a rank does: the same object for the same rank."""

    @abstractmethod
    def kind(self, rank: int) -> int:
        """Return a number: ranks that share it have the same nodes, and communicators in the same slots."""

    @abstractmethod
    def slots(self, rank: int) -> dict[int, int]:
        """Return the communicators of a rank by number, with their place in order of first use."""

    @abstractmethod
    def channel(self, channel: Channel) -> tuple[list[int], list[int]]:
        """Return the items that send on a channel and those that receive."""

    def names_of_all(self) -> tuple[str, ...]:
        """Return the names that the trace uses for groups of all ranks, besides the empty name."""
        return ()

    def group_names(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return the names of those of these groups that have one."""
        return {}

    @abstractmethod
    def warnings(self) -> list[str]:
        """Return warnings about messages that do not match."""

    @property
    @abstractmethod
    def calls(self) -> Sequence[CollectiveCall]:
        """The calls of all groups, at least one of those that are alike."""

    @abstractmethod
    def partition(self, special: Ints) -> Ints:
        """Return the class of every rank, by `fold`; ranks whose `special` number differs are never in one."""

    @abstractmethod
    def memory_groups(self) -> Groups:
        """Return the groups that access a memory at once."""

    @abstractmethod
    def host_groups(self) -> Groups:
        """Return the groups whose collectives cross the hosts of their nodes, see `HostPath`."""

    @property
    def has_host(self) -> bool:
        """Whether the machine says what its hosts carry."""
        fit = self.platform.collectives.fit
        return fit is not None and fit.host is not None

    @property
    @abstractmethod
    def loses_messages(self) -> bool:
        """Whether a message is sent that no rank receives."""

    def classify(self) -> Ints:
        """Return the class of every rank; where folding is not exact, every rank is its own class."""
        shared = any((view.nodes.kind == lk.MEMORY).any() for view in self.views) and self.accesses.shared
        # A message that nobody receives takes part of a port that its receiver does not know of.
        if shared or self.loses_messages or self.platform.jitter:
            return np.arange(self.platform.npus)
        of_nodes: list[tuple[int, Groups]] = []
        memory = self.platform.remote_memory
        if memory.kind == "hierarchical" and memory.npus_per_node:
            of_nodes.append((memory.npus_per_node, self.memory_groups()))
        if crossing := self.host_groups():
            # Classes do not tell in which of its nodes a group has more members than in others.
            if any(uneven(members, node_size(self.platform)) for members, _ in crossing):
                return np.arange(self.platform.npus)
            of_nodes.append((node_size(self.platform), crossing))
        return refined(special_of(self.platform), self.partition, of_nodes)

    def chunk_routes(self, call: CollectiveCall) -> ChunkRoutes:
        """Return what the chunks of a call do."""
        if call not in self._chunk_routes:
            comm = self.comms.get(call.comm)
            place = place_of(call, comm, self.platform)
            key = call.anywhere, place
            known = self._at_places.get(key) if place else None
            if known is None:
                known = chunk_routes_of(call, comm, self.platform)
                if place:
                    self._at_places[key] = known
            else:
                known = known.at(comm.positions(self.platform.dimensions))
            self._chunk_routes[call] = known
        return self._chunk_routes[call]

    def lines_of_classes(self, classes: Ints) -> dict[tuple[int, int], list[list[int]]]:
        """Return the classes on lines by communicator and dimension, as far as they were asked for, see `Lines`."""
        if self.lines[0] is not classes:
            self.lines = classes, {}
        return self.lines[1]

    def largest(self) -> int:
        """Return the most bytes that a port carries for any one phase or message."""
        moved = [
            ceil(p.volume * (call.size + 1)) for call in self.calls for p in self.chunk_routes(call).phases
        ]
        for view in self.views:
            alone = (view.peer >= 0) | (view.nodes.kind[view.nodes.items] == lk.TRANSFER)
            moved.append(int(view.size[alone].max(initial=0)))
        if self.platform.collectives.fit or self.platform.terms.slows_communication:
            moved.append(largest_message(self.platform, self._message_sizes()))
        return max([1, *moved])

    def _message_sizes(self) -> list[int]:
        sizes = [np.unique(view.size[view.peer >= 0]) for view in self.views]
        found: list[int] = np.unique(np.concatenate(sizes)).tolist() if sizes else []
        return found

    def fit_warnings(self) -> list[str]:
        """Return warnings about a fit that times collectives and messages."""
        if self.platform.collectives.fit is None:
            return []
        from armillary.engine.physical.fitted import fit_warnings

        # What takes as many places in each dimension is known, or too fast, alike.
        calls: dict[object, tuple[CollectiveCall, Communicator]] = {}
        for call in self.calls:
            comm = self.comms.get(call.comm)
            place = place_of(call, comm, self.platform)
            calls.setdefault((call.anywhere, place) if place else call, (call, comm))
        return fit_warnings(self.platform, calls.values(), self._message_sizes())

    def root_warnings(self) -> list[str]:
        """Return a warning about collectives that take the time of one with another root."""
        found: list[tuple[CollectiveCall, int]] = []
        where: dict[str, None] = {}
        for call in self.calls:
            comm = self.comms.get(call.comm)
            first = int(comm.members[0])
            # Without a root of its own group a call has that of its algorithm, the first member.
            if call.operation not in ROOTED or call.root == first or call.root not in comm.members:
                continue
            uneven = uneven_between(self.platform, comm, first, call.root) if self.fluid else ["the network"]
            if uneven:
                found.append((call, first))
                where |= dict.fromkeys(uneven)
        if not found:
            return []
        call, first = found[0]
        others = f" (and {len(found) - 1} more kinds of calls)" if len(found) > 1 else ""
        return [
            f"comm_root: the {call.operation} from or to rank {call.root}{others} is simulated as if the first of its "
            f"group, rank {first}, were the root, which may take another time on {', '.join(where)}"
        ]


class ListedWorkload(PhysicalWorkload):
    """A trace that lists groups and peers rank by rank."""

    def __init__(self, trace: Trace, platform: Platform) -> None:
        """Read a trace.

        Raises:
            InputError: it does not fit the platform, or something in it cannot be simulated.
        """
        super().__init__(platform)
        how: Callable[..., Nodes] = lower_nodes
        if len(trace.graphs) > 1:
            # Late: a run of one graph needs nothing of it.
            from armillary.engine.physical.alike import Alike

            how = Alike()
        views, view_of, self.comms, self.structure = read_workload(trace, platform, how, fill=True)
        if any("comm_splits" in graph.attr_names for graph in trace.graphs):
            from armillary.engine.physical.splits import join_splits

            views, view_of = join_splits(trace, views, view_of, self.comms)
        self.views = views
        channels = channels_of(self.views, view_of)
        self.read = Workload(trace, platform, self.comms, self.views, view_of, channels)
        check_members(self.read)

    def view(self, rank: int) -> View:
        """See `PhysicalWorkload`."""
        return self.views[self.kind(rank)]

    def kind(self, rank: int) -> int:
        """See `PhysicalWorkload`."""
        return int(self.read.view_of[rank])

    def slots(self, rank: int) -> dict[int, int]:
        """See `PhysicalWorkload`."""
        return self.read.slots(rank)

    def channel(self, channel: Channel) -> tuple[list[int], list[int]]:
        """See `PhysicalWorkload`."""
        return self.read.channel(channel)

    def warnings(self) -> list[str]:
        """See `PhysicalWorkload`."""
        return unreceived(self.read.channels)

    @property
    def loses_messages(self) -> bool:
        """See `PhysicalWorkload`."""
        return any(len(sends) > len(receives) for sends, receives in self.read.channels.values())

    def memory_groups(self) -> Groups:
        """See `PhysicalWorkload`."""
        return self._groups(call.comm for call in self.calls if call.operation in MEMORY_OPERATIONS)

    def host_groups(self) -> Groups:
        """See `PhysicalWorkload`."""
        if not self.has_host:
            return []
        return self._groups(call.comm for call in self.calls if self.chunk_routes(call).crosses_host)

    def _groups(self, numbers: Iterable[int]) -> Groups:
        members = ((number, self.comms.get(number).members) for number in dict.fromkeys(numbers))
        return [
            (ranks, np.array([self.slots(rank).get(number, -1) for rank in ranks.tolist()]))
            for number, ranks in members
        ]

    @cached_property
    def calls(self) -> list[CollectiveCall]:
        """The distinct calls of all views."""
        return list(dict.fromkeys(call for view in self.views for call in view.calls))

    def partition(self, special: Ints) -> Ints:
        """See `PhysicalWorkload`."""
        read = self.read
        patterns: dict[tuple[bytes, bytes], int] = {}
        costs: dict[tuple[ChunkRoutes, int], int] = {}
        keys = ((view.pattern(), self._costs(view, costs)) for view in self.views)
        pattern = np.array([patterns.setdefault(key, len(patterns)) for key in keys])
        colour = self.structure.astype(np.int64) * len(patterns) + pattern[read.view_of]
        colour = colour * (int(special.max()) + 1) + special
        rings = []
        # A collective that moves nothing has no phases, but its members still meet.
        for number, dim in dict.fromkeys(
            (call.comm, d) for call in self.calls for d in self.chunk_routes(call).dims
        ):
            lines = lines_of(self.platform, self.comms.get(number), dim)
            rings.append(Ring(dim, lines, SET, read.slots_in(number, lines)))
        pairs = pairs_of(self.views, read.view_of, read.channels, self.platform, path_code)
        return fold(colour, rings, pairs, self.platform.dimensions)

    def _costs(self, view: View, known: dict[tuple[ChunkRoutes, int], int]) -> bytes:
        """Return what the collectives of a view cost, as a key: groups of other ranks may have another shape.

        It counts the members, too: an all-to-all that moves nothing costs as much in a group of any size, but members
        of groups of two sizes never meet in one call.
        """
        found = []
        for call in view.calls:
            key = self.chunk_routes(call).stripped, len(self.comms.get(call.comm).members)
            found.append(known.setdefault(key, len(known)))
        return np.array(found, np.int64)[view.call[view.call >= 0]].tobytes()
