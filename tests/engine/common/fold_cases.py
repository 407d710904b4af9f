"""Machines in ASTRA-sim's terms, and steps that their ranks run, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from armillary.platform.files.astra_sim import read_platform
from armillary.platform.files.astra_sim_keys import INTER_DIMENSION, INTRA_DIMENSION
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, GraphBuilder, NodeType, Trace

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
TYPES = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
)


@dataclass(frozen=True)
class Case:
    """A machine in ASTRA-sim's terms, and steps that every rank runs, each in its own way."""

    network: dict[str, Any]
    system: dict[str, Any]
    memory: dict[str, Any] | None
    groups: dict[str, list[int]] | None
    cli: tuple[str, ...]
    steps: tuple[tuple[Any, ...], ...]

    @property
    def npus(self) -> int:
        """Number of ranks."""
        return int(np.prod(self.network["npus_count"]))

    def platform(self) -> Platform:
        """The machine."""
        return read_platform(self.system, self.network, self.memory, self.groups, self.cli)

    def trace(self) -> Trace:
        """The workload; ranks that do the same share a graph."""
        graphs: dict[tuple[Any, ...], Any] = {}
        return Trace.from_ranks([graphs.setdefault(_key(g), g) for g in map(self._graph, range(self.npus))])

    def _graph(self, rank: int) -> Any:
        b = GraphBuilder(rank=rank)
        n = self.npus
        made: list[list[int]] = []
        for number, (kind, deps, *rest) in enumerate(self.steps):
            b._next = 10 * number
            after = [node for dep in deps if dep < number for node in made[dep]]
            nodes: list[int] = []
            if kind in ("compute", "cpu"):
                micros = rest[0][rest[1][rank % len(rest[1])]]
                nodes = [b.compute("k", duration_micros=micros, cpu=kind == "cpu", after=after)]
            elif kind == "skip":
                nodes = [b.add("i", NodeType.INVALID_NODE, [("is_cpu_op", "bool", False)], after=after)]
            elif kind == "memory":
                nodes = [b.memory_load("m", rest[0], ctrl_after=after)]
            elif kind == "broadcast":
                nodes = [b.collective("b", CollectiveType.BROADCAST, 9, duration_micros=rest[0], after=after)]
            elif kind == "collective":
                operation, size, dims, modulus, group = rest
                if modulus is None or rank % modulus == 0:
                    own = None if group is None else group[rank]
                    nodes = [b.collective("c", TYPES[operation], size, dims=dims, group=own, after=after)]
            elif kind == "shift":
                by, size, tag = rest
                to, source = (rank + by) % n, (rank - by) % n
                if to != rank:
                    nodes = [b.recv(source, size, tag, after=after), b.send(to, size, tag, after=after)]
            elif kind == "pipeline":
                size, tag, stride = rest
                if rank >= stride:
                    nodes = [b.recv(rank - stride, size, tag, after=after)]
                if rank + stride < n:
                    nodes = [*nodes, b.send(rank + stride, size, tag, after=[*after, *nodes])]
            elif kind == "pair":
                size, tag = rest
                if rank ^ 1 < n and rank % 2 == 0:
                    nodes = [b.send(rank + 1, size, tag, after=after)]
                elif rank % 2 == 1:
                    nodes = [b.recv(rank - 1, size, tag, after=after)]
            made.append(nodes or after)
        return b.graph("a rank")


def _key(graph: Any) -> tuple[Any, ...]:
    from armillary.trace import encode

    return (encode(graph),)


def _groups(n: int, draw: Any) -> tuple[dict[str, list[int]], list[list[str]]]:
    """Return communicator groups that partition the ranks in two ways, and the group of each rank in each."""
    groups: dict[str, list[int]] = {}
    ways = []
    for _ in range(draw(st.integers(1, 2))):
        parts = draw(st.sampled_from([p for p in range(1, n + 1) if n % p == 0]))
        strided = draw(st.booleans())
        flip = draw(st.booleans())
        of_rank = [""] * n
        for part in range(parts):
            members = [r for r in range(n) if (r % parts if strided else r // (n // parts)) == part]
            number = str(len(groups) + 1)
            groups[number] = members[::-1] if flip else members
            for r in members:
                of_rank[r] = number
        ways.append(of_rank)
    return groups, ways


@st.composite
def cases(draw: Any, zero: bool = False) -> Case:
    """Machines of 2 to 36 NPUs and up to 8 steps; `zero`: with messages and endpoints that take no time."""
    count = draw(st.integers(1, 3))
    powers = draw(st.booleans())
    sizes = [draw(st.sampled_from([2, 4] if powers else [2, 3, 4, 5])) for _ in range(count)]
    while np.prod(sizes) > 36:
        sizes.pop()
    d = len(sizes)
    n = int(np.prod(sizes))
    names = ["ring", "direct", "direct1", "direct2"]
    if powers:
        names += ["halvingDoubling", "doubleBinaryTree"]
    fast = [1000.0, 5000.0] if zero else [50.0, 50.0, 12.5, 1.0, 333.0]
    network = {
        "topology": [draw(st.sampled_from(["Ring", "FullyConnected", "Switch"])) for _ in range(d)],
        "npus_count": sizes,
        "bandwidth": [draw(st.sampled_from(fast)) for _ in range(d)],
        "latency": [
            draw(st.sampled_from([0.0, 0.0, 0.5] if zero else [500.0, 500.0, 1.0, 0.6])) for _ in range(d)
        ],
    }
    one = draw(st.integers(0, 5)) == 0
    ones = ["oneRing", "oneDirect", "oneDirect1"] + (["oneHalvingDoubling"] if powers else [])
    system: dict[str, Any] = {
        "scheduling-policy": "FIFO",
        "collective-optimization": draw(st.sampled_from(["baseline", "localBWAware"])),
        "endpoint-delay": draw(st.sampled_from([0] if zero else [10, 1, 0, 100])),
        "inter-dimension-scheduling": draw(st.sampled_from(["ascending", "ascending", *INTER_DIMENSION])),
        "intra-dimension-scheduling": draw(st.sampled_from(["FIFO", "FIFO", *INTRA_DIMENSION])),
        "active-chunks-per-dimension": draw(st.integers(1, 4)),
        "preferred-dataset-splits": draw(st.integers(1, 6)),
        "local-mem-bw": draw(st.sampled_from([0, 50, 1600])),
    }
    for kind in KINDS:
        allowed = [a for a in names if not (kind == "all-to-all" and a == "halvingDoubling")]
        each = [draw(st.sampled_from(allowed)) for _ in range(d)]
        if one:
            each = [draw(st.sampled_from([o for o in ones if kind != "all-to-all" or "Halving" not in o]))]
        system[f"{kind}-implementation"] = each
    memory = draw(
        st.sampled_from(
            [
                {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 50},
                {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100, "remote-mem-bw": 50},
                {
                    "memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 3, "remote-mem-bw": 0,
                    "num-nodes": n, "num-npus-per-node": 2,
                },
            ]
        )
    )  # fmt: skip
    groups, ways = _groups(n, draw)
    cli = (
        f"--num-queues-per-dim={draw(st.sampled_from([1, 1, 2, 3, 4]))}",
        f"--rendezvous-protocol={draw(st.sampled_from(['false', 'true']))}",
    )
    steps = tuple(draw(_step(number, n, d, ways, zero)) for number in range(draw(st.integers(1, 8))))
    return Case(network, system, memory, groups, cli, steps)


@st.composite
def _step(draw: Any, number: int, n: int, d: int, ways: list[list[str]], zero: bool) -> tuple[Any, ...]:
    kind = draw(
        st.sampled_from(
            ["collective", "collective", "group", "group", "compute", "compute", "shift", "pipeline", "pair",
             "cpu", "memory", "broadcast", "skip"]
        )
    )  # fmt: skip
    how = draw(st.sampled_from(["last", "last", "any", "none"]))
    deps: tuple[int, ...] = (number - 1,) if number and how == "last" else ()
    if number and how == "any":
        deps = tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=3))))
    small = [1, 64, 1000]
    size = draw(st.sampled_from(small if zero else [*small, 65536, 1 << 20, 3_000_001]))
    tag = draw(st.sampled_from([0, 0, number]))
    if kind == "collective":
        dims = draw(st.none() | st.lists(st.booleans(), min_size=d, max_size=d))
        return ("collective", deps, draw(st.integers(0, 3)), size, dims, None, None)
    if kind == "group":
        return ("collective", deps, draw(st.integers(0, 3)), size, None, None, draw(st.sampled_from(ways)))
    if kind in ("compute", "cpu"):
        micros = draw(st.lists(st.sampled_from([0, 1, 2, 20, 300]), min_size=1, max_size=3))
        of_rank = draw(st.lists(st.integers(0, len(micros) - 1), min_size=1, max_size=n))
        return (kind, deps, micros, of_rank)
    if kind == "shift":
        return (kind, deps, draw(st.integers(1, max(n - 1, 1))), size, tag)
    if kind == "pipeline":
        return (kind, deps, size, tag, draw(st.sampled_from([1, 1, 2])))
    if kind == "pair":
        return (kind, deps, size, tag)
    if kind in ("memory", "broadcast"):
        return (kind, deps, draw(st.sampled_from([0, 1, 1000])))
    return (kind, deps)


@st.composite
def tied_cases(draw: Any) -> Case:
    """Dimensions that are alike, full queues, and chunks that come to one dimension from several others."""
    case = draw(cases())
    count = draw(st.integers(2, 3))
    sizes = (
        [4] * count
        if draw(st.booleans()) and count == 2
        else [draw(st.sampled_from([2, 4])) for _ in range(count)]
    )
    while np.prod(sizes) > 32:
        sizes.pop()
    one = draw(st.sampled_from(["doubleBinaryTree", "doubleBinaryTree", "ring", "direct", "halvingDoubling"]))
    network = {
        "topology": [draw(st.sampled_from(["Ring", "Switch"]))] * len(sizes),
        "npus_count": sizes, "bandwidth": [50.0] * len(sizes), "latency": [500.0] * len(sizes),
    }  # fmt: skip
    system = case.system | {
        "collective-optimization": "localBWAware", "endpoint-delay": 10,
        "inter-dimension-scheduling": draw(st.sampled_from(["ascending", *INTER_DIMENSION])),
        "intra-dimension-scheduling": draw(st.sampled_from([*INTRA_DIMENSION])),
        "active-chunks-per-dimension": draw(st.integers(1, 4)), "preferred-dataset-splits": draw(st.integers(4, 16)),
        **{f"{kind}-implementation": ["ring" if kind == "all-to-all" else one] * len(sizes) for kind in KINDS},
    }  # fmt: skip
    operation = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
    size = draw(st.sampled_from([65536, 1 << 20, 1 << 24]))
    return replace(
        case, network=network, system=system, memory=None, groups=None,
        steps=(("collective", (), operation, size, None, None, None),),
    )  # fmt: skip
