"""The graph of one pipeline stage in training: tasks in the order of the schedule, and what replicas do."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from armillary.trace import CollectiveType, Graph
from armillary.trace.grid import RankGrid
from armillary.workload.emit.rank import Nodes, Rank
from armillary.workload.emit.replicas import STRATEGIES, update
from armillary.workload.emit.template import Piece, piece
from armillary.workload.layers.layer import Layer
from armillary.workload.pipeline.tasks import Task
from armillary.workload.plan.numbers import gradient, weight
from armillary.workload.plan.schema import Plan


@dataclass
class Pieces:
    """The pieces of layers; a layer that occurs often is made once."""

    made: dict[tuple[int, str], Piece] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    """Those that have pieces: their ids stay taken."""

    def of(self, layer: Layer, kind: str) -> Piece:
        """Return the piece of a layer for a kind of task: F, B (input gradients), W, or BW."""
        key = (id(layer), kind)
        if key not in self.made:
            lists = {"F": layer.forward, "B": layer.backward, "W": layer.weight}
            self.made[key] = piece(*(lists[each] for each in kind))
            self.layers.append(layer)
        return self.made[key]


class Stage:
    """One pipeline rank: its virtual stages, its tasks, and the graph that they become."""

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
            stage: Which.
            pieces: Shared by all stages.
            boundaries: Bytes that each virtual stage of the model hands on.
            tied: Parameters that the first and the last stage have in common; 0: none.
        """
        self.plan, self.chunks, self.tasks, self.stage, self.pieces = plan, chunks, tasks, stage, pieces
        self.boundaries = boundaries
        self.stages = plan.parallel.pp
        self.tied = tied if stage in (0, self.stages - 1) and self.stages > 1 else 0
        self.rank = Rank(f"stage {stage}", grid, plan.pipeline.handshake)
        self.replicas = STRATEGIES[plan.data.sharding](self.rank, plan)
        self.outputs: dict[tuple[int, int], Nodes] = {}
        """Of forward tasks whose backward task has not begun, by (microbatch, chunk)."""
        self.here: dict[int, deque[Nodes]] = {}
        """What one virtual stage of this only rank of a pipeline has left for another, by tag, in order."""
        self.passed: dict[tuple[int, int], Nodes] = {}
        """Ends of B tasks whose W task has not begun, by (microbatch, layer)."""
        self.stored: dict[tuple[int, int], Nodes] = {}
        """Stores of activations that are kept elsewhere, by (microbatch, layer)."""

    def graph(self) -> Graph:
        """Return the graph of all iterations."""
        flush = self.plan.pipeline.schedule != "pipedream"
        for _ in range(self.plan.iterations if flush else 1):
            self._step(flush)
        return self.rank.graph()

    def _step(self, flush: bool) -> None:
        own_weight = {(task.microbatch, task.chunk) for task in self.tasks if task.kind == "W"}
        makes = [task.kind == "W" or (task.kind == "B" and task[1:] not in own_weight) for task in self.tasks]
        last = {task.chunk: i for i, task in enumerate(self.tasks) if makes[i]}
        order = [
            use
            for task in self.tasks
            if task.kind != "W"
            for use in (self.chunks[task.chunk] if task.kind == "F" else reversed(self.chunks[task.chunk]))
        ]
        self.replicas.begin(order)
        ends: list[Nodes] = [self.rank.chain]
        """Before the first task and after each; what a W leaves idle is for the tasks around it, so it has none."""
        for i, task in enumerate(self.tasks):
            fills = task.kind == "W" and len(ends) > 1
            if self.plan.pipeline.overlap:
                self.rank.chain = ends[max(len(ends) - 2 - fills, 0)]
            self.rank.labels["micro_batch"] = task.microbatch
            if task.kind == "F":
                self._forward(task)
            else:
                kind = "W" if task.kind == "W" else "BW" if makes[i] else "B"
                self._backward(task, kind, last[task.chunk] == i or not flush)
            if makes[i]:
                self.replicas.passed(last[task.chunk] == i or not flush)
            if fills:
                ends[-1] = [*ends[-1], *self.rank.chain]
            else:
                ends.append(self.rank.chain)
            if makes[i] and not flush:
                self._update()
        if self.plan.pipeline.overlap:
            self.rank.chain = [*ends[-1], *ends[-2]]
        if flush:
            self._update()

    def _update(self) -> None:
        self.rank.labels = {"layer": -1, "micro_batch": -1}
        if self.tied:
            done = self.replicas.reduce()
            size = self.tied * gradient(self.plan)
            after = [*done, *self.rank.chain]
            self.replicas.reduced = [
                self.rank.collective("tied embedding", CollectiveType.ALL_REDUCE, "pp.ends", size, after)
            ]
        update(self.rank, self.plan, self.replicas, self.plan.pipeline.schedule != "pipedream")

    def _forward(self, task: Task) -> None:
        virtual = task.chunk * self.stages + self.stage
        now: Nodes = ()
        self.rank.labels["layer"] = -1
        if virtual:
            now = self._receive("activations", -1, self.boundaries[virtual - 1], 2 * virtual)
        for number, layer in self.chunks[task.chunk]:
            self.rank.labels["layer"] = number
            now = self._use(layer, number, "F", now, ())
            if self.plan.offload.activations and layer.saved:
                size = int(layer.saved * self.plan.offload.activations)
                self.stored[task.microbatch, number] = [
                    self.rank.memory("store activations", False, size, now)
                ]
        self.outputs[task.microbatch, task.chunk] = now
        if virtual < len(self.boundaries) - 1:
            self._send("activations", 1, self.boundaries[virtual], 2 * virtual + 2, now)

    def _backward(self, task: Task, kind: str, last: bool) -> None:
        virtual = task.chunk * self.stages + self.stage
        now: Nodes = ()
        self.rank.labels["layer"] = -1
        if kind != "W":
            now = self.outputs.pop((task.microbatch, task.chunk))
            if virtual < len(self.boundaries) - 1:
                now = self._receive("gradients", 1, self.boundaries[virtual], 2 * virtual + 1)
        for number, layer in reversed(self.chunks[task.chunk]):
            self.rank.labels["layer"] = number
            also: Nodes = ()
            if kind != "W" and (stored := self.stored.pop((task.microbatch, number), None)):
                size = int(layer.saved * (self.plan.offload.activations or 0))
                also = [self.rank.memory("load activations", True, size, [*stored, *self.rank.chain])]
            now = self._use(layer, number, kind, now, also, last)
        if kind != "W" and virtual:
            # Frameworks send when the whole backward pass has returned, gradients of weights included.
            after = [*now, *self.rank.chain]
            self._send("gradients", -1, self.boundaries[virtual - 1], 2 * virtual - 1, after)

    def _part(self, size: int) -> int:
        """Return the bytes of a message: a part of the boundary where ranks of tp have copies of it and share them."""
        own = self.plan.parallel
        return -(-size // own.tp) if self.plan.pipeline.scatter and not own.sequence else size

    def _send(self, what: str, steps: int, size: int, tag: int, after: Nodes) -> None:
        """Send a boundary of `size` bytes; what goes to a virtual stage of the same rank stays where it is."""
        if self.stages == 1:
            self.here.setdefault(tag, deque()).append(after)
        else:
            self.rank.send(f"send {what}", "pp", steps, self._part(size), tag, after)

    def _receive(self, what: str, steps: int, size: int, tag: int) -> Nodes:
        """Receive a boundary of `size` bytes, and gather it where each rank of tp has a part."""
        if self.stages == 1:
            return self.here[tag].popleft()
        part = self._part(size)
        now = [self.rank.recv(f"receive {what}", "pp", steps, part, tag)]
        if part < size:
            now = [self.rank.collective(f"gather {what}", CollectiveType.ALL_GATHER, "tp", part, now)]
        return now

    def _use(
        self, layer: Layer, number: int, kind: str, now: Nodes, also: Nodes, last: bool = False
    ) -> Nodes:
        """Place a layer with its weights, and return the nodes after which its result is there."""
        made = self.pieces.of(layer, kind)
        if kind != "W":
            also = [*also, *self.replicas.weights(number), *self._load(layer)]
        key = (self.rank.labels["micro_batch"], number)
        if kind == "W":
            now = [*now, *self.passed.pop(key)]
        base = self.rank.piece(made, now, also)
        if kind == "B":
            self.passed[key] = [base + node for node in made.ends]
        done = [base + node for node in made.last] or now
        if kind != "W":
            self.replicas.used(self.rank.chain[0])
        if "W" in kind and layer.parameters:
            self.replicas.gradients(number, layer, [base + node for node in made.ends] or done, last)
        return done

    def _load(self, layer: Layer) -> Nodes:
        """Load weights that are kept elsewhere, of sharded layers this rank's part of them."""
        size = (
            sum(self.replicas.kept(*each) for each in layer.parameters.items())
            if self.plan.offload.weights
            else 0
        )
        moved = int(size * weight(self.plan) * (self.plan.offload.weights or 0))
        return [self.rank.memory("load weights", True, moved, self.rank.chain)] if moved else ()
