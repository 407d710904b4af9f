"""Whatever a trace holds, its tools return or say in one message why not."""

from __future__ import annotations

import contextlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.trace import Node, Trace, graph_of
from armillary.trace.check_ranks import check_trace
from armillary.trace.diff import diff
from armillary.trace.select import Selection
from armillary.trace.slice import slice_trace
from armillary.trace.stats import stats

NUMBER = st.one_of(st.integers(-3, 3), st.sampled_from((2**31 - 1, -(2**63), 2**63 - 1)))
NAMES = (
    "comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag", "comm_root", "is_cpu_op", "duration_ns", "num_ops",
    "tensor_size", "stream", "tid", "gap", "pg_name", "involved_dim", "comm_splits",
)  # fmt: skip
ATTRIBUTE = st.one_of(
    st.tuples(st.sampled_from(NAMES), st.just("int64"), NUMBER),
    st.tuples(st.sampled_from(NAMES), st.just("uint64"), st.sampled_from((0, 2**64 - 1))),
    st.tuples(st.just("pg_name"), st.just("string"), st.sampled_from(("", "1", "²", "x"))),
    st.tuples(st.just("involved_dim"), st.just("bool_list"), st.lists(st.booleans(), max_size=2)),
    st.tuples(st.just("comm_splits"), st.just("int64_list"), st.lists(NUMBER, max_size=2)),
)
GROUPS = ('[{"pg_name": "1", "ranks": [0]}]', '[{"pg_name": [], "ranks": {}}]', "[1]")
TEXTS = ("", "pg_name", *(f"['{text}']" for text in GROUPS))
NODE = st.builds(
    Node,
    id=st.sampled_from((0, 1, 2, 3, 4, 2**64 - 1)),
    name=st.sampled_from(("", "a1", "[é")),
    type=st.integers(-1, 8),
    ctrl_deps=st.lists(st.integers(0, 4), max_size=2),
    data_deps=st.lists(st.integers(0, 2), max_size=2),
    start_micros=st.sampled_from((0, 5, 2**64 - 1)),
    duration_micros=st.sampled_from((0, 5, 2**64 - 1)),
    inputs=st.one_of(st.none(), st.tuples(st.sampled_from(TEXTS), st.just(""), st.just(""))),
    attrs=st.lists(ATTRIBUTE, max_size=5),
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.lists(NODE, max_size=5), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
)
def test_only_input_errors(graphs: list[list[Node]], ranks: list[int]) -> None:
    distinct = [graph_of(nodes, f"rank {i}") for i, nodes in enumerate(graphs)]
    trace = Trace.from_ranks([distinct[i % len(distinct)] for i in ranks])
    assert all("\n" not in finding.message for finding in check_trace(trace).all)
    with contextlib.suppress(InputError):
        stats(trace)
    with contextlib.suppress(InputError):
        diff(trace, Trace.replicate(distinct[0], 2))
    with contextlib.suppress(InputError):
        masks = Selection(ids=[(1, 3)], types=["all-reduce", "comp"], first_ns=0, around=[1]).masks(trace)
        part = slice_trace(trace, masks).trace
        assert all(not graph.dangling for graph in part.graphs)
    assert all(isinstance(graph.ids, np.ndarray) for graph in trace.graphs)
