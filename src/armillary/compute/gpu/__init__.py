"""GPUs: how long their kernels take, by few constants that are fitted to measurements."""

from armillary.compute.gpu.device import Gpu, load_gpu

__all__ = ["Gpu", "load_gpu"]
