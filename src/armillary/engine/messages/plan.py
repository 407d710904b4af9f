"""Simulate a synthesised collective on a transport: each message leaves when its data is there and its turn comes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, StuckError
from armillary.base.jit import Mode, load
from armillary.base.tables import at_least
from armillary.collective.synthesis.edges import Edges
from armillary.collective.synthesis.event_kernel import H_COLUMNS, S_HEAP
from armillary.collective.synthesis.spread import Spread
from armillary.collective.synthesis.synthesize import SynthesizedSchedule
from armillary.engine.messages import plan_layout as pk
from armillary.engine.messages.stages import stages_of
from armillary.engine.transport import layout as lk
from armillary.engine.transport.models import transport_of
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.transport import Room, first_state
from armillary.engine.transport.use import LinkUse, link_use
from armillary.platform.model import Platform
from armillary.platform.topology.graph import Ints

INTERPRETED_MESSAGES = 5_000


@dataclass(frozen=True)
class SimulatedSchedule:
    """When the last NPU was done, ns, and what the links carried."""

    time: int
    use: LinkUse
    events: int


def simulate_schedule(
    schedule: SynthesizedSchedule,
    platform: Platform,
    network_model: str = "congestion",
    mode: Mode | None = None,
) -> SimulatedSchedule:
    """Simulate a schedule on the network of a platform as it is at the start, which must be the one it was made for.

    Args:
        schedule: What to simulate.
        platform: The machine; its memory adds at the bandwidth of its NPUs.
        network_model: congestion or flow.
        mode: Compiled, or interpreted; by default the one that is sooner done.

    Raises:
        InputError: the network model is another.
        StuckError: messages wait for each other.
    """
    if network_model not in ("congestion", "flow"):
        raise InputError(f"network model '{network_model}' for a schedule: expected congestion or flow")
    if mode is None:
        mode = "interpreted" if schedule.messages <= INTERPRETED_MESSAGES else "compiled"
    edges = schedule.edges
    stage: Stage = stages_of(platform)[0]
    routes = Routes()
    routes.append(edges.paths)
    transport = transport_of(network_model, platform).on([stage], routes)
    table: Any = lower_network(
        [stage], routes, transport.options(stage.topology), transport.tables(stage.topology)
    )
    net = first_state(transport, stage.topology, mode, routes.count)
    room = Room(transport, mode, links=stage.topology.links)
    phases, owner, node_first = _phases(schedule, edges)
    memory, delay = platform.npu.memory.bytes_per_s, ceil(platform.npu.message_delay)
    st = np.zeros(pk.PLAN_STATE, np.int64)
    st[pk.S_REDUCE] = ceil(schedule.chunk / memory * 1e9) * lk.PS if memory > 0 else 0
    st[pk.S_DELAY], st[pk.S_CHUNKS], st[pk.S_DIRTY] = delay * lk.PS, len(owner), edges.n
    heap = np.zeros((edges.n + 1024) * H_COLUMNS, np.int64)
    dirty, marked, busy = (
        np.arange(edges.n)[::-1].copy(),
        np.ones(edges.n, np.int64),
        np.zeros(edges.n, np.int64),
    )
    kernel = load("armillary.engine.messages.plan_kernel", mode, transport.kernel)
    if mode == "interpreted":
        table = table.tolist()
    more = True
    while more:
        room.fit(net)
        heap = at_least(heap, (int(st[S_HEAP]) + 1) * H_COLUMNS, "compiled")
        more = kernel.run(
            table, net, room.pool, room.queue, st, heap, *phases, edges.target, owner, node_first, dirty, marked,
            busy, schedule.chunk,
        )  # fmt: skip
    if st[pk.S_RECEIVED] != schedule.messages:
        raise StuckError(
            f"{schedule.messages - st[pk.S_RECEIVED]:,} of {schedule.messages:,} messages never arrive"
        )
    flat = np.asarray(net, np.int64)
    return SimulatedSchedule(
        int(st[pk.S_LAST]) // lk.PS, link_use(flat, stage.topology), int(flat[lk.N_EVENTS])
    )


Phase = tuple[NDArray[Any], ...]


def _phases(schedule: SynthesizedSchedule, edges: Edges) -> tuple[tuple[Phase, Phase], Ints, Ints]:
    """Return the two phases as the kernel reads them, the owners of chunks, and (n + 1) the first port of each NPU."""
    n, chunks = edges.n, schedule.n * schedule.per_npu
    # Chunk c belongs to NPU c // per_npu, which collects its sum and spreads it.
    owner = np.arange(chunks) // schedule.per_npu
    port_first, port_entry, port_of = edges.ports
    ports = len(port_first) - 1
    node_first = np.searchsorted(edges.source[port_entry[port_first[:-1]]], np.arange(n + 1))
    adds = np.zeros(n * chunks, np.int32)
    copies = np.ones(n * chunks, np.int32)
    first = owner * chunks + np.arange(chunks)
    # The owner has its own chunk from the start, or as soon as all parts are added up.
    copies[first] = 0
    if schedule.scatter:
        part = schedule.scatter
        np.add.at(adds, edges.target[part.edge] * chunks + part.chunk, 1)
        copies[first] = adds[first]
    return (
        (
            _phase(schedule.scatter, port_of, ports, True, adds),
            _phase(schedule.gather, port_of, ports, False, copies),
        ),
        owner,
        node_first,
    )


def _phase(part: Spread | None, port_of: Ints, ports: int, backwards: bool, need: NDArray[Any]) -> Phase:
    none = np.zeros(0, np.int32)
    edge, chunk = (part.edge, part.chunk) if part else (none, none)
    # NumPy sorts 16 bits by radix.
    port = port_of.astype(np.uint16 if ports <= 1 << 16 else np.int64)[edge]
    # A scatter runs the tree of a gather backwards in time, so its messages are in reverse.
    order = np.argsort(port[::-1] if backwards else port, kind="stable").astype(np.int32)
    if backwards:
        order = np.int32(len(edge) - 1) - order
    first = np.concatenate([[0], np.cumsum(np.bincount(port, minlength=ports))])
    return first, first[:-1].copy(), order, edge, chunk, need
