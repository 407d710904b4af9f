"""Read what ``rocprofv3 --output-format json`` writes: records of each process, with names beside them.

A record has start and end in ns, a thread, and a correlation id, which a dispatch shares with the call that made it.
Names of calls are numbers into ``strings.buffer_records``, those of kernels into ``kernel_symbols``, texts of ROCTx
ranges stand by correlation id in ``strings.marker_api``. Files of several versions name some keys in two ways.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.base.json_text import parse_json
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_FILE
from armillary.convert.profilers.nccl_ranges import nccl_call
from armillary.convert.profilers.process import Process, Recording, finish
from armillary.convert.pytorch.device import CpuOp, DeviceOp, DeviceTrace, RuntimeCall

_ROOT = "rocprofiler-sdk-tool"
_DISPATCHES = ("kernel_dispatch", "kernel_dispatch_trace", "kernel_trace")
_CALLS = ("hip_api", "hip_runtime_api", "hip_api_trace")
_COPIES = ("memory_copy", "memory_copy_trace")
_RANGES = ("marker_api", "marker_api_trace")
_NCCL = ("rccl_api", "rccl_api_trace")
_READ = {*_DISPATCHES, *_CALLS, *_COPIES, *_RANGES, *_NCCL}
_LIMIT = 2**62


def read_recording(path: Path) -> Recording:
    """Return the events of a file.

    Raises:
        InputError: it is no such file, or larger than the limits; names the record.
    """
    expected = "expected what `rocprofv3 --output-format json` writes"
    try:
        document = parse_json(read_unpacked(path, MOST_FILE), path)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid JSON: {error}, {expected}") from error
    if isinstance(document, dict) and "traceEvents" in document:
        raise InputError(f"{path}: is a trace for Chrome, {expected}")
    tools = document.get(_ROOT) if isinstance(document, dict) else None
    tools = [tools] if isinstance(tools, dict) else tools
    if not isinstance(tools, list) or not tools or not all(isinstance(each, dict) for each in tools):
        raise InputError(f"{path}: has no list {_ROOT}, {expected}")
    found = Recording(path)
    for at, tool in enumerate(tools):
        reader = _Reader(found, tool, at)
        reader.read()
        if reader.process.trace.kernels:
            found.processes[at] = reader.process
            finish(reader.process)
    if not found.processes:
        raise InputError(
            f"{path}: has no work of a GPU, expected records of kernel_dispatch (rocprofv3 --kernel-trace)"
        )
    return found


class _Reader:
    def __init__(self, found: Recording, tool: Mapping[str, Any], at: int) -> None:
        self.found, self.tool = found, tool
        number = _part(tool, "metadata").get("pid", at)
        self.process = Process(DeviceTrace(f"{found.path}, process {show(number)}"))
        strings = _part(tool, "strings")
        self.kinds = [each for each in _list(strings, "buffer_records") if isinstance(each, Mapping)]
        self.by_kind = {str(each.get("kind")): each for each in self.kinds}
        self.symbols = {
            each.get("kernel_id"): str(
                each.get("formatted_kernel_name") or each.get("kernel_name") or "kernel"
            )
            for each in _list(tool, "kernel_symbols")
            if isinstance(each, Mapping) and isinstance(each.get("kernel_id"), int)
        }
        self.texts = {
            each.get("key"): str(each.get("value"))
            for each in _list(strings, "marker_api")
            if isinstance(each, Mapping) and isinstance(each.get("key"), int)
        }

    def read(self) -> None:
        """Read all records."""
        trace = self.process.trace
        for where, record, times in self._records(_CALLS):
            name = self._operation(record)
            thread = self._whole(where, record, "thread_id")
            trace.calls.append(RuntimeCall(name, *times, thread, self._correlation(where, record), 0))
        for where, record, times in self._records(_DISPATCHES):
            about = _part(record, "dispatch_info")
            name = self.symbols.get(_handle(about.get("kernel_id")), "kernel")
            stream = record.get("stream_id") or about.get("queue_id")
            self._work(where, record, times, name, about.get("agent_id"), stream, {})
        for where, record, times in self._records(_COPIES):
            # MEMORY_COPY_HOST_TO_DEVICE
            name = self._operation(record).removeprefix("MEMORY_COPY_").replace("_", " ").lower()
            agents = [record.get(key) for key in ("src_agent_id", "dst_agent_id")]
            device = agents[1] if "to device" in name else agents[0]
            args = {"bytes": self._whole(where, record, "bytes")}
            self._work(where, record, times, f"Memcpy {name}", device, record.get("stream_id"), args)
        for where, record, times in self._records(_RANGES):
            said = self.texts.get(self._correlation(where, record))
            name = self._operation(record)
            # A range that begins and ends anywhere does not nest in its thread's others.
            if "ange" not in name or re.search("Start|Stop|Process", name) or times[0] == times[1]:
                self.found.left_out["ROCTx marks, and ranges that begin and end anywhere"] += 1
                continue
            trace.ops.append(
                CpuOp(said or name, *times, self._whole(where, record, "thread_id"), 0, 0, {}, True)
            )
        for where, record, times in self._records(_NCCL):
            name, thread = self._operation(record), self._whole(where, record, "thread_id")
            if call := nccl_call(name, ""):
                self.process.calls[thread].append((*times, call))
            trace.ops.append(CpuOp(name, *times, thread, 0, 0, {}, True))
        for name, records in _part(self.tool, "buffer_records").items():
            if name not in _READ and isinstance(records, list) and records:
                self.found.left_out[f"records of {str(name)[:60]}"] += len(records)

    def _records(self, names: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, Any], tuple[int, int]]]:
        held = _part(self.tool, "buffer_records")
        name = next((name for name in names if held.get(name)), names[0])
        for at, record in enumerate(_list(held, name), 1):
            where = f"{self.found.path}: {name}, record {at}"
            if not isinstance(record, Mapping):
                _wrong(where, "record", record, "an object")
            start, end = (
                self._whole(where, record, key, None) for key in ("start_timestamp", "end_timestamp")
            )
            if end < start or not end:
                self.found.left_out[f"records of {name} without an end after their start"] += 1
                continue
            yield where, record, (start, end)

    def _work(
        self, where: str, record: Mapping[str, Any], times: tuple[int, int], name: str, agent: Any, stream: Any,
        args: dict[str, Any],
    ) -> None:  # fmt: skip
        device, stream = _handle(agent), _handle(stream)
        made = DeviceOp(
            name, *times, device if device is not None else 0, stream if stream is not None else 0,
            self._correlation(where, record), 0, args,
        )  # fmt: skip
        self.process.trace.kernels.append(made)

    def _operation(self, record: Mapping[str, Any]) -> str:
        """Return the name of a call: its kind and operation are numbers, or the kind is a name."""
        kind, at = record.get("kind"), record.get("operation")
        names: Any = None
        if isinstance(kind, int) and 0 <= kind < len(self.kinds):
            names = self.kinds[kind].get("operations")
        elif isinstance(kind, str) and kind in self.by_kind:
            names = self.by_kind[kind].get("operations")
        if isinstance(at, str):
            return at
        if isinstance(names, list) and isinstance(at, int) and 0 <= at < len(names):
            return str(names[at])
        return "call"

    def _correlation(self, where: str, record: Mapping[str, Any]) -> int:
        found = record.get("correlation_id")
        if not isinstance(found, Mapping):
            return 0
        return self._whole(where, found, "internal")

    def _whole(self, where: str, record: Mapping[str, Any], key: str, default: int | None = 0) -> int:
        found = record.get(key, default)
        if type(found) is not int or not 0 <= found < _LIMIT:
            _wrong(where, key, found, "a whole number")
        return found


def _wrong(where: str, key: str, found: object, expected: str) -> NoReturn:
    raise InputError(f"{where}: {key}: got {show(found)}, expected {expected}")


def _part(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []


def _handle(value: Any) -> int | None:
    """Return the number of an agent, queue or stream, which stands alone or in an object."""
    found = value.get("handle") if isinstance(value, Mapping) else value
    return found if type(found) is int and 0 <= found < _LIMIT else None
