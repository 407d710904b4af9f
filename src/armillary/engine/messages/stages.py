"""The network of a platform over time."""

from __future__ import annotations

from dataclasses import replace

from armillary.base.errors import InputError
from armillary.engine.transport.network import Stage
from armillary.platform.model import Platform, ports
from armillary.platform.network import links_per_npu
from armillary.platform.topology.attached import with_storage
from armillary.platform.topology.failures import stages
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.grids import from_dimensions
from armillary.platform.topology.network import Network, routing_of
from armillary.platform.topology.planes import parts_of
from armillary.platform.topology.routing import Routing


def network_of(platform: Platform) -> Network:
    """Return the graph of a platform: its own, or that of its dimensions, whose links share what a port has.

    A storage that is joined to it is its last node.

    Raises:
        InputError: there is no such place for a storage.
    """
    network, storage = _alone(platform), platform.storage
    if storage is None or not storage.at:
        return network
    try:
        return replace(network, topology=with_storage(network.topology, storage.at, storage.bandwidth))
    except InputError as error:
        raise InputError(f"{platform.source or 'platform'}: {error}") from None


def _alone(platform: Platform) -> Network:
    if platform.topology:
        return platform.topology
    dimensions = [
        replace(d, bandwidth=p.slower / links_per_npu(d.topology, d.size))
        for d, p in zip(platform.dimensions, ports(platform), strict=True)
    ]
    return Network(from_dimensions(dimensions), "dimension-order")


def stages_of(platform: Platform) -> list[Stage]:
    """Return the network of a platform from time 0 on, and from every time at which a link fails or is repaired.

    Raises:
        InputError: its routing does not fit its graph.
    """
    network = network_of(platform)

    def routing(topology: Topology) -> Routing:
        return routing_of(network.routing, topology, network.seed, network.table)

    return [
        Stage(time, over_all := routing(topology), tuple(parts_of(over_all, routing)))
        for time, topology in stages(network.topology, network.failures)
    ]
