"""A lower bound of the time of a training step of a model, plan and machine, computed without a trace.

It is the longest path through the tasks of a pipeline, each with the least time from what it waits for to
what waits for it. The argument why it is a bound:

A step is a graph of tasks: kernels of a rank run one at a time, and a task waits for its input and for the
kernels before it. Each layer is replaced by least times from (input, last kernel) to (result, last kernel,
gradients). These form a matrix over max and plus, so layers multiply. Within a layer two facts of a stream
are used besides the dependencies. A stream starts the free node of the lowest number and runs it to its end,
so u precedes v if u < v and everything u waits for must end before v may start. And kernels that must precede
v have run one after the other. A kernel counts its own integer time. A collective counts one chunk through
all phases, or what the first chunk needs to a port, all bytes through it and the rest of a chunk: sharing
only adds.

The path follows the tasks of one rank per stage, with messages, gathers and reductions in the order of
their communicator, and then the optimizer. It uses a subset of what the simulator waits for, each with a
lower bound, so by induction along the path nothing ends earlier. What is not known takes no time. Slow ranks
are further pipelines, and the largest bound counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.jit import Mode, load
from armillary.engine.common.nodes import OPERATION
from armillary.explore.search import pipeline_kernel as pk
from armillary.explore.search.delays import Delay, delay_of
from armillary.explore.search.least import Group, Least, group_of
from armillary.explore.search.stage import Stage, members, stage_of
from armillary.explore.search.timetable import Timetable, timetable
from armillary.platform.model import Platform
from armillary.trace.grid import RankGrid
from armillary.workload.emit.template import piece
from armillary.workload.layers.embedding import share_of
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.of_model import layers_of, variants
from armillary.workload.models import Model
from armillary.workload.models.schema import Decoder
from armillary.workload.pipeline.partition import partition
from armillary.workload.plan.numbers import cleared, gradient, norm_traffic, traffic
from armillary.workload.plan.ranks import microbatches, rank_grid
from armillary.workload.plan.schema import Plan

Ints = NDArray[np.int64]
INTERPRETED = 100_000
"""Segments of tasks up to which the kernel is interpreted; loading the compiled one takes longer than that."""
MOST_COLUMNS = 4
"""Most pipelines, of slow or late ranks among others, that are evaluated."""

_NOT_IN_LAYERS: dict[str, bool | set[str]] = {
    **dict.fromkeys(("ranks", "batch", "iterations", "pipeline", "data", "optimizer", "offload"), True),
    "parallel": {"pp", "order"},
}
"""Fields of a plan on which layers of decoders do not depend, except as the key in `_layers_of` states."""


class StepBound:
    """Lower bounds of steps on one machine; caches layers and delays."""

    def __init__(self, platform: Platform, mode: Mode | None = None) -> None:
        """Prepare a machine; `mode` is for tests."""
        self.platform, self.mode = platform, mode
        self.least = Least(platform)
        self._layers: dict[tuple[object, ...], list[Layer]] = {}
        self._delays: dict[tuple[object, ...], Delay] = {}
        self.work = 0
        self._models: dict[int, Model] = {}

    def ticks(self, model: Model, plan: Plan) -> int:
        """Return a lower bound in ns of all iterations of a plan.

        Collectives and messages count as if alone in profile ``physical``, kernels by the compute model. What is not
        known takes no time: memory outside of the NPU, all-to-alls of uneven parts, whatever
        ``online-greedy`` chooses, kernels with jitter. Inference, parameter servers and dualpipe have bound 0.

        Raises:
            InputError: the plan is impossible.
        """
        if plan.serve or plan.data.sharding == "parameter-server" or plan.pipeline.schedule == "dualpipe":
            return 0
        grid, count = rank_grid(plan), microbatches(plan)
        # Without a flush between iterations all of them are one long pipeline.
        if plan.pipeline.schedule == "pipedream":
            count *= plan.iterations
        virtual = partition(self._layers_of(model, plan), plan)
        tied = 0
        if isinstance(model, Decoder) and model.tied and plan.parallel.pp > 1 and not plan.lora:
            # Elements of the embedding on each rank of the first and last stage, which reduce its gradient.
            tied = share_of(model.vocabulary, plan.parallel.tp) * model.hidden
        return max(
            _Pipeline(self, plan, grid, virtual, count, tied, column).end()
            for column in _columns(self.platform, model, plan, grid)
        )

    def _layers_of(self, model: Model, plan: Plan) -> list[Layer]:
        whole = not isinstance(model, Decoder)
        # Layers depend on pp only through whether there is a boundary, on sharding only through
        # whether weights are gathered.
        key = (
            id(model), plan.model_dump_json(exclude=None if whole else _NOT_IN_LAYERS),
            plan.data.sharding in ("fsdp", "hsdp"), plan.parallel.pp > 1,
        )  # fmt: skip
        if key not in self._layers:
            self._layers[key] = layers_of(model, plan)
            self._models[id(model)] = model  # keeps its id from being reused
        return self._layers[key]

    def delay(
        self, layer: Layer, kind: str, speed: float, places: Callable[[str], tuple[Group, int]]
    ) -> Delay:
        """Return the least delay of some lists of a layer on a rank of this speed with its groups at these places."""
        lists = {"F": layer.forward, "B": layer.backward, "W": layer.weight}
        chosen = [lists[each] for each in kind]
        steps = [step for each in chosen for step in each]
        axis_sets = dict.fromkeys(step.axes for step in steps if step.axes)
        key = (id(layer), kind, speed, tuple(places(axis_set) for axis_set in axis_sets))
        if key not in self._delays:
            # All kernels of the lists at once: a compute model may evaluate arrays faster.
            self.least.kernels(step for step in steps if not step.axes)

            def least(step: Step) -> int:
                if not step.axes:
                    return self.least.kernel(step, speed)
                group, first = places(step.axes)
                # Uneven all-to-alls, and groups of one rank, take no time here: a bound may only omit.
                if step.splits or prod(n for _, n in group) < 2:
                    return 0
                if step.collective is not None:
                    return self.least.collective(OPERATION[step.collective], step.size, group, first)
                return self.least.shift(group, first, step.shift, step.size)

            self._delays[key] = delay_of(piece(*chosen), steps, least)
        return self._delays[key]


def _columns(platform: Platform, model: Model, plan: Plan, grid: RankGrid) -> list[int]:
    """Return the pipelines to evaluate by their ranks on the first stage: the first, and those of slow or late ranks.

    All of them have the same layers.
    """
    stride, pp = _along_pp(grid), plan.parallel.pp
    speeds, delays = platform.npu.speed, platform.stragglers
    # Ranks of another speed or start, the slowest first: `MOST_COLUMNS` cuts the list.
    odd = sorted(
        {*speeds, *delays},
        key=lambda rank: (speeds.get(rank, 1.0), -delays.get(rank, 0.0), rank),
    )
    # The rank with the same coordinates on the first stage.
    found = [rank - rank // stride % pp * stride for rank in odd if rank < plan.ranks]
    if found:
        axis, alike = variants(model, plan)
        at = grid.coordinate(axis)
        # Ranks whose layers differ from those of the first have another bound, which is not computed.
        found = [rank for rank in found if len(alike) == 1 or alike[int(at[rank])] == alike[0]]
    return list(dict.fromkeys([0, *found]))[:MOST_COLUMNS]


def _along_pp(grid: RankGrid) -> int:
    mesh_dims = [mesh_dim for mesh_dim in grid.axes["pp"] if grid.sizes[mesh_dim] > 1]
    return prod(grid.sizes[: mesh_dims[0]]) if mesh_dims else 1


@dataclass
class _Pipeline:
    """One pipeline: one rank per stage, with the same coordinates along all other axes."""

    on: StepBound
    plan: Plan
    grid: RankGrid
    virtual: list[list[Layer]]
    count: int
    tied: int
    column: int
    places: dict[str, list[tuple[Group, int]]] = field(default_factory=dict)

    def end(self) -> int:
        """Return the earliest possible end of the last iteration in ns."""
        plan, machine = self.plan, self.on.platform
        pp, flush = plan.parallel.pp, plan.pipeline.schedule != "pipedream"
        stride = _along_pp(self.grid)
        self.ranks = [self.column + stage * stride for stage in range(pp)]
        self.speeds = [machine.npu.speed.get(rank, 1.0) for rank in self.ranks]
        table = timetable(
            plan.pipeline.schedule, pp, plan.pipeline.virtual, self.count, plan.pipeline.overlap
        )
        stages = self._stages(table.deferred)
        segments, lists = self._segments(stages)
        lags = self._lags()
        # Late ranks begin after their delay, in whole ns.
        began = [ceil(machine.stragglers.get(rank, 0.0)) for rank in self.ranks]
        ranks = np.zeros((pp, pk.RANK_COLUMNS), np.int64)
        ranks[:, pk.R_CHAIN], ranks[:, pk.R_USED] = began, began
        ranks[:, pk.R_CALLED], ranks[:, pk.R_CALLED + 1] = began, began
        end = 0
        for _ in range(plan.iterations if flush else 1):
            # State within an iteration begins anew; ends of kernels and collectives carry over.
            ranks[:, pk.R_TASK] = table.own_ptr[:-1]
            ranks[:, pk.R_BEFORE] = ranks[:, pk.R_CHAIN]
            ranks[:, [pk.R_SEGMENT, pk.R_USES, pk.R_COUNT]] = 0
            ranks[:, [pk.R_LAYER, pk.R_AHEAD]] = -1
            ranks = self._run(table, lists, segments, lags, ranks)
            end = max(end, int(ranks[:, [pk.R_FINISH, pk.R_CALLED, pk.R_CALLED + 1]].max()))
            if flush:
                end = max(end, self._update(stages, ranks))
        return end

    def place(self, axis_set: str, stage: int) -> tuple[Group, int]:
        """Return the mesh dimensions of an axis set, and where the group of the rank of a stage begins."""
        if axis_set not in self.places:
            group = group_of(self.grid.sizes, self.grid.mesh_dims(axis_set))
            self.places[axis_set] = [(group, self.on.least.place(group, rank)) for rank in self.ranks]
        return self.places[axis_set][stage]

    def _stages(self, deferred: bool) -> list[Stage]:
        """Return the stages; those with equal layers, places and speeds are one object."""
        pp, made = self.plan.parallel.pp, dict[tuple[object, ...], Stage]()
        axis_sets = {f for layers in self.virtual for layer in dict.fromkeys(layers) for f in layer.held}
        axis_sets |= {axis for axis in ("tp", "cp", "ep", "etp", "fsdp") if axis in self.grid.axes}
        found = []
        for stage in range(pp):
            # Virtual stages are dealt out in turn: chunk c of a stage is virtual stage c × pp + stage.
            chunks = self.virtual[stage::pp]
            places = tuple(self.place(axis_set, stage) for axis_set in sorted(axis_sets) if axis_set)
            key = (tuple(tuple(map(id, layers)) for layers in chunks), places, self.speeds[stage])
            if key not in made:
                made[key] = self._stage(stage, chunks, deferred)
            found.append(made[key])
        return found

    def _stage(self, stage: int, chunks: list[list[Layer]], deferred: bool) -> Stage:
        known: dict[tuple[int, str], Delay] = {}

        def delays(layer: Layer, kind: str) -> Delay:
            key = (id(layer), kind)
            if key not in known:
                known[key] = self.on.delay(
                    layer, kind, self.speeds[stage], lambda axis_set: self.place(axis_set, stage)
                )
            return known[key]

        def collective(operation: str, size: int, axis_set: str) -> int:
            return self.on.least.collective(operation, size, *self.place(axis_set, stage))

        return stage_of(self.plan, self.grid, chunks, deferred, delays, collective)

    def _segments(self, stages: list[Stage]) -> tuple[list[int], list[int]]:
        """Return all segments, and the range of each list of `Timetable` in them; equal stages share segments."""
        pp, virtual = self.plan.parallel.pp, self.plan.pipeline.virtual
        flat: list[int] = []
        # Four kinds of lists per chunk and stage, each with its begin and its end.
        lists = [0] * (8 * pp * virtual)
        placed: dict[int, int] = {}
        for s, stage in enumerate(stages):
            for (chunk, kind), rows in stage.lists.items():
                # Equal stages have the same list objects, so their segments are stored once.
                if id(rows) not in placed:
                    placed[id(rows)] = len(flat) // pk.SEGMENT_COLUMNS
                    for row in rows:
                        flat += row
                at = 2 * (4 * (chunk * pp + s) + kind)
                lists[at] = placed[id(rows)]
                lists[at + 1] = placed[id(rows)] + len(rows)
        return flat, lists

    def _lags(self) -> list[int]:
        # Message 2v leads into virtual stage v, 2v + 1 back out of it; v = 0 has none, and the last
        # entry serves tasks that wait for no message.
        pp, lags = self.plan.parallel.pp, [0]
        lags.append(0)
        for v in range(1, len(self.virtual)):
            size = self.virtual[v - 1][-1].boundary
            a, b = self.ranks[(v - 1) % pp], self.ranks[v % pp]
            lags += (
                [self.on.least.message(a, b, size), self.on.least.message(b, a, size)] if a != b else [0, 0]
            )
        return [*lags, 0]

    def _run(
        self, table: Timetable, lists: list[int], segments: list[int], lags: list[int], ranks: Ints
    ) -> Ints:
        """Return the state of the ranks after all tasks."""
        plan, tasks = self.plan, table.tasks
        # Weights are gathered for each use only if they are freed again after it.
        whole = plan.data.sharding in ("zero-3", "fsdp", "hsdp") and plan.data.reshard
        ahead = min(plan.data.prefetch, plan.data.limit - 1) if whole else -1
        n = len(tasks) // pk.TASK_COLUMNS
        work = n * max(1, len(segments) // pk.SEGMENT_COLUMNS * 4 // max(1, len(lists)))
        # Summed over all calls: a search makes many small ones, for which compiling pays, too.
        self.on.work += work
        mode: Mode = self.on.mode or ("interpreted" if self.on.work <= INTERPRETED else "compiled")
        ready = np.full(len(ranks) * (ahead + 1) + 1, pk.NEVER, np.int64)
        given: list[Any] = [tasks, lists, segments, lags, table.own, table.own_ptr, ranks.ravel(), ready]
        out = np.zeros(n, np.int64)
        kernel = load("armillary.explore.search.pipeline_kernel", mode)
        if mode == "compiled":
            flat = [np.ascontiguousarray(each, np.int64) for each in given]
            kernel.run(n, *flat, ahead, out)
            state: Ints = flat[6].reshape(-1, pk.RANK_COLUMNS)
            return state
        plain = [each if isinstance(each, list) else each.tolist() for each in given]
        kernel.run(n, *plain, ahead, out.tolist())
        return np.array(plain[6], np.int64).reshape(-1, pk.RANK_COLUMNS)

    def _update(self, stages: list[Stage], ranks: Ints) -> int:
        """Run the optimizer after the gradients are complete; return the last end in ns."""
        plan, pp, end = self.plan, self.plan.parallel.pp, 0
        done: list[int] = []
        for s, stage in enumerate(stages):
            chain, calls = int(ranks[s, pk.R_CHAIN]), ranks[s, pk.R_CALLED : pk.R_CALLED + 2].tolist()
            done.append(max([chain, *(call for call, has in zip(calls, stage.reduced, strict=True) if has)]))
        if self.tied:
            # First and last stage add up the gradients of the embedding that they share.
            size = self.tied * gradient(plan)
            both = max(done[0], done[-1]) + self.on.least.pair(
                "all-reduce", size, self.ranks[0], self.ranks[-1]
            )
            done[0] = done[-1] = both
        if plan.optimizer == "none":
            return max(done)
        sharded = plan.data.sharding != "ddp"
        # With whole replicas a norm of one replica is that of all; shards and experts differ.
        axis_set = "tp+cp+dp+pp" if sharded or plan.parallel.ep > 1 else "tp+pp"
        met, owners = 0, [s for s in range(pp) if stages[s].owned]
        for s in owners:
            norm = Step("gradient norm", bytes=stages[s].owned * norm_traffic(plan))
            done[s] += self.on.least.kernel(norm, self.speeds[s])
            met = max(met, done[s])
        for s in owners:
            # The norm is one number of fp32, 4 bytes, for which every rank waits.
            if members(self.grid, axis_set) > 1 and len(owners) == pp:
                done[s] = met + self.on.least.collective("all-reduce", 4, *self.place(axis_set, s))
            step = Step("optimizer", bytes=stages[s].owned * traffic(plan))
            done[s] += self.on.least.kernel(step, self.speeds[s])
            ranks[s, pk.R_CHAIN] = done[s]
            if clear := stages[s].kept * cleared(plan):
                # Beside the gathers of new weights.
                step = Step("optimizer: clear gradients", bytes=clear)
                ranks[s, pk.R_CHAIN] += self.on.least.kernel(step, self.speeds[s])
                end = max(end, int(ranks[s, pk.R_CHAIN]))
            for k, took in enumerate(stages[s].gathers):
                # With ZeRO-1 and -2 the new weights are gathered at the end of the step.
                if took:
                    ranks[s, pk.R_CALLED + k] = max(int(ranks[s, pk.R_CALLED + k]), done[s]) + took
            end = max(end, int(ranks[s, pk.R_CALLED : pk.R_CALLED + 2].max()))
        return max(end, *done)
