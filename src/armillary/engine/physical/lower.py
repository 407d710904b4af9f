"""Lower a trace and a platform to a program of profile `physical`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.collective.chunk_order.alone import WITHIN
from armillary.engine import network
from armillary.engine.classes import quotient_comms
from armillary.engine.items import Channel, View, channel_at
from armillary.engine.jobs import Job
from armillary.engine.lowered import as_table
from armillary.engine.physical import fluid_layout_kernel as lk
from armillary.engine.physical.classes import lines_of
from armillary.engine.physical.jobs import (
    MEMORY_STORE,
    MOST_BITS,
    PhysicalPhase,
    bits,
    links_share,
    ticks,
)
from armillary.engine.physical.memory import MemoryPorts
from armillary.engine.physical.nodes import COMPUTE, CPU, PhysicalNodes, slots_of
from armillary.engine.physical.program import PhysicalProgram, Plan
from armillary.engine.physical.workload import ListedWorkload, PhysicalWorkload
from armillary.engine.quotient import QuotientComm
from armillary.engine.tables import Tables
from armillary.errors import InputError
from armillary.platform.bandwidth import ports
from armillary.platform.memory import fill_ns
from armillary.platform.model import Platform
from armillary.trace import NodeType, Trace
from armillary.trace.expand import MOST_NODES
from armillary.trace.process_groups import WORLD
from armillary.units import format_bandwidth

Ints = NDArray[np.int64]


def lower(trace: Trace, platform: Platform, *, fold_ranks: bool = True) -> PhysicalProgram:
    """Lower `trace` on `platform`.

    Args:
        trace: One graph per NPU.
        platform: The machine.
        fold_ranks: Simulate one rank of each class; else every rank.

    Raises:
        InputError: the trace does not fit the machine, or something in it cannot be simulated.
    """
    if platform.system.custom or platform.system.custom_by_node:
        raise InputError(
            "custom collectives are modelled by profile astra-sim only; remove them or use that profile"
        )
    workload: PhysicalWorkload
    if trace.grid is None:
        workload = ListedWorkload(trace, platform)
    else:
        from armillary.engine.physical.grid import GridWorkload

        workload = GridWorkload(trace, platform)
    classes = workload.classify() if fold_ranks else np.arange(trace.n_ranks)
    if trace.grid is not None:
        _check_size(trace, classes)
    return Build(workload, classes).assemble(workload.warnings())


def _check_size(trace: Trace, classes: Ints) -> None:
    """Refuse to simulate more than what fits into memory, which a grid makes easy to ask for."""
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

    def __init__(self, workload: PhysicalWorkload, classes: Ints) -> None:
        self.workload, self.platform, self.classes = workload, workload.platform, classes
        self.representatives = np.unique(classes, return_index=True)[1].astype(np.int64)
        self.comm_at, self.quotients = quotient_comms(workload, classes, self.representatives)
        self.dims = len(self.platform.dimensions)
        self.scale = bits(workload.largest())
        self.rates = [
            [int(min(way * (1 << self.scale), 1 << MOST_BITS)) for way in (port.out, port.into)]
            for port in ports(self.platform)
        ]
        network_ports = 2 * self.dims * len(self.representatives)
        self.memory = MemoryPorts(
            self.platform, classes, self.representatives, network_ports, workload.memory_groups()
        )
        self.tables = Tables()
        self.plans: list[Plan] = []
        self.plan_of: dict[tuple[int, Job], Plan] = {}
        self.plan_rows: list[int] = []
        self.chunk_rows: list[int] = []
        self.asking = 0
        self.phase_rows: list[int] = []
        self.ring_entry: list[int] = []
        self.line_rows: list[int] = []
        self.lines: list[int] = []
        self.line_ports: list[int] = []
        self.rings: dict[tuple[int, int, tuple[tuple[int, int], ...]], tuple[int, int, int, int]] = {}
        self.comm_lanes: dict[int, int] = {}
        self.comm_plans: dict[int, list[Plan]] = defaultdict(list)
        self.slot_ready: list[int] = []
        self.channels: dict[Channel, tuple[int, int, int]] = {}
        self.routes: dict[tuple[int, int], tuple[int, ...]] = {}
        self.phase_at: list[tuple[QuotientComm, Plan, PhysicalPhase, int]] = []
        """Of every row of phases: whose it is, and the bytes of the chunk."""
        self.adapted: dict[tuple[int, float, int], PhysicalNodes] = {}
        self.views: dict[tuple[int, int], View] = {}

    def port(self, cls: int, dim: int, into: bool) -> int:
        """Return the number of one direction of a class's port in a dimension."""
        return (cls * self.dims + dim) * 2 + int(into)

    def units(self, size: Any) -> int:
        """Return bytes (an int or a Fraction) in units of the program, rounded up."""
        units: int = ceil(size * (1 << self.scale))
        return units

    def plan(self, comm: QuotientComm, job: Job) -> Plan:
        """Return the plan of a job in a quotient communicator."""
        key = (comm.number, replace(job, comm=WORLD))
        if key not in self.plan_of:
            course = self.workload.course(job)
            plan = Plan(len(self.plans), job, course)
            first: dict[tuple[int, int], int] = {}
            for size, way in dict.fromkeys(course.chunks):
                first[size, way] = len(self.phase_rows) // lk.PH_COLUMNS
                for phases in course.ways if course.choices else [course.ways[way]]:
                    self._way(comm, plan, phases, size)
            self.plan_rows += [len(plan.phases), len(self.chunk_rows), plan.lines, course.choices]
            self.chunk_rows += [first[chunk] for chunk in course.chunks]
            self.plans.append(plan)
            self.plan_of[key] = plan
        return self.plan_of[key]

    def _way(self, comm: QuotientComm, plan: Plan, phases: Sequence[PhysicalPhase], size: int) -> None:
        """Add the rows of the phases of a chunk."""
        lines, memory = 0, self.platform.system.local_mem_bandwidth
        for phase in phases:
            entry, first_line, lane, n_lines = self._ring(comm, phase)
            volume = self.units(phase.volume * size)
            # Which way a chunk goes is chosen by the ports of dimensions; those of a memory are no choice.
            rates = [min(self.rates[dim]) // factor for dim, factor in phase.ports if dim >= 0]
            self.phase_at.append((comm, plan, phase, size))
            plan.placed.append((phase, size))
            self.phase_rows += [
                entry, lines - first_line, lane - first_line, ticks(phase, size, memory), volume, first_line, n_lines,
                -(-volume // max(min(rates, default=1), 1)),
            ]  # fmt: skip
            lines += n_lines
        plan.lines = max(plan.lines, lines)

    def _ring(self, comm: QuotientComm, phase: PhysicalPhase) -> tuple[int, int, int, int]:
        key = (comm.number, phase.dim, phase.ports)
        if key not in self.rings:
            entry, first = len(self.ring_entry) // 2, len(self.line_rows) // lk.LN_COLUMNS
            place: dict[int, tuple[int, int]] = {}
            lines = lines_of(self.platform, comm.real, phase.dim)
            # A class may be known here by another rank than its representative: take its first in this group.
            _, first_at = np.unique(self.classes[lines], return_index=True)
            for at in np.sort(first_at).tolist():
                cls = int(self.classes[lines.ravel()[at]])
                if cls not in place:
                    members = list(dict.fromkeys(self.classes[lines[at // lines.shape[1]]].tolist()))
                    number = len(self.line_rows) // lk.LN_COLUMNS
                    self._line(members, comm, phase)
                    place |= {c: (number, i) for i, c in enumerate(members)}
            for cls in comm.local:
                self.ring_entry += place[cls]
            n_lines = len(self.line_rows) // lk.LN_COLUMNS - first
            lane = self.comm_lanes.get(comm.number, 0)
            self.comm_lanes[comm.number] = lane + n_lines
            self.rings[key] = (entry, first, lane, n_lines)
        return self.rings[key]

    def _line(self, members: list[int], comm: QuotientComm, phase: PhysicalPhase) -> None:
        local = len(self.lines)
        self.lines += [comm.local[c] for c in members]
        used = [
            (self.port(c, dim, into), factor, 1)
            for c in members
            for dim, factor in phase.ports
            for into in (False, True)
            if dim >= 0
        ]
        for dim, _ in phase.ports:
            if dim < 0:
                ranks, number = comm.real.members, comm.real.number
                slots = np.array([self.workload.slots(rank).get(number, -1) for rank in ranks.tolist()])
                together = self.memory.together(ranks, slots, dim == MEMORY_STORE)
                used += [(port, 1, weight) for port, weight in together]
        self.line_rows += [len(members), local, len(self.line_ports) // lk.LP_COLUMNS, len(used)]
        for port in used:
            self.line_ports += port

    def assemble(self, warnings: list[str]) -> PhysicalProgram:
        """Lay out all tables."""
        tables = self.tables
        views = [self._class(cls) for cls in range(len(self.representatives))]
        ranks = len(views)
        comms = self._comm_rows()
        lanes = self.lanes
        for place in range(lk.CN_LANE, len(tables.channels), lk.CN_COLUMNS):
            tables.channels[place] += lanes
        lanes += len(tables.channel_at)
        items = np.concatenate(tables.items) if tables.items else np.zeros((0, lk.I_COLUMNS), np.int64)
        staged = self.memory.rates(lambda rate: int(min(rate * (1 << self.scale), 1 << MOST_BITS)))
        if any(rate < 1 for pair in [*self.rates, staged.tolist()] for rate in pair):
            least = 1 / (1 << self.scale)
            raise InputError(
                f"{self.platform.source or 'platform'}: {self._slowest()} is too small for the sizes of this trace; "
                f"expected at least {format_bandwidth(least)}"
            )
        flat = {
            "NODES": tables.nodes, "CHILDREN": tables.children, "RANKS": tables.ranks, "ITEMS": items,
            "PLANS": self.plan_rows, "PHASES": self.phase_rows, "COMMS": comms, "RING_ENTRY": self.ring_entry,
            "LINE_ROWS": self.line_rows, "LINES": self.lines, "LINE_PORTS": self.line_ports,
            "PORTS": np.concatenate([np.tile(np.array(self.rates).ravel(), ranks), staged]),
            "CHANNELS": tables.channels, "CHUNKS": self.chunk_rows,
        }  # fmt: skip
        lines = np.array(self.line_rows, np.int64).reshape(-1, lk.LN_COLUMNS)
        slots = np.array(tables.ranks, np.int64).reshape(-1, lk.R_COLUMNS)[:, lk.R_SLOTS]
        sizes = {
            "ranks": ranks, "states": tables.states, "rows": tables.rows, "items": len(items), "lanes": lanes,
            "ordinals": tables.ordinals, "instances": tables.instances, "instance_items": tables.instance_items,
            "arrived": tables.arrived, "ports": ranks * self.dims * 2 + self.memory.count,
            "channels": len(tables.channel_at), "slots_per_rank": int(slots.max(initial=1)), "pairs": tables.pairs,
            "lines": len(lines), "slots": len(self.slot_ready),
            "servers": max(1, self.platform.npus), "most_ports": int(lines[:, lk.LN_PORT_COUNT].max(initial=1)),
            "chosen": self.chosen, "asking": self.asking,
        }  # fmt: skip
        scheduling = self.platform.physical.scheduling
        scalars = {
            lk.Z_RANKS: ranks,
            lk.Z_POLICY: lk.FAIR if scheduling == "fair" else lk.ORDERED,
            lk.Z_SIGN: -1 if scheduling == "lifo" else 1,
            lk.Z_WITHIN: WITHIN.index(self.platform.physical.within_dimension),
        }
        comms_used = self.workload.comms.found.items()
        names = self.workload.group_names(n for n, _ in comms_used)
        found = dict.fromkeys(w for view in self.workload.views for w in view.nodes.warnings)
        return PhysicalProgram(
            tables={name: as_table(table) for name, table in flat.items()},
            scalars=scalars,
            sizes=sizes,
            slot_ready=np.array(self.slot_ready, np.int64),
            classes=self.classes,
            representatives=self.representatives,
            views=views,
            plans=self.plans,
            items=items,
            comm_ordinals=tables.comm_ordinals,
            groups={names.get(n, str(n)): len(c.members) for n, c in comms_used},
            group_names=names,
            warnings=[*found, *warnings],
        )

    def _slowest(self) -> str:
        """Return which bandwidth is the least, and what it is."""
        platform = self.platform
        found = [
            (min(port.out, port.into), f"network: {dimension.name}")
            for port, dimension in zip(ports(platform), platform.dimensions, strict=True)
        ]
        found += [(min(s.read, s.write), f"remote_memory: {s.name}") for s in platform.memory.stages]
        rate, where = min(found)
        return f"{where}: bandwidth: got {format_bandwidth(rate)}, which"

    def _class(self, cls: int) -> View:
        """Add one class; returns its view, whose nodes have the slots and durations of its ranks."""
        tables, rank = self.tables, int(self.representatives[cls])
        view = self._adapt(rank)
        nodes = view.nodes
        count = len(nodes.kind)
        delay = ceil(self.platform.physical.delay.get(rank, 0.0))
        slots = int(nodes.slot.max(initial=0)) + 1
        row = [tables.graph(nodes), count, tables.states, tables.n_items, slots, len(self.slot_ready), delay]
        tables.ranks += row
        per_slot = np.bincount(nodes.slot, minlength=slots)
        self.slot_ready += (tables.states + np.cumsum(per_slot) - per_slot).tolist()
        tables.states += count
        items = np.zeros((len(nodes.items), lk.I_COLUMNS), np.int64)
        which = np.flatnonzero(view.job >= 0)
        if which.size:
            self._collectives(cls, view, items, which)
        pairs = view.pairs()
        if pairs:
            self._pairs(rank, view, items, pairs)
        which = np.flatnonzero(nodes.kind[nodes.items] == lk.MEMORY)
        if which.size:
            self._memory(rank, view, items, which)
        which = np.flatnonzero(nodes.kind[nodes.items] == lk.TRANSFER)
        if which.size:
            self._transfers(cls, view, items, which)
        tables.items.append(items)
        tables.n_items += len(items)
        return view

    def _adapt(self, rank: int) -> View:
        """Return the view of a rank with slots by stream, and durations by the speed of the rank."""
        physical = self.platform.physical
        speed = physical.speed.get(rank, 1.0)
        view = self.workload.view(rank)
        key = (self.workload.kind(rank), speed, rank if physical.jitter else -1)
        if key not in self.adapted:
            nodes = view.nodes
            assert isinstance(nodes, PhysicalNodes)
            stretch: Any = 1.0 / speed
            if physical.jitter:
                random = np.random.default_rng([physical.jitter.seed, rank])
                stretch = stretch * np.maximum(
                    1 + physical.jitter.sigma * random.standard_normal(len(nodes.kind)), 0
                )
            timed = np.isin(nodes.slot, (COMPUTE, CPU))
            ticks_ = np.where(timed, np.ceil(nodes.ticks * stretch), nodes.ticks).astype(np.int64)
            ticks_ = nodes.ticks if speed == 1.0 and not physical.jitter else ticks_
            self.adapted[key] = replace(nodes, slot=slots_of(view, nodes), ticks=ticks_)
        nodes = self.adapted[key]
        at = (id(view), id(nodes))
        if at not in self.views:
            self.views[at] = replace(view, nodes=nodes)
        return self.views[at]

    def _collectives(self, cls: int, view: View, items: Ints, which: Ints) -> None:
        tables = self.tables
        slots = view.slots()
        of_job = np.zeros((len(view.jobs), 7), np.int64)
        for j, job in enumerate(view.jobs):
            comm = self.comm_at[(cls, slots[job.comm])]
            plan = self.plan(comm, job)
            if plan not in self.comm_plans[comm.number]:
                self.comm_plans[comm.number].append(plan)
            of_job[j] = (
                plan.number, comm.number, comm.local[cls], plan.chunks, len(plan.phases),
                tables.ordinal(cls, comm.number), plan.chunks * (plan.course.choices > 0),
            )  # fmt: skip
        rows = of_job[view.job[which]]
        columns = [lk.I_PLAN, lk.I_COMM, lk.I_LOCAL, lk.I_CHUNKS, lk.I_ORDINAL]
        items[which[:, None], columns] = rows[:, [0, 1, 2, 3, 5]]
        after = np.cumsum(rows[:, 3] * rows[:, 4])
        items[which, lk.I_ROW] = tables.rows + after - rows[:, 3] * rows[:, 4]
        tables.rows += int(after[-1])
        self.asking += int(rows[:, 6].sum())
        items[which, lk.I_RANK] = cls
        items[which, lk.I_NODE] = view.nodes.items[which]
        items[which, lk.I_PRIORITY] = self._priority(view)[which]
        for number, times in zip(*np.unique(rows[:, 1], return_counts=True), strict=True):
            tables.comm_times[int(number)] = max(tables.comm_times[int(number)], int(times))

    def _priority(self, view: View) -> Ints:
        """Order of the items under scheduling "priority": the highest comm_priority first."""
        if self.platform.physical.scheduling != "priority":
            return np.zeros(len(view.job), np.int64)
        nodes = view.nodes
        priority = nodes.graph.ints("comm_priority", 0)[nodes.order[nodes.items]]
        return -np.clip(priority, -1000, 1000)

    def _pairs(self, rank: int, view: View, items: Ints, which: list[int]) -> None:
        """Fill the rows of the sends and receives of a rank."""
        rows = []
        for i in which:
            channel = channel_at(view, i, rank)
            if channel not in self.channels:
                self.channels[channel] = self._channel(channel)
            rows.append(self.channels[channel])
        items[which, lk.I_CHANNEL : lk.I_VOLUME + 1] = rows
        items[which, lk.I_PRIORITY] = self._priority(view)[which]

    def _channel(self, channel: Channel) -> tuple[int, int, int]:
        """Return (quotient channel, latency, volume) of a channel."""
        tag, source, destination, size = channel
        sends, receives = self.workload.channel(channel)
        a, b = int(self.classes[source]), int(self.classes[destination])
        if (source, destination) not in self.routes:
            path = network.path(self.platform.dimensions, np.array(source), np.array(destination))
            self.routes[(source, destination)] = tuple(int(hop) for hop in path)
        hops = self.routes[(source, destination)]
        key = (tag, a, b, size, tuple(sends), tuple(receives), hops)
        if key not in self.tables.channel_at:
            self.tables.channel_at[key] = len(self.tables.channel_at)
            line = len(self.line_rows) // lk.LN_COLUMNS
            used = []
            for d, (dimension, hop) in enumerate(zip(self.platform.dimensions, hops, strict=True)):
                if hop:
                    share = links_share(dimension.topology, dimension.size)
                    used += [(self.port(a, d, False), share, 1), (self.port(b, d, True), share, 1)]
            self.line_rows += [0, 0, len(self.line_ports) // lk.LP_COLUMNS, len(used)]
            for port in used:
                self.line_ports += port
            self.tables.channels += [self.tables.pairs, a, b, len(self.tables.channel_at) - 1, line]
            self.tables.pairs += max(len(sends), len(receives))
        latency = sum(hop * d.latency for hop, d in zip(hops, self.platform.dimensions, strict=True))
        delay = ceil(latency + self.platform.physical.endpoint_delay)
        return self.tables.channel_at[key], delay, self.units(size)

    def _memory(self, rank: int, view: View, items: Ints, which: Ints) -> None:
        memory = self.platform.memory
        if memory.kind == "none":
            node = int(view.nodes.order[view.nodes.items[which[0]]])
            raise InputError(
                f"{view.nodes.graph.node(node)} accesses remote memory, but the machine has none; expected one"
            )
        size = view.size[which]
        transfer = -(-size // memory.bandwidth) if memory.bandwidth else np.zeros_like(size)
        items[which, lk.I_SERVER] = {"per-npu": -1, "pool": 0}.get(
            memory.kind, rank // max(memory.npus_per_node, 1)
        )
        items[which, lk.I_SERVICE] = memory.latency + transfer

    def _transfers(self, cls: int, view: View, items: Ints, which: Ints) -> None:
        """Fill the rows of the accesses of a hierarchical memory: loads are one channel, stores another."""
        tables, nodes = self.tables, view.nodes
        types = nodes.graph.types[nodes.order[nodes.items[which]]]
        for store in (False, True):
            mine = which[(types == NodeType.MEM_STORE_NODE) == store]
            if not mine.size:
                continue
            used = self.memory.used(cls, store)
            self.line_rows += [0, 0, len(self.line_ports) // lk.LP_COLUMNS, len(used)]
            for port, weight in used:
                self.line_ports += (port, 1, weight)
            number = tables.channel_at[("memory", cls, store)] = len(tables.channel_at)
            line = len(self.line_rows) // lk.LN_COLUMNS - 1
            tables.channels += [tables.pairs, cls, cls, number, line]
            tables.pairs += len(mine)
            npus = self.platform.npus
            for item in mine.tolist():
                size = int(view.size[item])
                fill = ceil(fill_ns(self.platform.memory, size, store, npus))
                items[item, lk.I_CHANNEL : lk.I_VOLUME + 1] = number, fill, self.units(size)

    def _comm_rows(self) -> list[int]:
        tables, rows = self.tables, []
        self.lanes = self.chosen = 0
        for comm in self.quotients:
            for cls in comm.local:
                tables.comm_ordinals[comm.number].setdefault(cls, -1)
            times = tables.comm_times[comm.number]
            lanes = self.comm_lanes.get(comm.number, 0)
            stride = max((p.chunks * p.lines for p in self.comm_plans[comm.number]), default=0)
            chunks = max((p.chunks for p in self.comm_plans[comm.number] if p.course.choices), default=0)
            rows += [
                tables.instances,
                len(comm.local),
                tables.arrived,
                stride,
                tables.instance_items,
                self.lanes,
                lanes,
                self.chosen,
                chunks,
            ]
            self.chosen += times * chunks
            tables.instances += times
            tables.arrived += times * stride
            tables.instance_items += times * len(comm.local)
            self.lanes += times * lanes
        return rows
