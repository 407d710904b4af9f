"""Graphs with other attributes or fewer nodes, against the same done node by node."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.lab.extrapolation.edit import (
    bypassed,
    inserted,
    kept_nodes,
    taken_nodes,
    with_dependencies,
    with_durations,
    with_ints,
    with_lists,
    with_names,
    with_texts,
    without,
)
from armillary.trace import Graph, GraphBuilder
from armillary.trace.graph import duration_ns
from armillary.trace.node import graph_of, nodes_of


def graph() -> Graph:
    """Return nodes with and without an attribute, documented and not, with IOInfo and dependencies."""
    builder = GraphBuilder(rank=0)
    builder.metadata("about", "[1]", [("shape", "int64_list", [1, 2])])
    first = builder.compute("a", flops=10, bytes=20)
    builder.nodes[-1].attrs.append(("gemm", "int64_list", [1, 1, 2, 3, 4]))
    builder.nodes[-1].attrs.append(("note", "string", "x", "a doc"))
    second = builder.all_reduce("b", 64, group="7", after=[first])
    builder.send(1, 32, after=[second])
    builder.nodes[-1].outputs = ("v", "[[2]]", "t")
    builder.compute("c", duration_micros=5, after=[first, second], ctrl_after=[first])
    return builder.graph()


def plain(graph: Graph) -> list[dict[str, Any]]:
    """Return nodes with their attributes by name."""
    return [vars(node) | {"attrs": sorted(node.attrs, key=str)} for node in nodes_of(graph)]


masks = st.lists(st.booleans(), min_size=5, max_size=5).map(lambda each: np.array(each, np.bool_))
numbers = st.lists(st.integers(0, 99), min_size=5, max_size=5).map(lambda each: np.array(each, np.int64))


@given(masks, numbers)
@settings(max_examples=30, deadline=None)
def test_attributes_are_those_of_the_slow_way(nodes: np.ndarray, values: np.ndarray) -> None:
    made = inserted(
        without(with_ints(graph(), {"num_ops": values}), "note", nodes), "new", "int32", nodes, values
    )
    slow = nodes_of(graph())
    for node, here, value in zip(slow, nodes.tolist(), values.tolist(), strict=True):
        node.attrs = [(n, k, value if n == "num_ops" else v, *doc) for n, k, v, *doc in node.attrs]
        if here:
            node.attrs = [each for each in node.attrs if each[0] != "note"] + [("new", "int32", value)]
    assert plain(made) == plain(graph_of(slow))


@given(masks)
@settings(max_examples=30, deadline=None)
def test_nodes_are_kept_with_all_that_is_theirs(nodes: np.ndarray) -> None:
    slow = [node for node, here in zip(nodes_of(graph()), nodes.tolist(), strict=True) if here]
    assert plain(kept_nodes(graph(), nodes)) == plain(graph_of(slow))


@given(st.lists(st.integers(0, 4), max_size=8))
@settings(max_examples=30, deadline=None)
def test_nodes_are_taken_as_often_as_asked(positions: list[int]) -> None:
    slow = [nodes_of(graph())[at] for at in positions]
    assert plain(taken_nodes(graph(), np.array(positions, np.int64))) == plain(graph_of(slow))


@given(masks)
@settings(max_examples=30, deadline=None)
def test_what_waited_for_a_node_waits_for_what_that_waited_for(drop: np.ndarray) -> None:
    ptr, parents = graph().parents()

    def awaited(node: int) -> set[int]:
        found = set()
        for each in parents[ptr[node] : ptr[node + 1]].tolist():
            found |= awaited(each) if drop[each] else {each}
        return found

    kept = np.flatnonzero(~drop).tolist()
    made = bypassed(graph(), drop)
    at, after = made.parents()
    ours = [{kept[each] for each in after[at[i] : at[i + 1]].tolist()} for i in range(made.n_nodes)]
    assert ours == [awaited(node) for node in kept]
    assert made.names() == [graph().name(node) for node in kept]


def test_other_names_and_dependencies() -> None:
    made = with_names(with_dependencies(graph(), [[], [], [1], [0, 2], []]), ["x", "y", "x", "", "z"])
    assert made.names() == ["x", "y", "x", "", "z"]
    assert [each.tolist() for each in made.parents()] == [[0, 0, 0, 1, 3, 3], [1, 0, 2]]


def test_texts_lists_and_durations() -> None:
    made = with_texts(graph(), "pg_name", np.array([-1, -1, 0, 1, -1]), ["dp", "tp"])
    codes, names = made.strings("pg_name")
    assert [names[code] if code >= 0 else None for code in codes.tolist()] == [None, None, "dp", "tp", None]
    made = with_lists(made, "gemm", [None, [1, 1, 9, 9, 9], None, None, None])
    assert made.int_lists("gemm")[1] == [(1, 1, 9, 9, 9)]
    made = with_durations(made, np.array([0, 1500, 0, 0, 7000]))
    assert duration_ns(made).tolist() == [0, 1500, 0, 0, 7000]
    assert made.duration_micros.tolist() == [0, 2, 0, 0, 7]
