"""Tokens in shapes of tensors."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.lab.extrapolation import extrapolate, recognise
from armillary.lab.extrapolation.shapes import has_shapes, shape_factors, token_sizes
from armillary.trace import Graph, GraphBuilder, Trace


def graph(ids: bool = True) -> Graph:
    builder = GraphBuilder()

    def add(name: str, inputs: str, outputs: str, kind: str = "['Tensor(float)']") -> None:
        builder.compute(name, flops=1000, bytes=4000, duration_micros=10)
        builder.nodes[-1].inputs, builder.nodes[-1].outputs = ("", inputs, kind), ("", outputs, kind)

    if ids:
        add("ids", "[]", "[[4, 64]]", "['Tensor(long int)']")
    add("add", "[[4, 64, 128], [1, 64, 128]]", "[[4, 64, 128]]")
    add("norm", "[[256, 128], [128]]", "[[256, 128]]")
    add("scores", "[[4, 8, 64, 64]]", "[[4, 8, 64, 64]]")
    add("weights", "[[[1024, 128], [128]]]", "[[1024, 128]]")
    builder.all_reduce("gradients", 1 << 20, after=[0])
    return builder.graph()


def test_sizes_are_those_of_token_ids() -> None:
    assert token_sizes(graph()) == (4, 64)
    assert token_sizes(graph(ids=False)) is None
    assert has_shapes(graph()).tolist() == [True] * 5 + [False]


def test_tensors_with_the_axis_grow() -> None:
    operations, moved = shape_factors(graph(), (4, 64), "batch", 3.0)
    assert operations.tolist() == [3, 3, 3, 3, 1, 1]
    assert moved[1] == pytest.approx((2 * 3 * 32768 + 8192) / (2 * 32768 + 8192))
    assert moved[4] == 1
    operations, moved = shape_factors(graph(), (4, 64), "sequence", 2.0)
    assert operations.tolist() == [2, 2, 2, 4, 1, 1]
    assert moved[3] == 4


def test_durations_follow() -> None:
    made = extrapolate(recognise(Trace.replicate(graph(), 2))[0], {"batch": 2}).trace.graphs[0]
    assert made.duration_micros.tolist() == [20, 19, 20, 20, 10, 0]
    with pytest.raises(InputError, match="expected --sizes batch=N"):
        extrapolate(recognise(Trace.replicate(graph(ids=False), 2))[0], {"batch": 2})
    told = extrapolate(recognise(Trace.replicate(graph(ids=False), 2))[0], {"batch": 2}, sizes=(4, 64))
    assert told.trace.graphs[0].duration_micros.tolist() == [19, 20, 20, 10, 0]
