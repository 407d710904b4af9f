"""Bandwidth of a link and of an NPU's port."""

from __future__ import annotations

from armillary.platform.model import Dimension, Platform, Port, TopologyName


def links_per_npu(topology: TopologyName, size: int) -> int:
    """Return how many links an NPU has in a dimension: n-1 fully connected, but 1 if alone; 1 to a switch, else 2."""
    return {"FullyConnected": max(size - 1, 1), "Switch": 1}.get(topology, 2)


def port(dimension: Dimension) -> Port:
    """Return what an NPU can send and receive in a dimension: as stated, or all of its links together."""
    if dimension.port is not None:
        return dimension.port
    rate = dimension.bandwidth * links_per_npu(dimension.topology, dimension.size)
    return Port(rate, rate)


def ports(platform: Platform) -> tuple[Port, ...]:
    """Return `port` of every dimension, in bytes per ns: the bandwidths that profile ``physical`` uses."""
    return tuple(map(port, platform.dimensions))
