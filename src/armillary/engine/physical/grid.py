"""A trace with a grid on a platform: classes of ranks follow from its rules, and only a few ranks are ever bound."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.common import network
from armillary.engine.common.fold import Ring, fold
from armillary.engine.common.items import (
    MEMORY_OPERATIONS,
    Channel,
    View,
    check_fits,
    kernel_times,
    read_view,
)
from armillary.engine.common.network import CollectiveCall, Communicator, Communicators
from armillary.engine.physical.grid_messages import GridMessages
from armillary.engine.physical.memory import Groups
from armillary.engine.physical.nodes import (
    PhysicalNodes,
    differ_in_ticks,
    lower_nodes,
    patterns_of,
    placed_view,
    with_ticks,
)
from armillary.engine.physical.splits import Rows, join, read_splits, with_calls
from armillary.engine.physical.workload import SET, PhysicalWorkload
from armillary.platform.model import Platform
from armillary.trace import Graph, NodeType, Trace
from armillary.trace.axis_sets import AxisSets, Route, grid_of, routes_of
from armillary.trace.columns import distinct_columns, distinct_rows
from armillary.trace.expand import refuse_outsider
from armillary.trace.templates import PlacedGraph
from armillary.trace.trace import WORLD

Ints = NDArray[np.int64]


class GridGroups(Communicators):
    """The groups of a grid, by number; a name stands for an axis set, by its index."""

    def __init__(self, platform: Platform, axis_sets: AxisSets) -> None:
        super().__init__(platform)
        self.axis_sets = axis_sets

    def get(self, number: int) -> Communicator:
        """Return communicator `number`, which must exist."""
        if number not in self.found:
            members = self.axis_sets.members(number)
            self.found[number] = Communicator(number, members, len(members) == self.npus)
        return self.found[number]

    def resolve(self, graph: Graph, position: int, name: str) -> int:
        """Return the index of the axis set `name`."""
        return self.axis_sets.find(name)


@dataclass(frozen=True, eq=False)
class Alike:
    """Groups of one axis set whose members run the same graphs and lie alike in the machine."""

    groups: Ints
    cost: int
    """Equal where the phases are."""
    dims: tuple[int, ...]


class GridWorkload(PhysicalWorkload):
    """A trace whose groups and peers follow from a grid."""

    comms: GridGroups

    def __init__(self, trace: Trace, platform: Platform) -> None:
        """Read the class graphs.

        Raises:
            InputError: the trace does not fit the platform, or something in it cannot be simulated.
        """
        super().__init__(platform)
        check_fits(trace, platform)
        self.view_of = trace.rank_graph
        self.axis_sets = AxisSets(trace)
        self.comms = GridGroups(platform, self.axis_sets)
        self.views: list[View] = []
        routes = []
        distinct = patterns_of(trace)
        self._patterns = list({id(pattern): pattern for pattern in distinct}.values())
        self._lowered, warnings = self._lower(platform)
        read: dict[int, tuple[View, list[Route]]] = {}
        for pattern, nodes in zip(self._patterns, self._lowered, strict=True):
            route, found = routes_of(pattern, grid_of(trace))
            read[id(pattern)] = read_view(pattern, nodes, platform, self.comms, route), found
        for graph, pattern in zip(trace.graphs, distinct, strict=True):
            view, found = read[id(pattern)]
            if isinstance(graph, PlacedGraph) and pattern is not graph:
                view, used = placed_view(view, graph, platform)
                found = [found[route] for route in used]
            self.views.append(view)
            routes.append(found if view.pairs() else [])
        self._own_warnings = self.views[0].nodes.warnings
        self.views[0] = _warned(self.views[0], [*self._own_warnings, *warnings])
        # Still by axis set; `slots` turns these into numbers of groups for one rank.
        self._slots = [view.slots() for view in self.views]
        self._check_members()
        self._check_ends()
        self.messages = GridMessages(self.views, self.view_of, routes, grid_of(trace))
        self._splits = [read_splits(view.nodes.graph, view) for view in self.views]
        self._bound: dict[int, View] = {}
        self._joined: dict[tuple[int, int], dict[int, CollectiveCall]] = {}
        self._folds: dict[object, Ints] = {}
        self._numbered: dict[tuple[int, int, tuple[int, ...]], list[CollectiveCall]] = {}

    def on(self, platform: Platform, trace: Trace) -> GridWorkload | None:
        """Return the trace on a machine that differs in the times of kernels and of the network only.

        None: what its nodes are differs, too, so the trace must be read anew.

        Args:
            platform: The machine.
            trace: The same, or one that differs in durations only, see `armillary.trace.templates.differ_in_times`.
        """
        found = copy(self)
        found._patterns = list({id(pattern): pattern for pattern in patterns_of(trace)}.values())
        known, (lowered, warnings) = self._lowered, found._lower(platform)
        if not all(map(differ_in_ticks, lowered, known)):
            return None
        warnings = [*self._own_warnings, *warnings]
        PhysicalWorkload.__init__(found, platform)
        found.lines = self.lines
        # What knows columns of views by identity finds them again.
        found.slot_numbers = {**self.slot_numbers}
        same = all(np.array_equal(a.ticks, b.ticks) for a, b in zip(lowered, known, strict=True))
        if same and self.views[0].nodes.warnings == warnings and self._patterns == found._patterns:
            # Launches and stragglers make these times longer.
            found.paced = self.paced if platform.terms == self.platform.terms else found.paced
            return found
        of = {id(old.graph): new.ticks for old, new in zip(known, lowered, strict=True)}
        found._lowered, places = lowered, zip(self.views, trace.graphs, strict=True)
        found.views = [with_ticks(view, graph, of) for view, graph in places]
        found.views[0] = _warned(found.views[0], warnings)
        found._bound = {}
        for rank, view in self._bound.items():
            found._bound[rank] = replace(view, nodes=found.views[self.kind(rank)].nodes)
        return found

    def _lower(self, platform: Platform) -> tuple[list[PhysicalNodes], list[str]]:
        """Return the nodes of all patterns, and what a person should know of the times of their kernels."""
        times = kernel_times(platform, self._patterns, fill=True)
        lowered = [self._in_axis_sets(lower_nodes(pattern, platform, times)) for pattern in self._patterns]
        return lowered, times.warnings if times else []

    def _in_axis_sets(self, nodes: PhysicalNodes) -> PhysicalNodes:
        codes, names = nodes.graph.strings("pg_name")
        axis_set = np.array([self.axis_sets.find(name) for name in names] + [WORLD], np.int64)
        return replace(nodes, group=axis_set[codes[nodes.order]])

    def _check_members(self) -> None:
        for v, view in enumerate(self.views):
            for axis_set in self._slots[v]:
                outside = (self.view_of == v) & (self.axis_sets.all[axis_set].group_of < 0)
                if outside.any():
                    refuse_outsider(view.nodes.graph, self.axis_sets, axis_set, int(np.argmax(outside)))

    def _check_ends(self) -> None:
        """Check that messages without an axis name the rank that runs them, if they name their own end."""
        for v, view in enumerate(self.views):
            graph = view.nodes.graph
            at = view.nodes.order[view.nodes.items[view.pairs()]]
            send = graph.types[at] == NodeType.COMM_SEND_NODE
            own = np.where(send, graph.ints_at(at, "comm_src", -1), graph.ints_at(at, "comm_dst", -1))
            own[graph.has("comm_axis")[at]] = -1
            if (own != -1).any():
                ranks = np.flatnonzero(self.view_of == v)
                bad = np.flatnonzero((own != -1) & ((own != ranks[0]) | (len(ranks) > 1)))
                for item in bad[:1].tolist():
                    rank = int(ranks[ranks != own[item]][0])
                    name = "comm_src" if send[item] else "comm_dst"
                    raise InputError(
                        f"{graph.node(int(at[item]))} has {name} {own[item]}; expected {rank}, the rank that runs it"
                    )

    def kind(self, rank: int) -> int:
        """See `PhysicalWorkload`."""
        return int(self.view_of[rank])

    def view(self, rank: int) -> View:
        """See `PhysicalWorkload`."""
        if rank not in self._bound:
            v = self.kind(rank)
            view = self.views[v]
            number = {axis_set: self.axis_sets.number(axis_set, rank) for axis_set in self._slots[v]}
            peer = view.peer
            if self.messages.peers[v].table.size:
                peer = np.where(peer >= 0, self.messages.peers[v].of(rank)[peer], -1)
            calls = [replace(call, comm=number[call.comm]) for call in view.calls]
            bound = replace(view, calls=calls, peer=peer)
            joined: dict[int, CollectiveCall] = {}
            for axis_set, rows in self._splits[v].items():
                found = self.joined(axis_set, number[axis_set])
                joined |= {item: found[k] for k, (item, _) in rows.items()}
            self._bound[rank] = with_calls(bound, joined) if joined else bound
        return self._bound[rank]

    def joined(self, axis_set: int, number: int) -> dict[int, CollectiveCall]:
        """Return the all-to-alls with splits of a group, by their place among its collectives."""
        if not any(self._splits):
            return {}
        key = (axis_set, number)
        if key not in self._joined:
            ranks = self.axis_sets.members(number).tolist()
            members: list[Rows] = [self._splits[self.kind(rank)].get(axis_set, {}) for rank in ranks]
            sources = [f"{self.views[self.kind(rank)].nodes.graph.source}: rank {rank}" for rank in ranks]
            self._joined[key] = join(number, members, sources) if any(members) else {}
        return self._joined[key]

    def slots(self, rank: int) -> dict[int, int]:
        """See `PhysicalWorkload`."""
        slots = self._slots[self.kind(rank)]
        return {self.axis_sets.number(axis_set, rank): slot for axis_set, slot in slots.items()}

    def channel(self, channel: Channel) -> tuple[list[int], list[int]]:
        """See `PhysicalWorkload`."""
        return self.messages.channel(channel)

    def names_of_all(self) -> tuple[str, ...]:
        """See `PhysicalWorkload`."""
        return self.axis_sets.of_all

    def group_names(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return the axis set of each of these groups but the world."""
        return {number: self.axis_sets.of(number).name for number in numbers if number != WORLD}

    def warnings(self) -> list[str]:
        """See `PhysicalWorkload`."""
        lost = self.messages.lost
        if not lost:
            return []
        tag, source, target, size = lost[0][1]
        return [
            f"{sum(count for count, _ in lost)} messages are never received, the first of {size} bytes with tag {tag} "
            f"from rank {source} to rank {target}"
        ]

    @property
    def loses_messages(self) -> bool:
        """See `PhysicalWorkload`."""
        return bool(self.messages.lost)

    @cached_property
    def _plain(self) -> list[list[CollectiveCall]]:
        """The calls of each view but those that only all-to-alls with splits have."""
        plain = []
        for view, splits in zip(self.views, self._splits, strict=True):
            call = view.call.copy()
            for rows in splits.values():
                call[[item for item, _ in rows.values()]] = -1
            plain.append([view.calls[j] for j in np.flatnonzero(np.bincount(call[call >= 0])).tolist()])
        return plain

    def _calls(self, axis_set: int, group: int, views: list[int]) -> list[CollectiveCall]:
        """Return the calls of a group whose members have these views."""
        number = self.axis_sets.all[axis_set].base + group
        key = axis_set, group, tuple(views)
        if key not in self._numbered:
            calls = (j for v in views for j in self._plain[v] if j.comm == axis_set)
            self._numbered[key] = [replace(call, comm=number) for call in calls]
        return [*self._numbered[key], *self.joined(axis_set, number).values()]

    @cached_property
    def _examples(self) -> dict[int, list[tuple[Ints, list[int]]]]:
        """By axis set: groups whose members have the same views and lie alike, and those views."""
        result: dict[int, list[tuple[Ints, list[int]]]] = {}
        for axis_set in sorted({axis_set for slots in self._slots for axis_set in slots}):
            table = self.axis_sets.all[axis_set].members
            uses = np.array([axis_set in slots for slots in self._slots])
            views = self.view_of[table].astype(np.int64)
            # Relative to the lowest position: groups that lie alike in the machine differ by a shift only.
            places = [
                table // stride % dimension.size
                for stride, dimension in zip(
                    network.strides(self.platform.dimensions), self.platform.dimensions, strict=True
                )
            ]
            columns = [views, *(place - place.min(axis=1, keepdims=True) for place in places)]
            first, of_group = distinct_rows(np.concatenate(columns, axis=1))
            result[axis_set] = []
            for number, example in enumerate(first.tolist()):
                groups = np.flatnonzero(of_group == number)
                found = np.unique(views[example])
                if uses[found].any():
                    result[axis_set].append((groups, found[uses[found]].tolist()))
        return result

    @cached_property
    def calls(self) -> list[CollectiveCall]:
        """See `PhysicalWorkload`."""
        return [
            call
            for axis_set, examples in self._examples.items()
            for groups, views in examples
            for call in self._calls(axis_set, int(groups[0]), views)
        ]

    def _alike(self, axis_set: int) -> list[Alike]:
        known: dict[object, int] = {}
        result = []
        for groups, views in self._examples[axis_set]:
            found = [self.chunk_routes(call) for call in self._calls(axis_set, int(groups[0]), views)]
            key = (tuple(views), *(chunk_routes.stripped for chunk_routes in found))
            dims = tuple(dict.fromkeys(d for chunk_routes in found for d in chunk_routes.dims))
            result.append(Alike(groups, known.setdefault(key, len(known)), dims))
        return result

    def partition(self, special: Ints) -> Ints:
        """See `PhysicalWorkload`."""
        every = {axis_set: self._alike(axis_set) for axis_set in self._examples}
        # Groups follow from the trace: only which of them cost the same, and where they meet, is of the machine.
        key = special.tobytes(), tuple((each.cost, each.dims) for alike in every.values() for each in alike)
        if key not in self._folds:
            self._folds.clear()  # neighbours in a sweep mostly fold alike; more would take memory
            self._folds[key] = self._partition(special, every)
        return self._folds[key]

    def _partition(self, special: Ints, every: dict[int, list[Alike]]) -> Ints:
        colour = self.view_of.astype(np.int64) * (int(special.max()) + 1) + special
        rings: list[Ring] = []
        for axis_set, alike in every.items():
            group_of = self.axis_sets.all[axis_set].group_of
            cost = np.zeros(len(self.axis_sets.all[axis_set].members), np.int64)
            for each in alike:
                cost[each.groups] = each.cost
            if cost.any():
                mine = np.where(group_of >= 0, cost[group_of], 0)
                # Pairs (colour, cost) as one number, renumbered so that products stay small.
                colour = distinct_columns(np.stack([colour, mine]))[1]
            rings += self._rings(axis_set, alike)
        return fold(colour, rings, self.messages.pairs(self.platform), self.platform.dimensions)

    def memory_groups(self) -> Groups:
        """See `PhysicalWorkload`."""
        calls = [call for view in self.views for call in view.calls if call.operation in MEMORY_OPERATIONS]
        return self._groups(call.comm for call in calls)

    def host_groups(self) -> Groups:
        """See `PhysicalWorkload`."""
        if not self.has_host:
            return []
        return self._groups(
            axis_set
            for axis_set, examples in self._examples.items()
            for groups, views in examples
            if any(
                self.chunk_routes(call).crosses_host for call in self._calls(axis_set, int(groups[0]), views)
            )
        )

    def _groups(self, axis_sets: Iterable[int]) -> Groups:
        result: Groups = []
        for axis_set in dict.fromkeys(axis_sets):
            slot = np.array([slots.get(axis_set, -1) for slots in self._slots])
            table = self.axis_sets.all[axis_set].members
            result += [(ranks, slot[self.view_of[ranks]]) for ranks in table]
        return result

    def _rings(self, axis_set: int, alike: list[Alike]) -> list[Ring]:
        """Return the lines of all groups of an axis set, by dimension and length."""
        slot = np.array([slots.get(axis_set, -1) for slots in self._slots])
        lines: dict[tuple[int, int], list[Ints]] = {}
        for each in alike:
            table = self.axis_sets.all[axis_set].members[each.groups]
            for dim in each.dims:
                part = self._lines(table, dim)
                lines.setdefault((dim, part.shape[1]), []).append(part)
        found = []
        for (dim, _), parts in lines.items():
            ranks = np.concatenate(parts)
            found.append(Ring(dim, ranks, SET, slot[self.view_of[ranks]]))
        return found

    def _lines(self, table: Ints, dim: int) -> Ints:
        """Return the lines along a dimension of groups that lie alike."""
        if dim < 0:
            return table
        stride, size = network.strides(self.platform.dimensions)[dim], self.platform.dimensions[dim].size
        place = table[0] // stride % size
        order = np.lexsort((place, table[0] - place * stride))
        return table[:, order].reshape(-1, len(np.unique(place)))


def _warned(view: View, warnings: list[str]) -> View:
    return replace(view, nodes=replace(view.nodes, warnings=warnings))
