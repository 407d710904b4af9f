"""A systolic array: the cycle counts of SCALE-sim (Samajdar et al., ISPASS 2020, section III; its v3 as released).

An array of R rows and C columns works through a GEMM in folds, and drains between two of them. What stays in the
array lies along rows and columns, the third size streams:

========  ====  =======  ======  =====================
dataflow  rows  columns  stream  cycles of a fold
========  ====  =======  ======  =====================
output    m     n        k       k + R + C - 2
weight    k     n        m       R + m + R + C - 2
input     k     m        n       R + n + R + C - 2
========  ====  =======  ======  =====================

With a stationary operand R cycles load it. Nothing of two folds overlaps. Memory stalls are in `systolic_memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.compute.model import ComputeModel, Device, Times, Work
from armillary.compute.systolic_memory import Buffers, Dataflow, folds, moved, stalls
from armillary.platform.kernels import SYSTOLIC_BUFFERS
from armillary.trace.gemm import Gemm


def memory_stalls(options: Mapping[str, Any]) -> str:
    """Return what a model with these options says of memory, for people."""
    if not options.get("stall", True):
        return "without memory stalls"
    return (
        "with finite buffers"
        if options.get("buffers")
        else "with each operand fetched once (no buffers given)"
    )


def cycles(gemm: Gemm, rows: int, columns: int, dataflow: Dataflow) -> int:
    """Return the cycles of a GEMM without stalls: all its calls, and the GEMMs of a batch, one by one."""
    through = folds(gemm, rows, columns, dataflow)
    return gemm.calls * gemm.batch * through.down.count * through.across.count * through.cycles


@dataclass(frozen=True)
class Systolic(ComputeModel):
    """Times GEMMs; with `stall` a kernel takes at least its bytes ÷ the memory bandwidth that it reaches.

    Attributes:
        device: The NPU.
        rows: Rows of the array.
        columns: Columns of the array.
        dataflow: What stays in the array.
        clock: Hz.
        arrays: That share the folds of a GEMM evenly.
        stall: Whether memory bounds it, too: double buffering hides the shorter of the two.
        buffers: Bytes of the buffers on the chip, shared by the arrays; None: each operand is fetched once.
    """

    device: Device
    rows: int
    columns: int
    dataflow: Dataflow
    clock: float
    arrays: int = 1
    stall: bool = True
    buffers: Mapping[str, int] | None = None

    @classmethod
    def create(cls, options: Mapping[str, Any], device: Device, folder: Path) -> Systolic:
        """See `ComputeModel`; the options are those of `armillary.platform.files.compute_schema.Systolic`."""
        return cls(device, **options)

    def durations(self, work: Work) -> Times:
        """See `ComputeModel`."""
        ns, bound = np.full(len(work), np.nan), [""] * len(work)
        kernels = self.device.kernels
        for at, gemms in enumerate(work.gemms):
            if not gemms:
                continue
            # -1 means that the kernel does not name its bytes.
            size = max(int(work.size[at]), 0)
            waits = 0
            if self.buffers and self.stall and size and self.device.memory > 0:
                # Bytes per element follow from the kernel's bytes: precisions are not looked up.
                element = size / sum(gemm.elements for gemm in gemms)
                waits, words = self._memory(gemms, element)
                # Operands that are fetched again count as traffic, but never less than the kernel names.
                size = max(size, int(words * element))
            count = waits + sum(
                -(-cycles(p, self.rows, self.columns, self.dataflow) // self.arrays) for p in gemms
            )
            computing = count / self.clock * 1e9
            moving = 0.0
            if self.stall and self.device.memory > 0:
                moving = size / (self.device.memory * kernels.memory) * 1e9
            ns[at] = max(computing, moving) + kernels.overhead
            # More than half the cycles are stalls: then memory is what limits it.
            bound[at] = "compute" if computing >= moving and 2 * waits <= count else "memory"
        return Times(ns, tuple(bound))

    def _memory(self, gemms: tuple[Gemm, ...], element: float) -> tuple[int, int]:
        """Return cycles of stalls, and words between buffers and memory; `element` is the bytes of an element.

        Arrays work on GEMMs side by side, each with its share of buffers and bandwidth.
        """
        assert self.buffers
        own = Buffers(
            # At least 2 words, one for each half.
            *(max(int(self.buffers[name] / element) // self.arrays, 2) for name in SYSTOLIC_BUFFERS)
        )
        rate = self.device.memory * self.device.kernels.memory / element / self.clock / self.arrays
        waits = words = 0
        for gemm in gemms:
            times, array = gemm.calls * gemm.batch, (self.rows, self.columns, self.dataflow)
            # GEMMs are divided among the arrays, rounded up.
            waits += -(-times * stalls(gemm, *array, own, rate) // self.arrays)
            words += times * sum(moved(gemm, *array, own))
        return waits, words
