"""The machines of case studies 1 and 2 of ASTRA-sim 2.0 (ISPASS 2023): one wafer, or conventional platforms.

Shapes, sizes and bandwidths are those of the slides; what they do not say is in `MachineAssumptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from armillary.evidence.reproduce import readers
from armillary.evidence.reproduce.assumptions import assumed, choice
from armillary.platform.memory import LocalMemory
from armillary.platform.model import AstraSimSystem, Collectives, Npu, Platform, ProfileName
from armillary.platform.network import Dimension, Port, TopologyName, links_per_npu
from armillary.platform.profiles import with_roofline


class Block(NamedTuple):
    """One dimension: bandwidth in bytes per ns."""

    topology: TopologyName
    size: int
    bandwidth: float


MACHINES: dict[str, tuple[Block, ...]] = {
    "W-1D-350": (Block("Switch", 512, 350.0),),
    "W-1D-500": (Block("Switch", 512, 500.0),),
    "W-1D-600": (Block("Switch", 512, 600.0),),
    "W-2D": (Block("Switch", 32, 250.0), Block("Switch", 16, 250.0)),
    "Conv-3D": (Block("Ring", 16, 200.0), Block("FullyConnected", 8, 100.0), Block("Switch", 4, 50.0)),
    "Conv-4D": (
        Block("Ring", 2, 250.0),
        Block("FullyConnected", 8, 200.0),
        Block("Ring", 8, 100.0),
        Block("Switch", 4, 50.0),
    ),
}
"""Name -> dimensions, innermost first; 512 NPUs each."""
EQUALS = {"Conv-3D": "W-1D-350", "W-2D": "W-1D-500", "Conv-4D": "W-1D-600"}
"""Machine of several dimensions -> that of one with the same bandwidth per NPU in all."""
NPUS = 512


@dataclass(frozen=True)
class NetworkAssumptions:
    """What the slides do not say about networks, and what collectives need besides."""

    per: str = choice(
        "profile",
        ("profile", "npu", "link"),
        "Unit that has the bandwidth of the slides. Their W-1D have 350, 500 and 600 GB/s, the sums of Conv-3D, W-2D "
        "and Conv-4D: so an NPU, in physical; in astra-sim a link, as in that program's files.",
    )
    latency: float = assumed(
        "500 ns",
        readers.time,
        "Latency of a hop in all dimensions, between that of a link on a package and of a network adapter; not stated.",
        others=("20 ns", "2 us"),
    )
    chunks: int = assumed(
        "64",
        readers.chunks,
        "Chunks per collective, as in the Themis paper (ISCA'22); not stated.",
        others=("16", "256"),
    )
    memory: float = assumed(
        "2039 GB/s",
        readers.bandwidth,
        "Memory bandwidth of an NPU, also for reductions: data sheet of the A100 with 80 GB.",
        others=("1555 GB/s", "1 PB/s"),
    )


@dataclass(frozen=True)
class MachineAssumptions(NetworkAssumptions):
    """What the slides do not say about the machines."""

    peak: float = assumed(
        "234 TFLOP/s",
        readers.flops,
        "Peak of an NPU: measured on an A100, and used in the paper's case studies.",
        others=("312 TFLOP/s",),
    )


def machine(name: str, chosen: MachineAssumptions, profile: ProfileName) -> Platform:
    """Return one of `MACHINES` with the algorithm of each building block."""
    platform = networked(MACHINES[name], chosen, profile)
    return with_roofline(replace(platform, npu=replace(platform.npu, peak=chosen.peak)))


def networked(blocks: Sequence[Block], chosen: NetworkAssumptions, profile: ProfileName) -> Platform:
    """Return a machine without a peak: for traces without kernels."""
    # The slides do not say whose bandwidth it is; the default follows the sums above.
    per = {"physical": "npu", "astra-sim": "link"}[profile] if chosen.per == "profile" else chosen.per
    dimensions = []
    for place, block in enumerate(blocks, 1):
        links = links_per_npu(block.topology, block.size)
        # Profile astra-sim uses the rate of a link, physical the port: keep both consistent.
        link = block.bandwidth / (links if per == "npu" else 1)
        rate = link * links
        dimensions.append(
            Dimension(f"dim {place}", block.topology, block.size, link, chosen.latency, Port(rate, rate))
        )
    return Platform(
        tuple(dimensions),
        Npu(memory=LocalMemory(chosen.memory)),
        collectives=Collectives(chunks=chosen.chunks),
        astra_sim=AstraSimSystem("localBWAware"),
    )
