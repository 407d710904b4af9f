"""From recordings to a simulated job: it takes as long as was measured, and other machines change what they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.convert import front_end, report
from armillary.convert.converted import Converted
from armillary.convert.pytorch.host import HostTrace
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.link import Linked
from armillary.convert.pytorch.link import link as join
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Npu, Platform, recorded_machine
from armillary.platform.network import Dimension
from armillary.trace import NodeType
from armillary.trace.check_ranks import check_trace
from tests.convert.pytorch.recording import SCHEMAS, Op, Recording, tensor

US = 1000
PG = "<Object>"
T = tensor(1, 250_000)
"""1 MB."""


def machine(ranks: int, bandwidth: float = 100.0) -> Platform:
    """Return a machine with a network of so many GB/s."""
    network = Dimension("node", "Switch", ranks, bandwidth=bandwidth, latency=500.0)
    return Platform((network,), npu=Npu(memory=LocalMemory(1000.0)))


def end(converted: Converted, platform: Platform | None = None) -> int:
    """Return when the last rank ends, ns."""
    found = armillary.simulate(converted.trace, platform or recorded_machine(converted.trace.n_ranks))
    return int(np.max(found.finish))


def data_parallel(rank: int, world: int = 2, schema: str = "1.1.1-chakra.0.0.4") -> Recording:
    """Return a step: forward on the main thread, backward on another, an all-reduce by gloo, the optimizer."""
    rec = Recording(schema, rank=rank, world=world)
    rec.op("ProfilerStep#3", 0, 1000 * US, annotation=True)
    rec.op("aten::linear", 10 * US, 200 * US)
    rec.op("aten::addmm", 20 * US, 190 * US, inputs=(T, T), outputs=(tensor(7, 100),))
    rec.op("autograd::engine::evaluate_function: AddmmBackward0", 260 * US, 400 * US, tid=2)
    rec.op(
        "c10d::allreduce_",
        410 * US,
        440 * US,
        tid=2,
        inputs=([T], PG, PG, "<None>", False, -1),
        outputs=([T], PG),
    )
    rec.gloo("gloo:all_reduce", 420 * US, 425 * US, 800 * US, tid=77, inputs=(T,))
    rec.ops[-1].tid = 2
    rec.op("Optimizer.step#SGD.step", 850 * US, 950 * US, inputs=(T,))
    return rec


@pytest.mark.parametrize("schema", SCHEMAS)
def test_ends_when_it_did(schema: str) -> None:
    converted = convert_job([data_parallel(rank, schema=schema).linked() for rank in (0, 1)])
    assert end(converted) == pytest.approx(1000 * US, abs=converted.trace.graph(0).n_nodes)
    assert check_trace(converted.trace).all == []
    facts = report(converted)
    assert facts["comm"] == {"ALL_REDUCE": {"count": 2, "bytes": 2_000_000}}
    assert facts["gap_fraction"] <= 0.02
    assert converted.warnings == ()


def test_a_slow_network_takes_longer_and_a_fast_one_less() -> None:
    converted = convert_job([data_parallel(rank).linked() for rank in (0, 1)])
    slow, fast = end(converted, machine(2, 0.5)), end(converted, machine(2, 1000.0))
    assert fast < 1000 * US - 300 * US, "the optimizer waits for the all-reduce, which took 375 us"
    assert slow > 1000 * US


def device_step(rank: int | None = None) -> Recording:
    """Return a step with kernels that take longer than the CPU, NCCL, and a wait for all at the end."""
    rec = Recording(rank=rank, world=2 if rank is not None else None)
    rec.op("ProfilerStep#3", 0, 1000 * US, annotation=True)
    at = 20 * US
    for layer in range(8):
        start = (20 + 30 * layer) * US
        rec.op("aten::mm", start, start + 25 * US, inputs=(T, T), outputs=(tensor(10 + layer, 10),))
        begin = max(at, start + 8 * US)
        at = begin + 70 * US
        rec.launch(start + 5 * US, start + 7 * US, (begin, at), name=f"gemm{layer}")
    rec.op("c10d::allreduce_", 400 * US, 430 * US, inputs=([T], PG, PG, "<None>", False, -1))
    rec.op("record_param_comms", 405 * US, 425 * US, inputs=([T], 1, ["0", "d"], 0, "allreduce", [], []))
    rec.launch(410 * US, 415 * US, (at, at + 200 * US), name="ncclDevKernel_AllReduce_Sum", stream=40)
    rec.call("cudaDeviceSynchronize", 500 * US, at + 205 * US)
    return rec


def test_a_step_on_a_device_ends_when_it_did() -> None:
    converted = convert_job([device_step().linked()])
    took = end(converted)
    assert took <= 1000 * US + converted.trace.graph(0).n_nodes
    assert took == pytest.approx(1000 * US, rel=0.03)
    graph = converted.trace.graph(0)
    stream, length = graph.ints("stream", -1), graph.ints("duration_ns")
    assert {s: int(length[stream == s].sum()) for s in (7, 40)} == {7: 560 * US, 40: 200 * US}


def test_the_work_of_an_operator_is_where_its_time_is() -> None:
    """On a CPU after the questions it asks first, on a device in the kernel, not in the fill before it."""
    rec = Recording()
    rec.op("ProfilerStep#3", 0, 1000 * US, annotation=True)
    matrix = tensor(1, 64 * 64)
    rec.op("aten::mm", 100 * US, 600 * US, inputs=(matrix, matrix), outputs=(matrix,))
    rec.op("aten::resolve_conj", 110 * US, 112 * US, inputs=(matrix,), outputs=(matrix,))
    rec.op("aten::mm", 700 * US, 730 * US, inputs=(matrix, matrix), outputs=(matrix,))
    rec.launch(705 * US, 707 * US, (720 * US, 725 * US), name="Memset (Device)", cat="gpu_memset")
    rec.launch(710 * US, 712 * US, (730 * US, 900 * US), name="sgemm")
    linked = rec.linked()
    for node in linked.host.nodes:
        node.input_shapes = [[64, 64] for _ in node.inputs]
        node.output_shapes = [[64, 64] for _ in node.outputs]
    graph = convert_job([linked]).trace.graph(0)
    found = np.flatnonzero(graph.ints("num_ops"))
    assert [(graph.name(at), int(graph.ints("num_ops")[at])) for at in found] == [
        ("aten::mm", 2 * 64**3),
        ("sgemm", 2 * 64**3),
    ]
    assert graph.ints("duration_ns")[found].tolist() == [488 * US, 170 * US]
    codes, gemms = graph.int_lists("gemm")
    assert [gemms[code] for code in codes[found]] == [(1, 1, 64, 64, 64)] * 2
    assert all(graph.io(int(at))["outputs"][1] == "[[64, 64]]" for at in found)


def test_what_the_nodes_say() -> None:
    converted = convert_job([device_step(rank).linked() for rank in (0, 1)])
    graph = converted.trace.graph(0)
    attrs = [{key: value for key, _, value in graph.attrs(p)} for p in range(graph.n_nodes)]
    kinds = [NodeType(int(kind)) for kind in graph.types]
    comm = kinds.index(NodeType.COMM_COLL_NODE)
    assert {k: attrs[comm][k] for k in ("comm_type", "comm_size", "is_cpu_op", "stream", "duration_ns")} == {
        "comm_type": 0,
        "comm_size": 1_000_000,
        "is_cpu_op": False,
        "stream": 40,
        "duration_ns": 200 * US,
    }
    kernels = [at for at, one in enumerate(attrs) if one.get("stream") == 7]
    assert all(attrs[at]["is_cpu_op"] is False and kinds[at] == NodeType.COMP_NODE for at in kernels)
    assert all(attrs[at]["num_ops"] >= 0 for at in kernels if "num_ops" in attrs[at])
    micros = graph.duration_micros.tolist()
    assert all(
        abs(1000 * micro - one["duration_ns"]) <= 500 for micro, one in zip(micros, attrs, strict=True)
    )
    cpu = [one for one in attrs if one["is_cpu_op"]]
    assert all("tid" in one for one in cpu)


def alone(host: HostTrace) -> Linked:
    from armillary.convert.pytorch.device import DeviceTrace

    return Linked(host, DeviceTrace("none"), [-1] * len(host.nodes), {}, [])


def test_a_host_trace_alone_has_no_times_but_all_nodes_and_communication() -> None:
    converted = convert_job([alone(data_parallel(rank).host_trace()) for rank in (0, 1)])
    facts = report(converted)
    assert facts["comm"]["ALL_REDUCE"]["count"] == 2
    assert (facts["link_rate"], facts["gap_fraction"]) == (0.0, None)
    assert end(converted, machine(2)) > 0
    assert not converted.trace.graph(0).ints("duration_ns", 0).any()


def test_ranks_of_other_clocks() -> None:
    late = data_parallel(1)
    traces = [
        data_parallel(0).linked(),
        join(late.host_trace(), late.device_trace(base=9_000_000_000_000)),
    ]
    converted = convert_job(traces)
    assert end(converted) == pytest.approx(1000 * US, abs=100)


@st.composite
def jobs(draw: st.DrawFn) -> list[Recording]:
    """Some ranks that do the same operators and collectives, each at its own pace."""
    world = draw(st.integers(1, 3))
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(["mm", "reduce", "gather", "kernel"]), st.integers(1, 40)), max_size=8
        )
    )
    ranks = []
    for rank in range(world):
        rec, at = Recording(rank=rank, world=world), 10 * US
        step: Op = rec.op("ProfilerStep#1", 0, 0, annotation=True)
        for number, (kind, length) in enumerate(steps):
            took = length * US * (1 + (rank * 7 + number) % 3)
            if kind == "mm":
                rec.op("aten::mm", at, at + took, inputs=(T, T))
            elif kind == "kernel":
                rec.op("aten::add", at, at + took, inputs=(T,))
                rec.launch(at, at + took // 2, (at + took // 2, at + took), name=f"k{number}")
            else:
                name, inputs = (
                    ("c10d::allreduce_", ([T], PG, PG, "<None>", False, -1))
                    if kind == "reduce"
                    else ("c10d::_allgather_base_", (tensor(5, 250_000 * world), T, PG, False, -1))
                )
                rec.op(name, at, at + took, inputs=inputs)
                rec.gloo(f"gloo:{kind}", at + 1, at + took // 2, at + took, tid=90)
                rec.ops[-1].tid = 1
            at += took + draw(st.integers(0, 30)) * US
        step.end = at + 10 * US
        ranks.append(rec)
    return ranks


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_any_job_ends_when_it_did_and_runs_on_any_machine(ranks: list[Recording]) -> None:
    converted = convert_job([rec.linked() for rec in ranks])
    facts: dict[str, Any] = report(converted)
    longest = max(rec.ops[0].end for rec in ranks)
    nodes = max(graph.n_nodes for graph in converted.trace.graphs)
    assert end(converted) <= longest + nodes
    assert end(converted) >= longest * 0.97 - 40 * US
    assert end(converted, machine(len(ranks))) > 0
    assert [f for f in check_trace(converted.trace).all if f.severity == "error"] == []
    assert all(one["dropped_dependencies"] == 0 for one in facts["per_rank"])


def test_a_trace_in_which_nothing_ran_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(Recording().host()).encode())
    with pytest.raises(InputError, match="no operators"):
        front_end("pytorch").convert([path])


def test_gaps_of_several_threads_count_once() -> None:
    rec = Recording()
    for tid, late in ((1, 0), (2, 10_000)):
        rec.op("aten::a", late, 10_000 + late, tid=tid)
        rec.op("aten::b", 110_000 + late, 120_000 + late, tid=tid)
    facts = report(convert_job([rec.linked()]))
    assert facts["gap_fraction"] == pytest.approx(100 / 130, abs=0.01)
