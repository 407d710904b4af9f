"""Data-parallel strategies: how replicas reduce, shard and gather weights and gradients.

A strategy is notified before and after each use of a layer's weights, of each gradient, and of the end of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from armillary.trace import CollectiveType
from armillary.workload.emit.rank import Nodes, Rank
from armillary.workload.layers.layer import Layer
from armillary.workload.plan.numbers import FP32, cleared, gradient, norm_traffic, state, traffic, weight
from armillary.workload.plan.schema import Plan

PARTIAL = "partial gradients"
"""Name of the sum over tp of gradients of which every rank computes a part."""


def shard(size: int, ranks: int) -> int:
    """Return the bytes of one of equal parts; the last of them is padded."""
    return -(-size // ranks)


@dataclass
class Bucket:
    """Gradients that are reduced together: the layers, their parameters, and the nodes that make them."""

    parameters: int = 0
    partial: int = 0
    """How many of the parameters have gradients that are also summed over tp."""
    nodes: list[int] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)


class Replicated:
    """Every replica has all weights (DDP); each bucket of gradients is all-reduced in the last backward pass."""

    every_microbatch = False
    """Whether gradients are reduced in every microbatch rather than the last one only."""
    sharded = False
    """Whether replicas update different parts."""

    def __init__(self, rank: Rank, plan: Plan) -> None:
        self.rank, self.plan = rank, plan
        self.element, self.weight = gradient(plan), weight(plan)
        self.open: dict[str, Bucket] = {}
        self.reduced: list[int] = []
        self.buckets: list[tuple[str, Bucket]] = []
        """Those that were reduced, with their axis sets, where their weights are to be gathered."""
        self.added: dict[int, list[int]] = {}
        """Nodes that accumulated gradients of earlier microbatches, by layer."""
        self.partial = 0
        """Parameters of this step whose gradients are still to be summed over tp."""
        self.owned = 0
        """Parameters that this rank updates."""
        self.whole = 0
        """Parameters whose gradients it keeps."""

    def begin(self, uses: Sequence[tuple[int, Layer]]) -> None:
        """Announce the layers whose weights a step will use, in order."""

    def weights(self, layer: int) -> Nodes:
        """Return the nodes after which the weights of a layer are available."""
        return ()

    def ready(self, layer: int) -> Nodes | None:
        """Return what `weights` would, if it would place nothing; else None."""
        return self.weights(layer)

    @property
    def settled(self) -> bool:
        """Whether `used` has no effect on what is placed in this step."""
        return True

    @property
    def waits(self) -> bool:
        """Whether gradients of a microbatch that is not the last do not meet those of other tasks yet."""
        return not (self.every_microbatch and self.open)

    def used(self, node: int) -> None:
        """Record the kernel that ends the last use."""

    def note(self, number: int, nodes: Nodes) -> None:
        """Record the nodes that make gradients of a layer, to which those of later microbatches are added."""
        self.added.setdefault(number, []).extend(nodes)

    def gradients(self, number: int, layer: Layer, nodes: Nodes, last: bool) -> None:
        """Record the nodes that make the gradients of a layer; `last`: of the last microbatch."""
        if not last and not self.every_microbatch:
            self.note(number, nodes)
            return
        # The sum is complete only with what earlier microbatches added.
        nodes = [*self.added.pop(number, ()), *nodes]
        for place, (axis_set, parameters) in enumerate(layer.parameters.items()):
            bucket = self.open.setdefault(axis_set, Bucket())
            bucket.parameters += parameters
            # `Layer.partial` counts parameters under the first key.
            bucket.partial += layer.partial if place == 0 else 0
            bucket.nodes += nodes
            bucket.layers.append(number)
            # Buckets close as soon as they are full, in the order of the backward pass, as in PyTorch's DDP.
            if bucket.parameters * self.element >= self.plan.data.bucket and self.plan.data.overlap:
                self._flush(axis_set, last)

    def passed(self, last: bool) -> None:
        """Record the end of a backward pass; `last`: of the last microbatch."""
        if self.every_microbatch:
            self._flush_all(last)

    def reduce(self) -> Nodes:
        """Reduce the remaining gradients, and return the nodes after which all gradients are complete.

        Megatron-LM sums the partial ones over tp in one call at the end, after the reduction over replicas.
        """
        self._flush_all(True)
        done, self.reduced = self.reduced, []
        partial, self.partial = self.partial, 0
        return [*done, *self.summed_over_tp(partial, done)] if partial else done

    def summed_over_tp(self, partial: int, after: Nodes) -> list[int]:
        """Sum `partial` gradients, of which every rank of tp has a part, over tp."""
        size = partial * self.element
        return [self.rank.collective(PARTIAL, CollectiveType.ALL_REDUCE, "tp", size, after)]

    def updated(self, node: int) -> None:
        """Record the node after which the optimizer has new weights."""

    def _flush_all(self, last: bool) -> None:
        for axis_set in list(self.open):
            self._flush(axis_set, last)

    def _flush(self, axis_set: str, last: bool) -> None:
        bucket = self.open.pop(axis_set)
        if last and axis_set:  # rows of tables, in no axis set, were updated after each microbatch
            self.owned += self.part(axis_set, bucket.parameters)
            self.whole += bucket.parameters
        if bucket.parameters:
            bucket.nodes = self.prepared(bucket, self.rank.members(axis_set))
            self.reduced += (
                self.communicate(axis_set, bucket) if self.rank.members(axis_set) > 1 else bucket.nodes
            )
        if last:
            self.partial += bucket.partial

    def prepared(self, bucket: Bucket, members: int) -> list[int]:
        """Return the nodes after which a bucket may be reduced: checked and, for an average over members, scaled."""
        size, nodes = bucket.parameters * self.element, bucket.nodes
        if self.plan.data.check:
            nodes = [self.rank.kernel("check gradients", size, nodes)]
        if self.plan.data.average == "kernel" and members > 1:
            nodes = [self.rank.kernel("scale gradients", 2 * size, nodes)]
        return nodes

    def part(self, axis_set: str, parameters: int) -> int:
        """Return how many of these parameters this rank updates."""
        return parameters

    def kept(self, axis_set: str, parameters: int) -> int:
        """Return how many of these weights this rank holds between two uses."""
        return parameters

    def communicate(self, axis_set: str, bucket: Bucket) -> list[int]:
        """Reduce a bucket, and return the nodes that end it."""
        size = bucket.parameters * self.element
        return [
            self.rank.collective("gradients", CollectiveType.ALL_REDUCE, axis_set, size, bucket.nodes),
        ]


class ShardedOptimizer(Replicated):
    """Each replica updates a part of the weights (ZeRO-1 and 2): reduce-scatter, update, all-gather."""

    sharded = True

    def __init__(self, rank: Rank, plan: Plan) -> None:
        super().__init__(rank, plan)
        self.every_microbatch = plan.data.sharding == "zero-2"
        self.gathered: dict[int, list[int]] = {}

    def part(self, axis_set: str, parameters: int) -> int:
        """Return the size of the shard."""
        return shard(parameters, self.rank.members(axis_set))

    def communicate(self, axis_set: str, bucket: Bucket) -> list[int]:
        """Reduce and scatter a bucket."""
        self.buckets.append((axis_set, bucket))
        size = self.part(axis_set, bucket.parameters) * self.rank.members(axis_set) * self.element
        return [
            self.rank.collective("gradients", CollectiveType.REDUCE_SCATTER, axis_set, size, bucket.nodes)
        ]

    def updated(self, node: int) -> None:
        """Gather the new weights, those of the first layers first."""
        self.gathered = {}
        # ZeRO-2 reduces a bucket in every microbatch, but its weights are gathered once.
        latest = {(axis_set, *bucket.layers): (axis_set, bucket) for axis_set, bucket in self.buckets}
        # Buckets are in the order of the backward pass; the next forward pass needs them reversed.
        for axis_set, bucket in reversed(latest.values()):
            size = self.part(axis_set, bucket.parameters) * self.weight
            done = self.rank.collective("weights", CollectiveType.ALL_GATHER, axis_set, size, [node])
            for layer in bucket.layers:
                self.gathered.setdefault(layer, []).append(done)
        self.buckets = []

    def weights(self, layer: int) -> Nodes:
        """Return the gathers of a layer's weights."""
        return self.gathered.get(layer, ())


class Sharded(Replicated):
    """Each replica keeps a shard of everything (ZeRO-3, FSDP, HSDP): layers are gathered for each use.

    A gather starts when the use `limit` places before it is done, at most `prefetch` uses ahead of its own. Without
    `reshard` a layer is gathered for its first use in a step only, and gradients are reduced in the last microbatch.
    """

    sharded = True

    def __init__(self, rank: Rank, plan: Plan) -> None:
        super().__init__(rank, plan)
        self.hybrid = plan.data.sharding == "hsdp"
        self.every_microbatch = plan.data.reshard
        self.uses: list[tuple[int, Layer]] = []
        self.now = -1
        self.gathers: list[list[int]] = []
        self.ends: list[int] = []
        self.fresh: Nodes = ()
        """The end of the last update."""
        self.copied = 0
        """Uses of this step before which weights were copied out of what gathered them."""

    def begin(self, uses: Sequence[tuple[int, Layer]]) -> None:
        """Plan the gathers of a step; a layer that is used twice in a row is gathered once."""
        if self.plan.data.reshard:
            self.uses = [use for i, use in enumerate(uses) if i == 0 or use[0] != uses[i - 1][0]]
        else:
            # A dict keeps the place of the first use of each layer.
            self.uses = list(dict(uses).items())
        self.place = {number: at for at, (number, _) in enumerate(self.uses)}
        self.gathers, self.ends, self.now, self.copied = [], [], -1, 0

    def prepared(self, bucket: Bucket, members: int) -> list[int]:
        """Return the nodes that make gradients: the collective averages them."""
        return bucket.nodes

    def axis_set(self, axis_set: str) -> str:
        """Return the axis set over which the parameters of an axis set are sharded."""
        return "fsdp" if self.hybrid and axis_set == "dp+cp" else axis_set

    def weights(self, layer: int) -> Nodes:
        """Place the gathers of this use and of the prefetched ones, and return those of this use."""
        if not self.plan.data.reshard:
            self.now = self.place[layer]
        # Two uses in a row share a gather, such as the last forward and the first backward of a stage.
        elif self.now < 0 or self.uses[self.now][0] != layer:
            self.now += 1
        ahead = self._ahead()
        while len(self.gathers) <= self._until(self.now):
            at = len(self.gathers)
            # Its buffer is free after the use that far before; a slice, as that may not have been placed.
            before = self.ends[at - ahead - 1 : at - ahead] if at > ahead else []
            self.gathers.append(list(self._gather(self.uses[at][1], [*self.fresh, *before])))
        if self.plan.data.copies and self.copied <= self.now:
            self.copied = self.now + 1
            if done := self.gathers[self.now]:
                size = self._bytes_copied(self.uses[self.now][1])
                self.gathers[self.now] = [self.rank.kernel("copy weights", size, done)]
        return self.gathers[self.now]

    def ready(self, layer: int) -> Nodes | None:
        """See `Replicated`: a gather may be due, of this layer or of one ahead."""
        at = self.place[layer]
        to_copy = self.plan.data.copies and self.copied <= at
        due = self.plan.data.reshard or to_copy or len(self.gathers) <= self._until(at)
        return None if due else self.gathers[at]

    @property
    def settled(self) -> bool:
        """See `Replicated`: a gather that is to come waits for the end of a use."""
        return len(self.gathers) == len(self.uses)

    @property
    def waits(self) -> bool:
        """See `Replicated`: a bucket that is open is reduced with the next gradients, and so are partial ones here."""
        return not self.every_microbatch and not self.open

    def _until(self, now: int) -> int:
        """Return the last use whose gather is placed by a use."""
        return min(now + self._ahead(), len(self.uses) - 1)

    def _ahead(self) -> int:
        # With `limit` layers held, one is in use: at most one fewer can be ahead.
        return min(self.plan.data.prefetch, self.plan.data.limit - 1)

    def gradients(self, number: int, layer: Layer, nodes: Nodes, last: bool) -> None:
        """Reduce the gradients of this layer."""
        super().gradients(number, layer, nodes, last)
        if self.plan.data.overlap:
            self._flush_all(last)

    def used(self, node: int) -> None:
        """Record the end of this use, for which a later gather waits."""
        self.ends[self.now : self.now + 1] = [node]

    def _gather(self, layer: Layer, after: Nodes) -> Iterator[int]:
        for axis_set, parameters in layer.held.items():
            ranks = self.rank.members(self.axis_set(axis_set))
            if ranks > 1 and parameters:
                size = shard(parameters, ranks) * self.weight
                yield self.rank.collective(
                    "weights", CollectiveType.ALL_GATHER, self.axis_set(axis_set), size, after
                )

    def _bytes_copied(self, layer: Layer) -> int:
        """Return the bytes of casting what is gathered of a layer, and of copying it into buffers and out of them."""
        held = [(count, self.rank.members(self.axis_set(name))) for name, count in layer.held.items()]
        # Shards are fp32: one pass casts them, another puts them into the buffer.
        cast, out = FP32 + 3 * self.weight, 2 * self.weight
        return sum(shard(count, ranks) * cast + count * out for count, ranks in held if ranks > 1)

    def part(self, axis_set: str, parameters: int) -> int:
        """Return the size of the shard."""
        return shard(parameters, self.rank.members(self.axis_set(axis_set)))

    def kept(self, axis_set: str, parameters: int) -> int:
        """Return the size of the shard."""
        return self.part(axis_set, parameters)

    def communicate(self, axis_set: str, bucket: Bucket) -> list[int]:
        """Reduce-scatter a bucket, and all-reduce it over the replicas of its shards.

        Partial gradients are summed over tp first, as DTensor does: afterwards a rank has only a shard of them.
        """
        ranks = self.rank.members(self.axis_set(axis_set))
        own = self.part(axis_set, bucket.parameters) * self.element
        done: Nodes = bucket.nodes
        if bucket.partial:
            # Gradients may be made when later layers have called tp, as in a zero-bubble schedule.
            done = self.summed_over_tp(bucket.partial, [*done, *self.rank.calls_beside("tp", done)])
            # Already summed here, so `reduce` must not sum it again at the end.
            bucket.partial = 0
        if ranks > 1:
            if self.plan.data.copies:
                # Read as the backward pass makes them, written as they are summed.
                size = bucket.parameters * (self.weight + self.element)
                done = [self.rank.kernel("copy gradients", size, done)]
            kind = CollectiveType.REDUCE_SCATTER
            done = [self.rank.collective("gradients", kind, self.axis_set(axis_set), own * ranks, done)]
        if self.axis_set(axis_set) != axis_set and self.rank.members("replicate") > 1:
            kind = CollectiveType.ALL_REDUCE
            done = [self.rank.collective("shards of gradients", kind, "replicate", own, done)]
        return list(done)

    def updated(self, node: int) -> None:
        """Let the next gathers wait for the update."""
        self.fresh = [node]


STRATEGIES: dict[str, type[Replicated]] = {
    "ddp": Replicated,
    "zero-1": ShardedOptimizer,
    "zero-2": ShardedOptimizer,
    "zero-3": Sharded,
    "fsdp": Sharded,
    "hsdp": Sharded,
}


def update(rank: Rank, plan: Plan, replicas: Replicated, clip: bool) -> Nodes:
    """Reduce the remaining gradients, clip by their global norm, and update the parameters that the rank owns.

    Returns the nodes after which that is done.
    """
    done = replicas.reduce()
    owned, whole, replicas.owned, replicas.whole = replicas.owned, replicas.whole, 0, 0
    if plan.optimizer == "none" or not owned:
        return done
    if clip:
        # Where replicas own different parameters (shards, or experts), the norm needs all ranks; else those
        # that hold one copy of the model.
        axis_set = "tp+cp+dp+pp" if replicas.sharded or plan.parallel.ep > 1 else "tp+pp"
        done = [rank.kernel("gradient norm", owned * norm_traffic(plan), done)]
        if rank.members(axis_set) > 1:
            done = [rank.collective("gradient norm", CollectiveType.ALL_REDUCE, axis_set, 4, done)]
    # Offloaded optimizer states make a round trip through the NPU.
    moved = int(owned * state(plan) * (plan.offload.optimizer or 0))
    if moved:
        done = [rank.memory("optimizer states", True, moved, done)]
    node = rank.kernel("optimizer", owned * traffic(plan, clips=clip), done)
    if moved:
        node = rank.memory("optimizer states back", False, moved, [node])
    replicas.updated(node)
    if clear := whole * cleared(plan):
        rank.kernel("optimizer: clear gradients", clear, [])
    return [node]
