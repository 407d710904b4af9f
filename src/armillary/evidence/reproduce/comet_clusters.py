"""The clusters of 1,024 nodes that COMET's method is applied to: one that is varied, and presets beside it."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from armillary.base.errors import InputError
from armillary.evidence.reproduce.comet_assumptions import NODES, Assumptions
from armillary.platform import load_platform
from armillary.platform.kernels import Compute
from armillary.platform.model import Platform

BASE = "A100"
CLUSTERS = (BASE, "H100", "TPU v4", "Dojo")
TILE = 25
"""Dies of a training tile of Dojo."""


def cluster(name: str, chosen: Assumptions) -> Platform:
    """Return one of `CLUSTERS`.

    Presets keep their numbers; their shapes are cut to 1,024 nodes: TPU v4 to 8 x 8 x 16, Dojo to 8 x 8 tiles of 4 x 4
    dies. As there, a tile that is a node itself has 4.5 TB/s to each of its neighbours in a mesh of 32 x 32.

    Raises:
        InputError: the pods do not divide the nodes.
    """
    platform = load_platform(_document(name, chosen))
    # Presets have efficiencies of their own; COMET's method has one for all.
    kernels = replace(platform.compute.kernels, compute=chosen.efficiency)
    return replace(
        platform,
        compute=Compute("tiled", {"buffer": chosen.buffer}, kernels=kernels),
        # No fit: collectives of one cluster alone were measured, and all are compared by their links.
        collectives=replace(platform.collectives, chunks=chosen.chunks, fit=None),
    )


def varied(platform: Platform, *, peak: float = 0.0, intra: float = 0.0, inter: float = 0.0) -> Platform:
    """Return the base cluster with other FLOP/s, or bandwidths (bytes per ns) within and between pods; 0: as it is."""
    inner, outer = (
        replace(dimension, bandwidth=rate or dimension.bandwidth, port=None)
        # port=None: it follows from the new bandwidth.
        for dimension, rate in zip(platform.dimensions, (intra, inter), strict=True)
    )
    npu = replace(platform.npu, peak=peak or platform.npu.peak)
    return replace(platform, dimensions=(inner, outer), npu=npu)


def part(name: str, chosen: Assumptions, nodes: int) -> Platform:
    """Return so many nodes of one of `CLUSTERS`, a power of 2, as compact as they can be: whole pods or near-cubes.

    All precisions have the one peak, as nobody publishes one of fp32 rows and GEMMs of tensor units for all four.

    Raises:
        InputError: the pods do not divide the nodes.
    """
    whole = cluster(name, chosen)
    # The first groups are filled before the next dimension is used.
    sizes = _compact([dimension.size for dimension in whole.dimensions], name, nodes)
    # Dimensions of one node have no links.
    kept = [at for at, size in enumerate(sizes) if size > 1]
    return replace(
        whole,
        dimensions=tuple(replace(whole.dimensions[at], size=sizes[at]) for at in kept),
        npu=replace(whole.npu, peak=whole.npu.peak_flops),
    )


def _compact(sizes: list[int], name: str, nodes: int) -> list[int]:
    """Return how many of each dimension are taken: inner groups first, within a group of equal rank evenly."""
    # Dimensions that are axes of one torus or mesh are filled together, to stay near a cube.
    groups = {"TPU v4": [3], "Dojo": [2] * (len(sizes) // 2)}.get(name, [1] * len(sizes))
    found: list[int] = []
    for group in groups:
        at, taken = len(found), [1] * group
        # Doubling one axis a time; at most log2 of all nodes steps.
        for _ in range(NODES.bit_length()):
            free = [axis for axis in range(group) if taken[axis] < sizes[at + axis]]
            if not free or prod([*found, *taken]) == nodes:
                break
            # The shortest axis of the group, the first of equals.
            taken[min(free, key=taken.__getitem__)] *= 2
        found += taken
    if prod(found) != nodes or any(each > most for each, most in zip(found, sizes, strict=True)):
        raise InputError(f"{nodes} nodes of {name}: expected a power of 2 that its dimensions hold")
    return found


def _document(name: str, chosen: Assumptions) -> dict[str, Any]:
    if name == BASE:
        if NODES % chosen.pod:
            raise InputError(f"--pod {chosen.pod}: expected a divisor of {NODES}")
        # !r writes floats in full: study files read text.
        hop, pods = f"{chosen.latency!r} ns", NODES // chosen.pod
        return {
            "network": [
                {"topology": "Switch", "size": chosen.pod, "bandwidth": f"{chosen.intra!r} GB/s", "latency": hop},
                {"topology": "Switch", "size": pods, "bandwidth": f"{chosen.inter!r} GB/s", "latency": hop},
            ],
            "npu": {
                "peak": f"{chosen.peak!r} FLOP/s",
                "memory": {"bandwidth": f"{chosen.memory!r} GB/s", "capacity": f"{chosen.capacity} B"},
            },
        }  # fmt: skip
    if name == "H100":
        return {"preset": "dgx-superpod-h100"}
    if name == "TPU v4":
        # Overrides of a preset: by name of a dimension.
        return {"preset": "tpuv4-pod", "network": {"ici": {"shape": [8, 8, 16]}}}
    if chosen.dojo == "die":
        return {"preset": "dojo-exapod", "network": {"tile": {"shape": [4, 4]}, "pod": {"shape": [8, 8]}}}
    return {
        "network": [
            {"topology": "Mesh", "shape": [32, 32], "bandwidth": "4.5 TB/s", "per": "link", "latency": "500 ns"}
        ],
        "npu": {
            # 25 dies make a tile.
            "peak": f"{TILE * 362} TFLOP/s",
            "memory": {"bandwidth": f"{TILE * 10} TB/s", "capacity": f"{TILE * 440} MB"},
        },
    }  # fmt: skip
