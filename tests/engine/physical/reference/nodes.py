"""Read the ranks of a trace as plain objects, for the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any

import numpy as np

from armillary.compute.model import Work
from armillary.compute.times import ask
from armillary.engine.common.items import FROM_MEMORY
from armillary.engine.common.network import CollectiveCall, Communicators
from armillary.engine.common.nodes import OPERATION
from armillary.engine.physical.terms.straggler import slowest
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, Graph, NodeType, Trace
from armillary.trace.attention import ATTENTION, to_attention
from armillary.trace.gemm import GEMM, to_gemms
from armillary.trace.node import REPLAY_ONLY

MEMORY = (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
COMMUNICATION = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)


@dataclass(eq=False)
class Node:
    """One node of one rank."""

    rank: int
    id: int
    kind: NodeType
    attrs: dict[str, Any]
    ticks: int
    waits: int
    slot: tuple[str, int] | None
    children: list[Node] = field(default_factory=list)
    call: CollectiveCall | None = None
    local: bool = False
    """Whether it accesses local memory."""
    start: int = -1
    end: int = -1


def read(rank: int, trace: Trace, platform: Platform, comms: Communicators) -> list[Node]:
    """Return the nodes of a rank by id, with what they occupy and how long they compute."""
    graph = trace.graph(rank)
    order = sorted(range(graph.n_nodes), key=lambda p: int(graph.ids[p]))
    ptr, parent = graph.parents()
    nodes: dict[int, Node] = {}
    stretch = np.full(len(order), 1.0 / platform.npu.speed.get(rank, 1.0))
    if platform.jitter:
        random = np.random.default_rng([platform.jitter.seed, rank])
        stretch *= np.maximum(1 + platform.jitter.sigma * random.standard_normal(len(order)), 0)
    terms = platform.terms
    stretch *= slowest(terms.straggler, platform.npus)
    for place, p in enumerate(order):
        kind = NodeType(int(graph.types[p]))
        attrs = {name: value for name, _, value in graph.attrs(p)}
        took = max(attrs.get("duration_ns", int(graph.duration_micros[p]) * 1000), 1)
        if kind == NodeType.COMP_NODE and not attrs.get("is_cpu_op"):
            if platform.compute.model not in ("", "roofline") or platform.compute.overrides:
                stated = attrs.get("duration_ns", int(graph.duration_micros[p]) * 1000)
                took = _asked(graph.name(p), attrs, platform, stated)
            elif not platform.compute.replay:
                stated = attrs.get("duration_ns", int(graph.duration_micros[p]) * 1000)
                took = _roofline(attrs, platform, stated)
        if kind == NodeType.COMP_NODE:
            took = ceil(took * stretch[place])
            if not attrs.get("is_cpu_op"):
                took = max(took, ceil(terms.launch))
        node = Node(rank, int(graph.ids[p]), kind, attrs, took, int(ptr[p + 1] - ptr[p]), None)
        recorded = platform.compute.replay or (kind in COMMUNICATION and bool(attrs.get(REPLAY_ONLY)))
        if kind == NodeType.COMM_COLL_NODE:
            dims, operation = attrs.get("involved_dim"), OPERATION[CollectiveType(attrs["comm_type"])]
            group = comms.resolve(graph, p, attrs.get("pg_name", ""))
            involved = None if dims is None else tuple(dims)
            node.call = CollectiveCall(
                group, operation, attrs["comm_size"], involved, "", attrs.get("comm_root", 0)
            )
        if kind in MEMORY and not platform.compute.replay:
            _access(node, graph, p, platform, comms)
        node.slot = _slot(node, platform)
        if recorded and kind in (*MEMORY, *COMMUNICATION):
            node.kind, node.call = NodeType.COMP_NODE, None
        nodes[p] = node
    for p, node in nodes.items():
        for q in parent[ptr[p] : ptr[p + 1]].tolist():
            nodes[q].children.append(node)
    return [nodes[p] for p in order]


def _access(node: Node, graph: Graph, position: int, platform: Platform, comms: Communicators) -> None:
    """Fill in what an access of a memory is: a local one, or one of a whole group at once."""
    size, store = node.attrs.get("tensor_size", 0), node.kind == NodeType.MEM_STORE_NODE
    if node.attrs.get("tensor_loc") == 1:
        node.local = True
        node.ticks = max(1, ceil(platform.npu.memory.latency + size / platform.npu.memory.rate(store)))
    elif node.attrs.get("in_switch"):
        group = comms.resolve(graph, position, node.attrs.get("pg_name", ""))
        node.call = CollectiveCall(group, FROM_MEMORY[node.kind], size, None)


def _asked(name: str, attrs: dict[str, Any], platform: Platform, recorded: int) -> int:
    """Return the time of one kernel by the compute model of a platform, which is asked for it alone."""
    operations, size = (np.array([attrs.get(each, -1)]) for each in ("num_ops", "tensor_size"))
    products = to_gemms(attrs.get(GEMM, ()))
    work = Work(
        (name,),
        operations,
        size,
        (attrs.get("precision", "bf16"),),
        (products,),
        np.array([recorded]),
        (to_attention(attrs.get(ATTENTION, ())),),
    )
    found = float(ask(platform, work, modelled=platform.compute.modelled).ns[0])
    return max(recorded, 1) if np.isnan(found) else ceil(found)


def _roofline(attrs: dict[str, Any], platform: Platform, recorded: int) -> int:
    """Return the time of a kernel that names its work where it is to be modelled or has no other; else that."""
    kernels, npu, model = platform.compute.kernels, platform.npu, platform.compute.model
    operations, size = attrs.get("num_ops", -1), attrs.get("tensor_size", -1)
    work = max(operations, size)
    if work < 0 or (recorded and not (work and model)) or not (work or model):
        return max(recorded, 1)
    computing = moving = 0.0
    if operations > 0:
        peak = npu.peaks[attrs.get("precision", "bf16")] if npu.peaks else npu.peak_flops
        computing = operations / (peak * kernels.compute)
    if size > 0:
        moving = (
            size / ((npu.memory.bytes_per_s or inf) * kernels.memory) + platform.npu.memory.latency * 1e-9
        )
    return ceil(max(computing, moving) * 1e9 + kernels.overhead)


def split(ranks: dict[int, list[Node]], comms: Communicators) -> None:
    """Give the members of an all-to-all with splits one call, with what each of them sends to whom."""
    met: dict[tuple[int, int], list[Node]] = {}
    for nodes in ranks.values():
        numbers: dict[int, int] = {}
        for node in nodes:
            if node.call:
                number = numbers[node.call.comm] = numbers.get(node.call.comm, 0) + 1
                met.setdefault((node.call.comm, number), []).append(node)
    for (comm, _), members in met.items():
        if "comm_splits" in members[0].attrs:
            rows = {node.rank: tuple(node.attrs["comm_splits"]) for node in members}
            matrix = tuple(rows[rank] for rank in comms.get(comm).members.tolist())
            for node in members:
                node.call = CollectiveCall(comm, "all-to-all", max(1, *map(sum, matrix)), None, splits=matrix)


def _slot(node: Node, platform: Platform) -> tuple[str, int] | None:
    """Return what a node occupies: its stream, its thread, its communicator, or the memory of its rank."""
    stream = max(node.attrs.get("stream", -1), -1)
    if node.kind == NodeType.COMP_NODE:
        cpu = node.attrs.get("is_cpu_op", False)
        return ("thread", max(node.attrs.get("tid", -1), -1)) if cpu else ("compute", stream)
    if node.kind in MEMORY:
        if node.local:
            return ("memory", 2)
        staged = platform.remote_memory.kind == "hierarchical" and not platform.compute.replay
        return ("memory", int(staged and node.kind == NodeType.MEM_STORE_NODE))
    if node.call:
        return ("stream", stream) if stream >= 0 else ("communicator", node.call.comm)
    return None
