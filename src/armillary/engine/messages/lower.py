"""Lower a trace and a platform to messages on a network (profile `physical`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.collective import in_switch
from armillary.collective.load import line_order
from armillary.collective.physical import rounds_alltoallv, rounds_for
from armillary.collective.rounds import Rounds
from armillary.engine.items import Channel
from armillary.engine.jobs import Job
from armillary.engine.lowered import as_table
from armillary.engine.messages import message_layout_kernel as lk
from armillary.engine.messages.in_switch import SwitchLines, moving_of, segments_of
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
from armillary.platform.model import InNetwork, Platform
from armillary.platform.topology import Topology
from armillary.platform.topology.routing import Paths
from armillary.trace import Trace

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Ways = Mapping[tuple[int, int], tuple[int, ...]]
MOST_WINDOW = 32
"""Chunks under way at a time on a line, at most."""


@dataclass(kw_only=True)
class MessageProgram(PhysicalProgram):
    """A lowered program whose messages cross a network."""

    stages: Sequence[Stage]
    routes: Routes
    pairs: Ints
    """(pairs, 2) NPUs, and switches that reduce, that send and receive messages."""
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
        shapes, lines = Shapes(), _Lines(self.platform, stages[0].topology)
        phase_shape: list[int] = []
        size_rows: list[int] = []
        memory, rates = self.platform.system.local_mem_bandwidth, ports(self.platform)
        for comm, plan, phase, size in self.phase_at:
            _, first, _, _ = self.rings[(comm.number, phase.dim, phase.ports)]
            segments, ability = 1, InNetwork()
            if phase.algorithm == "in-switch":
                place, shape, segments, ability = lines.add_in_switches(
                    comm, plan, phase, size, first, shapes
                )
            else:
                shape = shapes.add(_schedule(plan, phase))[0]
                place = lines.add(comm, phase, first, shape)
            window = window_of(phase, size, self.platform, segments)
            phase_shape += [len(size_rows) // lk.SZ_COLUMNS, place, window, ceil(ability.latency)]
            port_rate = rates[phase.dim].out
            size_rows += sizes(shape.parts, phase.scale, size, memory, ability.rate, port_rate)
        channels = list(self.tables.channel_at)
        ends = np.array([(a, b) for _, a, b, _ in channels], np.int64).reshape(-1, 2)
        lines.keys.append(ends[:, 0] * lines.nodes + ends[:, 1])
        keys, pair = np.unique(np.concatenate(lines.keys), return_inverse=True)
        pairs = np.stack([keys // lines.nodes, keys % lines.nodes], axis=1)
        routes = _routes(stages, pairs, lines.in_switches.ways)
        at = len(pair) - len(channels)
        channel_rows = np.stack([pair[at:], np.array([c[3] for c in channels], np.int64)], axis=1)
        more = {
            **shapes.tables(), "PHASE_SHAPE": phase_shape, "SIZES": size_rows, "LINE_ROUTES": lines.rows,
            "ROUTE_OF": pair[:at], "CHANNEL_ROUTE": channel_rows,
            "STAGES": [_when(stage) for stage in stages], "SWITCHES": lines.in_switches.switches,
            "SWITCH_LIMIT": lines.in_switches.limits,
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
    """The pairs of nodes of every line in every shape that it runs."""

    def __init__(self, platform: Platform, graph: Topology) -> None:
        self.platform, self.nodes = platform, graph.nodes
        self.in_switches = SwitchLines(network_of(platform), graph)
        self.keys: list[Ints] = []
        self.rows: list[int] = []
        self.count = 0
        self.known: dict[tuple[int, int, int, bool], int] = {}

    def add(self, comm: QuotientComm, phase: PhysicalPhase, first: int, shape: Shape) -> int:
        """Return where the lines of a phase are, less the number of the first line."""
        dimension = self.platform.dimensions[phase.dim]
        there_and_back = phase.algorithm == "ring" and (
            dimension.topology == "Mesh"
            or (dimension.topology in ("Ring", "Torus") and len(phase.positions) < dimension.size)
        )
        key = (comm.number, phase.dim, shape.number, there_and_back)
        if key not in self.known:
            lines = lines_of(self.platform, comm.real, phase.dim)
            if there_and_back and phase.dim >= 0:
                lines = lines[:, list(line_order(range(lines.shape[1])))]
            self.known[key] = len(self.rows) // lk.LI_COLUMNS - first
            for line in lines:
                self._line(line, shape)
        return self.known[key]

    def add_in_switches(
        self, comm: QuotientComm, plan: Plan, phase: PhysicalPhase, size: int, first: int, shapes: Shapes
    ) -> tuple[int, Shape, int, InNetwork]:
        """Return the same, a shape, the segments of a chunk, and what the switches can do.

        Raises:
            InputError: no switch that can reduce joins a line.
        """
        what = f"{plan.job.operation} in-switch"
        lines = [
            self.in_switches.of(line.tolist(), what) for line in lines_of(self.platform, comm.real, phase.dim)
        ]
        n = len(phase.positions)
        depth = max(in_switch.depth(line.trees, n) for line in lines)
        segments = segments_of(plan.chunks, phase, size, self.platform, depth)
        found = [in_switch.rounds(phase.operation, n, line.trees, segments) for line in lines]
        kinds = list(dict.fromkeys(found))
        made = dict(zip(kinds, shapes.add(*kinds), strict=True))
        key = (comm.number, phase.dim, made[kinds[0]].number, False)
        if key not in self.known:
            self.known[key] = len(self.rows) // lk.LI_COLUMNS - first
            for line, rounds in zip(lines, found, strict=True):
                self._line(line.nodes, made[rounds], *self.in_switches.limited(line))
        return self.known[key], made[kinds[0]], segments, self.in_switches.ability(lines[0])

    def _line(self, nodes: Ints, shape: Shape, switch: int = 0, switches: int = 0) -> None:
        self.rows += [self.count, shape.number, switch, switches]
        source, target = nodes[shape.moves[:, lk.MV_SOURCE]], nodes[shape.moves[:, lk.MV_TARGET]]
        self.keys.append(source * self.nodes + target)
        self.count += len(shape.moves)


def _schedule(plan: Plan, phase: PhysicalPhase) -> Rounds:
    if plan.job.splits:
        return rounds_alltoallv(np.array(plan.job.splits, np.int64))
    return rounds_for(phase.algorithm, phase.operation, len(phase.positions))


def _least(plan: Plan, platform: Platform) -> int:
    """Return the least ticks of a plan: of one chunk through all phases, or of all chunks in the fullest dimension.

    Chunks, and rounds in which not all members do the same, overlap: only what leaves or enters an NPU takes its time
    one after the other. What a group that is no grid crosses is not known here.
    """
    once, through = 0.0, dict.fromkeys(range(len(platform.dimensions)), 0.0)
    for (size, number), count in Counter(plan.course.chunks).items():
        # Of ways that are chosen while running, whichever is the least.
        ways = plan.course.ways if plan.course.choices else [plan.course.ways[number]]
        found = [_least_way(way, size, platform) for way in ways]
        once = max(once, min(alone for alone, _ in found))
        for dim in through:
            through[dim] += count * min(moving[dim] for _, moving in found)
    return int(max(once, *through.values()))


def _least_way(way: Sequence[PhysicalPhase], size: int, platform: Platform) -> tuple[float, dict[int, float]]:
    """Return the least ns of a chunk through its phases, and those that its bytes take in each dimension."""
    rates = ports(platform)
    alone, through = 0.0, dict.fromkeys(range(len(rates)), 0.0)
    for phase in way:
        if phase.dim < 0:
            continue
        port = rates[phase.dim]
        # Where members differ, who sends most need not receive anything.
        rate = min(port.out, port.into) if _alike(phase) else max(port.out, port.into)
        moving = float(phase.sent * size) / rate
        if phase.port is not None:
            busiest = float(phase.port) / max(port.out, port.into)
            moving = max(float(phase.sent) / port.out, busiest) * size
        through[phase.dim] += moving
        alone += _least_alone(phase, size, moving, platform)
    return alone, through


def _least_alone(phase: PhysicalPhase, size: int, moving: float, platform: Platform) -> float:
    """Return the least ns of a phase of a chunk, of which its busiest member moves bytes for `moving` ns."""
    memory = platform.system.local_mem_bandwidth
    dimension, port = platform.dimensions[phase.dim], ports(platform)[phase.dim]
    filled = dimension.topology != "Mesh" and len(phase.positions) == dimension.size
    latency = dimension.latency
    if phase.algorithm == "in-switch":
        latency = phase.latency
    elif _alike(phase) and (filled or dimension.topology in ("FullyConnected", "Switch")):
        moving, latency = float(phase.volume * size) / min(port.out, port.into), phase.latency
    reducing = float(phase.reduced * size) / memory * 1e9 if memory > 0 else 0.0
    return max(moving, reducing, latency)


def window_of(phase: PhysicalPhase, chunk: int, platform: Platform, segments: int = 1) -> int:
    """Return how many chunks are under way at a time on a line, each in so many segments, the first of so many bytes.

    As given, or as many as keep links busy while messages of one are under way, four times over: latency of the
    rounds ÷ time of their bytes on the wire, and one; ways are longer than a link, and rounds not all alike. No more
    than that: with more, early chunks would come late to the next dimension.
    """
    if platform.physical.active_chunks:
        return platform.physical.active_chunks
    moving = moving_of(phase, chunk, platform) / segments
    return min(4 + ceil(4 * phase.latency / moving), MOST_WINDOW) if moving > 0 else MOST_WINDOW


def _alike(phase: PhysicalPhase) -> bool:
    """Return whether all members send and receive the same in every round."""
    if phase.algorithm == "in-switch":
        return True
    rounds = rounds_for(phase.algorithm, phase.operation, len(phase.positions)).rounds
    return all(part.rotates for part in rounds)


def _when(stage: Stage) -> int:
    time = ceil(stage.time) * 1000
    if time >= LIMIT:
        raise InputError(
            f"a failure at {stage.time:.3g} ns is too late to be counted; expected less than {LIMIT} ps"
        )
    return time


def _routes(stages: Sequence[Stage], pairs: Ints, ways: Ways) -> Routes:
    """Return the routes of all pairs in every stage; where a pair has none any more, it keeps the one it had.

    Pairs with a switch keep their links in `ways`.

    Raises:
        InputError: a pair cannot reach each other from the start.
    """
    routes, before = Routes(), None
    npus = np.asarray((pairs < stages[0].topology.npus).all(axis=1))
    for stage in stages:
        try:
            paths = stage.routing.paths(pairs[npus, 0], pairs[npus, 1])
        except InputError:
            if before is None:
                raise
            paths = _some_kept(stage, pairs[npus], before)
        routes.append(paths if npus.all() else _with_ways(paths, pairs, npus, ways))
        before = paths
    return routes


def _with_ways(paths: Paths, pairs: Ints, npus: Bools, ways: Ways) -> Paths:
    """Return the routes of all pairs from those of NPUs and the links of the others."""
    between = iter(range(int(npus.sum())))
    links = [
        paths[next(between)] if own else np.array(ways[(a, b)], np.int64)
        for own, (a, b) in zip(npus.tolist(), pairs.tolist(), strict=True)
    ]
    first = np.concatenate([[0], np.cumsum([len(way) for way in links])]).astype(np.int64)
    return Paths(first, np.concatenate(links))


def _some_kept(stage: Stage, pairs: Ints, before: Paths) -> Paths:
    ways = []
    for number, pair in enumerate(pairs):
        try:
            ways.append(stage.routing.paths(pair[:1], pair[1:]).link)
        except InputError:
            ways.append(before[number])  # its messages wait for what is down
    first = np.concatenate([[0], np.cumsum([len(way) for way in ways])]).astype(np.int64)
    return Paths(first, np.concatenate(ways))
