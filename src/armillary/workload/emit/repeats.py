"""Tasks of a pipeline rank that are placed again: once node by node, then as arrays.

What a task places follows from its layers, from its place in the pipeline, and from the nodes that it finds: the last
kernel, the last call of each communicator, the outputs of the pass before. It never looks at the ids of these nodes,
only at which of them are the same. So a task with the same layers that finds as many nodes, of which the same are
equal, places the same nodes again, and leaves the same behind, with other ids. Microbatches do so, and pipeline ranks
with equal layers. This is exact: where anything differs, the task is placed node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import numpy as np

from armillary.trace.placing import Block, Placements
from armillary.trace.templates import Template
from armillary.workload.emit.rank import Message, Nodes, Rank, Shape, Single
from armillary.workload.emit.replicas import Bucket, Replicated
from armillary.workload.layers.layer import Layer

Kept = dict[tuple[int, int], Nodes]
"""Nodes by microbatch, and layer or virtual stage."""
Ids = tuple[int, ...]
Choice = Callable[[Ids], Ids]
"""Chooses from the pool of a task: the nodes of the state that it finds, those it is given, and those it makes."""


@dataclass(frozen=True, eq=False)
class Role:
    """What is common to the tasks of one kind of a virtual stage.

    Attributes:
        key: All that their placements depend on besides nodes; tags and numbers of layers are no part of it.
        kind: F, B (input gradients), W or BW.
        uses: The layers with their numbers, in the order in which they are placed.
        first: The lowest of these numbers.
        chunk: Which of the rank's virtual stages.
        tag: Tag of the activations into it.
        lane: See `Rank`.
        fills: Whether they fill the idle time of the tasks around them.
        reads: Nodes that are kept by microbatch, each with its place there, and which the task takes.
        keeps: The same that it leaves.
    """

    key: Hashable
    kind: str
    uses: tuple[tuple[int, Layer], ...]
    first: int
    chunk: int
    tag: int
    lane: int
    fills: bool
    reads: tuple[tuple[Kept, int], ...]
    keeps: tuple[tuple[Kept, int], ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """What a task places and leaves.

    Attributes:
        block: Its placements.
        templates: Those of the placements; of a message, what it is, with the tag less that of the task.
        made: Its nodes that later tasks may wait for, as ids less that of its first node.
        outside: The nodes that it waits for.
        state: Number of the shape of what it leaves.
        nodes: The nodes that this names.
        kept: The nodes of each output that is kept by microbatch; None where there is none.
        used: The last kernels after its layers.
        gradients: The nodes that make the gradients of a layer, and which of the uses that is; none where it reduces
            them itself.
        reduced: The nodes after which it has reduced gradients.
        buckets: What it has reduced, with axis sets; layers are numbered from the first of the task.
    """

    block: Block
    templates: tuple[Template | Message, ...]
    made: Ids
    outside: Choice
    state: int
    nodes: Choice
    kept: tuple[Choice | None, ...]
    used: Choice
    gradients: tuple[tuple[int, Choice], ...]
    reduced: Choice
    buckets: tuple[tuple[str, Bucket], ...]


@dataclass(eq=False)
class Repeats:
    """All tasks of a plan that were placed node by node, by what their placements depend on; its ranks share them."""

    found: dict[Hashable, Repeat] = field(default_factory=dict)
    single: Single = field(default_factory=Single)
    _states: dict[Hashable, int] = field(default_factory=dict)
    _shapes: list[Shape] = field(default_factory=list)
    _roles: dict[Hashable, int] = field(default_factory=dict)

    def state(self, shape: Shape, nodes: Sequence[int]) -> int:
        """Return a number that is equal where shapes are, and the same of their nodes are equal."""
        first: dict[int, int] = {}
        key = shape, tuple([first.setdefault(node, len(first)) for node in nodes])
        number = self._states.setdefault(key, len(self._shapes))
        if number == len(self._shapes):
            self._shapes.append(shape)
        return number

    def shape(self, state: int) -> Shape:
        """Return the shape of a state."""
        return self._shapes[state]

    def role(self, key: Hashable) -> int:
        """Return a number that is equal for equal keys of roles."""
        return self._roles.setdefault(key, len(self._roles))


Place = Callable[[Role, int, bool], None]
"""Places a task of a role and a microbatch node by node, its gradients complete or not."""


class Again:
    """Places the tasks of a rank, as arrays where one like them has been placed."""

    def __init__(self, rank: Rank, replicas: Replicated, repeats: Repeats) -> None:
        self.rank, self.replicas, self.repeats = rank, replicas, repeats
        self.used: list[int] = []
        """The last kernel after each layer of the task that is placed node by node."""
        self.gradients: list[Nodes | None] = []
        """The nodes that make the gradients of each."""
        self._left: tuple[int, Ids] | None = None
        """State after the last task, if it is known."""
        self._behind = False
        """Whether the rank has not taken it over yet."""
        self._weights: dict[Role, tuple[Ids, Ids]] = {}
        """The nodes after which the weights of all layers of a role are there, and how many they are by layer."""
        self._variants: dict[tuple[Repeat, Role], int] = {}

    def settle(self) -> None:
        """Let the rank take over the state after the last task; what is placed next may be anything."""
        if self._behind:
            assert self._left is not None
            state, nodes = self._left
            self.rank.restore(self.repeats.shape(state), nodes)
        self._left, self._behind = None, False
        self._weights.clear()

    def task(self, role: Role, microbatch: int, place: Place) -> None:
        """Place a task that does not complete the gradients of its layers; `place` does so node by node."""
        weights = self._weights.get(role) or self._ready(role)
        if weights is None:
            self.settle()
            place(role, microbatch, False)
            return
        if self._left is None:
            shape, named = self.rank.state()
            self._left = self.repeats.state(shape, named), tuple(named)
        state, nodes = self._left
        given, counts = weights
        for slots, at in role.reads:
            taken = slots[microbatch, at]
            given, counts = (*given, *taken), (*counts, len(taken))
        # Nodes of the state have their places, others numbers below 0: which are equal to which, and nothing else.
        equal = tuple([nodes.index(node) if node in nodes else ~given.index(node) for node in given])
        key = (role.key, state, equal, counts)
        repeat = self.repeats.found.get(key)
        if repeat is None:
            self._record(key, role, microbatch, (*nodes, *given), place)
        else:
            self._repeat(repeat, role, microbatch, (*nodes, *given))

    def _ready(self, role: Role) -> tuple[Ids, Ids] | None:
        """Return what `_weights` has; None where weights are still to be gathered for a task."""
        found = []
        if role.kind != "W":
            for number, _ in role.uses:
                ready = self.replicas.ready(number)
                if ready is None:
                    return None
                found.append(ready)
        weights = tuple(node for each in found for node in each), tuple(map(len, found))
        self._weights[role] = weights
        return weights

    def _record(self, key: Hashable, role: Role, microbatch: int, known: Ids, place: Place) -> None:
        """Place a task node by node, which knows these nodes, and keep what it places."""
        self.settle()
        placing, repeats = self.rank.placing, self.repeats
        recording, mark = Recording(known, placing.n_nodes), placing.mark()
        self.used, self.gradients = [], []
        replicas = self.replicas
        reduced, buckets = len(replicas.reduced), len(replicas.buckets)
        place(role, microbatch, False)
        shape, nodes = self.rank.state()
        self._left = repeats.state(shape, nodes), tuple(nodes)
        choose = recording.choice
        placed, base = placing.placed_since(mark), recording.base
        templates = tuple(
            made._replace(tag=made.tag - role.tag)
            if (made := repeats.single.messages.get(id(each)))
            else each
            for each in placed.templates
        )
        outside = [node for node in dict.fromkeys(placed.parents) if node < base]
        kept = [slots.get((microbatch, at)) for slots, at in role.keeps]
        choices = {
            "outside": choose(outside), "nodes": choose(nodes), "used": choose(self.used),
            "reduced": choose(replicas.reduced[reduced:]),
        }  # fmt: skip
        noted = [] if replicas.every_microbatch else self.gradients
        repeats.found[key] = Repeat(
            block=_block(
                placed, outside, base, placing.n_nodes, {"layer": role.first, "micro_batch": microbatch}
            ),
            templates=templates,
            state=self._left[0],
            kept=tuple([None if each is None else choose(each) for each in kept]),
            gradients=tuple([(place, choose(each)) for place, each in enumerate(noted) if each is not None]),
            buckets=_moved(replicas.buckets[buckets:], -role.first),
            **choices,
            made=recording.made(),
        )

    def _repeat(self, repeat: Repeat, role: Role, microbatch: int, known: Ids) -> None:
        """Place a task as arrays."""
        placing, replicas = self.rank.placing, self.replicas
        variant = self._variants.get((repeat, role))
        if variant is None:
            variant = self._variants[repeat, role] = self._variant(repeat, role)
        base = placing.n_nodes
        pool = (*known, *[base + node for node in repeat.made])
        placing.repeat(variant, repeat.outside(pool), microbatch)
        self._left, self._behind = (repeat.state, repeat.nodes(pool)), True
        for slots, at in role.reads:
            del slots[microbatch, at]
        for (slots, at), choose in zip(role.keeps, repeat.kept, strict=True):
            if choose:
                slots[microbatch, at] = choose(pool)
        for place, choose in repeat.gradients:
            replicas.note(role.uses[place][0], choose(pool))
        if replicas.every_microbatch:
            replicas.reduced += repeat.reduced(pool)
            replicas.buckets += _moved(repeat.buckets, role.first)
        if not replicas.settled:
            for (number, _), node in zip(role.uses, repeat.used(pool), strict=False):
                replicas.weights(number)
                replicas.used(node)

    def _variant(self, repeat: Repeat, role: Role) -> int:
        single = self.repeats.single
        templates = [
            single.message(each._replace(tag=each.tag + role.tag)) if isinstance(each, Message) else each
            for each in repeat.templates
        ]
        return self.rank.placing.variant(repeat.block, templates, {"layer": role.first})


class Recording:
    """Finds the nodes that a task names in its pool, see `Choice`."""

    def __init__(self, known: Ids, base: int) -> None:
        """Begin with the nodes that the task finds and is given, and the id that its first node gets."""
        self.base = base
        self._place = {node: place for place, node in enumerate(known)}
        self._count = len(known)
        self._made: dict[int, int] = {}

    def choice(self, nodes: Iterable[int]) -> Choice:
        """Return what chooses these nodes."""
        at = [
            self._place[node]
            if node < self.base
            else self._count + self._made.setdefault(node - self.base, len(self._made))
            for node in nodes
        ]
        if len(at) > 1:
            return itemgetter(*at)
        return itemgetter(slice(at[0], at[0] + 1)) if at else itemgetter(slice(0))

    def made(self) -> Ids:
        """Return the nodes of the task that were chosen, as ids less that of its first node."""
        return tuple(self._made)


def _moved(buckets: Iterable[tuple[str, Bucket]], by: int) -> tuple[tuple[str, Bucket], ...]:
    """Return buckets of layers with other numbers."""
    return tuple(
        [
            (axis_set, Bucket(each.parameters, layers=[layer + by for layer in each.layers]))
            for axis_set, each in buckets
        ]
    )


def _block(placed: Placements, outside: Nodes, base: int, after: int, labels: dict[str, int]) -> Block:
    """Return placements as a block of the nodes `base` to `after`, whose `labels` count from these numbers."""
    parents = np.array(placed.parents, np.int64)
    number = {node: place for place, node in enumerate(outside, 1)}
    found = {}
    for name, start in labels.items():
        values = np.array(placed.labels[name], np.int64)
        # -1 is a label of its own: of no layer.
        found[name] = np.where(values < 0, values, values - start), values >= 0
    return Block(
        nodes=after - base,
        first=np.array(placed.first, np.int64) - base,
        labels=found,
        children=np.array(placed.children, np.int64) - base,
        source=np.array([number.get(node, 0) for node in placed.parents], np.int64),
        parents=np.where(parents >= base, parents - base, 0),
        outside=len(outside),
    )
