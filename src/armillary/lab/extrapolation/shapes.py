"""Tokens in the shapes of tensors, as PyTorch records them with every operator."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from armillary.base.json_text import json_within
from armillary.lab.extrapolation.scaling import Floats
from armillary.trace import Graph

Sizes = tuple[int, int]
"""Samples of a microbatch, and tokens of a sample."""


def token_sizes(graph: Graph) -> Sizes | None:
    """Return samples and tokens per sample: the shape of the first matrix of integers, which are token ids."""
    for position in range(graph.n_nodes):
        _, shapes, types = graph.io(position).get("outputs", ("", "", ""))
        if "long" in types:
            for shape in _shapes(shapes):
                if len(shape) == 2:
                    return shape[0], shape[1]
    return None


def has_shapes(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the nodes that name shapes of their inputs or outputs."""
    found = np.zeros(graph.n_nodes, np.bool_)
    for position in range(graph.n_nodes):
        found[position] = any(any(_shapes(each[1])) for each in graph.io(position).values())
    return found


def shape_factors(graph: Graph, sizes: Sizes, axis: str, factor: float) -> tuple[Floats, Floats]:
    """Return factors of the operations and of the bytes of every node, (n_nodes,) each.

    Bytes scale with the elements of all tensors, operations with those of the largest.
    """
    operations, moved = np.ones(graph.n_nodes), np.ones(graph.n_nodes)
    known: dict[str, tuple[float, float]] = {}
    for position in range(graph.n_nodes):
        io = graph.io(position)
        text = "\n".join(each[1] for each in io.values())
        # Most operators repeat in every layer with the same shapes.
        if text not in known:
            shapes = [shape for each in io.values() for shape in _shapes(each[1])]
            before = [prod(shape) for shape in shapes]
            after = [prod(shape) * factor ** _times(shape, sizes, axis) for shape in shapes]
            largest = max(range(len(shapes)), key=before.__getitem__, default=-1)
            total = sum(before)
            known[text] = (
                (after[largest] / before[largest], sum(after) / total)
                if total and before[largest]
                else (1.0, 1.0)
            )
        operations[position], moved[position] = known[text]
    return operations, moved


def _times(shape: tuple[int, ...], sizes: Sizes, axis: str) -> int:
    """Return how many dimensions of a tensor scale with the axis.

    Samples come first, or samples and tokens are one dimension.
    """
    batch, length = sizes
    joined = batch * length
    if axis == "batch":
        return int(bool(shape) and (shape[0] == batch or joined in shape[:2]))
    if batch in shape[:1]:
        # [batch, heads, length, length]: scores have the length twice and grow by its square.
        return sum(size == length for size in shape[1:])
    # (1, length) is a mask or the positions, which all samples share.
    return int(joined in shape[:2] or shape[:2] == (1, length))


def _shapes(text: str) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that a list, nested or not, has."""
    try:
        found: Any = json_within(text) if text else []
    except ValueError:
        return
    yield from _inside(found)


def _inside(value: Any) -> Iterator[tuple[int, ...]]:
    if isinstance(value, list) and value and all(isinstance(each, int) for each in value):
        yield tuple(value)
    elif isinstance(value, list):
        for each in value:
            yield from _inside(each)
