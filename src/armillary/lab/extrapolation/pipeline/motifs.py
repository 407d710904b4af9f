"""Finds layers and microbatches in a trace that does not name them: whatever repeats is a layer.

Messages between stages divide a rank into tasks, forward or backward of a microbatch. In a task, the sequence of nodes,
compared by kind and sizes, has a part that repeats. Each repetition is a layer; what precedes or follows them is one,
too, such as an embedding or a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.edit import inserted
from armillary.lab.extrapolation.kernels import Nodes
from armillary.trace import CollectiveType, Graph, NodeType
from armillary.trace.grid import Ints

Direction = Literal["F", "B", "FB"]


@dataclass(frozen=True)
class _Task:
    """Nodes between two messages."""

    kind: Direction
    microbatch: int
    nodes: tuple[int, ...]


def labelled(stages: Sequence[Nodes]) -> list[Nodes]:
    """Return the stages with attributes ``layer`` and ``micro_batch``; as they are where they have them.

    Raises:
        InputError: no part of a task repeats.
    """
    if all(nodes.graph.has("layer").any() for nodes in stages):
        return list(stages)
    found, first = [], 0
    for number, nodes in enumerate(stages):
        layer, batch, count = _layers(nodes, number == 0, number == len(stages) - 1)
        graph = _with(nodes.graph, "layer", np.where(layer >= 0, layer + first, -1))
        graph = _with(graph, "micro_batch", batch)
        found.append(Nodes(graph, nodes.grid))
        first += count
    return found


def _with(graph: Graph, name: str, values: Ints) -> Graph:
    return inserted(graph, name, "int32", np.ones(graph.n_nodes, np.bool_), values)


def _layers(nodes: Nodes, first: bool, last: bool) -> tuple[Ints, Ints, int]:
    """Return layer and microbatch of every node, (n_nodes,) each, -1: none, and how many layers there are."""
    graph = nodes.graph
    layer, batch = np.full(graph.n_nodes, -1, np.int64), np.full(graph.n_nodes, -1, np.int64)
    tokens = _tokens(nodes)
    count = 0
    for task in _tasks(nodes, tokens, first, last):
        parts = _parts([tokens[node] for node in task.nodes], task.kind)
        numbers = _numbers(task.kind, len(parts))
        # Every task must show the same layers, or numbers of layers would mean different ones in forward and
        # backward.
        if len(parts) < 2 or (count and max(numbers) + 1 != count):
            raise InputError(
                f"{graph.node(task.nodes[0])} begins a task in which {len(parts)} layers are found, after tasks of "
                f"{count}; expected at least 2, as many in each, or nodes with attributes 'layer' and 'micro_batch'"
            )
        count = max(numbers) + 1
        for number, (start, end) in zip(numbers, parts, strict=True):
            own = list(task.nodes[start:end])
            layer[own], batch[own] = number, task.microbatch
    _label_gradients(nodes, layer, batch)
    return layer, batch, count


def _tokens(nodes: Nodes) -> list[tuple[int, ...]]:
    """Return for each node the tuple it is compared by: type, group, operations, bytes, and kind of collective."""
    graph = nodes.graph
    names = ("num_ops", "tensor_size", "comm_size", "comm_type")
    columns = np.stack([graph.types, graph.strings("pg_name")[0], *(graph.ints(name, -1) for name in names)])
    return list(map(tuple, columns.T.tolist()))


def _tasks(nodes: Nodes, tokens: Sequence[tuple[int, ...]], first: bool, last: bool) -> list[_Task]:
    """Divide a stage by its messages; what replicas do, and the update, are left out.

    Raises:
        InputError: there are none, or they come in an order that shows no tasks.
    """
    graph = nodes.graph
    messages = nodes.along("pp")
    if not messages.any():
        raise InputError(f"{graph.source}: no messages between stages show where a microbatch begins; expected some, "
                         "or nodes with attributes 'layer' and 'micro_batch'")  # fmt: skip
    # In which direction a message travels: 1 forward, from stage s to s + 1, -1 backward.
    ahead = np.where(graph.types == NodeType.COMM_SEND_NODE, graph.ints("comm_dst"), -graph.ints("comm_src"))
    # They are in the last microbatch or after it only, and would break the repetition there.
    left_out = nodes.gradients | nodes.update | ((nodes.collective >= 0) & ~nodes.large)
    spans: list[tuple[Direction, list[int]]] = []
    forward: list[tuple[int, ...]] = []
    now: list[int] = []
    # Direction of the message received last: the task that follows goes the same way.
    came = 1
    for node in range(graph.n_nodes):
        if not messages[node] and not left_out[node]:
            now.append(node)
        if not messages[node] and node < graph.n_nodes - 1:
            continue
        # The last stage goes back right after it went forward: no message divides the two.
        if now and last:
            spans.append(("FB", now))
        elif now and first and came < 0:
            # After a backward pass the first stage goes on with a forward one, and no message comes between.
            cut = len(now) - len(forward)
            joined = cut > 0 and [tokens[each] for each in now[cut:]] == forward
            spans += [("B", now[:cut]), ("F", now[cut:])] if joined else [("B", now)]
        elif now:
            spans.append(("F" if came > 0 else "B", now))
            forward = forward or [tokens[each] for each in now]
        now = []
        if messages[node] and graph.types[node] == NodeType.COMM_RECV_NODE:
            came = int(ahead[node])
        elif messages[node] and first:
            came = 1
    done = {"F": 0, "B": 0, "FB": 0}
    found = []
    for kind, members in spans:
        found.append(_Task(kind, done[kind], tuple(members)))
        done[kind] += 1
    return found


def _parts(tokens: Sequence[tuple[int, ...]], kind: Direction) -> list[tuple[int, int]]:
    """Return (start, end) of the layers of a task: its repetitions, and the rest on one side of them.

    Repetitions end a forward task and start a backward one; in both at once they are on both sides of what is left.
    """
    if kind == "FB":
        # Forward layers repeat from the start, backward ones from the end; what is between them is the head,
        # both ways.
        for period, times in _repetitions(tokens):
            back = next(
                (
                    p
                    for p, n in _repetitions(tokens[::-1])
                    if n >= times and p * times + period * times <= len(tokens)
                ),
                0,
            )
            if back:
                start, end = period * times, len(tokens) - back * times
                before = [(i * period, (i + 1) * period) for i in range(times)]
                after = [(end + i * back, end + (i + 1) * back) for i in range(times)]
                return [*before, *([(start, end)] if end > start else []), *after]
        return []
    best = next(_repetitions(tokens if kind == "B" else tokens[::-1]), (0, 0))
    period, times = best
    covered = period * times
    if kind == "B":
        rest = [(covered, len(tokens))] if covered < len(tokens) else []
        return [*((i * period, (i + 1) * period) for i in range(times)), *rest]
    start = len(tokens) - covered
    return [
        *([(0, start)] if start else []),
        *((start + i * period, start + (i + 1) * period) for i in range(times)),
    ]


def _repetitions(tokens: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Yield (period, times) of what a sequence begins with at least twice, those that cover most first."""
    numbers: dict[tuple[int, ...], int] = {}
    codes = np.array([numbers.setdefault(token, len(numbers)) for token in tokens], np.int64)
    found = []
    for period in range(1, len(codes) // 2 + 1):
        # The sequence has period p up to the first place that differs from the one p before.
        differ = np.flatnonzero(codes[period:] != codes[:-period])
        run = int(differ[0]) if len(differ) else len(codes) - period
        times = run // period + 1
        if times > 1:
            found.append((-period * times, period, times))
    yield from ((period, times) for _, period, times in sorted(found))


def _numbers(kind: Direction, parts: int) -> list[int]:
    """Return the layer of each part: up in a forward pass, down in a backward one."""
    if kind == "FB":
        # Up through the layers and down again; an odd part in the middle is the last layer, forward and
        # backward at once.
        half = parts // 2
        return [*range(half), *([half] if parts % 2 else []), *reversed(range(half))]
    return list(range(parts)) if kind == "F" else list(reversed(range(parts)))


def _label_gradients(nodes: Nodes, layer: Ints, batch: Ints) -> None:
    """Label communication of replicas: reductions as the node before them, gathers of weights as the node after."""
    own = np.flatnonzero(layer >= 0)
    if not len(own):
        return
    gathers = nodes.collective == CollectiveType.ALL_GATHER
    for node in np.flatnonzero(nodes.gradients).tolist():
        # `own[at]` is the next labelled node, `own[at - 1]` the one before.
        at = int(np.searchsorted(own, node))
        if gathers[node] and at < len(own):
            layer[node], batch[node] = layer[own[at]], batch[own[at]]
        elif not gathers[node] and 0 < at < len(own):
            layer[node], batch[node] = layer[own[at - 1]], batch[own[at - 1]]
