"""How long kernels take: compute models behind one protocol, `ComputeModel`."""

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
