"""Recorded durations on other hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from armillary.base.errors import InputError
from armillary.compute.model import Device
from armillary.compute.roofline import roofline_ns
from armillary.lab.extrapolation.edit import with_durations
from armillary.lab.extrapolation.kernels import Nodes
from armillary.platform.model import Platform
from armillary.trace import Trace
from armillary.trace.axis_sets import grid_of
from armillary.trace.graph import duration_ns


def to_hardware(trace: Trace, old: Platform, new: Platform, note: Callable[[str, int], None]) -> Trace:
    """Return the trace with its recorded durations converted to another machine.

    The duration of a kernel changes by the ratio of its roofline times: by the peaks where operations bound it, by the
    memory bandwidths where bytes do. Communication loses its durations: the simulator times it.

    Raises:
        InputError: a machine has no peak or no memory bandwidth.
    """
    devices = [_device(each, which) for each, which in ((old, "the first"), (new, "the second"))]
    graphs = []
    for graph in trace.graphs:
        nodes = Nodes(graph, grid_of(trace))
        recorded = duration_ns(graph)
        host = graph.ints("is_cpu_op", 0) > 0
        # A GPU trace has kernels besides host operators, and only these run on the device; a CPU trace has
        # only operators.
        if (nodes.kernel & ~host).any():
            note("hardware: operators of the host keep their durations", int((nodes.kernel & host).sum()))
            local = nodes.kernel & ~host
        else:
            note("hardware: the host is the device, for the trace has no others", 0)
            local = nodes.kernel
        operations, size = graph.ints("num_ops", 0), graph.ints("tensor_size", 0)
        known = local & ((operations > 1) | (size > 0))
        precision, names = graph.strings("precision")
        before, after = (_roofline(device, operations, size, precision, names) for device in devices)
        scaled = known & (recorded > 0) & (before > 0)
        factor = np.where(scaled, after / np.where(before > 0, before, 1.0), 1.0)
        # Which side of the ridge the kernel was on when it was recorded; used in the report only.
        compute = operations / devices[0].peak >= size / devices[0].memory
        note("hardware: kernels bound by operations change with the peaks", int((scaled & compute).sum()))
        note("hardware: kernels bound by memory change with the bandwidths", int((scaled & ~compute).sum()))
        note(
            "hardware: kernels without a duration are left to the compute model",
            int((known & (recorded == 0)).sum()),
        )
        note(
            "hardware: kernels without operations and bytes keep their durations", int((local & ~known).sum())
        )
        talks = (nodes.collective >= 0) | nodes.message
        note("hardware: communication has no durations, for the simulator times it", int(talks.sum()))
        ns = np.where(talks, 0, np.rint(recorded * factor)).astype(np.int64)
        graphs.append(with_durations(graph, ns) if (ns != recorded).any() else graph)
    return replace(trace, graphs=tuple(graphs))


def _device(platform: Platform, which: str) -> Device:
    device = Device.of(platform)
    if device.peak <= 0 or device.memory <= 0:
        raise InputError(f"hardware: {which} machine has no npu.peak or npu.memory.bandwidth; expected both")
    return device


def _roofline(
    device: Device,
    operations: np.ndarray[tuple[int], np.dtype[np.int64]],
    size: np.ndarray[tuple[int], np.dtype[np.int64]],
    precision: np.ndarray[tuple[int], np.dtype[np.int32]],
    names: list[str],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    peaks = np.array(
        [*(device.peak_of(name) or device.peak for name in names), device.peak_of("bf16") or device.peak]
    )
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = roofline_ns(
        operations, size, peaks[precision], device
    )
    return found
