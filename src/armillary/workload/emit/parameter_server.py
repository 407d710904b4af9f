"""Training with parameter servers: workers push gradients and pull weights, servers sum and update.

The scheme is that of "Scaling Distributed Machine Learning with the Parameter Server" (Li et al., OSDI 2014). The last
ranks of a plan are servers. Gradients of consecutive layers are pushed together once they fill a bucket, and every
server has an equal part of each bucket, so the loads of servers differ by at most one element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError
from armillary.trace import Graph, GraphBuilder, NodeType, Trace
from armillary.trace.node import Attribute
from armillary.workload.layers.layer import Layer, Step
from armillary.workload.layers.shard import near
from armillary.workload.plan.numbers import MOMENTS, gradient, weight
from armillary.workload.plan.schema import Plan

Compute = Callable[[Step], Iterable[Attribute]]
"""Returns the attributes of a kernel's compute node, from which an engine computes its duration."""
MASTER = 4
"""Bytes of a weight, and of an optimizer state, on a server."""


def roofline(step: Step) -> list[Attribute]:
    """Return the operations and bytes of a kernel."""
    return [("num_ops", "int64", max(1, step.flops)), ("tensor_size", "uint64", step.bytes)]


@dataclass(frozen=True)
class Bucket:
    """Gradients that are pushed together.

    Attributes:
        layers: Positions of their layers in the model.
        parts: Elements for each server.
    """

    layers: range
    parts: tuple[int, ...]


def parameter_server_trace(layers: Sequence[Layer], plan: Plan, *, compute: Compute = roofline) -> Trace:
    """Return the trace of a plan whose replicas share weights through servers.

    A worker pushes the gradients of a bucket as soon as the backward pass of its last microbatch has made them, and
    waits for the new weights before the next forward pass of the first layer that they belong to. A synchronous server
    adds up the gradients of all workers as they come and answers all after one update; an asynchronous one updates
    and answers every worker for itself. Messages are gradients and weights in the types of the plan.

    Args:
        layers: Layers of the model, in order, for one microbatch.
        plan: The plan.
        compute: See `Compute`.

    Raises:
        InputError: the plan has no servers, or no workers, divides the model, or its batch cannot be divided; or a
            layer communicates.
    """
    workers, microbatches = workers_of(plan)
    for layer in layers:
        for step in (*layer.forward, *layer.backward, *layer.weight):
            if step.collective is not None or step.shift:
                raise InputError(
                    f"sharding 'parameter-server': step '{step.name}' of layer '{layer.name}' communicates, expected "
                    "layers that one rank runs on its own"
                )
    # Workers are all alike. Servers are alike if their parts of all buckets are equally long.
    found = list(buckets(layers, plan))
    graphs = [_Worker(layers, plan, found, workers, compute).graph(microbatches)]
    of_parts: dict[tuple[int, ...], int] = {}
    rank_graph = [0] * workers
    for server in range(plan.data.servers):
        parts = tuple(bucket.parts[server] for bucket in found)
        if parts not in of_parts:
            of_parts[parts] = len(graphs)
            graphs.append(_server(parts, plan, workers, compute))
        rank_graph.append(of_parts[parts])
    return Trace(tuple(graphs), np.array(rank_graph, np.int32))


def buckets(layers: Sequence[Layer], plan: Plan) -> Iterator[Bucket]:
    """Yield the buckets in the order of the backward pass."""
    servers, element = plan.data.servers, gradient(plan)
    behind, elements, turn = len(layers), 0, 0
    for place in reversed(range(len(layers))):
        elements += sum(layers[place].parameters.values())
        if elements and (elements * element >= plan.data.bucket or place == 0):
            # The remainder of a bucket goes to the servers whose turn it is, so that no server gets all of them.
            base, more = divmod(elements, servers)
            parts = tuple(base + ((server - turn) % servers < more) for server in range(servers))
            yield Bucket(range(place, behind), parts)
            behind, elements, turn = place, 0, (turn + more) % servers


def workers_of(plan: Plan) -> tuple[int, int]:
    """Return the number of workers, and of the microbatches of each in an iteration.

    Raises:
        InputError: there are none, the plan divides the model, or its batch cannot be divided.
    """
    own, servers = plan.parallel, plan.data.servers
    if plan.data.sharding != "parameter-server":
        raise InputError(f"sharding '{plan.data.sharding}': expected 'parameter-server'")
    if plan.ranks < 2:
        raise InputError(
            "sharding 'parameter-server': got 1 rank, expected at least 2, of which one holds the weights"
        )
    if servers >= plan.ranks:
        raise InputError(
            f"servers {servers}: expected fewer than ranks {plan.ranks} (nearest: {plan.ranks - 1})"
        )
    workers = plan.ranks - servers
    for axis in ("tp", "cp", "pp", "ep"):
        if getattr(own, axis) > 1:
            raise InputError(f"{axis} {getattr(own, axis)}: expected 1 with sharding 'parameter-server'")
    if own.dp not in (None, workers):
        raise InputError(f"dp {own.dp}: expected ranks {plan.ranks} - servers {servers} = {workers} workers")
    unit = workers * plan.microbatch
    if plan.batch % unit:
        best = near(plan.batch, [unit * max(1, plan.batch // unit), unit * (plan.batch // unit + 1)])
        raise InputError(
            f"batch {plan.batch}: expected a multiple of {workers} workers x microbatch {plan.microbatch} "
            f"(nearest: {best})"
        )
    return workers, plan.batch // unit


def _compute(
    builder: GraphBuilder,
    name: str,
    step: Step,
    compute: Compute,
    after: Sequence[int],
    ctrl: Sequence[int] = (),
) -> int:
    attrs = [("is_cpu_op", "bool", False), *compute(step)]
    return builder.add(name, NodeType.COMP_NODE, attrs, after=after, ctrl_after=ctrl)


class _Worker:
    """Writes the graph that all workers run."""

    def __init__(
        self, layers: Sequence[Layer], plan: Plan, found: list[Bucket], first_server: int, compute: Compute
    ) -> None:
        self.layers, self.plan, self.buckets = layers, plan, found
        self.first_server, self.compute = first_server, compute
        self.builder = GraphBuilder()
        self.pulled: dict[int, list[int]] = {}
        self.added: dict[int, list[int]] = {}

    def graph(self, microbatches: int) -> Graph:
        """Return the graph of all iterations."""
        for _ in range(self.plan.iterations):
            for microbatch in range(microbatches):
                ends: list[int] = []
                for place, layer in enumerate(self.layers):
                    # The first forward pass of a layer after an exchange waits for its new weights; later
                    # ones have them.
                    before = [*ends, *self.pulled.pop(place, [])]
                    ends = self._run(layer, layer.forward, before)[0]
                self._backward(ends, last=microbatch == microbatches - 1)
        return self.builder.graph("worker")

    def _backward(self, ends: list[int], *, last: bool) -> None:
        made: dict[int, list[int]] = {}
        # The backward pass reaches the first layer of a bucket last, and then its gradients are complete.
        waiting = {bucket.layers.start: number for number, bucket in enumerate(self.buckets)} if last else {}
        for place in reversed(range(len(self.layers))):
            layer = self.layers[place]
            ends, named = self._run(layer, layer.backward, ends)
            # Gradients add to those of the microbatch before, so the kernels wait for each other.
            gradients = self._run(layer, layer.weight, ends, named, self.added.get(place, []))[0]
            self.added[place] = [] if last else gradients
            made[place] = list(dict.fromkeys([*ends, *gradients]))
            if place in waiting and self.plan.data.overlap:
                self._exchange(waiting.pop(place), made)
        # Without overlap all is pushed when the whole backward pass is done.
        for number in waiting.values():
            self._exchange(number, {place: [*nodes, *made[0]] for place, nodes in made.items()})

    def _exchange(self, number: int, made: dict[int, list[int]]) -> None:
        """Push the gradients of a bucket and pull its weights."""
        bucket = self.buckets[number]
        after = list(dict.fromkeys(node for place in bucket.layers for node in made[place]))
        for server, part in enumerate(bucket.parts, self.first_server):
            if part:
                sent = self.builder.send(server, part * gradient(self.plan), number, after=after)
                # Program order: the receive is posted after the send, and is a control dependency as no
                # data flow between them.
                got = self.builder.recv(server, part * weight(self.plan), number, ctrl_after=[sent])
                for place in bucket.layers:
                    if any(self.layers[place].parameters.values()):
                        self.pulled.setdefault(place, []).append(got)

    def _run(
        self,
        layer: Layer,
        steps: Sequence[Step],
        start: list[int],
        named: dict[str, list[int]] | None = None,
        added: Sequence[int] = (),
    ) -> tuple[list[int], dict[str, list[int]]]:
        """Add the kernels of a list, after `added`; return the last kernels of the list, and all nodes by name."""
        known: dict[str, list[int]] = {**(named or {}), "": start}
        before, ends = "", dict.fromkeys(start)
        for step in steps:
            names = (before,) if step.after is None else step.after
            after = [node for name in names for node in known[name]]
            node = _compute(self.builder, f"{layer.name}: {step.name}", step, self.compute, after, added)
            # What this kernel waits for is no end any more; a dict keeps the order.
            ends = {end: None for end in ends if end not in after} | {node: None}
            known[step.name], before, added = [node], step.name, ()
        return list(ends), known


def _server(parts: Sequence[int], plan: Plan, workers: int, compute: Compute) -> Graph:
    """Return the graph of a server, which handles gradients as they arrive; if several wait, the first bucket first."""
    builder = GraphBuilder()
    received, sent = gradient(plan), weight(plan)
    states = None if plan.optimizer == "none" else MOMENTS[plan.optimizer]
    answered: dict[tuple[int, int], list[int]] = {}
    for _ in range(plan.iterations):
        for number, part in enumerate(parts):
            if not part:
                continue
            # Reads the sum and the gradient, writes the sum.
            add = Step("add", bytes=3 * part * received)
            # Reads the gradient; reads and writes weights and states, and writes what is sent.
            update = Step("update", bytes=part * (received + 2 * MASTER * (1 + (states or 0)) + sent))
            came = {
                # A worker's next gradients can come once its last weights were sent.
                worker: [
                    builder.recv(
                        worker, part * received, number, ctrl_after=answered.get((number, worker), [])
                    )
                ]
                for worker in range(workers)
            }
            if not plan.data.asynchronous:
                # Synchronous: all gradients are added up before one update answers everyone.
                added = [_compute(builder, "add", add, compute, got) for got in came.values()]
                came = dict.fromkeys(came, added)
            updated: list[int] = []
            for worker, got in came.items():
                if states is not None and (plan.data.asynchronous or not updated):
                    updated = [_compute(builder, "update", update, compute, got)]
                ready = updated if states is not None else got
                answered[number, worker] = [builder.send(worker, part * sent, number, after=ready)]
    # With fewer elements than servers some have no part at all; a graph needs a node.
    if not builder.nodes:
        builder.metadata("idle")
    return builder.graph("server")
