"""Memory of a GPU that no allocator of the framework sees: the context of the device, and buffers of NCCL."""

from __future__ import annotations

from dataclasses import dataclass

from armillary.trace.grid import RankGrid
from armillary.workload.plan.schema import Plan

CONTEXT = 600 * 2**20
"""Bytes of a CUDA context with the kernels that a step loads: an assumption, as no set of measurements states it."""
CONNECTION = 8 * 512 * 8 * 16 + 120 * 640 * 8 * 8 + 4 * 2**20
"""Bytes of NCCL's receive buffers of one channel: LL, LL128 and Simple (defaults of src/include/device.h, comm.h)."""
CHANNELS = 16
"""Channels of a ring on NVLink; each has one neighbour to receive from."""
AXES = ("tp", "cp", "pp", "dp+cp", "fsdp", "replicate", "ep", "etp", "edp", "tp+cp+dp+pp")
"""Axis sets that may have a communicator."""


@dataclass(frozen=True)
class Outside:
    """Bytes that a GPU holds outside of the allocator.

    Attributes:
        context: Of the device's context.
        nccl: Of the buffers of communicators.
    """

    context: int = 0
    nccl: int = 0

    @property
    def total(self) -> int:
        """Bytes of both."""
        return self.context + self.nccl


NOTHING = Outside()


def outside(plan: Plan, grid: RankGrid) -> Outside:
    """Return what a rank of a plan holds outside of the allocator.

    Groups of the same ranks are one communicator, and one of a single rank is none.
    """
    dense = ("dp+cp",) if plan.data.sharding == "hsdp" else ("fsdp", "replicate")
    axes = [axes for axes in AXES if axes not in dense and set(axes.split("+")) <= set(grid.axes)]
    found = {grid.mesh_dims(each) for each in axes} - {()}
    return Outside(CONTEXT, len(found) * CHANNELS * CONNECTION)
