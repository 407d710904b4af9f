"""Lifts the nodes of a stage back to the steps of its layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from armillary.base.errors import InputError
from armillary.lab.extrapolation.kernels import Nodes
from armillary.lab.extrapolation.pipeline.segments import Stage
from armillary.trace import CollectiveType, NodeType
from armillary.trace.attention import ATTENTION, to_attention
from armillary.trace.grid import AXIS
from armillary.workload.layers.layer import Step

Steps = tuple[Step, ...]
INPUT = ""
_AGAIN = re.compile(r" \(\d+\)$")
"""Suffix that makes a repeated name unique, see `_steps`."""


@dataclass(frozen=True)
class Work:
    """The steps of a layer: forward, backward (gradients of inputs), and gradients of weights."""

    forward: Steps
    backward: Steps
    weight: Steps


def works_of(stage: Stage) -> dict[int, Work]:
    """Return the work of every layer of a stage.

    Raises:
        InputError: microbatches do different things in a layer, or a step is of a kind that no layer has.
    """
    graph = stage.nodes.graph
    waited = _waited_from_outside(stage)
    made: dict[tuple[int, str], list[Step]] = {}
    waits: dict[tuple[int, str], set[int]] = {}
    for segment in stage.segments:
        key = (segment.layer, segment.kind)
        steps, first_of = _steps(stage.nodes, segment.nodes)
        known = made.setdefault(key, steps)
        # Dependencies are left out of the comparison: they are merged below.
        if [replace(a, after=None) for a in known] != [replace(b, after=None) for b in steps]:
            raise InputError(
                f"{graph.source}: microbatch {segment.microbatch} does something else in layer {segment.layer} than "
                "the ones before; expected all microbatches to be alike"
            )
        # What came first on the rank has nothing to wait for, so what a step waits for is the most of all.
        made[key] = [
            replace(a, after=tuple(dict.fromkeys((*(a.after or ()), *(b.after or ())))))
            for a, b in zip(known, steps, strict=True)
        ]
        waits.setdefault(key, set()).update(first_of[node] for node in segment.nodes if node in waited)
    found = {}
    for layer in stage.layers:
        forward, backward = tuple(made.get((layer, "F"), ())), tuple(made.get((layer, "B"), ()))
        ends = waits.get((layer, "B"), set())
        if (layer, "FB") in made:
            both = tuple(made[layer, "FB"])
            # The last layer's pass is one run: it is cut where it turns from forward to backward.
            at = _turn(both)
            forward, backward = both[:at], _opened(both[at:])
            ends = {end - at for end in waits[layer, "FB"] if end >= at}
        if (layer, "W") in made:
            found[layer] = Work(forward, backward, tuple(made[layer, "W"]))
        else:
            # The first that is waited for is the gradient of the input; what follows makes those of the weights.
            cut = min(ends, default=len(backward) - 1) + 1
            found[layer] = Work(forward, backward[:cut], backward[cut:])
    return found


def _waited_from_outside(stage: Stage) -> set[int]:
    """Return the nodes of segments that nodes outside of theirs wait for."""
    graph = stage.nodes.graph
    of_node = {node: at for at, segment in enumerate(stage.segments) for node in segment.nodes}
    ptr, parents = graph.parents()
    found = set()
    for node in range(graph.n_nodes):
        own = of_node.get(node, -1)
        for parent in parents[ptr[node] : ptr[node + 1]].tolist():
            if of_node.get(parent, own) != own:
                found.add(parent)
    return found


def _steps(nodes: Nodes, members: Sequence[int]) -> tuple[list[Step], dict[int, int]]:
    """Return the steps of some nodes, and which step each node is of."""
    graph = nodes.graph
    ptr, parents = graph.parents()
    inside = set(members)
    steps: list[Step] = []
    # A send and the receive after it are one step, a shift around an axis.
    step_of: dict[int, int] = {}
    names: set[str] = set()
    for node in members:
        before = parents[ptr[node] : ptr[node + 1]].tolist()
        receives = graph.types[node] == NodeType.COMM_RECV_NODE
        if receives and steps and steps[-1].shift and members[members.index(node) - 1] in inside:
            step_of[node] = len(steps) - 1
            continue
        step = _step(nodes, node)
        # Steps wait for each other by name, so names are unique within a layer.
        if step.name in names:
            step = replace(step, name=f"{step.name} ({len(names)})")
        names.add(step.name)
        after = list(dict.fromkeys(steps[step_of[each]].name for each in before if each in step_of))
        if not before or any(each not in inside for each in before):
            after.append(INPUT)
        step_of[node] = len(steps)
        steps.append(replace(step, after=tuple(after)))
    return steps, step_of


def _step(nodes: Nodes, node: int) -> Step:
    graph = nodes.graph
    name, kind = graph.name(node), int(graph.types[node])
    values = {attribute[0]: attribute[2] for attribute in graph.attrs(node)}
    if kind == NodeType.COMP_NODE:
        operations = int(values.get("num_ops", 0))
        return Step(
            name,
            operations if operations > 1 else 0,
            int(values.get("tensor_size", 0)),
            values.get("precision", "bf16"),
            gemms=nodes.gemms[node],
            attention=to_attention(values.get(ATTENTION, ())),
        )
    if kind == NodeType.COMM_COLL_NODE and values.get("pg_name"):
        return Step(
            name,
            collective=CollectiveType(int(values["comm_type"])),
            axes=values["pg_name"],
            size=int(values["comm_size"]),
            splits=tuple(values.get("comm_splits", ())),
        )
    if kind == NodeType.COMM_SEND_NODE and AXIS in values:
        return Step(
            name.removesuffix(" send"),
            axes=values[AXIS],
            size=int(values["comm_size"]),
            shift=int(values["comm_dst"]),
        )
    raise InputError(f"{graph.node(node)} cannot be moved to another stage; expected kernels, collectives of a group, "
                     "and messages round an axis")  # fmt: skip


def _turn(steps: Steps) -> int:
    """Return where the backward pass begins in steps that are both.

    All that follows waits for the step and the kernel before only. Of such places the best is one where something from
    outside is waited for, too (weights), then one where these are two, then the last before a name comes again.
    """
    names = [step.name for step in steps]
    places = []
    for at in range(1, len(steps)):
        before = set(names[:at])
        # Names from before the place that steps behind it wait for: a turn is narrow, the loss and little
        # else.
        crossing = {name for step in steps[at:] for name in step.after or () if name in before}
        kernel = next((step.name for step in reversed(steps[:at]) if not step.axes), "")
        if crossing and crossing <= {names[at - 1], kernel} and crossing <= set(steps[at].after or ()):
            places.append((INPUT in (steps[at].after or ()), len(crossing), at))
    again = next((at for at, name in enumerate(names) if _AGAIN.search(name)), len(steps))
    return max((place for place in places if place[-1] <= again), default=(False, 0, len(steps)))[-1]


def _opened(steps: Steps) -> Steps:
    """Return steps on their own: names that are unique now are as they were, others before them are the input."""
    plain = [_AGAIN.sub("", step.name) for step in steps]
    unique = {
        step.name: name if plain.count(name) == 1 else step.name
        for step, name in zip(steps, plain, strict=True)
    }
    return tuple(
        replace(
            step,
            name=unique[step.name],
            after=tuple(dict.fromkeys(unique.get(n, INPUT) for n in step.after or ())),
        )
        for step in steps
    )
