"""The tables of a program while it is lowered: lines and ports, channels, and the plans of collectives over them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from math import ceil, fsum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.base.units import format_bandwidth
from armillary.engine.common import network
from armillary.engine.common.items import Channel, View
from armillary.engine.common.lowered import Tables
from armillary.engine.common.network import CollectiveCall, QuotientComm, Scale, between, bits
from armillary.engine.physical import layout as lk
from armillary.engine.physical.chunk_routes import ChunkRoutes, last_latency
from armillary.engine.physical.memory import HostPorts, MemoryPorts
from armillary.engine.physical.phases import MEMORY_STORE, PhysicalPhase, latency_ticks, reduction_ns
from armillary.engine.physical.program import Plan
from armillary.engine.physical.workload import PhysicalWorkload, lines_of
from armillary.platform.model import Platform, ports
from armillary.platform.network import links_per_npu

Ints = NDArray[np.int64]
Use = tuple[int, int, int]
"""A port, how much of it one byte of the line takes, and lines that this one stands for there."""


class Ring(NamedTuple):
    """The lines of a communicator on which one kind of phase runs."""

    entry: int
    """Where its local classes begin in RING_ENTRY: the line of each, and its place on that."""
    first: int
    """Number of its first line."""
    chunk_flow: int
    """First of its chunk flows among those of an instance of its communicator."""
    lines: int
    """Number of lines, and of chunk flows of an instance."""


class Lines:
    """Lines and ports while they grow: ports of the network come first, those of a memory after them."""

    def __init__(self, workload: PhysicalWorkload, classes: Ints, representatives: Ints) -> None:
        self.workload, self.platform, self.classes = workload, workload.platform, classes
        # The finest unit in which the largest volume of this trace still fits int64.
        self.scale = scale = Scale(1 << bits(workload.largest()))
        self.rates = [[scale.rate(port.out), scale.rate(port.into)] for port in ports(self.platform)]
        """Out of and into a port of each dimension, in units per tick."""
        self.ranks = len(representatives)
        self.representatives = representatives
        # Ports of memory are numbered behind those of the network.
        self.memory = MemoryPorts(
            self.platform, classes, representatives, self.network_ports, workload.memory_groups()
        )
        self.host = HostPorts(
            self.platform, classes, self.network_ports + self.memory.count, workload.host_groups()
        )
        self.rows: list[int] = []
        self.members: list[int] = []
        self.ports: list[int] = []
        self.entries: list[int] = []
        self.chunk_flows: dict[int, int] = defaultdict(int)
        """Chunk flows of an instance, by communicator."""
        self._rings: dict[tuple[int, int, tuple[tuple[int, int], ...], bool], Ring] = {}
        self.known = workload.lines_of_classes(classes)
        """See `_lines`; also those of machines before."""

    @property
    def count(self) -> int:
        """Number of lines."""
        return len(self.rows) // lk.LN_COLUMNS

    @property
    def network_ports(self) -> int:
        """Number of ports that are none of a memory."""
        return 2 * len(self.rates) * self.ranks

    def port(self, cls: int, dim: int, into: bool) -> int:
        """Return the number of one direction of a class's port in a dimension."""
        return (cls * len(self.rates) + dim) * 2 + int(into)

    def port_rates(self) -> Ints:
        """Return the rates of all ports, in units per tick.

        Raises:
            InputError: one is too small to be counted.
        """
        memory, host = self.memory.rates(self.scale.rate), self.host.rates(self.scale.rate)
        rates = np.array(self.rates, np.int64)
        network = np.tile(rates.ravel(), self.ranks)
        for cls, rank in enumerate(self.representatives.tolist()):
            if shares := self.platform.port_speed.get(rank):
                own = np.floor(rates * np.array(shares)[:, None]).astype(np.int64)
                network[self.port(cls, 0, False) :][: own.size] = own.ravel()
        found = np.concatenate([network, memory, host])
        if (found < 1).any():
            raise InputError(
                f"{self.platform.source or 'platform'}: {self._slowest()} is too small for the sizes of this trace; "
                f"expected at least {format_bandwidth(1 / self.scale.units)}"
            )
        return found

    def _slowest(self) -> str:
        """Return the least bandwidth of the platform, with its place, as the subject of an error."""
        platform = self.platform
        found = [
            (min(port.out, port.into), f"network: {dimension.name}")
            for port, dimension in zip(ports(platform), platform.dimensions, strict=True)
        ]
        found += [(min(s.read, s.write), f"remote_memory: {s.name}") for s in platform.remote_memory.stages]
        if self.host.count:
            found.append((self.host.bandwidth, "collectives: host"))
        rate, where = min(found)
        return f"{where}: bandwidth: got {format_bandwidth(rate)}, which"

    def ticks(self, phase: PhysicalPhase, volume: int) -> int:
        """Return how long a volume takes at the full rate of the ports of dimensions that a phase uses."""
        rates = [min(self.rates[dim]) // factor for dim, factor in phase.ports if dim >= 0]
        return -(-volume // max(min(rates, default=1), 1))

    def add(self, used: Sequence[Use], members: Sequence[int] = ()) -> int:
        """Add a line with members in its communicator, or none, that uses these ports; returns its number."""
        number = self.count
        self.rows += [len(members), len(self.members), len(self.ports) // lk.LP_COLUMNS, len(used)]
        self.members += members
        # Port, factor, weight: the columns of LINE_PORTS.
        self.ports += chain.from_iterable(used)
        return number

    def ring(self, comm: QuotientComm, phase: PhysicalPhase) -> Ring:
        """Return the lines of a phase of a communicator, built on first use."""
        # Phases on the same line and ports share chunk flows: both halves of an all-reduce in a dimension
        # queue up together.
        key = (comm.number, phase.dim, phase.ports, phase.host)
        if key not in self._rings:
            self._rings[key] = self._build(comm, phase)
        return self._rings[key]

    def _build(self, comm: QuotientComm, phase: PhysicalPhase) -> Ring:
        entry, first = len(self.entries) // 2, self.count
        place: dict[int, tuple[int, int]] = {}
        # One line stands for all lines with the same classes.
        for members in self._lines(comm.real, phase.dim):
            number = self.add(self._used(members, comm, phase), [comm.local[c] for c in members])
            place |= {c: (number, i) for i, c in enumerate(members)}
        for cls in comm.local:
            self.entries += place[cls]
        chunk_flow, count = self.chunk_flows[comm.number], self.count - first
        self.chunk_flows[comm.number] += count
        return Ring(entry, first, chunk_flow, count)

    def _lines(self, comm: network.Communicator, dim: int) -> list[list[int]]:
        """Return `quotient_lines` of a communicator along a dimension."""
        if (comm.number, dim) not in self.known:
            lines = lines_of(self.platform, comm, dim)
            self.known[comm.number, dim] = network.quotient_lines(lines, self.classes)
        return self.known[comm.number, dim]

    def _used(self, members: list[int], comm: QuotientComm, phase: PhysicalPhase) -> list[Use]:
        used = [
            (self.port(c, dim, into), factor, 1)
            for c in members
            for dim, factor in phase.ports
            for into in (False, True)
            if dim >= 0
        ]
        for dim, _ in phase.ports:
            if dim < 0:
                together = self.memory.together(comm.real.members, self._slots(comm), dim == MEMORY_STORE)
                used += [(port, 1, weight) for port, weight in together]
        if phase.host:
            used += self.host.used(comm.real.members, self._slots(comm))
        return used

    def _slots(self, comm: QuotientComm) -> Ints:
        """Return the place of a communicator among those of each of its members."""
        ranks, number = comm.real.members.tolist(), comm.real.number
        return np.array([self.workload.slots(rank).get(number, -1) for rank in ranks])


class Moved(NamedTuple):
    """What moving a message takes."""

    latency: int
    """Ticks."""
    volume: int
    """In units of the program."""
    uses: tuple[tuple[int, int], ...]
    """Dimensions whose ports it uses, and how many links it takes there."""


def moved(platform: Platform, scale: Scale, hops: Sequence[int], size: int) -> Moved:
    """Return what a message of `size` bytes takes that crosses so many links of each dimension."""
    crossed = [
        (d, dimension, hop)
        for d, (dimension, hop) in enumerate(zip(platform.dimensions, hops, strict=True))
        if hop
    ]
    latency = fsum(hop * dimension.latency for _, dimension, hop in crossed)
    latency += platform.npu.message_delay
    uses = tuple((d, links_per_npu(dimension.topology, dimension.size)) for d, dimension, _ in crossed)
    # Every dimension that a message crosses is paid for, in latency and in bandwidth.
    volume: int | Fraction = size
    if platform.collectives.fit:
        from armillary.engine.common.fits import fitted_message

        if fitted := fitted_message(platform, hops, size):
            latency, volume, uses = fitted.latency, fitted.volume, ((fitted.dim, 1),)
    # A message that leaves its node is between nodes all the way.
    if share := platform.terms.communication_share(between(platform, [d for d, _, _ in crossed])):
        latency, volume = latency * (1 + share), volume * (1 + Fraction(share))
    return Moved(ceil(latency), scale.volume(volume), uses)


class Carried(NamedTuple):
    """What channels carry."""

    sent: list[tuple[tuple[int, ...], int]]
    """Hops and bytes of the messages of each channel between ranks, by number."""
    times: dict[tuple[tuple[int, ...], int], Moved]
    """What moving these takes."""


class Channels:
    """Channels while they grow; chunk flows are counted from the first channel on."""

    def __init__(self, workload: PhysicalWorkload, classes: Ints, tables: Tables, lines: Lines) -> None:
        self.workload, self.platform, self.classes = workload, workload.platform, classes
        self.tables, self.lines, self.scale = tables, lines, lines.scale
        self._known: dict[Channel, tuple[int, int, int]] = {}
        self.times: dict[tuple[tuple[int, ...], int], Moved] = {}
        """By hops and bytes."""

    def of(self, channel: Channel) -> tuple[int, int, int]:
        """Return (quotient channel, latency in ticks, volume in units) of a channel."""
        if channel not in self._known:
            self._known[channel] = self.lower(channel)
        return self._known[channel]

    def lower(self, channel: Channel) -> tuple[int, int, int]:
        """Return the same for a channel that is not known yet: one like it may be."""
        tag, source, target, size = channel
        sends, receives = self.workload.channel(channel)
        a, b = int(self.classes[source]), int(self.classes[target])
        hops = network.path_between(self.platform.dimensions, source, target)
        # Channels between ranks of the same classes over equally long paths behave alike, so they are one.
        key = (tag, a, b, size, tuple(sends), tuple(receives), hops)
        if (hops, size) not in self.times:
            self.times[hops, size] = moved(self.platform, self.scale, hops, size)
        latency, volume, uses = self.times[hops, size]
        if key not in self.tables.channel_at:
            used = []
            for d, links in uses:
                used += [(self.lines.port(a, d, False), links, 1), (self.lines.port(b, d, True), links, 1)]
            self.add(key, (a, b), max(len(sends), len(receives)), used)
        return self.tables.channel_at[key], latency, volume

    def carried(self) -> Carried:
        """Return what channels between ranks carry."""
        return Carried(
            [(key[-1], key[3]) for key in self.tables.channel_at if key[0] != "memory"], self.times
        )

    def fill_stores(self, view: View, items: Ints, rank: int) -> None:
        """Fill in the operations of a storage whose bytes move through the network: here there are none."""

    def add(self, key: tuple[Any, ...], ends: tuple[int, int], messages: int, used: list[Use]) -> int:
        """Add a channel between two classes with as many messages, that uses these ports; returns its number."""
        tables = self.tables
        number = tables.channel_at[key] = len(tables.channel_at)
        tables.channels += [tables.pairs, *ends, number, self.lines.add(used)]
        tables.pairs += messages
        return number


class Plans:
    """Plans while they grow."""

    def __init__(self, workload: PhysicalWorkload, lines: Lines) -> None:
        self.workload, self.lines, self.scale = workload, lines, lines.scale
        self.all: list[Plan] = []
        self.of_comm: dict[int, list[Plan]] = defaultdict(list)
        self.rows: list[int] = []
        self.chunk_rows: list[int] = []
        self.phase_rows: list[int] = []
        self._known: dict[tuple[object, ...], Plan] = {}
        self._times: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        """Latency, volume and ticks of phases, see `of`."""
        self._batches: dict[int, bool] = {}
        """By the ``id`` of chunk routes that calls which cost the same share."""

    def plan(self, comm: QuotientComm, call: CollectiveCall) -> Plan:
        """Return the plan of a call in a quotient communicator, made on first use."""
        # Groups that are alike share a quotient communicator, so the number of the real group is no part of
        # the key.
        key: tuple[object, ...] = (comm.number, call.anywhere)
        if call.splits:
            # What groups that are alike send may differ where it costs the same.
            key = comm.number, replace(call.anywhere, splits=()), self.workload.chunk_routes(call).stripped
        if key not in self._known:
            self._known[key] = self._add(comm, call)
        return self._known[key]

    def _add(self, comm: QuotientComm, call: CollectiveCall) -> Plan:
        chunk_routes = self.workload.chunk_routes(call)
        plan = Plan(len(self.all), comm, call, chunk_routes)
        first: dict[tuple[int, int], int] = {}
        # Rows per distinct size and route; chunks only point to them.
        for chunk, routes in chunk_routes.distinct.items():
            first[chunk] = len(self.phase_rows) // lk.PH_COLUMNS
            for route in routes:
                self._add_route(plan, route, chunk[0])
        plan.chunk_batch = self.is_chunk_batch(chunk_routes)
        # Modulo: if all chunks are alike, none is bigger.
        bigger = chunk_routes.chunks.count(chunk_routes.chunks[0]) % len(chunk_routes.chunks)
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

    def is_chunk_batch(self, chunk_routes: ChunkRoutes) -> bool:
        """Tell whether the chunks of a call follow one another through one phase, the bigger ones first."""
        key = id(chunk_routes.stripped)
        if key not in self._batches:
            self._batches[key] = self._is_batch(chunk_routes)
        return self._batches[key]

    def _is_batch(self, chunk_routes: ChunkRoutes) -> bool:
        collectives, phases = self.workload.platform.collectives, chunk_routes.routes[0]
        sizes = [size for size, _ in chunk_routes.chunks]
        return (
            self.workload.fluid
            and len(phases) == 1
            and sizes == sorted(sizes, reverse=True)
            # The kernel knows two volumes per batch: sizes that differ by a rounding, as chunks of one
            # collective do.
            and len(set(sizes)) <= 2
            and self.scale.volume(phases[0].volume * sizes[-1]) > 0
            and (collectives.within_dimension != "smallest-first" or sizes[0] == sizes[-1])
        )

    def _add_route(self, plan: Plan, route: int, size: int) -> None:
        """Add the rows of the phases of a chunk of `size` bytes."""
        lines = 0
        times = zip(plan.chunk_routes.routes[route], self.of(plan, route, size), strict=True)
        for phase, (latency, volume, ticks) in times:
            ring = self.lines.ring(plan.comm, phase)
            plan.placed.append((phase, size))
            self.phase_rows += [
                # Less `ring.first`, so that a kernel adds the number of a line without subtracting first.
                ring.entry, lines - ring.first, ring.chunk_flow - ring.first, latency, volume, ring.first, ring.lines,
                ticks,
            ]  # fmt: skip
            lines += ring.lines
        plan.lines = max(plan.lines, lines)

    def of(self, plan: Plan, route: int, size: int) -> list[tuple[int, int, int]]:
        """Return latency in ticks, volume in units and ticks at full rate of the phases of a chunk."""
        # Plans of groups that lie alike have the same times, and share what is compared.
        key = id(plan.chunk_routes.stripped), route, size
        if key not in self._times:
            self._times[key] = self._times_of(plan, plan.chunk_routes.routes[route], size)
        return self._times[key]

    def _times_of(self, plan: Plan, phases: Sequence[PhysicalPhase], size: int) -> list[tuple[int, int, int]]:
        memory, found = self.workload.platform.npu.memory.bytes_per_s, []
        last = last_latency(
            plan.chunk_routes, lambda p, s: self.lines.ticks(p, self.scale.volume(p.volume * s))
        )
        for phase in phases:
            volume = self.scale.volume(phase.volume * size)
            latency = latency_ticks(phase, size, memory)
            if last is not None:
                latency = last + ceil(reduction_ns(phase, size, memory))
            found.append((latency, volume, self.lines.ticks(phase, volume)))
        return found
