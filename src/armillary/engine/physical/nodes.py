"""Lower one rank graph for profile `physical`: kinds, durations, and the stream or thread each node runs on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import one_of
from armillary.engine.common.items import View
from armillary.engine.common.nodes import (
    NOTHING,
    OPERATION,
    STORES,
    Nodes,
    diagnose,
    durations,
    has_time,
    modelled,
    moved,
    names_work,
    refuse,
    replayed,
    store,
    unrecorded,
    untimed,
    untimed_on_cpu,
)
from armillary.engine.physical import layout as lk
from armillary.engine.physical.memory import read_accesses
from armillary.platform.model import Platform
from armillary.trace import Graph, NodeType, Trace
from armillary.trace.columns import distinct_columns
from armillary.trace.graph import LIMIT
from armillary.trace.node import DELAY
from armillary.trace.structure import children, owners, validate

if TYPE_CHECKING:
    from armillary.compute import KernelTimes
    from armillary.trace.templates import PlacedGraph

Ints = NDArray[np.int64]
ANY, COMPUTE, CPU, COMM, MEMORY = range(5)
"""What a node occupies: nothing, its compute stream, its CPU thread, its communication stream, a memory."""


@dataclass
class PhysicalNodes(Nodes):
    """`Nodes` whose `slot` is one of the classes above, with what each node names."""

    stream: Ints | None = None
    """Its stream or thread, -1: none."""
    group: Ints | None = None
    """A number for its ``pg_name``, -1: none."""
    roofline: bool = False
    """Whether the roofline model timed one of them."""
    unmoved: int = 0
    """Of these, those whose bytes take no time for want of a memory bandwidth."""
    untimed: int = 0
    """Of these, those that it timed without being enabled, for want of a recorded time."""
    recorded: NDArray[np.bool_] | None = None
    """Which nodes take their recorded time, if the graph alone and no model decides that."""


def lower_nodes(graph: Graph, platform: Platform, times: KernelTimes | None) -> PhysicalNodes:
    """Return the node rows of `graph`; `times` has the durations of its kernels, None: recorded or roofline.

    Raises:
        InputError: a node that cannot be simulated, a cycle, or a value out of range.
    """
    validate(graph)
    n = graph.n_nodes
    # Issue order is ascending id; all columns below are in this order, positions in the graph only in
    # `order`.
    order = np.argsort(graph.ids, kind="stable")
    types = graph.types[order]
    cpu = graph.ints("is_cpu_op", 0)[order] != 0
    collective, send = types == NodeType.COMM_COLL_NODE, types == NodeType.COMM_SEND_NODE
    recv, compute = types == NodeType.COMM_RECV_NODE, types == NodeType.COMP_NODE
    memory = (types == NodeType.MEM_LOAD_NODE) | (types == NodeType.MEM_STORE_NODE)
    refuse(
        graph, order, ~np.isin(types, [int(t) for t in NodeType]), "has an unknown node type", "a Chakra type"
    )
    comm_type = graph.ints("comm_type", -1)[order]
    bad = collective & ~np.isin(comm_type, [int(kind) for kind in OPERATION])
    refuse(graph, order, bad, "has no known comm_type", "a collective of the Chakra schema")
    kind = np.full(n, lk.FIXED, np.int64)
    access = lk.TRANSFER if platform.remote_memory.kind == "hierarchical" else lk.MEMORY
    for which, value in ((collective, lk.COLLECTIVE), (send, lk.SEND), (recv, lk.RECV), (memory, access)):
        kind[which] = lk.FIXED if platform.compute.replay else value
    # Recorded communication without its partners takes its recorded time.
    kind[(collective | send | recv) & replayed(graph, order)] = lk.FIXED
    delay = graph.ints(DELAY, -1)[order]
    delayed = (types == NodeType.METADATA_NODE) & (delay > 0)
    refuse(graph, order, delayed & (delay >= LIMIT), f"has a {DELAY} out of range", f"less than {LIMIT}")
    kind[np.isin(types, NOTHING) & ~delayed] = lk.SKIP
    slot = np.full(n, ANY, np.int64)
    slot[collective], slot[memory], slot[compute], slot[cpu & compute] = COMM, MEMORY, COMPUTE, CPU
    ticks = np.where(delayed, delay, exact_durations(graph, order))
    stream = np.where(cpu & compute, graph.ints("tid", -1)[order], graph.ints("stream", -1)[order])
    # Accesses of remote memory share one slot unless `read_accesses` says otherwise.
    stream[memory] = 0
    if memory.any() and not platform.compute.replay:
        local, together, slots = read_accesses(graph, order, platform, memory, ticks)
        kind[local], kind[together], stream[memory] = lk.FIXED, lk.COLLECTIVE, slots[memory]
    timed, without = platform.compute.modelled, _untimed(graph, platform)
    named = np.zeros(n, np.bool_)
    if times:
        timed = (modelled(graph, order, times, ticks) and timed) or bool(without.any())
    elif timed or without.any():
        named = compute & ~cpu & (graph.has("num_ops") | graph.has("tensor_size"))[order]
        # What names no more than zeros takes its recorded time.
        named &= (names_work(graph) | ~has_time(graph))[order] if timed else without[order]
        timed = _roofline(graph, order, platform, ticks, named)
    warnings = diagnose(graph)
    stores, stored = store(graph, order, platform, ticks, warnings)
    if platform.storage and platform.storage.at and not platform.compute.replay:
        kind[stores & (moved(graph)[order] > 0)] = lk.STORE
    ptr, parent = graph.parents()
    counts = np.diff(ptr)
    # From positions in the graph to places in issue order.
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    child_ptr, child = children(place[parent], place[owners(ptr)], n)
    needs_row = np.isin(kind, (lk.COLLECTIVE, lk.SEND, lk.RECV, lk.MEMORY, lk.TRANSFER, lk.STORE))
    item = np.where(needs_row, np.cumsum(needs_row) - 1, -1)
    others = times is not None or bool(memory.any() or stores.any())
    return PhysicalNodes(
        graph, order, kind, slot, ticks, counts[order].astype(np.int64), child_ptr, child,
        item, np.flatnonzero(needs_row), warnings, free=unrecorded(graph, platform), stored=stored,
        idle=int(untimed_on_cpu(graph).sum()),
        stream=stream.astype(np.int64), group=graph.strings("pg_name")[0][order].astype(np.int64), roofline=timed,
        untimed=int(without.sum()), unmoved=int((without & (graph.ints("tensor_size", 0) > 0)).sum())
        if platform.npu.memory.bandwidth <= 0 else 0,
        recorded=None if others else ~(named | delayed),
    )  # fmt: skip


def differ_in_ticks(one: PhysicalNodes, other: PhysicalNodes) -> bool:
    """Tell whether the nodes of a graph, or of graphs that differ in durations only, differ in ticks only."""
    for column in fields(PhysicalNodes):
        a, b = getattr(one, column.name), getattr(other, column.name)
        if column.name in ("ticks", "graph") or a is b:
            continue
        # A column of one compute model may be None with another.
        arrays = isinstance(a, np.ndarray) or isinstance(b, np.ndarray)
        same = np.array_equal(a, b) if arrays else a == b
        if not same:
            return False
    return True


def has_accesses(graph: Graph) -> bool:
    """Tell whether a graph has loads from, or stores to, remote memory."""
    types = graph.types
    return bool(((types == NodeType.MEM_LOAD_NODE) | (types == NodeType.MEM_STORE_NODE)).any())


def patterns_of(trace: Trace) -> list[Graph]:
    """Return of each graph what is lowered: of copies the nodes that were copied.

    Accesses of remote memory are told apart by their order, so each of them is lowered.
    """
    # Late: a run of listed ranks has no copies.
    from armillary.trace.templates import PlacedGraph

    return [
        graph.packed if isinstance(graph, PlacedGraph) and not has_accesses(graph.packed) else graph
        for graph in trace.graphs
    ]


def with_ticks(view: View, other: Graph, of: dict[int, Ints]) -> View:
    """Return a view of another graph that differs in ticks only, given these by the ``id`` of what was lowered."""
    graph = view.nodes.graph
    ticks = of[id(graph)] if id(graph) in of else of[id(graph.packed)][graph.copies]  # type: ignore[attr-defined]
    return replace(view, nodes=replace(view.nodes, ticks=ticks, graph=other))


def placed_view(view: View, graph: PlacedGraph, platform: Platform) -> tuple[View, list[int]]:
    """Return the view of a graph, given that of its packed nodes, and which of the routes of these it has."""
    packed, copies = view.nodes, graph.copies
    assert isinstance(packed, PhysicalNodes)
    assert packed.stream is not None
    assert packed.group is not None
    child_ptr, child = graph.placement.children
    item = packed.item[copies]
    items = np.flatnonzero(item >= 0)
    own = item[items]
    item[items] = np.arange(len(items))
    without = _untimed(graph, platform) if packed.untimed else np.zeros(len(copies), np.bool_)
    nodes = replace(
        packed, graph=graph, order=np.arange(len(copies)), kind=packed.kind[copies], slot=packed.slot[copies],
        ticks=packed.ticks[copies], indegree=np.diff(graph.parents()[0]), child_ptr=child_ptr, children=child,
        item=item, items=items,
        warnings=diagnose(graph) if packed.warnings else [], free=unrecorded(graph, platform),
        idle=int(untimed_on_cpu(graph).sum()) if packed.idle else 0, stream=packed.stream[copies],
        group=packed.group[copies], untimed=int(without.sum()),
        stored=int(np.isin(packed.graph.types[graph.own], STORES).sum()) if packed.stored else 0,
        unmoved=int((without & (graph.ints("tensor_size", 0) > 0)).sum()) if packed.unmoved else 0, recorded=None,
    )  # fmt: skip
    # Of calls and routes of all graphs that share the packed nodes, those of this one.
    calls, call = _used(view.call, graph, packed, own)
    routes, peer = _used(view.peer, graph, packed, own)
    mine = replace(
        view, nodes=nodes, calls=[view.calls[at] for at in calls], call=call, peer=peer, tag=view.tag[own],
        size=view.size[own],
    )  # fmt: skip
    return mine, routes


def _used(numbers: Ints, graph: PlacedGraph, packed: PhysicalNodes, own: Ints) -> tuple[list[int], Ints]:
    """Return the numbers of packed items that a graph has copies of, and those of its items, counted anew; -1 stays."""
    found = numbers[packed.item[graph.own][packed.item[graph.own] >= 0]]
    used = np.flatnonzero(np.bincount(found[found >= 0]))
    number = np.full(int(numbers.max(initial=-1)) + 2, -1)
    number[used] = np.arange(len(used))
    return used.tolist(), number[numbers[own]]


def _untimed(graph: Graph, platform: Platform) -> NDArray[np.bool_]:
    """Return which nodes the roofline model times although it is not enabled: see `armillary.engine.common.nodes`.

    Raises:
        InputError: one of them cannot be timed.
    """
    every = np.arange(graph.n_nodes)
    without, compute = untimed(graph), platform.compute
    if compute.replay:
        # A recording may round to nothing what it says it took.
        without = without & ~graph.has("duration_ns")
        refuse(
            graph, every, without, "names operations or bytes, and no time",
            "duration_micros or duration_ns: compute.replay takes recorded times only",
        )  # fmt: skip
    if compute.model or compute.replay:
        return np.zeros(graph.n_nodes, np.bool_)
    if platform.npu.peak_flops <= 0:
        refuse(
            graph, every, without & (graph.ints("num_ops", 0) > 0), "names a num_ops, and no time",
            "npu.peak, which times it, or duration_micros or duration_ns",
        )  # fmt: skip
    return without


def exact_durations(graph: Graph, order: Ints) -> Ints:
    """Recorded durations in ns: attribute ``duration_ns`` where a node has it, else `durations`."""
    ticks = durations(graph, order)
    if "duration_ns" not in graph.attr_names:
        return ticks
    exact = graph.ints("duration_ns", -1)[order]
    given = graph.has("duration_ns")[order]
    bad = given & ((exact < 0) | (exact >= LIMIT))
    refuse(graph, order, bad, "has a duration_ns out of range", f"0 to {LIMIT - 1}")
    return np.where(given, np.maximum(exact, 1), ticks)


def _roofline(graph: Graph, order: Ints, platform: Platform, ticks: Ints, named: NDArray[np.bool_]) -> bool:
    """Time the `named` nodes, if any: by ``max(FLOPs ÷ peak, bytes ÷ memory bandwidth)``, rounded up.

    The peak is that of the node's precision; peak and bandwidth are what kernels reach of them (`Kernels`).
    """
    if not named.any():
        return False
    ops, size = graph.ints("num_ops", 0)[order][named], graph.ints("tensor_size", 0)[order][named]
    bad = np.zeros(len(order), bool)
    bad[np.flatnonzero(named)] = (ops < 0) | (size < 0)
    refuse(graph, order, bad, "has a negative num_ops or tensor_size", "numbers of 0 or more")
    from armillary.compute.model import Device
    from armillary.compute.roofline import roofline_ns, with_endless_memory

    device = Device.of(platform)
    if not platform.compute.model:  # nobody asked for it: it takes what the machine says
        device = with_endless_memory(device)
    for amount, given, what, key in (
        (ops, device.peak, "num_ops", "npu.peak"),
        (size, device.memory, "tensor_size", "npu.memory.bandwidth"),
    ):
        bad[np.flatnonzero(named)] = (amount > 0) & (given <= 0)
        refuse(graph, order, bad, f"names a {what}, which the roofline times and which needs {key}", key)
    peak: NDArray[np.float64] | float = platform.npu.peak_flops
    if platform.npu.peaks:
        peak = _peaks(graph, order, platform.npu.peaks, named)
    runtime = np.ceil(roofline_ns(ops, size, peak, device))
    bad[np.flatnonzero(named)] = runtime >= LIMIT
    refuse(graph, order, bad, "takes longer than can be counted", f"less than {LIMIT:.2g} ns")
    ticks[named] = runtime.astype(np.int64)
    return True


def _peaks(
    graph: Graph, order: Ints, peaks: dict[str, float], named: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the peak of each of the `named` nodes."""
    codes, names = graph.strings("precision")
    found = np.array([*(peaks.get(name, 0.0) for name in names), peaks["bf16"]])[codes[order]]
    refuse(graph, order, named & (found == 0), "has a precision without a peak", one_of(peaks))
    return found[named]


def slots_of(view: View, nodes: PhysicalNodes) -> Ints:
    """Number what nodes occupy: 0 nothing; then streams, threads, communicators, memory, in order of first use."""
    assert nodes.stream is not None
    assert nodes.group is not None
    name = nodes.stream.copy()
    # What takes its recorded time has no call: of these, what names the same group is of one communicator.
    comm = nodes.group.copy()
    which = np.flatnonzero(view.call >= 0)
    if which.size:
        comm_of_call = np.array([call.comm for call in view.calls], np.int64)
        comm[view.nodes.items[which]] = comm_of_call[view.call[which]]
    # A collective that names no stream is in order with the others of its communicator.
    unnamed = (nodes.slot == COMM) & (name < 0)
    name[unnamed] = -2 - comm[unnamed]
    name[nodes.slot == ANY] = 0
    # A stream and a thread of the same number are two slots.
    keys = np.stack([nodes.slot, name])
    first, inverse = distinct_columns(keys)
    order = np.argsort(np.where(nodes.slot[first] == ANY, -1, first), kind="stable")
    number = np.empty(len(first), np.int64)
    # Slot 0 stays reserved for nodes that occupy nothing, even if there are none.
    number[order] = np.arange(len(first)) + (0 if (nodes.slot == ANY).any() else 1)
    result: Ints = number[inverse]
    return result
