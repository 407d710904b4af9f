"""The machines on which published training runs were measured, as platforms of studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any


@dataclass(frozen=True)
class Machine:
    """A cluster of nodes that are alike.

    Attributes:
        device: Name of the GPU's constants.
        peaks: TFLOP/s, dense, by precision.
        memory: Bandwidth, GB/s.
        capacity: GB.
        domain: GPUs that NVLink joins.
        inner: GB/s of a GPU into NVLink, one way.
        outer: GB/s of a GPU into the network between domains, one way.
        fit: Name of the fitted collectives.
    """

    device: str
    peaks: Mapping[str, float]
    memory: float
    capacity: float
    domain: int
    inner: float
    outer: float
    fit: str = ""

    def platform(self, npus: int) -> dict[str, Any]:
        """Return the keys ``network`` and ``npu`` of a platform with so many GPUs."""
        # A machine may have fewer GPUs than a domain, and jobs need not fill the domains that they lie in: as few
        # domains as can be, alike.
        outer = ceil(npus / self.domain)
        inner = next(npus // each for each in range(outer, npus + 1) if npus % each == 0)
        network = [
            {
                "name": "nvlink", "topology": "Switch", "size": inner, "bandwidth": f"{self.inner} GB/s",
                "latency": "1 us",
            }
        ]  # fmt: skip
        # Only where more than one domain takes part.
        if npus > inner:
            network.append(
                {
                    "name": "network", "topology": "Switch", "size": npus // inner,
                    "bandwidth": f"{self.outer} GB/s", "latency": "5 us",
                }
            )  # fmt: skip
        return {
            "network": network,
            "npu": {
                "peak": {name: f"{peak} TFLOP/s" for name, peak in self.peaks.items()},
                "memory": {"bandwidth": f"{self.memory} GB/s", "capacity": f"{self.capacity} GB"},
            },
        }


@dataclass(frozen=True)
class Slice(Machine):
    """TPU chips on a torus; several slices meet over the network of the data center.

    Attributes:
        pod: Most chips of a slice along each axis; as many axes as the torus has.
    """

    pod: tuple[int, ...] = (16, 16)

    def platform(self, npus: int) -> dict[str, Any]:
        """Return the keys ``network`` and ``npu`` of a platform with so many chips."""
        found = super().platform(npus)
        inner = min(npus, self.domain)
        axes = [size for size in sides(inner, self.pod) if size > 1]
        network: list[dict[str, Any]] = [
            {
                "name": f"ici{at}", "topology": "Ring", "size": size, "bandwidth": f"{self.inner} GB/s",
                "latency": "1 us",
            }
            for at, size in enumerate(axes)
        ]  # fmt: skip
        return {**found, "network": [*network, *found["network"][1:]]}


def sides(chips: int, pod: Sequence[int]) -> tuple[int, ...]:
    """Return the sides of the slice of so many chips that is most like a cube, smallest first."""
    if len(pod) == 1:
        return (chips,)
    first = round(chips ** (1 / len(pod)) + 1e-9)
    first = next(each for each in range(max(1, first), 0, -1) if chips % each == 0)
    return (first, *sides(chips // first, pod[1:]))


AMPERE = {"bf16": 312.0, "fp32": 156.0}
HOPPER = {"bf16": 989.0, "fp8": 1979.0, "fp32": 494.0}
MACHINES = {
    # Peaks are dense: data sheets often state twice that, with sparsity.
    "dgx-a100-80": Machine("a100-sxm-80", AMPERE, 2039, 80, 8, 300, 25, "a100-sxm"),
    "vtrain-a100": Machine("a100-sxm-80", AMPERE, 2039, 80, 8, 300, 12.5, "a100-vtrain"),
    "roce-a100-80": Machine("a100-sxm-80", AMPERE, 2039, 80, 8, 300, 25, "a100-sxm"),
    "roce-a100-40": Machine("a100-sxm-40", AMPERE, 1555, 40, 8, 300, 25, "a100-sxm"),
    "dgx-h100": Machine("h100-sxm", HOPPER, 3350, 80, 8, 450, 50, "h100-sxm"),
    "grand-teton-h100": Machine("h100-sxm", HOPPER, 3350, 80, 8, 450, 50, "h100-sxm"),
    # SXM5 with 96 GB of HBM2e at 2.4 TB/s, limited to 500 W (pytorch/torchtitan, benchmarks).
    "grand-teton-h100-96": Machine("h100-96-500w", HOPPER, 2400, 96, 8, 450, 50, "h100-sxm"),
    "dgx-h200": Machine("h200-sxm", HOPPER, 4800, 141, 8, 450, 50, "h200-sxm"),
    "dgx-b200": Machine(
        "b200", {"bf16": 2250, "fp8": 4500, "fp4": 9000, "fp32": 1100}, 8000, 180, 8, 900, 50, "b200-sxm"
    ),
    "dgx-b300": Machine(
        "b300", {"bf16": 2250, "fp8": 4500, "fp4": 13500, "fp32": 1100}, 8000, 270, 8, 900, 100, "b300-sxm"
    ),
    "nvl72-gb200": Machine(
        "gb200", {"bf16": 2500, "fp8": 5000, "fp4": 10000, "fp32": 1250}, 8000, 186, 64, 900, 50, "gb200"
    ),
    "nvl72-gb300": Machine(
        "gb300", {"bf16": 2500, "fp8": 5000, "fp4": 15000, "fp32": 1250}, 8000, 278, 64, 900, 100, "gb300"
    ),
    # Whole racks: of sizes that 64 does not divide.
    "gb200-nvl72": Machine(
        "gb200", {"bf16": 2500, "fp8": 5000, "fp4": 10000, "fp32": 1250}, 8000, 186, 72, 900, 50, "gb200"
    ),
    "gb300-nvl72": Machine(
        "gb300", {"bf16": 2500, "fp8": 5000, "fp4": 15000, "fp32": 1250}, 8000, 278, 72, 900, 100, "gb300"
    ),
    # One way of a link of the torus, and of a chip into the network of the data center (docs.cloud.google.com/tpu,
    # jax-ml.github.io/scaling-book, "How to think about TPUs").
    "tpu-v5p": Slice("tpu-v5p", {"bf16": 459, "fp32": 57}, 2765, 95, 8960, 90, 6.25, pod=(16, 20, 28)),
    "tpu-v6e": Slice("tpu-v6e", {"bf16": 918, "fp32": 115}, 1640, 32, 256, 90, 12.5, pod=(16, 16)),
}
"""By name.

DGX A100: 8 x HDR 200 Gb/s (arXiv 2104.04473); vTrain: 800 Gb/s in all (VIA-Research/vTrain, src/config.py).
"""
