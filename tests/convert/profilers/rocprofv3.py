"""Files as ``rocprofv3 --output-format json`` writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

KINDS = [
    {"kind": "NONE", "operations": []},
    {
        "kind": "HIP_RUNTIME_API",
        "operations": ["hipNone", "hipLaunchKernel", "hipDeviceSynchronize", "hipMemcpyAsync"],
    },
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
    {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA", "roctxRangeStartA"]},
    {"kind": "RCCL_API", "operations": ["ncclAllReduce", "ncclAllGather"]},
]
GEMM, GENERIC = 1, 2


class Tool:
    """The records of one process."""

    def __init__(self, pid: int) -> None:
        self.pid, self.correlation = pid, 0
        self.records: dict[str, list[dict[str, Any]]] = {}
        self.texts: list[dict[str, Any]] = []

    def add(
        self, name: str, kind: int, operation: int, start: int, end: int, correlation: int = 0, **more: Any
    ) -> int:
        """Add a record, with a correlation of its own unless one is given, which is returned."""
        if not correlation:
            self.correlation += 2
            correlation = self.correlation
        self.records.setdefault(name, []).append({
            "size": 56, "kind": kind, "operation": operation, "thread_id": self.pid,
            "correlation_id": {"internal": correlation, "external": 0}, "start_timestamp": start, "end_timestamp": end,
            **more,
        })  # fmt: skip
        return correlation

    def kernel(self, kernel: int, launch: tuple[int, int], start: int, end: int, queue: int = 1) -> None:
        """Add a dispatch with its launch."""
        correlation = self.add("hip_api", 1, 1, *launch)
        info = {
            "size": 60, "agent_id": {"handle": self.pid * 10}, "queue_id": {"handle": queue}, "kernel_id": kernel,
            "dispatch_id": correlation, "workgroup_size": {"x": 64, "y": 1, "z": 1},
        }  # fmt: skip
        self.add("kernel_dispatch", 11, 0, start, end, correlation, dispatch_info=info)

    def range(self, text: str, start: int, end: int, operation: int = 1) -> None:
        """Add a ROCTx range."""
        self.texts.append({"key": self.add("marker_api", 3, operation, start, end), "value": text})

    def document(self) -> dict[str, Any]:
        """Return what the file holds of it."""
        symbols = [
            {"kernel_id": GEMM, "kernel_name": "Cijk_Ailk_Bljk.kd", "formatted_kernel_name": "Cijk_Ailk_Bljk"},
            {"kernel_id": GENERIC, "formatted_kernel_name": "ncclDevKernel_Generic_4(ncclDevKernelArgs)"},
        ]  # fmt: skip
        return {
            "metadata": {"pid": self.pid, "init_time": 1, "fini_time": 2},
            "agents": [{"id": {"handle": self.pid * 10}, "type": 2}],
            "kernel_symbols": symbols,
            "strings": {"buffer_records": KINDS, "callback_records": [], "marker_api": self.texts},
            "buffer_records": self.records,
            "callback_records": {},
        }


def step(pids: Iterable[int]) -> dict[str, Any]:
    """Return a step of processes: a GEMM, an all-gather beside another GEMM, and a wait for the device."""
    tools = []
    for pid in pids:
        tool = Tool(pid)
        tool.range("step", 1_000_000, 1_330_000)
        tool.kernel(GEMM, (1_012_000, 1_015_000), 1_020_000, 1_120_000)
        tool.add("rccl_api", 4, 1, 1_061_000, 1_069_000)
        tool.kernel(GENERIC, (1_062_000, 1_065_000), 1_121_000, 1_321_000, queue=2)
        tool.kernel(GEMM, (1_072_000, 1_075_000), 1_121_000, 1_221_000)
        tool.add("hip_api", 1, 2, 1_080_000, 1_325_000)
        tools.append(tool.document())
    return {"rocprofiler-sdk-tool": tools}
