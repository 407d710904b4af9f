"""GEMMs and collectives of a PyTorch profile (`torch.profiler`, Kineto's JSON) of one rank."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from armillary.compute.table_file import PRECISIONS, Rows
from armillary.convert.pytorch.arguments import element_bytes
from armillary.convert.pytorch.communication import kind_of, of_kernel
from armillary.convert.pytorch.communication_kernels import kernel_kind
from armillary.convert.pytorch.device import CpuOp, DeviceTrace, read_device
from armillary.convert.pytorch.device_only import said
from armillary.evidence.calibrate.samples import measured_text

OPERANDS = {"aten::mm": 0, "aten::addmm": 1, "aten::_scaled_mm": 0}
"""Operator that is one GEMM -> place of its left operand, before the right one."""
OPERATIONS = {
    "ALL_REDUCE": "all-reduce", "ALL_GATHER": "all-gather", "REDUCE_SCATTER": "reduce-scatter",
    "ALL_TO_ALL": "all-to-all", "BROADCAST": "broadcast",
}  # fmt: skip
"""Kinds that are taken; a message waits for its partner, so that its time says little."""
GLOO = "gloo:"
# What is beyond these is damage: sides of a matrix, ranks, bytes, ns.
_LARGEST, _MOST, _BYTES, _LONGEST = 2**31, 2**24, 2**40, 10**13


@dataclass(frozen=True)
class Call:
    """The shortest of the calls of a collective that are alike.

    Attributes:
        operation: As of `Sample`.
        members: How many ranks.
        ranks: Which, in the job; empty: not known.
        size: Bytes as nccl-tests count them.
        ns: Its time, in which it also waited for other ranks.
    """

    operation: str
    members: int
    ranks: tuple[int, ...]
    size: int
    ns: float


@dataclass(frozen=True)
class Profile:
    """What a profile tells of a machine.

    Attributes:
        device: As the driver calls it; "": there is none, operators ran on the CPU.
        gemms: By precision.
        calls: Collectives.
    """

    device: str
    gemms: dict[str, Rows]
    calls: list[Call]


def read_profile(path: Path) -> Profile:
    """Read a profile, which shapes must have been recorded for (`record_shapes=True`).

    Raises:
        InputError: it is no such file, or larger than is read.
    """
    trace = read_device(path, measured_text(path))
    names = [each.get("name") for each in trace.properties if isinstance(each, dict)]
    return Profile(str(names[0]) if names and trace.kernels else "", _gemms(trace), _shortest(_calls(trace)))


def _gemms(trace: DeviceTrace) -> dict[str, Rows]:
    # A GEMM may be several kernels: of parts of k, and their sum.
    busy: dict[int, int] = defaultdict(int)
    for kernel in trace.kernels:
        if kernel.external > 0 and kernel_kind(kernel.name) is None:
            busy[kernel.external] += kernel.end - kernel.start
    found: dict[str, Rows] = {}
    for op in trace.ops:
        # Without kernels operators run on the CPU, and take their own time.
        ns = busy.get(op.external, 0) if trace.kernels else op.end - op.start
        if op.name in OPERANDS and 0 < ns <= _LONGEST and (shape := _shape(op)) is not None:
            precision, sizes = shape
            found.setdefault(precision, {}).setdefault(sizes, []).append(float(ns))
    return found


def _shape(op: CpuOp) -> tuple[str, tuple[int, int, int]] | None:
    """Return precision and (m, n, k) of an operator, None where they were not recorded."""
    at = OPERANDS[op.name]
    dims, types = op.args.get("Input Dims"), op.args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) < at + 2 or len(types) <= at:
        return None
    left, right = dims[at], dims[at + 1]
    precision = PRECISIONS.get(str(types[at]).rpartition("::")[2].lower())
    if precision is None or not _is_matrix(left) or not _is_matrix(right) or left[1] != right[0]:
        return None
    return precision, (left[0], right[1], left[1])


def _is_matrix(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(n) is int and 0 < n < _LARGEST for n in value)
    )


def _calls(trace: DeviceTrace) -> list[Call]:
    found = []
    for kernel in trace.kernels:
        made = of_kernel(said(kernel.args), kernel.name)
        if made is None or not made.sized:
            continue
        members = made.group_size or (len(made.ranks) if made.ranks else 0)
        found.append((made.kind, members, made.ranks or (), made.size, kernel.end - kernel.start))
    world = trace.distributed.get("world_size")
    for op in trace.ops if isinstance(world, int) else ():
        # Gloo times what it does on threads of its own, in annotations.
        if op.is_annotation and op.name.startswith(GLOO):
            found.append(
                (kind_of(op.name.removeprefix(GLOO)) or "", world, (), _input_bytes(op), op.end - op.start)
            )
    return [
        Call(OPERATIONS[kind], members, ranks, size * (members if kind == "ALL_GATHER" else 1), float(ns))
        for kind, members, ranks, size, ns in found
        if kind in OPERATIONS and 2 <= members <= _MOST and 0 < size <= _BYTES and 0 < ns <= _LONGEST
    ]


def _input_bytes(op: CpuOp) -> int:
    dims, types = op.args.get("Input Dims"), op.args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return 0
    total = 0
    for shape, kind in zip(dims, types, strict=False):
        if isinstance(shape, list) and shape and all(type(n) is int and 0 <= n < _LARGEST for n in shape):
            total += prod(shape) * element_bytes(str(kind))
    return total


def _shortest(calls: list[Call]) -> list[Call]:
    """Return one call for each thing that was called: the others waited longer for other ranks."""
    best: dict[tuple[str, int, tuple[int, ...], int], Call] = {}
    for call in calls:
        key = call.operation, call.members, call.ranks, call.size
        if key not in best or call.ns < best[key].ns:
            best[key] = call
    return list(best.values())
