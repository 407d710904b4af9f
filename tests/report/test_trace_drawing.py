"""Which nodes share a box, and what a box says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.report.trace_drawing import COLLAPSES, CTRL, DATA, drawing, pattern, short_name
from armillary.report.trace_times import KINDS, durations, lanes, starts
from armillary.trace import GraphBuilder, Node, NodeType, graph_of


def node(ident, name="op", kind=NodeType.COMP_NODE, ctrl=(), data=(), micros=0, **attrs):
    kinds = {bool: "bool", int: "int64", str: "string"}
    return Node(
        ident, name, kind, ctrl, data, 0, micros, attrs=[(k, kinds[type(v)], v) for k, v in attrs.items()]
    )


@pytest.fixture
def step():
    """Return forward → two backward parts, of which the first is reduced, on a stream of its own."""
    b = GraphBuilder()
    first = b.compute("layer1.forward", duration_micros=4)
    second = b.compute("layer2.forward", duration_micros=6, after=[first])
    grad = b.compute("backward", duration_micros=10, after=[second], ctrl_after=[second])
    b.all_reduce("sum", 4096, after=[grad])
    b.compute("update", duration_micros=1, ctrl_after=[grad])
    return b.graph()


def edges(made):
    columns = (made.src, made.dst, made.dependency, made.weight)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_every_node(step):
    made = drawing(step)
    assert made.how == "none" and made.n_boxes == 5
    assert edges(made) == [(0, 1, DATA, 1), (1, 2, DATA | CTRL, 2), (2, 3, DATA, 1), (2, 4, CTRL, 1)]
    assert made.duration.tolist() == [4000, 6000, 10000, 0, 1000]
    assert made.size.tolist() == [0, 0, 0, 4096, 0]
    assert [KINDS[k] for k in made.kind] == ["compute"] * 3 + ["collective", "compute"]


def test_chains_run_together_until_they_fork(step):
    made = drawing(step, "chains")
    assert made.box.tolist() == [0, 0, 0, 1, 2]
    assert made.labels[0] in ("layer1.forward · layer2.forward",)
    assert made.count.tolist() == [3, 1, 1] and made.duration.tolist() == [20000, 0, 1000]


def test_names_differ_in_numbers_only(step):
    made = drawing(step, "names")
    assert made.labels == ["layer*.forward", "backward", "sum", "update"]
    assert made.count.tolist() == [2, 1, 1, 1]


def test_lanes(step):
    assert drawing(step, "lanes").labels == ["compute", "collectives"]


def test_calls_open_the_largest_first():
    # main calls a (which calls 3) and b (which calls 1); each on one CPU thread.
    tree = {1: None, 2: 1, 3: 2, 4: 2, 5: 2, 6: 1, 7: 6}
    nodes = [
        node(i, f"f{i}{'abcdefg'[i - 1]}", ctrl=[p] if p else [], is_cpu_op=True) for i, p in tree.items()
    ]
    made = drawing(graph_of(nodes), "calls", max_nodes=15)  # a fifth: 3 boxes
    assert made.labels == ["f1a", "f2b", "f6f"]
    assert made.count.tolist() == [1, 4, 2]
    assert drawing(graph_of(nodes), "calls", max_nodes=30).count.tolist() == [1, 1, 1, 1, 1, 2]
    assert drawing(graph_of(nodes), "calls", max_nodes=1).count.tolist() == [7]


def test_calls_of_the_same_name_in_a_row_are_one():
    names = {1: "main", 2: "get1", 3: "get2", 4: "put", 5: "get3"}
    nodes = [node(i, name, ctrl=[1] if i > 1 else [], is_cpu_op=True) for i, name in names.items()]
    assert drawing(graph_of(nodes), "calls", max_nodes=20).box.tolist() == [0, 1, 1, 2, 3]
    nodes.append(node(6, "inner", ctrl=[3], is_cpu_op=True))
    assert drawing(graph_of(nodes), "calls", max_nodes=30).box.tolist() == [0, 1, 2, 3, 4, 5]


def test_auto_draws_everything_as_long_as_it_is_small(step):
    assert drawing(step, "auto", 5).how == "none"
    assert drawing(step, "auto", 4).how == "lanes"


def test_auto_of_a_long_chain():
    b = GraphBuilder()
    last = b.compute("start")
    for i in range(3000):
        last = b.compute(f"op {i}", after=[last])
    made = drawing(b.graph(), "auto")
    assert made.how == "chains" and made.n_boxes == 1


def test_a_cycle_and_an_absent_node_are_no_obstacle():
    nodes = [node(1, data=[2]), node(2, data=[1]), node(3, data=[3, 99])]
    for how in COLLAPSES:
        assert drawing(graph_of(nodes), how).n_boxes >= 1
    assert edges(drawing(graph_of(nodes))) == [(0, 1, DATA, 1), (1, 0, DATA, 1), (2, 2, DATA, 1)]


def test_refusals(step):
    with pytest.raises(InputError, match=r"collapse 'name': expected .* mean 'names'"):
        drawing(step, "name")
    with pytest.raises(InputError, match="<nodes>: 2 nodes have the id 7, expected one"):
        drawing(graph_of([node(7), node(7)]))


def test_an_empty_graph():
    for how in COLLAPSES:
        assert drawing(graph_of([]), how).n_boxes == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["a1", "a2", "b"]), st.lists(st.integers(0, 9), max_size=3), st.booleans()),
        max_size=10,
    ),
    st.sampled_from(COLLAPSES),
    st.integers(1, 12),
)
def test_boxes_hold_all_nodes_and_dependencies(rows, how, max_nodes):
    graph = graph_of(
        [
            node(i, name, ctrl=[d for d in deps if d < i][:1], data=deps, micros=i, is_cpu_op=cpu)
            for i, (name, deps, cpu) in enumerate(rows)
        ]
    )
    made = drawing(graph, how, max_nodes)
    assert made.count.sum() == len(rows)
    assert made.duration.sum() == sum(i * 1000 for i in range(len(rows)))
    assert len(made.labels) == made.n_boxes
    slow = {}
    for i, (_, deps, _) in enumerate(rows):
        for flag, parents in ((DATA, deps), (CTRL, [d for d in deps if d < i][:1])):
            for parent in parents:
                if parent < len(rows):
                    key = int(made.box[parent]), int(made.box[i])
                    if key[0] != key[1] or made.how == "none":
                        found = slow.setdefault(key, [0, 0])
                        found[0] |= flag
                        found[1] += 1
    assert edges(made) == [(*key, *slow[key]) for key in sorted(slow)]


def test_lane_names():
    nodes = [
        node(0, is_cpu_op=True, tid=7),
        node(1, is_cpu_op=False, stream=20),
        node(2, kind=NodeType.COMM_COLL_NODE, pg_name="3"),
        node(3, kind=NodeType.COMM_COLL_NODE, pg_name="3", stream=5),
        node(4, kind=NodeType.COMM_COLL_NODE),
        node(5, kind=NodeType.COMM_SEND_NODE),
        node(6, is_cpu_op=True),
        node(7, kind=99),
    ]
    lane, names = lanes(graph_of(nodes))
    assert [names[i] for i in lane] == [
        "CPU thread 7", "compute stream 20", "collectives of group 3", "collective stream 5", "collectives",
        "messages", "CPU", "other",
    ]  # fmt: skip


def test_exact_times_come_first():
    nodes = [node(0, micros=2, duration_ns=1700), node(1, micros=2), node(2, duration_ns=0, micros=9)]
    assert durations(graph_of(nodes)).tolist() == [1700, 2000, 0]
    assert starts(graph_of(nodes)) is None
    nodes[1].start_micros = 5
    nodes[2].attrs.append(("start_ns", "int64", 4321))
    assert np.array_equal(starts(graph_of(nodes)), [0, 5000, 4321])


@pytest.mark.parametrize(
    ("field", "value"), [("duration_ns", -1), ("start_ns", 2**58 + 1), ("duration_micros", 2**64 - 1)]
)
def test_times_out_of_range(field, value):
    damaged = node(5, "op")
    if field.endswith("micros"):
        setattr(damaged, field, value)
    else:
        damaged.attrs.append((field, "int64", value))
    with pytest.raises(
        InputError, match=f"<nodes>: node 5 'op': {field} is {value}, expected a time from 0 to"
    ):
        (starts if field.startswith("start") else durations)(graph_of([damaged]))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::conv2d", "aten::conv2d"),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 4>(float*, int)",
            "CatArrayBatchedCopy",
        ),
        ("void cutlass::Kernel<f<2> >(Params)", "cutlass::Kernel"),
        ("autograd::engine::evaluate_function: MmBackward0", "evaluate MmBackward0"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("", "(no name)"),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short


def test_patterns():
    assert pattern("layer12.attn.3") == "layer*.attn.*"
    assert pattern("aten::conv2d") == "aten::conv2d"
    assert pattern("ProfilerStep#4") == "ProfilerStep#*"
