"""Lower a trace and a platform to messages on a network (profile `physical`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import ceil

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.collective.algorithms import rounds_alltoallv, rounds_for
from armillary.collective.rounds import Rounds
from armillary.engine.common.items import Channel, View
from armillary.engine.common.lowered import as_table
from armillary.engine.common.network import CollectiveCall
from armillary.engine.messages import layout as lk
from armillary.engine.messages.lines import MessageLines
from armillary.engine.messages.program import MessageProgram
from armillary.engine.messages.shapes import Shapes, sizes
from armillary.engine.messages.stages import network_of
from armillary.engine.messages.window import window_of
from armillary.engine.physical import layout as physical
from armillary.engine.physical.chunk_routes import ChunkRoutes, plain_chunk_routes
from armillary.engine.physical.lower import Build, fill_priorities
from armillary.engine.physical.phases import PhysicalPhase, split_at_once
from armillary.engine.physical.plans import Channels
from armillary.engine.physical.program import PhysicalProgram, Plan
from armillary.engine.physical.workload import ListedWorkload
from armillary.engine.transport.network import Stage
from armillary.platform.model import Platform, ports
from armillary.platform.network import InNetwork
from armillary.platform.topology.attached import ways
from armillary.trace import Trace
from armillary.trace.graph import LIMIT
from armillary.trace.storage import read

Ints = NDArray[np.int64]


class MessageWorkload(ListedWorkload):
    """A listed trace; an all-to-all with splits is one phase, with one message per pair of members."""

    fluid = False

    def chunk_routes(self, call: CollectiveCall) -> ChunkRoutes:
        """See `PhysicalWorkload`."""
        comm = self.comms.get(call.comm)
        if call.splits and len(comm.members) > 1 and call not in self._chunk_routes:
            at_once = split_at_once(call, comm, self.platform)
            self._chunk_routes[call] = plain_chunk_routes([at_once], call.size, self.platform)
        return super().chunk_routes(call)


class MessageChannels(Channels):
    """Channels between two NPUs without latency and volume: the network decides how long a message takes."""

    def lower(self, channel: Channel) -> tuple[int, int, int]:
        """See `Channels`."""
        _, source, target, _ = channel
        sends, receives = self.workload.channel(channel)
        used = [(self.lines.port(source, 0, False), 1, 1)]
        return self.add(channel, (source, target), max(len(sends), len(receives)), used), 0, 0

    def fill_stores(self, view: View, items: Ints, rank: int) -> None:
        """See `Channels`: a channel for each size that a rank reads, or writes; its other end is the storage."""
        nodes, storage = view.nodes, self.platform.storage
        which = np.flatnonzero(nodes.kind[nodes.items] == physical.STORE)
        if not which.size:
            return
        assert storage is not None
        node, service = network_of(self.platform).topology.nodes - 1, 0
        if storage.operations:
            service = -(-(10**9) // storage.operations)
        at = nodes.order[nodes.items[which]]
        reads = [read(nodes.graph, position) for position in at.tolist()]
        for size, reading in dict.fromkeys(zip(view.size[which].tolist(), reads, strict=True)):
            mine = which[(view.size[which] == size) & (np.array(reads) == reading)]
            ends = (node, rank) if reading else (rank, node)
            used = [(self.lines.port(int(self.classes[rank]), 0, reading), 1, 1)]
            number = self.add(("storage", *ends, size), (rank, rank), len(mine), used)
            items[mine, physical.I_CHANNEL], items[mine, physical.I_SERVICE] = number, service
        fill_priorities(view, items, which, self.platform)


def lower_messages(trace: Trace, platform: Platform, stages: Sequence[Stage]) -> MessageProgram:
    """Lower a trace that lists its ranks.

    Args:
        trace: One graph per NPU.
        platform: The machine; the graph of its network is that of the stages.
        stages: The network over time, the first at 0.

    Raises:
        InputError: the trace does not fit the machine, or something in it cannot be simulated.
    """
    if platform.remote_memory.kind == "hierarchical":
        raise InputError(
            f"{platform.source or 'platform'}: remote_memory: got kind 'hierarchical', whose links this network model "
            "does not know; expected network model analytical"
        )
    workload = MessageWorkload(trace, platform)
    build = Build(workload, np.arange(trace.n_ranks), MessageChannels)
    program = build.assemble([*workload.warnings(), *workload.root_warnings()])
    return _with_messages(build, program, stages)


def _with_messages(build: Build, program: PhysicalProgram, stages: Sequence[Stage]) -> MessageProgram:
    """Return the assembled program with what the messages of its collectives need."""
    platform, shapes = build.platform, Shapes()
    lines = MessageLines(platform, stages[0].topology)
    phase_shape: list[int] = []
    size_rows: list[int] = []
    memory, rates = platform.npu.memory.bytes_per_s, ports(platform)
    placed = [(plan, *each) for plan in build.plans.all for each in plan.placed]
    for plan, phase, size in placed:
        # One chunk flow per line, as in the analytical network; only what a line does differs.
        first = build.lines.ring(plan.comm, phase).first
        segments, ability = 1, InNetwork()
        if phase.algorithm == "in-switch":
            place, shape, segments, ability = lines.add_in_switches(plan, phase, size, shapes, first)
        else:
            shape = shapes.add(_schedule(plan, phase))[0]
            place = lines.add(plan.comm, phase, shape, first)
        window = window_of(phase, size, platform, segments)
        phase_shape += [len(size_rows) // lk.SZ_COLUMNS, place, window, ceil(ability.latency)]
        size_rows += sizes(shape.parts, phase.scale, size, memory, ability.rate, rates[phase.dim].out)
    channels = list(build.tables.channel_at)
    ends = np.array([(a, b) for _, a, b, _ in channels], np.int64).reshape(-1, 2)
    lines.keys.append(ends[:, 0] * lines.nodes + ends[:, 1])
    # Pairs repeat from line to line and shape to shape; routes are found once for each.
    keys, pair = np.unique(np.concatenate(lines.keys), return_inverse=True)
    pairs = np.stack([keys // lines.nodes, keys % lines.nodes], axis=1)
    at = len(pair) - len(channels)
    channel_rows = np.stack([pair[at:], np.array([c[3] for c in channels], np.int64)], axis=1)
    more = {
        **shapes.tables(), "PHASE_SHAPE": phase_shape, "SIZES": size_rows, "LINE_ROUTES": lines.rows,
        "ROUTE_OF": pair[:at], "CHANNEL_ROUTE": channel_rows,
        "STAGES": [_when(stage) for stage in stages], "SWITCHES": lines.in_switches.switches,
        "SWITCH_LIMIT": lines.in_switches.limits,
    }  # fmt: skip
    columns = {each.name: getattr(program, each.name) for each in fields(program)}
    columns["tables"] = program.tables | {name: as_table(table) for name, table in more.items()}
    columns["scalars"] = program.scalars | {
        lk.Z_ENDPOINT: ceil(platform.npu.message_delay),
        lk.Z_ROUTES: len(pairs),
        lk.Z_STAGES: len(stages),
    }
    links_of = dict(lines.in_switches.links_of)
    if platform.storage and platform.storage.at:
        links_of |= ways(stages[0].topology).links_of()
    return MessageProgram(**columns, stages=stages, links_of=links_of, pairs=pairs, platform=platform)


def _schedule(plan: Plan, phase: PhysicalPhase) -> Rounds:
    if plan.call.splits:
        return rounds_alltoallv(np.array(plan.call.splits, np.int64))
    return rounds_for(phase.algorithm, phase.operation, len(phase.positions), chunks=phase.parts)


def _when(stage: Stage) -> int:
    time = ceil(stage.time) * 1000
    if time >= LIMIT:
        raise InputError(
            f"a failure at {stage.time:.3g} ns is too late to be counted; expected less than {LIMIT} ps"
        )
    return time
