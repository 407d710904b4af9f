"""Kineto's trace (``export_chrome_trace``): CPU operators, runtime calls, and what ran on devices.

Dialects: CUDA, HIP (ROCm), MTIA, CPU only; categories of today and the capitalised ones of 2021. Times become
integer nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.garbage import uncollected
from armillary.convert.pytorch.records import Records

OPERATOR = frozenset(("cpu_op", "Operator", "operator"))
ANNOTATION = frozenset(("user_annotation", "UserAnnotation"))
RUNTIME = frozenset(
    (
        "cuda_runtime",
        "cuda_driver",
        "Runtime",
        "hip_runtime",
        "mtia_runtime",
        "xpu_runtime",
        "glow_runtime",
        "privateuse1_runtime",
    )
)
DEVICE = frozenset(
    (
        "kernel",
        "Kernel",
        "gpu_memcpy",
        "Memcpy",
        "gpu_memset",
        "Memset",
        "mtia_ccp_events",
        "mtia_kernel",
        "concurrent_kernel",
    )
)
SYNC = frozenset(("cuda_sync", "Sync"))
_LIMIT = 2**62
_OTHERS = 2**40
"""Threads whose own number is taken or missing are numbered from here on."""


@dataclass(slots=True)
class CpuOp:
    """A CPU operator or annotation; times in ns."""

    name: str
    start: int
    end: int
    tid: int
    rf_id: int
    external: int
    args: dict[str, Any]
    is_annotation: bool


@dataclass(slots=True)
class RuntimeCall:
    """A call of the CUDA, HIP or MTIA runtime on a CPU thread."""

    name: str
    start: int
    end: int
    tid: int
    correlation: int
    external: int


@dataclass(slots=True)
class DeviceOp:
    """A kernel, copy or fill on a stream of a device."""

    name: str
    start: int
    end: int
    device: int
    stream: int
    correlation: int
    external: int
    args: dict[str, Any]


@dataclass(slots=True)
class StreamWait:
    """Kineto's ``cuda_sync`` record: which stream or call waits for which event, recorded on which stream."""

    kind: str
    start: int
    end: int
    stream: int
    on_stream: int
    on_correlation: int
    correlation: int


@dataclass
class DeviceTrace:
    """One rank's device trace, each list in order of start."""

    source: str
    ops: list[CpuOp] = field(default_factory=list)
    calls: list[RuntimeCall] = field(default_factory=list)
    kernels: list[DeviceOp] = field(default_factory=list)
    waits: list[StreamWait] = field(default_factory=list)
    distributed: dict[str, Any] = field(default_factory=dict)
    properties: list[Any] = field(default_factory=list)
    events: int = 0
    untimed: int = 0
    """Kernels, copies and fills that do not say how long they took, which then took no time."""

    def call_of(self) -> dict[int, RuntimeCall]:
        """Return the runtime calls by correlation, the number shared with what they launched; some have none."""
        return {call.correlation: call for call in self.calls if call.correlation > 0}


@uncollected()
def read_device(path: str | Path, text: str | None = None) -> DeviceTrace:
    """Read a Kineto trace, plain or gzip, or parse its `text` where the caller has read the file.

    Raises:
        InputError: not JSON, no list ``traceEvents``, or an event without its time.
    """
    trace = DeviceTrace(str(path))
    threads = _Threads()

    def each(event: dict[str, Any]) -> None:
        trace.events += 1
        # Complete events only: flow arrows repeat the correlations, counters and metadata are of no use.
        if event.get("ph") != "X":
            return
        try:
            _add(trace, event, threads)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            what = f"has no {error}" if isinstance(error, KeyError) else str(error)
            name = str(event.get("name"))[:60]
            raise InputError(f"{path}: event {trace.events} of traceEvents ('{name}') {what}") from error

    header = Records(path, "traceEvents", text).read(each)
    found = header.get("distributedInfo")
    trace.distributed = found if isinstance(found, dict) else {}
    devices = header.get("deviceProperties")
    trace.properties = devices if isinstance(devices, list) else []
    # Parents before children where both start at once; the external id counts up in the order of starts.
    trace.ops.sort(key=lambda op: (op.start, -op.end, op.external))
    for events in (trace.calls, trace.kernels, trace.waits):
        events.sort(key=lambda event: (event.start, event.end))
    return trace


def _add(trace: DeviceTrace, event: dict[str, Any], threads: _Threads) -> None:
    category = event.get("cat")
    if category in OPERATOR or category in ANNOTATION:
        args = _args(event)
        start, end = _times(event)
        external, rf_id = _integer(args, "External id", "external id"), _integer(args, "Record function id")
        tid = threads.of(event)
        trace.ops.append(
            CpuOp(str(event["name"]), start, end, tid, rf_id, external, args, category in ANNOTATION)
        )
    elif category in RUNTIME:
        args = _args(event)
        start, end = _times(event)
        correlation, external = _integer(args, "correlation"), _integer(args, "External id", "external id")
        trace.calls.append(
            RuntimeCall(str(event["name"]), start, end, threads.of(event), correlation, external)
        )
    elif category in DEVICE:
        args = _args(event)
        start, end = _times(event)
        trace.untimed += "dur" not in event
        # Without arguments the viewer's rows tell: a device is a process there, a stream a thread.
        device = _integer(args, "device") if "device" in args else _integer(event, "pid")
        stream = _integer(args, "stream") if "stream" in args else _integer(event, "tid")
        correlation, external = _integer(args, "correlation"), _integer(args, "External id", "external id")
        trace.kernels.append(
            DeviceOp(str(event["name"]), start, end, device, stream, correlation, external, args)
        )
    elif category in SYNC:
        args = _args(event)
        start, end = _times(event)
        trace.waits.append(
            StreamWait(
                str(event["name"]),
                start,
                end,
                _integer(args, "stream"),
                _integer(args, "wait_on_stream"),
                _integer(args, "wait_on_cuda_event_record_corr_id"),
                _integer(args, "correlation"),
            )
        )


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _times(event: dict[str, Any]) -> tuple[int, int]:
    start = nanoseconds(event["ts"], "ts")
    length = nanoseconds(event.get("dur", 0), "dur")
    return start, start + max(length, 0)


def nanoseconds(micros: Any, what: str) -> int:
    """Return a number of microseconds as integer nanoseconds."""
    if isinstance(micros, str):
        micros = float(micros)
    if isinstance(micros, bool) or not isinstance(micros, (int, float)):
        raise ValueError(f"{what} is {micros!r}, expected a number of microseconds")
    whole = int(micros)  # apart, as times of some 10^12 us leave the fraction 10 bits
    result = whole * 1000 + round((micros - whole) * 1000)
    if not -_LIMIT < result < _LIMIT:
        raise ValueError(f"{what} is {micros!r}, expected a number of microseconds that fits 64 bits as ns")
    return result


def _integer(table: dict[str, Any], name: str, older: str = "") -> int:
    """Return an integer argument; 0 if it is absent, -1 if it is not an integer of 63 bits."""
    value = table.get(name)
    if value is None and older:
        value = table.get(older)
    if value is None:
        return 0
    if type(value) is not int:
        try:
            value = int(value)
        except (TypeError, ValueError, OverflowError):
            return -1
    return value if -_LIMIT < value < _LIMIT else -1


class _Threads:
    """Numbers the threads of all processes: by tid, unless two processes share one."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self.taken: set[int] = set()

    def of(self, event: dict[str, Any]) -> int:
        """Return the number of the thread of an event."""
        tid, key = event.get("tid"), (str(event.get("pid")), str(event.get("tid")))
        if key not in self.numbers:
            number = tid if type(tid) is int and 0 <= tid < _OTHERS else _OTHERS
            if number in self.taken or number == _OTHERS:
                number = _OTHERS + len(self.numbers)
            self.taken.add(number)
            self.numbers[key] = number
        return self.numbers[key]
