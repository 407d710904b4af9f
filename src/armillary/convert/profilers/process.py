"""The events of one process, and what NCCL's calls in it said, as profilers record them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.convert.profilers.nccl_ranges import NcclCall
from armillary.convert.pytorch.communication_kernels import kernel_kind
from armillary.convert.pytorch.device import DeviceTrace, RuntimeCall
from armillary.trace.graph import LIMIT

_NEAR = 8
"""Ranges of a thread among which the one around a call is looked for."""


@dataclass
class Process:
    """One process, and its NCCL calls by thread: start, end and what they say, in order of start."""

    trace: DeviceTrace
    calls: dict[int, list[tuple[int, int, NcclCall]]] = field(default_factory=lambda: defaultdict(list))
    comms: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Communicator -> rank within it and how many it has."""


@dataclass
class Recording:
    """All processes of a file that used a GPU, by their number, and what of it was left out."""

    path: Path
    processes: dict[int, Process] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)


def finish(process: Process) -> None:
    """Order events, number correlations as calls began, and give NCCL's kernels what their calls said.

    Raises:
        InputError: its events are further apart than a trace can say.
    """
    trace = process.trace
    events = [each for kind in (trace.kernels, trace.calls, trace.ops, trace.waits) for each in kind]
    begin, end = min(each.start for each in events), max(each.end for each in events)
    if end - begin >= LIMIT:
        raise InputError(
            f"{trace.source}: has events from {begin} to {end} ns, expected less than {LIMIT} ns"
        )
    trace.ops.sort(key=lambda op: (op.start, -op.end))
    for ranges in process.calls.values():
        ranges.sort(key=lambda each: (each[0], -each[1]))
    # Numbers have gaps where calls were not traced, which would look like a file that was cut.
    known = sorted({call.correlation for call in trace.calls if call.correlation > 0})
    number = {old: at for at, old in enumerate(known, 1)}
    by_old = {call.correlation: call for call in trace.calls if call.correlation > 0}
    for kernel in trace.kernels:
        if kernel.correlation in by_old and kernel_kind(kernel.name):
            kernel.args |= _said(process, by_old[kernel.correlation])
    for call in trace.calls:
        call.correlation = number.get(call.correlation, 0)
    for kernel in trace.kernels:
        kernel.correlation = number.get(kernel.correlation, 0)
    for wait in trace.waits:
        wait.correlation = number.get(wait.correlation, 0)
        wait.on_correlation = number.get(wait.on_correlation, 0)
    for those in (trace.calls, trace.kernels, trace.waits):
        those.sort(key=lambda event: (event.start, event.end))


def _said(process: Process, call: RuntimeCall) -> dict[str, Any]:
    ranges = process.calls.get(call.tid, [])
    at = bisect_right(ranges, call.start, key=lambda each: each[0])
    for start, end, said in reversed(ranges[max(at - _NEAR, 0) : at]):
        if said.name and start <= call.start <= end and said.name not in ("groupend", "groupstart"):
            return said.args
    return {}
