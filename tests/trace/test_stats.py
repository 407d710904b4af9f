"""Statistics of traces, held against plain loops over nodes."""

from __future__ import annotations

import json
import re
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import GraphBuilder, Node, NodeType, Trace, graph_of, nodes_of
from armillary.trace.stats import stats

NODE = st.tuples(
    st.sampled_from(("a.1", "a.2", "b")),
    st.sampled_from([int(kind) for kind in NodeType]),
    st.integers(0, 10**6),
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(0, 10**12)),
    st.booleans(),
)


def build(rows: list[tuple[str, int, int, int, int | None, bool]]) -> list[Node]:
    nodes = []
    for i, (name, kind, micros, back, exact, gap) in enumerate(rows):
        node = Node(i, name, kind, data_deps=[i - back] if 0 < back <= i else [], duration_micros=micros)
        node.attrs = [("comm_size", "int64", micros), ("comm_type", "int64", 0), ("gap", "bool", gap)]
        node.attrs += [("stream", "int64", back), ("num_ops", "int64", 3)]
        if exact is not None:
            node.attrs.append(("duration_ns", "int64", exact))
        nodes.append(node)
    return nodes


def times(nodes: list[Node]) -> list[int]:
    return [
        next(
            (value for name, _, value, *_ in node.attrs if name == "duration_ns"), node.duration_micros * 1000
        )
        for node in nodes
    ]


@given(st.lists(NODE, max_size=12), st.integers(1, 3))
def test_sums_are_those_of_a_loop(
    rows: list[tuple[str, int, int, int, int | None, bool]], copies: int
) -> None:
    nodes = build(rows)
    found = stats(Trace.replicate(graph_of(nodes), copies))
    assert json.loads(json.dumps(found)) == found
    time = times(nodes)
    assert found["all"] == {"nodes": len(nodes) * copies, "time_ns": sum(time) * copies}
    assert found["flops"] == 3 * len(nodes) * copies
    by_name: dict[str, int] = {}
    by_type: dict[str, int] = {}
    for node, ns in zip(nodes, time, strict=True):
        name = re.sub("[0-9]+", "#", node.name)
        by_name[name] = by_name.get(name, 0) + ns * copies
        by_type[NodeType(node.type).name] = by_type.get(NodeType(node.type).name, 0) + ns * copies
    assert {row["name"]: row["time_ns"] for row in found["operators"]} == by_name
    assert {name: row["time_ns"] for name, row in found["types"].items()} == by_type
    assert sum(row["nodes"] for row in found["durations"]) == len(nodes) * copies
    assert sum(row["time_ns"] for row in found["lanes"]) == sum(time) * copies
    gaps = [ns for node, ns in zip(nodes, time, strict=True) if ("gap", "bool", True) in node.attrs]
    assert found["gap"]["time_ns"] == sum(gaps) * copies
    ends, levels = [], []
    for node, ns in zip(nodes, time, strict=True):
        ends.append(max((ends[parent] for parent in node.data_deps), default=0) + ns)
        levels.append(max((levels[parent] for parent in node.data_deps), default=0) + 1)
    assert found["longest_path"] == {"nodes": max(levels, default=0), "time_ns": max(ends, default=0)}
    for kind, name in ((NodeType.COMM_COLL_NODE, "ALL_REDUCE"), (NodeType.COMM_SEND_NODE, "SEND")):
        sizes = [node.duration_micros for node in nodes if node.type == kind]
        rows_of = [row for row in found["communication"] if row["type"] == name]
        assert len(rows_of) == bool(sizes)
        for row in rows_of:
            assert row["nodes"] == len(sizes) * copies
            assert (row["bytes"], row["min"], row["max"]) == (sum(sizes) * copies, min(sizes), max(sizes))
            assert row["median"] == statistics.median_low(sizes)


def test_ranks_add_up_and_lanes_are_named() -> None:
    graphs = []
    for rank in range(2):
        b = GraphBuilder(rank=rank)
        host = b.add(
            "host", NodeType.COMP_NODE, [("is_cpu_op", "bool", True), ("tid", "int64", 7)], duration_micros=2
        )
        b.add("kernel", NodeType.COMP_NODE, [("stream", "int64", 3)], after=[host], duration_micros=5)
        b.all_reduce("sum", 100 * (rank + 1), group=4)
        graphs.append(b.graph())
    found = stats(Trace.from_ranks(graphs), top=1)
    assert found["lanes"] == [
        {"kind": "stream", "number": 3, "nodes": 2, "time_ns": 10_000},
        {"kind": "thread", "number": 7, "nodes": 2, "time_ns": 4_000},
    ]
    assert found["communication"] == [
        {"type": "ALL_REDUCE", "group": "4", "nodes": 2, "bytes": 300, "min": 100, "median": 100, "max": 200}
    ]
    assert [row["name"] for row in found["operators"]] == ["kernel"]
    assert (found["operators_in_all"], found["starts"]) == (3, None)


def test_a_large_graph_gives_what_its_parts_give() -> None:
    b = GraphBuilder()
    for i in range(60_000):
        b.compute(f"op{i % 7}x", duration_micros=i % 11, after=[i - 1] if i % 5 else [])
    graph = b.graph()
    found = stats(Trace.replicate(graph, 1))
    assert found["all"]["time_ns"] == sum(times(nodes_of(graph)))
    assert [row["name"] for row in found["operators"]] == ["op#x"]
    assert found["longest_path"]["nodes"] == 5


@pytest.mark.parametrize("micros", [2**62, 2**64 - 1])
def test_a_duration_beyond_what_can_be_counted_is_an_error(micros: int) -> None:
    with pytest.raises(InputError, match=r"node 0 'a' takes .* µs, expected less than"):
        stats(Trace.replicate([Node(0, "a", 4, duration_micros=micros)], 1))
