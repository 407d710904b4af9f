"""Random programs in which very much happens at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from armillary.platform.kernels import Compute
from armillary.platform.memory import LocalMemory, MemoryStage, RemoteMemory
from armillary.platform.model import AstraSimSystem, Collectives, Npu, Packets, Platform, SharedBus
from armillary.platform.network import Dimension, InNetwork
from armillary.trace import CollectiveType, GraphBuilder, NodeType, Trace

COLLECTIVES = {
    CollectiveType.ALL_REDUCE: "all-reduce",
    CollectiveType.ALL_GATHER: "all-gather",
    CollectiveType.REDUCE_SCATTER: "reduce-scatter",
    CollectiveType.ALL_TO_ALL: "all-to-all",
}
MEMORIES = (
    RemoteMemory("per-npu", 100, 5),
    RemoteMemory("pool", 100, 0),
    RemoteMemory(
        "hierarchical", npus_per_node=0, stages=(MemoryStage("s", "npu", 1, 3.7, 50.0, 2.5),), chunk=100
    ),
)
PACKETS = (
    Packets(),
    Packets("lossless", {"mtu": 1000, "kmin": 2000, "kmax": 9000, "dcqcn": True}),
    Packets("credit", {"packet": 512, "flit": 64}),
    Packets("credit", {"packet": 512, "flit": 64, "vcs": 1, "switching": "store-and-forward"}),
    Packets("tcp", {"buffer": 5000}),
    Packets("tcp", {"algorithm": "newreno", "sack": False, "buffer": 3000, "persistent": False}),
    Packets("tcp", {"algorithm": "dctcp", "mark": 2000, "handshake": True}),
)


@dataclass(frozen=True)
class Crowd:
    """So many nodes of a kind on every rank; they wait for one node of so many us, unless that is 0, or in a chain.

    `spread` is over how many streams, groups or tags they are spread.
    """

    kind: str
    count: int
    wait: int
    chain: int
    size: int
    spread: int


def trace_of(crowds: list[Crowd], npus: int) -> Trace:
    """Return the workload; groups 1 and 2 are the two halves of the ranks."""
    graphs = []
    for rank in range(npus):
        b = GraphBuilder(rank=rank)
        last: list[int] = []
        for number, crowd in enumerate(crowds):
            after = [b.compute("long", duration_micros=crowd.wait, after=last)] if crowd.wait else last
            made: list[int] = []
            for i in range(crowd.count):
                before = made[-1:] if crowd.chain and i % crowd.chain else after
                made += _nodes(b, crowd, number, i, rank, npus, before)
            last = made[-3:] or after
        if not b.nodes:
            b.compute("nothing")
        graphs.append(b.graph(f"rank {rank}"))
    return Trace.from_ranks(graphs)


def _nodes(
    b: GraphBuilder, crowd: Crowd, number: int, i: int, rank: int, npus: int, after: list[int]
) -> list[int]:
    kind, size, which = crowd.kind, crowd.size, i % crowd.spread
    if kind == "skip":
        return [b.add("i", NodeType.INVALID_NODE, [("is_cpu_op", "bool", False)], after=after)]
    if kind == "compute":
        node = b.compute("k", duration_micros=i % 3, after=after)
        b.nodes[-1].attrs.append(("stream", "int32", which))
        return [node]
    if kind == "memory":
        return [b.memory_load("m", max(size, 1), after=after)]
    if kind == "collective":
        half = str(1 + (2 * rank >= npus)) if which % 3 == 2 and npus > 1 else None
        node = b.collective("c", list(COLLECTIVES)[which % 4], size, group=half, after=after)
        b.nodes[-1].attrs.append(("stream", "int32", which))
        return [node]
    to, source = (rank + 1 + which) % npus, (rank - 1 - which) % npus
    if to == rank:
        return []
    tag = 1000 * number + which
    return [b.send(to, max(size, 1), tag, after=after), b.recv(source, max(size, 1), tag, after=after)]


@st.composite
def crowds(draw: Any, most: int, kinds: tuple[str, ...]) -> list[Crowd]:
    """Up to three crowds, of up to `most` nodes on each rank."""
    counts = st.sampled_from([0, 1, most // 7, most // 2, most])
    return [
        Crowd(
            draw(st.sampled_from(kinds)),
            draw(counts),
            draw(st.sampled_from([0, 0, 1, 1000])),
            draw(st.sampled_from([0, 0, 2, 50])),
            draw(st.sampled_from([0, 1, 1000, 20_000])),
            draw(st.sampled_from([1, 2, 7, 300])),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]


@st.composite
def machines(draw: Any, astra_sim: bool = False) -> Platform:
    """A machine of 1 to 12 NPUs."""
    sizes = draw(st.sampled_from([(1,), (2,), (2,), (3,), (2, 2), (4, 3), (1, 2)]))
    npus = int(np.prod(sizes))
    halves = {1: tuple(range(-(-npus // 2))), 2: tuple(range(-(-npus // 2), npus))}
    groups = {name: members for name, members in halves.items() if members} if npus > 1 else {}
    topology = st.sampled_from(["Ring", "FullyConnected", "Switch"] + ["Mesh"] * (not astra_sim))
    latency = st.sampled_from([500.0, 500.0, 0.6] + [0.0] * (not astra_sim))
    dimensions = tuple(
        Dimension(f"d{i}", draw(topology), size, draw(st.sampled_from([50.0, 1.0])), draw(latency))
        for i, size in enumerate(sizes)
    )
    if astra_sim:
        names = st.sampled_from(["ring", "direct", "halvingDoubling"] if npus & (npus - 1) == 0 else ["ring"])
        algorithms = {operation: tuple(draw(names) for _ in sizes) for operation in COLLECTIVES.values()}
        chunks, active = draw(st.sampled_from([1, 4, 16])), draw(st.sampled_from([1, 2, 8]))
        system = AstraSimSystem(
            intra_dimension=draw(st.sampled_from(["FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst"])),
            queues_per_dim=draw(st.sampled_from([1, 1, 2])),
            rendezvous=draw(st.booleans()),
            shared_bus=draw(st.sampled_from([None, None, SharedBus(1, 2, 3, 0.5)])),
        )
        return Platform(
            dimensions,
            Npu(memory=LocalMemory(50.0), endpoint_delay=draw(st.sampled_from([0, 1, 10]))),
            collectives=Collectives(algorithms, chunks, active),
            remote_memory=draw(st.sampled_from(MEMORIES[:2])),
            groups=groups,
            astra_sim=system,
            dialect="astra-sim",
        )
    if draw(st.booleans()):
        dimensions = tuple(
            replace(d, in_network=draw(st.sampled_from([None, InNetwork(operations=1), InNetwork()])))
            if d.topology == "Switch" else d
            for d in dimensions
        )  # fmt: skip
    collectives = Collectives(
        chunks=draw(st.sampled_from([1, 2, 8])),
        active_chunks=draw(st.sampled_from([0, 0, 1])),
        chunk_order=draw(st.sampled_from(["baseline", "themis", "online-greedy"])),
        within_dimension=draw(st.sampled_from(["earliest-phase", "fifo", "smallest-first"])),
    )
    return Platform(
        dimensions,
        Npu(endpoint_delay=draw(st.sampled_from([None, 2.5]))),
        Compute(replay=draw(st.sampled_from([False, False, True]))),
        collectives,
        draw(st.sampled_from(MEMORIES)),
        groups,
        draw(st.sampled_from(["fair", "fair", "fifo", "lifo", "priority"])),
        packets=draw(st.sampled_from(PACKETS)),
    )
