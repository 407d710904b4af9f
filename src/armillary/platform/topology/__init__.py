"""Networks as graphs of NPUs and switches: builders, routing, failures, files and pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.platform.files.infragraph import InfraGraph, read_infragraph
    from armillary.platform.files.network_convert import Written, convert_network
    from armillary.platform.files.network_graph import load_network, panels_of
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
    from armillary.platform.topology.widest import Widest

__all__ = [
    "UNBOUNDED",
    "Adaptive",
    "DimensionOrder",
    "Ecmp",
    "Failure",
    "InfraGraph",
    "Network",
    "Paths",
    "Rail",
    "Routing",
    "Shortest",
    "Static",
    "Topology",
    "Widest",
    "Written",
    "check_connected",
    "convert_network",
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
    "read_infragraph",
    "read_topology",
    "stages",
    "to_networkx",
    "wafer_mesh",
]
__getattr__ = lazy(
    __name__,
    {
        "..files.infragraph": ("InfraGraph", "read_infragraph"),
        "..files.network_convert": ("Written", "convert_network"),
        "..files.network_graph": ("load_network", "panels_of"),
        "..files.topology": ("edges", "from_networkx", "read_graph", "to_networkx"),
        "..files.topology_schema": ("read_topology",),
        ".dimension_order": ("DimensionOrder",),
        ".failures": ("Failure", "degraded", "stages"),
        ".graph": ("UNBOUNDED", "Topology"),
        ".grids": ("from_dimensions", "hypercube", "optical_torus", "wafer_mesh"),
        ".network": ("Network",),
        ".reach": ("check_connected", "distances"),
        ".routing": ("Adaptive", "Ecmp", "Paths", "Rail", "Routing", "Shortest", "Static"),
        ".trees": ("dragonfly", "fat_tree", "leaf_spine", "rail_optimised"),
        ".widest": ("Widest",),
    },
)
