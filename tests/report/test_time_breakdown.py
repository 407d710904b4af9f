"""The breakdown adds up, and agrees with a reference that asks every tick."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine.common.timeline import KINDS
from armillary.report.time_breakdown import PARTS, astra_exposed, breakdown, depth, lanes, measure, union


def test_every_part_of_the_example(timeline):
    assert breakdown(timeline, 0).parts() == {
        "compute": 300, "cpu": 40, "communication": 200, "waiting": 100, "memory": 0, "idle": 0}  # fmt: skip
    assert breakdown(timeline, 0).communication_hidden == 80 + 20
    assert breakdown(timeline, 1).parts() == {
        "compute": 310, "cpu": 0, "communication": 310, "waiting": 0, "memory": 50, "idle": 30}  # fmt: skip
    assert astra_exposed(timeline).tolist() == [640 - 300, 700 - 310, 650 - 40]


def test_an_empty_graph_has_an_empty_breakdown(empty):
    assert set(breakdown(empty, 0).parts().values()) == {0}
    assert astra_exposed(empty).tolist() == [0]


kinds = ["compute", "cpu", "collective", "send", "recv", "memory", "none"]
nodes = st.lists(
    st.builds(
        lambda kind, start, length: {"kind": kind, "start": start, "end": start + length},
        st.sampled_from(kinds),
        st.integers(0, 60),
        st.integers(0, 25),
    ),
    max_size=25,
)


def reference(nodes, finish):
    """Ask for every tick who was busy in it."""
    part_of = {"collective": "communication", "send": "communication", "recv": "communication"}
    parts, hidden = dict.fromkeys(PARTS, 0), 0
    for tick in range(finish):
        busy = {part_of.get(n["kind"], n["kind"]) for n in nodes if n["start"] <= tick < n["end"]}
        parts[next((part for part in PARTS if part in busy), "idle")] += 1
        hidden += "communication" in busy and bool(busy & {"compute", "cpu"})
    return parts, hidden


@settings(deadline=None)
@given(nodes, st.integers(0, 30), st.randoms(use_true_random=False))
def test_it_adds_up_and_equals_the_reference_in_any_order(build, nodes, tail, random):
    finish = max((n["end"] for n in nodes), default=0) + tail
    result = breakdown(build([{"nodes": nodes, "finish": finish}]), 0)
    assert sum(result.parts().values()) == result.finish == finish
    assert min(result.parts().values()) >= 0
    assert (result.parts(), result.communication_hidden) == reference(nodes, finish)
    shuffled = random.sample(nodes, len(nodes))
    assert breakdown(build([{"nodes": shuffled, "finish": finish}]), 0) == result


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=30)


@settings(deadline=None)
@given(spans)
def test_unions_lanes_and_depth(spans):
    start = np.array([s for s, _ in spans], dtype=np.int64)
    end = np.array([s + n for s, n in spans], dtype=np.int64)
    counts = np.zeros(60, np.int64)
    for s, n in spans:
        counts[s : s + n] += 1
    low, high = union(start, end)
    assert measure(low, high) == np.count_nonzero(counts)
    assert (low[1:] > high[:-1]).all()
    lane = lanes(start, end)
    for i in range(len(spans)):
        for j in range(i):
            same = lane[i] == lane[j]
            assert not (same and start[i] < end[j] and start[j] < end[i])
    at, open_now = depth(start, end)
    assert [0, *open_now.tolist()][-1] == 0
    for tick in range(60):
        before = np.searchsorted(at, tick, side="right")
        assert counts[tick] == (open_now[before - 1] if before else 0)


def test_no_python_runs_for_each_of_a_million_nodes(build, timeline, lines):
    n = 1_000_000
    random = np.random.default_rng(0)
    small = build([{"nodes": [{"kind": "compute", "start": 0, "end": 1}]}])
    start = random.integers(0, 10**9, n)
    end = start + random.integers(0, 1000, n)
    table = small.graphs[0]
    fields = {name: getattr(small, name) for name in small.__dataclass_fields__}
    graph = {name: getattr(table, name) for name in table.__dataclass_fields__}
    graph["kind"] = random.integers(0, len(KINDS), n).astype(np.int8)
    fields |= {"graphs": (type(table)(**graph),), "node_start": start, "node_end": end}
    fields |= {"node_ptr": np.array([0, n]), "finish": end.max(keepdims=True)}
    big = type(small)(**fields)
    assert lines(lambda: breakdown(big, 0)) < n / 100
    result = breakdown(big, 0)
    assert sum(result.parts().values()) == result.finish
