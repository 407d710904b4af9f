"""Graphs that differ in durations only are lowered once: against graphs that are lowered one by one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.engine.common.items import read_view
from armillary.engine.common.network import Communicators
from armillary.engine.common.result import timeline_of
from armillary.engine.physical.alike import Alike
from armillary.engine.physical.lower import lower
from armillary.engine.physical.nodes import lower_nodes
from armillary.engine.physical.program import execute
from armillary.platform.files.native import load_platform
from armillary.platform.model import Platform
from armillary.trace import Graph, GraphBuilder, NodeType, Trace, decode, encode
from armillary.trace._decode import decode_many

CHANGES = (
    "pace", "pace", "pace", "no time", "exact", "exact of zero", "group", "size", "precision", "dependency", "stream",
    "list", "work", "more", "name", "memory",
)  # fmt: skip
"""In what a graph differs from the first; most keep the work and change its pace."""


def machine(roofline: bool) -> Platform:
    """A machine of four, whose roofline times all kernels that name work, or only those without a time."""
    npu: dict[str, Any] = {"peak": "10 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}}
    network = [{"name": "n", "topology": "Switch", "size": 4, "bandwidth": "50 GB/s", "latency": "1 us"}]
    return load_platform({"network": network, "npu": npu, "compute": {"roofline": roofline}})


def graph(rank: int, change: str, micros: list[int], exact: list[int], group: int = 1) -> Graph:
    """A small graph with all kinds of attributes, with one change."""
    b = GraphBuilder()
    last: list[int] = []
    for at, (time, ns) in enumerate(zip(micros, exact, strict=True)):
        time = 0 if change == "no time" and at == 1 else time
        if at % 3 == 2:
            size = 4096 if change == "size" and at == 2 else 1024
            named: dict[str, Any] = {} if group < 0 else {"group": str(group + (change == "group"))}
            node = b.all_reduce("sum", size, after=last, **named)
        else:
            work = {"flops": 10**9 if change == "work" and at == 3 else 10**6} if at % 3 == 0 else {}
            after = [] if change == "dependency" and at == 4 else last
            node = b.compute("other" if change == "name" else "k", duration_micros=time, after=after, **work)
            if change.startswith("exact") or at == 1:
                b.nodes[-1].attrs.append(("duration_ns", "int64", 0 if change == "exact of zero" else ns))
            text = "fp8" if change == "precision" and at == 0 else "bf16"
            b.nodes[-1].attrs.append(("precision", "string", text))
            b.nodes[-1].attrs.append(("stream", "int32", 5 if change == "stream" and at == 3 else at % 2))
        if at == 2:
            dims = [False] if change == "list" else [True]
            b.nodes[-1].attrs.append(("involved_dim", "bool_list", dims))
        last = [node]
    if change == "memory":
        b.compute("load", duration_micros=1, after=last)
        b.nodes[-1].type = NodeType.MEM_LOAD_NODE
        b.nodes[-1].attrs.append(("tensor_size", "int64", 1024))
    if change == "more":
        b.compute("k", duration_micros=1)
    return b.graph(f"rank {rank}")


def same(one: Any, other: Any) -> bool:
    """Tell whether two values of a field are equal, array or not."""
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)


times = st.lists(st.integers(1, 9), min_size=6, max_size=6)
ranks = st.lists(st.tuples(st.sampled_from(CHANGES), times, times), min_size=2, max_size=5)


@given(ranks, st.booleans(), st.sampled_from(["built", "apart", "together"]))
def test_nodes_and_views_are_those_of_single_graphs(
    made: list[tuple[str, list[int], list[int]]], roofline: bool, how: str
) -> None:
    graphs = [graph(rank, *each) for rank, each in enumerate(made)]
    if how == "apart":
        graphs = [decode(encode(each), each.source) for each in graphs]
    elif how == "together":
        graphs = decode_many([encode(each) for each in graphs], [each.source for each in graphs])
    platform, alike = machine(roofline), Alike()
    comms = Communicators(platform)
    comms.groups |= {1: np.array([0, 1, 2, 3]), 2: np.array([0, 1, 2, 3])}
    views = {}
    for each in graphs:
        found, expected = alike(each, platform, None), lower_nodes(each, platform, None)
        for field in fields(expected):
            if field.name not in ("graph", "like", "recorded"):
                assert same(getattr(found, field.name), getattr(expected, field.name)), field.name
        assert found.graph is each
        view = read_view(each, expected, platform, comms)
        if found.like is not None:
            for name in ("calls", "call", "peer", "tag", "size"):
                assert same(getattr(views[id(found.like)], name), getattr(view, name)), name
        views[id(found)] = view


@pytest.mark.parametrize("batch", [False, True])
def test_ranks_of_own_paces_share_their_rows(batch: bool) -> None:
    times = np.random.default_rng(0).integers(1, 9, (4, 6))
    graphs = [graph(rank, "pace", row.tolist(), row.tolist(), -1) for rank, row in enumerate(times)]
    if batch:
        graphs = decode_many([encode(each) for each in graphs], [each.source for each in graphs])
    trace = Trace.from_ranks(graphs)
    program = lower(trace, machine(False))
    assert len(program.views) == 4
    assert len(program.tables["PACES"]) == 4 * 6
    assert len(program.tables["NODES"]) == 6 * program.layout.N_COLUMNS
    # In memory durations stand once, and so do starts and ends.
    for rank, view in enumerate(program.views):
        assert np.shares_memory(view.nodes.ticks, program.tables["PACES"])
        assert same(view.nodes.ticks, lower_nodes(graphs[rank], machine(False), None).ticks)
    run = execute(program, "compiled")
    timeline = timeline_of(program, run, machine(False), {})
    assert np.shares_memory(timeline.node_start, run.state) and np.shares_memory(timeline.node_end, run.state)


def test_a_change_of_work_is_lowered_on_its_own() -> None:
    alike, platform = Alike(), machine(False)
    ones = [1] * 6
    first = alike(graph(0, "pace", ones, ones), platform, None)
    for change in set(CHANGES) - {"pace", "name", "group", "exact"}:
        assert alike(graph(1, change, ones, ones), platform, None).kind is not first.kind, change
    for change in ("pace", "name", "group"):
        assert alike(graph(1, change, [2] * 6, ones), platform, None).kind is first.kind, change
