"""Every Kineto file of ../shared/traces replays in its recorded time; if GPU-bound, faster with faster kernels.

Limits of gaps are those of docs/validation/programs.md: 5 % of the replayed time where the file has operators, 20 %
elsewhere, and what is written beside two files that were cut by hand.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import armillary
from armillary.convert import report
from armillary.convert.front_ends.pytorch import convert
from armillary.platform.model import recorded_machine
from tests.convert.pytorch.kineto import with_kernels_of

pytestmark = [pytest.mark.shared, pytest.mark.slow]

FILES = {
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz": 0.05,
    "hta/call_stack/backward_thread.json": 0.05,
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": 0.05,
    "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz": 0.05,
    "hta/critical_path/cuda_event_sync/event_sync_trace.json.gz": 0.05,
    "hta/critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz": 0.05,
    "hta/critical_path/end_to_end/simple_add/input/trace.json.gz": 0.05,
    "hta/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz": 0.05,
    "hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz": 0.05,
    "hta/df_index_resolver/df_index_resolver.json.gz": 0.05,
    "hta/distributed_info_unavailable/distributed_info_not_found.json.gz": 0.05,
    "hta/execution_trace/benchmark_simple_add_trace.json.gz": 0.05,
    "hta/mixed_files/rank_non_gpu.json.gz": 0.05,
    "hta/mtia_inference_trace/mtia_inference_rank_0.json.gz": 0.05,
    "hta/nccl_parser_config/nccl_data.json.gz": 0.05,
    "hta/negative_queue_length_values_check/rank0.json.gz": 0.05,
    "hta/rank_non_gpu/rank_non_gpu.json.gz": 0.05,
    "hta/rank_unavailable/rank_not_found.json.gz": 0.05,
    "hta/trace_compare/base/base.json.gz": 0.62,  # 10 of 26,442 operators, none in the last 356 of 578 ms
    "hta/trace_compare/test/test.json.gz": 0.62,
    "hta/trace_file_list/inference_rank_1.json.gz": 0.2,  # no operators
    "hta/trace_filter/sampled_rank-0.json.gz": 0.05,
    "hta/trace_filter/sampled_rank-1.json.gz": 0.05,
    "hta/triton_example/triton_example.json.gz": 0.05,
    "hta_trace_diff/control/control.json.gz": 0.05,
    "hta_trace_diff/test/test.json.gz": 0.05,
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz": 0.05,
    "kineto/resnet50_num_workers_0/worker0.1623143566756.pt.trace.json.gz": 0.05,
    "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz": 0.05,
    "kineto/resnet50_num_workers_4/worker0.1623213129365.pt.trace.json.gz": 0.05,
    "param/linear_kineto.json.gz": 0.05,
    "param/resnet_kineto.json.gz": 0.05,
    "triosim/profiler_vgg13-iter41.json": 0.05,
    **{
        f"torch_cpu/{run}/device_{rank}.json.gz": 0.05
        for run, ranks in {"coll2": 2, "ddp4": 4, "fsdp4": 4, "pp2": 2, "single1": 1, "tp2": 2}.items()
        for rank in range(ranks)
    },
}

CUT = ("trace_compare", "trace_filter", "backward_thread", "cpu_only")
"""Files that hold a small share of what was recorded, by the numbers of operators and calls."""

FASTER = {
    "hta/mtia_inference_trace/mtia_inference_rank_0.json.gz": 0.77,  # requests come when they come
    "hta/negative_queue_length_values_check/rank0.json.gz": 0.55,
    # Operators alone take 51 % of the time; 0.594 to 0.600 with any choice of what a full device is (late_kernels).
    "hta_trace_diff/test/test.json.gz": 0.6,
    "triosim/profiler_vgg13-iter41.json": 0.55,
}
"""Files whose device is the limit: the share of the time that a replay takes with kernels of half the time."""


@pytest.mark.parametrize("name", FILES)
def test_a_recording_replays_in_its_time(shared: Path, name: str) -> None:
    converted = convert([shared / "traces" / name])
    (facts,) = report(converted)["per_rank"]
    machine = recorded_machine(1)
    ticks = armillary.simulate(converted.trace, machine, profile="physical").total_ticks
    assert ticks == pytest.approx(facts["recorded_ns"], rel=0.03)
    assert facts["replayed_ns"] == pytest.approx(ticks, rel=0.001)
    assert facts["gap_fraction"] <= FILES[name]
    assert facts["latency_fraction"] <= 0.1
    assert not [warning for warning in converted.warnings if "replayed" in warning]
    assert any("was cut" in warning for warning in converted.warnings) == any(cut in name for cut in CUT)
    if name in FASTER:
        faster = armillary.simulate(with_kernels_of(converted.trace, 0.5), machine, profile="physical")
        assert faster.total_ticks <= FASTER[name] * ticks


def test_the_eight_ranks_of_dlrm_replay_in_their_time(shared: Path, tmp_path: Path) -> None:
    with tarfile.open(shared / "traces/param/dlrm_kineto.tar.gz") as archive:
        # Python 3.11 has the filter from 3.11.4 on.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    converted = convert(files)
    result = armillary.simulate(converted.trace, recorded_machine(len(files)), profile="physical")
    for facts, ticks in zip(report(converted)["per_rank"], result.finish, strict=True):
        assert ticks == pytest.approx(facts["recorded_ns"], rel=0.03)
        assert facts["gap_fraction"] <= 0.05
