"""ASTRA-sim's statistics of a rank, by its definitions: times by type of node, overlap, and the roofline's means."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import Timeline
from armillary.platform.model import Platform
from armillary.report.astra_log.hash_order import walked
from armillary.report.time_breakdown import union
from armillary.trace import Graph, NodeType
from armillary.trace.columns import COMMUNICATION

Ints = NDArray[np.int64]
TYPES = ("CPU", "GPU", "Comm", "Remote mem", "Invalid")
"""What the program calls a node: `types_of` has indices of it."""
CPU, GPU, COMM, REMOTE, INVALID = range(len(TYPES))


@dataclass(frozen=True)
class Roofline:
    """Means over compute nodes, weighted by their durations: percentages, but for the intensity in FLOP per byte."""

    bound: float
    compute: float
    memory: float
    intensity: float


@dataclass(frozen=True)
class Statistics:
    """What ASTRA-sim says of one rank when it has finished, in ticks."""

    cycles: int
    exposed: int
    wall: int
    times: tuple[tuple[str, int], ...]
    """Name and time of each type, in the order in which that program lists them."""
    overlap: int
    """Time of GPU and communication together above the wall time; 2**64 less where it is below."""
    roofline: Roofline | None = None


def types_of(graph: Graph) -> Ints:
    """Return the type of each node of a graph, as an index of `TYPES`."""
    found = np.full(graph.n_nodes, INVALID, np.int64)
    found[graph.types == NodeType.COMP_NODE] = GPU
    found[np.isin(graph.types, COMMUNICATION)] = COMM
    found[np.isin(graph.types, (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE))] = REMOTE
    found[graph.ints("is_cpu_op", 0) != 0] = CPU
    return found


def started(graph: Graph, start: Ints) -> Ints:
    """Return the places of the nodes in the order in which they start, those of one tick by id."""
    order: Ints = np.lexsort((graph.ids, start))
    return order


def statistics(
    timeline: Timeline, cls: int, graph: Graph, exposed: int, machine: Platform | None
) -> Statistics:
    """Return the statistics of a class of ranks.

    Args:
        timeline: The run.
        cls: The class.
        graph: What its ranks ran.
        exposed: Its exposed communication (`astra_exposed`).
        machine: Where the roofline model times compute nodes; else None.
    """
    start, end = timeline.spans(cls)
    types = types_of(graph)
    spent = {}
    for kind in np.unique(types).tolist():
        of_kind = types == kind
        begins, ends = union(start[of_kind], end[of_kind])
        spent[kind] = int((ends - begins).sum())
    listed = list(spent)
    if len(listed) > 1:
        order = started(graph, start)
        order = order[walked(graph.ids[order])]
        _, first = np.unique(types[order], return_index=True)
        listed = types[order][np.sort(first)].tolist()
    wall = int(end.max(initial=0))
    # In 64 bits without a sign, as there: gaps make it huge.
    both = GPU in spent and COMM in spent
    overlap = (spent[GPU] + spent[COMM] - wall) % 2**64 if both else 0
    return Statistics(
        int(timeline.finish[cls]), exposed, wall, tuple((TYPES[kind], spent[kind]) for kind in listed), overlap,
        _roofline(graph, types, end - start, machine) if machine else None,
    )  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """Of each compute node that the roofline model times: its place, and what the model says."""

    node: Ints
    ops: Ints
    size: Ints
    performance: NDArray[np.float64]
    """FLOP/s."""
    intensity: NDArray[np.float64]
    """FLOP per byte."""
    compute: NDArray[np.float64]
    memory: NDArray[np.float64]


def kernels(graph: Graph, machine: Platform) -> Kernel:
    """Return what the roofline model says of the compute nodes of a graph: ``min(bandwidth * intensity, peak)``."""
    ops, size = graph.ints("num_ops", 0), graph.ints("tensor_size", 0)
    node = np.flatnonzero((types_of(graph) == GPU) & (size > 0))
    ops, size = ops[node], size[node]
    bandwidth, peak = machine.npu.memory.bytes_per_s, machine.npu.peak_flops
    intensity = ops / size
    performance = np.minimum(bandwidth * intensity, peak)
    # Nodes without operations only move bytes.
    memory = (
        np.divide(performance, intensity, out=np.full(len(node), bandwidth), where=intensity > 0) / bandwidth
    )
    return Kernel(node, ops, size, performance, intensity, performance / peak, memory)


def _roofline(graph: Graph, types: Ints, spent: Ints, machine: Platform) -> Roofline:
    # From 1 on, so that a rank without kernels divides by something.
    total = 1 + int(spent[(types == CPU) | (types == GPU)].sum())
    found = kernels(graph, machine)
    weight = spent[found.node]

    def mean(values: NDArray[np.float64]) -> float:
        return math.fsum((values * weight).tolist()) / total

    bound = (found.performance >= machine.npu.peak_flops).astype(np.float64)
    return Roofline(
        100 * mean(bound), 100 * mean(found.compute), 100 * mean(found.memory), mean(found.intensity)
    )
