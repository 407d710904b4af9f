"""Kineto documents as NVIDIA's and AMD's profilers write them, from short descriptions; times in us."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.convert.converted import Converted
from armillary.convert.front_ends.pytorch import convert
from armillary.trace import Graph, Trace
from armillary.trace.node import graph_of, nodes_of

Event = dict[str, Any]


@dataclass(frozen=True)
class Vendor:
    """How a profiler names what a program does."""

    name: str
    launch: str
    graph: str
    copy: str
    synchronise: str
    wait: str

    def on_device(self, device: int, stream: int) -> Event:
        """Return the arguments of a kernel beside its correlation."""
        if self.name == "amd":
            return {"device": device, "stream": stream, "kind": "Dispatch Kernel"}
        return {"device": device, "context": 1, "stream": stream, "queued": 0, "grid": [1, 1, 1]}


NVIDIA = Vendor(
    "nvidia",
    "cudaLaunchKernel",
    "cudaGraphLaunch",
    "cudaMemcpyAsync",
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
)
AMD = Vendor(
    "amd",
    "hipExtModuleLaunchKernel",
    "hipGraphLaunch",
    "hipMemcpyWithStream",
    "hipDeviceSynchronize",
    "hipStreamSynchronize",
)


@dataclass
class Document:
    """The events of one rank."""

    vendor: Vendor = NVIDIA
    events: list[Event] = field(default_factory=list)
    used: int = 100

    def op(self, name: str, start: float, end: float, tid: int = 1, **args: Any) -> int:
        """Add an operator and return its external id."""
        self.used += 1
        self._add("cpu_op", name, start, end, 4711, tid, {"External id": self.used, **args})
        return self.used

    def call(self, name: str, start: float, end: float, tid: int = 1) -> int:
        """Add a runtime call and return its correlation."""
        self.used += 1
        self._add("cuda_runtime", name, start, end, 4711, tid, {"correlation": self.used})
        return self.used

    def kernel(
        self,
        name: str,
        start: float,
        end: float,
        correlation: int,
        stream: int = 7,
        device: int = 0,
        **args: Any,
    ) -> None:
        """Add a kernel, or a copy or fill by its name."""
        category = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name.partition(" ")[0], "kernel")
        told = {**self.vendor.on_device(device, stream), "correlation": correlation, **args}
        self._add(category, name, start, end, device, stream, told)

    def launched(
        self, name: str, called: float, start: float, end: float, stream: int = 7, tid: int = 1, **args: Any
    ) -> int:
        """Add a kernel and the call of 5 us that launched it; return their correlation."""
        correlation = self.call(self.vendor.launch, called, called + 5, tid)
        self.kernel(name, start, end, correlation, stream, **args)
        return correlation

    def sync(self, kind: str, start: float, end: float, correlation: int, **args: Any) -> None:
        """Add Kineto's record of what a call or a stream waited for."""
        told = {"cuda_sync_kind": kind, "correlation": correlation, "device": 0, **args}
        self._add("cuda_sync", kind, start, end, 0, args.get("stream", -1), told)

    def converted(self, folder: Path) -> Converted:
        """Write the document and convert it."""
        path = folder / "rank0.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return convert([path])

    def _add(
        self, category: str, name: str, start: float, end: float, pid: int, tid: int, args: Event
    ) -> None:
        times = {"ts": round(start + 4_000_000, 3), "dur": round(end - start, 3)}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, **times, "args": args}
        )


def with_kernels_of(trace: Trace, factor: float) -> Trace:
    """Return a trace in which all that runs on streams takes `factor` of its time."""
    return Trace.from_ranks([_faster(trace.graph(rank), factor) for rank in range(trace.n_ranks)])


def _faster(graph: Graph, factor: float) -> Graph:
    nodes = nodes_of(graph)
    for node in nodes:
        if any(name == "stream" for name, *_ in node.attrs):
            node.attrs = [
                (name, kind, int(value * factor) if name == "duration_ns" else value)
                for name, kind, value, *_ in node.attrs
            ]
    return graph_of(nodes, graph.source, metadata=graph.metadata)
