"""Work of operators whose tensors have other dimensions, by the rules with which they were converted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from armillary.convert.pytorch.arguments import Arguments
from armillary.convert.pytorch.flops import Work, exclusive, gemm, work
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.recorded.calls import Argument, Call, Tensor, flat
from armillary.lab.extrapolation.recorded.dimensions import Factors
from armillary.lab.extrapolation.recorded.tensors import Program
from armillary.lab.extrapolation.scaling import OPERATIONS, SIZE, Scaling


def resize(
    made: Scaling, program: Program, factors: Factors, rule: str, buffers: dict[int, Fraction] | None = None
) -> Mask:
    """Scale the work of operators to the new dimensions of their tensors.

    Args:
        made: Takes the factors, GEMMs and shapes of tensors of the nodes.
        program: What the nodes do to tensors.
        factors: Of the dimensions.
        rule: What is noted of operators that change.
        buffers: Factors of the work of operators on buffers, by node, and of those inside of them; absent: 1.

    Returns:
        Which nodes with work no rule classifies: they keep it.
    """
    nodes = made.nodes
    n = nodes.graph.n_nodes
    changed = {
        node: _resized(call, factors) for node, call in program.calls.items() if _changes(call, factors)
    }
    # Both sides by the same rules: what these do not model cancels in the ratio.
    old = _works(program, {}, nodes)
    new = _works(program, changed, nodes)
    operations, size = nodes.graph.ints(OPERATIONS), nodes.graph.ints(SIZE)
    costly = nodes.kernel & ((operations > 0) | (size > 0))
    of = _calls_of(nodes, program, old, costly)
    ops, moved = np.ones(n), np.ones(n)
    known, grown = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    for node in np.flatnonzero(costly).tolist():
        # Shapes of buffers are not followed; their work scales with what is in them.
        if program.buffered[node] >= 0:
            moved[node] = ops[node] = float((buffers or {}).get(int(program.buffered[node]), 1))
            known[node], grown[node] = True, moved[node] != 1
            continue
        call = program.calls.get(of.get(node, -1))
        if call is None:
            continue
        before, after = old[call.node], new[call.node]
        # A scalar has no dimension that could grow, so no rule is needed.
        known[node] = call.known or (call.node not in changed and _plain(call))
        if before.flops:
            ops[node] = after.flops / before.flops
        if before.bytes:
            moved[node] = after.bytes / before.bytes
        grown[node] = before != after
        if call.node in changed and nodes.gemms[node]:
            product = gemm(call.name, call.text, *changed[call.node])
            if product is not None:
                made.gemms[node] = (product,)
    made.assume(rule, grown, ops=ops, size=moved)
    made.tensors |= changed | {node: changed[call] for node, call in of.items() if call in changed}
    return costly & ~known


def _plain(call: Call) -> bool:
    """Return whether all tensors of a call are scalars, which nothing scales."""
    return all(len(each.dims) == 0 for argument in call.inputs for each in flat(argument))


def _changes(call: Call, factors: Factors) -> bool:
    return any(
        factors.changed(dim)
        for argument in (*call.inputs, *call.outputs)
        for each in flat(argument)
        for dim in each.dims
    )


def _resized(call: Call, factors: Factors) -> tuple[Arguments, Arguments]:
    return _side(call.given, call.inputs, factors), _side(call.made, call.outputs, factors)


def _side(side: Arguments, tensors: Sequence[Argument], factors: Factors) -> Arguments:
    values, shapes = list(side.values), list(side.shapes)
    for at, tensor in enumerate(tensors):
        values[at], shapes[at] = _one(values[at], shapes[at], tensor, factors)
    return replace(side, values=values, shapes=shapes)


def _one(value: Any, shape: Any, tensor: Argument, factors: Factors) -> tuple[Any, Any]:
    if isinstance(tensor, list):
        pairs = [_one(*each, factors) for each in zip(value, shape, tensor, strict=True)]
        return [each[0] for each in pairs], [each[1] for each in pairs]
    if tensor is None:
        return value, shape
    found = [factors.size(dim) for dim in tensor.dims]
    # A recorded tensor is [number, storage, offset, elements, bytes of an element, device].
    return [*value[:3], elements(tensor, factors), *value[4:]], found


def elements(tensor: Tensor, factors: Factors) -> int:
    """Return the new number of a tensor's elements."""
    found = 1
    for dim in tensor.dims:
        found *= factors.size(dim)
    return found


def _works(program: Program, changed: dict[int, tuple[Arguments, Arguments]], nodes: Nodes) -> list[Work]:
    works: list[Work | None] = [None] * nodes.graph.n_nodes
    for node, call in program.calls.items():
        works[node] = work(call.name, call.text, *changed.get(node, (call.given, call.made)))
    # Work of an operator without that of the operators it called, as the converter counts it.
    return exclusive(works, program.above.tolist(), nodes.graph.names())


def _calls_of(nodes: Nodes, program: Program, works: Sequence[Work], costly: Mask) -> dict[int, int]:
    """Return for each node with work the call that it belongs to: its own, or the one whose part or kernel it is.

    Parts and kernels name the same tensors as their call.
    """
    graph = nodes.graph
    found: dict[int, int] = {}
    latest: dict[tuple[str, ...], int] = {}
    for node in range(graph.n_nodes):
        if node not in program.calls and not costly[node]:
            continue
        # Wrappers whose work is done inside would hide the operator that does it.
        if node in program.calls and not (works[node].flops or works[node].bytes):
            continue
        text = tuple(part for side in graph.io(node).values() for part in side[:2])
        if node in program.calls:
            latest[text] = node
        if costly[node] and text in latest:
            found[node] = latest[text]
    return found
