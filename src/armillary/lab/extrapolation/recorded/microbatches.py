"""Scales the work that a recorded step does once for all of its microbatches when their number changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from armillary.convert.pytorch.arguments import Arguments
from armillary.convert.pytorch.flops import work
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.lab.extrapolation.recorded.calls import Call, Tensor
from armillary.lab.extrapolation.recorded.costs import resize
from armillary.lab.extrapolation.recorded.dimensions import Dim, Factors
from armillary.lab.extrapolation.recorded.tensors import Program
from armillary.lab.extrapolation.scaling import SIZE, Scaling

DIVIDES = ("aten::tensor_split", "aten::chunk", "aten::split")
JOINS = ("aten::cat", "aten::stack")
RULE = "microbatches: what is done once for all of them grows with their number"


def scale_outside(nodes: Nodes, program: Program, outside: Mask, old: int, new: int) -> Scaling:
    """Return what changes before and after the microbatches when their number goes from `old` to `new`.

    Their inputs and targets are divided into microbatches, and results put together from them.
    """
    made, factors = Scaling(nodes), Factors()
    lists: dict[int, tuple[bool, int]] = {}
    for call in program.calls.values():
        if not outside[call.node]:
            continue
        count = _count(call, old)
        if count is not None:
            factors.of[count] = Fraction(new, old)
        if call.name in DIVIDES and count is not None:
            lists[call.node] = True, 0
        elif call.name in JOINS and _joined(call, old):
            lists[call.node] = False, call.at("tensors", 0)
    unseen = resize(made, program, factors, RULE)
    joined = np.zeros(nodes.graph.n_nodes, np.bool_)
    for node, (results, at) in lists.items():
        call = program.calls[node]
        given, result = made.tensors.get(node, (call.given, call.made))
        given, result = (given, _longer(result, at, new)) if results else (_longer(given, at, new), result)
        made.tensors[node] = given, result
        if not results:
            before = work(call.name, call.text, call.given, call.made)
            after = work(call.name, call.text, given, result)
            joined[node] = True
            if before is not None and after is not None and before.bytes:
                made.factors[SIZE][_parts_of(nodes, node)] = after.bytes / before.bytes
    made.note(RULE, joined)
    # Dimensions are shared with the microbatches' own tensors; those keep their work, so everything inside is
    # reset.
    for factor in made.factors.values():
        factor[~outside] = 1
    made.tensors = {node: each for node, each in made.tensors.items() if outside[node]}
    made.gemms = {node: each for node, each in made.gemms.items() if outside[node]}
    made.rules = {rule: mask & outside for rule, mask in made.rules.items()}
    made.followed = True
    made.unclassified = unseen & outside
    return made


def _count(call: Call, parts: int) -> Dim | None:
    """Return the dimension that counts the microbatches where a call divides a tensor into them, or joins them."""
    whole = call.tensor("self", 0) if call.name in DIVIDES else call.result() if call.name in JOINS else None
    if not (_divided(call, parts) if call.name in DIVIDES else call.name in JOINS and _joined(call, parts)):
        return None
    # Splitting has made the dimension a product; its factor that is the number of parts is marked as whole.
    leaves = [leaf for dim in (whole.dims if whole is not None else ()) for leaf in dim.leaves()]
    return next((leaf for leaf in leaves if leaf.whole and leaf.size == parts), None)


def _divided(call: Call, parts: int) -> bool:
    return bool(call.outputs) and isinstance(call.outputs[0], list) and len(call.outputs[0]) == parts


def _joined(call: Call, parts: int) -> bool:
    given = call.argument("tensors", 0)
    return isinstance(given, list) and len(given) == parts and all(isinstance(each, Tensor) for each in given)


def _parts_of(nodes: Nodes, node: int) -> list[int]:
    """Return a node, and the parts of it that come after what it calls."""
    graph = nodes.graph
    name, io, parts = graph.name(node), graph.io(node), np.flatnonzero(graph.ints("part", 0)).tolist()
    return [
        node,
        *(each for each in parts if each > node and graph.name(each) == name and graph.io(each) == io),
    ]


def _longer(side: Arguments, at: int, count: int) -> Arguments:
    """Return arguments in which the list at a position has `count` entries: its own, repeated cyclically."""
    values, shapes, types = list(side.values), list(side.shapes), list(side.types)
    values[at], shapes[at] = _again(values[at], count), _again(shapes[at], count)
    # A list's type is written as "GenericList[Tensor(float),Tensor(float)]": one entry per item.
    kinds = types[at].partition("[")[2].removesuffix("]")
    if kinds:
        types[at] = f"{types[at].partition('[')[0]}[{','.join(_again(kinds.split(','), count))}]"
    return replace(side, values=values, shapes=shapes, types=types)


def _again(values: Sequence[Any], count: int) -> list[Any]:
    return [values[number % len(values)] for number in range(count)]
