"""Converted traces replay in their recorded time, by dependencies: with faster kernels they are faster."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.convert import report
from armillary.convert.converted import Converted
from armillary.platform.model import recorded_machine
from armillary.trace import NodeType, check
from tests.convert.pytorch.kineto import AMD, NVIDIA, Document, Vendor, with_kernels_of

VENDORS = pytest.mark.parametrize("vendor", [NVIDIA, AMD], ids=lambda vendor: vendor.name)


def facts(converted: Converted) -> dict[str, Any]:
    """Return the facts of the one rank, after the checks that hold for all."""
    (found,) = report(converted)["per_rank"]
    assert check(converted.trace.graph(0)) == []
    assert found["replayed_ns"] == pytest.approx(
        ticks(converted), rel=1e-3, abs=converted.trace.graph(0).n_nodes
    )
    assert 0 <= found["gap_fraction"] <= 1
    return dict(found)


def ticks(converted: Converted, factor: float = 1.0) -> int:
    """Return how long a replay takes with all kernels `factor` as long."""
    trace = converted.trace if factor == 1 else with_kernels_of(converted.trace, factor)
    return armillary.simulate(trace, recorded_machine(1), profile="physical").total_ticks


def exact(converted: Converted, within: float = 0.01) -> dict[str, Any]:
    """Return the facts of a rank that replays in its recorded time."""
    found = facts(converted)
    assert abs(found["replayed_ns"] / found["recorded_ns"] - 1) <= within
    assert not [warning for warning in converted.warnings if "replayed" in warning]
    return found


def busy(vendor: Vendor, overlap: float, *, skew: float = 0, digits: int = 3, count: int = 200) -> Document:
    """A program that launches `count` kernels of 50 us at once and waits; kernels begin before the last ones end."""
    doc = Document(vendor)
    doc.op("step", 0, 300 + (50 - overlap) * count)
    end = 200.0
    for at in range(count):
        start = end - overlap if at else end
        end = start + 50
        called = 6.0 * at
        correlation = doc.call(vendor.launch, called, called + 5)
        start = max(start, called + 8)
        doc.kernel("gemm", round(start - skew, digits), round(end - skew, digits), correlation)
    doc.call(vendor.synchronise, 6.0 * count, end + 10)
    return doc


@VENDORS
@pytest.mark.parametrize("overlap", [0.001, 0.5, 3, 12, 0, -1.5])
def test_kernels_that_begin_before_the_last_one_ended_keep_the_order_of_their_stream(
    tmp_path: Path, vendor: Vendor, overlap: float
) -> None:
    converted = busy(vendor, overlap).converted(tmp_path)
    found = exact(converted)
    assert found["gap_fraction"] <= 0.05
    assert ticks(converted, 0.5) <= 0.6 * found["replayed_ns"]


@pytest.mark.parametrize("skew", [-200, 0, 3, 40, 150])
def test_a_device_clock_that_is_off_moves_no_kernel(tmp_path: Path, skew: float) -> None:
    converted = busy(NVIDIA, 0.001, skew=skew).converted(tmp_path)
    assert ticks(converted, 0.5) <= 0.62 * exact(converted)["replayed_ns"]


def test_whole_microseconds_are_enough(tmp_path: Path) -> None:
    converted = busy(NVIDIA, 0.4, digits=0).converted(tmp_path)
    assert ticks(converted, 0.5) <= 0.6 * exact(converted)["replayed_ns"]


def test_kernels_that_start_together_on_one_stream(tmp_path: Path) -> None:
    doc = Document()
    doc.op("step", 0, 1000)
    for at, end in enumerate((900, 300, 300, 500)):
        doc.launched(f"k{at}", 10 * at, 100, end)
    found = exact(doc.converted(tmp_path))
    assert found["recorded_ns"] == 1_000_000


@VENDORS
@pytest.mark.parametrize("told", ["correlation", "none", "node"])
def test_the_kernels_of_a_graph_hang_on_its_launch(tmp_path: Path, vendor: Vendor, told: str) -> None:
    """30 steps of an engine: one graph of 40 kernels on two streams, then a copy that the CPU waits for."""
    doc = Document(vendor)
    doc.op("serve", 0, 30 * 700)
    for step in range(30):
        base = 700.0 * step
        graph = doc.call(vendor.graph, base + 10, base + 40)
        for node in range(40):
            start = base + 50 + 15 * node
            extra = {"graph id": 5, "graph node id": node + 1} if told == "node" else {}
            correlation = graph if told == "correlation" else 0
            doc.kernel("attention", start, start + 14.5, correlation, **extra)
            if node % 4 == 2:
                doc.kernel("side", start, start + 10, correlation, stream=13, **extra)
        copy = doc.call(vendor.copy, base + 50, base + 670)
        doc.kernel("Memcpy DtoH (Device -> Pinned)", base + 652, base + 656, copy)
    converted = doc.converted(tmp_path)
    found = exact(converted)
    assert found["gap_fraction"] <= 0.05
    assert ticks(converted, 0.5) <= 0.62 * found["replayed_ns"]


def test_what_a_profiler_missed_of_a_graph_is_work_of_the_device(tmp_path: Path) -> None:
    doc = Document(AMD)
    doc.op("serve", 0, 20_000)
    for step in range(20):
        base = 1000.0 * step
        graph = doc.call("hipGraphLaunch", base + 10, base + 30)
        doc.kernel("Memset (Device)", base + 40, base + 42, graph)
        doc.kernel("sample", base + 900, base + 905, graph)
        doc.call("hipStreamSynchronize", base + 50, base + 950)
    converted = doc.converted(tmp_path)
    assert exact(converted)["gap_fraction"] <= 0.05
    assert "hipGraphLaunch (not recorded)" in converted.trace.graph(0).names()
    assert ticks(converted, 0.5) <= 0.62 * ticks(converted)


@VENDORS
@pytest.mark.parametrize("told", ["external", "nothing"])
def test_kernels_without_a_launch_record(tmp_path: Path, vendor: Vendor, told: str) -> None:
    doc = Document(vendor)
    doc.op("step", 0, 20_100)
    for at in range(200):
        external = doc.op("aten::mm", 20 + 10 * at, 28 + 10 * at)
        more = {"External id": external} if told == "external" else {}
        doc.kernel("gemm", 60 + 100 * at, 159 + 100 * at, 0, **more)
    converted = doc.converted(tmp_path)
    found = exact(converted)
    assert found["gap_fraction"] <= 0.05
    last = int(armillary.simulate(with_kernels_of(converted.trace, 0.5), recorded_machine(1)).total_ticks)
    assert last <= found["replayed_ns"]


def test_device_activity_alone(tmp_path: Path) -> None:
    """Two streams, one of which waits for the other; no CPU at all."""
    doc = Document()
    for at in range(100):
        doc.kernel("gemm", 100 * at, 100 * at + 70, 0, stream=7)
        doc.kernel("add", 100 * at + 72, 100 * at + 98, 0, stream=9)
    converted = doc.converted(tmp_path)
    found = exact(converted)
    assert found["gap_fraction"] <= 0.2
    assert ticks(converted, 0.5) <= 0.6 * found["replayed_ns"]


def test_devices_of_one_process_do_not_share_a_stream(tmp_path: Path) -> None:
    doc = Document()
    doc.op("step", 0, 1100)
    for device in range(4):
        doc.launched("gemm", 10 * device, 50 + 10 * device, 1000 + 10 * device, device=device)
    converted = doc.converted(tmp_path)
    exact(converted)
    graph = converted.trace.graph(0)
    stream = graph.ints("stream", -1)
    assert len(set(stream[stream >= 0].tolist())) == 4


def test_a_stream_that_waits_is_late_for_a_reason_and_not_for_a_constant_time(tmp_path: Path) -> None:
    """A small kernel of a second stream starts while the kernel drains that filled the device for 5 ms."""
    doc = Document()
    doc.op("step", 0, 6000)
    doc.launched("big", 0, 20, 5060, stream=7)
    doc.launched("small", 10, 5000, 5020, stream=14)
    copy = doc.call("cudaMemcpyAsync", 30, 5050)
    doc.kernel("Memcpy DtoH (Device -> Pageable)", 5022, 5024, copy, stream=14)
    converted = doc.converted(tmp_path)
    found = exact(converted, 0.02)
    assert found["gap_fraction"] <= 0.05
    assert ticks(converted, 0.5) <= 0.65 * found["replayed_ns"]


def test_an_event_that_the_cpu_waits_for_is_of_one_stream(tmp_path: Path) -> None:
    doc = Document()
    doc.op("step", 0, 3000)
    doc.launched("first", 0, 20, 900, stream=7)
    mark = doc.call("cudaEventRecord", 20, 22)
    doc.launched("second", 30, 900, 2500, stream=7)
    doc.launched("other", 40, 60, 950, stream=9)
    wait = doc.call("cudaEventSynchronize", 60, 960)
    where = {"stream": -1, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": mark}
    doc.sync("Event Sync", 60, 960, wait, **where)
    converted = doc.converted(tmp_path)
    exact(converted)
    graph = converted.trace.graph(0)
    names = graph.names()
    ptr, parents = graph.parents()
    at = names.index("cudaEventSynchronize")
    waits = {names[before] for before in parents[ptr[at] : ptr[at + 1]].tolist()}
    assert "first" in waits
    assert "other" not in waits


def test_a_launch_that_finds_the_queue_full_waits_for_the_device(tmp_path: Path) -> None:
    doc = Document()
    doc.op("step", 0, 60_000)
    for at in range(1100):
        called = 5.5 * at if at < 1050 else 20_000 + 5.5 * at
        call = doc.call("cudaLaunchKernel", called, called + 5 if at != 1049 else 20_000 + 5.5 * at)
        doc.kernel("gemm", 100 + 50 * at, 149 + 50 * at, call)
    converted = doc.converted(tmp_path)
    exact(converted)
    graph = converted.trace.graph(0)
    lengths = [
        int(length)
        for name, length in zip(graph.names(), graph.ints("duration_ns"), strict=True)
        if name == "cudaLaunchKernel"
    ]
    assert lengths
    assert max(lengths) < 100_000


def test_a_late_collective_is_one_collective(tmp_path: Path) -> None:
    told = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float", "Group size": 2}
    doc = Document()
    doc.op("step", 0, 9000)
    doc.launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 6000, 8000, stream=20, **told)
    converted = doc.converted(tmp_path)
    found = exact(converted)
    assert found["comm"] == {"ALL_REDUCE": {"count": 1, "bytes": 4000}}
    assert found["communication_kernels"] == 1
    graph = converted.trace.graph(0)
    (gap,) = [
        at for at, name in enumerate(graph.names()) if name == "gap" and graph.ints("duration_ns")[at] > 10**6
    ]
    assert graph.types[gap] == NodeType.COMP_NODE


def test_a_fraction_is_of_the_whole_recording(tmp_path: Path) -> None:
    """Kernels run, and stand still, long after the last operator."""
    doc = Document()
    doc.op("aten::mm", 0, 100)
    doc.launched("first", 10, 50, 90)
    doc.launched("late", 30, 5000, 6000)
    found = exact(doc.converted(tmp_path))
    assert found["gap_fraction"] == pytest.approx(4910 / 6000, abs=0.01)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Operators of one thread, and kernels of up to three streams that start after their launch at any time."""
    vendor = draw(st.sampled_from([NVIDIA, AMD]))
    doc = Document(vendor)
    doc.op("step", 0, 5000)
    for at in range(draw(st.integers(1, 25))):
        called = 20 * at
        start = called + draw(st.integers(0, 1500)) + draw(st.integers(0, 999)) / 1000
        end = start + draw(st.integers(0, 900)) + draw(st.integers(0, 999)) / 1000
        kind = draw(st.sampled_from(["launch", "graph", "none", "copy"]))
        stream, tid = draw(st.integers(0, 2)), draw(st.integers(1, 2))
        if kind == "none":
            doc.kernel("k", start, end, 0, stream)
        elif kind == "copy":
            call = doc.call(vendor.copy, called, draw(st.sampled_from([called + 5, end + 5])), tid)
            doc.kernel("Memcpy DtoH (Device -> Pageable)", start, end, call, stream)
        else:
            call = doc.call(vendor.graph if kind == "graph" else vendor.launch, called, called + 5, tid)
            for part in range(draw(st.integers(1, 3)) if kind == "graph" else 1):
                doc.kernel("k", start + 10 * part, end + 10 * part, call, stream)
    return doc


@settings(deadline=None, max_examples=60)
@given(documents())
def test_any_recording_replays_in_its_time(doc: Document) -> None:
    with TemporaryDirectory() as folder:
        converted = doc.converted(Path(folder))
    found = facts(converted)
    assert found["dropped_dependencies"] == 0
    assert found["replayed_ns"] == pytest.approx(found["recorded_ns"], rel=0.03)
    kernels = sum("stream" in event["args"] for event in doc.events)
    graph = converted.trace.graph(0)
    seen = [name for name, runs in zip(graph.names(), graph.has("stream"), strict=True) if runs]
    assert sum("not recorded" not in name for name in seen) == kernels
