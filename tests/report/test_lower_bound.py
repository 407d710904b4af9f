"""Bounds: the arithmetic of a port, what must come before and after, and never above the run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.engine.common.timeline import Timeline
from armillary.report import bound, bound_line
from armillary.report.lower_bound import heads_and_tails, quick_bound

SWITCH = {"name": "wafer", "topology": "Switch", "size": 512, "latency_ns": 10.0}


def one_all_reduce(build, rate, total=7_000_000, **info):
    sent = 2 * 511 * 2**30 // 512
    node = {"kind": "collective", "label": "all-reduce", "size": 2**30, "start": 0, "end": total, "call": 0}
    return build(
        [{"nodes": [node]}],
        rank_class=[0] * 512,
        calls=[[sent]],
        dimensions=[SWITCH | {"bandwidth_bytes_per_ns": rate}],
        ports=[{"out_bytes_per_ns": rate, "into_bytes_per_ns": rate}],
        **{"profile": "physical"} | info,
    )


@pytest.mark.parametrize(("rate", "ms"), [(350.0, 6.124), (500.0, 4.287), (600.0, 3.572)])
def test_a_gibibyte_over_512_npus_on_a_switch(build, rate, ms):
    found = bound(one_all_reduce(build, rate))
    assert found.what == "port of dimension wafer"
    assert found.ticks == pytest.approx(2 * 511 * 2**30 / 512 / rate, rel=2e-6)
    assert round(found.ticks / 1e6, 3) == ms
    assert found.efficiency == found.ticks / 7_000_000
    assert found.ticks * (1 - 1e-8) - 1 <= quick_bound(one_all_reduce(build, rate)) <= found.ticks


def test_the_line_of_the_summary(build):
    made = one_all_reduce(build, 350.0)
    assert (
        bound_line(made, bound(made)) == "Lower bound 6.124 ms (port of dimension wafer): efficiency 87.5 %"
    )
    fast = one_all_reduce(build, 350.0, total=1000, profile="astra-sim")
    assert bound(fast).efficiency is None
    assert "efficiency" not in bound_line(fast, bound(fast))
    assert "the astra-sim profile beats it" in bound_line(fast, bound(fast))
    assert "is wrong" in bound_line(one_all_reduce(build, 350.0, total=1000), bound(fast))


def test_a_finer_tick_and_a_slower_direction_out(build):
    made = one_all_reduce(build, 350.0, tick_ns=0.5, total=2 * 7_000_000)
    assert round(bound(made).ticks / 2e6, 3) == 6.124
    made.info["ports"][0]["out_bytes_per_ns"] = 175.0
    assert round(bound(made).ticks / 4e6, 3) == 6.124
    into = dataclasses.replace(made, call_bytes=made.call_bytes * [0, 1], call_each=made.call_each * [0, 1])
    assert round(bound(into).ticks / 2e6, 3) == 6.124


def test_what_comes_before_and_after_a_port_counts(build):
    nodes = [
        {"kind": "compute", "start": 0, "end": 100},
        {"kind": "collective", "size": 8, "start": 100, "end": 900, "parents": [0], "call": 0},
        {"kind": "compute", "start": 900, "end": 950, "parents": [1]},
    ]
    info = {"dimensions": [SWITCH | {"bandwidth_bytes_per_ns": 2.0}], "profile": "physical"}
    made = build([{"nodes": nodes}], calls=[[1001]], **info)
    kinds = {part.kind: part for part in bound(made).parts}
    assert (kinds["port"].ticks, kinds["port"].before, kinds["port"].after) == (100 + 500 + 50, 100, 50)
    assert kinds["compute"].ticks == kinds["path"].ticks == 150
    assert bound(made, {"dimension 0"}).ticks == 150
    assert bound(made, {"compute"}).ticks == 500
    assert bound(made, {"compute", "network"}).parts == ()
    assert bound(made).efficiency == 650 / 950


def test_streams_are_beside_each_other(build):
    nodes = [
        {"kind": "compute", "start": 0, "end": 100, "stream": 1, "flops": 500},
        {"kind": "compute", "start": 100, "end": 200, "stream": 1, "flops": 10**9},
        {"kind": "compute", "start": 0, "end": 150, "stream": 2, "flops": 0},
        {"kind": "compute", "start": -1, "end": -1, "stream": 2},
    ]
    parts = {part.kind: part for part in bound(build([{"nodes": nodes}], peak_flops_per_ns=10)).parts}
    assert (parts["compute"].ticks, parts["compute"].name) == (200, "compute on stream 1")
    assert parts["flops"].ticks == 50 + 100  # the second ran faster than the peak: its own time


def test_flops_count_at_the_peak_of_their_precision(build):
    nodes = [
        {"kind": "compute", "start": 0, "end": 100, "flops": 500, "precision": 2},
        {"kind": "compute", "start": 100, "end": 200, "flops": 500, "precision": 1},
    ]
    peaks = {"peak_flops_per_ns": 10.0, "peaks_flops_per_ns": {"bf16": 10.0, "fp8": 20.0}}
    parts = {part.kind: part for part in bound(build([{"nodes": nodes}], **peaks)).parts}
    assert parts["flops"].ticks == 25 + 50


def test_nothing_has_no_bound(build, empty):
    for made in (build([]), empty):
        found = bound(made)
        assert (found.ticks, found.what, found.efficiency) == (0, "", None)
        assert bound_line(made, found) == ""


@st.composite
def runs(draw):
    """Nodes of one slot each, run in a random order of issue, after all they wait for."""
    nodes, free = [], {}
    for i in range(draw(st.integers(0, 12))):
        parents = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        kind = draw(st.sampled_from(["compute", "collective", "memory"]))
        slot = (kind, draw(st.integers(0, 1)))
        ready = max([free.get(slot, 0), *(nodes[p]["end"] for p in parents)])
        start = ready + draw(st.integers(0, 3))
        least = draw(st.integers(0, 9))
        end = start + least + (0 if kind == "compute" else draw(st.integers(0, 9)))
        free[slot] = end
        nodes.append({"kind": kind, "stream": slot[1], "start": start, "end": end, "least": least,
                      "parents": sorted(parents), "flops": draw(st.integers(0, 50))})  # fmt: skip
    return nodes


@settings(deadline=None)
@given(runs(), st.integers(0, 9), st.permutations(range(12)))
def test_it_is_never_above_the_run(build, nodes, tail, shuffled):
    order = [i for i in shuffled if i < len(nodes)]
    place = {old: new for new, old in enumerate(order)}
    moved = [nodes[i] | {"parents": [place[p] for p in nodes[i]["parents"]]} for i in order]
    finish = max((n["end"] for n in nodes), default=0) + tail
    # The collectives of a slot share no port with others: a port of one byte per tick carried all.
    calls = []
    for node in moved:
        if node["kind"] == "collective":
            node["call"] = len(calls)
            calls.append([(node["end"] - node["start"]) * (node["stream"] == d) for d in range(2)])
    dims = [SWITCH | {"bandwidth_bytes_per_ns": 1.0, "latency_ns": 4.0}] * 2
    made = build(
        [{"nodes": moved, "finish": finish}],
        calls=calls, dimensions=dims, profile="physical", peak_flops_per_ns=7,
    )  # fmt: skip
    found = bound(made)
    assert found.ticks <= finish
    assert quick_bound(made) <= found.ticks
    assert all(bound(made, {what}).ticks <= found.ticks for what in ("compute", "network", "dimension 1"))
    compiled = heads_and_tails(made, made.node_least, "compiled")
    for one, other in zip(compiled, heads_and_tails(made, made.node_least, "interpreted"), strict=True):
        assert one.tolist() == other.tolist()
    ends = {}
    for i, node in enumerate(nodes):
        ends[i] = node["least"] + max((ends[p] for p in node["parents"]), default=0)
    path = {part.kind: part.ticks for part in found.parts}.get("path", 0)
    assert path >= max(ends.values(), default=0)  # compute nodes of no least time count with their own


def wide(build, classes, n):
    """Many classes of a chain each, with a second dependency for every node."""
    small = build([{"nodes": [{"kind": "compute", "start": 0, "end": 1}]}])
    table = small.graphs[0]
    parents = np.stack((np.arange(n) - 1, np.arange(n) - 2), axis=1).clip(0)
    ptr = np.concatenate(([0, 0, 1], 1 + 2 * np.arange(1, n - 1)))
    parent = np.concatenate(([0], parents[2:].ravel()))
    graph = dataclasses.replace(
        table, name=np.full(n, ""), node_id=np.arange(n, dtype=np.uint64), kind=np.full(n, 1, np.int8),
        label=np.full(n, ""), size=np.zeros(n, np.int64), flops=np.full(n, 100), parent_ptr=ptr,
        parent=parent.astype(np.int32), stream=np.full(n, -1), peer=np.full(n, -1, np.int32),
        precision=np.full(n, -1, np.int8),
    )  # fmt: skip
    start = np.tile(np.arange(n) * 5, classes)
    return dataclasses.replace(
        small, rank_class=np.arange(classes, dtype=np.int32), representative=np.arange(classes),
        class_graph=np.zeros(classes, np.int32), finish=np.full(classes, 5 * n), graphs=(graph,),
        node_ptr=np.arange(classes + 1) * n, node_start=start, node_end=start + 5,
        node_least=np.full(classes * n, 5),
    )  # fmt: skip


def test_no_python_runs_for_each_of_many_nodes(build, lines):
    made = wide(build, 64, 100_000)
    assert bound(made).ticks == 500_000
    assert lines(lambda: bound(made)) < 100_000


def test_a_million_ranks_of_a_class_cost_nothing(build, lines):
    made = one_all_reduce(build, 350.0)
    big = dataclasses.replace(made, rank_class=np.zeros(2**20, np.int32))
    assert bound(big).ticks == bound(made).ticks
    assert lines(lambda: bound(big)) < 2 * lines(lambda: bound(made))


def test_files_of_before_are_read(build, timeline, tmp_path):
    timeline.save(tmp_path / "new")
    added = (
        "node_least",
        "node_call",
        "call_group",
        "call_bytes",
        "call_each",
        "call_ns",
        "cut_dims",
        "cut_latency",
    )
    added += ("phase_port_bytes", "stream", "peer")
    with np.load(tmp_path / "new") as data:
        np.savez(tmp_path / "old.npz", **{k: v for k, v in data.items() if not k.endswith(added)})
    old = Timeline.load(tmp_path / "old.npz")
    assert old.node_least.tolist() == [0] * len(old.node_start)
    assert old.phase_port_bytes.tolist() == old.phase_bytes.tolist()
    assert old.table(0).peer.tolist() == old.table(0).stream.tolist() == [-1] * len(old.table(0).kind)
    assert bound(old) == bound(timeline)
