"""What a machine takes for captured kernels, and for which of them nobody knows a price."""

from __future__ import annotations

from collections import Counter

import numpy as np

from armillary.capture.nodes import UNKNOWN
from armillary.compute.times import KernelTimes
from armillary.platform.model import Platform
from armillary.trace import Trace


def unpriced(trace: Trace, platform: Platform) -> dict[str, tuple[int, float]]:
    """Return the operators without a rule, most time first: how often a step runs them, and their share of its kernels.

    Both count the ranks of all classes once. Their time is that of their bytes, each tensor read or written once.
    """
    graphs = [graph for graph in trace.graphs if graph.has(UNKNOWN).any()]
    if not graphs:
        return {}
    times = KernelTimes(platform, trace.graphs)
    taken: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    total = 0.0
    for graph in trace.graphs:
        nodes, ns = times.of(graph)
        total += float(np.sum(ns))
        names, unknown = graph.names(), graph.has(UNKNOWN)
        for node, took in zip(nodes.tolist(), ns.tolist(), strict=True):
            if unknown[node]:
                taken[names[node]] += took
                runs[names[node]] += 1
    return {name: (runs[name], took / total) for name, took in taken.most_common()}
