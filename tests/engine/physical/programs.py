"""Random machines, and programs on them, for the tests of profile `physical`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from armillary.collective.algorithms import algorithms_for
from armillary.platform.kernels import Compute, Jitter, Kernels, Override
from armillary.platform.memory import LocalMemory, MemoryStage, RemoteMemory
from armillary.platform.model import Collectives, Npu, Platform
from armillary.platform.network import Dimension, InNetwork, Port
from armillary.trace import CollectiveType, Graph, GraphBuilder, NodeType, Trace, encode

TYPES = {
    CollectiveType.ALL_REDUCE: "all-reduce",
    CollectiveType.ALL_GATHER: "all-gather",
    CollectiveType.REDUCE_SCATTER: "reduce-scatter",
    CollectiveType.REDUCE_SCATTER_BLOCK: "reduce-scatter-block",
    CollectiveType.ALL_TO_ALL: "all-to-all",
    CollectiveType.BROADCAST: "broadcast",
    CollectiveType.REDUCE: "reduce",
    CollectiveType.GATHER: "gather",
    CollectiveType.SCATTER: "scatter",
    CollectiveType.BARRIER: "barrier",
}
ARRAY = {"rows": 4, "columns": 8, "dataflow": "weight", "clock": 1e8, "arrays": 1, "stall": True}
OVERRIDES = (
    Override("k", "gemm", factor=1.7),
    Override("k", "flops", efficiency=0.3),
    Override(kind="unknown", factor=0.5),
    Override(kind="memory", duration=123.4),
)
ORDERS = ["baseline", "round-robin", "themis", "themis-flex", "online-greedy", "auto"]
IN_NETWORK = [None, InNetwork(), InNetwork(rate=7.3, latency=0.6, operations=1), InNetwork(3.0, 200.0, 2)]
SIZES = [0, 1, 7, 1000, 4096, 65536, 100_001]
Step = tuple[str, tuple[int, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A machine, and steps that every rank runs, each in its own way; `ids` puts the steps in another order."""

    platform: Platform
    steps: tuple[Step, ...]
    ids: tuple[int, ...]

    def trace(self) -> Trace:
        """The workload; ranks that do the same share a graph."""
        graphs: dict[bytes, Graph] = {}
        made = [_graph(self, rank) for rank in range(self.platform.npus)]
        return Trace.from_ranks([graphs.setdefault(encode(graph), graph) for graph in made])


def _graph(case: Case, rank: int) -> Graph:
    b = GraphBuilder(rank=rank)
    made: list[list[int]] = []
    ids: dict[int, int] = {}
    for number, (kind, deps, o) in enumerate(case.steps):
        before = len(b.nodes)
        after = [node for dep in deps for node in made[dep]]
        nodes = _nodes(b, kind, o, rank, case.platform.npus, after)
        for extra in ("stream", "tid", "comm_priority", "comm_root"):
            if o.get(extra) is not None:
                for node in b.nodes[len(b.nodes) - len(nodes) :] if nodes else []:
                    node.attrs.append((extra, "int32", o[extra]))
        made.append(nodes or after)
        ids |= {node.id: 10 * case.ids[number] + at for at, node in enumerate(b.nodes[before:])}
    for node in b.nodes:
        node.id, node.data_deps = ids[node.id], tuple(ids[each] for each in node.data_deps)
    return b.graph(f"rank {rank}")


def _nodes(b: GraphBuilder, kind: str, o: dict[str, Any], rank: int, n: int, after: list[int]) -> list[int]:
    if kind in ("compute", "cpu"):
        micros = o["micros"][rank % len(o["micros"])]
        work = o.get("work", {})
        node = b.compute("k", duration_micros=micros, cpu=kind == "cpu", after=after, **work)
        if o.get("gemm"):
            b.nodes[-1].attrs.append(("gemm", "int64_list", o["gemm"]))
        if o.get("precision"):
            b.nodes[-1].attrs.append(("precision", "string", o["precision"]))
        return [node]
    if kind == "skip":
        return [b.add("i", NodeType.INVALID_NODE, [("is_cpu_op", "bool", False)], after=after)]
    if kind == "memory":
        access, where = b.memory_store if o["store"] else b.memory_load, {"local": o["local"]}
        if o["local"] or o["way"] is None:
            return [access("m", o["size"], after=after, **where)] if rank % o["modulus"] == 0 else []
        group = o["way"][rank]
        return (
            [access("m", o["size"], after=after, in_switch=True, group=group, **where)] if group != 0 else []
        )
    if kind == "collective":
        group = None if o["way"] is None else o["way"][rank]
        if group == 0:
            return []
        node = b.collective("c", o["type"], o["size"], dims=o["dims"], group=group, after=after)
        if o["splits"] and o["type"] == CollectiveType.ALL_TO_ALL:
            members = n if o["way"] is None else o["way"].count(group)
            splits = [o["splits"][(rank * o["modulus"] + i) % len(o["splits"])] for i in range(members)]
            b.nodes[-1].attrs.append(("comm_splits", "int64_list", splits))
        return [node]
    nodes = []
    if kind == "lost" and rank % o["modulus"] == 0 and rank != n - 1:
        return [b.send(n - 1, o["size"], 99, after=after)]
    if kind == "permute":
        to = o["to"][rank]
        source = o["to"].index(rank)
        if to != rank:
            nodes = [
                b.recv(source, o["size"], o["tag"], after=after),
                b.send(to, o["size"], o["tag"], after=after),
            ]
    elif kind == "pipeline":
        stride = o["stride"]
        if rank >= stride:
            nodes = [b.recv(rank - stride, o["size"], o["tag"], after=after)]
        if rank + stride < n:
            nodes = [*nodes, b.send(rank + stride, o["size"], o["tag"], after=[*after, *nodes])]
    return nodes


@st.composite
def platforms(draw: Any, most: int = 24, staged: bool = True) -> tuple[Platform, list[list[int] | None]]:
    """A machine, and ways to put its ranks in groups (the group of each rank; 0: none)."""
    sizes = [draw(st.sampled_from([2, 2, 3, 4, 5, 6])) for _ in range(draw(st.integers(1, 3)))]
    while np.prod(sizes) > most:
        sizes.pop()
    n, same = int(np.prod(sizes)), draw(st.booleans())
    rates = [10.0] if same else [10.0, 10.0, 5.0, 1.0, 33.3, 0.7]
    dimensions = []
    for d, size in enumerate(sizes):
        topology = draw(st.sampled_from(["Ring", "FullyConnected", "Switch", "Mesh", "Torus"]))
        out = draw(st.sampled_from(rates))
        into = draw(st.sampled_from([out, out, *rates]))
        latency = draw(st.sampled_from([0.0, 100.0] if same else [0.0, 1.0, 0.6, 100.0, 700.0]))
        able = draw(st.sampled_from(IN_NETWORK)) if topology == "Switch" else None
        dimensions.append(Dimension(f"d{d}", topology, size, out, latency, Port(out, into), able))
    algorithms = {}
    for operation in dict.fromkeys(TYPES.values()):
        names = ["ring", "direct", "halvingDoubling"]
        if operation != "all-reduce" or len(sizes) == 1:
            names = [name for name in algorithms_for(operation) if name != "in-switch"]
        names += ["natural", "auto"]
        if draw(st.booleans()):
            able = "in-switch" in algorithms_for(operation)
            algorithms[operation] = tuple(
                draw(st.sampled_from([*names, *["in-switch"] * 4 * (able and d.in_network is not None)]))
                for d in dimensions
            )
    ranks = st.integers(0, n - 1)
    late = draw(st.booleans())
    scheduling = draw(st.sampled_from(["fair", "fifo", "lifo", "priority"]))
    collectives = Collectives(
        algorithms,
        chunks=draw(st.sampled_from([1, 1, 2, 3, 8])),
        chunk_order=draw(st.sampled_from(["baseline", *ORDERS])),
        within_dimension=draw(st.sampled_from(["earliest-phase", "fifo", "smallest-first"])),
    )
    speed = draw(st.dictionaries(ranks, st.sampled_from([0.5, 0.8, 1.0, 1.3]), max_size=3)) if late else {}
    delay = draw(st.dictionaries(ranks, st.sampled_from([1.0, 2.5, 700.0]), max_size=3)) if late else {}
    slow = st.tuples(*[st.sampled_from([1.0, 0.5, 0.3]) for _ in dimensions])
    ports = draw(st.dictionaries(ranks, slow, max_size=3)) if late else {}
    jitter = draw(st.sampled_from([None, None, None, Jitter(0.2, 3)]))
    endpoint_delay = draw(st.sampled_from([None, 0.0, 2.5]))
    memory = draw(
        st.sampled_from(
            [
                RemoteMemory("per-npu", 100, 5),
                RemoteMemory("pool", 100, 0),
                RemoteMemory("per-node", 3, 50, 2),
                *(draw(stages()) for _ in range(2 * staged)),
            ]
        )
    )
    own = LocalMemory()
    if draw(st.booleans()):
        own = LocalMemory(latency=draw(st.sampled_from([0.0, 2.5])), read=20.0, write=7.0)
    groups, ways = _groups(draw, n)
    own, peak = replace(own, bandwidth=draw(st.sampled_from([0.0, 20.0]))), 3e9
    compute = Compute(overrides=OVERRIDES[2:])
    if own.bandwidth:
        peak = draw(st.sampled_from([3e9, {"bf16": 3e9, "fp8": 7e9}]))
        compute = Compute(
            draw(st.sampled_from(["", "roofline"])),
            overrides=draw(st.sampled_from([(), (), OVERRIDES])),
            kernels=Kernels(*draw(st.sampled_from([(1.0, 1.0, 0.0), (0.45, 0.8, 2.5), (0.3, 1.0, 0.0)]))),
        )
    if compute.model and draw(st.booleans()):
        name, options = draw(st.sampled_from([("systolic", ARRAY), ("gpu", {"device": "h100-sxm"})]))
        compute = replace(compute, model=name, options=options)
    npu = Npu(peak, own, endpoint_delay, speed)
    platform = Platform(
        tuple(dimensions),
        npu,
        compute,
        collectives,
        memory,
        groups,
        scheduling,
        delay,
        jitter,
        port_speed=ports,
    )
    return platform, [None, None, *ways]


@st.composite
def stages(draw: Any) -> RemoteMemory:
    """A hierarchical memory."""
    found = tuple(
        MemoryStage(
            f"s{i}", draw(st.sampled_from(["npu", "node", "machine"])), draw(st.integers(1, 3)),
            *(draw(st.sampled_from(values)) for values in ([1.0, 3.7, 50.0], [2.0, 50.0], [0.0, 2.5])),
        )
        for i in range(draw(st.integers(1, 3)))
    )  # fmt: skip
    nodes = draw(st.integers(1, 4)) if any(stage.per == "node" for stage in found) else 0
    return RemoteMemory(
        "hierarchical", npus_per_node=nodes, stages=found, chunk=draw(st.sampled_from([100, 5000]))
    )


def _groups(draw: Any, n: int) -> tuple[dict[int, tuple[int, ...]], list[list[int] | None]]:
    groups: dict[int, tuple[int, ...]] = {}
    ways: list[list[int] | None] = []
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.sampled_from(["blocks", "strided", "any"]))
        parts = draw(st.sampled_from([p for p in range(1, n + 1) if n % p == 0]))
        part_of = [rank % parts if how == "strided" else rank // (n // parts) for rank in range(n)]
        if how == "any":
            part_of = draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))
        numbers = {part: len(groups) + 1 + i for i, part in enumerate(sorted(set(part_of) - {-1}))}
        for part, number in numbers.items():
            members = [rank for rank in range(n) if part_of[rank] == part]
            groups[number] = tuple(draw(st.permutations(members)) if how == "any" else members)
        ways.append([numbers.get(part, 0) for part in part_of])
    return groups, ways


@st.composite
def cases(draw: Any, orderly: bool = True, most: int = 9, staged: bool = True) -> Case:
    """Up to `most` steps; `orderly`: collectives that could meet at a slot or in a group wait for each other."""
    platform, ways = draw(platforms(staged=staged))
    n, steps = platform.npus, []
    last: dict[tuple[str, int], int] = {}
    for number in range(draw(st.integers(1, most))):
        kind = draw(
            st.sampled_from(
                ["collective"] * 4
                + ["compute", "compute", "permute", "pipeline", "cpu", "memory", "memory", "lost", "skip"]
            )
        )
        deps = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        o: dict[str, Any] = {"size": draw(st.sampled_from(SIZES))}
        if kind == "collective":
            way = draw(st.integers(0, len(ways) - 1))
            o |= {
                "way": ways[way], "type": draw(st.sampled_from(list(TYPES))),
                "dims": draw(st.sampled_from([None, None, [True], [True, False, True], [False] * 3])),
                "stream": draw(st.sampled_from([None, None, 1, 2])),
                "comm_priority": draw(st.sampled_from([None, 3, -1])),
                "splits": draw(st.sampled_from([None, None, [0], [500], [1, 0, 3000], SIZES])),
                "comm_root": draw(st.sampled_from([None, 0, 1])),
            }  # fmt: skip
            if orderly:
                meets = {("way", 0 if ways[way] is None else way)} | {("stream", o["stream"])} - {
                    ("stream", None)
                }
                deps |= {last[what] for what in meets if what in last}
                last |= dict.fromkeys(meets, number)
        elif kind in ("compute", "cpu"):
            o["micros"] = draw(st.lists(st.sampled_from([0, 1, 2, 5, 30]), min_size=1, max_size=3))
            flops, size = draw(st.sampled_from([0, 1, 12_345])), draw(st.sampled_from([None, 0, 40_001]))
            o["work"] = draw(st.sampled_from([{}, {"flops": flops}, {"flops": flops, "bytes": size}]))
            o["precision"] = draw(st.sampled_from([None, "bf16", "fp8"]))
            o["gemm"] = draw(st.sampled_from([None, None, [1, 1, 9, 5, 3], [2, 3, 1, 1, 4, 1, 1, 2, 2, 2]]))
            o["stream" if kind == "compute" else "tid"] = draw(st.sampled_from([None, 1, 2]))
        elif kind == "memory":
            o["local"] = draw(st.sampled_from([None, False] + [True] * (platform.npu.memory.read > 0)))
            o["store"], o["way"] = draw(st.booleans()), None
            o["comm_priority"] = draw(st.sampled_from([None, None, 2]))
            way = draw(st.integers(0, len(ways) - 1))
            if platform.remote_memory.kind == "hierarchical" and not o["local"] and draw(st.booleans()):
                o["way"] = ways[way] or [None] * n
                meets = {("way", 0 if ways[way] is None else way), ("memory", int(o["store"]))}
                if orderly:
                    deps |= {last[what] for what in meets if what in last}
                    last |= dict.fromkeys(meets, number)
        elif kind == "permute":
            o["to"] = draw(st.permutations(range(n)))
        o |= {"modulus": draw(st.integers(1, 3)), "stride": draw(st.integers(1, 2))}
        if kind in ("permute", "pipeline", "lost"):
            o["size"] = max(o["size"], 1)
            o["tag"] = draw(st.sampled_from([0, number]))
            o["comm_priority"] = draw(st.sampled_from([None, 2]))
        steps.append((kind, tuple(sorted(deps)), o))
    ids = draw(st.sampled_from([tuple(range(len(steps))), tuple(draw(st.permutations(range(len(steps)))))]))
    return Case(platform, tuple(steps), ids)
