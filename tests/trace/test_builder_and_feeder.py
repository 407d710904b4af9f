"""Writing nodes by hand, and issuing them in order."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import CollectiveType, Feeder, GraphBuilder, Node, NodeType, decode, encode, graph_of


def test_attributes_are_those_other_readers_expect() -> None:
    b = GraphBuilder(rank=2)
    a = b.compute("fwd", flops=10, bytes=20)
    c = b.all_reduce("g", size=1 << 20, after=[a], group="1", dims=[True, False])
    s = b.send(3, 100, tag=7, after=[c], ctrl_after=[a])
    b.recv(1, 100, tag=7)
    b.memory_load("w", 64)
    b.memory_store("w", 64)
    b.metadata("## process_group:init ##", values="['[]']")
    b.collective("bc", CollectiveType.BROADCAST, 8, duration_micros=4)
    graph = decode(encode(b.graph()))
    assert [NodeType(t).name for t in graph.types] == [
        "COMP_NODE", "COMM_COLL_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE",
        "METADATA_NODE", "COMM_COLL_NODE",
    ]  # fmt: skip
    assert graph.attrs(0) == [
        ("is_cpu_op", "bool", False), ("num_ops", "int64", 10), ("tensor_size", "uint64", 20),
    ]  # fmt: skip
    assert graph.attrs(1) == [
        ("is_cpu_op", "bool", False), ("comm_type", "int64", 0), ("comm_size", "int64", 1 << 20),
        ("involved_dim", "bool_list", [True, False]), ("pg_name", "string", "1"),
    ]  # fmt: skip
    assert graph.attrs(s) == [
        ("is_cpu_op", "bool", False), ("comm_size", "int64", 100), ("comm_src", "int32", 2),
        ("comm_dst", "int32", 3), ("comm_tag", "int32", 7),
    ]  # fmt: skip
    assert graph.ints("comm_src", -1).tolist() == [-1, -1, 2, 1, -1, -1, -1, -1]
    assert graph.io_inputs(6) == "['[]']"
    ptr, parent = graph.parents()
    assert parent[ptr[2] : ptr[3]].tolist() == [0, 1]
    assert (graph.version, b.graph().source) == ("0.0.4", "rank 2")


def test_sizes_may_have_units() -> None:
    b = GraphBuilder()
    b.all_gather("g", "1 GiB")
    b.reduce_scatter("g", "2 kB")
    b.all_to_all("g", 5)
    assert b.graph().ints("comm_size").tolist() == [1 << 30, 2000, 5]
    with pytest.raises(InputError, match=r"node 'g': size: got '1 parsec'"):
        b.all_reduce("g", "1 parsec")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40), st.integers(0, 2**32))
def test_feeder_runs_every_node_after_its_parents(edges: list[tuple[int, int]], seed: int) -> None:
    rng = random.Random(seed)
    order = rng.sample(range(31), 31)  # ids in no particular order; edges go up
    nodes = [Node(i, data_deps=[min(e) for e in edges if max(e) == i and min(e) != i]) for i in order]
    graph = graph_of(nodes)
    feeder = Feeder(graph)
    ids = graph.ids.tolist()
    running: list[int] = []
    finished: set[int] = set()
    while not feeder.done:
        ready = feeder.issuable()
        assert [ids[n] for n in ready] == sorted(ids[n] for n in ready)
        assert all(set(nodes[n].data_deps) <= finished for n in ready)
        if ready and rng.random() < 0.6:
            node = ready[0]
            if rng.random() < 0.5:
                assert feeder.next_issuable() == node
            else:
                feeder.take(node)
            running.append(node)
        elif running:
            node = running.pop(rng.randrange(len(running)))
            finished.add(ids[node])
            freed = feeder.finish(node)
            assert set(freed) <= set(feeder.issuable())
    assert finished == set(range(31))
    assert feeder.next_issuable() is None


def test_feeder_refuses_nodes_out_of_turn() -> None:
    b = GraphBuilder()
    first = b.compute("a")
    second = b.compute("b", after=[first])
    feeder = Feeder(b.graph())
    with pytest.raises(InputError, match=r"node 1 'b' cannot be issued now, expected one of \[0\]"):
        feeder.take(second)
    with pytest.raises(InputError, match="node 0 'a' is not running"):
        feeder.finish(first)


def test_feeder_refuses_cycles() -> None:
    with pytest.raises(InputError, match="cycle"):
        Feeder(graph_of([Node(0, data_deps=[1]), Node(1, data_deps=[0])]))


def test_times_and_counts_are_taken_as_people_write_them() -> None:
    b = GraphBuilder()
    first = b.compute("a", duration_micros="1.5 us")
    second = b.compute("b", duration_micros=2.0, after=first)
    b.compute("c", flops=1e9, bytes=1e6, after=[first, second], ctrl_after=second)
    b.all_reduce("d", 2.0**20, duration_micros=0.25, after=second)
    nodes = b.nodes
    assert [node.duration_micros for node in nodes] == [1, 2, 0, 0]
    assert ("duration_ns", "int64", 1500) in nodes[0].attrs and ("duration_ns", "int64", 250) in nodes[
        3
    ].attrs
    # A time of whole µs needs no attribute that few readers know.
    assert not any(name == "duration_ns" for name, *_ in nodes[1].attrs)
    assert ("num_ops", "int64", 10**9) in nodes[2].attrs and ("tensor_size", "uint64", 10**6) in nodes[
        2
    ].attrs
    assert nodes[2].data_deps == (first, second) and nodes[2].ctrl_deps == (second,)
    assert b.graph().n_nodes == 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"flops": 1.5}, {"flops": -1}, {"flops": True}, {"flops": float("nan")}, {"flops": "many"}, {"bytes": 0.5},
        {"bytes": "5 parsecs"}, {"bytes": 2**70}, {"duration_micros": "soon"}, {"duration_micros": -1},
        {"duration_micros": float("inf")}, {"duration_micros": None}, {"after": "a"}, {"after": [1.5]},
        {"after": [True]}, {"ctrl_after": None}, {"after": 0}, {"after": [99]}, {"after": [-1]}, {"after": [[0]]},
        {"ctrl_after": 1}, {"flops": 2**63}, {"bytes": 2**63}, {"bytes": "-1 MiB"}, {"bytes": "1 MB/s"},
        {"duration_micros": 2**62}, {"duration_micros": "5"}, {"cpu": "no"}, {"cpu": 1},
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_at_the_call(wrong: dict[str, object]) -> None:
    b = GraphBuilder()
    with pytest.raises(InputError, match="node 'x'"):
        b.compute("x", **wrong)  # type: ignore[arg-type]
    assert b.nodes == []


WRONG_CALLS: dict[str, Callable[[GraphBuilder], object]] = {
    "name of a node: got 5": lambda b: b.compute(5),  # type: ignore[arg-type]
    "UTF-8": lambda b: b.compute("\ud800"),
    "operation: got 'allreduc', .*did you mean 'all-reduce'": lambda b: b.collective("a", "allreduc", 8),
    "operation: got 77": lambda b: b.collective("a", 77, 8),
    "size: got -1": lambda b: b.all_reduce("a", -1),
    "size: got 9223372036854775808": lambda b: b.all_gather("a", 2**63),
    "size: got '1 parsec'": lambda b: b.reduce_scatter("a", "1 parsec"),
    "group: got -1": lambda b: b.all_reduce("a", 8, group=-1),
    "group: got True": lambda b: b.all_reduce("a", 8, group=True),
    r"group: got \[0, 1\]": lambda b: b.all_reduce("a", 8, group=[0, 1]),  # type: ignore[arg-type]
    r"dims: got \[1, 0\]": lambda b: b.all_reduce("a", 8, dims=[1, 0]),  # type: ignore[list-item]
    r"dims: got \[\]": lambda b: b.all_to_all("a", 8, dims=[]),
    "dims: got True": lambda b: b.barrier(dims=True),  # type: ignore[arg-type]
    "name of a node: got 8": lambda b: b.barrier(8),  # type: ignore[arg-type]
    "peer: got -1": lambda b: b.send(-1, 8),
    "peer: got '1'": lambda b: b.recv("1", 8),  # type: ignore[arg-type]
    "peer: got 2147483648": lambda b: b.send(2**31, 8),
    "peer: got 3, the rank of this builder": lambda b: b.send(3, 8),
    "peer: got 1.5": lambda b: b.recv(1.5, 8, axis="pp"),  # type: ignore[arg-type]
    "axis: got 0": lambda b: b.recv(1, 8, axis=0),  # type: ignore[arg-type]
    "size: got -1, expected a whole number of bytes": lambda b: b.send(1, -1),
    "tag: got -1": lambda b: b.send(1, 8, -1),
    "tag: got 'x'": lambda b: b.recv(1, 8, "x"),  # type: ignore[arg-type]
    "local: got 'yes'": lambda b: b.memory_load("a", 8, local="yes"),  # type: ignore[arg-type]
    "in_switch: got 1": lambda b: b.memory_store("a", 8, in_switch=1),  # type: ignore[arg-type]
    "operation: got 5": lambda b: b.storage("a", 8, 5),  # type: ignore[arg-type]
    "path: got 5": lambda b: b.checkpoint("a", 8, path=5),  # type: ignore[arg-type]
    "values: got 5": lambda b: b.metadata("a", 5),  # type: ignore[arg-type]
    "attribute 'a' .int32. is 1099511627776": lambda b: b.metadata("m", attrs=[("a", "int32", 2**40)]),
    "attribute 'a' has kind 'int33'": lambda b: b.add("m", 4, [("a", "int33", 2)]),
    "attrs: got .*expected .name, kind, value": lambda b: b.add("m", 4, [("a", True)]),  # type: ignore[list-item]
    "kind: got 'COMP_NOD', .*did you mean 'COMP_NODE'": lambda b: b.add("m", "COMP_NOD"),  # type: ignore[arg-type]
    "node: got 7, expected ids that earlier calls returned: this is the first node": lambda b: b.wait_for(7),
    "GraphBuilder: rank: got -1": lambda b: GraphBuilder(rank=-1),
    "GraphBuilder: rank: got '0'": lambda b: GraphBuilder(rank="0"),  # type: ignore[arg-type]
    "GraphBuilder: first_id: got -1": lambda b: GraphBuilder(first_id=-1),
    "GraphBuilder: version: got 4": lambda b: GraphBuilder(version=4),  # type: ignore[arg-type]
    "source: got 5": lambda b: b.graph(5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("said", WRONG_CALLS)
def test_every_method_refuses_what_is_wrong_and_adds_nothing(said: str) -> None:
    b = GraphBuilder(rank=3)
    with pytest.raises(InputError, match=said):
        WRONG_CALLS[said](b)
    assert b.nodes == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda b: b.compute("a", duration="5 us"), "no option 'duration', .*did you mean 'duration_micros'"),
        (lambda b: b.compute("a", deps=[]), "no option 'deps', .*did you mean 'after'"),
        (lambda b: b.all_reduce("a", 8, ranks=[0, 1]), "no option 'ranks', .*did you mean 'group'"),
        (
            lambda b: b.send(1, 8, label="x"),
            "no option 'label', expected one of after, ctrl_after, tag, name, axis",
        ),
    ],
)
def test_an_unknown_option_names_the_nearest(call: Callable[[GraphBuilder], object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call(GraphBuilder())


def test_a_dependency_on_a_later_node_is_added_when_it_is_there() -> None:
    b = GraphBuilder(first_id=10)
    first = b.compute("a")
    second = b.compute("b", after={first})
    third = b.compute("c", after=np.array([first, second]))
    b.wait_for(first, ctrl_after=third)
    assert [node.data_deps for node in b.nodes] == [(), (10,), (10, 11)]
    assert b.nodes[0].ctrl_deps == (12,)
    with pytest.raises(
        InputError, match="after: got 13, expected ids that earlier calls returned, from 10 to 12"
    ):
        b.wait_for(first, after=13)


def test_a_collective_has_the_name_that_people_give_it() -> None:
    b = GraphBuilder()
    for operation in ("all-reduce", "ALL_REDUCE", CollectiveType.ALL_REDUCE, 0):
        b.collective("a", operation, 8)
    b.collective("b", "broadcast", 8)
    assert b.graph().ints("comm_type").tolist() == [0, 0, 0, 0, 5]
