"""Kernels of communication by name, and what becomes of those that no call of c10d explains.

Names are those of the public sources of the libraries and engines that the table mentions, as Kineto prints them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.convert import front_end, report
from armillary.convert.converted import Converted
from armillary.convert.pytorch.communication_kernels import UNSAID, kernel_kind
from armillary.platform.model import Platform, recorded_machine
from armillary.platform.network import Dimension
from armillary.trace import NodeType
from tests.convert.pytorch.test_device_only import event, kernel

US = 1000
COMMUNICATE = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "ALL_REDUCE",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)": "ALL_GATHER",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "REDUCE_SCATTER",
    "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs const*)": "ALL_GATHER",
    "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "BROADCAST",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "REDUCE",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": UNSAID,
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "ALL_REDUCE",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)": "ALL_REDUCE",
    "void sglang::cross_device_reduce_2stage<__half, 4>(sglang::RankData*)": "ALL_REDUCE",
    "void aiter::cross_device_reduce_2stage<__hip_bfloat16, 8>(aiter::RankData*)": "ALL_REDUCE",
    "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*)": "REDUCE_SCATTER",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 8>>, __half>(int)":
        "ALL_REDUCE",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
    "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false>(int)": "ALL_REDUCE",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8, true, false>(AllReduceParams)": "ALL_REDUCE",
    "void tensorrt_llm::kernels::moe_comm::moeA2ADispatchKernel<Policy>(DispatchKernelPointers)": "ALL_TO_ALL",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": "ALL_REDUCE",
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*)": "ALL_GATHER",
    "void (anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, true>(c10::BFloat16**)": "ALL_REDUCE",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)": "ALL_TO_ALL",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)": "ALL_TO_ALL",
    "void deep_ep::internode::combine<true, __nv_bfloat16, 2>(int4*)": "ALL_TO_ALL",
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)": "ALL_TO_ALL",
    "void deep_ep::internode_ll::clean_low_latency_buffer<1024>(int*)": "BARRIER",
    "_ZN7deep_ep9intranode7combineI13__nv_bfloat16Li8EEEvP4int4": "ALL_TO_ALL",
    "EpDispatchIntraNodeKernel_bf16": "ALL_TO_ALL",
    "void mori::moe::EpCombineInterNodeKernel<hip_bfloat16>(EpDispatchCombineArgs)": "ALL_TO_ALL",
    "nvshmemi_barrier_all_on_stream_kernel(int)": "BARRIER",
    "nvshmemi_alltoall_on_stream_kernel<char>(int)": "ALL_TO_ALL",
    "void mscclpp::collective::allreduceNvls<float>(void*)": "ALL_REDUCE",
    "void sglang::allreduce_LL_2node<__half>(__half*)": "ALL_REDUCE",
    "void turbomind::local_allreduce_kernel<8, half>(half*)": "ALL_REDUCE",
    "void dlslime::intranode_alltoall_kernel(int)": "ALL_TO_ALL",
}  # fmt: skip
COMPUTE = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
    "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(int const*)",
    "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(Flash_fwd_params)",
    "triton_poi_fused_all_reduce_wait_tensor_3",
    "void vllm::moe::moe_align_block_size_kernel<int>(int*)",
    "void gemm<AllReduceEpilogue>(AllReduceParams)",
    "void cub::DeviceReduceSingleTileKernel<x>(int)",
    "void at::native::(anonymous namespace)::scatter_gather_elementwise_kernel<128, 8>(int)",
    "warp_allreduce_sum",
    "",
)


@pytest.mark.parametrize("name", COMMUNICATE)
def test_kernels_that_communicate(name: str) -> None:
    assert kernel_kind(name) == COMMUNICATE[name]


@pytest.mark.parametrize("name", COMPUTE)
def test_kernels_that_compute(name: str) -> None:
    assert kernel_kind(name) is None


def convert(tmp_path: Path, *launches: tuple[str, str, dict[str, Any]], world: int = 8) -> Converted:
    """Convert a rank of an engine: each operator of 20 us launches a kernel that takes 100 us."""
    events = []
    for at, (operator, name, args) in enumerate(launches):
        begin = 200 * at
        events.append(event(operator, begin, 20, **args))
        events.append(event("cudaLaunchKernel", begin + 5, 10, "cuda_runtime", correlation=at + 1))
        events.append(kernel(name, begin + 20, 100, 7, at + 1))
    path = tmp_path / "kineto.json"
    about = {"backend": "nccl", "rank": 0, "world_size": world}
    path.write_text(json.dumps({"distributedInfo": about, "traceEvents": events}))
    return front_end("pytorch").convert([path])


def communication(converted: Converted) -> dict[str, Any]:
    return report(converted)["comm"]  # type: ignore[no-any-return]


CUSTOM = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)"
DISPATCH = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)"


def test_the_operator_around_a_custom_all_reduce_says_its_bytes(tmp_path: Path) -> None:
    dims = {
        "Input Dims": [[], [16, 4096], [16, 4096]],
        "Input type": ["Scalar", "c10::BFloat16", "c10::BFloat16"],
    }
    converted = convert(tmp_path, ("_C_custom_ar::all_reduce", CUSTOM, dims))
    assert communication(converted) == {"ALL_REDUCE": {"count": 1, "bytes": 16 * 4096 * 2}}
    assert not any("does not say the bytes" in warning for warning in converted.warnings)


def test_an_expert_all_to_all_by_own_kernels_keeps_its_time_and_says_so(tmp_path: Path) -> None:
    converted = convert(
        tmp_path,
        ("aten::topk", "topk", {}),
        ("python", DISPATCH, {}),
        ("aten::mm", "gemm", {}),
        ("python", DISPATCH.replace("dispatch", "combine"), {}),
        world=1,
    )
    assert communication(converted) == {"ALL_TO_ALL": {"count": 2, "bytes": 0}}
    assert any("does not say the bytes of 2 communications (" in warning for warning in converted.warnings)
    machine = Platform((Dimension("network", "Switch", 1, bandwidth=1000.0, latency=0.0),))
    replayed = armillary.simulate(converted.trace, recorded_machine(1))
    for profile in ("physical", "astra-sim"):
        found = armillary.simulate(converted.trace, machine, profile=profile)
        assert found.total_ticks == pytest.approx(replayed.total_ticks, rel=0.01)
        assert any("of 2 communications of a rank are not known" in text for text in found.info["warnings"])


def test_a_launch_without_a_record_takes_the_type_of_its_name_or_of_the_others(tmp_path: Path) -> None:
    send = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"
    dims = {"Input Dims": [[1024]], "Input type": ["signed char"]}
    converted = convert(tmp_path, ("nccl:all_to_all", send, dims), ("aten::mm", "gemm", {}))
    events = json.loads((tmp_path / "kineto.json").read_text())
    lost = [
        kernel(send, -500, 50, 9, 77),
        kernel("ncclKernel_AllReduce_RING_LL(ncclWorkElem)", -400, 50, 9, 78),
    ]
    start = event("aten::empty", -600, 5)
    events["traceEvents"] += [start, *lost]
    (tmp_path / "more.json").write_text(json.dumps(events))
    assert communication(converted) == {"ALL_TO_ALL": {"count": 1, "bytes": 1024}}
    converted = front_end("pytorch").convert([tmp_path / "more.json"])
    graph = converted.trace.graph(0)
    names = [graph.name(at) for at in np.flatnonzero(graph.types == NodeType.COMM_COLL_NODE).tolist()]
    assert sorted(name[:20] for name in names if name != "gap") == [
        "ncclKernel_AllReduce",
        "ncclKernel_SendRecv_",
        "ncclKernel_SendRecv_",
    ]
    assert communication(converted)["ALL_TO_ALL"]["bytes"] == 1024


def test_a_kernel_says_what_kineto_knows_of_it(tmp_path: Path) -> None:
    said = {
        "Collective name": "all_to_allv", "In msg nelems": 256, "Out msg nelems": 512, "dtype": "BFloat16",
        "Group size": 4, "Process Group Name": "3", "Process Group Ranks": "[0, 2, 4, 6]",
    }  # fmt: skip
    events = [event("aten::mm", 0, 20), kernel("ncclDevKernel_SendRecv(x)", 30, 100, 7, 9, **said)]
    events.append(event("aten::add", 150, 20))
    path = tmp_path / "kineto.json"
    about = {"backend": "nccl", "rank": 0, "world_size": 8}
    path.write_text(json.dumps({"distributedInfo": about, "traceEvents": events}))
    converted = front_end("pytorch").convert([path])
    assert communication(converted) == {"ALL_TO_ALL": {"count": 1, "bytes": 512}}
    assert converted.groups == {1: (0, 2, 4, 6)}


def test_an_empty_all_to_all_of_a_rank_alone_ran_nothing(tmp_path: Path) -> None:
    send = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"
    dims = {"Input Dims": [[1024]], "Input type": ["int"]}
    none = {"Input Dims": [[0]], "Input type": ["int"]}
    convert(tmp_path, ("nccl:all_to_all", send, dims))
    events = json.loads((tmp_path / "kineto.json").read_text())
    events["traceEvents"].append(event("nccl:all_to_all", 300, 10, **none))
    (tmp_path / "kineto.json").write_text(json.dumps(events))
    converted = front_end("pytorch").convert([tmp_path / "kineto.json"])
    assert communication(converted) == {"ALL_TO_ALL": {"count": 1, "bytes": 4096}}


def test_a_rank_of_an_unknown_number_says_so(tmp_path: Path) -> None:
    path = tmp_path / "kineto.json"
    path.write_text(json.dumps({"traceEvents": [event("nccl:all_reduce", 0, 10), event("aten::mm", 20, 10)]}))
    assert "does not say how many ranks there were" in front_end("pytorch").convert([path]).warnings[0]
