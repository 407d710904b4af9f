"""A pipeline stage in a step, for the bound: the segments of its tasks, and what follows the last of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import prod

from armillary.explore.search.delays import NOTHING, Delay, repeated, then
from armillary.explore.search.pipeline_kernel import NEVER
from armillary.explore.search.timetable import BACKWARD, FORWARD, LAST, MAKES
from armillary.trace.grid import RankGrid
from armillary.workload.emit.replicas import shard
from armillary.workload.layers.layer import Layer
from armillary.workload.plan.numbers import gradient, weight
from armillary.workload.plan.schema import Plan

Collective = Callable[[str, int, str], int]
"""Least ns of an operation of so many bytes over the group of an axis set."""
Segment = tuple[int, ...]
Delays = Callable[[Layer, str], Delay]


@dataclass
class Stage:
    """Segments of every list of a stage, by (chunk, kind), and the work that follows its last tasks.

    Attributes:
        lists: See `pipeline_kernel.run`.
        owned: Parameters that a rank updates.
        kept: Parameters whose gradients it keeps.
        reduced: Whether a reduction of gradients ends a step.
        gathers: ns of the gathers of new weights after the update, on each of two communicators.
    """

    lists: dict[tuple[int, int], list[Segment]] = field(default_factory=dict)
    owned: int = 0
    kept: int = 0
    reduced: tuple[bool, bool] = (False, False)
    gathers: tuple[int, int] = (0, 0)


def members(grid: RankGrid, axis_set: str) -> int:
    """Return the number of ranks of a group of an axis set."""
    return prod(grid.sizes[mesh_dim] for mesh_dim in grid.mesh_dims(axis_set)) if axis_set else 1


def stage_of(
    plan: Plan,
    grid: RankGrid,
    chunks: Sequence[Sequence[Layer]],
    deferred: bool,
    delays: Delays,
    collective: Collective,
) -> Stage:
    """Return the segments of a stage and what follows them.

    Args:
        plan: The run.
        grid: Its ranks.
        chunks: The layers of each of its virtual stages.
        deferred: Whether gradients of weights are tasks of their own.
        delays: Least delays of a layer, of its lists F, B, W or BW.
        collective: Least ns of a collective.
    """
    made = _Lists(plan, grid, delays, collective)
    kinds = {FORWARD: "F", BACKWARD: "B", MAKES: "W" if deferred else "BW"}
    found = Stage()
    for chunk, layers in enumerate(chunks):
        for kind, steps in kinds.items():
            # Without tasks of their own, gradients of weights belong to the backward tasks.
            if kind != BACKWARD or deferred:
                order = layers if kind == FORWARD else layers[::-1]
                found.lists[chunk, kind] = made.segments(order, steps, chunk)
    # Last tasks run from the last chunk to the first, and buckets fill up in this order.
    for chunk in reversed(range(len(chunks))):
        found.lists[chunk, LAST] = made.last(chunks[chunk][::-1], kinds[MAKES], chunk, chunk == 0)
    found.owned, found.kept = made.owned, made.kept
    found.reduced = (made.calls[0] > 0, made.calls[1] > 0)
    found.gathers = (made.gathers[0], made.gathers[1])
    return found


class _Lists:
    """Builds the segments of a stage; buckets fill up over the last tasks of all chunks."""

    def __init__(self, plan: Plan, grid: RankGrid, delays: Delays, collective: Collective) -> None:
        self.plan, self.grid, self.delays, self.collective = plan, grid, delays, collective
        self.how = plan.data.sharding
        self.whole = self.how in ("zero-3", "fsdp", "hsdp")
        self.gathered = self.whole and plan.data.reshard
        self.each = self.how == "zero-2" or self.gathered
        """Whether gradients are reduced in every microbatch."""
        self.open: dict[str, tuple[int, int]] = {}
        """By axis set, the parameters in the open bucket and the segment that added the last of them."""
        self.owned = self.kept = 0
        self.calls, self.gathers = [0, 0], [0, 0]
        self._ranks: dict[str, int] = {}
        self._before: dict[int, tuple[int, int]] = {}

    def segments(self, layers: Sequence[Layer], steps: str, chunk: int) -> list[Segment]:
        """Return the segments of a task that is not the last of its chunk."""
        makes = "W" in steps
        if self.each and makes:
            return self._by_layer(layers, steps, chunk, closes=True, counts=False)
        if self.gathered:
            return self._each(layers, steps, chunk)
        # Equal layers in a row are one object: their product is a power.
        runs = [(layer, len(list(same))) for layer, same in groupby(layers)]
        total = NOTHING
        for layer, times in runs:
            total = then(total, repeated(self.delays(layer, steps), times))
        return [(*total, 0, 0, 0, 0, -1)]

    def last(self, layers: Sequence[Layer], steps: str, chunk: int, ends: bool) -> list[Segment]:
        """Return the segments of the last task of a chunk, with the reductions of gradients."""
        return self._by_layer(layers, steps, chunk, closes=ends or self.each, counts=True)

    def _each(self, layers: Sequence[Layer], steps: str, chunk: int) -> list[Segment]:
        # Weights are numbered by chunk and layer, the same in forward and backward, so that a use of
        # the same weights in a row needs no second gather. Backward passes visit layers in reverse.
        first, sign = (0, 1) if steps == "F" else (len(layers) - 1, -1)
        return [
            self._segment(layer, steps, (chunk << 16) + first + sign * i) for i, layer in enumerate(layers)
        ]

    def _segment(self, layer: Layer, steps: str, number: int) -> Segment:
        delay = self.delays(layer, steps)
        if not self.gathered or steps == "W":
            return (*delay, 0, 0, 0, 0, -1)
        if delay.end_in == NEVER:  # no kernel waits for the gather
            delay = delay._replace(end_chain=NEVER)
        if id(layer) not in self._before:
            self._before[id(layer)] = self._gathers(layer)
        return (*delay, *self._before[id(layer)], 0, 0, number)

    def _gathers(self, layer: Layer) -> tuple[int, int]:
        gathers = [0, 0]
        for axis_set, parameters in layer.held.items():
            ranks = self._members(axis_set)
            if ranks > 1 and parameters:
                size = shard(parameters, ranks) * weight(self.plan)
                gathers[self._slot(axis_set)] += self.collective("all-gather", size, self._axis_set(axis_set))
        return gathers[0], gathers[1]

    def _members(self, axis_set: str) -> int:
        if axis_set not in self._ranks:
            self._ranks[axis_set] = members(self.grid, self._axis_set(axis_set))
        return self._ranks[axis_set]

    def _by_layer(
        self, layers: Sequence[Layer], steps: str, chunk: int, *, closes: bool, counts: bool
    ) -> list[Segment]:
        """Return a segment for each layer, with the reductions of the buckets that it fills."""
        # What a bucket has of another chunk is there before this one begins.
        found = [[*NOTHING, 0, 0, 0, 0, -1], *map(list, self._each(layers, steps, chunk))]
        self.open = {axis_set: (size, 0) for axis_set, (size, _) in self.open.items()}
        data, element = self.plan.data, gradient(self.plan)
        for i, layer in enumerate(layers, 1):
            for axis_set, parameters in layer.parameters.items():
                self.open[axis_set] = (self.open.get(axis_set, (0, 0))[0] + parameters, i)
                # Sharded weights are reduced layer by layer, others in buckets of `data.bucket` bytes.
                full = self.whole or self.open[axis_set][0] * element >= data.bucket
                if full and data.overlap:
                    self._close(axis_set, found, counts)
        # What is left at the end of the step, or of each microbatch, is reduced though not full.
        if closes:
            for axis_set in list(self.open):
                self._close(axis_set, found, counts)
        return [tuple(row) for row in found]

    def _close(self, axis_set: str, found: list[list[int]], counts: bool) -> None:
        parameters, at = self.open.pop(axis_set)
        ranks = self._members(axis_set)
        # With ddp each rank owns and updates everything, else its shard.
        part = shard(parameters, ranks) if self.how != "ddp" else parameters
        if counts:
            self.owned += part
            self.kept += parameters
        if not parameters or ranks < 2:
            return
        slot, element = self._slot(axis_set), gradient(self.plan)
        if self.how == "ddp":
            took = self.collective("all-reduce", parameters * element, axis_set)
        else:
            took = self.collective("reduce-scatter", part * ranks * element, self._axis_set(axis_set))
            # ZeRO-1 and -2 keep whole weights, which must be gathered after the update.
            if counts and not self.whole:
                self.gathers[slot] += self.collective("all-gather", part * weight(self.plan), axis_set)
        if counts:
            self.calls[slot] += took
        # 8 is S_REDUCE: the reduction follows the segment that made the last gradient.
        found[at][8 + slot] += took

    def _axis_set(self, axis_set: str) -> str:
        # HSDP shards within a group and replicates across groups.
        return "fsdp" if self.how == "hsdp" and axis_set == "dp+cp" else axis_set

    def _slot(self, axis_set: str) -> int:
        # Axis sets of experts have names in e (ep, etp, edp) and a communicator of their own.
        return int(axis_set.startswith("e"))
