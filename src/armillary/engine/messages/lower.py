"""Lower a trace and a platform to messages on a network (profile `physical`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.collective.load import line_order
from armillary.collective.physical import rounds_alltoallv, rounds_for
from armillary.collective.rounds import Rounds
from armillary.engine.items import Channel
from armillary.engine.jobs import Job
from armillary.engine.lowered import as_table
from armillary.engine.messages import message_layout_kernel as lk
from armillary.engine.messages.shapes import Shape, Shapes, sizes
from armillary.engine.messages.stages import network_of
from armillary.engine.network import LIMIT
from armillary.engine.network_use import NetworkUse
from armillary.engine.physical.classes import lines_of
from armillary.engine.physical.courses import Course, plain_course
from armillary.engine.physical.jobs import PhysicalPhase, split_at_once
from armillary.engine.physical.least import least_ticks
from armillary.engine.physical.lower import Build
from armillary.engine.physical.program import PhysicalProgram, Plan
from armillary.engine.physical.workload import ListedWorkload
from armillary.engine.quotient import QuotientComm
from armillary.engine.transport import layout_kernel as tk
from armillary.engine.transport.network import Routes, Stage
from armillary.engine.transport.use import link_use
from armillary.errors import InputError
from armillary.platform.bandwidth import ports
from armillary.platform.model import Platform
from armillary.platform.topology.routing import Paths
from armillary.trace import Trace

Ints = NDArray[np.int64]
MOST_WINDOW = 32
"""Chunks under way at a time on a line, at most."""


@dataclass(kw_only=True)
class MessageProgram(PhysicalProgram):
    """A lowered program whose messages cross a network."""

    stages: Sequence[Stage]
    routes: Routes
    pairs: Ints
    """(pairs, 2) NPUs that send and receive messages."""
    platform: Platform

    holds = "messages of {} that are under way"

    @property
    def layout(self) -> ModuleType:
        """The module that names the tables and their columns."""
        return lk

    def extra_columns(self) -> dict[str, Any]:
        """See `Simulated.extra_columns`."""
        plans = np.array([_least(plan, self.platform) for plan in self.plans], np.int64)
        return {"node_least": least_ticks(self.tables, self.views, plans)}

    def phase_rows(self) -> list[tuple[int, int, int, int]]:
        """See `Simulated.phase_rows`: where members differ, none is known to be held up by what the busiest moves."""
        alike = [phase.dim >= 0 and _alike(phase) for plan in self.plans for phase, _ in plan.placed]
        rows = zip(super().phase_rows(), alike, strict=True)
        return [(dim, kind, sent, port if same else 0) for (dim, kind, sent, port), same in rows]

    def network_use(self, run: Any) -> NetworkUse:
        """See `Simulated.network_use`; links have their bandwidths before anything fails."""
        topology = network_of(self.platform).topology
        end = int(run.table("FINISH").max(initial=0)) * tk.PS
        return NetworkUse(topology, link_use(run.net, topology), end)

    def explain(self, run: Any) -> str:
        """See `Simulated.explain`."""
        from armillary.engine.messages.explain import explain

        return explain(self, run)


class MessageWorkload(ListedWorkload):
    """A listed trace; an all-to-all with splits is one phase with the messages that it has."""

    def course(self, job: Job) -> Course:
        """See `PhysicalWorkload`."""
        comm = self.comms.get(job.comm)
        if job.splits and len(comm.members) > 1 and job not in self._courses:
            at_once = split_at_once(job, comm, self.platform)
            self._courses[job] = plain_course([at_once], job.size, self.platform)
        return super().course(job)


def lower_messages(trace: Trace, platform: Platform, stages: Sequence[Stage]) -> MessageProgram:
    """Lower a trace that lists its ranks.

    Args:
        trace: One graph per NPU.
        platform: The machine; the graph of its network is that of the stages.
        stages: The network over time, the first at 0.

    Raises:
        InputError: the trace does not fit the machine, or something in it cannot be simulated.
    """
    if platform.memory.kind == "hierarchical":
        raise InputError(
            f"{platform.source or 'platform'}: remote_memory: got kind 'hierarchical', whose links this network model "
            "does not know; expected network model analytical"
        )
    workload = MessageWorkload(trace, platform)
    build = MessageBuild(workload, np.arange(trace.n_ranks))
    program = build.assemble(workload.warnings())
    return build.with_messages(program, stages)


class MessageBuild(Build):
    """The tables of one program while they grow."""

    def _channel(self, channel: Channel) -> tuple[int, int, int]:
        """Return (number, latency, volume) of a channel: the network says how long it takes."""
        _, source, target, _ = channel
        if channel not in self.tables.channel_at:
            self.tables.channel_at[channel] = len(self.tables.channel_at)
            line = len(self.line_rows) // lk.LN_COLUMNS
            self.line_rows += [0, 0, len(self.line_ports) // lk.LP_COLUMNS, 1]
            self.line_ports += [self.port(source, 0, False), 1, 1]
            self.tables.channels += [
                self.tables.pairs, source, target, len(self.tables.channel_at) - 1, line,
            ]  # fmt: skip
            sends, receives = self.workload.channel(channel)
            self.tables.pairs += max(len(sends), len(receives))
        return self.tables.channel_at[channel], 0, 0

    def with_messages(self, program: PhysicalProgram, stages: Sequence[Stage]) -> MessageProgram:
        """Return the assembled program with what the messages of its collectives need."""
        shapes, lines = Shapes(), _Lines(self.platform.npus)
        phase_shape: list[int] = []
        size_rows: list[int] = []
        memory = self.platform.system.local_mem_bandwidth
        for comm, plan, phase, size in self.phase_at:
            shape = shapes.add(_schedule(plan, phase))
            _, first, _, _ = self.rings[(comm.number, phase.dim, phase.ports)]
            phase_shape += [
                shape.number,
                len(size_rows) // lk.SZ_COLUMNS,
                lines.add(comm, phase, first, shape, self),
                window_of(phase, size, self.platform),
            ]
            size_rows += sizes(shape.parts, phase.scale, size, memory)
        channels = list(self.tables.channel_at)
        ends = np.array([(a, b) for _, a, b, _ in channels], np.int64).reshape(-1, 2)
        lines.keys.append(ends[:, 0] * self.platform.npus + ends[:, 1])
        keys, pair = np.unique(np.concatenate(lines.keys), return_inverse=True)
        pairs = np.stack([keys // self.platform.npus, keys % self.platform.npus], axis=1)
        routes = _routes(stages, pairs)
        at = len(pair) - len(channels)
        channel_rows = np.stack([pair[at:], np.array([c[3] for c in channels], np.int64)], axis=1)
        more = {
            **shapes.tables(), "PHASE_SHAPE": phase_shape, "SIZES": size_rows, "LINE_ROUTES": lines.first,
            "ROUTE_OF": pair[:at], "CHANNEL_ROUTE": channel_rows,
            "STAGES": [_when(stage) for stage in stages],
        }  # fmt: skip
        fields = {**vars(program)}
        fields["tables"] = program.tables | {name: as_table(table) for name, table in more.items()}
        physical = self.platform.physical
        fields["scalars"] = program.scalars | {
            lk.Z_WINDOW: max([1, *phase_shape[lk.PS_WINDOW :: lk.PS_COLUMNS]]),
            lk.Z_ENDPOINT: ceil(physical.endpoint_delay),
            lk.Z_ROUTES: len(pairs),
            lk.Z_STAGES: len(stages),
        }
        return MessageProgram(**fields, stages=stages, routes=routes, pairs=pairs, platform=self.platform)


class _Lines:
    """The pairs of NPUs of every line in every shape that it runs."""

    def __init__(self, npus: int) -> None:
        self.npus = npus
        self.keys: list[Ints] = []
        self.first: list[int] = []
        self.count = 0
        self.known: dict[tuple[int, int, int, bool], int] = {}

    def add(self, comm: QuotientComm, phase: PhysicalPhase, first: int, shape: Shape, build: Build) -> int:
        """Return where the routes of the lines of a phase are, less the number of the first line."""
        dimension = build.platform.dimensions[phase.dim]
        there_and_back = phase.algorithm == "ring" and (
            dimension.topology == "Mesh"
            or (dimension.topology in ("Ring", "Torus") and len(phase.positions) < dimension.size)
        )
        key = (comm.number, phase.dim, shape.number, there_and_back)
        if key not in self.known:
            lines = lines_of(build.platform, comm.real, phase.dim)
            if there_and_back and phase.dim >= 0:
                lines = lines[:, list(line_order(range(lines.shape[1])))]
            self.known[key] = len(self.first) - first
            for line in lines:
                self.first.append(self.count)
                ends = line[shape.moves[:, lk.MV_SOURCE]], line[shape.moves[:, lk.MV_TARGET]]
                self.keys.append(ends[0] * self.npus + ends[1])
                self.count += len(shape.moves)
        return self.known[key]


def _schedule(plan: Plan, phase: PhysicalPhase) -> Rounds:
    if plan.job.splits:
        return rounds_alltoallv(np.array(plan.job.splits, np.int64))
    return rounds_for(phase.algorithm, phase.operation, len(phase.positions))


def _least(plan: Plan, platform: Platform) -> int:
    """Return the least ticks of a plan: of one chunk through all phases, or of all chunks in the fullest dimension.

    Chunks, and rounds in which not all members do the same, overlap: only what leaves or enters an NPU takes its time
    one after the other. What a group that is no grid crosses is not known here.
    """
    rates = ports(platform)
    once, through = 0.0, dict.fromkeys(range(len(rates)), 0.0)
    for (size, way), count in Counter(plan.course.chunks).items():
        alone = 0.0
        for phase in plan.course.ways[way]:
            if phase.dim < 0:
                continue
            port = rates[phase.dim]
            # Where members differ, who sends most need not receive anything.
            rate = min(port.out, port.into) if _alike(phase) else max(port.out, port.into)
            moving = float(phase.sent * size) / rate
            through[phase.dim] += moving * count
            alone += _least_alone(phase, size, moving, platform)
        once = max(once, alone)
    return int(max(once, *through.values()))


def _least_alone(phase: PhysicalPhase, size: int, moving: float, platform: Platform) -> float:
    """Return the least ns of a phase of a chunk, of which its busiest member moves bytes for `moving` ns."""
    memory = platform.system.local_mem_bandwidth
    dimension, port = platform.dimensions[phase.dim], ports(platform)[phase.dim]
    filled = dimension.topology != "Mesh" and len(phase.positions) == dimension.size
    latency = dimension.latency
    if _alike(phase) and (filled or dimension.topology in ("FullyConnected", "Switch")):
        moving, latency = float(phase.volume * size) / min(port.out, port.into), phase.latency
    reducing = float(phase.reduced * size) / memory * 1e9 if memory > 0 else 0.0
    return max(moving, reducing, latency)


def window_of(phase: PhysicalPhase, chunk: int, platform: Platform) -> int:
    """Return how many chunks are under way at a time on a line, where the first of them has this many bytes.

    As given, or as many as keep links busy while messages of one are under way, four times over: latency of the
    rounds ÷ time of their bytes on the wire, and one; ways are longer than a link, and rounds not all alike. No more
    than that: with more, early chunks would come late to the next dimension.
    """
    if platform.physical.active_chunks:
        return platform.physical.active_chunks
    port = ports(platform)[phase.dim]
    moving = float(phase.volume * chunk) / min(port.out, port.into)
    return min(4 + ceil(4 * phase.latency / moving), MOST_WINDOW) if moving > 0 else MOST_WINDOW


def _alike(phase: PhysicalPhase) -> bool:
    """Return whether all members send and receive the same in every round."""
    rounds = rounds_for(phase.algorithm, phase.operation, len(phase.positions)).rounds
    return all(part.rotates for part in rounds)


def _when(stage: Stage) -> int:
    time = ceil(stage.time) * 1000
    if time >= LIMIT:
        raise InputError(
            f"a failure at {stage.time:.3g} ns is too late to be counted; expected less than {LIMIT} ps"
        )
    return time


def _routes(stages: Sequence[Stage], pairs: Ints) -> Routes:
    """Return the routes of all pairs in every stage; where a pair has none any more, it keeps the one it had.

    Raises:
        InputError: a pair cannot reach each other from the start.
    """
    routes, before = Routes(), None
    for stage in stages:
        try:
            paths = stage.routing.paths(pairs[:, 0], pairs[:, 1])
        except InputError:
            if before is None:
                raise
            paths = _some_kept(stage, pairs, before)
        routes.append(paths)
        before = paths
    return routes


def _some_kept(stage: Stage, pairs: Ints, before: Paths) -> Paths:
    ways = []
    for number, pair in enumerate(pairs):
        try:
            ways.append(stage.routing.paths(pair[:1], pair[1:]).link)
        except InputError:
            ways.append(before[number])  # its messages wait for what is down
    first = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)
    return Paths(first, np.concatenate(ways))
