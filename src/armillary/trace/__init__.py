"""Chakra execution traces: wire format, columns, builder, feeder, JSON and checks."""

from __future__ import annotations

from armillary.trace.builder import GraphBuilder
from armillary.trace.decode import decode
from armillary.trace.encode import encode
from armillary.trace.files import load_trace, read_graph, write_graph, write_trace
from armillary.trace.graph import Graph
from armillary.trace.node import Node, graph_of, node_at, nodes_of
from armillary.trace.schema import CollectiveType, NodeType
from armillary.trace.trace import Trace

__all__ = [
    "CollectiveType",
    "Graph",
    "GraphBuilder",
    "Node",
    "NodeType",
    "Trace",
    "decode",
    "encode",
    "graph_of",
    "load_trace",
    "node_at",
    "nodes_of",
    "read_graph",
    "write_graph",
    "write_trace",
]
