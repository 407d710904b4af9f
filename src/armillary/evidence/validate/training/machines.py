"""The machines on which published training runs were measured: presets of a size, and what differs from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from armillary.platform.files.preset import device_names, merged, read_preset
from armillary.platform.files.sized import devices_of


@dataclass(frozen=True)
class Machine:
    """A cluster of one kind of device.

    Attributes:
        counted: The name by which devices of its preset are counted: h100.
        changes: Keys of the platform that differ, but for those of dimensions.
        dimensions: Name of a dimension of the preset -> keys that differ.
    """

    counted: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    dimensions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def platform(self, npus: int) -> dict[str, Any]:
        """Return the keys of a platform with so many devices.

        Raises:
            InputError: so many do not make up whole nodes.
        """
        found: dict[str, Any] = merged(
            read_preset(f"{npus}x{self.counted}").document.data["platform"], self.changes
        )
        network = [merged(each, self.dimensions.get(each["name"], {})) for each in found["network"]]
        return {**found, "network": network}

    @property
    def device(self) -> str:
        """Name of the constants of its kernels."""
        return str(self.platform(self.domain)["compute"]["device"])

    @property
    def domain(self) -> int:
        """Devices that the innermost dimension joins at most."""
        return _domain(self.counted)


@lru_cache
def _domain(counted: str) -> int:
    return devices_of(read_preset(device_names()[counted]).document.data["platform"]["network"][0])


_A100_40 = {
    "npu": {"memory": {"bandwidth": "1555 GB/s", "capacity": "39.5 GiB"}},
    "compute": {"device": "a100-sxm-40"},
}
# SXM5 with HBM2e, limited to 500 W (pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md).
_H100_96 = {
    "npu": {"memory": {"bandwidth": "2400 GB/s", "capacity": "95 GiB"}},
    "compute": {"device": "h100-96-500w"},
}
MACHINES = {
    "dgx-a100-80": Machine("a100"),
    "vtrain-a100": Machine(
        "a100",
        {"collectives": {"fit": "a100-vtrain", "host": {"bandwidth": "25 GB/s", "near": 2}}},
        {"fabric": {"bandwidth": "12.5 GB/s"}},
    ),
    "roce-a100-80": Machine("a100"),
    "roce-a100-40": Machine("a100", _A100_40),
    "dgx-h100": Machine("h100"),
    "grand-teton-h100": Machine("h100"),
    "grand-teton-h100-96": Machine("h100", _H100_96),
    "dgx-h200": Machine("h200"),
    "dgx-b200": Machine("b200"),
    "dgx-b300": Machine("b300"),
    "nvl72-gb200": Machine("gb200"),
    "nvl72-gb300": Machine("gb300"),
    "tpu-v5p": Machine("tpu-v5p"),
    "tpu-v6e": Machine("tpu-v6e"),
    "tpu-v7": Machine("tpu-v7"),
}
"""By name.

DGX A100: 8 x HDR 200 Gb/s (arXiv 2104.04473); vTrain: 800 Gb/s in all (VIA-Research/vTrain, src/config.py), which are 4
NICs, each near 2 GPUs, and NCCL before 2.12, which relays nothing; a host carries what a PCIe 4.0 x16 link does.
"""
