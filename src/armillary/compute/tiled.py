"""The roofline with an on-chip buffer: a large GEMM moves its operands more than once.

A tile of a x b results stays in the buffer while rows and columns of the operands stream past it: a GEMM of (m, k)
with (k, n) moves m n k (1/a + 1/b) + m n elements. With a b = S elements in the buffer a square tile moves least,
2 m n k / sqrt(S) + m n, the leading term of the lower bound of Kwasniewski et al. (SC 2019, arXiv 1908.09606). A tile
is no larger than the result, so that a GEMM that fits moves each element once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from armillary.compute.model import ComputeModel, Device, Times, Work
from armillary.compute.roofline import Roofline
from armillary.trace.gemm import Gemm


def moved(gemm: Gemm, buffer: float) -> float:
    """Return the elements that a GEMM moves: all its calls, and the GEMMs of a batch, one by one.

    Args:
        gemm: The GEMM.
        buffer: Elements of the tile of results that stays on chip.
    """
    m, n, k = gemm.m, gemm.n, gemm.k
    # A square tile, or as high as the result; then as wide as the rest of the buffer allows; then as high as
    # that leaves.
    down = min(m, sqrt(buffer))
    across = min(n, buffer / down)
    down = min(m, buffer / across)
    return gemm.calls * gemm.batch * (m * n * k * (1 / down + 1 / across) + m * n)


@dataclass(frozen=True)
class Tiled(ComputeModel):
    """Times GEMMs; other kernels are left to the roofline.

    Attributes:
        device: The NPU.
        buffer: Bytes on chip.
    """

    device: Device
    buffer: int

    @classmethod
    def create(cls, options: Mapping[str, Any], device: Device, folder: Path) -> Tiled:
        """See `ComputeModel`; the option is that of `armillary.platform.files.compute_schema.Tiled`."""
        return cls(device, **options)

    def durations(self, work: Work) -> Times:
        """See `ComputeModel`: the roofline, with the bytes that tiles move."""
        gemms = np.array([bool(each) for each in work.gemms], bool)
        size = work.size.copy()
        for at in np.flatnonzero(gemms & (size > 0)).tolist():
            # Bytes per element follow from the kernel's bytes.
            element = size[at] / sum(each.elements for each in work.gemms[at])
            tiles = fsum(moved(each, self.buffer / element) for each in work.gemms[at])
            size[at] = max(int(size[at]), int(tiles * element))
        known = Work(work.names, work.operations, size, work.precisions, work.gemms, work.recorded)
        times = Roofline(self.device).durations(known)
        return Times(np.where(gemms, times.ns, np.nan), times.bound)
