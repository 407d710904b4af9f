"""Chakra execution traces: wire format, columns, builder, feeder, JSON and checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from armillary.trace._check import Diagnostic as Diagnostic
    from armillary.trace._check import check as check
    from armillary.trace._decode import decode as decode
    from armillary.trace._encode import encode as encode
    from armillary.trace._info import info as info
    from armillary.trace.builder import GraphBuilder as GraphBuilder
    from armillary.trace.feeder import Feeder as Feeder
    from armillary.trace.files import load_trace as load_trace
    from armillary.trace.files import read_graph as read_graph
    from armillary.trace.files import write_graph as write_graph
    from armillary.trace.files import write_group_file as write_group_file
    from armillary.trace.files import write_trace as write_trace
    from armillary.trace.graph import Graph as Graph
    from armillary.trace.grid import RankGrid as RankGrid
    from armillary.trace.json_layout import graph_from_json as graph_from_json
    from armillary.trace.json_layout import graph_from_nodes as graph_from_nodes
    from armillary.trace.json_layout import graph_to_json as graph_to_json
    from armillary.trace.node import Node as Node
    from armillary.trace.node import graph_of as graph_of
    from armillary.trace.node import node_at as node_at
    from armillary.trace.node import nodes_of as nodes_of
    from armillary.trace.schema import CollectiveType as CollectiveType
    from armillary.trace.schema import NodeType as NodeType
    from armillary.trace.trace import Trace as Trace

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
    "write_group_file": "files",
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
    # PEP 562: `import armillary.trace` stays free of NumPy until a name is used.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    # The next access finds the name in the module and does not come here.
    globals()[name] = found
    return found
