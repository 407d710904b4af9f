"""Lower a trace and a platform to a program of profile `physical`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.allowed import Pace
from armillary.base.errors import InputError
from armillary.collective.chunk_order import WITHIN
from armillary.engine.common.items import View, channel_at
from armillary.engine.common.lowered import Tables, side_by_side
from armillary.engine.common.network import quotient_comms
from armillary.engine.physical import layout as lk
from armillary.engine.physical.nodes import COMPUTE, CPU, PhysicalNodes, slots_of
from armillary.engine.physical.plans import Channels, Lines, Plans
from armillary.engine.physical.program import PhysicalProgram
from armillary.engine.physical.workload import ListedWorkload, PhysicalWorkload
from armillary.platform.memory import fill_ns
from armillary.platform.model import Platform
from armillary.trace import NodeType, Trace
from armillary.trace.grid import MOST_NODES

Ints = NDArray[np.int64]


class Paces:
    """The views of ranks with slots by stream and durations of their own; ranks that are alike share them."""

    def __init__(self, workload: PhysicalWorkload) -> None:
        self.workload, self.platform = workload, workload.platform
        # Machines that differ in their network only have the same views; those of jitter are as many as ranks.
        self._nodes, self._views = ({}, {}) if self.platform.jitter else workload.paced
        self._slots = workload.slot_numbers

    def view(self, rank: int) -> View:
        """Return the view of a rank."""
        view, speed = self.workload.view(rank), self.platform.npu.speed.get(rank, 1.0)
        # With jitter every rank draws durations of its own, so none are shared.
        key = (self.workload.kind(rank), speed, rank if self.platform.jitter else -1)
        if key not in self._nodes:
            assert isinstance(view.nodes, PhysicalNodes)
            ticks = self._ticks(view.nodes, rank, speed)
            self._nodes[key] = replace(view.nodes, slot=self._slot(view, view.nodes), ticks=ticks)
        nodes = self._nodes[key]
        at = (id(view), id(nodes))
        if at not in self._views:
            self._views[at] = replace(view, nodes=nodes)
        return self._views[at]

    def _slot(self, view: View, nodes: PhysicalNodes) -> Ints:
        """Return `slots_of`, the same array for views that differ in durations only."""
        # By identity, which the views of the workload keep alive.
        key = (id(nodes.slot), id(nodes.stream), id(nodes.group), id(view.call), id(view.calls))
        if key not in self._slots:
            self._slots[key] = slots_of(view, nodes)
        return self._slots[key]

    def _ticks(self, nodes: PhysicalNodes, rank: int, speed: float) -> Ints:
        jitter, terms = self.platform.jitter, self.platform.terms
        if speed == 1.0 and not (jitter or terms.straggler or terms.launch):
            return nodes.ticks
        stretch: NDArray[np.float64] | float = 1.0 / speed
        if jitter:
            # Seeded by rank: the durations of a rank do not depend on which others are simulated.
            random = np.random.default_rng([jitter.seed, rank])
            # A normal variable has no lower bound, but a duration has.
            stretch *= np.maximum(1 + jitter.sigma * random.standard_normal(len(nodes.kind)), 0)
        if terms.straggler:
            from armillary.engine.physical.terms.straggler import slowest

            stretch *= slowest(terms.straggler, self.platform.npus)
        # The nodes as the graph has them: `slot` is still a class (COMPUTE, CPU), not yet a number (`slots_of`).
        timed = np.isin(nodes.slot, (COMPUTE, CPU))
        ticks = np.where(timed, np.ceil(nodes.ticks * stretch), nodes.ticks).astype(np.int64)
        # What the CPU has not issued yet cannot begin: of two kernels in a row, the second begins a launch later.
        least = np.where(nodes.slot == COMPUTE, ceil(terms.launch), 0)
        return np.maximum(ticks, least)


def lower(trace: Trace, platform: Platform, *, fold_ranks: bool = True) -> PhysicalProgram:
    """Lower `trace` on `platform`.

    Args:
        trace: One graph per NPU.
        platform: The machine.
        fold_ranks: Simulate one rank of each class; else every rank.

    Raises:
        InputError: the trace does not fit the machine, or something in it cannot be simulated.
    """
    if platform.astra_sim.custom or platform.astra_sim.custom_by_node:
        raise InputError(
            "custom collectives are modelled by profile astra-sim only; remove them or use that profile"
        )
    workload = _workload(trace, platform)
    classes = workload.classify() if fold_ranks else np.arange(trace.n_ranks)
    if trace.grid is not None:
        _check_size(trace, classes)
    warnings = [*workload.warnings(), *workload.fit_warnings(), *workload.root_warnings()]
    if trace.grid is None:
        return Build(workload, classes).assemble(warnings)
    from armillary.engine.physical.again import again, keep

    program = again(workload, classes, Paces(workload).view, warnings)
    if program is None:
        build = Build(workload, classes)
        program = build.assemble(warnings)
        keep(workload, program, build.channels.carried())
    return program


def classes_of(trace: Trace, platform: Platform) -> Ints:
    """Return the class of every rank: those of one class behave alike.

    Raises:
        InputError: the trace does not fit the machine, or something in it cannot be simulated.
    """
    return _workload(trace, platform).classify()


def _workload(trace: Trace, platform: Platform) -> PhysicalWorkload:
    if trace.grid is None:
        return ListedWorkload(trace, platform)
    from armillary.engine.physical.again import workload_of

    return workload_of(trace, platform)


def _check_size(trace: Trace, classes: Ints) -> None:
    """Refuse more nodes than fit into memory: a grid makes it easy to describe too many."""
    ranks = np.unique(classes, return_index=True)[1]
    sizes = np.array([graph.n_nodes for graph in trace.graphs], np.int64)
    nodes = int(sizes[trace.rank_graph[ranks]].sum())
    if nodes > MOST_NODES:
        raise InputError(
            f"{len(ranks)} of {trace.n_ranks} ranks must be simulated on their own, with {nodes} nodes together; "
            f"expected at most {MOST_NODES}: fold ranks, leave out jitter, shared memory and messages that nobody "
            "receives, or take fewer ranks"
        )


class Build:
    """The tables of one program while they grow."""

    def __init__(
        self, workload: PhysicalWorkload, classes: Ints, channels: type[Channels] = Channels
    ) -> None:
        """Begin with no rank; `channels` is what messages between two ranks are lowered to."""
        self.workload, self.platform, self.classes = workload, workload.platform, classes
        self.representatives = np.unique(classes, return_index=True)[1].astype(np.int64)
        self.comm_at, self.quotients = quotient_comms(workload, classes, self.representatives)
        self.tables, self.paces = Tables(), Paces(workload)
        self.lines = Lines(workload, classes, self.representatives)
        self.plans = Plans(workload, self.lines)
        self.channels = channels(workload, classes, self.tables, self.lines)
        self.slot_ready: list[int] = []
        self.chunk_flows = self.chosen = self.asking = self.batch_rows = 0
        """Numbers of chunk flows, of chunks that choose their route, of members that may wait for such a choice, and of
        rows of chunk batches."""

    def assemble(self, warnings: list[str]) -> PhysicalProgram:
        """Lay out all tables."""
        tables, lines, plans = self.tables, self.lines, self.plans
        # Classes first: they count the calls per communicator, from which `_comm_rows` sizes the instances.
        views, pace = [], Pace("lowering", len(self.representatives), "ranks that differ", "fewer of them")
        for cls in range(len(self.representatives)):
            pace.at(cls)
            views.append(self._class(cls))
        comms = self._comm_rows()
        channels = np.array(tables.channels, np.int64)
        # Chunk flows of collectives come first, and only now is their number known.
        channels[lk.CN_CHUNK_FLOW :: lk.CN_COLUMNS] += self.chunk_flows
        self.chunk_flows += len(tables.channel_at)
        parts = {
            "PACES": tables.paces, "RANKS": tables.ranks, "ITEMS": tables.items,
            "PLANS": plans.rows, "PHASES": plans.phase_rows, "COMMS": comms, "RING_ENTRY": lines.entries,
            "LINE_ROWS": lines.rows, "LINES": lines.members, "LINE_PORTS": lines.ports,
            "PORTS": lines.port_rates(), "CHANNELS": channels, "CHUNKS": plans.chunk_rows,
        }  # fmt: skip
        flat = self._with_rows_of_graphs(parts)
        items = flat["ITEMS"].reshape(-1, lk.I_COLUMNS)
        row = items[:, lk.I_ROW]
        items[:, lk.I_ROW] = np.where(row < 0, ~row + tables.rows, row)
        tables.rows += self.batch_rows
        tables.share_paces(flat["PACES"])
        scheduling = self.platform.scheduling
        scalars = {
            lk.Z_POLICY: lk.FAIR if scheduling == "fair" else lk.ORDERED,
            lk.Z_SIGN: -1 if scheduling == "lifo" else 1,
            lk.Z_STORAGE: self.platform.npus,
            lk.Z_WITHIN: WITHIN.index(self.platform.collectives.within_dimension),
        }
        comms_used = self.workload.comms.found.items()
        names = self.workload.group_names(n for n, _ in comms_used)
        found = dict.fromkeys(w for view in self.workload.views for w in view.nodes.warnings)
        return PhysicalProgram(
            tables=flat,
            scalars=scalars,
            sizes=self._sizes(),
            slot_ready=np.array(self.slot_ready, np.int64),
            classes=self.classes,
            representatives=self.representatives,
            views=views,
            plans=plans.all,
            items=items,
            comm_ordinals=tables.comm_ordinals,
            groups={names.get(n, str(n)): len(c.members) for n, c in comms_used}
            | dict.fromkeys(self.workload.names_of_all(), self.platform.npus),
            group_names=names,
            names_of_all=self.workload.names_of_all(),
            warnings=[*found, *warnings],
        )

    def _with_rows_of_graphs(self, parts: dict[str, Any]) -> dict[str, Ints]:
        """Return all tables: these parts, and what follows from the graphs alone."""
        tables = self.tables
        found = side_by_side(lk.PROGRAM, parts, tables.lengths_of_graphs() | {"TURNS": tables.n_nodes})
        tables.rows_of_graphs(found)
        at = 0
        for nodes in tables.shapes:
            found["TURNS"][at : at + len(nodes.slot)] = turns_of(nodes.slot)
            at += len(nodes.slot)
        return found

    def _sizes(self) -> dict[str, int]:
        """Return the lengths that tables of the state follow from."""
        tables, lines = self.tables, self.lines
        used = lines.rows[lk.LN_PORT_COUNT :: lk.LN_COLUMNS]
        slots = tables.ranks[lk.R_SLOTS :: lk.R_COLUMNS]
        return {
            "ranks": len(self.representatives), "states": tables.states, "rows": tables.rows,
            "items": tables.n_items, "chunk_flows": self.chunk_flows, "ordinals": tables.ordinals,
            "instances": tables.instances, "instance_items": tables.instance_items, "arrived": tables.arrived,
            "ports": lines.network_ports + lines.memory.count + lines.host.count, "channels": len(tables.channel_at),
            "slots_per_rank": max([1, *slots]), "pairs": tables.pairs, "lines": lines.count,
            "slots": len(self.slot_ready), "servers": self.platform.npus + 1, "most_ports": max([1, *used]),
            "chosen": self.chosen, "asking": self.asking, "dimensions": len(lines.rates),
        }  # fmt: skip

    def _class(self, cls: int) -> View:
        """Add one class; returns its view, whose nodes have the slots and durations of its ranks."""
        tables, rank = self.tables, int(self.representatives[cls])
        view = self.paces.view(rank)
        nodes = view.nodes
        count = len(nodes.kind)
        delay = ceil(self.platform.stragglers.get(rank, 0.0))
        slots = int(nodes.slot.max(initial=0)) + 1
        rows = tables.graph(nodes)
        row = [*rows, count, tables.states, tables.n_items, slots, len(self.slot_ready), delay]
        tables.ranks += row
        # The ready heap of a slot has room for all its nodes, so it never grows.
        per_slot = np.bincount(nodes.slot, minlength=slots)
        self.slot_ready += (tables.states + np.cumsum(per_slot) - per_slot).tolist()
        tables.states += count
        items = np.zeros((len(nodes.items), lk.I_COLUMNS), np.int64)
        self._fill_collectives(view, items, cls)
        fill_messages(view, items, rank, self.channels)
        self.workload.accesses.fill(view, items, rank)
        fill_transfers(view, items, cls, self.channels)
        self.channels.fill_stores(view, items, rank)
        tables.items.append(items)
        tables.n_items += len(items)
        return view

    def _fill_collectives(self, view: View, items: Ints, cls: int) -> None:
        """Fill in the collectives of a class, and count what they need."""
        which = np.flatnonzero(view.call >= 0)
        if not which.size:
            return
        tables, slots = self.tables, view.slots()
        of_call = np.zeros((len(view.calls), lk.I_COLUMNS), np.int64)
        columns = [lk.I_PLAN, lk.I_COMM, lk.I_LOCAL, lk.I_CHUNKS, lk.I_ORDINAL, lk.I_RANK]
        per_call = np.zeros((2, len(view.calls)), np.int64)
        batches = np.zeros(len(view.calls), np.bool_)
        for j, call in enumerate(view.calls):
            comm = self.comm_at[(cls, slots[call.comm])]
            plan = self.plans.plan(comm, call)
            ordinal = tables.ordinal(cls, comm.number)
            of_call[j, columns] = plan.number, comm.number, comm.local[cls], plan.chunks, ordinal, cls
            per_call[:, j] = plan.chunks * len(plan.phases), plan.chunks if plan.chunk_routes.choices else 0
            batches[j] = plan.chunk_batch
        # Per distinct call, then spread over the items by whole rows: a graph repeats few calls many times.
        own = view.call[which]
        items[which] = of_call[own]
        rows, asking = per_call[:, own]
        # Rows of chunk batches are rarely written: they stand behind all others, so that these lie close together.
        batch = batches[own]
        first = np.cumsum(np.where(batch, 0, rows)) + tables.rows
        behind = np.cumsum(np.where(batch, rows, 0)) + self.batch_rows
        items[which, lk.I_ROW] = np.where(batch, ~(behind - rows), first - rows)
        tables.rows, self.batch_rows = int(first[-1]), int(behind[-1])
        self.asking += int(asking.sum())
        items[which, lk.I_NODE] = view.nodes.items[which]
        fill_priorities(view, items, which, self.platform)
        times: dict[int, int] = defaultdict(int)
        for number, count in zip(of_call[:, lk.I_COMM].tolist(), np.bincount(own).tolist(), strict=False):
            times[number] += count
        for number, count in times.items():
            tables.comm_times[number] = max(tables.comm_times[number], count)

    def _comm_rows(self) -> list[int]:
        """Return the rows of communicators, and count their instances and chunk flows."""
        tables, rows = self.tables, []
        for comm in self.quotients:
            for cls in comm.local:
                # A member that never calls is why the others wait: -1 lets the diagnosis name it.
                tables.comm_ordinals[comm.number].setdefault(cls, -1)
            times, plans = tables.comm_times[comm.number], self.plans.of_comm[comm.number]
            chunk_flows = self.lines.chunk_flows[comm.number]
            # A chunk batch arrives as a whole: one counter per line instead of one per chunk.
            stride = max(((1 if plan.chunk_batch else plan.chunks) * plan.lines for plan in plans), default=0)
            choosing = max((plan.chunks for plan in plans if plan.chunk_routes.choices), default=0)
            rows += [
                tables.instances, len(comm.local), tables.arrived, stride, tables.instance_items, self.chunk_flows,
                chunk_flows, self.chosen, choosing,
            ]  # fmt: skip
            tables.instances += times
            tables.arrived += times * stride
            tables.instance_items += times * len(comm.local)
            self.chunk_flows += times * chunk_flows
            self.chosen += times * choosing
        return rows


def fill_priorities(view: View, items: Ints, which: Ints, platform: Platform) -> None:
    """Fill in the places of items under scheduling "priority": the highest comm_priority is first."""
    if platform.scheduling != "priority":
        return
    nodes = view.nodes
    priority = nodes.graph.ints("comm_priority", 0)[nodes.order[nodes.items[which]]]
    # The highest comm_priority is served first, the lowest place is. Unlike -x, ~x has no overflow.
    items[which, lk.I_PRIORITY] = ~priority


def fill_messages(view: View, items: Ints, rank: int, channels: Channels) -> None:
    """Fill in the sends and receives of a rank."""
    which, kinds, examples = view.messages()
    if which.size:
        rows = np.array([channels.of(channel_at(view, item, rank)) for item in examples.tolist()], np.int64)
        items[which, lk.I_CHANNEL : lk.I_VOLUME + 1] = rows[kinds]
        fill_priorities(view, items, which, channels.platform)


def fill_transfers(view: View, items: Ints, cls: int, channels: Channels) -> None:
    """Fill in the accesses of a hierarchical memory: loads are one channel, stores another."""
    nodes, platform, lines = view.nodes, channels.platform, channels.lines
    which = np.flatnonzero(nodes.kind[nodes.items] == lk.TRANSFER)
    if not which.size:
        return
    types = nodes.graph.types[nodes.order[nodes.items[which]]]
    for store in (False, True):
        mine = which[(types == NodeType.MEM_STORE_NODE) == store]
        if not mine.size:
            continue
        used = [(port, 1, weight) for port, weight in lines.memory.used(cls, store)]
        number = channels.add(("memory", cls, store), (cls, cls), len(mine), used)
        for item in mine.tolist():
            size = int(view.size[item])
            fill = ceil(fill_ns(platform.remote_memory, size, store, platform.npus))
            items[item, lk.I_CHANNEL : lk.I_VOLUME + 1] = number, fill, channels.scale.volume(size)
    fill_priorities(view, items, which, platform)


def turns_of(slot: Ints) -> Ints:
    """Return the rows of TURNS of a graph, given the slots of its nodes."""
    # Of 16 bits NumPy sorts in linear time.
    order = np.argsort(slot.astype(np.int16) if slot.max(initial=0) < 1 << 15 else slot, kind="stable")
    counts = np.bincount(slot)
    place = np.empty(len(slot), np.int64)
    place[order] = np.arange(len(slot)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place
