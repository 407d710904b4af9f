"""Findings about graphs, and summaries of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import GraphBuilder, Node, check, decode, graph_of, info
from armillary.trace.structure import find_cycle, validate


def messages(nodes: list[Node]) -> list[str]:
    return [f"{finding.severity}: {finding.message}" for finding in check(graph_of(nodes, "w.0.et"))]


TYPE, SIZE = ("comm_type", "int64", 0), ("comm_size", "int64", 8)


def node(kind: int, *attrs: tuple[str, str, object], **deps: list[int]) -> Node:
    return Node(1, "a", kind, attrs=list(attrs), **deps)  # type: ignore[arg-type]


FINDINGS: dict[str, tuple[list[Node], str]] = {
    "no nodes": ([], "warning: the graph has no nodes"),
    "dangling": (
        [node(4, data_deps=[9])],
        "warning: 1 dependency on an absent node is dropped: node 1 'a' needs 9",
    ),
    "duplicate": (
        [node(4), Node(1, "b", 4)],
        "error: 1 node has the id of an earlier node, expected unique",
    ),
    "cycle": (
        [node(4, data_deps=[2]), Node(2, "b", 4, ctrl_deps=[1])],
        "error: dependency cycle of 2 nodes, expected none: ",
    ),
    "self": ([node(4, data_deps=[1])], "error: dependency cycle of 1 node, expected none: 1 'a' -> 1"),
    "invalid": ([node(0)], "warning: 1 node of type INVALID_NODE, which nothing can run: 1 'a'"),
    "unknown type": ([node(12)], "error: 1 node of type 12, which nothing can run"),
    "no comm_size": ([node(7, TYPE)], "warning: 1 node of type COMM_COLL_NODE without comm_size: 1 'a'"),
    "no comm_type": ([node(7, SIZE)], "error: 1 node of type COMM_COLL_NODE without comm_type"),
    "no comm_dst": ([node(5, SIZE)], "error: 1 node of type COMM_SEND_NODE without comm_dst"),
    "no comm_src": ([node(6, SIZE)], "error: 1 node of type COMM_RECV_NODE without comm_src"),
    "no tensor_size": ([node(2)], "warning: 1 node of type MEM_LOAD_NODE without tensor_size"),
    "zero bytes": ([node(7, TYPE, ("comm_size", "int64", 0))], "warning: 1 collective of zero bytes: 1 'a'"),
    "comm_type": (
        [node(7, SIZE, ("comm_type", "int64", 12))],
        "error: 1 node with an unknown comm_type: 1 'a'",
    ),
    "kind": (
        [node(7, TYPE, ("comm_size", "double", 8.0))],
        "error: node 1 'a': attribute 'comm_size' is of kind double",
    ),
}


@pytest.mark.parametrize("case", FINDINGS)
def test_finding(case: str) -> None:
    nodes, message = FINDINGS[case]
    found = messages(nodes)
    assert any(text.startswith(message) for text in found), found


def test_a_good_graph_has_no_findings_and_many_alike_are_one() -> None:
    b = GraphBuilder()
    first = b.compute("a", duration_micros=1)
    b.all_reduce("g", 8, after=[first])
    b.barrier("end")
    assert check(b.graph()) == []
    found = messages([Node(i, "a", 0) for i in range(20)])
    assert len(found) == 1
    assert "20 nodes of type INVALID_NODE" in found[0]
    assert "(12 more)" in found[0]


def test_unknown_fields_are_a_finding() -> None:
    graph = decode(b"\x00\x04\x08\x01\x78\x01")
    assert [finding.message for finding in check(graph) if "of a newer schema" in finding.message]


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=20))
def test_cycle_is_found_exactly_where_there_is_one(n: int, edges: list[tuple[int, int]]) -> None:
    import networkx

    edges = [(a % n, b % n) for a, b in edges]
    graph = graph_of([Node(i, data_deps=[a for a, b in edges if b == i]) for i in range(n)])
    cycle = find_cycle(graph)
    reference = networkx.DiGraph(edges)
    assert bool(cycle) == (not networkx.is_directed_acyclic_graph(reference))
    for before, after in zip(cycle, [*cycle[1:], *cycle[:1]], strict=True):
        assert reference.has_edge(before, after)
    if cycle:
        with pytest.raises(InputError, match="<nodes>: dependency cycle"):
            validate(graph)
    else:
        validate(graph)


def test_a_long_chain_in_the_wrong_order_is_checked_compiled() -> None:
    n = 60_000
    nodes = [Node(i, data_deps=[i + 1] if i + 1 < n else []) for i in range(n)]
    assert find_cycle(graph_of(nodes)) == []
    nodes[-1].data_deps = [n // 2]
    assert sorted(find_cycle(graph_of(nodes))) == list(range(n // 2, n))


def test_info_counts_and_sums() -> None:
    b = GraphBuilder()
    a = b.compute("a")
    b.compute("a")
    for node in b.nodes:
        node.duration_micros = 2**63
    b.all_reduce("g", 100, after=[a])
    b.all_reduce("g", 2**62)
    b.send(1, 7)
    graph = b.graph("w.0.et")
    found = info(graph)
    assert found["types"] == {"COMP_NODE": 2, "COMM_SEND_NODE": 1, "COMM_COLL_NODE": 2}
    assert found["collectives"] == {"ALL_REDUCE": {"nodes": 2, "bytes": 100 + 2**62}}
    assert found["messages"] == {"COMM_SEND_NODE": 7}
    assert found["duration_micros"] == 2**64
    assert found["dependencies"] == {"ctrl": 0, "data": 1, "dangling": 0}
    assert found["attributes"]["comm_size"] == {"int64": 3}
    assert json.loads(json.dumps(found)) == found
    assert np.array_equal(graph.types, graph.types)
