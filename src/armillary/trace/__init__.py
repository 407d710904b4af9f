"""Chakra execution traces: wire format, columns, builder, feeder, JSON and checks."""

from __future__ import annotations

from armillary.trace.builder import GraphBuilder
from armillary.trace.check import Diagnostic, check
from armillary.trace.decode import decode
from armillary.trace.encode import encode
from armillary.trace.feeder import Feeder
from armillary.trace.files import load_trace, read_graph, write_graph, write_group_file, write_trace
from armillary.trace.graph import Graph
from armillary.trace.grid import RankGrid
from armillary.trace.info import info
from armillary.trace.json_layout import graph_from_json, graph_from_nodes, graph_to_json
from armillary.trace.node import Node, graph_of, node_at, nodes_of
from armillary.trace.schema import CollectiveType, NodeType
from armillary.trace.trace import Trace

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
