"""Say what of a machine a network model makes no use of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.platform.model import Platform

PACKETS = ("packet", "ns3")


def ignored(platform: Platform, network_model: str) -> Iterator[str]:
    """Yield a warning for everything that was given and has no effect in a network model."""
    source = f"{platform.source or 'platform'}: platform"
    if platform.packets.given and network_model not in PACKETS:
        yield f"{source}.packets has no effect in network model {network_model}; packet and ns3 use it"
    asked = {name for names in platform.physical.algorithm.values() for name in names} & {"in-switch", "auto"}
    if network_model == "analytical" and asked:
        for d in platform.dimensions:
            if d.in_network and d.in_network.operations:
                yield (
                    f"{source}.network: {d.name}: in_network.operations has no effect in network model analytical; "
                    "those that move messages use it"
                )
    if platform.topology is None or network_model == "analytical":
        return
    from armillary.platform.topology.graph import UNBOUNDED

    if network_model != "packet" and (platform.topology.topology.buffer < UNBOUNDED).any():
        yield f"{source}.topology: buffers have no end in network model {network_model}; packet knows them"
    if platform.topology.routing == "adaptive":
        yield f"{source}.topology.routing: 'adaptive' takes the ways of an empty network, as ecmp does"
