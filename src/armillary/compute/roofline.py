"""The roofline model: a kernel takes the longer of operations ÷ peak and bytes ÷ memory bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError, one_of
from armillary.compute.model import ComputeModel, Device, Floats, Ints, Times, Work


def roofline_ns(operations: Ints, size: Ints, peak: Floats | float, device: Device) -> Floats:
    """Return ns, with the shares of the peaks that kernels reach and their overhead (Williams et al., CACM 2009)."""
    kernels = device.kernels
    # The latency of the memory is paid only by kernels that move something.
    moving = _over(size, device.memory * kernels.memory) + np.where(size > 0, device.latency * 1e-9, 0.0)
    longer = np.maximum(_over(operations, peak * kernels.compute), moving)
    result: NDArray[np.float64] = longer * 1e9 + kernels.overhead
    return result


def with_endless_memory(device: Device) -> Device:
    """Return the device, on which bytes cost no time where its memory bandwidth is not given."""
    return device if device.memory > 0 else replace(device, memory=inf)


def _over(amount: Ints, rate: Floats | float) -> Floats:
    """Return amount ÷ rate, 0 where the amount is 0: a machine need not state a rate that nothing uses."""
    amount = np.asarray(amount)
    # Where nothing is to be done the rate may be 0 or missing: the division is left out there.
    result: NDArray[np.float64] = np.divide(amount, rate, out=np.zeros(amount.shape), where=amount > 0)
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
        idle = (work.operations <= 0) & (work.size <= 0)
        # What names no more than zeros does as little as what names nothing, and takes its recorded time.
        known = ((work.operations >= 0) | (work.size >= 0)) & ~(idle & (work.recorded > 0))
        ns = np.full(len(work), np.nan)
        bound = np.full(len(work), "", "U7")
        if known.any():
            peak = np.array([device.peak_of(precision) for precision in work.precisions])[known]
            operations, size = np.maximum(work.operations[known], 0), np.maximum(work.size[known], 0)
            self._check(work, known, peak, operations, size)
            ns[known] = roofline_ns(operations, size, peak, device)
            full, share = device.kernels, device.memory * device.kernels.memory
            computing, moving = _over(operations, peak * full.compute), _over(size, share)
            bound[known] = np.where(computing >= moving, "compute", "memory")
        return Times(ns, tuple(bound.tolist()))

    def _check(
        self, work: Work, known: NDArray[np.bool_], peak: Floats, operations: Ints, size: Ints
    ) -> None:
        """Refuse kernels whose operations or bytes the device has no rate for."""
        for bad, what, needed in (
            ((operations > 0) & (self.device.peak <= 0), "operations", "npu.peak"),
            ((size > 0) & (self.device.memory <= 0), "bytes", "npu.memory.bandwidth"),
        ):
            if bad.any():
                at = int(np.flatnonzero(known)[bad][0])
                raise InputError(
                    f"kernel '{work.names[at]}' names {what}; expected {needed}, which times them"
                )
        if ((peak == 0) & (operations > 0)).any():
            at = int(np.flatnonzero(known)[(peak == 0) & (operations > 0)][0])
            raise InputError(
                f"kernel '{work.names[at]}' has precision '{work.precisions[at]}' without a peak; "
                f"expected {one_of(self.device.peaks)}"
            )
