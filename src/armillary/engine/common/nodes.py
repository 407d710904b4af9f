"""Lower one rank graph to node rows: the kind, slot and duration of each node, and the nodes that wait for it.

Compute nodes that name work and have no time are what a trace that nobody ran, or that was recorded in part, has. In
profile ``physical`` they take the time of the roofline model, whether or not the machine asks for it, and the result
says so (`Timeline.info`, key ``assumptions``). Where the machine states no peak, operations are refused; where it
states no memory bandwidth, bytes cost no time, which the result says. What a CPU does has no model: such nodes take no
time, which the result says as well. A time of 0 is none, but on a CPU, where a recording may say that an operator
waited all the time, it is one if ``duration_ns`` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.engine.common import layout as lk
from armillary.platform.model import Platform
from armillary.trace import CollectiveType, Graph, NodeType
from armillary.trace.columns import COMMUNICATION
from armillary.trace.graph import LIMIT
from armillary.trace.node import REPLAY_ONLY
from armillary.trace.structure import validate

if TYPE_CHECKING:
    from armillary.compute import KernelTimes

Ints = NDArray[np.int64]

OPERATION = {kind: kind.name.lower().replace("_", "-") for kind in CollectiveType}
"""Name of every Chakra collective."""
ASTRA_SIM_OPERATIONS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
"""Those that profile ``astra-sim`` models with messages."""


MEMORY = (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
STORES = (NodeType.STORAGE_NODE, NodeType.CHECKPOINT_NODE)
NOTHING = (NodeType.INVALID_NODE, NodeType.METADATA_NODE, NodeType.BATCH_NODE)
"""Types that only name something."""


@dataclass
class Nodes:
    """The nodes of a graph in issue order (ascending id); `order` gives their positions in the graph."""

    graph: Graph
    order: Ints
    kind: Ints
    slot: Ints
    ticks: Ints
    indegree: Ints
    child_ptr: Ints
    children: Ints
    item: Ints
    """Index among the nodes that need a row per rank (communication, memory), or -1."""
    items: Ints
    """Those nodes, as indices in issue order."""
    warnings: list[str] = field(default_factory=list)
    free: int = 0
    """Nodes that name operations or bytes and take no time: compute nodes by the conventions of profile ``astra-sim``,
    communication and memory of a machine that takes recorded times only."""
    idle: int = 0
    """The same of a CPU, which no model times."""
    stored: int = 0
    """Storage and checkpoint nodes that the machine's storage times."""
    like: Nodes | None = None
    """Nodes whose graph differs from this one in durations only."""


def lower_nodes(graph: Graph, platform: Platform, times: KernelTimes | None) -> Nodes:
    """Return the node rows of `graph`; `times` has the durations of its kernels, None: recorded or roofline.

    Raises:
        InputError: a node that profile ``astra-sim`` cannot run, a cycle, or a value out of range.
    """
    validate(graph)
    ids = graph.ids
    n = graph.n_nodes
    # Most traces are written in this order, and a sort of millions of ids is slow.
    ascending = n < 2 or bool((ids[1:] > ids[:-1]).all())
    order = np.arange(n) if ascending else np.argsort(ids, kind="stable")
    types = graph.types[order]
    cpu = graph.ints("is_cpu_op", 0)[order] != 0
    collective = types == NodeType.COMM_COLL_NODE
    communication = collective | (types == NodeType.COMM_SEND_NODE) | (types == NodeType.COMM_RECV_NODE)
    memory = (types == NodeType.MEM_LOAD_NODE) | (types == NodeType.MEM_STORE_NODE)
    warnings = diagnose(graph)
    kind = np.full(n, lk.FIXED, np.int64)
    # ASTRA-sim runs one CPU node, one kernel and one communication of a rank at a time.
    slot = np.where(cpu, lk.CPU, np.where(types == NodeType.COMP_NODE, lk.COMPUTE, lk.COMM))
    ticks = durations(graph, order)
    if not platform.compute.replay:
        refuse(
            graph,
            order,
            communication & cpu,
            "is a communication node with is_cpu_op set",
            "GPU communication",
        )
        comm_type = graph.ints("comm_type", -1)[order]
        broadcast = collective & (comm_type == CollectiveType.BROADCAST)
        known = np.isin(comm_type, [int(k) for k, name in OPERATION.items() if name in ASTRA_SIM_OPERATIONS])
        bad = collective & ~known & ~broadcast
        absent = collective & ~graph.has("comm_type")[order]
        refuse(graph, order, absent, "has no comm_type", _collectives())
        refuse(
            graph, order, bad, "has a collective type that profile astra-sim does not model", _collectives()
        )
        kind[collective & known] = lk.COLLECTIVE
        kind[types == NodeType.COMM_SEND_NODE] = lk.SEND
        kind[types == NodeType.COMM_RECV_NODE] = lk.RECV
        kind[communication & replayed(graph, order)] = lk.FIXED
        kind[memory] = lk.MEMORY
        kind[np.isin(types, NOTHING)] = lk.SKIP
        if times:
            modelled(graph, order, times, ticks)
        elif platform.compute.model:
            warnings += _roofline(graph, order, platform, kind, ticks, (types == NodeType.COMP_NODE) & ~cpu)
    free = (types == NodeType.COMP_NODE) & names_work(graph)[order]
    free &= (kind == lk.SKIP) | ((kind == lk.FIXED) & (ticks <= 1) & ~has_time(graph)[order])
    # A receive occupies nothing, as in ASTRA-sim: else it could block the send that it waits for.
    slot[(types == NodeType.COMM_RECV_NODE) & ~cpu] = lk.NONE
    stores, stored = store(graph, order, platform, ticks, warnings)
    slot[stores] = lk.NONE
    known_types = np.isin(types, [int(t) for t in NodeType])
    refuse(graph, order, ~known_types, "has an unknown node type", "a type of the Chakra schema")
    ptr, parent = graph.parents()
    counts = np.diff(ptr)
    child_of = np.repeat(np.arange(n), counts)
    # `rank_of` maps a position in the graph to its place in issue order; no rank of the machine is meant.
    rank_of = np.empty(n, np.int64)
    rank_of[order] = np.arange(n)
    parent_rank, child_rank = rank_of[parent], rank_of[child_of]
    # CSR by parent, children in issue order.
    by_parent = np.lexsort((child_rank, parent_rank)) if len(parent) else np.zeros(0, np.int64)
    child_ptr = np.concatenate([[0], np.cumsum(np.bincount(parent_rank, minlength=n))])
    needs_row = (kind == lk.COLLECTIVE) | (kind == lk.SEND) | (kind == lk.RECV) | (kind == lk.MEMORY)
    item = np.where(needs_row, np.cumsum(needs_row) - 1, -1)
    return Nodes(
        graph, order, kind, slot.astype(np.int64), ticks, counts[order].astype(np.int64), child_ptr.astype(np.int64),
        child_rank[by_parent].astype(np.int64), item.astype(np.int64), np.flatnonzero(needs_row), warnings,
        int(free.sum()) + unrecorded(graph, platform), stored=stored,
    )  # fmt: skip


def store(
    graph: Graph, order: Ints, platform: Platform, ticks: Ints, warnings: list[str]
) -> tuple[NDArray[np.bool_], int]:
    """Set the ticks of storage and checkpoint nodes, rounded up; return which they are and how many the machine times.

    Without a storage of the machine they take their recorded times; a warning names those that have bytes and none.
    """
    stores = np.isin(graph.types, STORES)
    if not stores.any():
        return stores, 0
    # Few traces have such nodes.
    from armillary.trace.storage import storage_nodes

    at, sizes, _ = storage_nodes(graph)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    if platform.storage is None or platform.compute.replay:
        without = (sizes > 0) & ~has_time(graph)[at]
        ticks[place[at[without]]] = 0
        if without.any():
            node = graph.node(int(at[np.flatnonzero(without)[0]]))
            warnings.append(
                f"{node} moves bytes and has no recorded time ({int(without.sum())} such nodes): it takes none, "
                "expected platform.storage"
            )
        return stores[order], 0
    alone = np.zeros(len(sizes)) if platform.storage.at else sizes / platform.storage.rate(platform.npus)
    ns = platform.storage.latency + alone
    bad = np.zeros(len(order), bool)
    bad[place[at]] = ns >= LIMIT
    refuse(graph, order, bad, "takes longer than can be counted", f"less than {LIMIT:.2g} ns")
    ticks[place[at]] = np.ceil(ns).astype(np.int64)
    return stores[order], len(at)


def moved(graph: Graph) -> Ints:
    """Return the bytes that each node of a graph moves to or from a storage; of other nodes 0."""
    from armillary.trace.storage import storage_nodes

    found = np.zeros(graph.n_nodes, np.int64)
    at, sizes, _ = storage_nodes(graph)
    found[at] = sizes
    return found


def unrecorded(graph: Graph, platform: Platform) -> int:
    """Return how many communication and memory nodes have bytes but no time, where only recorded times count."""
    if not platform.compute.replay:
        return 0
    other = np.isin(graph.types, (*COMMUNICATION, *MEMORY)) & ~graph.has("duration_ns")
    sized = (graph.ints("comm_size", 0) > 0) | (graph.ints("tensor_size", 0) > 0)
    return int((other & sized & (graph.duration_micros == 0)).sum())


def _collectives() -> str:
    return "ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL or BROADCAST"


def refuse(graph: Graph, order: Ints, bad: NDArray[np.bool_], what: str, expected: str) -> None:
    """Raise an `InputError` that names the first bad node, if there is one."""
    if bad.any():
        position = int(order[np.flatnonzero(bad)[0]])
        attrs = {name: value for name, _, value in graph.attrs(position)}
        number = attrs.get("comm_type")
        detail = (
            ""
            if number is None
            else f" ({CollectiveType(number).name if number in set(CollectiveType) else number})"
        )
        raise InputError(f"{graph.node(position)} {what}{detail}; expected {expected}")


def durations(graph: Graph, order: Ints) -> Ints:
    """Replayed durations: ``duration_micros`` in ns, or 1 ns where it is 0."""
    micros = graph.duration_micros[order]
    if len(micros) and int(micros.max()) * 1000 >= LIMIT:
        position = int(order[int(np.argmax(micros))])
        value = int(graph.duration_micros[position])
        raise InputError(
            f"{graph.node(position)} has duration_micros {value}; expected less than {LIMIT // 1000}"
        )
    # Microseconds of the trace in ticks of 1 ns, at least one.
    return np.maximum(micros.astype(np.int64) * 1000, 1)


def modelled(graph: Graph, order: Ints, times: KernelTimes, ticks: Ints) -> bool:
    """Set the ticks of nodes that a compute model knows, rounded up; returns whether there are any.

    Raises:
        InputError: one takes longer than can be counted.
    """
    nodes, ns = times.of(graph)
    # A model answers by position in the graph; ticks are in issue order.
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    bad = np.zeros(len(order), bool)
    bad[place[nodes]] = ns >= LIMIT
    refuse(graph, order, bad, "takes longer than can be counted", f"less than {LIMIT:.2g} ns")
    ticks[place[nodes]] = np.ceil(ns).astype(np.int64)
    return bool(len(nodes))


def _roofline(
    graph: Graph, order: Ints, platform: Platform, kind: Ints, ticks: Ints, compute: NDArray[np.bool_]
) -> list[str]:
    """Time compute nodes by ``min(bandwidth * OI, peak)`` (spec: 1(b)); a node of no bytes is skipped.

    A node of no operations takes its bytes over the bandwidth; returns a warning, since ASTRA-sim divides 0 by 0.
    """
    for name in ("num_ops", "tensor_size"):
        refuse(
            graph,
            order,
            compute & ~graph.has(name)[order],
            f"has no {name}",
            f"{name}, which the roofline needs",
        )
    ops, size = graph.ints("num_ops", 0)[order], graph.ints("tensor_size", 0)[order]
    negative = compute & ((ops < 0) | (size < 0))
    refuse(graph, order, negative, "has a negative num_ops or tensor_size", "numbers of 0 or more")
    kind[compute & (size == 0)] = lk.SKIP
    timed = compute & (size > 0)
    bandwidth, peak = platform.npu.memory.bytes_per_s, platform.npu.peak_flops
    if timed.any() and (bandwidth <= 0 or peak <= 0):
        raise InputError(
            "the roofline needs local-mem-bw and peak-perf above 0: compute nodes cannot be timed"
        )
    intensity = ops[timed] / size[timed]
    performance = np.minimum(bandwidth * intensity, peak)
    # ASTRA-sim divides 0 by 0 for a node without operations; here it takes its bytes over the bandwidth.
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(ops[timed] > 0, ops[timed] / performance, size[timed] / bandwidth)
    runtime = seconds * 1e9
    if runtime.size and runtime.max() >= LIMIT:
        position = int(order[np.flatnonzero(timed)[int(np.argmax(runtime))]])
        raise InputError(
            f"{graph.node(position)} takes {runtime.max():.3g} ns; expected less than {LIMIT:.3g} ns"
        )
    # Truncated, not rounded up, because ASTRA-sim truncates.
    ticks[timed] = runtime.astype(np.int64)
    idle = np.flatnonzero(timed)[ops[timed] == 0]
    if not idle.size:
        return []
    return [
        f"{graph.node(int(order[idle[0]]))} has num_ops 0: it takes bytes / bandwidth here ({idle.size} such nodes); "
        "ASTRA-sim divides 0 by 0 and reports 2**63 ticks"
    ]


def replayed(graph: Graph, order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which nodes take their recorded time on every machine, as their bytes are not known."""
    found: NDArray[np.bool_] = graph.ints(REPLAY_ONLY)[order] != 0
    return found


def diagnose(graph: Graph) -> list[str]:
    """Return warnings about a graph that is odd but can be simulated."""
    warnings = []
    dangling = graph.dangling
    if dangling:
        position, missing = dangling[0]
        warnings.append(
            f"{graph.source}: {len(dangling)} dependencies on absent nodes were dropped "
            f"(node {int(graph.ids[position])} on {missing}, …)"
        )
    collective = graph.types == NodeType.COMM_COLL_NODE
    if collective.any():
        absent = (graph.types == NodeType.COMM_COLL_NODE) & ~graph.has("comm_size")
        if absent.any():
            warnings.append(
                f"{graph.source}: {int(absent.sum())} collectives have no comm_size; 0 bytes are assumed"
            )
    unknown = (graph.ints(REPLAY_ONLY) != 0) & np.isin(graph.types, COMMUNICATION)
    if unknown.any():
        warnings.append(
            f"the bytes of {int(unknown.sum())} communications of a rank are not known: they take their recorded time, "
            "whatever the network"
        )
    # A barrier has 0 bytes by nature; other collectives of 0 bytes are odd.
    free = collective & ~unknown & graph.has("comm_size") & (graph.ints("comm_size") == 0)
    free &= graph.ints("comm_type", -1) != CollectiveType.BARRIER
    if free.any():
        warnings.append(f"{int(free.sum())} collectives of a rank have 0 bytes: they move nothing")
    return warnings


Mask = NDArray[np.bool_]


def names_work(graph: Graph) -> Mask:
    """Return which nodes name operations or bytes, (nodes)."""
    found: Mask = (graph.ints("num_ops", 0) > 0) | (graph.ints("tensor_size", 0) > 0)
    return found


def has_time(graph: Graph) -> Mask:
    """Return which nodes have a recorded time of more than 0, (nodes)."""
    exact = graph.ints("duration_ns", 0) > 0
    # An exact duration of 0 beats a rounded one.
    found: Mask = np.where(graph.has("duration_ns"), exact, graph.duration_micros > 0)
    return found


def untimed(graph: Graph) -> Mask:
    """Return which compute nodes off the CPU name work and have no time, (nodes)."""
    off = graph.ints("is_cpu_op", 0) == 0
    found: Mask = _compute(graph) & off & names_work(graph) & ~has_time(graph)
    return found


def untimed_on_cpu(graph: Graph) -> Mask:
    """Return the same of a CPU, (nodes)."""
    on_cpu = _compute(graph) & (graph.ints("is_cpu_op", 0) != 0)
    # On a CPU a recorded 0 is a time: the operator only waited.
    found: Mask = on_cpu & names_work(graph) & ~has_time(graph) & ~graph.has("duration_ns")
    return found


def _compute(graph: Graph) -> Mask:
    return np.asarray(graph.types == NodeType.COMP_NODE)
