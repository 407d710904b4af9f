"""A page of the graph of a long trace, made up."""

from __future__ import annotations

from pathlib import Path

from armillary.report.trace_graph import write_trace_graph
from armillary.trace import Node, graph_of

LAYERS, CALLS, KERNELS = 700, 10, 4


def write_large_graph(path: Path) -> str:
    """Write a step of 35,701 nodes as PyTorch records it: modules that call operators that call kernels."""
    nodes = [Node(0, "step")]
    for layer in range(LAYERS):
        module = len(nodes)
        nodes.append(Node(module, f"Layer: {layer}", ctrl_deps=[0], data_deps=[module - 1] if layer else []))
        for call in range(CALLS):
            above = len(nodes)
            nodes.append(Node(above, f"aten::linear_{call}", ctrl_deps=[module], data_deps=[above - 1]))
            for kernel in range(KERNELS):
                at = len(nodes)
                nodes.append(Node(at, f"gemm {layer}.{call}.{kernel}", ctrl_deps=[above], data_deps=[at - 1]))
    return write_trace_graph(graph_of(nodes), path)
