"""The slow, obvious reference of the engine of profile `physical`: every rank on its own, every rate from scratch.

Nothing here is fast, folded or flat. It shares with the engine which algorithm a collective uses and what a
port can do, and nothing else, so that it is an independent witness of the rules:

* A tick is made of rounds: all that ends now, then all that starts now, until nothing ends now any more.
* A chunk flow is a collective on one line of ranks, or a channel between two ranks. It serves one volume at a time.
* A chunk flow's rate is the least, over its ports, of port rate ÷ (factor × chunk flows there), rounded down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from armillary.base.errors import StuckError
from armillary.engine.common import network
from armillary.engine.common.fits import fitted_message
from armillary.engine.common.network import CollectiveCall, Communicators, bits, node_size
from armillary.engine.physical.chunk_routes import last_latency
from armillary.engine.physical.phases import MEMORY_STORE, PhysicalPhase, latency_ticks, reduction_ns
from armillary.engine.physical.workload import largest_message
from armillary.platform.model import Platform, ports
from armillary.platform.network import links_per_npu
from armillary.trace import NodeType, Trace
from armillary.trace.expand import expand
from tests.engine.physical.reference.choice import Choices, Instance
from tests.engine.physical.reference.flows import ChunkFlow, Port, share
from tests.engine.physical.reference.memory import Memories
from tests.engine.physical.reference.nodes import MEMORY, Node, read, split
from tests.engine.physical.reference.phases import own_chunk_routes

HOST = -3
"""Stands for a dimension in ports of the hosts of nodes."""
TAGS = 5 * 10**8
"""Tags are kept modulo this number."""


@dataclass(eq=False)
class Channel:
    """Messages of one tag and size between two ranks: the k-th send meets the k-th receive."""

    chunk_flow: ChunkFlow
    latency: int
    volume: int
    sends: list[Node] = field(default_factory=list)
    receives: list[Node] = field(default_factory=list)
    came: int = 0


def simulate_slowly(
    trace: Trace, platform: Platform
) -> tuple[list[int], list[dict[int, int]], list[dict[int, int]]]:
    """Return the finish tick, and start and end by node id, of every rank.

    Raises:
        StuckError: something never happens, or collectives do not match.
    """
    machine = Machine(trace, platform)
    machine.run()
    ranks = [machine.ranks[r] for r in range(trace.n_ranks)]
    finish = [max((node.end for node in nodes), default=0) for nodes in ranks]
    starts = [{node.id: node.start for node in nodes} for nodes in ranks]
    return finish, starts, [{node.id: node.end for node in nodes} for nodes in ranks]


class Machine:
    """All ranks and all that is in flight."""

    def __init__(self, trace: Trace, platform: Platform) -> None:
        trace = expand(trace)
        self.platform = platform
        self.comms = Communicators(platform)
        for graph in trace.graphs:
            self.comms.read_metadata(graph)
        self.ranks = {rank: read(rank, trace, platform, self.comms) for rank in range(trace.n_ranks)}
        split(self.ranks, self.comms)
        self.chunk_routes = {
            node.call: own_chunk_routes(node.call, self.comms.get(node.call.comm), platform)
            for nodes in self.ranks.values() for node in nodes if node.call
        }  # fmt: skip
        largest = [
            ceil(p.volume * (call.size + 1))
            for call, chunk_routes in self.chunk_routes.items()
            for p in chunk_routes.phases
        ]
        staged = platform.remote_memory.kind == "hierarchical" and not platform.compute.replay
        alone = [node for nodes in self.ranks.values() for node in nodes if not node.call]
        largest += [
            node.attrs.get(
                "tensor_size" if node.kind in MEMORY and staged and not node.local else "comm_size", 0
            )
            for node in alone
        ]
        largest.append(largest_message(platform, [node.attrs.get("comm_size", 0) for node in alone]))
        self.unit = 1 << bits(max(largest, default=1))
        self.port_rates: dict[Any, int] = {
            (d, way): int(getattr(p, way) * self.unit)
            for d, p in enumerate(ports(platform)) for way in ("out", "into")
        }  # fmt: skip
        # Ports of a rank that are slower than those of others are known by the rank besides.
        self.port_rates |= {
            (rank, d, way): int(np.floor(self.port_rates[d, way] * shares[d]))
            for rank, shares in platform.port_speed.items()
            for d in range(len(shares)) for way in ("out", "into")
        }  # fmt: skip
        if platform.collectives.fit and platform.collectives.fit.host:
            self.port_rates[HOST, "host"] = int(platform.collectives.fit.host.bandwidth * self.unit)
        self.memories = Memories(platform)
        self.port_rates |= self.memories.rates(self.unit)
        self.choices = Choices(self.comms, self.line, self.full_rate)
        self.now = 0
        self.timers: list[tuple[int, Any]] = [
            (ceil(self.platform.stragglers.get(r, 0.0)), lambda: None) for r in self.ranks
        ]
        self.busy: set[tuple[int, tuple[str, int]]] = set()
        self.chunk_flows: list[ChunkFlow] = []
        self.instances: dict[tuple[int, int], Instance] = {}
        self.joined: dict[tuple[int, int], int] = {}
        self.channels: dict[tuple[int, int, int, int], Channel] = {}

    def run(self) -> None:
        """Go from tick to tick until nothing is left."""
        while True:
            self.starts()
            moving = [
                chunk_flow for chunk_flow in self.chunk_flows if chunk_flow.head and chunk_flow.rate > 0
            ]
            times = [self.now + -(-max(chunk_flow.left, 0) // chunk_flow.rate) for chunk_flow in moving]
            times += [tick for tick, _ in self.timers]
            if not times:
                break
            then = min(times)
            for chunk_flow in moving:
                chunk_flow.left -= chunk_flow.rate * (then - self.now)
            self.now = then
            self.ends(moving)
        stuck = [node for nodes in self.ranks.values() for node in nodes if node.end < 0]
        if stuck:
            raise StuckError(
                f"{len(stuck)} nodes never end, the first is {stuck[0].id} on rank {stuck[0].rank}"
            )

    def ends(self, moving: list[ChunkFlow]) -> None:
        """Let everything end that ends now."""
        due = [chunk_flow.head[3] for chunk_flow in moving if chunk_flow.left <= 0 and chunk_flow.head]
        for chunk_flow in moving:
            chunk_flow.head = chunk_flow.head if chunk_flow.left > 0 else None
        while due or any(tick == self.now for tick, _ in self.timers):
            due += [action for tick, action in self.timers if tick == self.now]
            self.timers = [(tick, action) for tick, action in self.timers if tick > self.now]
            for action in due:
                action()
            due = []

    def issue_free(self) -> None:
        """Issue free nodes whose slot is idle, rank by rank, the lowest first."""
        for rank, nodes in self.ranks.items():
            while self.now >= ceil(self.platform.stragglers.get(rank, 0.0)):
                free = [
                    node for node in nodes
                    if node.start < 0 and node.waits == 0 and not (node.slot and (rank, node.slot) in self.busy)
                ]  # fmt: skip
                if not free:
                    break
                self.issue(free[0])

    def starts(self) -> None:
        """Issue free nodes, choose levels, give idle chunk flows their next volume, and share the ports anew."""
        self.issue_free()
        self.choose()
        for chunk_flow in self.chunk_flows:
            if chunk_flow.head is None and chunk_flow.waiting:
                chunk_flow.waiting.sort(key=lambda entry: entry[:2])
                chunk_flow.head = chunk_flow.waiting.pop(0)
                chunk_flow.left = chunk_flow.head[2]
                if chunk_flow.keys:
                    chunk_flow.key = chunk_flow.keys.pop(0)
        share(self.chunk_flows, self.port_rates, self.platform.scheduling)

    def choose(self) -> None:
        """Choose levels, and let those enter that waited for that."""
        for instance, chunk, p, rank in self.choices.choose():
            self.enter(instance, rank, chunk, p)

    def full_rate(self, phase: PhysicalPhase, size: int) -> int:
        """Return the ticks of a phase of a chunk of so many bytes at the full rate of its dimension."""
        rate = min(self.port_rates[d, way] // factor for d, factor in phase.ports for way in ("out", "into"))
        return -(-ceil(phase.volume * size * self.unit) // rate)

    def order(self, node: Node) -> tuple[int, int]:
        """Return the place that what a node asks for now has in the global order: the lowest is first."""
        kind = self.platform.scheduling
        priority = -node.attrs.get("comm_priority", 0) if kind == "priority" else 0
        return priority, -self.now if kind == "lifo" else self.now

    def after(self, delay: int, action: Any) -> None:
        """Have something done `delay` ticks from now."""
        self.timers.append((self.now + delay, action))

    def issue(self, node: Node) -> None:
        """Start a node."""
        node.start = self.now
        if node.slot:
            self.busy.add((node.rank, node.slot))
        if node.call:
            self.join(node, node.call)
        elif node.kind == NodeType.COMP_NODE:
            self.after(node.ticks, lambda: self.complete(node))
        elif node.kind == NodeType.COMM_SEND_NODE:
            channel = self.channel(node, node.rank, node.attrs["comm_dst"])
            channel.sends.append(node)
            channel.chunk_flow.keys.append(self.order(node))
            number = len(channel.sends)
            arrive = lambda: self.after(channel.latency, lambda: self.arrived(channel))  # noqa: E731
            channel.chunk_flow.waiting.append((number, 0, channel.volume, arrive))
        elif node.kind == NodeType.COMM_RECV_NODE:
            channel = self.channel(node, node.attrs["comm_src"], node.rank)
            channel.receives.append(node)
            if channel.came >= len(channel.receives):
                self.after(0, lambda: self.complete(node))
        elif node.local:
            self.after(node.ticks, lambda: self.complete(node))
        elif node.kind in MEMORY and self.platform.remote_memory.kind == "hierarchical":
            self.transfer(node)
        elif node.kind in MEMORY:
            self.after(self.memories.wait(node, self.now), lambda: self.complete(node))
        elif node.kind == NodeType.METADATA_NODE and node.attrs.get("delay_ns", 0) > 0:
            self.after(node.attrs["delay_ns"], lambda: self.complete(node))
        else:
            self.complete(node)

    def complete(self, node: Node) -> None:
        """End a node."""
        node.end = self.now
        if node.slot:
            self.busy.discard((node.rank, node.slot))
        for child in node.children:
            child.waits -= 1

    def transfer(self, node: Node) -> None:
        """Access a hierarchical memory: one access after the other in each direction."""
        store, size = node.kind == NodeType.MEM_STORE_NODE, node.attrs["tensor_size"]
        chunk_flow, fill = self.memories.chunk_flow(node.rank, store), self.memories.fill(size, store)
        if chunk_flow not in self.chunk_flows:
            self.chunk_flows.append(chunk_flow)
        chunk_flow.keys.append(self.order(node))
        chunk_flow.waiting.append(
            (0, 0, size * self.unit, lambda: self.after(fill, lambda: self.complete(node)))
        )

    def channel(self, node: Node, source: int, target: int) -> Channel:
        """Return the channel of a send or receive."""
        tag, size = node.attrs.get("comm_tag", 0) % TAGS, node.attrs["comm_size"]
        key = (tag, source, target, size)
        if key not in self.channels:
            hops = network.path(self.platform.dimensions, np.array(source), np.array(target))
            uses: dict[Port, int] = {}
            latency = self.platform.npu.message_delay
            for d, (dimension, hop) in enumerate(zip(self.platform.dimensions, hops, strict=True)):
                latency += int(hop) * dimension.latency
                if hop:
                    links = links_per_npu(dimension.topology, dimension.size)
                    uses |= {(source, d, "out"): links, (target, d, "into"): links}
            volume: int | Fraction = size
            if fitted := fitted_message(self.platform, [int(hop) for hop in hops], size):
                uses = {(source, fitted.dim, "out"): 1, (target, fitted.dim, "into"): 1}
                latency, volume = fitted.latency, fitted.volume
            fit, terms = self.platform.collectives.fit, self.platform.terms
            node = fit.inner if fit else 1
            leaves = any(hop for hop in hops[node:])
            more = terms.communication + (
                terms.communication_between if leaves else terms.communication_inside
            )
            chunk_flow = ChunkFlow(uses)
            self.chunk_flows.append(chunk_flow)
            units = ceil(volume * (1 + Fraction(more)) * self.unit)
            self.channels[key] = Channel(chunk_flow, ceil(latency * (1 + more)), units)
        return self.channels[key]

    def arrived(self, channel: Channel) -> None:
        """The last byte of a message is there."""
        channel.came += 1
        self.complete(channel.sends[channel.came - 1])
        if len(channel.receives) >= channel.came:
            self.complete(channel.receives[channel.came - 1])

    def join(self, node: Node, call: CollectiveCall) -> None:
        """Let a rank join a collective: it comes to the first phase of every chunk."""
        number = self.joined.get((call.comm, node.rank), 0)
        self.joined[(call.comm, node.rank)] = number + 1
        made = Instance(call, self.chunk_routes[call])
        instance = self.instances.setdefault((call.comm, number), made)
        if instance.call != call:
            raise StuckError(f"mismatched collectives: {instance.call} and {call}")
        instance.nodes[node.rank] = node
        count = instance.left[node.rank] = len(instance.chunk_routes.chunks)
        if not instance.chunk_routes.phases:
            self.after(0, lambda: self.complete(node))
            return
        for chunk in range(count):
            self.enter(instance, node.rank, chunk, 0)

    def enter(self, instance: Instance, rank: int, chunk: int, p: int) -> None:
        """A rank comes to a phase of a chunk; when its whole line has come, the chunk waits for the chunk flow."""
        if self.choices.must_ask(instance, rank, chunk, p):
            return
        phase = instance.phase(chunk, p)
        line = self.line(instance.call.comm, rank, phase.dim)
        came = instance.came[(chunk, p, line)] = instance.came.get((chunk, p, line), 0) + 1
        if came < len(line):
            return
        where = (phase.dim, line, phase.ports, phase.host)
        if where not in instance.chunk_flows:
            uses = {
                (r, d, way): factor
                for r in line for d, factor in phase.ports for way in ("out", "into") if d >= 0
            } | {
                port: 1 for r in line for d, _ in phase.ports if d < 0
                for port in self.memories.stages(r, d == MEMORY_STORE)
            }  # fmt: skip
            if phase.host:
                size = node_size(self.platform)
                inside = {r // size: sum(m // size == r // size for m in line) for r in line}
                # The host of a node, of whose path one byte of a member takes as much as there are members.
                uses |= {(node, HOST, "host"): count for node, count in inside.items() if count > 1}
            chunk_flow = ChunkFlow(uses, key=min(self.order(instance.nodes[r]) for r in line))
            instance.chunk_flows[where] = chunk_flow
            self.chunk_flows.append(chunk_flow)
        size = instance.chunk_routes.chunks[chunk][0]
        memory = self.platform.npu.memory.bytes_per_s
        latency = latency_ticks(phase, size, memory)
        last = last_latency(instance.chunk_routes, self.full_rate)
        if last is not None:
            latency = last + ceil(reduction_ns(phase, size, memory))
        volume = ceil(phase.volume * size * self.unit)
        chooses = instance.chunk_routes.choices > 0
        if chooses and p >= instance.chunk_routes.choices - 1:
            self.choices.count(instance, line, chunk, p, 1)

        def through() -> None:
            if chooses:
                self.choices.count(instance, line, chunk, p, -1)
            self.after(latency, lambda: self.phase_done(instance, line, chunk, p))

        place = self.place(volume)
        instance.chunk_flows[where].waiting.append(((place, p), chunk, volume, through))

    def place(self, volume: int) -> int:
        """Return what a chunk flow orders chunks by before phase and number."""
        within = self.platform.collectives.within_dimension
        return {"earliest-phase": 0, "fifo": self.now, "smallest-first": volume}[within]

    def line(self, comm: int, rank: int, dim: int) -> tuple[int, ...]:
        """Return the members of a communicator that differ from `rank` in one dimension only; -1: all."""
        members = self.comms.get(comm).members.tolist()
        if dim < 0:
            return tuple(members)
        stride, size = network.strides(self.platform.dimensions)[dim], self.platform.dimensions[dim].size
        rest = [(m // (stride * size), m % stride) for m in members]
        return tuple(m for m, where in zip(members, rest, strict=True) if where == rest[members.index(rank)])

    def phase_done(self, instance: Instance, line: tuple[int, ...], chunk: int, p: int) -> None:
        """A line has finished a phase of a chunk."""
        for rank in line:
            if p + 1 < len(instance.chunk_routes.routes[0]):
                self.enter(instance, rank, chunk, p + 1)
                continue
            instance.left[rank] -= 1
            if instance.left[rank] == 0:
                self.complete(instance.nodes[rank])
