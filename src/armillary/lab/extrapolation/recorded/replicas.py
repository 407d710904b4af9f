"""Adds replicas to a recorded graph that had none, by putting DistributedDataParallel (DDP) around its step.

A tensor that the backward pass wrote and the optimizer reads is a gradient, whatever its size. DDP copies each, divided
by the number of replicas, into a bucket as soon as the last microbatch has made it, all-reduces full buckets, and
copies them back at the end of the backward pass (torch/csrc/distributed/c10d/reducer.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.edit import with_texts
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.recorded.calls import Argument, Call, Tensor
from armillary.lab.extrapolation.recorded.tensors import Program, has_program, program_of
from armillary.trace import CollectiveType, Graph, NodeType, Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.graph import duration_ns
from armillary.trace.grid import RankGrid
from armillary.trace.node import Attribute, Node, graph_of, nodes_of

FIRST, USUAL = 2**20, 25 * 2**20
"""Bytes of gradients from which the first bucket, and each after it, is full: DDP's defaults."""
BACKWARD = "autograd::engine::evaluate_function: "
ACCUMULATES = BACKWARD + "torch::autograd::AccumulateGrad"
OPTIMIZER = "Optimizer.step#"
ALIKE = ("aten::mul", "aten::mul_", "aten::div_", "aten::copy_")
"""Operators that take as long as DDP's, which read as much as they write."""
REDUCER = "reducer::"
"""In names of what DDP does to gradients."""
ADDED = "added: DDP, buckets of 25 MiB"
REDUCES = "dp: added: DDP all-reduces the last microbatch's gradients by 25 MiB, the first by 1 MiB"
COPIES = "dp: added: DDP copies gradients into buckets and back, as fast as recorded copies"
Note = Callable[[str, int], None]


@dataclass(frozen=True)
class Gradient:
    """The gradient of a parameter.

    Attributes:
        ready: Position of the last node of the backward pass that has to do with it.
        elements: How many numbers it has.
        width: Bytes of each.
    """

    ready: int
    elements: int
    width: int

    @property
    def bytes(self) -> int:
        """Size of it."""
        return self.elements * self.width


@dataclass(frozen=True)
class Step:
    """One update: its gradients in the order in which they are ready, and the last node of its backward pass."""

    gradients: tuple[Gradient, ...]
    end: int


def buckets(gradients: tuple[Gradient, ...]) -> list[list[Gradient]]:
    """Return the buckets of gradients of one width, in order; the first is full at `FIRST` bytes, others at `USUAL`."""
    opened: dict[int, list[Gradient]] = {}
    limit: dict[int, int] = {}
    found = []
    for gradient in gradients:
        own = opened.setdefault(gradient.width, [])
        own.append(gradient)
        # DDP's first bucket is small, so that communication starts early in the backward pass.
        if sum(each.bytes for each in own) >= limit.get(gradient.width, FIRST):
            found.append(opened.pop(gradient.width))
            limit[gradient.width] = USUAL
    return found + list(opened.values())


def add_replicas(trace: Trace, size: int, note: Note) -> Trace:
    """Return the trace of `size` replicas of all its ranks, which are neighbours inside of a stage of a pipeline.

    Raises:
        InputError: gradients are not seen, or what reduces them is there; names the graph.
    """
    grid = grid_of(trace)
    for other in ("cp", "ep"):
        if other in grid.axes:
            raise InputError(
                f"scale dp: {trace.graphs[0].source} has an axis {other}, whose ranks are replicas, too, and no other "
                "of dp; expected a trace of 2 or more ranks along dp"
            )
    graphs = tuple(_replica(graph, grid, note) for graph in trace.graphs)
    # Inside of pp, so that replicas of a stage are neighbours; outermost where another axis lies outside of
    # pp.
    at = min(grid.axes["pp"]) if "pp" in grid.axes else len(grid.sizes)
    if any(mesh_dim > at for axis, mesh_dims in grid.axes.items() if axis != "pp" for mesh_dim in mesh_dims):
        at = len(grid.sizes)
    note("dp: added: replicas have as many samples as the trace; no buffers are broadcast", 0)
    return _with_mesh_dim(trace, graphs, at, size)


def lacks_replicas(trace: Trace) -> bool:
    """Say whether a recorded trace has one rank along dp, so that what replicas do is to be added."""
    grid = grid_of(trace)
    alone = "dp" not in grid.axes or grid.size("dp") == 1
    return alone and all(has_program(graph) for graph in trace.graphs)


def _with_mesh_dim(trace: Trace, graphs: tuple[Graph, ...], at: int, size: int) -> Trace:
    """Return the trace with an axis ``dp`` at a mesh dimension."""
    grid = grid_of(trace)
    axes = {axis: tuple(d + (d >= at) for d in mesh_dims) for axis, mesh_dims in grid.axes.items()}
    made = RankGrid((*grid.sizes[:at], size, *grid.sizes[at:]), axes | {"dp": (at,)}, grid.subsets)
    table = trace.rank_graph.reshape(grid.sizes[::-1])
    table = np.repeat(np.expand_dims(table, table.ndim - at), size, axis=table.ndim - at)
    return replace(trace, graphs=graphs, grid=made, rank_graph=table.ravel().astype(np.int32))


def steps_of(graph: Graph) -> list[Step]:
    """Return the updates of a graph.

    Raises:
        InputError: the graph has none, or gradients that none uses, or runs on a device.
    """
    names = graph.names()
    whole = "expected the trace of a step on a CPU with its backward pass and optimizer, or one with 2 ranks along dp"
    if ((graph.types == NodeType.COMP_NODE) & (graph.ints("is_cpu_op", 0) == 0)).any():
        raise InputError(
            f"scale dp: {graph.source} has kernels on a device, among which DDP's are not placed; expected a trace of "
            "2 or more ranks along dp"
        )
    program = program_of(graph)
    # Operators inside of the optimizer's step and of autograd's accumulation, by the outermost such scope.
    updates = _inside(program, [name.startswith(OPTIMIZER) for name in names])
    accumulates = _inside(program, [name == ACCUMULATES for name in names])
    found: list[Step] = []
    # By memory: node that accumulated it last, and (elements, bytes of each) as the optimizer read it.
    written: dict[int, int] = {}
    read: dict[int, tuple[int, int]] = {}
    start = stop = 0
    for call in (program.calls[node] for node in sorted(program.calls)):
        if updates[call.node] >= 0:
            stop = stop if read else call.node
            for tensor, width in _named(call):
                if tensor.memory in written:
                    read[tensor.memory] = max(read.get(tensor.memory, (0, 0)), (prod(tensor.shape), width))
        elif accumulates[call.node] >= 0:
            # The first accumulation after an update begins the next step.
            if read:
                found.append(_step(graph, program, written, read, start, stop))
                written, read, start = {}, {}, stop
            for tensor in _writes(call):
                written[tensor.memory] = accumulates[call.node]
    if read:
        found.append(_step(graph, program, written, read, start, stop))
        written = {}
    if written or not found:
        what = "gradients that no optimizer uses" if written else "no gradients that an optimizer uses"
        raise InputError(
            f"scale dp: {graph.source} has {what}, so what replicas would reduce is not known; {whole}"
        )
    return found


def _inside(program: Program, roots: Sequence[bool]) -> list[int]:
    """Return for every node the outermost of some that it is, or is called by; -1: none."""
    found: list[int] = []
    for node, above in enumerate(program.above.tolist()):
        outer = found[above] if above >= 0 else -1
        found.append(outer if outer >= 0 else node if roots[node] else -1)
    return found


def _named(call: Call) -> Iterator[tuple[Tensor, int]]:
    """Yield the tensors that a call is given, with the bytes of a number in each."""
    todo: list[tuple[Argument, Any]] = list(zip(call.inputs, call.given.values, strict=True))
    while todo:
        tensor, value = todo.pop()
        if isinstance(tensor, list):
            todo += zip(tensor, value, strict=True)
        elif tensor is not None and not tensor.integer:
            yield tensor, int(value[4])


def _writes(call: Call) -> Iterator[Tensor]:
    """Yield the tensors that a call makes or changes."""
    given = [
        each
        for at, each in enumerate(call.inputs)
        if at < len(call.schema.arguments) and call.schema.arguments[at].written
    ]
    todo: list[Argument] = [*given, *call.outputs]
    while todo:
        tensor = todo.pop()
        if isinstance(tensor, list):
            todo += tensor
        elif tensor is not None:
            yield tensor


def _step(
    graph: Graph,
    program: Program,
    written: dict[int, int],
    read: dict[int, tuple[int, int]],
    start: int,
    stop: int,
) -> Step:
    """Return the update from `start` to `stop` of the gradients that were read, by what accumulated them last."""
    names, parts = graph.names(), graph.ints("part", 0)
    gradients = [
        Gradient(_end(graph, program, names, root), *read[memory])
        for memory, root in written.items()
        if memory in read
    ]
    gradients.sort(key=lambda each: each.ready)
    last = max(node for node in range(start, stop) if names[node].startswith(BACKWARD) and not parts[node])
    return Step(tuple(gradients), max(_end(graph, program, names, last), gradients[-1].ready))


def _end(graph: Graph, program: Program, names: list[str], root: int) -> int:
    """Return the last node of a function of the backward pass: what it calls, and their parts after other calls."""
    inside, called, end = {root}, {names[root]}, root
    parts = graph.ints("part", 0)
    kinds = graph.types
    for node in range(root + 1, graph.n_nodes):
        if kinds[node] != NodeType.COMP_NODE:
            continue
        if int(program.above[node]) in inside:
            inside.add(node)
            called.add(names[node])
        elif not (parts[node] and names[node] in called):
            break
        end = node
    return end


def _replica(graph: Graph, grid: RankGrid, note: Note) -> Graph:
    """Return the graph in which DDP reduces the gradients of every step.

    Raises:
        InputError: as `steps_of`, or the rank communicates with itself, but not as DDP does.
    """
    alone = Nodes(graph, grid).large & ~np.isin(graph.strings("pg_name")[0], _shared(graph, grid))
    if alone.any():
        return _widened(graph, alone, note)
    steps = steps_of(graph)
    nodes = nodes_of(graph)
    took = _durations(graph)
    behind: dict[int, list[Node]] = {}
    instead: dict[int, int] = {}
    fresh = int(graph.ids.max()) + 1
    reduced = 0

    def add(place: int, node: Node) -> int:
        nonlocal fresh
        node.id = fresh
        fresh += 1
        behind.setdefault(place, []).append(node)
        return node.id

    for step in steps:
        for gradient in step.gradients:
            # What is left of the operator when its factor has been converted.
            size = 2 * gradient.bytes - gradient.width
            waits = instead.get(nodes[gradient.ready].id, nodes[gradient.ready].id)
            made = add(gradient.ready, _operator("aten::mul", gradient.elements, size, took(size), [waits]))
            instead[nodes[gradient.ready].id] = made
        sums: list[tuple[int, list[Gradient]]] = []
        ready = 0
        for bucket in buckets(step.gradients):
            ready = max(ready, *(each.ready for each in bucket))
            # One process group runs its collectives in order, so each waits for the one before.
            waits_for = [instead[nodes[ready].id], *(number for number, _ in sums[-1:])]
            sums.append((add(ready, _reduction(sum(each.bytes for each in bucket), waits_for)), bucket))
        reduced += len(sums)
        # Copies back are one chain on the host's thread, each also after the reduction of its bucket.
        before = instead.get(nodes[step.end].id, nodes[step.end].id)
        for number, bucket in sums:
            for gradient in bucket:
                size = 2 * gradient.bytes
                before = add(step.end, _operator("aten::copy_", 0, size, took(size), [before, number]))
        instead[nodes[step.end].id] = before
    note(REDUCES, reduced)
    note(COPIES, 2 * sum(len(step.gradients) for step in steps))
    made_nodes = []
    for position, node in enumerate(nodes):
        # What waited for a gradient, or for the end of the backward pass, now waits for DDP's last operator
        # there.
        node.data_deps = [instead.get(each, each) for each in node.data_deps]
        made_nodes += [node, *behind.get(position, ())]
    return graph_of(made_nodes, graph.source, graph.version, graph.metadata_with_docs())


def _shared(graph: Graph, grid: RankGrid) -> list[int]:
    """Return the codes of group names with more than one rank; -1 stands for a collective without a name."""
    names = [*graph.strings("pg_name")[1], ""]
    shared = [bool(grid.mesh_dims(name)) if name else grid.n_ranks > 1 for name in names]
    return [code if code < len(names) - 1 else -1 for code, each in enumerate(shared) if each]


def _widened(graph: Graph, alone: Mask, note: Note) -> Graph:
    """Return the graph of DDP with a single replica, whose all-reduces are now of several.

    Raises:
        InputError: what the rank communicates with itself is not that; names the node.
    """
    kinds = graph.ints("comm_type", -1)
    other = alone & (kinds != CollectiveType.ALL_REDUCE)
    if other.any() or not any(REDUCER in name for name in graph.names()):
        where = graph.node(int(np.argmax(other if other.any() else alone)))
        raise InputError(
            f"scale dp: {where} is of a group of one rank, and not DDP's; expected a trace of 2 or more ranks along dp"
        )
    note("dp: all-reduces of DDP with one replica are those of all", int(alone.sum()))
    codes, names = graph.strings("pg_name")
    made = np.where(alone, len(names), codes).astype(np.int64)
    return with_texts(graph, "pg_name", made, [*names, "dp"])


def _durations(graph: Graph) -> Callable[[int], int]:
    """Return a function from bytes to the ns of an element-wise operator, interpolated between recorded medians."""
    like = np.isin(graph.names(), ALIKE)
    size, took = graph.ints("tensor_size"), duration_ns(graph)
    median = {
        int(each): float(np.median(took[like & (size == each)])) for each in np.unique(size[like]) if each
    }
    known = sorted(median)

    def of(moved: int) -> int:
        if not known:
            return 0
        # Beyond the largest recorded copy time is taken as linear in bytes; `interp` would keep it constant.
        if moved > known[-1]:
            return round(median[known[-1]] * moved / known[-1])
        return round(float(np.interp(moved, known, [median[each] for each in known])))

    return of


def _operator(name: str, operations: int, size: int, took: int, waits: list[int]) -> Node:
    work: list[Attribute] = [
        ("num_ops", "int64", operations),
        ("tensor_size", "uint64", size),
        ("duration_ns", "int64", took),
    ]
    return Node(
        name=name,
        type=NodeType.COMP_NODE,
        data_deps=waits,
        duration_micros=-(-took // 1000),
        attrs=[("is_cpu_op", "bool", True), *work],
    )


def _reduction(size: int, waits: list[int]) -> Node:
    kind: Attribute = ("comm_type", "int64", int(CollectiveType.ALL_REDUCE))
    attrs: list[Attribute] = [
        ("is_cpu_op", "bool", False),
        kind,
        ("comm_size", "int64", size),
        ("pg_name", "string", "dp"),
    ]
    return Node(name="gradients", type=NodeType.COMM_COLL_NODE, data_deps=waits, attrs=attrs)
