"""GPUs: times of their kernels, from a few constants that are fitted to measurements.

A GPU is data (`devices/NAME.yaml`: data sheet, tile sizes, fitted constants with source and error; `like:`
scales those of a sibling) and three vectorised models: GEMMs (the fastest of tile sizes × splits of k, each
limited by tensor cores, operands, latency and memory), fused attention, and bytes. A table of measured rows
would interpolate better and extrapolate to nothing. A few constants with a meaning can be compared with a
data sheet and carried over to the next device.
"""

from armillary.compute.gpu.device import Gpu, load_gpu

__all__ = ["Gpu", "load_gpu"]
