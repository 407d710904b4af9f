"""A slow, obvious `engine.messages` with FIFO links: dicts, closures and lists, one message at a time."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from armillary.collective import in_switch
from armillary.collective.algorithms import rounds_alltoallv, rounds_for
from armillary.collective.load import placed
from armillary.engine.common.network import CollectiveCall
from armillary.engine.messages.in_switch import SwitchLines
from armillary.engine.messages.stages import network_of
from armillary.engine.messages.window import segments_of, window_of
from armillary.engine.physical.chunk_routes import plain_chunk_routes
from armillary.engine.physical.phases import split_at_once
from armillary.engine.transport.network import paces
from armillary.platform.model import Platform, ports
from armillary.platform.network import InNetwork
from armillary.trace import Trace
from tests.engine.physical.reference.choice import Instance
from tests.engine.physical.reference.evaluate import Channel, Machine
from tests.engine.physical.reference.flows import ChunkFlow
from tests.engine.physical.reference.nodes import Node

PS = 1000


@dataclass(eq=False)
class Run:
    """A phase of a chunk on one line: everybody's round, and what they wait for in it."""

    rounds: list[list[tuple[int, int, int, int]]]
    """Per round (source, target, bytes, ticks to reduce); members and switches by their place in the line."""
    line: list[int]
    over: Any
    switches: set[int] = field(default_factory=set)
    """Places of switches in the line."""
    ability: InNetwork | None = None
    edge: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    """ps that each message is on the edge at least."""
    at: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    busy: dict[int, int] = field(default_factory=dict)
    through: int = 0


class MessageMachine(Machine):
    """All ranks, and a network of FIFO links that are cut through."""

    def __init__(self, trace: Trace, platform: Platform) -> None:
        super().__init__(trace, platform)
        for call in [
            call for call in self.chunk_routes if call.splits and len(self.comms.get(call.comm).members) > 1
        ]:
            at_once = split_at_once(call, self.comms.get(call.comm), platform)
            self.chunk_routes[call] = plain_chunk_routes([at_once], call.size, platform)
        self.routing = network_of(platform).at()
        self.free: dict[int, int] = {}
        self.events: list[tuple[int, int, Any]] = []
        self.sequence = 0
        self.delivered: list[Any] = []
        self.dirty: list[ChunkFlow] = []
        self.active: dict[int, int] = {}
        self.carried: dict[int, int] = {}
        self.trees = SwitchLines(network_of(platform), self.routing.topology)
        self.working: dict[int, int] = {}
        self.kept_waiting: list[ChunkFlow] = []
        self.adding: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        """Go from event to event until nothing is left."""
        while self.timers or self.events:
            limit = min((tick for tick, _ in self.timers), default=1 << 60) * PS
            reached = self.network(limit)
            self.now = -(-reached // PS)
            # A tick has all that arrives in it before anything leaves.
            came: list[Any] = []
            while self.delivered or reached < self.now * PS:
                came, self.delivered = came + self.delivered, []
                reached = self.network(self.now * PS)
            for action in came:
                action()
            again = True
            while again:
                while any(tick <= self.now for tick, _ in self.timers):
                    first = min(range(len(self.timers)), key=lambda i: (self.timers[i][0], i))
                    self.timers.pop(first)[1]()
                self.starts()
                again = bool(self.dirty)

    def network(self, limit: int) -> int:
        """Let the links work up to `limit`, or to the first ps at which something arrives."""
        now = limit
        while self.events and self.events[0][0] <= limit:
            if self.delivered and self.events[0][0] > now:
                break
            now, _, action = heapq.heappop(self.events)
            action(now)
        return now if self.delivered else limit

    def at(self, time: int, action: Any) -> None:
        """Have the network do something."""
        self.sequence += 1
        heapq.heappush(self.events, (time, self.sequence, action))

    def send(self, source: int, target: int, size: int, arrived: Any) -> None:
        """Let a message leave now."""
        own = self.trees.links_of.get((source, target))
        links = list(own) if own else self.routing.paths([source], [target])[0].tolist()
        self.at(self.now * PS, lambda now: self.hop(links, size, now, now, arrived))

    def hop(self, links: list[int], size: int, now: int, tail: int, arrived: Any) -> None:
        """The first byte of a message is at the tail of its next link, the last comes at `tail`."""
        if not links:
            self.delivered.append(arrived)
            return
        link, rest, graph = links[0], links[1:], self.routing.topology
        start = max(now, self.free.get(link, 0))
        slow, fast = paces(graph.bandwidth[link : link + 1])
        pace = Fraction(int(slow[0]), int(fast[0]))
        end = max(start + ceil(size * pace), tail)
        latency = round(graph.latency[link] * PS)
        self.free[link] = end
        self.carried[link] = self.carried.get(link, 0) + size
        self.at(
            (start if rest else end) + latency,
            lambda now: self.hop(rest, size, now, end + latency, arrived),
        )

    def starts(self) -> None:
        """Issue free nodes, and let chunk flows begin chunks."""
        self.issue_free()
        self.choose()
        dirty, self.dirty = self.dirty, []
        for chunk_flow in dirty:
            chunk_flow.waiting.sort(key=lambda entry: entry[:2])
            while chunk_flow.waiting and self.active.get(id(chunk_flow), 0) < chunk_flow.waiting[0][2]:
                run = getattr(chunk_flow.waiting[0][3], "run", None)
                if run and not self.can_work(run):
                    if chunk_flow not in self.kept_waiting:
                        self.kept_waiting.append(chunk_flow)
                    break
                _, _, _, begin = chunk_flow.waiting.pop(0)
                self.active[id(chunk_flow)] = self.active.get(id(chunk_flow), 0) + 1
                begin()
                if run and run.ability and run.ability.operations:
                    self.touch(chunk_flow)
                    break

    def can_work(self, run: Run) -> bool:
        """Have all switches of a run work on it, unless one has enough to do."""
        nodes = [run.line[place] for place in run.switches]
        limit = run.ability.operations if run.ability else 0
        if limit and any(self.working.get(node, 0) >= limit for node in nodes):
            return False
        for node in nodes:
            self.working[node] = self.working.get(node, 0) + 1
        return True

    def touch(self, chunk_flow: ChunkFlow) -> None:
        """Have a chunk flow looked at."""
        if chunk_flow not in self.dirty:
            self.dirty.append(chunk_flow)

    def channel(self, node: Node, source: int, target: int) -> Channel:
        """Return the channel of a send or receive; a send has it looked at."""
        key = (node.attrs.get("comm_tag", 0) % (5 * 10**8), source, target, node.attrs["comm_size"])
        if key not in self.channels:
            self.channels[key] = Channel(ChunkFlow({}), ceil(self.platform.npu.message_delay), key[3])
        channel = self.channels[key]
        if node.rank == source and node.kind.name == "COMM_SEND_NODE":
            self.touch(channel.chunk_flow)
        return channel

    def issue(self, node: Node) -> None:
        """Start a node; what a send leaves on its chunk flow becomes a message."""
        super().issue(node)
        if node.kind.name == "COMM_SEND_NODE":
            channel = self.channel(node, node.rank, node.attrs["comm_dst"])
            number, _, _, _ = channel.chunk_flow.waiting.pop()

            def begin() -> None:
                self.active[id(channel.chunk_flow)] = 0
                self.send(
                    node.rank, node.attrs["comm_dst"], channel.volume,
                    lambda: self.after(channel.latency, lambda: self.arrived(channel)),
                )  # fmt: skip

            channel.chunk_flow.waiting.append((number, 0, 1, begin))

    def enter(self, instance: Instance, rank: int, chunk: int, p: int) -> None:
        """A rank comes to a phase of a chunk; when its whole line has come, the chunk waits for its turn."""
        if self.choices.must_ask(instance, rank, chunk, p):
            return
        phase = instance.phase(chunk, p)
        line = self.line(instance.call.comm, rank, phase.dim)
        came = instance.came[(chunk, p, line)] = instance.came.get((chunk, p, line), 0) + 1
        if came < len(line):
            return
        chunk_flow = instance.chunk_flows.setdefault((phase.dim, line, phase.ports), ChunkFlow({}))
        size = instance.chunk_routes.chunks[chunk][0]
        place = self.place(ceil(phase.volume * size * self.unit))

        if instance.chunk_routes.choices and p >= instance.chunk_routes.choices - 1:
            self.choices.count(instance, line, chunk, p, 1)
        segments = 1

        def over() -> None:
            for place in run.switches:
                self.working[run.line[place]] -= 1
            if run.ability and run.ability.operations:
                waiting, self.kept_waiting = self.kept_waiting, []
                for other in waiting:
                    self.touch(other)
            self.active[id(chunk_flow)] -= 1
            if instance.chunk_routes.choices:
                self.choices.count(instance, line, chunk, p, -1)
            self.phase_done(instance, line, chunk, p)
            self.touch(chunk_flow)

        if phase.algorithm == "in-switch":
            members = self.comms.get(instance.call.comm).members.tolist()
            every = {self.line(instance.call.comm, member, phase.dim) for member in members}
            depths = [in_switch.depth(self.trees.of(sorted(one), "").trees, len(one)) for one in every]
            chunks = len(instance.chunk_routes.chunks)
            segments = segments_of(chunks, phase, size, self.platform, max(depths))
            run = self.in_switches(phase, sorted(line), size, segments, over)
        else:
            run = self.made(instance.call, phase, line, size, over)
        window = window_of(phase, size, self.platform, segments)

        def begin() -> None:
            self.begin(run)

        begin.run = run  # type: ignore[attr-defined]
        chunk_flow.waiting.append(((place, p), chunk, window, begin))
        self.touch(chunk_flow)

    def in_switches(self, phase: Any, line: list[int], size: int, segments: int, over: Any) -> Run:
        """Return what a line does in a phase together with switches."""
        found = self.trees.of(line, "")
        ability = self.trees.ability(found)
        schedule = in_switch.rounds(phase.operation, len(line), found.trees, segments)
        memory, rounds = self.platform.npu.memory.bytes_per_s, []
        for part in schedule.expanded():
            messages = []
            columns = (part.source, part.target, part.numerator, part.denominator, part.reduce)
            for a, b, over_, under, reduce in zip(*(c.tolist() for c in columns), strict=True):
                moved = ceil(Fraction(over_, under) * phase.scale * size)
                if b >= len(line):
                    work = ceil(moved / ability.rate * 1e3) if reduce and ability.rate else 0
                else:
                    work = ceil(moved / memory * 1e9) if reduce and memory > 0 else 0
                messages.append((a, b, moved, work if reduce else -1))
            rounds.append(sorted(messages, key=lambda m: m[0]))
        nodes = found.nodes.tolist()
        rate = ports(self.platform)[phase.dim].out
        edge = {message: int(message[2] / rate * 1e3) for part in rounds for message in part}
        return Run(rounds, nodes, over, set(range(len(line), len(nodes))), ability, edge)

    def made(self, call: CollectiveCall, phase: Any, line: tuple[int, ...], size: int, over: Any) -> Run:
        """Return what a line does in a phase, with the bytes of each message."""
        dimension = self.platform.dimensions[phase.dim]
        order = sorted(line) if phase.dim >= 0 else list(line)
        schedule = (
            rounds_alltoallv(np.array(call.splits, np.int64))
            if call.splits
            else rounds_for(phase.algorithm, phase.operation, len(line), chunks=phase.parts)
        )
        if phase.dim >= 0:
            at = placed(schedule, dimension.topology, dimension.size, phase.positions)[1]
            order = [order[phase.positions.index(position)] for position in at]
        memory, rounds = self.platform.npu.memory.bytes_per_s, []
        for part in schedule.expanded():
            columns = (part.source, part.target, part.numerator, part.denominator, part.reduce)
            messages = []
            for a, b, over_, under, reduce in zip(*(c.tolist() for c in columns), strict=True):
                moved = ceil(Fraction(over_, under) * phase.scale * size)
                reduction = ceil(moved / memory * 1e9) if reduce and memory > 0 else 0
                if a != b:
                    messages.append((a, b, moved, reduction if reduce else -1))
            rounds.append(sorted(messages, key=lambda m: m[0]))
        return Run(rounds, order, over)

    def begin(self, run: Run) -> None:
        """Everybody comes to the first round."""
        run.at = dict.fromkeys(range(len(run.line)), -1)
        for m in range(len(run.line)):
            self.next_round(run, m)
        if run.through == len(run.line):
            self.after(0, run.over)

    def next_round(self, run: Run, m: int) -> None:
        """A member goes on to its next round with messages; those whose other end is there, too, leave."""
        while True:
            run.at[m] += 1
            k = run.at[m]
            if k == len(run.rounds):
                run.through += 1
                return
            mine = [message for message in run.rounds[k] if m in message[:2]]
            if mine:
                break
        run.left[m] = len(mine)
        sends = [message for message in mine if message[0] == m]
        for message in sends + [message for message in mine if message[1] == m]:
            if run.at[message[0]] == k == run.at[message[1]]:
                a, b, size, _ = message
                self.send(run.line[a], run.line[b], size, lambda message=message: self.came(run, message))

    def came(self, run: Run, message: tuple[int, int, int, int]) -> None:
        """A message has arrived: its sender is through with it, and its receiver when it has reduced it."""
        a, b, _, reduction = message
        delay = ceil(self.platform.npu.message_delay)
        done = self.now + delay
        if run.ability and b in run.switches:
            done = self.now + ceil(run.ability.latency)
            if reduction >= 0:
                pair = run.line[a], run.line[b]
                begin = max(self.now * PS - run.edge[message], self.adding.get(pair, 0))
                end = self.adding[pair] = max(begin + reduction, self.now * PS)
                done = -(-end // PS) + ceil(run.ability.latency)
        elif reduction >= 0:
            done = run.busy[b] = max(done, run.busy.get(b, 0)) + reduction
        for member, tick in ((a, self.now + delay), (b, done)):
            if tick > self.now:
                self.after(tick - self.now, lambda member=member: self.less(run, member))
            else:
                self.less(run, member)

    def less(self, run: Run, m: int) -> None:
        """One message less that a member waits for."""
        run.left[m] -= 1
        if run.left[m] == 0:
            self.next_round(run, m)
            if run.through == len(run.line):
                run.over()
