"""Device traces without a host trace, and the joined traces of chakra_trace_link."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import front_end, report
from armillary.convert.pytorch.device_only import said, without_host
from armillary.convert.pytorch.link_files import read_linked
from armillary.platform.model import recorded_machine
from armillary.trace import NodeType, check
from tests.convert.pytorch.recording import Recording, tensor

US = 1000


def event(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: float, dur: float, stream: int, correlation: int, **args: Any) -> dict[str, Any]:
    return event(name, ts, dur, "kernel", stream, stream=stream, device=0, correlation=correlation, **args)


def convert(
    tmp_path: Path, events: list[dict[str, Any]], *, bare: bool = False
) -> tuple[dict[str, Any], Any]:
    path = tmp_path / "device.json"
    path.write_text(json.dumps(events if bare else {"traceEvents": events}))
    converted = front_end("pytorch").convert([path])
    assert check(converted.trace.graph(0)) == []
    return report(converted), converted.trace


@pytest.mark.parametrize("bare", [False, True])
def test_operators_kernels_and_shapes_are_enough(tmp_path: Path, bare: bool) -> None:
    shapes = {"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}
    facts, trace = convert(
        tmp_path,
        [
            event("aten::mm", 10, 40, **shapes),
            event("cudaLaunchKernel", 20, 10, "cuda_runtime", correlation=7),
            kernel("gemm", 40, 30, 7, 7),
        ],
        bare=bare,
    )
    graph = trace.graph(0)
    gemm = graph.names().index("gemm")
    assert graph.ints("num_ops")[gemm] == 2 * 64 * 32 * 16
    assert graph.ints("duration_ns")[gemm] == 30 * US
    assert "no host trace" in facts["warnings"][0]
    # 20 µs until the launch ends, 10 µs until it reaches the stream, and 30 µs of kernel.
    assert armillary.simulate(trace, recorded_machine(1), profile="physical").total_ticks == 60 * US


def test_a_kernel_says_what_it_communicates(tmp_path: Path) -> None:
    told = {
        "Collective name": "allgather", "In msg nelems": 256, "dtype": "BFloat16", "Group size": 2,
        "Process Group Name": "3", "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    facts, trace = convert(
        tmp_path,
        [
            event("step", 0, 100),
            kernel("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", 20, 50, 9, 5, **told),
        ],
    )
    assert facts["comm"] == {"ALL_GATHER": {"count": 1, "bytes": 512}}
    assert (trace.graph(0).types == NodeType.COMM_COLL_NODE).sum() == 1


def test_without_a_word_the_name_of_the_kernel_counts(tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    events = [event("step", 0, 100), kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork)", 20, 50, 9, 5)]
    path.write_text(json.dumps(events))
    facts = report(front_end("pytorch").convert([path]))
    assert facts["comm"] == {"ALL_REDUCE": {"count": 1, "bytes": 0}}


def test_shortened_lists_of_ranks_are_not_believed() -> None:
    assert "ranks" not in said({"Process Group Ranks": "[0, 1, 2, ..., 7]"})
    assert said({"Process Group Ranks": "[4, 6]"})["ranks"] == [4, 6]


def test_every_event_stands_in_for_a_node(tmp_path: Path) -> None:
    rec = Recording()
    rec.op("step", 0, 100 * US, annotation=True)
    rec.op("aten::add", 10 * US, 20 * US, inputs=(tensor(1, 8),))
    linked = without_host(rec.device_trace())
    assert [node.name for node in linked.host.nodes] == ["step", "aten::add"]
    assert linked.host.nodes[1].parent == linked.host.nodes[0].id
    assert linked.rate == 1


def et_plus() -> dict[str, Any]:
    """A host trace as chakra_trace_link leaves it: times on its nodes, a copy of the launcher for the kernel."""
    rec = Recording()
    rec.op("aten::mm", 0, 50 * US, inputs=(tensor(1, 64, device="cuda:0"),))
    rec.op("aten::add", 60 * US, 90 * US)
    document = rec.host()
    times = {"aten::mm": (1000.0, 50.0), "aten::add": (1060.0, 30.0)}
    for node in document["nodes"]:
        start, length = times.get(node["name"], (None, 0))
        node |= {"ts": start, "inclusive_dur": length, "exclusive_dur": length, "inter_thread_dep": None}
    launcher = next(node for node in document["nodes"] if node["name"] == "aten::mm")
    copy = {"id": 9999, "name": "gemm", "ctrl_deps": launcher["id"], "ts": 1070.0, "inclusive_dur": 20.0}
    document["nodes"].append(launcher | copy | {"cat": "kernel", "ph": "X", "stream": 7})
    return document


def test_what_chakra_trace_link_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "linked.json"
    path.write_text(json.dumps(et_plus()))
    linked = read_linked(path)
    assert (linked.linked, linked.linkable) == (2, 2)
    trace = front_end("pytorch").convert([path]).trace
    graph = trace.graph(0)
    assert graph.ints("stream")[graph.names().index("gemm")] == 7
    assert armillary.simulate(trace, recorded_machine(1), profile="physical").total_ticks == 90 * US


@pytest.mark.parametrize("key", ["ts", "ctrl_deps", "inclusive_dur"])
def test_a_damaged_copy_is_named(tmp_path: Path, key: str) -> None:
    document = et_plus()
    document["nodes"][-1][key] = "soon"
    path = tmp_path / "linked.json"
    path.write_text(json.dumps(document))
    try:
        front_end("pytorch").convert([path])
    except InputError as error:
        assert "9999" in str(error) or "gemm" in str(error)
    else:
        assert key == "ctrl_deps"  # a launcher that is not there: the kernel follows what ran before it
