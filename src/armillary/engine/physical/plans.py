"""The plans of a program: the rows of the chunks and phases of each collective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.communicators import CollectiveCall, QuotientComm
from armillary.engine.common.items import View, channel_at
from armillary.engine.common.network import Scale
from armillary.engine.physical import layout as lk
from armillary.engine.physical.chunk_routes import last_latency
from armillary.engine.physical.lines import Channels, Lines
from armillary.engine.physical.phases import PhysicalPhase, latency_ticks, reduction_ns
from armillary.engine.physical.program import Plan
from armillary.engine.physical.workload import PhysicalWorkload
from armillary.platform.memory import fill_ns
from armillary.platform.model import Platform
from armillary.trace import NodeType
from armillary.trace.process_groups import WORLD


class Plans:
    """Plans while they grow."""

    def __init__(self, workload: PhysicalWorkload, lines: Lines, scale: Scale) -> None:
        self.workload, self.lines, self.scale = workload, lines, scale
        self.all: list[Plan] = []
        self.of_comm: dict[int, list[Plan]] = defaultdict(list)
        self.rows: list[int] = []
        self.chunk_rows: list[int] = []
        self.phase_rows: list[int] = []
        self._known: dict[tuple[int, CollectiveCall], Plan] = {}

    def plan(self, comm: QuotientComm, call: CollectiveCall) -> Plan:
        """Return the plan of a call in a quotient communicator, made on first use."""
        # Groups that are alike share a quotient communicator, so the number of the real group is no part of
        # the key.
        key = (comm.number, replace(call, comm=WORLD))
        if key not in self._known:
            self._known[key] = self._add(comm, call)
        return self._known[key]

    def _add(self, comm: QuotientComm, call: CollectiveCall) -> Plan:
        chunk_routes = self.workload.chunk_routes(call)
        plan = Plan(len(self.all), comm, call, chunk_routes)
        first: dict[tuple[int, int], int] = {}
        # Rows per distinct size and route; chunks only point to them. With choices, rows of all routes.
        for size, route in dict.fromkeys(chunk_routes.chunks):
            first[size, route] = len(self.phase_rows) // lk.PH_COLUMNS
            for phases in chunk_routes.routes if chunk_routes.choices else [chunk_routes.routes[route]]:
                self._add_route(plan, phases, size)
        plan.chunk_batch = self._is_chunk_batch(plan)
        # Modulo: if all chunks are alike, none is bigger.
        bigger = sum(chunk == chunk_routes.chunks[0] for chunk in chunk_routes.chunks) % len(
            chunk_routes.chunks
        )
        self.rows += [
            len(plan.phases),
            len(self.chunk_rows),
            plan.lines,
            chunk_routes.choices,
            plan.chunk_batch,
            bigger,
        ]
        self.chunk_rows += [first[chunk] for chunk in chunk_routes.chunks]
        self.all.append(plan)
        self.of_comm[comm.number].append(plan)
        return plan

    def _is_chunk_batch(self, plan: Plan) -> bool:
        """Tell whether the chunks of a plan follow one another through one phase, the bigger ones first."""
        chunk_routes, collectives = plan.chunk_routes, self.workload.platform.collectives
        sizes = [size for size, _ in chunk_routes.chunks]
        return (
            self.workload.fluid
            and len(plan.phases) == 1
            and sizes == sorted(sizes, reverse=True)
            # The kernel knows two volumes per batch: sizes that differ by a rounding, as chunks of one
            # collective do.
            and len(set(sizes)) <= 2
            and self.scale.volume(plan.phases[0].volume * sizes[-1]) > 0
            and (collectives.within_dimension != "smallest-first" or sizes[0] == sizes[-1])
        )

    def _add_route(self, plan: Plan, phases: Sequence[PhysicalPhase], size: int) -> None:
        """Add the rows of the phases of a chunk of `size` bytes."""
        lines, memory = 0, self.workload.platform.npu.memory.bytes_per_s
        last = last_latency(
            plan.chunk_routes, lambda p, s: self.lines.ticks(p, self.scale.volume(p.volume * s))
        )
        for phase in phases:
            ring = self.lines.ring(plan.comm, phase)
            volume = self.scale.volume(phase.volume * size)
            latency = latency_ticks(phase, size, memory)
            if last is not None:
                latency = last + ceil(reduction_ns(phase, size, memory))
            plan.placed.append((phase, size))
            self.phase_rows += [
                # Less `ring.first`, so that a kernel adds the number of a line without subtracting first.
                ring.entry, lines - ring.first, ring.chunk_flow - ring.first, latency, volume, ring.first, ring.lines,
                self.lines.ticks(phase, volume),
            ]  # fmt: skip
            lines += ring.lines
        plan.lines = max(plan.lines, lines)


Ints = NDArray[np.int64]


def priorities(view: View, platform: Platform) -> Ints:
    """Return the place of each item under scheduling "priority": the highest comm_priority is first."""
    if platform.scheduling != "priority":
        return np.zeros(len(view.call), np.int64)
    nodes = view.nodes
    priority = nodes.graph.ints("comm_priority", 0)[nodes.order[nodes.items]]
    # The highest comm_priority is served first, the lowest place is. Unlike -x, ~x has no overflow.
    return ~priority


def fill_messages(view: View, items: Ints, rank: int, channels: Channels) -> None:
    """Fill in the sends and receives of a rank."""
    which, kinds, examples = view.messages()
    if which.size:
        rows = np.array([channels.of(channel_at(view, item, rank)) for item in examples.tolist()], np.int64)
        items[which, lk.I_CHANNEL : lk.I_VOLUME + 1] = rows[kinds]
        items[which, lk.I_PRIORITY] = priorities(view, channels.platform)[which]


def fill_transfers(view: View, items: Ints, cls: int, channels: Channels) -> None:
    """Fill in the accesses of a hierarchical memory: loads are one channel, stores another."""
    nodes, platform, lines = view.nodes, channels.platform, channels.lines
    which = np.flatnonzero(nodes.kind[nodes.items] == lk.TRANSFER)
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
