"""How far measured kernels lie from predicted ones: the standard deviation of a logarithm, by class of kernels."""

from __future__ import annotations

from typing import Literal

from armillary.base import portable
from armillary.compute.gpu.device import SUBSTITUTE, Gpu

Kind = Literal["gemm", "grouped", "attention", "attention backward", "memory"]
SHORT_NS = 20_000.0
"""ns below which a GEMM is short: launch and latency are a large part of it."""
FURTHER = {"measured": 0.0, "sibling": 0.05, "derived": 0.12, "sheet": 0.25}
"""Basis of a device -> standard deviation that its constants add for all its kernels together.

sibling: of an H200 constants of the H100 are off by less than 0.02 on average; its clocks under load are not known.
derived: constants of one of A100, H100 and B200 put to another by `like` are off by 0.07 to 0.14 on average over long
GEMMs of a precision. sheet: another maker's shares of the peak; no such device was measured, twice that.
"""
UNKNOWN = 0.2
"""Standard deviation of a class of kernels that a device says nothing of."""


def kernel_spread(
    gpu: Gpu, kind: Kind, precision: str = "bf16", ns: float | None = None, alone: bool = False
) -> float:
    """Return the standard deviation of ln(measured / predicted) of one kernel.

    Args:
        gpu: The device.
        kind: Class of the kernel.
        precision: Of a GEMM; one without constants of its own takes those of the nearest that has some.
        ns: Predicted time of a GEMM; absent: a long one.
        alone: Whether it is a GEMM that residuals of the device hold for.
    """
    return portable.hypot(own_spread(gpu, kind, precision, ns, alone), device_spread(gpu))


def device_spread(gpu: Gpu) -> float:
    """Return the part of `kernel_spread` that all kernels of a device share, so that it does not average out."""
    return FURTHER[gpu.basis]


def own_spread(
    gpu: Gpu, kind: Kind, precision: str = "bf16", ns: float | None = None, alone: bool = False
) -> float:
    """Return the part of `kernel_spread` that each kernel has for itself, of shapes that were not fitted to."""
    if kind != "gemm":
        return gpu.spread.get(kind, UNKNOWN)
    length = "short" if ns is not None and ns < SHORT_NS else "long"
    if alone and precision in gpu.residuals:
        left = gpu.residuals[precision]
        if found := left.short if length == "short" else left.long:
            return found
    names = (f"gemm {each} {length}" for each in (precision, *SUBSTITUTE.get(precision, ("bf16",))))
    return next((gpu.spread[name] for name in names if name in gpu.spread), UNKNOWN)
