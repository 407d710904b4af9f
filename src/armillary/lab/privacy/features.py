"""Features of a trace for an attack that learns: amounts, counts, sizes and their ratios, as logarithms."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from armillary.lab.privacy.facts import OPERATIONS, Circle, Facts, facts_of, work_of
from armillary.trace.columns import NodeType
from armillary.trace.graph import Graph
from armillary.trace.trace import Trace

Floats = NDArray[np.float64]
CIRCLES = 4
"""Groups that have features, innermost first."""
_MARKS = (0.1, 0.5, 0.9, 1.0)


def features(trace: Trace) -> Floats:
    """Return the features of a trace, (features,); the number is the same for every trace.

    Raises:
        InputError: the trace cannot be read.
    """
    facts = facts_of(trace)
    share = facts.ranks / max(trace.n_ranks, 1)
    tables = [_of_graph(graph) for graph in trace.graphs]
    average = np.log1p(np.einsum("g,gf->f", share, np.array(tables)))
    largest = np.log1p(np.max(tables, axis=0))
    groups, totals = _groups(facts)
    shape = [float(np.log2(n)) for n in (trace.n_ranks, facts.stages, facts.ring, len(trace.graphs))]
    amounts = np.concatenate([average[:2], totals])
    # Sizes of a model are ratios of amounts (a · b / c, too). As differences of logarithms they are given to
    # the classifiers, which look at one feature at a time or add features up.
    pairs = [amounts[a] - amounts[b] for a, b in combinations(range(len(amounts)), 2)]
    triples = [
        amounts[a] + amounts[b] - amounts[c]
        for c in range(len(amounts)) for a, b in combinations(range(len(amounts)), 2) if c not in (a, b)
    ]  # fmt: skip
    counts = [period(graph) for graph in trace.graphs]
    return np.concatenate([shape, average, largest, groups, pairs, triples, [max(counts), min(counts)]])


def _of_graph(graph: Graph) -> list[float]:
    """Return amounts and counts of a graph, operations and bytes first; `features` relies on that order."""
    operations, moved = work_of(graph)
    kinds = [graph.types == kind for kind in range(8)]
    size = graph.ints("comm_size")
    messages = kinds[NodeType.COMM_SEND_NODE] | kinds[NodeType.COMM_RECV_NODE]
    found = [float(operations.sum()), float(moved.sum()), float(size[messages].sum())]
    found += [float(kind.sum()) for kind in kinds]
    for values in (operations, moved, size[kinds[NodeType.COMM_COLL_NODE]], size[messages]):
        positive = values[values > 1]
        found += np.quantile(positive, _MARKS).tolist() if len(positive) else [0.0] * len(_MARKS)
        found.append(float(len(np.unique(values))))
    return found


def _groups(facts: Facts) -> tuple[Floats, Floats]:
    """Return the features of `CIRCLES` groups by stride, zeros for missing ones, and the bytes of the first three."""
    several: list[Circle] = [circle for circle in facts.circles if circle.size > 1]
    several = sorted(several, key=lambda circle: (circle.stride, circle.size))[:CIRCLES]
    rows = []
    for circle in several:
        kinds = [circle.sizes.get(kind, 0.0) for kind in OPERATIONS]
        rows.append(
            np.log1p([circle.size, circle.stride, circle.calls, circle.largest, circle.bytes, *kinds])
        )
    rows += [np.zeros(5 + len(OPERATIONS))] * (CIRCLES - len(rows))
    return np.concatenate(rows), np.array([row[4] for row in rows[:3]])


def period(graph: Graph, most: int = 4096) -> float:
    """Return the logarithm of the distance at which the sequence of kernels and collectives repeats best."""
    kinds = graph.types.astype(np.float64)[:most]
    size = np.log1p(np.maximum(graph.ints("num_ops"), graph.ints("comm_size")).astype(np.float64))[:most]
    if len(kinds) < 8:
        return 0.0
    signal = size - size.mean() + 3 * (kinds - kinds.mean())
    # Autocorrelation (Wiener and Khinchin), padded to twice the length so that it does not wrap around. Lag 0 is
    # always the largest, and a motif of one node is none.
    spectrum = np.abs(np.fft.rfft(signal, 2 * len(signal))) ** 2
    correlation = np.fft.irfft(spectrum)[2 : len(signal) // 2]
    return float(np.log1p(2 + int(np.argmax(correlation)))) if len(correlation) else 0.0
