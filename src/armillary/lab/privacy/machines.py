"""The machines on which an obfuscated trace must take as long as the original."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path

from armillary.platform import Platform, load_platform, with_roofline


@dataclass(frozen=True, eq=False)
class Machine:
    """A platform with a name."""

    name: str
    platform: Platform
    profile: str = "physical"


_HOST = {"kind": "per-npu", "bandwidth": "64 GB/s", "latency": "1 us"}
"""Memory of the host behind PCIe 5.0 with 16 lanes."""


def usual_machines(ranks: int) -> list[Machine]:
    """Return two machines of `ranks` NPUs: boards of NVIDIA H100 and of AMD MI300X, joined by rails of 50 GB/s.

    A board has gcd(ranks, 8) NPUs; the numbers are those of the presets ``hgx-h100`` and ``mi300x``.
    """
    # Every board must be full: 12 ranks are three boards of 4.
    board = gcd(ranks, 8)
    rails = [
        {
            "name": "rail",
            "topology": "Switch",
            "size": ranks // board,
            "bandwidth": "50 GB/s",
            "latency": "500 ns",
        }
    ]
    boards = {
        "h100": {"name": "nvlink", "topology": "Switch", "size": board, "bandwidth": "450 GB/s", "latency": "936 ns"},
        "mi300x": {
            "name": "xgmi", "topology": "FullyConnected", "size": board, "bandwidth": "64 GB/s", "per": "link",
            "latency": "500 ns",
        },
    }  # fmt: skip
    npus = {
        "h100": {
            "peak": {"bf16": "989 TFLOP/s", "fp8": "1979 TFLOP/s"},
            "memory": {"bandwidth": "3.35 TB/s"},
        },
        "mi300x": {
            "peak": {"bf16": "1300 TFLOP/s", "fp8": "2600 TFLOP/s"},
            "memory": {"bandwidth": "5.3 TB/s"},
        },
    }
    found = []
    for name, npu in npus.items():
        # Dimensions of one NPU are left out; a single NPU still needs one dimension.
        network = [part for part in (boards[name], *rails) if part["size"] != 1]
        document = {"network": network or [{**boards[name], "size": 1}], "npu": npu, "remote_memory": _HOST}
        found.append(Machine(name, _timed(load_platform(document))))
    return found


def read_machines(paths: Sequence[Path | str], ranks: int) -> list[Machine]:
    """Return the machines of platform files, study files or presets, or the usual ones if `paths` is empty.

    Raises:
        InputError: a file cannot be read.
    """
    if not paths:
        return usual_machines(ranks)
    return [Machine(Path(path).stem, _timed(load_platform(path))) for path in paths]


def _timed(platform: Platform) -> Platform:
    """Return the platform with the roofline for kernels that name their work, if it has a peak and a bandwidth."""
    if platform.compute.replay or not (platform.npu.peak_flops and platform.npu.memory.bandwidth):
        return platform
    return with_roofline(platform)
