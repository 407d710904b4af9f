"""Differences of traces."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from armillary.trace import GraphBuilder, Node, Trace, graph_of, nodes_of
from armillary.trace.diff import diff, diff_graphs


def base() -> list[Node]:
    b = GraphBuilder()
    one = b.compute("one", duration_micros=5)
    two = b.compute("two", flops=10, after=[one], ctrl_after=[one])
    b.all_reduce("sum", 8, group=2, dims=[True], after=[two])
    b.compute("two", after=[two])
    nodes = nodes_of(b.graph())
    nodes[0].inputs = ("a", "b", "c")
    nodes[1].attrs.append(("note", "string", "x", "a doc string"))
    nodes[1].attrs.append(("names", "string_list", ["p", "q"]))
    return nodes


def changes(nodes: list[Node]) -> dict[str, int]:
    found = diff_graphs(graph_of(base()), graph_of(nodes))
    assert json.loads(json.dumps(found)) == found
    assert (found["added"]["count"], found["removed"]["count"]) == (0, 0)
    return {field: change["count"] for field, change in found["changed"].items()}


def test_equal_graphs_are_the_same_whatever_the_order_of_nodes() -> None:
    assert diff_graphs(graph_of(base()), graph_of(base()))["same"]
    found = diff_graphs(graph_of(base()), graph_of(base()[::-1]))
    assert found["same"]
    assert found["changed"] == {}


def test_every_field_is_compared() -> None:
    for field, value in (
        ("type", 2),
        ("start_micros", 9),
        ("duration_micros", 9),
        ("ctrl_deps", [2]),
        ("data_deps", [3, 77]),
        ("inputs", ("a", "b", "")),
        ("outputs", ("", "", "")),
    ):
        nodes = base()
        setattr(nodes[0], field, value)
        assert changes(nodes) == {field: 1}, field


def test_every_part_of_an_attribute_is_compared() -> None:
    for attribute in (
        ("note", "string", "y", "a doc string"),
        ("note", "string", "x", "another"),
        ("note", "bytes", b"x", "a doc string"),
        ("note", "string", "x"),
    ):
        nodes = base()
        nodes[1].attrs[-2] = attribute
        assert changes(nodes) == {"attribute note": 1}, attribute
    nodes = base()
    nodes[1].attrs[-1] = ("names", "string_list", ["p", "Q"])
    nodes[2].attrs.append(("names", "string_list", ["p", "q"]))
    assert changes(nodes) == {"attribute names": 2}
    nodes = base()
    nodes[1].attrs.append(nodes[1].attrs[0])
    del nodes[2].attrs[0]
    assert changes(nodes) == {"attribute is_cpu_op": 2}


def test_new_ids_alone_change_no_dependencies() -> None:
    nodes = base()
    for node in nodes:
        node.id += 100
        node.data_deps = [dep + 100 for dep in node.data_deps]
        node.ctrl_deps = [dep + 100 for dep in node.ctrl_deps]
    assert changes(nodes) == {"id": 4}


def test_a_new_name_and_a_new_node_are_told_apart() -> None:
    nodes = base()
    nodes[0].name = "uno"
    assert changes(nodes) == {"name": 1}
    found = diff_graphs(graph_of(base()), graph_of([*nodes[1:], Node(9, "new", 4)]))
    assert found["removed"]["examples"] == [{"id": 0, "name": "one"}]
    assert found["added"]["types"] == {"COMP_NODE": 1}
    assert found["changed"] == {}  # what needs node 0 still says so


def test_examples_have_the_values_before_and_after() -> None:
    nodes = base()
    nodes[2].attrs[2] = ("comm_size", "uint64", 8)
    nodes[3].duration_micros = 3
    found = diff_graphs(graph_of(base()), graph_of(nodes, version="9"))["changed"]
    assert found["attribute comm_size"]["examples"] == [
        {"id": 2, "name": "sum", "before": "int64 8", "after": "uint64 8"}
    ]
    assert found["duration_micros"]["examples"][0]["before"] == 0
    assert found["file version"]["examples"] == [{"before": "0.0.4", "after": "9"}]


def test_ranks_of_the_same_pair_of_graphs_are_compared_once() -> None:
    one, two = graph_of(base()), graph_of(base()[:3])
    found = diff(Trace.from_ranks([one] * 4), Trace.from_ranks([one, two, two, two, two]))
    assert [(graph["ranks"], graph["same"]) for graph in found["graphs"]] == [([0], True), ([1, 2, 3], False)]
    assert (found["same"], found["ranks"]) == (False, [4, 5])
    assert not diff(Trace.replicate(one, 2), Trace.replicate(one, 3))["same"]


ROW = st.tuples(
    st.integers(0, 9), st.sampled_from("ab"), st.integers(0, 1), st.lists(st.integers(0, 9), max_size=2)
)


@given(*[st.lists(ROW, max_size=6, unique_by=lambda row: row[0])] * 2)
def test_same_means_equal_as_sets_of_nodes(
    one: list[tuple[int, str, int, list[int]]], two: list[tuple[int, str, int, list[int]]]
) -> None:
    def graph(rows: list[tuple[int, str, int, list[int]]]) -> list[Node]:
        return [Node(i, name, 4, data_deps=sorted(set(deps)), duration_micros=d) for i, name, d, deps in rows]

    def plain(rows: list[tuple[int, str, int, list[int]]]) -> list[str]:
        return sorted(map(repr, graph(rows)))

    found = diff_graphs(graph_of(graph(one)), graph_of(graph(two)))
    assert found["same"] == (plain(one) == plain(two))
    matched = found.get("matched", {"id": len(one), "name": 0})
    removed = found["removed"]["count"] if "removed" in found else 0
    assert sum(matched.values()) + removed == len(one)
