"""Peak memory of a rank without its timeline: the result of `worst` in a fraction of the time."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from armillary.trace.grid import RankGrid
from armillary.workload.layers.layer import Layer
from armillary.workload.memory.chunk import Chunk, Ints
from armillary.workload.memory.footprint import FRAGMENTATION, LAZY, buckets, buffers, messages, worst
from armillary.workload.memory.outside import Outside
from armillary.workload.memory.outside import outside as outside_of
from armillary.workload.memory.states import States, states
from armillary.workload.pipeline.columns import BACKWARD, FORWARD, WEIGHT, task_columns
from armillary.workload.pipeline.tasks import check_schedule, weight_versions
from armillary.workload.plan.ranks import microbatches, rank_grid
from armillary.workload.plan.schema import Plan

_NAMES = "FBW"
_TURNS = 6
"""After this many times pp microbatches, every schedule but gpipe repeats or drains, so no peak comes later."""


def most_needed(
    stages: Sequence[Sequence[Layer]],
    plan: Plan,
    *,
    fragmentation: float = FRAGMENTATION,
    outside: Outside | None = None,
) -> int:
    """Return the bytes, with allowances, of the pipeline rank that needs most: ``worst(…).needed``.

    A task adds the same to the microbatches in flight whenever a rank runs it, except for gradients that the first
    backward pass allocates. So one number per kind of task and chunk is enough.

    Args:
        stages: Layers of every virtual stage, in the model's order (`partition`).
        plan: How they are run; training.
        fragmentation: As in `footprint`.
        outside: As in `footprint`.

    Raises:
        InputError: the schedule is impossible.
    """
    if plan.data.sharding == "parameter-server":
        plan = plan.model_copy(update={"ranks": plan.ranks - plan.data.servers})
    pp, virtual, schedule = plan.parallel.pp, plan.pipeline.virtual, plan.pipeline.schedule
    count = microbatches(plan) * (plan.iterations if schedule == "pipedream" else 1)
    check_schedule(schedule, pp, virtual, count)
    if schedule == "dualpipe":
        # Its order is no simple function of the rank, so that only the tasks themselves say it.
        return worst(stages, plan, fragmentation=fragmentation, outside=outside).needed
    # gpipe holds all microbatches at once, so its peak grows with their number.
    if schedule != "gpipe":
        count = min(count, _TURNS * pp)
    grid = rank_grid(plan)
    made = _Chunks(plan, grid)
    firsts: dict[tuple[int, ...], int] = {}
    for stage in range(pp):
        mine = tuple(id(layer) for layers in stages[stage::pp] for layer in (*layers, None))
        firsts.setdefault(mine, stage)
    found = 0
    for stage in firsts.values():
        chunks = [made(stages[chunk * pp + stage]) for chunk in range(virtual)]
        found = max(found, _stage(chunks, plan, stage, count))
    held = outside_of(plan, grid) if outside is None else outside
    return found + ceil(fragmentation * found) + held.total


class _Made:
    """A virtual stage: its states, and what each kind of task adds layer by layer."""

    def __init__(self, layers: Sequence[Layer], held: list[States], plan: Plan) -> None:
        chunk = Chunk(list(layers), held, plan)
        self.layers, self.held = list(layers), held
        self.total = chunk.total("activations") + chunk.total("logits")
        splits = plan.pipeline.schedule == "zero-bubble"
        self.moving = [
            chunk.held("activations", kind, splits) + chunk.held("logits", kind, splits)
            + chunk.working(kind) + chunk.moved(kind)
            for kind in (_NAMES if splits else "FB")
        ]  # fmt: skip
        self.most = [int(each.max()) for each in self.moving]
        self.gradients = np.array([each.gradients for each in held], np.int64)


class _Chunks:
    """Virtual stages by their layers, made once."""

    def __init__(self, plan: Plan, grid: RankGrid) -> None:
        self._plan, self._grid = plan, grid
        self._states: dict[int, States] = {}
        self._made: dict[tuple[int, ...], _Made] = {}

    def __call__(self, layers: Sequence[Layer]) -> _Made:
        key = tuple(map(id, layers))
        if key not in self._made:
            for layer in layers:
                if id(layer) not in self._states:
                    self._states[id(layer)] = states(layer, self._plan, self._grid)
            self._made[key] = _Made(layers, [self._states[one] for one in key], self._plan)
        return self._made[key]


def _stage(chunks: list[_Made], plan: Plan, stage: int, count: int) -> int:
    """Return the bytes at the peak."""
    schedule = plan.pipeline.schedule
    kind, chunk = task_columns(schedule, plan.parallel.pp, len(chunks), count, stage)
    last = WEIGHT if schedule == "zero-bubble" else BACKWARD
    every = [each for made in chunks for each in made.held]
    always = messages([made.layers for made in chunks], plan) + buckets(every, plan)
    versions = weight_versions(schedule, plan.parallel.pp, stage, count)
    stays = versions * sum(each.weights for each in every) + sum(each.optimizer for each in every)
    stays += buffers([made.layers for made in chunks], plan)
    # `moving` is the peak within each task: others in flight, and the most of the own layers.
    others = _others(kind, chunk, [made.total for made in chunks], last)
    moving = others + np.array([made.most for made in chunks], np.int64)[chunk, kind]
    gradients = np.array([int(made.gradients.sum()) for made in chunks], np.int64)
    most, line = moving.copy(), np.zeros(len(kind), np.int64)
    if plan.data.sharding in LAZY:
        for number, made in enumerate(chunks):
            first = int(np.argmax((kind == last) & (chunk == number)))
            line[first + 1 :] += gradients[number]
            # Within this one task gradients grow layer by layer, so its peak may lie elsewhere.
            most[first] = others[first] + int((made.moving[last] + np.cumsum(made.gradients[::-1])).max())
    else:
        line[:] = gradients.sum()
    # In the optimizer step no activations are left, but all gradients are.
    return stays + always + max(int((most + line).max()), int(gradients.sum()))


def _others(kind: Ints, chunk: Ints, totals: list[int], last: int) -> Ints:
    """Return the bytes of microbatches in flight at each task besides its own, (tasks,)."""
    own = np.array(totals, np.int64)[chunk]
    change = own * (kind == FORWARD) - own * (kind == last)
    before = np.cumsum(change) - change
    return np.asarray(before - own * (kind != FORWARD), np.int64)
