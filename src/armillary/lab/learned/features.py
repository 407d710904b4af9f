"""Traces as feature vectors: kinds of nodes, their dependencies, sizes, and communication."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.trace import CollectiveType, Graph, NodeType, Trace
from armillary.trace.graph import duration_ns
from armillary.trace.structure import earliest

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
PEAK, BANDWIDTH = 989e3, 3350.0
"""FLOP/ns and bytes/ns for the roofline of kernels without a duration (an H100 in bf16)."""
_KINDS = (NodeType.COMP_NODE, NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
_CALLS = (
    CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER, CollectiveType.ALL_TO_ALL,
)  # fmt: skip
_PARTS = (0.1, 0.5, 0.9, 1.0)


@dataclass(frozen=True, eq=False)
class Values:
    """Values by which two traces are compared, over all nodes of all classes.

    Attributes:
        degree: Number of dependencies of each node.
        children: Number of nodes that wait for each node.
        duration: Duration of each kernel, ns: recorded, or by a roofline.
        size: Bytes of each node that has any.
        path: Length of the longest chain of each class, ns.
        depth: Nodes of the longest chain of each class.
    """

    degree: Ints
    children: Ints
    duration: Floats
    size: Floats
    path: Floats
    depth: Floats


def values_of(trace: Trace) -> Values:
    """Return the values of a trace, each distinct graph counted once."""
    parts = [_values(graph) for graph in trace.graphs]
    return Values(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Values.__annotations__)
    )


def _values(graph: Graph) -> Values:
    ptr, parent = graph.parents()
    n = graph.n_nodes
    kernels = graph.types == NodeType.COMP_NODE
    recorded = duration_ns(graph)
    roofline = np.maximum(graph.ints("num_ops") / PEAK, graph.ints("tensor_size") / BANDWIDTH)
    # Communication without a recorded time counts as 0: how long it takes depends on the machine.
    time = np.where(recorded > 0, recorded, np.where(kernels, roofline, 0.0))
    size = (graph.ints("tensor_size") + graph.ints("comm_size")).astype(np.float64)
    if n:
        _, levels, last = earliest(graph, np.rint(time).astype(np.int64))
        depth, path = float(np.max(levels)), float(last)
    else:
        depth, path = 0.0, 0.0
    children = np.bincount(parent, minlength=n).astype(np.int64)
    return Values(np.diff(ptr), children, time[kernels], size[size > 0], np.array([path]), np.array([depth]))


def features_of(trace: Trace) -> Floats:
    """Return the feature vector of a trace, (features,); amounts are logarithms."""
    values = values_of(trace)
    types = np.concatenate([graph.types for graph in trace.graphs])
    ops, moved, sent, calls = (
        np.concatenate([graph.ints(name, default) for graph in trace.graphs])
        for name, default in (("num_ops", 0), ("tensor_size", 0), ("comm_size", 0), ("comm_type", -1))
    )
    collective = types == NodeType.COMM_COLL_NODE
    n = max(1, len(types))
    found = [_log(n), _log(len(trace.graphs)), _log(trace.n_ranks)]
    found += [float((types == kind).sum()) / n for kind in _KINDS]
    found += [float((collective & (calls == kind)).sum()) / n for kind in _CALLS]
    found += [
        float(values.degree.mean()) if len(values.degree) else 0.0,
        _log(values.degree.max(initial=0)), _log(values.children.max(initial=0)), _log(values.depth.max(initial=0)),
        _log(values.path.max(initial=0)), _log(ops.sum()), _log(moved.sum()), _log(sent.sum()),
    ]  # fmt: skip
    for amounts in (ops[ops > 1], moved[moved > 0], sent[sent > 0]):
        found += (
            [_log(each) for each in np.quantile(amounts, _PARTS)] if len(amounts) else [0.0] * len(_PARTS)
        )
    return np.array(found)


def _log(value: float | np.generic) -> float:
    return float(np.log1p(float(value)))
