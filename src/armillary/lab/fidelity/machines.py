"""Machines with one NPU for each rank of a trace, built from as many nodes of a preset as that takes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from armillary.base.document import Document
from armillary.platform.files.native import study_of
from armillary.platform.files.sized import sides
from armillary.platform.model import Platform
from armillary.platform.profiles import with_roofline

_SCALE_OUT = {"hgx-h100": "12.5 GB/s", "mi300x": "25 GB/s", "dgx-superpod-h100": "50 GB/s"}
"""Bandwidth between nodes for each NPU: 100, 200 and 400 Gbit/s."""
NAMES = ("hgx-h100", "dgx-superpod-h100", "tpuv4-pod", "mi300x")


@cache
def machine(name: str, ranks: int) -> Platform:
    """Return the machine of a preset of `NAMES` with this many NPUs.

    Nodes of 8 NPUs are joined by one switch that does not block; `tpuv4-pod` becomes a torus as near to a cube as the
    factors of `ranks` allow.
    """
    from armillary.platform.files.preset import read_preset

    platform: dict[str, Any] = dict(read_preset(name).document.data["platform"])
    # Measured on machines of other sizes, and not on all of these.
    for measured in ("compute", "collectives"):
        platform.pop(measured, None)
    first = dict(platform["network"][0])
    if name == "tpuv4-pod":
        # A prime number of ranks has no torus of two or more sides: a ring.
        network = [{**first, "shape": shape} if len(shape := sides(ranks, 3)) > 1 else _ring(first, ranks)]
    else:
        node = _largest_divisor(ranks, 8)
        # A prime number above 8 gives nodes of 1, which have no network of their own.
        network = [{**first, "size": node}] if node > 1 or ranks == 1 else []
        if ranks > node:
            scale_out = {"bandwidth": _SCALE_OUT[name], "latency": "2 us"}
            network.append({"name": "scale-out", "topology": "Switch", "size": ranks // node, **scale_out})
    platform["network"] = network
    # A study file needs a workload; only the platform is used.
    workload = {"collective": "all-reduce", "size": "1 MiB"}
    document = Document(
        f"{name}.yaml", {"platform": platform, "workload": workload}, Path(f"{name}.yaml"), syntax="yaml"
    )
    return with_roofline(study_of(document, Path(f"{name}.yaml")).platform)


def _ring(first: dict[str, Any], ranks: int) -> dict[str, Any]:
    found = {key: value for key, value in first.items() if key not in ("shape", "topology", "per")}
    return {**found, "topology": "Ring", "size": ranks}


def _largest_divisor(number: int, most: int) -> int:
    return max(each for each in range(1, most + 1) if number % each == 0)
