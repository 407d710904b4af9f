"""Programs of kinds that the reference traces lack, with known times: their replay, and that of faster kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.convert import report
from armillary.convert.converted import Converted
from armillary.platform.model import recorded_machine
from tests.convert.pytorch.kineto import AMD, NVIDIA, Document, Vendor, with_kernels_of

VENDORS = pytest.mark.parametrize("vendor", [NVIDIA, AMD], ids=lambda vendor: vendor.name)
FILLS = {"blocks per SM": 400.0, "block": [256, 1, 1], "registers per thread": 64}
"""A kernel of 100 waves: 4 blocks of 256 threads fit where 64 registers a thread are taken."""


def facts(converted: Converted, *, gaps: float = 0.05) -> dict[str, Any]:
    """Return the facts of the one rank, which replays within 3 % and has no more gaps than that."""
    (found,) = report(converted)["per_rank"]
    assert found["replayed_ns"] == pytest.approx(found["recorded_ns"], rel=0.03)
    assert found["gap_fraction"] <= gaps
    return dict(found)


def halved(converted: Converted) -> float:
    """Return what share of its time a replay takes with kernels of half the time."""
    ticks = [
        armillary.simulate(trace, recorded_machine(1), profile="physical").total_ticks
        for trace in (converted.trace, with_kernels_of(converted.trace, 0.5))
    ]
    return ticks[1] / ticks[0]


def calls(found: dict[str, Any]) -> int:
    """Return how many communications the trace has."""
    return sum(kind["count"] for kind in found["comm"].values())


@VENDORS
@pytest.mark.parametrize("told", ["correlation", "nothing"])
def test_decoding_with_graphs_and_own_all_reduces(tmp_path: Path, vendor: Vendor, told: str) -> None:
    """20 tokens: the scheduler's Python without any operator, one graph of 16 layers, a copy that is waited for."""
    doc = Document(vendor)
    kernels = 0
    for token in range(20):
        base = 4200.0 * token
        doc.op("aten::copy_", base + 10, base + 30)
        doc.launched("elementwise", base + 15, base + 25, base + 30)
        graph = doc.call(vendor.graph, base + 40, base + 90)
        start = base + 100
        for _ in range(16):
            for name, length in (("qkv_gemm", 60), ("paged_attention", 50), ("cross_device_reduce_1stage<bf16, 4>", 20),
                                 ("mlp_gemm", 70), ("cross_device_reduce_1stage<bf16, 4>", 20)):  # fmt: skip
                doc.kernel(name, start, start + length, graph if told == "correlation" else 0)
                kernels += name.startswith("cross")
                start += length + 1
        copy = doc.call(vendor.copy, base + 95, start + 10)
        doc.kernel("Memcpy DtoH (Device -> Pinned)", start + 1, start + 3, copy)
        doc.op("aten::to", base + 93, start + 12)
    converted = doc.converted(tmp_path)
    found = facts(converted)
    assert found["communication_kernels"] == calls(found) == kernels == 640
    assert found["host_fraction"] == pytest.approx(0.11, abs=0.02)
    assert halved(converted) <= 0.6


@VENDORS
def test_experts_whose_tokens_own_kernels_exchange(tmp_path: Path, vendor: Vendor) -> None:
    """Layers of a mixture of experts: the streams of compute and DeepEP wait for each other's events, untold."""
    doc = Document(vendor)
    layers, at = 24, 100.0
    doc.op("train_step", 0, 100 + layers * 1020 + 400)
    for layer in range(layers):
        called = 5 + 40.0 * layer
        doc.op("deep_ep::dispatch", called, called + 12)
        doc.launched("router_gemm", called, at, at + 200, stream=7)
        doc.launched(
            "void deep_ep::internode::dispatch<false, 8>(int4*)", called + 6, at + 205, at + 405, stream=31
        )
        doc.launched("grouped_gemm", called + 15, at + 410, at + 810, stream=7)
        doc.launched(
            "void deep_ep::internode::combine<8>(int4*)", called + 22, at + 815, at + 1015, stream=31
        )
        at += 1020
    doc.call(vendor.synchronise, 5 + 40.0 * layers, at + 5)
    converted = doc.converted(tmp_path)
    found = facts(converted)
    assert found["communication_kernels"] == calls(found) == 2 * layers
    assert set(found["comm"]) == {"ALL_TO_ALL"}
    assert halved(converted) <= 0.6


def test_training_on_amd_with_rccl_that_has_no_launches(tmp_path: Path) -> None:
    """Gradients are reduced on a stream of their own, beside what is computed; RCCL's kernels say nothing."""
    doc = Document(AMD)
    doc.op("backward", 0, 1000)
    at = 50.0
    for layer in range(40):
        doc.launched("Cijk_Ailk_Bljk_BBS_BH", 10 + 20.0 * layer, at, at + 500, stream=0)
        doc.kernel(
            "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", at + 502, at + 900, 0, stream=3
        )
        at += 501
    at = 50 + 40 * 501 + 400
    doc.op("optimizer", 1000, at + 600)
    doc.launched("multi_tensor_apply", 1010, at + 10, at + 500, stream=0)
    doc.call("hipDeviceSynchronize", 1100, at + 510)
    converted = doc.converted(tmp_path)
    found = facts(converted)
    assert found["communication_kernels"] == calls(found) == 40
    assert halved(converted) <= 0.6


@pytest.mark.parametrize("left", [3, 5, 14])
def test_a_small_kernel_begins_when_the_last_blocks_of_a_big_one_drain(tmp_path: Path, left: float) -> None:
    """The big one has 100 waves of 5 us, so it leaves room for others in its last 15 us, and not before."""
    doc = Document()
    doc.op("step", 0, 30 * 520 + 60)
    for at in range(30):
        begin = 50.0 + 520 * at
        doc.launched("big", 10.0 * at, begin, begin + 500, stream=7, **FILLS)
        doc.launched("small", 10.0 * at + 5, begin + 500 - left, begin + 510 - left, stream=14)
        copy = doc.call("cudaMemcpyAsync", begin + 10 if at == 29 else 10.0 * at + 11, begin + 515)
        doc.kernel(
            "Memcpy DtoH (Device -> Pageable)", begin + 511 - left, begin + 513 - left, copy, stream=14
        )
    converted = doc.converted(tmp_path)
    found = facts(converted)
    assert found["gap_fraction"] <= 0.01
    graph = converted.trace.graph(0)
    names, (ptr, parents) = graph.names(), graph.parents()
    small = names.index("small")
    assert "big" in {names[before] for before in parents[ptr[small] : ptr[small + 1]].tolist()}


def test_a_kernel_beside_one_that_leaves_room_does_not_wait_for_it(tmp_path: Path) -> None:
    doc = Document()
    doc.op("step", 0, 1000)
    doc.launched("half", 0, 20, 900, stream=7, **FILLS | {"blocks per SM": 2.0})
    doc.launched("late", 10, 895, 905, stream=14)
    graph = doc.converted(tmp_path).trace.graph(0)
    names, (ptr, parents) = graph.names(), graph.parents()
    late = names.index("late")
    assert "half" not in {names[before] for before in parents[ptr[late] : ptr[late + 1]].tolist()}


def test_an_accelerator_that_runs_one_program_at_a_time(tmp_path: Path) -> None:
    """Programs of four streams take turns, 30 us apart; a stream's wait for an event is recorded as its work."""
    doc = Document()
    doc.op("serve", 0, 50 * 230 + 400)
    for at in range(50):
        begin, stream = 100.0 + 230 * at, 101 + at % 4
        doc.launched("pe_exe", 4.0 * at, begin, begin + 200, stream=stream)
        doc.launched("event_record", 4.0 * at + 1, begin + 202, begin + 203, stream=stream)
        if at < 49:
            doc.launched("event_wait", 4.0 * at + 2, begin - 50, begin + 204, stream=101 + (at + 1) % 4,
                         wait_on_stream=stream)  # fmt: skip
    doc.call("synchronizeStream", 300, 100 + 230 * 50)
    converted = doc.converted(tmp_path)
    facts(converted, gaps=0.2)
    assert halved(converted) <= 0.62


def test_python_between_operators_is_time_of_the_host(tmp_path: Path) -> None:
    """Ten steps: 2 ms that the device computes and the CPU waits, then 3 ms of which nothing is recorded."""
    doc = Document()
    for step in range(10):
        base = 5000.0 * step
        doc.op("aten::mm", base, base + 50)
        doc.launched("gemm", base + 5, base + 20, base + 2000)
        doc.call("cudaDeviceSynchronize", base + 60, base + 2005)
    doc.op("aten::mm", 50_000, 50_050)
    found = facts(doc.converted(tmp_path))
    assert found["host_fraction"] == pytest.approx(0.6, abs=0.02)


def test_a_file_that_was_cut_says_so(tmp_path: Path) -> None:
    doc = Document()
    for at in range(10):
        doc.used += 1000
        doc.op("aten::mm", 5000.0 * at, 5000.0 * at + 50)
        doc.launched("gemm", 5000.0 * at + 5, 5000.0 * at + 20, 5000.0 * at + 900)
    converted = doc.converted(tmp_path)
    (found,) = report(converted)["per_rank"]
    assert found["host_fraction"] == 0
    assert found["gap_fraction"] > 0.7
    assert any("was cut" in warning for warning in converted.warnings)
    assert any("gaps" in warning and "'aten::mm'" in warning for warning in converted.warnings)


def test_calls_of_one_number_both_block_and_count_within_the_recording_only(tmp_path: Path) -> None:
    """A thread waits for a queue that waits for its device, under one number, and again after the last operator."""
    doc = Document()
    doc.op("serve", 0, 3000)
    doc.op("poll", 0, 2990, tid=2)
    doc.launched("gemm", 10, 30, 2900)
    for start, end in ((40, 2910), (3100, 9000)):
        doc.call("synchronizeStream", start, end)
        doc.used -= 1
        doc.call("synchronize", start + 1, end - 1, tid=2)
    converted = doc.converted(tmp_path)
    assert facts(converted)["recorded_ns"] == 3_000_000
    assert halved(converted) <= 0.6


@pytest.mark.parametrize("told", ["correlation", "nothing"])
def test_collectives_whose_kernels_have_no_launch_are_there_once(tmp_path: Path, told: str) -> None:
    """Kernels and calls of NCCL in one order, of which no number says that they belong together."""
    doc = Document(NVIDIA)
    for step in range(12):
        base = 1000.0 * step
        doc.op("aten::mm", base, base + 20)
        doc.launched("gemm", base + 5, base + 25, base + 300)
        for name, kernel, begin in (
            (
                "nccl:all_reduce",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                40,
            ),
            ("nccl:all_to_all", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 80),
        ):
            doc.op(name, base + begin, base + begin + 20, **{"Input Dims": [[256]], "Input type": ["float"]})
            known = told == "correlation"
            call = doc.call(NVIDIA.launch, base + begin + 5, base + begin + 10) if known else 0
            start = base + 300 + 5 * begin
            doc.kernel(kernel, start, start + 150, call, stream=20)
    (found,) = report(doc.converted(tmp_path))["per_rank"]
    assert found["communication_kernels"] == calls(found) == 24
    assert {kind: each["bytes"] for kind, each in found["comm"].items()} == {
        "ALL_REDUCE": 12 * 1024, "ALL_TO_ALL": 12 * 1024,
    }  # fmt: skip
    assert found["replayed_ns"] == pytest.approx(found["recorded_ns"], rel=0.03)
