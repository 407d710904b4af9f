"""A systolic array: the cycle counts of SCALE-sim (Samajdar et al., ISPASS 2020, section III; its v3 as released).

An array of R rows and C columns works through a product in folds, and drains between two of them. What stays in the
array lies along rows and columns, the third size streams:

========  ====  =======  ======  =====================
dataflow  rows  columns  stream  cycles of a fold
========  ====  =======  ======  =====================
output    m     n        k       k + R + C - 2
weight    k     n        m       R + m + R + C - 2
input     k     m        n       R + n + R + C - 2
========  ====  =======  ======  =====================

With a stationary operand R cycles load it. Nothing of two folds overlaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from armillary.compute.model import ComputeModel, Device, Times, Work
from armillary.trace.gemm import Gemm

Dataflow = Literal["output", "weight", "input"]


def cycles(product: Gemm, rows: int, columns: int, dataflow: Dataflow) -> int:
    """Return the cycles of a product without stalls: all its calls, and the products of a batch, one by one."""
    m, n, k = product.m, product.n, product.k
    down, across, stream = {"output": (m, n, k), "weight": (k, n, m), "input": (k, m, n)}[dataflow]
    folds = -(-down // rows) * -(-across // columns)
    load = 0 if dataflow == "output" else rows
    return product.calls * product.batch * folds * (load + stream + rows + columns - 2)


@dataclass(frozen=True)
class Systolic(ComputeModel):
    """Times matrix products; with `stall` a kernel takes at least its bytes ÷ the memory bandwidth that it reaches.

    Attributes:
        device: The NPU.
        rows: Of the array.
        columns: Of the array.
        dataflow: What stays in the array.
        clock: Hz.
        arrays: That share the folds of a product evenly.
        stall: Whether memory bounds it, too: double buffering hides the shorter of the two.
    """

    device: Device
    rows: int
    columns: int
    dataflow: Dataflow
    clock: float
    arrays: int = 1
    stall: bool = True

    @classmethod
    def create(cls, options: Mapping[str, Any], device: Device, folder: Path) -> Systolic:
        """See `ComputeModel`; the options are those of `armillary.platform.compute_schema.Systolic`."""
        return cls(device, **options)

    def durations(self, work: Work) -> Times:
        """See `ComputeModel`."""
        ns, bound = np.full(len(work), np.nan), [""] * len(work)
        kernels = self.device.kernels
        for at, products in enumerate(work.products):
            if not products:
                continue
            count = sum(
                -(-cycles(p, self.rows, self.columns, self.dataflow) // self.arrays) for p in products
            )
            computing = count / self.clock * 1e9
            moving = 0.0
            if self.stall and self.device.memory > 0:
                moving = max(int(work.size[at]), 0) / (self.device.memory * kernels.memory) * 1e9
            ns[at] = max(computing, moving) + kernels.overhead
            bound[at] = "compute" if computing >= moving else "memory"
        return Times(ns, tuple(bound))
