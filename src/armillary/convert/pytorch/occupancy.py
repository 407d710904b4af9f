"""How much of a device a kernel takes: for how long before its end there is room for kernels of other streams."""

from __future__ import annotations

from math import prod
from typing import Any

from armillary.convert.pytorch.device import DeviceOp
from armillary.convert.pytorch.steps import ROUNDING

THREADS, REGISTERS = 2048, 65_536
"""What one multiprocessor holds at once (CUDA C++ Programming Guide, compute capabilities 5.0 to 10.0).

Some hold 1,024 or 1,536 threads only: there a kernel is taken to fill less of the device than it does.
"""
WAVES = 3
"""How many waves of blocks a kernel that fills the device has left at the most when others find room beside it.

Blocks take different times, and the last ones drain. In the V100 traces of HTA's trace_diff, 83 and 92 % of the kernels
that waited for 300 us or more begin within 3 waves of the end of such a kernel; by chance 19 and 8 % would.
"""
UNKNOWN = 10
"""A kernel of unknown size, such as a copy within the device, leaves room in its last tenth at the most."""


def waves(args: dict[str, Any]) -> float:
    """Return how often a kernel fills the device with blocks, from what Kineto says of it; 0 where it does not say."""
    blocks, block, registers = args.get("blocks per SM"), args.get("block"), args.get("registers per thread")
    if not isinstance(blocks, (int, float)) or not isinstance(block, list) or not block:
        return 0.0
    if not all(type(side) is int and side > 0 for side in block):
        return 0.0
    threads = prod(block)
    held = THREADS // threads
    if type(registers) is int and registers > 0:
        held = min(held, REGISTERS // (registers * threads))
    return float(blocks) / max(held, 1)


def tail(kernel: DeviceOp) -> int:
    """Return how long before its end (ns) a kernel begins to leave room; 0 for one that never fills the device.

    It has room for others once its last blocks have begun.
    """
    length = kernel.end - kernel.start
    if "blocks per SM" not in kernel.args:
        return length // UNKNOWN
    full = waves(kernel.args)
    return int(WAVES * length / full) + 2 * ROUNDING if full >= 1 else 0
