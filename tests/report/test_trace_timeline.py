"""Timelines of what traces record."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.report.trace_timeline import nested_lanes, place, write_trace_timeline
from armillary.trace import GraphBuilder, Node, NodeType, Trace, graph_of


def node(ident, start_ns, duration_ns, name="op", data=(), **attrs):
    kinds = {bool: "bool", int: "int64", str: "string"}
    given = {"start_ns": start_ns, "duration_ns": duration_ns, **attrs}
    return Node(ident, name, NodeType.COMP_NODE, (), data, start_ns // 1000, duration_ns // 1000,
                attrs=[(k, kinds[type(v)], v) for k, v in given.items()])  # fmt: skip


def read(path):
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def slices(path):
    """Return {(process, thread): [(name, ts, dur)]}."""
    processes, threads, found = {}, {}, defaultdict(list)
    for event in read(path)["traceEvents"]:
        if event["name"] == "process_name":
            processes[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            threads[event["tid"]] = event["args"]["name"]
        elif event["ph"] == "X":
            place = processes[event["pid"]], threads[event["tid"]]
            found[place].append((event["name"], event["ts"], event["dur"]))
    return dict(found)


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_recorded_times_are_micros_to_the_ns(tmp_path, name):
    late = graph_of([node(1, 5_000_500, 1_500, stream=7), node(2, 5_010_000, 250, is_cpu_op=True, tid=1)])
    early = graph_of([node(1, 4_000_000, 1_000_001)])
    shown = write_trace_timeline([(0, late), (3, early)], tmp_path / name)
    assert slices(tmp_path / name) == {
        ("rank 0", "compute stream 7"): [("op", 1000.5, 1.5)],
        ("rank 0", "CPU thread 1"): [("op", 1010.0, 0.25)],
        ("rank 3", "compute"): [("op", 0.0, 1000.001)],
    }
    assert [(title, times.recorded) for title, times in shown] == [("rank 0", True), ("rank 3", True)]
    assert read(tmp_path / name)["otherData"]["origin_ns"] == "4000000"


def test_micros_where_there_are_no_ns(tmp_path):
    write_trace_timeline([(0, graph_of([Node(1, "a", NodeType.COMP_NODE, (), (), 7, 3), Node(2, "b", 4)]))],
                         tmp_path / "t.json")  # fmt: skip
    assert slices(tmp_path / "t.json") == {("rank 0", "compute"): [("b", 0.0, 0.0), ("a", 7.0, 3.0)]}


def test_calls_nest_and_overlaps_get_a_thread(tmp_path):
    times = ((1000, 1000, "outer"), (1000, 400, "inner"), (1500, 800, "across"))
    rows = [node(i, *what, is_cpu_op=True) for i, what in enumerate(times)]
    rows += [node(i + 3, *what, is_cpu_op=False) for i, what in enumerate(times[:2])]
    write_trace_timeline([(0, graph_of(rows))], tmp_path / "t.json")
    found = {thread: [row[0] for row in rows] for (_, thread), rows in slices(tmp_path / "t.json").items()}
    assert found == {
        "CPU": ["outer", "inner"], "CPU (2)": ["across"], "compute": ["inner"], "compute (2)": ["outer"]}  # fmt: skip


def test_without_starts_nodes_run_as_soon_as_possible(tmp_path):
    b = GraphBuilder()
    first = b.compute("a", duration_micros=5)
    second = b.compute("b", duration_micros=7)
    b.compute("c", duration_micros=1, after=[first], ctrl_after=[second])
    trace = Trace.replicate(b.graph(), 4)
    ((name, times),) = write_trace_timeline(trace, tmp_path / "t.json")
    assert name == "rank 0 (+3 alike), as soon as dependencies allow" and not times.recorded
    assert times.start.tolist() == [0, 0, 7000] and times.end.tolist() == [5000, 7000, 8000]
    threads = {thread: rows for (_, thread), rows in slices(tmp_path / "t.json").items()}
    assert threads == {"compute": [("a", 0.0, 5.0), ("c", 7.0, 1.0)], "compute (2)": [("b", 0.0, 7.0)]}


def test_cycles_are_counted():
    nodes = [Node(1, "a", 4, (), [2], 0, 3), Node(2, "b", 4, (), [1], 0, 4), Node(3, "c", 4, (), [3, 2])]
    times = place(graph_of(nodes))
    assert (times.ignored, times.start.tolist()) == (2, [0, 3000, 7000])


def test_what_an_event_says(tmp_path):
    b = GraphBuilder(first_id=2**63)
    b.all_gather('odd "name" 漢', 4096, group=3)
    write_trace_timeline([(0, b.graph())], tmp_path / "t.json.gz")
    (event,) = (event for event in read(tmp_path / "t.json.gz")["traceEvents"] if event["ph"] == "X")
    assert event["name"] == 'odd "name" 漢' and event["cat"] == "collective"
    said = {"is_cpu_op": False, "collective": "ALL_GATHER", "comm_size": 4096, "pg_name": "3"}
    assert event["args"] == {"node": str(2**63)} | said


def test_an_empty_graph(tmp_path):
    write_trace_timeline([(0, graph_of([]))], tmp_path / "t.json")
    assert slices(tmp_path / "t.json") == {}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10)), max_size=14))
def test_in_a_lane_intervals_are_disjoint_or_nested(pairs):
    spans = sorted(((begin, begin + length) for begin, length in pairs), key=lambda span: (span[0], -span[1]))
    lane = nested_lanes([begin for begin, _ in spans], [end for _, end in spans])
    for i, (a, b) in enumerate(spans):
        for j, (c, d) in enumerate(spans[:i]):
            if lane[i] == lane[j]:
                assert d <= a or b <= c or c <= a <= b <= d
    # The first lane that takes it: nothing is gained by another.
    for i, (a, b) in enumerate(spans):
        for other in range(lane[i]):
            inside = [d for j, (_, d) in enumerate(spans[:i]) if lane[j] == other and d > a]
            assert inside and b > inside[-1]


def test_intervals_that_all_overlap_take_a_lane_each() -> None:
    count = 60_000  # squared, minutes
    assert nested_lanes(list(range(count)), list(range(count, 2 * count))) == list(range(count))


def test_perfetto_reads_it(tmp_path, trace_processor):
    from perfetto.trace_processor import TraceProcessor

    rows = [
        node(1, 5_000_500, 1_500, "kernel", stream=7),
        node(2, 5_002_000, 500, "call", is_cpu_op=True, tid=1),
    ]
    write_trace_timeline([(2, graph_of(rows))], tmp_path / "t.json.gz")
    with TraceProcessor(trace=str(tmp_path / "t.json.gz"), config=trace_processor) as processor:
        found = processor.query(
            "select process.name as p, thread.name as t, slice.name as s, slice.ts as a, slice.dur as d "
            "from slice join thread_track on track_id = thread_track.id join thread using (utid) "
            "join process using (upid) order by a"
        )
        assert [tuple(vars(row).values()) for row in found] == [
            ("rank 2", "compute stream 7", "kernel", 0, 1500),
            ("rank 2", "CPU thread 1", "call", 1500, 500),
        ]
        bad = "select name from stats where value > 0 and severity in ('error', 'data_loss')"
        assert [vars(row) for row in processor.query(bad)] == []
