"""Divides the graph of a stage into segments, one for each pass of a layer and a microbatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Nodes
from armillary.trace import Graph, NodeType
from armillary.workload.pipeline.tasks import Task

Kind = Literal["F", "B", "W", "FB"]


class Segment(NamedTuple):
    """One pass of a rank through a layer for a microbatch, without the communication of replicas.

    Attributes:
        kind: Forward (F), backward (B), gradients of weights (W), or forward and backward in one run (FB), as in the
            last layer.
        microbatch: Number of the microbatch.
        layer: Number of the layer in the model.
        nodes: Positions in the graph.
    """

    kind: Kind
    microbatch: int
    layer: int
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """One pipeline rank in parts.

    Attributes:
        nodes: Of its graph.
        segments: In the order in which they are issued.
        handed: Distinct sizes, in bytes, of the messages to the next stage and to the one before.
    """

    nodes: Nodes
    segments: tuple[Segment, ...]
    handed: tuple[int, ...]

    @property
    def layers(self) -> list[int]:
        """Its layers, in the order of the model."""
        return sorted({segment.layer for segment in self.segments})

    @property
    def chunks(self) -> list[list[int]]:
        """Its layers by virtual stages: those that are neighbours in the model."""
        found: list[list[int]] = []
        for layer in self.layers:
            if found and found[-1][-1] + 1 == layer:
                found[-1].append(layer)
            else:
                found.append([layer])
        return found

    @property
    def microbatches(self) -> int:
        """How many there are."""
        return 1 + max(segment.microbatch for segment in self.segments)

    def tasks(self) -> list[Task]:
        """Return its tasks, in the order in which it issues them."""
        found: list[Task] = []
        chunk = {layer: number for number, each in enumerate(self.chunks) for layer in each}
        for segment in self.segments:
            for kind in segment.kind:
                task = Task(kind, segment.microbatch, chunk[segment.layer])  # type: ignore[arg-type]
                if not found or found[-1] != task:
                    found.append(task)
        return found


def stage_of(nodes: Nodes) -> Stage:
    """Take a stage apart by the attributes ``layer`` and ``micro_batch`` of its nodes.

    Raises:
        InputError: it has none, loads and stores, or more than one step.
    """
    graph = nodes.graph
    _check(nodes)
    layer, batch = graph.ints("layer", -1), graph.ints("micro_batch", -1)
    own = (layer >= 0) & (batch >= 0) & ~nodes.gradients & ~nodes.along("pp")
    runs: list[tuple[int, int, list[int]]] = []
    before = (-1, -1)
    messages = nodes.along("pp")
    for node in range(graph.n_nodes):
        # A message ends a run: forward and backward of one layer may follow each other with only a message
        # between.
        if messages[node]:
            before = (-1, -1)
        if not own[node]:
            continue
        key = (int(batch[node]), int(layer[node]))
        if key != before:
            runs.append((*key, []))
            before = key
        runs[-1][2].append(node)
    times: dict[tuple[int, int], int] = {}
    for microbatch, number, _ in runs:
        times[microbatch, number] = times.get((microbatch, number), 0) + 1
    most = max(times.values(), default=0)
    # F, B and W at most: more mean that the trace has several steps.
    if most > 3:
        raise InputError(
            f"{graph.source}: layer {runs[0][1]} works on microbatch {runs[0][0]} {most} times; expected "
            "one step (cut the trace with `armillary trace slice`)"
        )
    done: dict[tuple[int, int], int] = {}
    end = max((number for _, number, _ in runs), default=-1)
    segments = []
    for microbatch, number, members in runs:
        # Which pass this is follows from how often the layer has come for this microbatch.
        at = done.get((microbatch, number), 0)
        done[microbatch, number] = at + 1
        # Where nothing comes between forward and backward of the last layer, they are one run.
        fewer = times[microbatch, number] < most
        joined = fewer and number == end
        # Of a first layer there is no gradient of an input.
        kind: Kind = ("FB", "W")[at] if joined else ("F", "W")[at] if fewer else ("F", "B", "W")[at]
        segments.append(Segment(kind, microbatch, number, tuple(members)))
    size = graph.ints("comm_size")
    return Stage(nodes, tuple(segments), tuple(sorted(set(size[messages].tolist()))))


def _check(nodes: Nodes) -> None:
    graph: Graph = nodes.graph
    lacks = (graph.types == NodeType.COMP_NODE) & ~(graph.has("layer") & graph.has("micro_batch"))
    if lacks.any():
        raise InputError(
            f"{graph.node(int(np.argmax(lacks)))} and {int(lacks.sum()) - 1} others do not say which layer and "
            "microbatch they belong to (attributes 'layer' and 'micro_batch'); expected them, for stages to be remade"
        )
    if nodes.memory.any():
        raise InputError(
            f"{graph.node(int(np.argmax(nodes.memory)))}: loads and stores cannot be moved to other "
            "stages; expected none"
        )
    timed = nodes.kernel & ~graph.has("num_ops") & ~graph.has("tensor_size")
    if timed.any():
        raise InputError(
            f"{graph.node(int(np.argmax(timed)))} has neither num_ops nor tensor_size; expected them, for stages to be "
            "remade"
        )
