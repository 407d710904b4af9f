"""Slices keep the order of what they keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import (
    Graph,
    GraphBuilder,
    Node,
    NodeType,
    Trace,
    check,
    decode,
    encode,
    graph_of,
    node_at,
    nodes_of,
)
from armillary.trace import slice as cut
from armillary.trace.select import Selection
from armillary.trace.slice import slice_graph, slice_trace


def order(graph: Graph) -> set[tuple[int, int]]:
    """Return which node comes before which, by ids."""
    import networkx

    known = set(graph.ids.tolist())
    edges = [
        (dep, node.id)
        for node in nodes_of(graph)
        for dep in (*node.data_deps, *node.ctrl_deps)
        if dep in known
    ]
    return set(networkx.transitive_closure(networkx.DiGraph(edges)).edges)


@settings(deadline=None)
@given(
    st.integers(1, 14),
    st.lists(st.tuples(st.integers(0, 13), st.integers(0, 13), st.booleans()), max_size=40),
    st.lists(st.booleans(), min_size=14, max_size=14),
    st.permutations(range(14)),
    st.sampled_from((1, 2, 32)),
)
def test_kept_nodes_have_the_order_that_they_had(
    n: int, edges: list[tuple[int, int, bool]], kept: list[bool], ids: list[int], most: int
) -> None:
    nodes = [Node(ids[i], f"n{i}", NodeType.COMP_NODE, [], [], attrs=[("i", "int64", i)]) for i in range(n)]
    for a, b, data in edges:
        low, high = sorted((a % n, b % n))
        if low < high:
            target = nodes[high].data_deps if data else nodes[high].ctrl_deps
            target.append(ids[low])  # type: ignore[attr-defined]
    graph = graph_of(nodes[::-1])
    mask = np.array(kept[:n][::-1])
    cut.MOST, before = most, cut.MOST
    try:
        part = slice_graph(graph, mask)
    finally:
        cut.MOST = before
    chosen = set(graph.ids[mask].tolist())
    assert {(a, b) for a, b in order(part) if a in chosen and b in chosen} == {
        (a, b) for a, b in order(graph) if a in chosen and b in chosen
    }
    joins = [node for node in nodes_of(part) if node.id not in chosen]
    assert all(node.type == NodeType.METADATA_NODE and not node.attrs for node in joins)
    assert not joins or most < 32
    assert [f.message for f in check(part) if "no nodes" not in f.message] == []
    assert [node.attrs for node in nodes_of(part) if node.id in chosen] == [
        node.attrs for node in nodes_of(graph) if node.id in chosen
    ]
    assert nodes_of(decode(encode(part))) == nodes_of(part)


def test_what_is_direct_stays_as_written_and_the_rest_is_bridged() -> None:
    b = GraphBuilder()
    a = b.compute("a")
    left_out = b.compute("left out", after=[a])
    c = b.compute("c", after=[left_out, a])
    b.compute("d", after=[left_out], ctrl_after=[c])
    part = slice_graph(b.graph(), np.array([True, False, True, True]))
    assert [(node.name, node.data_deps, node.ctrl_deps) for node in nodes_of(part)] == [
        ("a", [], []),
        ("c", [0], []),
        ("d", [], [2]),
    ]


def test_where_many_meet_a_node_stays_and_the_graph_stays_small() -> None:
    b = GraphBuilder()
    first = [b.compute("a") for _ in range(300)]
    hub = b.compute("hub", after=first)
    for _ in range(300):
        b.compute("b", after=[hub])
    graph = b.graph()
    found = slice_trace(Trace.replicate(graph, 3), [np.array([name != "hub" for name in graph.names()])])
    part = found.trace.graphs[0]
    assert (found.joins, part.n_nodes, found.trace.n_ranks) == (1, 601, 3)
    assert len(part.ctrl_deps) + len(part.data_deps) == 600
    assert part.types[300] == NodeType.METADATA_NODE


def test_everything_about_a_node_is_kept_and_dangling_dependencies_go() -> None:
    nodes = [
        Node(0, "## process_group:init ##", NodeType.METADATA_NODE, inputs=("g", "", "")),
        Node(1, "gone", 4, data_deps=[99], inputs=("x", "y", "z"), attrs=[("a", "int64", 1, "doc of gone")]),
        Node(2, "kept", 4, data_deps=[1, 98], start_micros=4, duration_micros=5, outputs=("o", "p", "q")),
    ]
    nodes[2].attrs = [("l", "int64_list", [1, 2]), ("s", "string", "t", "doc"), ("b", "bytes_list", [b"1"])]
    graph = graph_of(nodes, "source", "1.0", [("m", "string", "v", "d")])
    part = slice_graph(graph, np.array([False, False, True]))
    kept = node_at(graph, 2)
    kept.data_deps = []
    assert nodes_of(part) == [node_at(graph, 0), kept]
    assert (part.version, part.metadata_with_docs()) == ("1.0", [("m", "string", "v", "d")])
    again = decode(encode(part))
    assert nodes_of(again) == nodes_of(part)
    assert part.dangling == []


def test_a_large_chain_is_cut_by_the_compiled_kernel() -> None:
    n = 60_000
    graph = graph_of([Node(i, "n", 4, data_deps=[i - 1] if i else []) for i in range(n)])
    part = slice_graph(graph, np.arange(n) % 1000 == 0)
    assert part.ctrl_deps.tolist() == list(range(0, n - 1000, 1000))


def tree() -> Trace:
    b = GraphBuilder()
    root = b.compute("root")
    left = b.compute("layer.1", after=[root])
    right = b.all_reduce("layer.2", 8, after=[root])
    b.send(1, 8, after=[left])
    b.barrier("end", after=[right])
    nodes = nodes_of(b.graph())
    for node in nodes:
        node.start_micros = 10 * node.id
    return Trace.replicate(graph_of(nodes, "tree"), 2)


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        (Selection(), [0, 1, 2, 3, 4]),
        (Selection(ids=[(1, 2), (4, 9)]), [1, 2, 4]),
        (Selection(names=["^layer"]), [1, 2]),
        (Selection(names=["1$", "root"]), [0, 1, 3]),
        (Selection(types=["comp", "BARRIER"]), [0, 1, 4]),
        (Selection(types=["all-reduce", "COMM_SEND_NODE"]), [2, 3]),
        (Selection(first_ns=10_000, last_ns=20_000), [1, 2]),
        (Selection(around=[1]), [0, 1, 3]),
        (Selection(around=[1], depth=2), [0, 1, 2, 3]),
        (Selection(around=[1], depth=0), [1]),
        (Selection(ancestors_of=[3]), [0, 1, 3]),
        (Selection(descendants_of=[2]), [2, 4]),
        (Selection(ancestors_of=[4], descendants_of=[2], types=["COMM_COLL"]), [2, 4]),
    ],
)
def test_selection(selection: Selection, ids: list[int]) -> None:
    trace = tree()
    assert trace.graphs[0].ids[selection.masks(trace)[0]].tolist() == ids


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(names=["nothing"]), "tree: no node is selected, expected at least one"),
        (Selection(names=["("]), r"name '\(' is no regular expression"),
        (Selection(types=["comd"]), "type 'comd' is unknown, expected .*did you mean 'COMP'"),
        (Selection(around=[7]), "tree: no node has id 7, expected one up to 4"),
        (Selection(ancestors_of=[2**64]), "no node has id 18446744073709551616"),
    ],
)
def test_bad_selection(selection: Selection, message: str) -> None:
    with pytest.raises(InputError, match=message):
        selection.masks(tree())


def test_a_cycle_cannot_be_cut() -> None:
    graph = graph_of([Node(0, "a", 4, data_deps=[1]), Node(1, "b", 4, data_deps=[0])])
    with pytest.raises(InputError, match="dependency cycle"):
        slice_graph(graph, np.array([True, False]))
