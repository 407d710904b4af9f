"""Kernels that are bound by memory: norms, activations, residuals, softmax, embedding, loss, optimizer."""

from __future__ import annotations

from armillary.compute.gpu.device import Gpu
from armillary.compute.model import Floats


def memory_seconds(gpu: Gpu, size: Floats) -> Floats:
    """Return (kernels) s of kernels that read and write (kernels) bytes."""
    result: Floats = gpu.launch + size / (gpu.bandwidth * gpu.share)
    return result
