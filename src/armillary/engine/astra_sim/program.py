"""Lower a trace and a platform to a `Program`: integer arrays that the kernel runs."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.astra_sim import layout as lk
from armillary.engine.astra_sim.classes import CallPhases, Carried, classify, find_phases
from armillary.engine.astra_sim.congestion.network import Links, buckets
from armillary.engine.astra_sim.custom import expand, uses_custom
from armillary.engine.astra_sim.phase_costs import CONTROL_BYTES, PhaseCosts
from armillary.engine.astra_sim.plans import TREE_KINDS, CallPlan, Plans
from armillary.engine.common import network
from armillary.engine.common.items import (
    Channel,
    View,
    Workload,
    channel_at,
    channels_of,
    read_workload,
    unreceived,
)
from armillary.engine.common.lowered import Run, Simulated, Tables, as_table, join
from armillary.engine.common.network import CollectiveCall, Communicator, quotient_comms
from armillary.engine.common.nodes import lower_nodes
from armillary.platform.model import Platform
from armillary.platform.profiles import astra_sim_active_chunks
from armillary.trace import Trace

Ints = NDArray[np.int64]
LONGEST = 1 << 62
"""Work of this many ticks or more is refused."""
ORDERS = ("FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst")


@dataclass(kw_only=True)
class Lowered(Simulated):
    """A lowered program of profile `astra-sim`; its tables are those but the phase costs."""

    plans: list[CallPlan]
    costs: PhaseCosts
    carries: bool
    """Routes of chunks depend on which rank begins a collective first; unless `listed`, nothing is carried over."""

    @property
    def layout(self) -> ModuleType:
        """The module that names the tables and their columns."""
        return lk

    def calls(self) -> list[tuple[int, CollectiveCall, Communicator]]:
        """See `Simulated.calls`."""
        return [(plan.comm.number, plan.source, plan.comm.real) for plan in self.plans]

    @property
    def variant(self) -> str:
        """The variant of the kernel that runs it."""
        if self.listed:
            return "contention"
        return "scheduled" if self.scalars[lk.Z_ORDER] or self.sizes["routed"] else ""

    @property
    def listed(self) -> bool:
        """Whether events are in lists, in the order in which they were registered."""
        return lk.Z_BUCKETS in self.scalars

    def finish_place(self, run: Run) -> Ints:
        """See `Simulated`: events in lists have ASTRA-sim's order."""
        return run.table("FINISHER").copy() if self.listed else super().finish_place(run)

    def wanted(self, run: Any) -> Carried:
        """Return what `lower` must know as carried for a run that stopped for lack of it; else nothing."""
        if run.scalar(lk.V_STATUS) != lk.CARRIED:
            return frozenset()
        known = {(other, plan.source) for plan in self.plans for other in plan.call.after}
        plan = self.plans[int(self.items[run.scalar(lk.V_A), lk.I_PLAN])]
        return frozenset({*known, (self.plans[run.scalar(lk.V_B)].source, plan.source)})

    @property
    def rows_follow_from_plans(self) -> bool:
        """See `Simulated`; not where chunks take several routes."""
        return not any(plan.routed for plan in self.plans)

    def rows_of_phases(self, run: Any, item: Ints, chunk: Ints, place: Ints, step: Ints) -> Ints:
        """See `Simulated`; chunks that take several routes noted their rows."""
        rows = super().rows_of_phases(run, item, chunk, place, step)
        routed = np.array([p.routed for p in self.plans], np.bool_)[self.items[item, lk.I_PLAN]]
        rows[routed] = run.table("ROW_PHASE")[place[routed]]
        return rows


def lower(
    trace: Trace,
    platform: Platform,
    *,
    fold_ranks: bool = True,
    messages: bool = False,
    contention: bool = False,
    listed: bool = False,
    carried: Carried = frozenset(),
) -> Lowered:
    """Lower `trace` on `platform`.

    Args:
        trace: One graph per NPU.
        platform: The machine.
        fold_ranks: Simulate one rank of each class; else every rank.
        messages: Move every message of collectives instead of evaluating phases.
        contention: Let messages cross links that carry one at a time; every rank is simulated.
        listed: Take the events of a tick in the order in which they were registered, which is ASTRA-sim's: every
            message of every rank is moved. Contention has no other order.
        carried: Calls whose work the greedy scheduler may find left over; `Lowered.wanted` tells which.

    Raises:
        InputError: the trace does not fit the machine, or something in it cannot be simulated.
    """
    views, view_of, comms, structure = read_workload(trace, platform, lower_nodes)
    custom = uses_custom(views)
    if custom:
        # Every member has a trace of its own: no two ranks are known to behave alike.
        # A trace per member needs a view per rank.
        views = [expand(views[v], rank, comms) for rank, v in enumerate(view_of.tolist())]
        view_of = np.arange(trace.n_ranks, dtype=np.int32)
        fold_ranks = False
    channels = channels_of(views, view_of)
    workload = Workload(trace, platform, comms, views, view_of, channels)
    call_phases, warnings = find_phases(workload, carried)
    # Contention always needs ASTRA-sim's order of events.
    listed |= contention
    # What is first within a tick depends on the rank: no two are known to behave alike.
    fold_ranks &= not listed
    classes = classify(workload, call_phases, structure) if fold_ranks else np.arange(trace.n_ranks)
    build = _Build(workload, call_phases, classes, Links(platform.dimensions) if contention else None)
    build.warnings += [*unreceived(channels), *warnings]
    return build.assemble(messages, listed, _carries(views, call_phases))


def _carries(views: list[View], call_phases: CallPhases) -> bool:
    """Tell whether the greedy scheduler may find work of a collective left over when another one begins."""
    greedy = {call for call, found in call_phases.items() if found.greedy}
    return bool(greedy) and any(
        np.isin(view.call, [j for j, call in enumerate(view.calls) if call in greedy]).sum() > 1
        for view in views
    )


class _Build:
    """The tables of one program while they grow."""

    def __init__(
        self, workload: Workload, call_phases: CallPhases, classes: Ints, links: Links | None
    ) -> None:
        platform = workload.platform
        self.links = links
        self.platform, self.comms, self.channels = platform, workload.comms, workload.channels
        self.call_phases, self.classes = call_phases, classes
        self.representatives = np.unique(classes, return_index=True)[1].astype(np.int64)
        views = workload.views
        self.class_views = [views[v] for v in workload.view_of[self.representatives].tolist()]
        self.comm_at, self.quotients = quotient_comms(workload, classes, self.representatives)
        self.plans = Plans(platform, classes, self.representatives, self.call_phases, links)
        self.warnings = list(dict.fromkeys(w for view in views for w in view.nodes.warnings))

    def assemble(self, messages: bool, listed: bool, carries: bool) -> Lowered:
        """Lay out all arrays."""
        platform = self.platform
        tables = Tables()
        for cls, view in enumerate(self.class_views):
            self._rank(tables, cls, view)
        comm_rows = self._comm_rows(tables)
        plans, rings = self.plans, self.plans.rings
        levels = len(platform.dimensions)
        trees = len(TREE_KINDS) * levels
        queues = platform.astra_sim.queues_per_dim
        # Active chunks of a dimension are divided among its queues, rounded up.
        limit = -(-astra_sim_active_chunks(platform) // queues)
        bus = platform.astra_sim.shared_bus
        ranks = len(self.class_views)
        # The folded run cannot tell who begins a collective first: only the listed one carries work over.
        after = plans.after() if carries and listed else np.zeros(0, np.int64)
        scalars = {
            lk.Z_CARRIES: int(carries and listed), lk.Z_PLANS: len(plans.all),
            lk.Z_RANKS: ranks, lk.Z_LEVELS: levels, lk.Z_QUEUES: queues, lk.Z_LIMIT: limit, lk.Z_TREES: trees,
            lk.Z_ORDER: ORDERS.index(platform.astra_sim.intra_dimension),
            # A shared bus and messages without duration couple phases: these must be moved one by one.
            lk.Z_MESSAGES: int(messages or listed or bus is not None or plans.costs.instant),
        }  # fmt: skip
        if bus:
            scalars |= {lk.Z_BUS_L: bus.L, lk.Z_BUS_O: bus.o, lk.Z_BUS_G: bus.g}
        if listed:
            scalars |= {lk.Z_NPUS: ranks, lk.Z_BUCKETS: buckets(ranks, self.links.count if self.links else 0)}
        if self.links:
            scalars[lk.Z_LINKS] = len(self.links.dimensions)
        items = np.concatenate(tables.items) if tables.items else np.zeros((0, lk.I_COLUMNS), np.int64)
        self._check_length(items)
        graphs = {name: np.empty(length, np.int64) for name, length in tables.lengths_of_graphs().items()}
        tables.rows_of_graphs(graphs)
        program = {
            **graphs, "PACES": tables.paces, "RANKS": tables.ranks, "ITEMS": items,
            "PLANS": plans.rows, "PHASES": plans.phase_rows, "ROUTES": plans.route_rows, "AFTER": after,
            "COMMS": comm_rows,
            "RING_ENTRY": rings.ring_entry, "LINE_ROWS": rings.line_rows, "LINES": rings.lines,
            "CHANNELS": tables.channels, **(self.links.tables() if self.links else {}),
        }  # fmt: skip
        sizes = {
            "ranks": ranks, "states": tables.states, "streams": tables.streams,
            "rows": tables.rows, "routed": tables.rows * any(plan.routed for plan in plans.all),
            "bases": tables.bases, "items": len(items), "ordinals": tables.ordinals,
            "instances": tables.instances, "instance_items": tables.instance_items, "arrived": tables.arrived,
            "queues": ranks * levels * queues, "trees": trees, "channels": len(tables.channel_at),
            "pairs": tables.pairs, "lines": len(rings.line_rows) // lk.LN_COLUMNS, "servers": self._servers(),
            "links": self.links.count if self.links else 0,
            "deferred": max((len(v.nodes.kind) for v in self.class_views), default=0),
        }  # fmt: skip
        return Lowered(
            tables={name: as_table(table) for name, table in program.items()},
            costs=plans.costs,
            carries=carries,
            scalars=scalars,
            sizes=sizes,
            classes=self.classes,
            representatives=self.representatives,
            views=self.class_views,
            plans=plans.all,
            items=items,
            comm_ordinals=tables.comm_ordinals,
            groups={str(n): len(c.members) for n, c in self.comms.found.items()},
            warnings=self.warnings,
        )

    def _check_length(self, items: Ints) -> None:
        """Refuse work whose sum exceeds the range of ticks: kernels do not notice an overflow."""
        kind = join([view.nodes.kind[view.nodes.items] for view in self.class_views], np.int64)
        timed = [view.nodes.ticks[view.nodes.kind == lk.FIXED] for view in self.class_views]
        total = float(sum(ticks.sum(dtype=np.float64) for ticks in timed))
        collective = items[kind == lk.COLLECTIVE]
        if len(collective):
            ticks = np.array([plan.ticks for plan in self.plans.all], np.float64)
            total += float((ticks[collective[:, lk.I_PLAN]] * collective[:, lk.I_CHUNKS]).sum())
        # Memory nodes have their ticks in the column in which messages have their delay.
        total += float(items[kind != lk.COLLECTIVE, lk.I_DELAY].sum(dtype=np.float64))
        if total >= LONGEST:
            raise InputError(
                f"the nodes of all ranks take {total:.3g} ns; expected less than {LONGEST:.3g} ns: ticks are int64"
            )

    def _servers(self) -> int:
        memory = self.platform.remote_memory
        if memory.kind == "per-node":
            return -(-self.platform.npus // memory.npus_per_node)
        return int(memory.kind == "pool")

    def _rank(self, tables: Tables, cls: int, view: View) -> None:
        nodes = view.nodes
        row = [*tables.graph(nodes), len(nodes.kind), tables.states, tables.n_items]
        counts = np.bincount(nodes.slot, minlength=5)
        row += (tables.states + np.concatenate([[0], np.cumsum(counts)[:-1]])).tolist()
        tables.ranks += row
        tables.states += len(nodes.kind)
        items = np.full((len(nodes.items), lk.I_COLUMNS), 0, np.int64)
        collective = np.flatnonzero(view.call >= 0)
        if collective.size:
            self._collectives(tables, cls, view, items, collective)
        self._pairs(tables, cls, view, items)
        memory = np.flatnonzero(nodes.kind[nodes.items] == lk.MEMORY)
        if memory.size:
            self._memory(cls, view, items, memory)
        tables.items.append(items)
        tables.n_items += len(items)

    def _collectives(self, tables: Tables, cls: int, view: View, items: Ints, which: Ints) -> None:
        slots = view.slots()
        of_call = np.zeros((len(view.calls), 6), np.int64)
        for j, call in enumerate(view.calls):
            comm = self.comm_at[(cls, slots[call.comm])]
            number = comm.number
            plan = self.plans.plan(comm, call)
            ordinal = tables.ordinal(cls, number)
            of_call[j] = (plan.number, number, comm.local[cls], plan.chunks, len(plan.phases), ordinal)
        rows = of_call[view.call[which]]
        items[which, lk.I_PLAN], items[which, lk.I_COMM], items[which, lk.I_LOCAL] = (
            rows[:, 0],
            rows[:, 1],
            rows[:, 2],
        )
        items[which, lk.I_CHUNKS], items[which, lk.I_ORDINAL] = rows[:, 3], rows[:, 5]
        for column, amount, name in (
            (lk.I_STREAM, rows[:, 3], "streams"),
            (lk.I_ROW, rows[:, 3] * rows[:, 4], "rows"),
            (lk.I_BASE, rows[:, 4], "bases"),
        ):
            # Each item gets a span of its own: the place before it is the sum of those before.
            after = np.cumsum(amount)
            items[which, column] = getattr(tables, name) + after - amount
            setattr(tables, name, getattr(tables, name) + int(after[-1]))
        items[which, lk.I_RANK] = cls
        items[which, lk.I_NODE] = view.nodes.items[which]
        if view.parts is not None:
            items[which, lk.I_FIRST], items[which, lk.I_PARTS] = view.parts[which].T
        # The room of a communicator follows from the member that uses it most.
        for number, times in zip(*np.unique(rows[:, 1], return_counts=True), strict=True):
            tables.comm_times[int(number)] = max(tables.comm_times[int(number)], int(times))

    def _pairs(self, tables: Tables, cls: int, view: View, items: Ints) -> None:
        """Fill in the sends and receives of a class."""
        # Many messages of a view are alike: one example of each kind is looked up.
        which, kinds, examples = view.messages()
        if which.size:
            rank = int(self.representatives[cls])
            rows = [self._channel(tables, channel_at(view, item, rank)) for item in examples.tolist()]
            columns = [lk.I_CHANNEL, lk.I_DELAY, lk.I_CONTROL]
            items[which[:, None], columns] = np.array(rows, np.int64)[kinds]

    def _channel(self, tables: Tables, channel: Channel) -> tuple[int, int, int]:
        """Return (quotient channel, delay of a message, delay of what clears it or -1) of a channel."""
        # Lowered channels are between classes: pairs of ranks that behave alike share one.
        tag, source, destination, size = channel
        sends, receives = self.channels[channel]
        a, b = int(self.classes[source]), int(self.classes[destination])
        key = (tag, a, b, size, tuple(sends), tuple(receives))
        message, control = (
            self._delay(a, b, bytes_) for a, b, bytes_ in
            ((source, destination, size), (destination, source, CONTROL_BYTES))
        )  # fmt: skip
        number = tables.channel(key, len(sends), len(receives))
        return number, message, control if self.platform.astra_sim.rendezvous else -1

    def _delay(self, source: int, destination: int, size: int) -> int:
        """Return the delay of a message; with contention the number of its size."""
        if self.links:
            return self.links.size(size)
        dimension, hop = network.route(self.platform.dimensions, np.array(source), np.array(destination))
        return int(network.delay(self.platform.dimensions, dimension, hop, np.array(size)))

    def _memory(self, cls: int, view: View, items: Ints, which: Ints) -> None:
        memory = self.platform.remote_memory
        if memory.kind == "none":
            node = int(view.nodes.order[view.nodes.items[which[0]]])
            raise InputError(
                f"{view.nodes.graph.node(node)} accesses remote memory, but the machine has none; expected a "
                "remote-memory configuration other than NO_MEMORY_EXPANSION"
            )
        rank = int(self.representatives[cls])
        # per-node: the memory of the node that the rank is in.
        server = {"per-npu": -1, "pool": 0}.get(memory.kind, rank // max(memory.npus_per_node, 1))
        network.whole_ticks(np.array([float(memory.latency)]), "remote memory")
        size = view.size[which]
        transfer = (size / memory.bandwidth).astype(np.int64) if memory.bandwidth else np.zeros_like(size)
        items[which, lk.I_SERVER] = server
        items[which, lk.I_TICKS] = memory.latency + transfer

    def _comm_rows(self, tables: Tables) -> list[int]:
        rows = []
        strides = dict.fromkeys(self.quotients, 0)
        # Room per instance of a communicator: the most that any of its plans needs.
        for plan in self.plans.all:
            strides[plan.comm] = max(strides[plan.comm], plan.chunks * plan.lines)
        for comm, stride in strides.items():
            for cls in comm.local:
                # A class that never uses the communicator still has an entry, -1.
                tables.comm_ordinals[comm.number].setdefault(cls, -1)
            times = tables.comm_times[comm.number]
            rows += [tables.instances, len(comm.local), tables.arrived, stride, tables.instance_items]
            tables.instances += times
            tables.arrived += times * stride
            tables.instance_items += times * len(comm.local)
        return rows
