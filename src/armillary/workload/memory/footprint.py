"""Memory of the ranks of a pipeline stage over one step, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import numpy as np

from armillary.base.counts import MOST_HELD, check_count
from armillary.workload.layers.layer import Layer
from armillary.workload.memory.chunk import Chunk, Ints
from armillary.workload.memory.outside import NOTHING, Outside
from armillary.workload.memory.outside import outside as outside_of
from armillary.workload.memory.states import States, left, states
from armillary.workload.pipeline.tasks import (
    Task,
    chunks_of,
    in_flight,
    tasks,
    virtual_stage,
    weight_versions,
)
from armillary.workload.plan.numbers import MOMENTS, gradient, weight
from armillary.workload.plan.ranks import microbatches, rank_grid
from armillary.workload.plan.schema import Plan

CATEGORIES = (
    "weights", "gradients", "optimizer", "buffers", "activations", "logits", "working", "communication",
)  # fmt: skip
FRAGMENTATION = 0.04
"""Allowance for gaps of PyTorch's allocator, a share of all that is allocated.

Reserved beyond allocated memory was 2.8 to 9.3 % (median 3.3) in 16 runs of Megatron-core on B200 (SimuMax), and is 6 %
of what torchtitan's Llama-3.1 8B needs by this model; of the bytes that come and go alone it was 12 to 94 %. It can be
more: GMLake (arXiv 2401.08156) found 15 % of memory, up to 33 %, where recomputation, offloading and sharding come
together.
"""
WORKSPACE = 32 * 2**20
"""Bytes that a library of GEMMs holds for them on Hopper and Blackwell: cuBLAS in PyTorch, and another in Transformer
Engine (``get_cublas_workspace_size_bytes``)."""
LAZY = ("zero-2", "fsdp", "hsdp")
"""Shardings whose gradients are allocated as the first backward pass makes them."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that every rank of a pipeline stage holds over one step.

    Attributes:
        stage: Pipeline rank.
        tasks: Tasks of the stage, in order.
        task: Index of the task of each point, (points,); the last point, ``len(tasks)``, is the optimizer step.
        layer: Name of the layer that runs at each point.
        timeline: Category -> bytes while that layer runs, (points,).
        fragmentation: Share of the peak that the allocator may waste.
        outside: What the GPU holds besides the allocator's memory.
    """

    stage: int
    tasks: tuple[Task, ...]
    task: Ints
    layer: tuple[str, ...]
    timeline: Mapping[str, Ints]
    fragmentation: float = FRAGMENTATION
    outside: Outside = NOTHING

    @property
    def total(self) -> Ints:
        """Bytes allocated at each point, (points,)."""
        return np.asarray(np.sum([*self.timeline.values()], axis=0), np.int64)

    @property
    def at(self) -> int:
        """The point of the peak."""
        return int(self.total.argmax())

    @property
    def peak(self) -> int:
        """Most bytes allocated at a time, without allowances (``torch.cuda.max_memory_allocated``)."""
        return int(self.total.max())

    @property
    def reserved(self) -> int:
        """Most bytes that the allocator holds (``torch.cuda.max_memory_reserved``)."""
        return self.peak + ceil(self.fragmentation * self.peak)

    @property
    def at_peak(self) -> dict[str, int]:
        """Bytes of each category at the peak, allowances last."""
        found = {category: int(each[self.at]) for category, each in self.timeline.items()}
        return found | {
            "fragmentation": self.reserved - self.peak,
            "context": self.outside.context,
            "nccl": self.outside.nccl,
        }

    @property
    def needed(self) -> int:
        """What the memory of the GPU must hold: reserved, and outside of the allocator."""
        return self.reserved + self.outside.total

    @property
    def where(self) -> str:
        """Label of the task and layer at the peak."""
        return self.name(self.at)

    def name(self, point: int) -> str:
        """Return a label of the task and layer at a point."""
        if self.task[point] == len(self.tasks):
            return "optimizer step"
        kind, microbatch, chunk = self.tasks[self.task[point]]
        what = {"F": "forward", "B": "backward", "W": "weight gradients"}[kind]
        more = f", chunk {chunk}" if any(task.chunk for task in self.tasks) else ""
        return f"{what} of {self.layer[point]}, microbatch {microbatch}{more}"


def footprint(
    stages: Sequence[Sequence[Layer]],
    plan: Plan,
    stage: int,
    *,
    fragmentation: float = FRAGMENTATION,
    outside: Outside | None = None,
) -> Footprint:
    """Return the footprint of the ranks of one pipeline stage over a step.

    While a layer runs, it needs its `working` bytes; its `saved` bytes are held from the forward to the backward pass
    (or to the gradients of the weights, if the schedule defers these). Replicas with whole gradients keep them in one
    buffer all the time, and buckets are views of it (Megatron-LM); ZeRO-2 and FSDP allocate shards as the first
    backward pass makes them. Stages with neighbours hold one message for each direction.

    Args:
        stages: Layers of every virtual stage, in the model's order (`partition`).
        plan: How they are run.
        stage: Pipeline rank, from 0.
        fragmentation: Share of the peak that the allocator may waste.
        outside: What the GPU holds besides; None: a CUDA context, and buffers of the plan's communicators.
    """
    if plan.data.sharding == "parameter-server":
        # Servers train nothing: the workers alone make up the grid.
        plan = plan.model_copy(update={"ranks": plan.ranks - plan.data.servers})
    pp, schedule = plan.parallel.pp, plan.pipeline.schedule
    virtual = chunks_of(schedule, plan.pipeline.virtual)
    count = microbatches(plan) * (plan.iterations if schedule == "pipedream" else 1)
    check_count(
        2 * count * max(pp * virtual, sum(map(len, stages)) // pp),
        MOST_HELD,
        f"batch {plan.batch}: {count} microbatches: layers, forward and backward",
        "fewer of them",
    )
    order = tuple(tasks(schedule, pp, plan.pipeline.virtual, count)[stage])
    chunks = [list(stages[virtual_stage(schedule, pp, stage, chunk)]) for chunk in range(virtual)]
    grid = rank_grid(plan)
    # Layers of one shape are one object, so each state is computed once.
    known = {id(layer): states(layer, plan, grid) for layers in chunks for layer in layers}
    held = [[known[id(layer)] for layer in layers] for layers in chunks]
    every = [each for mine in held for each in mine]

    forward = [Chunk(layers, mine, plan) for layers, mine in zip(chunks, held, strict=True)]
    lengths = np.array([len(chunks[task.chunk]) for task in order], np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    points = int(starts[-1]) + 1
    # A B that has a W of its own keeps activations until then.
    later = {task[1:] for task in order if task.kind == "W"}
    splits = [task[1:] in later for task in order]

    line = {category: np.zeros(points, np.int64) for category in CATEGORIES}
    versions = weight_versions(schedule, pp, stage, count)
    # States stay all the time; activations, working memory and messages follow the layers.
    line["weights"][:] = versions * sum(each.weights for each in every)
    line["optimizer"][:] = sum(each.optimizer for each in every)
    line["buffers"][:] = buffers(chunks, plan)
    line["gradients"][:] = _gradients(order, held, starts, plan, splits)
    others = _others(order, virtual)
    # Tasks that differ in the microbatch alone need the same.
    alike = [(forward[task.chunk], task.kind, split) for task, split in zip(order, splits, strict=True)]
    distinct = list(dict.fromkeys(alike))

    def of_tasks(bytes_of: Callable[[Chunk, str, bool], Ints]) -> Ints:
        found = {each: bytes_of(*each) for each in distinct}
        return np.concatenate([found[each] for each in alike])

    for category in ("activations", "logits"):
        totals = np.array([each.total(category) for each in forward], np.int64)
        # The running microbatch layer by layer, all others in flight as a constant over the task.
        moving = of_tasks(partial(_held, category))
        line[category][:-1] = moving + np.repeat(others @ totals, lengths)
    line["working"][:-1] = of_tasks(lambda chunk, kind, _: chunk.working(kind))
    line["communication"][:-1] = of_tasks(lambda chunk, kind, _: chunk.moved(kind))
    line["communication"] += messages(chunks, plan) + buckets(every, plan)
    names = [[layer.name for layer in chunks[task.chunk]][:: 1 if task.kind == "F" else -1] for task in order]
    return Footprint(
        stage,
        order,
        np.append(np.repeat(np.arange(len(order)), lengths), len(order)),
        (*(name for mine in names for name in mine), "optimizer"),
        line,
        fragmentation,
        outside_of(plan, grid) if outside is None else outside,
    )


def worst(
    stages: Sequence[Sequence[Layer]],
    plan: Plan,
    *,
    fragmentation: float = FRAGMENTATION,
    outside: Outside | None = None,
) -> Footprint:
    """Return the footprint of the pipeline rank that needs most.

    Of ranks with the same layers only the first is evaluated: no schedule keeps more in flight on later ones.
    """
    pp = plan.parallel.pp
    # None ends the layers of a virtual stage, so that the same layers divided differently are not alike.
    firsts: dict[tuple[int, ...], int] = {}
    for stage in range(pp):
        own = [
            stages[virtual_stage(plan.pipeline.schedule, pp, stage, chunk)]
            for chunk in range(chunks_of(plan.pipeline.schedule, plan.pipeline.virtual))
        ]
        mine = tuple(id(layer) for layers in own for layer in (*layers, None))
        firsts.setdefault(mine, stage)
    found = [
        footprint(stages, plan, stage, fragmentation=fragmentation, outside=outside)
        for stage in firsts.values()
    ]
    return max(found, key=lambda each: each.needed)


def _held(category: str, chunk: Chunk, kind: str, splits: bool) -> Ints:
    return chunk.held(category, kind, splits)


def _others(order: Sequence[Task], virtual: int) -> Ints:
    """Return the microbatches in flight at each task besides its own, (tasks, virtual)."""
    before = np.vstack((np.zeros((1, virtual), np.int64), in_flight(order, virtual)[:-1]))
    for index, task in enumerate(order):
        # A backward task's own microbatch is in flight, but the line counts it layer by layer.
        before[index, task.chunk] -= task.kind != "F"
    return before


def _gradients(
    order: Sequence[Task], held: list[list[States]], starts: Ints, plan: Plan, splits: Sequence[bool]
) -> Ints:
    """Return the bytes of retained gradients, (points,)."""
    line = np.zeros(int(starts[-1]) + 1, np.int64)
    for chunk, mine in enumerate(held):
        sizes = np.array([each.gradients for each in mine], np.int64)
        start = 0
        if plan.data.sharding in LAZY:
            # The first microbatch allocates the shards, from the last layer to the first.
            makes = (
                number
                for number, (task, split) in enumerate(zip(order, splits, strict=True))
                if task.chunk == chunk and task.kind == ("W" if split else "B")
            )
            start = int(starts[next(makes)]) + len(mine)
            line[start - len(mine) : start] += np.cumsum(sizes[::-1])
        line[start:] += sizes.sum()
    return line


def buffers(chunks: Sequence[Sequence[Layer]], plan: Plan) -> int:
    """Return the bytes of workspaces, and of the dummy gradients that Transformer Engine gives to autograd.

    GEMMs add to the buffer of gradients themselves; what the backward pass returns is one tensor per shape of a weight,
    in its precision, made once and kept (``get_dummy_wgrad``). PyTorch's FSDP has none.
    """
    if plan.data.sharding in ("fsdp", "hsdp"):
        return WORKSPACE
    shapes = frozenset[tuple[int, int]]().union(*(layer.shapes for layers in chunks for layer in layers))
    return 2 * WORKSPACE + weight(plan) * sum(inputs * outputs for inputs, outputs in shapes)


def messages(chunks: list[list[Layer]], plan: Plan, *, training: bool = True) -> int:
    """Return the bytes of messages between stages, beside the activations and gradients in use.

    Megatron-LM posts a receive right before it waits for it; with virtual stages it also receives ahead.
    """
    sizes = [layers[-1].boundary for layers in chunks if layers]
    ahead = 1 if training and plan.pipeline.virtual == 1 else 2
    return ahead * max(sizes, default=0) if plan.parallel.pp > 1 else 0


def buckets(every: list[States], plan: Plan) -> int:
    """Return the bytes of buckets with memory of their own, rather than views of the gradients."""
    if plan.data.sharding not in ("zero-2", "parameter-server"):
        return 0
    whole = sum(each.weights for each in every)
    return min(plan.data.bucket * (2 if plan.data.overlap else 1), whole)


def server(
    layers: Sequence[Layer],
    plan: Plan,
    *,
    fragmentation: float = FRAGMENTATION,
    outside: Outside | None = None,
) -> Footprint:
    """Return the footprint of one parameter server, a CPU: its part of the model, summed gradients, and buckets.

    Weights and optimizer states are in fp32. It receives the gradients of one worker and sends weights at a time.
    """
    servers, each = plan.data.servers, gradient(plan)
    count = -(-sum(sum(layer.parameters.values()) for layer in layers) // servers)
    bucket = min(-(-plan.data.bucket // servers), each * count)
    sizes = {
        "weights": left(4 * count, plan.offload.weights),
        "gradients": each * count,
        "optimizer": left(4 * MOMENTS[plan.optimizer] * count, plan.offload.optimizer),
        "communication": 2 * bucket,
    }
    line = {category: np.array([size], np.int64) for category, size in sizes.items()}
    return Footprint(0, (), np.zeros(1, np.int64), ("optimizer",), line, fragmentation, outside or NOTHING)
