"""Chakra execution traces: wire format, columns, builder, feeder, JSON and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.base import lazy

if TYPE_CHECKING:
    from armillary.trace._check import check
    from armillary.trace._decode import decode
    from armillary.trace._encode import encode
    from armillary.trace._info import info
    from armillary.trace.builder import GraphBuilder
    from armillary.trace.columns import CollectiveType, NodeType
    from armillary.trace.feeder import Feeder
    from armillary.trace.files import load_trace, read_graph
    from armillary.trace.graph import Graph
    from armillary.trace.grid import RankGrid
    from armillary.trace.json_layout import graph_from_json, graph_from_nodes, graph_to_json
    from armillary.trace.node import Node, graph_of, node_at, nodes_of
    from armillary.trace.structure import Diagnostic
    from armillary.trace.trace import Trace
    from armillary.trace.write import write_graph, write_group_file, write_trace

__all__ = [
    "CollectiveType",
    "Diagnostic",
    "Feeder",
    "Graph",
    "GraphBuilder",
    "Node",
    "NodeType",
    "RankGrid",
    "Trace",
    "check",
    "decode",
    "encode",
    "graph_from_json",
    "graph_from_nodes",
    "graph_of",
    "graph_to_json",
    "info",
    "load_trace",
    "node_at",
    "nodes_of",
    "read_graph",
    "write_graph",
    "write_group_file",
    "write_trace",
]
__getattr__ = lazy(
    __name__,
    {
        "._check": ("check",),
        "._decode": ("decode",),
        "._encode": ("encode",),
        "._info": ("info",),
        ".builder": ("GraphBuilder",),
        ".feeder": ("Feeder",),
        ".files": ("load_trace", "read_graph"),
        ".graph": ("Graph",),
        ".grid": ("RankGrid",),
        ".json_layout": ("graph_from_json", "graph_from_nodes", "graph_to_json"),
        ".columns": ("CollectiveType", "NodeType"),
        ".node": ("Node", "graph_of", "node_at", "nodes_of"),
        ".structure": ("Diagnostic",),
        ".trace": ("Trace",),
        ".write": ("write_graph", "write_group_file", "write_trace"),
    },
)
