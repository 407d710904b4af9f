"""The partition of ranks by structure, against a slow and obvious one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.trace import Graph, GraphBuilder, Node, Trace, encode, graph_of, nodes_of
from armillary.trace._decode import decode_many
from armillary.trace.trace import IGNORED


def slow(graph: Graph) -> Any:
    """Return the structure as plain tuples."""
    nodes = sorted(nodes_of(graph), key=lambda node: node.id)
    where = {node.id: at for at, node in enumerate(nodes)}
    return tuple(
        (
            node.type,
            node.duration_micros,
            tuple(sorted({where[dep] for dep in (*node.ctrl_deps, *node.data_deps) if dep in where})),
            tuple((name, kind, repr(value)) for name, kind, value, *_ in node.attrs if name not in IGNORED),
            (node.inputs, node.outputs) if node.type == 1 else None,
        )
        for node in nodes
    )


KINDS: list[tuple[str, Any]] = [
    ("int64", 1), ("int64", 2), ("int32", 1), ("uint64", 1), ("double", 1.0), ("string", "1"), ("string", ""),
    ("bytes", b"1"), ("bool", True), ("bool_list", [True]), ("bool_list", []), ("int64_list", [1]),
    ("string_list", ["a", ""]), ("string_list", ["", "a"]), ("bytes_list", [b"a", b""]), ("unset", None),
]  # fmt: skip
ATTRS = st.lists(
    st.tuples(st.sampled_from(["comm_size", "comm_dst", "pg_name", "x"]), st.sampled_from(KINDS)), max_size=2
).map(lambda pairs: [(name, *kind) for name, kind in pairs])
IDS = st.sampled_from([0, 1, 2, 3, 9, 2**63])
IO = st.sampled_from([None, ("a", "", ""), ("", "a", "")])
NODE = st.builds(
    Node,
    name=st.sampled_from(["a", "b"]),
    type=st.sampled_from([1, 4]),
    start_micros=st.integers(0, 1),
    duration_micros=st.integers(0, 1),
    ctrl_deps=st.lists(IDS, max_size=2),
    data_deps=st.lists(IDS, max_size=2),
    inputs=IO,
    outputs=IO,
    attrs=ATTRS,
)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    ids = draw(st.lists(IDS, unique=True, max_size=3))
    nodes = [copy.copy(draw(NODE)) for _ in ids]
    for node, ident in zip(nodes, ids, strict=True):
        node.id = ident
    return graph_of(nodes, version=draw(st.sampled_from(["1", "2"])))


@settings(max_examples=150, deadline=None)
@given(st.lists(graphs(), min_size=1, max_size=8), st.integers(0, 8))
def test_partition_is_that_of_the_slow_one(found: list[Graph], alone: int) -> None:
    together = [encode(graph) for graph in found[alone:]]
    batch = decode_many(together, [str(r) for r in range(len(together))], "interpreted") if together else []
    trace = Trace.from_ranks([*found[:alone], *batch])
    structure, examples = trace.structures()
    keys = [slow(graph) for graph in found]
    assert [keys[examples[s]] for s in structure.tolist()] == keys
    assert len(examples) == len(set(keys))


def test_generated_ranks_that_differ_only_in_ids_and_peers_are_alike() -> None:
    graphs = []
    for rank in range(4):
        builder = GraphBuilder(rank=rank, first_id=10 * rank)
        first = builder.compute("c", duration_micros=3)
        builder.all_reduce("g", 1 << 20, group=rank // 2, after=[first])
        builder.send((rank + 1) % 4, 100, after=[first])
        graphs.append(builder.graph())
    trace = Trace.from_ranks(graphs)
    structure, examples = trace.structures()
    assert (structure.tolist(), examples) == ([0, 0, 0, 0], [0])
    assert trace.structures(ignore=("comm_src", "comm_dst"))[0].tolist() == [0, 0, 1, 1]
    assert trace.structures(ignore=())[0].tolist() == [0, 1, 2, 3]


def test_replicated_and_repeated_graphs() -> None:
    builder = GraphBuilder()
    builder.barrier("b")
    trace = Trace.replicate(builder.nodes, ranks=1 << 20)
    assert trace.n_ranks == 1 << 20
    structure, examples = trace.structures()
    assert structure.shape == (1 << 20,)
    assert examples == [0]
    graph = builder.graph()
    trace = Trace.from_ranks({1: graph, 0: graph, 2: builder.graph()})
    assert trace.rank_graph.tolist() == [0, 0, 1]
    assert trace.structures()[0].dtype == np.int32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Trace.replicate([], ranks=0), "ranks is 0, expected at least 1"),
        (lambda: Trace.from_ranks([]), "no rank is given"),
        (lambda: Trace.from_ranks({0: [], 2: []}), "rank 1 is missing"),
    ],
)
def test_wrong_ranks(make: Any, message: str) -> None:
    from armillary.base.errors import InputError

    with pytest.raises(InputError, match=message):
        make()
