"""Real traces of ../shared: what is linked, what communicates, and that what was measured is simulated.

Counts of communication are those of ../shared/spec/chakra.md, section 4.1, bytes and peers those of the operators'
recorded arguments; spans are those of the device traces.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import report
from armillary.convert.converted import Converted
from armillary.convert.front_ends.pytorch import convert
from armillary.convert.pytorch.device import read_device
from armillary.convert.pytorch.host import read_host
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.link import Linked, link
from armillary.platform.memory import LocalMemory
from armillary.platform.model import Npu, Platform, recorded_machine
from armillary.platform.network import Dimension
from armillary.trace import CollectiveType, NodeType
from armillary.trace.check_ranks import check_trace
from armillary.trace.node import REPLAY_ONLY

pytestmark = pytest.mark.shared

RUNS = ("single1", "ddp4", "fsdp4", "tp2", "pp2", "coll2")
MS = 1_000_000


@pytest.fixture(scope="module")
def resnet(shared: Path) -> Linked:
    """Return the A100 pair: the host trace and the device trace are of two runs of one script."""
    traces = shared / "traces"
    host = traces / "param/1.0.3-chakra.0.0.4/resnet_1gpu_et.json.gz"
    return link(read_host(host), read_device(traces / "hta/nccl_parser_config/nccl_data.json.gz"))


@pytest.fixture(scope="module")
def runs(shared: Path) -> dict[str, Converted]:
    return {name: convert([shared / "traces/torch_cpu" / name]) for name in RUNS}


@pytest.fixture(scope="module")
def dlrm(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Linked]:
    """Return the 8 ranks: hosts of schema 1.0.1, devices without ids."""
    folder = tmp_path_factory.mktemp("dlrm")
    for name in ("dlrm_pytorch_et", "dlrm_kineto"):
        with tarfile.open(shared / f"traces/param/{name}.tar.gz") as archive:
            # Python 3.11 has the filter from 3.11.4 on.
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    hosts = sorted((folder / "dlrm_pytorch_et").glob("*.json"))
    devices = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.parent.name != "dlrm_pytorch_et"
    )
    assert len(hosts) == len(devices) == 8
    return [link(read_host(h), read_device(d)) for h, d in zip(hosts, devices, strict=True)]


def real_machine(ranks: int) -> Platform:
    """Return a machine on which communication takes the time of a network."""
    network = Dimension("node", "Switch", ranks, bandwidth=100.0, latency=1000.0)
    return Platform((network,), npu=Npu(memory=LocalMemory(1000.0)))


def ends(converted: Converted, machine: Platform) -> np.ndarray[Any, Any]:
    """Return when each rank ends, ns."""
    result = armillary.simulate(converted.trace, machine)
    assert len(result.finish) == converted.trace.n_ranks
    return np.asarray(result.finish)


def test_the_resnet_pair_is_linked_by_ids(resnet: Linked) -> None:
    assert resnet.report()["link_rate"] >= 0.999
    assert resnet.strategies == {"rf_id": 14388}
    assert resnet.report()["device_ops_linked"] == 3774


def test_the_resnet_pair_takes_as_long_as_was_measured(resnet: Linked) -> None:
    converted = convert_job([resnet])
    facts = report(converted)
    assert abs(ends(converted, recorded_machine(1))[0] / (665.0 * MS) - 1) <= 0.03
    assert facts["gap_fraction"] <= 0.02
    assert facts["comm"] == {
        "ALL_REDUCE": {"count": 15, "bytes": 306_684_384},
        "BROADCAST": {"count": 6, "bytes": 638_712},
    }
    (found,) = check_trace(converted.trace).all
    assert "1 of the 2 ranks" in found.message


def test_every_stream_is_busy_for_as_long_as_it_was(resnet: Linked) -> None:
    converted = convert_job([resnet])
    graph = converted.trace.graph(0)
    stream, length = graph.ints("stream", -1), graph.ints("duration_ns")
    busy = {int(s): int(length[stream == s].sum()) for s in np.unique(stream[stream >= 0])}
    measured: Counter[int] = Counter()
    for kernel in resnet.device.kernels:
        measured[kernel.stream] += kernel.end - kernel.start
    assert busy.keys() == measured.keys()
    assert all(abs(busy[s] / measured[s] - 1) <= 0.01 for s in busy)


def test_dlrm_is_linked_by_names(dlrm: list[Linked]) -> None:
    for linked in dlrm:
        assert linked.rate >= 0.999, linked.reasons
        assert "sequence" in linked.strategies
    converted = convert_job(dlrm)
    assert converted.trace.n_ranks == 8
    kinds = {kind: entry["count"] for kind, entry in report(converted)["comm"].items()}
    assert kinds.keys() == {"ALL_TO_ALL", "ALL_REDUCE"}
    assert all(count % 8 == 0 for count in kinds.values())
    ends(converted, recorded_machine(8))
    ends(converted, real_machine(8))


def test_simple_add(shared: Path) -> None:
    folder = shared / "traces/hta/execution_trace"
    linked = link(
        read_host(folder / "benchmark_simple_add_et.json.gz"),
        read_device(folder / "benchmark_simple_add_trace.json.gz"),
    )
    assert linked.rate == 1
    ends(convert_job([linked]), recorded_machine(1))


def test_traces_of_other_lengths_are_linked_or_refused(shared: Path) -> None:
    folder = shared / "traces/param"
    linear = link(read_host(folder / "linear_et.json.gz"), read_device(folder / "linear_kineto.json.gz"))
    assert linear.rate >= 0.999
    with pytest.raises(InputError, match=r"are not of the same steps: .* expected at least 50 %; no rf_id"):
        link(read_host(folder / "resnet_et.json.gz"), read_device(folder / "resnet_kineto.json.gz"))


@pytest.mark.parametrize("name", ["linear", "resnet"])
def test_long_traces_are_linked_or_refused(shared: Path, tmp_path: Path, name: str) -> None:
    folder = shared / "traces/param"
    words = [
        "trace",
        "link",
        "--host",
        folder / f"{name}_et.json.gz",
        "--device",
        folder / f"{name}_kineto.json.gz",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "armillary", *words, "-o", tmp_path / "out.json"], check=False
    )
    assert done.returncode == {"linear": 0, "resnet": 2}[name]


@pytest.mark.parametrize("run", RUNS)
def test_cpu_runs_are_linked_and_simulate_to_the_end(runs: dict[str, Converted], run: str) -> None:
    converted = runs[run]
    facts = report(converted)
    assert facts["link_rate"] >= 0.999
    assert facts["gap_fraction"] <= 0.02
    assert all(one["dropped_dependencies"] == 0 for one in facts["per_rank"])
    for one, end in zip(facts["per_rank"], ends(converted, recorded_machine(facts["ranks"])), strict=True):
        assert abs(end / one["span_ns"] - 1) <= 0.03
    ends(converted, real_machine(facts["ranks"]))
    assert [f for f in check_trace(converted.trace).all if f.severity == "error"] == []


def test_ddp4_takes_as_long_as_was_measured(runs: dict[str, Converted]) -> None:
    assert abs(ends(runs["ddp4"], recorded_machine(4)).max() / (321.0 * MS) - 1) <= 0.03


COUNTS = {
    "single1": {},
    "ddp4": {"ALL_REDUCE": 8},
    "fsdp4": {"ALL_GATHER": 9, "REDUCE_SCATTER": 5},
    "tp2": {"ALL_REDUCE": 8},
    "pp2": {"SEND": 2, "RECV": 2},
    "coll2": {
        "ALL_REDUCE": 1,
        "ALL_TO_ALL": 1,
        "BROADCAST": 1,
        "ALL_GATHER": 1,
        "REDUCE_SCATTER": 1,
        "REDUCE": 1,
        "GATHER": 1,
        "SCATTER": 1,
        "BARRIER": 1,
    },
}


@pytest.mark.parametrize("run", RUNS)
def test_every_communication_of_the_cpu_runs(runs: dict[str, Converted], run: str) -> None:
    for one in report(runs[run])["per_rank"]:
        assert {kind: entry["count"] for kind, entry in one["comm"].items()} == COUNTS[run]


def test_bytes_of_all_collectives(runs: dict[str, Converted]) -> None:
    """Every collective of coll2 is on a tensor of 512 x 64 floats; scatter sends half of it to each of two ranks."""
    whole = 512 * 64 * 4
    sizes = {kind: entry["bytes"] for kind, entry in report(runs["coll2"])["per_rank"][0]["comm"].items()}
    assert sizes.pop("BARRIER") == 0
    assert sizes.pop("GATHER") == 2 * whole
    assert set(sizes.values()) == {whole}


def test_peers_of_the_pipeline(runs: dict[str, Converted]) -> None:
    ends_of = []
    for rank in (0, 1):
        graph = runs["pp2"].trace.graph(rank)
        which = np.isin(graph.types, (5, 6))
        ends_of.append(
            Counter(zip(graph.ints("comm_src")[which], graph.ints("comm_dst")[which], strict=True))
        )
    assert ends_of == [{(0, 1): 2, (1, 0): 2}] * 2


def operators(shared: Path, run: str, rank: int) -> list[dict[str, Any]]:
    document = json.loads(
        gzip.decompress((shared / f"traces/torch_cpu/{run}/host_{rank}.json.gz").read_bytes())
    )
    nodes: list[dict[str, Any]] = document["nodes"]
    return nodes


def test_bytes_of_ddp_are_those_of_the_buckets(shared: Path, runs: dict[str, Converted]) -> None:
    for rank, one in enumerate(report(runs["ddp4"])["per_rank"]):
        buckets = [
            tensor[3] * tensor[4]
            for node in operators(shared, "ddp4", rank)
            if node["name"] == "c10d::allreduce_"
            for tensor in node["inputs"]["values"][0]
        ]
        assert one["comm"]["ALL_REDUCE"]["bytes"] == sum(buckets)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("hta/df_index_resolver/df_index_resolver.json.gz", marks=pytest.mark.slow),
        "hta/mtia_inference_trace/mtia_inference_rank_0.json.gz",
        "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    ],
)
def test_one_trace_alone_simulates_to_the_end(shared: Path, path: str) -> None:
    converted = convert([shared / "traces" / path])
    assert ends(converted, recorded_machine(1))[0] > 0


@pytest.mark.parametrize("path", ["1.1.0-chakra.0.0.4/resnet_2gpu_et.json.gz", "resnet_et.json.gz"])
def test_operators_without_times_need_a_machine(shared: Path, path: str) -> None:
    converted = convert([shared / "traces/param" / path])
    with pytest.raises(InputError, match="names operations or bytes, and no time"):
        ends(converted, recorded_machine(1))


GPU_FILES = {
    "hta_trace_diff/control/control.json.gz": {"ALL_REDUCE": 18, "ALL_TO_ALL": 42},
    "hta_trace_diff/test/test.json.gz": {"ALL_REDUCE": 21, "ALL_TO_ALL": 43},
    "hta/nccl_parser_config/nccl_data.json.gz": {"ALL_REDUCE": 15, "BROADCAST": 6},
    "hta/negative_queue_length_values_check/rank0.json.gz": {
        "ALL_REDUCE": 10,
        "ALL_GATHER": 10,
        "REDUCE_SCATTER": 10,
        "ALL_TO_ALL": 50,
    },
    "hta/trace_filter/sampled_rank-0.json.gz": {"ALL_REDUCE": 4, "ALL_GATHER": 2, "ALL_TO_ALL": 4},
    "hta/df_index_resolver/df_index_resolver.json.gz": {"ALL_REDUCE": 2020},
}
"""By file of a GPU: its communication kernels, by the call around each, or by their own names."""
LARGE = ("hta/df_index_resolver/df_index_resolver.json.gz", "hta_trace_diff/control/control.json.gz")
UNKNOWN = {
    "hta_trace_diff/test/test.json.gz": 4,  # launched before the trace began
    "hta/negative_queue_length_values_check/rank0.json.gz": 5,
    "hta/df_index_resolver/df_index_resolver.json.gz": 2020,  # recorded without shapes
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in GPU_FILES]
)
def test_each_kernel_of_communication_is_one_node_with_the_bytes_of_its_call(shared: Path, name: str) -> None:
    converted = convert([shared / "traces" / name])
    graph = converted.trace.graph(0)
    kernels = [
        at
        for at in np.flatnonzero(graph.types == NodeType.COMM_COLL_NODE).tolist()
        if graph.name(at) != "gap"
    ]
    kinds = graph.ints("comm_type")
    assert Counter(CollectiveType(int(kinds[at])).name for at in kernels) == GPU_FILES[name]
    unknown = graph.ints(REPLAY_ONLY) != 0
    assert sum(int(unknown[at]) for at in kernels) == UNKNOWN.get(name, 0)
    assert any("does not say the bytes of" in text for text in converted.warnings) == (name in UNKNOWN)
    assert all(graph.ints("comm_size")[at] > 0 or unknown[at] for at in kernels)
