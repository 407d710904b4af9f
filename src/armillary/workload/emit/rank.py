"""Builder of the graph of one class of ranks: pieces of layers, and single nodes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from armillary.trace import CollectiveType, NodeType
from armillary.trace.grid import FURTHER, RankGrid
from armillary.trace.node import Attribute
from armillary.trace.placing import GraphOfTemplates, graphs_of
from armillary.trace.storage import storage_field
from armillary.trace.templates import PlacedGraph, Template
from armillary.workload.emit.template import (
    CALL,
    CHAIN,
    HOST,
    IN,
    Piece,
    collective,
    further,
    kernel_attributes,
    labels,
    message,
)
from armillary.workload.layers.layer import Step

HANDSHAKE = (0, 0, 0, 0, 1)
"""Multiples of `host_times` that a handshake takes."""
Nodes = Sequence[int]
Communicator = tuple[tuple[int, ...], str]
"""The mesh dimensions in which its ranks differ, and what tells it apart from others of the same ranks."""
Shape = tuple[tuple[str, Any, int], ...]
"""What a state consists of: kinds of entries, their keys, and how many nodes each names."""


class Message(NamedTuple):
    """What the template of a message follows from, see `Rank.send`."""

    send: bool
    name: str
    axis: str
    steps: int
    size: int
    tag: int


class Single:
    """Templates of one node, made once for each kind; ranks of a plan may share them."""

    def __init__(self) -> None:
        self.made: dict[tuple[object, ...], Template] = {}
        self.messages: dict[int, Message] = {}
        """What messages are, by the ``id`` of the template."""

    def of(
        self, key: tuple[object, ...], name: str, kind: int, attributes: Callable[[], list[Attribute]]
    ) -> Template:
        """Return the template of a kind of node; `attributes` makes those of the first."""
        template = self.made.get((kind, *key))
        if template is None:
            template = self.made[(kind, *key)] = Template()
            template.add(name, kind, attributes(), ports=(IN,))
        return template

    def message(self, made: Message) -> Template:
        """Return the template of a message."""
        kind = NodeType.COMM_SEND_NODE if made.send else NodeType.COMM_RECV_NODE

        def attributes() -> list[Attribute]:
            return message(Step(made.name, axes=made.axis, size=made.size), made.steps, made.send, made.tag)

        template = self.of(made, made.name, kind, attributes)
        self.messages[id(template)] = made
        return template


class Rank:
    """Places nodes; the first nodes of a piece do not overtake the kernels placed before it.

    Attributes:
        grid: The ranks.
        chain: The last kernel.
        labels: Label values of the nodes placed next.
        lane: Number of the communicators of the task that is placed; tasks that run side by side differ in it.
    """

    def __init__(self, source: str, grid: RankGrid, handshake: int = 0, single: Single | None = None) -> None:
        self.grid, self.handshake = grid, handshake
        self.chain: Nodes = ()
        self.ends: list[Nodes] = []
        """Where tasks run side by side: the last kernels before the first task and after each, the last three."""
        self._host: Nodes = ()
        self.labels = {"layer": -1, "micro_batch": -1}
        self.lane = 0
        self.placing = GraphOfTemplates(source)
        self.single = single or Single()
        self._called: dict[Communicator, int] = {}
        self._late: dict[str, int] = {}
        """The last call of each axis set, where what is placed next could overtake it."""
        self._known: dict[str, Communicator] = {}
        self._inside: dict[str, tuple[Piece, int]] = {}
        """The last piece that calls each axis set, and its first node."""
        self._between: dict[str, int] = {}
        """The last call between pieces, until a piece calls that communicator again."""

    def _communicator(self, axis_set: str) -> Communicator:
        # Axis sets of the same mesh dimensions are one communicator, whatever their names.
        if axis_set not in self._known:
            self._known[axis_set] = (self.grid.mesh_dims(axis_set), axis_set.partition(FURTHER)[2])
        return self._known[axis_set]

    def members(self, axis_set: str) -> int:
        """Return how many ranks a group of an axis set has; 1 for the empty axis set."""
        if axis_set in self.grid.subsets:
            return len(self.grid.subsets[axis_set][1])
        return (
            prod(self.grid.sizes[mesh_dim] for mesh_dim in self.grid.mesh_dims(axis_set)) if axis_set else 1
        )

    def piece(self, made: Piece, inputs: Nodes, also: Nodes = ()) -> int:
        """Place a piece that works on `inputs` and starts after `also`; return its first node.

        It waits for earlier calls between pieces on the communicators that it calls, as calls of one communicator
        keep program order in NCCL. Pieces that overlap do not wait for each other.
        """
        before = [self._between.pop(axis_set) for axis_set in made.calls if axis_set in self._between]
        ports: dict[str, Nodes] = {IN: inputs, CHAIN: [*self.chain, *also, *before], HOST: self._host}
        # Without these edges a rank with slow kernels could take two calls in another order than the other members.
        for axis_set in made.late:
            call = self._late.get(axis_set)
            if call is not None and call not in before:
                ports[f"{CALL}{axis_set}"] = [call]
        base = self.placing.place(made.template, ports, self.labels)
        for axis_set in made.late:
            self._late.pop(axis_set, None)
        for axis_set, last in made.late.items():
            if last is not None:
                self._late[axis_set] = base + last
        if made.host is not None:
            self._host = [base + made.host]
        for axis_set in made.calls:
            self._inside[axis_set] = made, base
        # A piece without a kernel, such as a lone collective, holds up no later kernel.
        if made.kernel is not None:
            self.chain = [base + made.kernel]
        return base

    def kernel(self, name: str, size: int, after: Nodes) -> int:
        """Place a kernel that reads and writes `size` bytes."""
        step = Step(name, bytes=size)
        node = self._place(
            (name, size), name, NodeType.COMP_NODE, lambda: kernel_attributes(step), [*self.chain, *after]
        )
        self.chain = [node]
        return node

    def calls_beside(self, axis_set: str, after: Nodes) -> Nodes:
        """Return the last calls of pieces on a communicator; none if `after` waits for the whole piece of them."""
        if axis_set not in self._inside:
            return ()
        made, base = self._inside[axis_set]
        ends = {base + node for node in made.ends}
        return () if ends <= set(after) else [base + call for call in made.calls[axis_set]]

    def collective(
        self, name: str, kind: CollectiveType, axis_set: str, size: int, after: Nodes, lane: int = 0
    ) -> int:
        """Place a collective; those of one axis set and `lane` keep their order."""
        axis_set = further(axis_set, lane)
        step = Step(name, collective=kind, axes=axis_set, size=size)
        called = self._communicator(axis_set)
        before = [self._called[called]] if called in self._called else []
        if axis_set in self._late and self._late[axis_set] not in (*after, *before):
            before.append(self._late[axis_set])
        key = (name, kind, axis_set, size)
        node = self._place(key, name, NodeType.COMM_COLL_NODE, lambda: collective(step), [*after, *before])
        self._called[called] = self._late[axis_set] = self._between[axis_set] = node
        return node

    def send(self, name: str, axis: str, steps: int, size: int, tag: int, after: Nodes) -> int:
        """Place a send to the rank `steps` along an axis."""
        template = self.single.message(Message(True, name, axis, steps, size, tag))
        node = self.placing.place(template, {IN: after}, self.labels)
        # The CPU waits for the message, so the kernels placed after it are issued only then.
        if self.handshake:
            self.chain = [*self.chain, node]
        return node

    def recv(self, name: str, axis: str, steps: int, size: int, tag: int) -> int:
        """Place a receive from the rank `steps` along an axis, posted when the kernels before it are done.

        If a handshake takes time, users of the message wait for it, too: Megatron-LM waits on the CPU for pipeline
        messages and issues kernels only then.
        """
        template = self.single.message(Message(False, name, axis, steps, size, tag))
        node = self.placing.place(template, {IN: self.chain}, self.labels)
        if not self.handshake:
            return node
        work: list[Attribute] = [
            ("is_cpu_op", "bool", True),
            ("duration_ns", "int64", self.handshake),
            *labels(),
        ]
        made = self.single.of(("handshake",), "handshake", NodeType.COMP_NODE, lambda: work)
        made.multiples[0] = HANDSHAKE
        return self.placing.place(made, {IN: [node]}, self.labels)

    def memory(self, name: str, load: bool, size: int, after: Nodes, together: str = "") -> int:
        """Place a load from, or a store to, remote memory; if given, of all ranks of the axis set `together`."""
        kind = NodeType.MEM_LOAD_NODE if load else NodeType.MEM_STORE_NODE
        attributes: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("tensor_size", "uint64", size),
            *labels(),
        ]
        if together:
            attributes += [("in_switch", "bool", True), ("pg_name", "string", together)]
        return self._place((name, load, size, together), name, kind, lambda: attributes, after)

    def checkpoint(self, size: int, after: Nodes, *, beside: bool = False) -> int:
        """Place a checkpoint of `size` bytes, for which later kernels wait unless they run `beside` it."""
        attributes: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("", "field", storage_field("write", size)),
            *labels(),
        ]
        after = [*self.chain, *after]
        node = self._place((size,), "checkpoint", NodeType.CHECKPOINT_NODE, lambda: attributes, after)
        if not beside:
            self.chain = [node]
        return node

    def samples(self, size: int, after: Nodes) -> int:
        """Place the reading of `size` bytes of samples, beside which kernels run."""
        attributes: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("", "field", storage_field("read", size)),
            *labels(),
        ]
        return self._place((size,), "samples", NodeType.STORAGE_NODE, lambda: attributes, after)

    def graph(self) -> PlacedGraph:
        """Return the graph."""
        return graphs_of([self.placing])[0]

    def _place(
        self,
        key: tuple[object, ...],
        name: str,
        kind: int,
        attributes: Callable[[], list[Attribute]],
        after: Nodes,
    ) -> int:
        # Single nodes are templates of one node, too, so that the graph is copies throughout.
        return self.placing.place(self.single.of(key, name, kind, attributes), {IN: after}, self.labels)

    def state(self) -> tuple[Shape, list[int]]:
        """Return what the next placements depend on besides what they are given: its shape, and the nodes it names."""
        shape: list[tuple[str, Any, int]] = [("chain", "", len(self.chain)), ("host", "", len(self._host))]
        nodes = [*self.chain, *self._host]
        for kind, called in self._calls().items():
            for key in sorted(called):
                shape.append((kind, key, 1))
                nodes.append(called[key])
        for axis_set in sorted(self._inside):
            made, base = self._inside[axis_set]
            shape.append(("inside", (axis_set, made), 1))
            nodes.append(base)
        for end in self.ends:
            shape.append(("end", "", len(end)))
            nodes += end
        return tuple(shape), nodes

    def restore(self, shape: Shape, nodes: Sequence[int]) -> None:
        """Take over a state."""
        self._called, self._late, self._between, self._inside, self.ends = {}, {}, {}, {}, []
        calls = self._calls()
        at = 0
        for kind, key, count in shape:
            found = list(nodes[at : at + count])
            at += count
            if kind == "chain":
                self.chain = found
            elif kind == "host":
                self._host = found
            elif kind == "end":
                self.ends.append(found)
            elif kind == "inside":
                axis_set, made = key
                self._inside[axis_set] = made, found[0]
            else:
                calls[kind][key] = found[0]

    def _calls(self) -> dict[str, dict[Any, int]]:
        """Return the dicts of last calls."""
        return {"called": self._called, "late": self._late, "between": self._between}
