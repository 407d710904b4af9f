"""The Chrome trace: a strict checker of our own, and Perfetto's trace processor where it can run."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.report import write_perfetto


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def checked(path):
    """Load a Chrome trace and hold every event against the format; return the events by phase letter."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8")
    trace = json.loads(text, parse_constant=refuse)
    assert trace["displayTimeUnit"] == "ns"
    events = defaultdict(list)
    processes, threads, slices, counters = set(), {}, defaultdict(list), defaultdict(list)
    for event in trace["traceEvents"]:
        events[event["ph"]].append(event)
        pid, tid = event["pid"], event["tid"]
        assert type(pid) is int and pid > 0 and type(tid) is int and tid >= 0
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert set(event) == {"ph", "pid", "tid", "name", "args"}
            if event["name"] == "process_name":
                assert pid not in processes
                processes.add(pid)
            elif event["name"] == "thread_name":
                assert tid not in threads
                threads[tid] = pid
            else:
                assert event["name"] in ("process_sort_index", "thread_sort_index")
                assert set(event["args"]) == {"sort_index"}
            continue
        assert isinstance(event["ts"], float) and event["ts"] >= 0
        assert pid in processes
        if event["ph"] == "X":
            assert threads[tid] == pid
            begin, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            assert length >= 0
            slices[tid].append((begin, begin + length))
        else:
            assert event["ph"] == "C"
            counters[pid, event["name"]].append((event["ts"], event["args"]["chunks"]))
    for spans in slices.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))
    for values in counters.values():
        assert values == sorted(set(values))
        assert min(value for _, value in values) == 0 == values[-1][1]
    return events


def names(events, kind):
    return [event["args"]["name"] for event in events["M"] if event["name"] == kind]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_example(timeline, tmp_path, name):
    write_perfetto(timeline, tmp_path / name)
    assert (tmp_path / name).read_bytes()[:2] == (b"\x1f\x8b" if name.endswith("gz") else b'{"')
    events = checked(tmp_path / name)
    assert names(events, "process_name") == ["rank 0 (+2 alike)", "rank 3 (+3 alike)", "rank 7"]
    assert names(events, "thread_name")[:6] == [
        "compute", "cpu", "communication", "dim 0 node", "dim 0 node (2)", "dim 0 node (3)"]  # fmt: skip
    assert "never" not in [event["name"] for event in events["X"]]
    phase = next(event for event in events["X"] if event["cat"] == "phase")
    assert phase["args"] == {"node": 103, "chunk": 0, "phase": 0, "bytes": 150}
    assert (phase["ts"], phase["dur"]) == (0.4, 0.05)


def test_chosen_ranks(timeline, tmp_path):
    write_perfetto(timeline, tmp_path / "t.json", ranks=[7, 4, 5, 4])
    assert names(checked(tmp_path / "t.json"), "process_name") == ["rank 7", "rank 4", "rank 5"]
    with pytest.raises(InputError, match="rank 8: expected a rank from 0 to 7"):
        write_perfetto(timeline, tmp_path / "none.json", ranks=[8])
    assert not (tmp_path / "none.json").exists()


def test_the_slowest_classes_are_shown_of_many(build, tmp_path):
    made = build([{"nodes": [{"kind": "compute", "start": 0, "end": i + 1}]} for i in range(100)])
    write_perfetto(made, tmp_path / "t.json")
    shown = names(checked(tmp_path / "t.json"), "process_name")
    assert shown == [f"rank {i}" for i in range(36, 100)]


def test_finer_ticks_are_rounded_to_the_ns(build, tmp_path):
    made = build([{"nodes": [{"kind": "compute", "start": 1400, "end": 2600}]}], tick_ns=0.001)
    write_perfetto(made, tmp_path / "t.json")
    (event,) = checked(tmp_path / "t.json")["X"]
    assert (event["ts"], event["dur"]) == (0.001, 0.002)


def test_odd_names_and_large_ids(build, timeline, tmp_path):
    made = build([{"nodes": [{"kind": "compute", "name": 'quo"te\\ \n漢', "start": 0, "end": 1}]}])
    graph = dataclasses.replace(made.graphs[0], node_id=made.graphs[0].node_id + (1 << 63))
    write_perfetto(dataclasses.replace(made, graphs=(graph,)), tmp_path / "t.json")
    (event,) = checked(tmp_path / "t.json")["X"]
    assert event["name"] == 'quo"te\\ \n漢'
    assert event["args"]["node"] == str(2**63 + 100)


def test_an_empty_graph(empty, tmp_path):
    write_perfetto(empty, tmp_path / "t.json")
    assert list(checked(tmp_path / "t.json")) == ["M"]


spans = st.tuples(st.integers(0, 30), st.integers(0, 9))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["compute", "recv", "send", "cpu"]), spans), max_size=12),
       st.lists(st.tuples(st.sampled_from([-1, 0, 1]), spans), max_size=12))  # fmt: skip
def test_any_timeline_passes_the_checker(build, tmp_path_factory, nodes, phases):
    made = build([{
        "nodes": [{"kind": "collective", "start": 0, "end": 50}]
        + [{"kind": kind, "start": start, "end": start + n} for kind, (start, n) in nodes],
        "phases": [(0, 0, 0, dim, "all-reduce", start, start + n + 1, 1) for dim, (start, n) in phases],
    }])  # fmt: skip
    path = tmp_path_factory.mktemp("any") / "t.json"
    write_perfetto(made, path)
    assert len(checked(path)["X"]) == 1 + len(nodes) + len(phases)


@pytest.mark.parametrize("name", ["t.json.gz", "t.pftrace", "t.perfetto-trace.gz"])
def test_perfetto_reads_it(timeline, tmp_path, trace_processor, name):
    from perfetto.trace_processor import TraceProcessor

    write_perfetto(timeline, tmp_path / name)
    with TraceProcessor(trace=str(tmp_path / name), config=trace_processor) as processor:

        def rows(query):
            return [tuple(vars(row).values()) for row in processor.query(query)]

        bad = "select name from stats where value > 0 and severity in ('error', 'data_loss')"
        assert rows(bad) == []
        joined = (
            "from slice join thread_track on track_id = thread_track.id "
            "join thread using (utid) join process using (upid)"
        )
        assert rows(f"select count(*) as n {joined}") == [(42,)]
        assert rows("select count(*) as n from slice where depth > 0") == [(0,)]
        found = rows(
            f"select process.name as p, thread.name as t, slice.name as s, slice.ts as a, slice.dur as d "
            f"{joined} where process.name = 'rank 3 (+3 alike)' and thread.name = 'compute' order by a"
        )
        assert found == [
            ("rank 3 (+3 alike)", "compute", "forward", 180, 220),
            ("rank 3 (+3 alike)", "compute", "overlapped", 410, 90),
        ]
        assert rows(
            "select max(c.value) as most from counter c join process_counter_track t on c.track_id = t.id "
            "where t.name = 'dim 0 node: active chunks'"
        ) == [(3.0,)]
        assert rows(
            "select distinct int_value as bytes from args join slice using (arg_set_id) "
            f"where key = '{'args' if 'json' in name else 'debug'}.bytes' "
            "and slice.name like 'all-gather chunk%' order by 1"
        ) == [(30,), (150,)]
