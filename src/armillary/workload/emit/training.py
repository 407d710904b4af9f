"""The graph of one pipeline stage in training: tasks in schedule order, and the work of replicas."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from armillary.trace import CollectiveType
from armillary.trace.grid import RankGrid
from armillary.trace.placing import GraphOfTemplates, graphs_of
from armillary.trace.templates import PlacedGraph
from armillary.workload.emit.rank import Nodes, Rank
from armillary.workload.emit.repeats import Again, Repeats, Role
from armillary.workload.emit.replicas import STRATEGIES, update
from armillary.workload.emit.template import NO_HOST, Piece, piece
from armillary.workload.layers.layer import Layer
from armillary.workload.pipeline.tasks import Task, virtual_stage
from armillary.workload.plan.host import Host
from armillary.workload.plan.numbers import gradient, saved, weight
from armillary.workload.plan.scaling import AMAX, TENSORS, recipe_of, weight_traffic
from armillary.workload.plan.schema import Plan

AGREE = "tp+cp+dp"
"""Axes over which delayed scaling reduces largest values, as Megatron-core's amax reduction group."""


BESIDE_ALL = 3
"""`Rank.lane` of the gradients of weights, which fill the idle time of tasks of both other lanes, 1 and 2."""


@dataclass
class Pieces:
    """The pieces of layers, made once for layers that occur often."""

    host: Host = NO_HOST
    made: dict[tuple[int, str, int], Piece] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    """Keeps the layers with pieces alive, as ``id`` could otherwise be reused."""
    repeats: Repeats = field(default_factory=Repeats)

    def of(self, layer: Layer, kind: str, lane: int = 0) -> Piece:
        """Return the piece of a layer for a kind of task, F, B (input gradients), W, or BW, and a `Rank.lane`."""
        key = (id(layer), kind, lane)
        if key not in self.made:
            lists = {"F": layer.forward, "B": layer.backward, "W": layer.weight}
            parts = [layer.in_order] if kind == "BW" and layer.in_order else [lists[each] for each in kind]
            self.made[key] = piece(*parts, host=self.host, lane=lane)
            self.layers.append(layer)
        return self.made[key]


class Stage:
    """One pipeline rank: its virtual stages, its tasks, and the graph made of them."""

    def __init__(
        self,
        plan: Plan,
        grid: RankGrid,
        chunks: Sequence[Sequence[tuple[int, Layer]]],
        tasks: Sequence[Task],
        stage: int,
        pieces: Pieces,
        boundaries: Sequence[int],
        tied: int,
    ) -> None:
        """Prepare a stage.

        Args:
            plan: The run.
            grid: Its ranks.
            chunks: The layers of each of its virtual stages, with their numbers.
            tasks: Of one step (schedule ``pipedream``: of all steps).
            stage: The pipeline rank.
            pieces: Shared by all stages.
            boundaries: Bytes that each virtual stage of the model sends to the next.
            tied: Parameters that the first and the last stage share; 0: none.
        """
        self.plan, self.chunks, self.tasks, self.stage, self.pieces = plan, chunks, tasks, stage, pieces
        self.boundaries = boundaries
        self.stages = plan.parallel.pp
        self.both_ends = plan.pipeline.schedule == "dualpipe"
        # With one stage embedding and head are one weight already, and nobody has to sum.
        self.tied = tied if stage in (0, self.stages - 1) and self.stages > 1 and not self.both_ends else 0
        self.rank = Rank(f"stage {stage}", grid, plan.pipeline.handshake, pieces.repeats.single)
        self.replicas = STRATEGIES[plan.data.sharding](self.rank, plan)
        self.again = Again(self.rank, self.replicas, pieces.repeats)
        self.roles: dict[tuple[str, int, int, bool], Role] = {}
        """By kind, chunk, lane, and whether it fills idle time."""
        recipe = recipe_of(plan)
        self.history = bool(recipe and recipe.history) and self.rank.members(AGREE) > 1
        """Whether ranks with the same layers agree on the largest values of tensors after each pass."""
        self.outputs: dict[tuple[int, int], Nodes] = {}
        """Last nodes of forward tasks whose backward task has not begun, by (microbatch, chunk)."""
        self.here: dict[int, deque[Nodes]] = {}
        """Messages between virtual stages of the only pipeline rank: their nodes, by tag, in order."""
        self.passed: dict[tuple[int, int], Nodes] = {}
        """Ends of B tasks whose W task has not begun, by (microbatch, layer)."""
        self.stored: dict[tuple[int, int], Nodes] = {}
        """Stores of offloaded activations, by (microbatch, layer)."""
        self.updated: Nodes = ()
        """Nodes after which the last step's update is done."""
        self.written: Nodes = ()
        """The last checkpoint that is written beside training."""
        self.samples: Nodes = ()
        """The reading of the next step's samples."""

    def graph(self) -> PlacedGraph:
        """Return the graph of all iterations."""
        return graphs_of([self.placed()])[0]

    def placed(self) -> GraphOfTemplates:
        """Place all iterations."""
        flush = self.plan.pipeline.schedule != "pipedream"
        for iteration in range(self.plan.iterations if flush else 1):
            self._read()
            self._step(flush)
            if self.plan.checkpoint_every and (iteration + 1) % self.plan.checkpoint_every == 0:
                self._checkpoint()
        return self.rank.placing

    def _read(self) -> None:
        """Wait for the samples of a step, and begin to read those of the next; the first step's are there."""
        plan = self.plan
        ends = (0, self.stages - 1) if self.both_ends else (0,)
        if not plan.sample_size or self.stage not in ends:
            return
        rank = self.rank
        # All ranks of a stage that has samples read as much.
        ranks = plan.ranks // self.stages * len(ends)
        size = -(-plan.batch * plan.sample_size // ranks)
        rank.chain = [*rank.chain, *self.samples]
        rank.labels = {"layer": -1, "micro_batch": -1}
        self.samples = (rank.samples(size, rank.chain),)

    def _checkpoint(self) -> None:
        """Write a checkpoint, after the last one."""
        rank, beside = self.rank, self.plan.checkpoint_async
        # As in the libraries, a step waits for the checkpoint before if another is due.
        rank.chain = [*rank.chain, *self.written]
        node = rank.checkpoint(self._checkpointed(), self.updated, beside=beside)
        self.written = (node,) if beside else ()

    def _step(self, flush: bool) -> None:
        # A B without a W of its own makes the gradients of weights itself.
        own_weight = {(task.microbatch, task.chunk) for task in self.tasks if task.kind == "W"}
        makes = [task.kind == "W" or (task.kind == "B" and task[1:] not in own_weight) for task in self.tasks]
        # The task that completes the gradients of each chunk in this step.
        last = {task.chunk: i for i, task in enumerate(self.tasks) if makes[i]}
        # All uses of weights in issue order, so that a sharding strategy can prefetch; a W uses none.
        order = [
            use
            for task in self.tasks
            if task.kind != "W"
            for use in (self.chunks[task.chunk] if task.kind == "F" else reversed(self.chunks[task.chunk]))
        ]
        self.replicas.begin(order)
        overlap, begun = self.plan.pipeline.overlap, 1
        if overlap:
            self.rank.ends = [self.rank.chain]
        # Messages of a rank to itself wait in a queue.
        queued = self.stages == 1 < len(self.boundaries)
        for i, (task, weights) in enumerate(zip(self.tasks, makes, strict=True)):
            kind = "BW" if weights and task.kind == "B" else task.kind
            # A W fills the idle time of the tasks around it.
            fills = kind == "W" and begun > 1
            lane = (BESIDE_ALL if fills else 1 + begun % 2) if overlap else 0
            begun += not fills
            role = self.roles.get((kind, task.chunk, lane, fills))
            if role is None:
                role = self.roles[kind, task.chunk, lane, fills] = self._role(kind, task.chunk, lane, fills)
            complete = weights and (last[task.chunk] == i or not flush)
            if complete or queued or (weights and not self.replicas.waits):
                self.again.settle()
                self._alone(role, task.microbatch, complete)
            else:
                self.again.task(role, task.microbatch, self._alone)
            # PipeDream updates after every microbatch.
            if weights and not flush:
                self._update()
        self.again.settle()
        if self.plan.pipeline.overlap:
            self.rank.chain = [*self.rank.ends[-1], *self.rank.ends[-2]]
        if flush:
            self._update()

    def _role(self, kind: str, chunk: int, lane: int, fills: bool) -> Role:
        """Return what is common to all tasks of a kind of a virtual stage."""
        virtual, ahead, tag = self._place(chunk)
        layers = self.chunks[chunk]
        uses = tuple(layers if kind == "F" else reversed(layers))
        before = self.boundaries[virtual - 1] if virtual else None
        behind = self.boundaries[virtual] if virtual < len(self.boundaries) - 1 else None
        first = layers[0][0]
        alike = tuple((number - first, id(layer)) for number, layer in uses)
        key = self.pieces.repeats.role((kind, lane, fills, ahead, before, behind, alike))
        stored = [(self.stored, n) for n, layer in uses if self.plan.offload.activations and layer.saved]
        passed, outputs = [(self.passed, number) for number, _ in uses], [(self.outputs, chunk)]
        reads = {"F": [], "W": passed}.get(kind, outputs + stored)
        keeps = {"F": outputs + stored, "B": passed}.get(kind, [])
        return Role(key, kind, uses, first, chunk, tag, lane, fills, tuple(reads), tuple(keeps))

    def _alone(self, role: Role, microbatch: int, complete: bool) -> None:
        """Place a task node by node; `complete`: the gradients of its layers are complete with it."""
        rank = self.rank
        if rank.ends:
            # A task waits for the one before the last, so it runs beside the last; a W beside its own B.
            rank.chain = rank.ends[max(len(rank.ends) - 2 - role.fills, 0)]
        # Each has communicators of its own, as NCCL calls of two streams on one would meet in any order.
        rank.lane, rank.labels["micro_batch"] = role.lane, microbatch
        if role.kind == "F":
            self._forward(microbatch, role.chunk)
        else:
            self._backward(microbatch, role.chunk, role.kind, complete)
        if rank.ends and role.fills:
            rank.ends[-1] = [*rank.ends[-1], *rank.chain]
        elif rank.ends:
            rank.ends = [*rank.ends[-2:], rank.chain]
        if "W" in role.kind:
            self.replicas.passed(complete)

    def _update(self) -> None:
        self.rank.labels = {"layer": -1, "micro_batch": -1}
        if self.tied:
            done = self.replicas.reduce()
            size = self.tied * gradient(self.plan)
            after = [*done, *self.rank.chain]
            self.replicas.reduced = [
                self.rank.collective("tied embedding", CollectiveType.ALL_REDUCE, "pp.ends", size, after)
            ]
        if self.both_ends:
            self.replicas.reduced = [self._summed_with_copy()]
        clips = self.plan.pipeline.schedule != "pipedream"
        self.updated = update(self.rank, self.plan, self.replicas, clips)
        # Frozen weights are quantised once, before the first step.
        low = 0 if self.plan.lora else sum(layer.low for chunk in self.chunks for _, layer in chunk)
        if moved := ceil(low * weight_traffic(self.plan)):
            self.rank.kernel("quantize weights", moved, [])

    def _checkpointed(self) -> int:
        """Return the bytes of a checkpoint that each rank writes: ranks that hold the same share it evenly."""
        kept: Counter[str] = Counter()
        partial = 0
        for layer in (layer for chunk in self.chunks for _, layer in chunk):
            kept.update(layer.parameters)
            partial += layer.partial
        first = next(iter(kept), "")
        # All ranks of tp hold what is partial; of two ends that share a table the first writes it.
        kept[first] -= partial - partial // self.plan.parallel.tp + (self.tied if self.stage else 0)
        # With a pipeline from both ends a second stage holds a copy of the weights.
        copies = 2 if self.both_ends else 1
        return sum(
            -(-count * saved(self.plan) // (copies * self.rank.members(axis_set)))
            for axis_set, count in kept.items()
        )

    def _summed_with_copy(self) -> int:
        """Add the gradients of the rank with the other copy of the weights, as far from the other end."""
        done = self.replicas.reduce()
        size, steps = self.replicas.owned * gradient(self.plan), self.stages - 1 - 2 * self.stage
        tag = 4 * self.stages
        sent = self.rank.send("send gradients to the copy", "pp", steps, size, tag, done)
        there = self.rank.recv("receive gradients of the copy", "pp", steps, size, tag)
        return self.rank.kernel("add gradients of the copy", 3 * size, [*done, sent, there])

    def _place(self, chunk: int) -> tuple[int, int, int]:
        """Return the virtual stage of a chunk, ranks to the next one, and the tag of activations into it.

        Tags: activations into virtual stage v have 2v, gradients into it 2v + 1, so directions never mix; the same
        beyond these in a pipeline that begins at the other end.
        """
        virtual = virtual_stage(self.plan.pipeline.schedule, self.stages, self.stage, chunk)
        turned = self.both_ends and chunk == 1
        return virtual, -1 if turned else 1, 2 * (virtual + turned * self.stages)

    def _forward(self, microbatch: int, chunk: int) -> None:
        virtual, ahead, tag = self._place(chunk)
        now: Nodes = ()
        self.rank.labels["layer"] = -1
        if virtual:
            now = self._receive("activations", -ahead, self.boundaries[virtual - 1], tag)
        for number, layer in self.chunks[chunk]:
            self.rank.labels["layer"] = number
            now = self._use(layer, number, "F", now, ())
            if self.plan.offload.activations and layer.saved:
                size = int(layer.saved * self.plan.offload.activations)
                self.stored[microbatch, number] = [self.rank.memory("store activations", False, size, now)]
        self._agree("forward", chunk, now)
        self.outputs[microbatch, chunk] = now
        if virtual < len(self.boundaries) - 1:
            self._send("activations", ahead, self.boundaries[virtual], tag + 2, now)

    def _backward(self, microbatch: int, chunk: int, kind: str, last: bool) -> None:
        virtual, ahead, tag = self._place(chunk)
        now: Nodes = ()
        self.rank.labels["layer"] = -1
        if kind != "W":
            # The last virtual stage goes back at once from its own loss.
            now = self.outputs.pop((microbatch, chunk))
            if virtual < len(self.boundaries) - 1:
                now = self._receive("gradients", ahead, self.boundaries[virtual], tag + 1)
        for number, layer in reversed(self.chunks[chunk]):
            self.rank.labels["layer"] = number
            also: Nodes = ()
            if kind != "W" and (stored := self.stored.pop((microbatch, number), None)):
                size = int(layer.saved * (self.plan.offload.activations or 0))
                # Loaded when the kernels before are done: earlier would hold the memory that offloading frees.
                also = [self.rank.memory("load activations", True, size, [*stored, *self.rank.chain])]
            now = self._use(layer, number, kind, now, also, last)
        if kind != "W":
            self._agree("backward", chunk, now)
        if kind != "W" and virtual:
            # Frameworks send when the whole backward pass has returned, gradients of weights included.
            after = [*now, *self.rank.chain]
            self._send("gradients", -ahead, self.boundaries[virtual - 1], tag - 1, after)

    def _agree(self, direction: str, chunk: int, after: Nodes) -> None:
        """Reduce the largest values of the tensors of a pass; what follows is scaled by them."""
        if not self.history:
            return
        # One GEMM of the forward pass for each linear layer.
        layers = sum(bool(step.scaling) for _, layer in self.chunks[chunk] for step in layer.forward)
        if layers:
            self.rank.labels["layer"] = -1
            size = layers * TENSORS[direction] * AMAX
            after = [*after, *self.rank.chain]
            node = self.rank.collective(
                f"amax {direction}", CollectiveType.ALL_REDUCE, AGREE, size, after, self.rank.lane
            )
            self.rank.chain = [node]

    def _part(self, size: int) -> int:
        """Return the bytes of a message: with `scatter`, each rank of tp sends a part of the boundary."""
        own = self.plan.parallel
        return -(-size // own.tp) if self.plan.pipeline.scatter and not own.sequence else size

    def _send(self, what: str, steps: int, size: int, tag: int, after: Nodes) -> None:
        """Send a boundary of `size` bytes; for a virtual stage on the same rank only a dependency remains."""
        if self.stages == 1:
            self.here.setdefault(tag, deque()).append(after)
        else:
            self.rank.send(f"send {what}", "pp", steps, self._part(size), tag, after)

    def _receive(self, what: str, steps: int, size: int, tag: int) -> Nodes:
        """Receive a boundary of `size` bytes, and gather it if each rank of tp receives a part."""
        if self.stages == 1:
            return self.here[tag].popleft()
        part = self._part(size)
        now = [self.rank.recv(f"receive {what}", "pp", steps, part, tag)]
        if part < size:
            kind = CollectiveType.ALL_GATHER
            now = [self.rank.collective(f"gather {what}", kind, "tp", part, now, self.rank.lane)]
        return now

    def _use(
        self, layer: Layer, number: int, kind: str, now: Nodes, also: Nodes, last: bool = False
    ) -> Nodes:
        """Place a layer with its weights, and return the nodes after which its result is available."""
        made = self.pieces.of(layer, kind, self.rank.lane)
        if kind != "W":
            also = [*also, *self.replicas.weights(number), *self._load(layer)]
        key = (self.rank.labels["micro_batch"], number)
        if kind == "W":
            # A deferred W needs the activation gradients that its B made.
            now = [*now, *self.passed.pop(key)]
        base = self.rank.piece(made, now, also)
        if kind == "B":
            self.passed[key] = [base + node for node in made.ends]
        # A layer may have no steps of a kind, such as the backward pass of patches without dropout.
        done = [base + node for node in made.last] or now
        if kind != "W":
            self.again.used.append(self.rank.chain[0])
            self.replicas.used(self.rank.chain[0])
        made_by = ([base + node for node in made.ends] or done) if "W" in kind and layer.parameters else None
        self.again.gradients.append(made_by)
        if made_by is not None:
            self.replicas.gradients(number, layer, made_by, last)
        return done

    def _load(self, layer: Layer) -> Nodes:
        """Load offloaded weights; of sharded layers, only this rank's shard."""
        size = (
            sum(self.replicas.kept(*each) for each in layer.held.items()) if self.plan.offload.weights else 0
        )
        moved = int(size * weight(self.plan) * (self.plan.offload.weights or 0))
        return [self.rank.memory("load weights", True, moved, self.rank.chain)] if moved else ()
