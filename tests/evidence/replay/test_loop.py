"""The loop on a network that is not there: what starts when, in which order, and when it gives up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.evidence.replay.loop import Loop, Stuck
from armillary.evidence.replay.plan import COMMUNICATES, plan_of
from armillary.trace import Graph, GraphBuilder, Trace


class Sleep:
    """An operation of a network that takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def wait(self) -> None:
        time.sleep(self.seconds)


def loop_of(graph: Graph, issue: Callable[[int], Any] | None = None, timeout: float = 600.0) -> Loop:
    plan = plan_of(Trace.replicate(graph, 1)).ranks[0]
    durations = plan.compute.duration_ns.tolist()
    return Loop(
        plan, graph, issue or (lambda node: Sleep(0.001)), durations.__getitem__, timeout, lambda: False
    )


def run(graph: Graph) -> tuple[list[int], list[int]]:
    start, end = loop_of(graph).run()
    return (start - start.min()).tolist(), (end - start.min()).tolist()


def test_computing_takes_what_the_trace_says_and_nothing_is_lost_between() -> None:
    builder = GraphBuilder()
    last: list[int] = []
    for _ in range(200):
        last = [builder.compute("", duration_micros=37, after=last)]
    start, end = run(builder.graph())
    assert start == [37_000 * i for i in range(200)]
    assert end == [37_000 * (i + 1) for i in range(200)]


def test_streams_overlap_and_a_stream_does_one_thing_at_a_time() -> None:
    builder = GraphBuilder()
    for stream in (1, 1, 2):
        builder.compute("", duration_micros=500)
        builder.nodes[-1].attrs.append(("stream", "int64", stream))
    start, _ = run(builder.graph())
    assert start == [0, 500_000, 0]


def test_exact_durations_come_before_rounded_ones() -> None:
    builder = GraphBuilder()
    builder.compute("", duration_micros=5)
    builder.nodes[-1].attrs.append(("duration_ns", "int64", 4567))
    assert run(builder.graph())[1] == [4567]


def test_communication_overlaps_with_what_does_not_wait_for_it() -> None:
    builder = GraphBuilder()
    first = builder.compute("forward", duration_micros=1000)
    shared = builder.all_reduce("gradients", 8, after=[first])
    builder.compute("backward", duration_micros=2_000_000, after=[first])
    builder.compute("optimizer", duration_micros=1000, after=[shared])
    builder.nodes[-1].attrs.append(("stream", "int64", 1))
    start, end = run(builder.graph())
    assert start[2] == end[0] <= start[1] < end[2]
    assert start[3] == end[1]


def test_a_group_keeps_its_order_though_a_later_operation_is_ready_first() -> None:
    builder = GraphBuilder()
    slow = builder.compute("slow", duration_micros=5000)
    builder.all_reduce("first", 8, after=[slow])
    builder.all_reduce("second", 8)
    issued: list[int] = []
    loop = loop_of(builder.graph(), lambda node: issued.append(node) or Sleep(0))
    loop.run()
    assert issued == [1, 2]


def test_without_progress_it_says_what_is_issued_and_what_waits_for_its_turn() -> None:
    builder = GraphBuilder()
    shared = builder.all_reduce("never", 8)
    builder.all_reduce("after", 8, after=[shared])
    builder.all_reduce("beside", 8)
    never = threading.Event()

    class Never:
        def wait(self) -> None:
            never.wait(600)

    with pytest.raises(Stuck) as stuck:
        loop_of(builder.graph(), lambda node: Never(), timeout=0.3).run()
    never.set()
    assert stuck.value.running == [0]
    assert stuck.value.held == [2]
    assert stuck.value.issued == {("group", 0, 0, 0): 1}


def test_computing_for_longer_than_the_timeout_is_progress() -> None:
    builder = GraphBuilder()
    builder.compute("long", duration_micros=600_000)
    loop_of(builder.graph(), timeout=0.2).run()


def test_what_the_network_raises_comes_out() -> None:
    class Broken:
        def wait(self) -> None:
            raise RuntimeError("connection closed")

    builder = GraphBuilder()
    builder.all_reduce("", 8)
    with pytest.raises(RuntimeError, match="connection closed"):
        loop_of(builder.graph(), lambda node: Broken()).run()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["compute", "sum", "note"]), st.integers(0, 2), st.integers(0, 300), st.data()),
        min_size=1, max_size=25,
    )
)  # fmt: skip
def test_any_graph_runs_in_order(nodes: list[tuple[str, int, int, st.DataObject]]) -> None:
    builder = GraphBuilder()
    for i, (kind, stream, micros, data) in enumerate(nodes):
        after = sorted(data.draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else []
        if kind == "compute":
            builder.compute("", duration_micros=micros, after=after)
            builder.nodes[-1].attrs.append(("stream", "int64", stream))
        elif kind == "sum":
            builder.all_reduce("", 8, after=after)
        else:
            builder.add("", 1, after=after)
    graph = builder.graph()
    loop = loop_of(graph, lambda node: Sleep(0))
    start, end = loop.run()
    assert (end >= start).all()
    ptr, parent = graph.parents()
    child = np.repeat(np.arange(graph.n_nodes), np.diff(ptr))
    assert (start[child] >= end[parent]).all()
    computing = np.array([kind == "compute" for kind, *_ in nodes])
    for slot in {stream for _, stream, *_ in nodes}:
        mine = np.flatnonzero(computing & (graph.ints("stream", -1) == slot))
        mine = mine[np.lexsort((end[mine], start[mine]))]
        assert (start[mine[1:]] >= end[mine[:-1]]).all()
    issued = sorted(loop.plan.turn, key=loop.plan.turn.__getitem__)
    assert (np.diff(start[issued]) >= 0).all()
    assert (loop.plan.compute.kind[issued] == COMMUNICATES).all()
