"""How long kernels take: compute models behind one protocol, `ComputeModel`.

Nodes of all rank graphs are reduced to distinct kernels (name, operations, bytes, precision, GEMMs, recorded
time), and the model gets them as columns in one call. So an external program is started once, however many
ranks there are. A kernel that the model does not know takes the roofline's time. Overrides come last, then
speed and jitter of ranks, and rounding up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.compute.find import MODELS, find_model, make_model
    from armillary.compute.model import KINDS, ComputeModel, Device, Times, Work
    from armillary.compute.times import KernelTimes

__all__ = [
    "KINDS",
    "MODELS",
    "ComputeModel",
    "Device",
    "KernelTimes",
    "Times",
    "Work",
    "find_model",
    "make_model",
]
__getattr__ = lazy(
    __name__,
    {
        ".find": ("MODELS", "find_model", "make_model"),
        ".model": ("KINDS", "ComputeModel", "Device", "Times", "Work"),
        ".times": ("KernelTimes",),
    },
)
