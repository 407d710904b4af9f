"""Routing over the widest of the shortest ways, for machines in which slow and fast links join the same nodes."""

from __future__ import annotations

import numpy as np

from armillary.platform.topology.graph import Bools
from armillary.platform.topology.reach import distances
from armillary.platform.topology.routing import Ecmp


class Widest(Ecmp):
    """Of the shortest ways those whose slowest link is fastest; among several one by hash, as `Ecmp`.

    Two GPUs of a host are two links apart through a PCIe switch and through an NVLink switch; `Ecmp` would send half of
    their messages by PCIe (widest-shortest paths: Guérin, Orda & Williams, GLOBECOM 1997).
    """

    def _allowed(self, destination: int) -> Bools:
        nearer = super()._allowed(destination)
        topology = self.topology
        far, rate = distances(topology, destination), topology.bandwidth
        width = np.zeros(topology.nodes)
        width[destination] = np.inf
        links = np.flatnonzero(nearer)
        # A node's width follows from those one link nearer, so that nodes are taken by distance.
        depth = far[topology.tail[links]]
        order = np.argsort(depth, kind="stable")
        links, depth = links[order], depth[order]
        for first, last in zip(
            np.searchsorted(depth, np.unique(depth)),
            np.searchsorted(depth, np.unique(depth), "right"),
            strict=True,
        ):
            each = links[first:last]
            np.maximum.at(width, topology.tail[each], np.minimum(rate[each], width[topology.head[each]]))
        widest: Bools = nearer & (np.minimum(rate, width[topology.head]) == width[topology.tail])
        return widest
