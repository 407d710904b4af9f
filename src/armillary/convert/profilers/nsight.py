"""Read the events of every process of a file of Nsight Systems, as device traces of its GPUs.

Tables and columns are there only where something was recorded, and differ between versions: what is absent is left out.
A kernel belongs to the call with its correlation id in the same process, a call to the NVTX ranges around it in the
same thread.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.convert.profilers.database import Database
from armillary.convert.profilers.nccl_ranges import nccl_call
from armillary.convert.profilers.process import Process, Recording, finish
from armillary.convert.pytorch.device import CpuOp, DeviceOp, DeviceTrace, RuntimeCall, StreamWait

PUSH_POP, START_END, DOMAIN = 59, 60, 75
"""Types of events of NVTX (``ENUM_NSYS_EVENT_TYPE``)."""
_COPIES = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
_WAITS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""CUpti_ActivitySynchronizationType -> what Kineto calls it."""
_STREAM = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_READ = frozenset(
    {_KERNELS, "NVTX_EVENTS", "StringIds"}
    | {f"CUPTI_ACTIVITY_KIND_{name}"
       for name in ("MEMCPY", "MEMSET", "RUNTIME", "GRAPH_TRACE", "SYNCHRONIZATION", "CUDA_EVENT")}
)  # fmt: skip


def read_recording(path: Path) -> Recording:
    """Return the events of a file.

    Raises:
        InputError: it is no such file, damaged, or larger than the limits; names the table and row.
    """
    with Database(path) as database:
        if not database.tables & _READ:
            raise InputError(f"{path}: has no table of Nsight Systems, expected {_KERNELS}, NVTX_EVENTS")
        return _Reader(database).recording()


class _Reader:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.found = Recording(database.path)
        self.texts = {number: text or "" for number, text in database.rows("StringIds", ["id"], ["value"])}
        # Of files from several hosts, whose clocks begin apart.
        epochs = [each for (each,) in database.rows("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"]) if each]
        self.begin = epochs[0] if epochs and 0 < epochs[0] < 2**61 else 0

    def recording(self) -> Recording:
        self._calls()
        self._device()
        self._waits()
        # Only processes with work on a GPU are ranks; ranges of others would be ranks of nothing.
        working = {number: each for number, each in self.found.processes.items() if each.trace.kernels}
        self.found.processes = working
        if not working:
            raise InputError(f"{self.found.path}: has no work of a GPU, expected rows of {_KERNELS}")
        self._ranges()
        for process in working.values():
            finish(process)
        for name in sorted(self.database.tables - _READ):
            # What else a program did; descriptions of machine and session are no events.
            if re.search(r"_EVENTS?$|_API$|^CUPTI_ACTIVITY_KIND_", name) and self._has_rows(name):
                self.found.left_out[f"table {name[:60]}"] += 1
        return self.found

    def _has_rows(self, table: str) -> bool:
        return next(self.database.rows(table, [""]), None) is not None

    def _process(self, thread: int | None) -> Process:
        # hardware, virtual machine and process: all but the thread.
        number = (thread or 0) >> 24
        found = self.found.processes.get(number)
        if found is None:
            name = f"{self.found.path}, process {number & 0xFFFFFF}"
            found = self.found.processes[number] = Process(DeviceTrace(name))
        return found

    def _times(self, table: str, row: tuple[Any, ...]) -> tuple[int, int] | None:
        """Return start and end; None where it has not ended."""
        start, end = row[0], row[1]
        if start is None or end is None or end < start:
            self.found.left_out[f"rows of {table} without an end after their start"] += 1
            return None
        return start + self.begin, end + self.begin

    def _calls(self) -> None:
        table = "CUPTI_ACTIVITY_KIND_RUNTIME"
        for row in self.database.rows(table, ["start", "end", "globalTid", "correlationId", "nameId"]):
            if times := self._times(table, row):
                *_, thread, correlation, name = row
                # cudaLaunchKernel_v7000
                text = re.sub(r"_v\d+(_ptsz|_ptds)?$", "", self.texts.get(name, "call"))
                process = self._process(thread)
                call = RuntimeCall(text, *times, (thread or 0) & 0xFFFFFF, correlation or 0, 0)
                process.trace.calls.append(call)

    def _device(self) -> None:
        table, named = _KERNELS, ("demangledName", "shortName", "mangledName")
        for row in self.database.rows(table, [*_STREAM, *named]):
            name = next((self.texts[each] for each in row[len(_STREAM) :] if self.texts.get(each)), "kernel")
            self._work(table, row, name, {})
        table = "CUPTI_ACTIVITY_KIND_MEMCPY"
        for row in self.database.rows(table, [*_STREAM, "bytes", "copyKind"]):
            *_, size, kind = row
            self._work(table, row, f"Memcpy {_COPIES.get(kind, '')}".strip(), {"bytes": size or 0})
        table = "CUPTI_ACTIVITY_KIND_MEMSET"
        for row in self.database.rows(table, [*_STREAM, "bytes"]):
            self._work(table, row, "Memset", {"bytes": row[-1] or 0})
        table = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
        for row in self.database.rows(table, [*_STREAM, "graphId"]):
            self.found.left_out["kernels of CUDA graphs, each of which was traced as one"] += 1
            self._work(table, row, f"CUDA graph {row[-1] or 0}", {})

    def _work(self, table: str, row: tuple[Any, ...], name: str, args: dict[str, Any]) -> None:
        if times := self._times(table, row):
            _, _, device, stream, correlation, process = row[: len(_STREAM)]
            work = DeviceOp(name, *times, device or 0, stream or 0, correlation or 0, 0, args)
            self._process(process).trace.kernels.append(work)

    def _waits(self) -> None:
        recorded: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        table = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
        for stream, correlation, process, event in self.database.rows(
            table, ["streamId", "correlationId", "globalPid", "eventId"]
        ):
            recorded[process or 0, event or 0].append((correlation or 0, stream or 0))
        for rows in recorded.values():
            rows.sort()
        table = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
        for row in self.database.rows(
            table, ["start", "end", "streamId", "correlationId", "globalPid", "syncType", "eventId"]
        ):
            times = self._times(table, row)
            *_, stream, correlation, number, kind, event = row
            if not times or kind not in _WAITS:
                continue
            # What was recorded last before the wait.
            known = recorded.get((number or 0, event or 0), [])
            at = bisect_right(known, (correlation or 0, 2**62)) - 1
            on_correlation, on_stream = known[at] if kind in (1, 2) and at >= 0 else (0, -1)
            self._process(number).trace.waits.append(
                StreamWait(_WAITS[kind], *times, stream or 0, on_stream, on_correlation, correlation or 0)
            )

    def _ranges(self) -> None:
        table = "NVTX_EVENTS"
        payloads = ["jsonText"] if "jsonText" in self.database.columns(table) else []
        numbers = ["start", "end", "eventType", "globalTid", "textId", "jsonTextId"]
        for row in self.database.rows(table, numbers, ["text", *payloads]):
            *_, kind, thread, text_id, json_id, text = row[:7]
            if kind not in (PUSH_POP, START_END) or (thread or 0) >> 24 not in self.found.processes:
                continue
            if kind == START_END:
                self.found.left_out["NVTX ranges that begin and end anywhere"] += 1
                continue
            if not (times := self._times(table, row)):
                continue
            name = text or self.texts.get(text_id, "") or "range"
            process, tid = self._process(thread), (thread or 0) & 0xFFFFFF
            payload = (row[7] if payloads else "") or self.texts.get(json_id, "")
            if said := nccl_call(name, payload):
                process.calls[tid].append((*times, said))
                if said.comm and {"rank", "ranks"} <= said.values.keys():
                    process.comms[said.comm] = said.values["rank"], said.values["ranks"]
            process.trace.ops.append(CpuOp(name, *times, tid, 0, 0, {}, True))
