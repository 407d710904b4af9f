"""The levels of NPUs that collectives see in a graph, as dimensions."""

from __future__ import annotations

import math

import numpy as np

from armillary.base.errors import InputError
from armillary.platform.network import Dimension, Port
from armillary.platform.topology.graph import Topology


def logical_dimensions(topology: Topology, hierarchy: tuple[int, ...] = ()) -> tuple[Dimension, ...]:
    """Return the levels at which collectives run, innermost first.

    Those of the topology if it was built from dimensions; else hosts and the NPUs in them where it has hosts;
    else one that all NPUs share. A level of a graph is like a Switch whose ports have all bandwidth of an NPU and
    the latency of the fastest link, so that what a level allows is never less than what the graph does.

    Args:
        topology: The graph.
        hierarchy: Sizes of the levels instead, innermost first.

    Raises:
        InputError: the sizes do not multiply to the number of NPUs.
    """
    if hierarchy and math.prod(hierarchy) != topology.npus:
        raise InputError(
            f"the levels {list(hierarchy)} make {math.prod(hierarchy)} NPUs; expected sizes that multiply to "
            f"{topology.npus}"
        )
    # Sizes that equal the built shape describe the same levels: keep their topologies and not Switches.
    if topology.dimensions and hierarchy in ((), topology.shape):
        return topology.dimensions
    sizes: tuple[int, ...] = hierarchy or (topology.npus,)
    names = [f"level {i}" for i in range(len(sizes))]
    # Hosts of one NPU, or one host for all, would be a level of size 1.
    if not hierarchy and 1 < topology.host < topology.npus:
        sizes, names = (topology.host, topology.npus // topology.host), ["host", "hosts"]
    port = _port(topology)
    # The fastest link: levels are an optimistic view of the graph (see above).
    latency = float(topology.latency.min()) if topology.links else 0.0
    # Two hops of a Switch are one link of a graph that joins NPUs directly.
    direct = bool((topology.head[: topology.first_link[topology.npus]] < topology.npus).any())
    return tuple(
        Dimension(name, "Switch", size, min(port.out, port.into), latency / (2 if direct else 1), port)
        for name, size in zip(names, sizes, strict=True)
    )


def _port(topology: Topology) -> Port:
    """Return what the best connected NPU can send and receive, over all its links."""
    # Summed over links: an NPU with four rails can send on all of them at a time.
    out = np.bincount(topology.tail, topology.bandwidth, topology.nodes)[: topology.npus]
    into = np.bincount(topology.head, topology.bandwidth, topology.nodes)[: topology.npus]
    return Port(float(out.max()), float(into.max()))
