"""The machines on which published training runs were measured, as platforms of studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
        host: GB/s through the host of a node to NICs that are not near; 0: the library relays.
    """

    device: str
    peaks: Mapping[str, float]
    memory: float
    capacity: float
    domain: int
    inner: float
    outer: float
    fit: str = ""
    host: float = 0.0

    def collectives(self) -> dict[str, Any]:
        """Return the keys ``collectives`` of a platform."""
        if not self.fit:
            return {}
        return {"fit": self.fit} | (
            {"host": {"bandwidth": f"{self.host} GB/s", "near": 2}} if self.host else {}
        )

    def platform(self, npus: int) -> dict[str, Any]:
        """Return the keys ``network`` and ``npu`` of a platform with so many GPUs."""
        # A machine may have fewer GPUs than a domain.
        inner = min(npus, self.domain)
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


AMPERE = {"bf16": 312.0, "fp32": 156.0}
HOPPER = {"bf16": 989.0, "fp8": 1979.0, "fp32": 494.0}
MACHINES = {
    # Peaks are dense: data sheets often state twice that, with sparsity.
    "dgx-a100-80": Machine("a100-sxm-80", AMPERE, 2039, 80, 8, 300, 25, "a100-sxm"),
    "vtrain-a100": Machine("a100-sxm-80", AMPERE, 2039, 80, 8, 300, 12.5, "a100-vtrain", host=25),
    "roce-a100-80": Machine("a100-sxm-80", AMPERE, 2039, 80, 8, 300, 25, "a100-sxm"),
    "roce-a100-40": Machine("a100-sxm-40", AMPERE, 1555, 40, 8, 300, 25, "a100-sxm"),
    "dgx-h100": Machine("h100-sxm", HOPPER, 3350, 80, 8, 450, 50, "h100-sxm"),
    "grand-teton-h100": Machine("h100-sxm", HOPPER, 3350, 80, 8, 450, 50, "h100-sxm"),
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
}
"""By name.

DGX A100: 8 x HDR 200 Gb/s (arXiv 2104.04473); vTrain: 800 Gb/s in all (VIA-Research/vTrain, src/config.py), which are 4
NICs, each near 2 GPUs, and NCCL before 2.12, which relays nothing; a host carries what a PCIe 4.0 x16 link does.
"""
