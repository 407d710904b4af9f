"""The roofline model: a kernel takes the longer of operations ÷ peak and bytes ÷ memory bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.compute.model import ComputeModel, Device, Floats, Ints, Times, Work
from armillary.errors import InputError, one_of


def roofline_ns(operations: Ints, size: Ints, peak: Floats | float, device: Device) -> Floats:
    """Return ns, with the shares of the peaks that kernels reach and their overhead (Williams et al., CACM 2009)."""
    kernels = device.kernels
    moving = size / (device.memory * kernels.memory) + np.where(size > 0, device.latency * 1e-9, 0.0)
    longer = np.maximum(operations / (peak * kernels.compute), moving)
    result: NDArray[np.float64] = longer * 1e9 + kernels.overhead
    return result


class Roofline(ComputeModel):
    """Knows every kernel that names its operations or bytes."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @classmethod
    def create(cls, options: Mapping[str, Any], device: Device, folder: Path) -> Roofline:
        """See `ComputeModel`."""
        return cls(device)

    def durations(self, work: Work) -> Times:
        """See `ComputeModel`."""
        device = self.device
        known = (work.operations >= 0) | (work.size >= 0)
        ns = np.full(len(work), np.nan)
        bound = np.full(len(work), "", "U7")
        if known.any():
            if device.memory <= 0 or device.peak <= 0:
                raise InputError(
                    "the roofline needs npu.peak and npu.memory.bandwidth: compute nodes cannot be timed"
                )
            peak = np.array([device.peak_of(precision) for precision in work.precisions])[known]
            if (peak == 0).any():
                at = int(np.flatnonzero(known)[peak == 0][0])
                raise InputError(
                    f"kernel '{work.names[at]}' has precision '{work.precisions[at]}' without a peak; "
                    f"expected {one_of(device.kernels.peaks)}"
                )
            operations, size = np.maximum(work.operations[known], 0), np.maximum(work.size[known], 0)
            ns[known] = roofline_ns(operations, size, peak, device)
            full, share = device.kernels, device.memory * device.kernels.memory
            bound[known] = np.where(operations / (peak * full.compute) >= size / share, "compute", "memory")
        return Times(ns, tuple(bound.tolist()))
