"""Networks as graphs of NPUs and switches: builders, routing, failures, files and pictures."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.platform.files.native import load_network, panels_of
    from armillary.platform.files.topology import edges, from_networkx, read_graph, to_networkx
    from armillary.platform.files.topology_schema import read_topology
    from armillary.platform.topology.dimension_order import DimensionOrder
    from armillary.platform.topology.failures import Failure, degraded, stages
    from armillary.platform.topology.graph import UNBOUNDED, Topology
    from armillary.platform.topology.grids import from_dimensions, hypercube, optical_torus, wafer_mesh
    from armillary.platform.topology.network import Network
    from armillary.platform.topology.reach import check_connected, distances
    from armillary.platform.topology.routing import Adaptive, Ecmp, Paths, Rail, Routing, Shortest, Static
    from armillary.platform.topology.trees import dragonfly, fat_tree, leaf_spine, rail_optimised

# `platform` alone is light: importing graphs pulls in NumPy and the readers of files.
_MODULES = {
    "topology.dimension_order": ("DimensionOrder",),
    "topology.failures": ("Failure", "degraded", "stages"),
    "topology.graph": ("UNBOUNDED", "Topology"),
    "topology.grids": ("from_dimensions", "hypercube", "optical_torus", "wafer_mesh"),
    "topology.network": ("Network",),
    "topology.reach": ("check_connected", "distances"),
    "topology.routing": ("Adaptive", "Ecmp", "Paths", "Rail", "Routing", "Shortest", "Static"),
    "topology.trees": ("dragonfly", "fat_tree", "leaf_spine", "rail_optimised"),
    "files.native": ("load_network", "panels_of"),
    "files.topology": ("edges", "from_networkx", "read_graph", "to_networkx"),
    "files.topology_schema": ("read_topology",),
}

__all__ = [
    "UNBOUNDED",
    "Adaptive",
    "DimensionOrder",
    "Ecmp",
    "Failure",
    "Network",
    "Paths",
    "Rail",
    "Routing",
    "Shortest",
    "Static",
    "Topology",
    "check_connected",
    "degraded",
    "distances",
    "dragonfly",
    "edges",
    "fat_tree",
    "from_dimensions",
    "from_networkx",
    "hypercube",
    "leaf_spine",
    "load_network",
    "optical_torus",
    "panels_of",
    "rail_optimised",
    "read_graph",
    "read_topology",
    "stages",
    "to_networkx",
    "wafer_mesh",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that importing the package stays cheap."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"armillary.platform.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
