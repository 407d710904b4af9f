"""Chakra execution traces: wire format, columns, builder, feeder, JSON and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.trace._check import Diagnostic, check
from armillary.trace._info import info
from armillary.trace.builder import GraphBuilder
from armillary.trace.feeder import Feeder
from armillary.trace.files import load_trace, read_graph, write_graph, write_group_file, write_trace
from armillary.trace.graph import Graph
from armillary.trace.grid import RankGrid
from armillary.trace.json_layout import graph_from_json, graph_from_nodes, graph_to_json
from armillary.trace.node import Node, graph_of, node_at, nodes_of
from armillary.trace.schema import CollectiveType, NodeType
from armillary.trace.trace import Trace

if TYPE_CHECKING:
    from armillary.trace._decode import decode as decode
    from armillary.trace._encode import encode as encode

_HOME = {
    "check": "_check",
    "CollectiveType": "schema",
    "decode": "_decode",
    "Diagnostic": "_check",
    "encode": "_encode",
    "Feeder": "feeder",
    "Graph": "graph",
    "graph_from_json": "json_layout",
    "graph_from_nodes": "json_layout",
    "graph_of": "node",
    "graph_to_json": "json_layout",
    "GraphBuilder": "builder",
    "info": "_info",
    "load_trace": "files",
    "Node": "node",
    "node_at": "node",
    "nodes_of": "node",
    "NodeType": "schema",
    "RankGrid": "grid",
    "read_graph": "files",
    "Trace": "trace",
    "write_graph": "files",
    "write_group_file": "group_file",
    "write_trace": "files",
}
"""Public name -> its module, which is imported when the name is first used."""
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


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found
