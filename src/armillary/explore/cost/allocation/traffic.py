"""What the collectives and messages of a run move through the ports of each dimension."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.timeline import KINDS, Timeline
from armillary.platform.model import Platform
from armillary.platform.network import Port, links_per_npu
from armillary.trace import Trace

Floats = NDArray[np.float64]
# So far apart that the slow dimension alone decides the time.
_SLOW, _FAST = 1.0, 1e6
"""Bytes per ns of the dimension under test, and of all others."""
_COLLECTIVE, _SEND = KINDS.index("collective"), KINDS.index("send")


@dataclass(frozen=True)
class Traffic:
    """Communication of a step: p kinds of it, c classes of ranks, d dimensions.

    A kind with volumes v, k chunks and fixed time f takes, where u is ns per byte of each dimension,
    ``f + sum(v u) / k + (1 - 1/k) max(v u)``: chunks follow each other through the dimensions, the first and the
    last alone, and the fullest dimension is never idle between them.

    Attributes:
        volume: Bytes through whatever is fullest, as if it had all of the port, (p, d).
        chunks: (p,).
        fixed: ns that no bandwidth shortens, (p,).
        count: How often a rank of each class does it, (c, p).
    """

    volume: Floats
    chunks: Floats
    fixed: Floats
    count: Floats

    def times(self, bandwidth: Floats) -> Floats:
        """Return ns of each kind, alone on the network, where dimensions have so many bytes per ns; (p,)."""
        # The first and the last chunk pass every dimension alone; the others follow in the fullest.
        each = self.volume / bandwidth
        alone = 1 / self.chunks
        # `initial` serves machines without dimensions.
        found: Floats = self.fixed + alone * each.sum(axis=1) + (1 - alone) * each.max(axis=1, initial=0)
        return found

    def time(self, bandwidth: Floats) -> float:
        """Return ns of communication of the class that has most, one after the other."""
        # Ranks wait for the busiest class.
        return float((self.count @ self.times(bandwidth)).max(initial=0))


def traffic_of(trace: Trace, platform: Platform, timeline: Timeline) -> Traffic:
    """Return the communication of a run; nodes of a class with the same operation, group and size are one kind.

    Volumes come from lowering the trace with one dimension slow and all others fast: the least time of a node is then
    its bytes through the slow one. So they count links that a sub-group leaves idle: four members of a FullyConnected
    eight use three of seven links of their ports.
    """
    dimensions = len(platform.dimensions)
    # All fast: what is left is latency.
    base = _least(trace, platform, np.full(dimensions, _FAST), timeline)
    slow = [
        _least(trace, platform, np.where(np.arange(dimensions) == d, _SLOW, _FAST), timeline)
        for d in range(dimensions)
    ]
    # One byte more through the slow dimension takes this much longer.
    per_byte = 1 / _SLOW - 1 / _FAST
    # Kinds with the same volumes, chunks and fixed time are one; class -> how often.
    kinds: dict[tuple[float, ...], dict[int, int]] = {}
    for cls in range(len(timeline.finish)):
        table, ran = timeline.table(cls), timeline.spans(cls)[0] >= 0
        rows = timeline.phases(cls)
        for kind, names in ((_COLLECTIVE, table.label), (_SEND, table.peer)):
            nodes = np.flatnonzero((table.kind == kind) & ran)
            for first, count in _alike(names[nodes], table.size[nodes]):
                node = int(nodes[first])
                # Differences of least times, never negative but for rounding.
                volume = np.array([max(each[cls][node] - base[cls][node], 0) / per_byte for each in slow])
                chunk = timeline.phase_chunk[rows[timeline.phase_node[rows] == node]]
                # A message has no phases and is one chunk.
                chunks = len(np.unique(chunk)) or 1
                moving = volume / _FAST
                # What the fast run itself spent on bytes is not fixed.
                fixed = float(base[cls][node]) - max(moving.sum() / chunks, moving.max(initial=0))
                found = kinds.setdefault((*volume.tolist(), float(chunks), max(fixed, 0.0)), {})
                found[cls] = found.get(cls, 0) + count
    counts = np.zeros((len(timeline.finish), len(kinds)))
    for p, by_class in enumerate(kinds.values()):
        for cls, count in by_class.items():
            counts[cls, p] = count
    table_of = np.array(list(kinds), np.float64).reshape(len(kinds), dimensions + 2)
    return Traffic(table_of[:, :-2], table_of[:, -2], table_of[:, -1], counts)


def _least(
    trace: Trace, platform: Platform, bandwidth: Floats, timeline: Timeline
) -> list[NDArray[np.int64]]:
    """Return the least ticks of the nodes of each class of the timeline where dimensions have these bandwidths."""
    # Imported here, so that prices do not load the engine.
    from armillary.engine.physical.lower import lower
    from armillary.engine.physical.program import least_ticks

    program = lower(trace, with_bandwidths(platform, bandwidth), fold_ranks=True)
    ends = np.cumsum([view.nodes.graph.n_nodes for view in program.views])
    each = np.split(least_ticks(program.tables, program.views), ends[:-1])
    # The lowered program may number its classes in another way than the timeline: go by a rank of each.
    return [each[int(program.classes[rank])] for rank in timeline.representative.tolist()]


def with_bandwidths(platform: Platform, bandwidth: Floats) -> Platform:
    """Return a machine whose NPUs have so many bytes per ns in each dimension, in both directions."""
    return replace(
        platform,
        dimensions=tuple(
            replace(
                dimension,
                # `bandwidth` is that of one link, `port` that of all.
                bandwidth=rate / links_per_npu(dimension.topology, dimension.size),
                port=Port(rate, rate),
            )
            for dimension, rate in zip(platform.dimensions, bandwidth.tolist(), strict=True)
        ),
    )


def _alike(name: NDArray[np.generic], size: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return (first position, count) of equal pairs."""
    if not len(name):
        return []
    # Positions in sorted uniques make one integer array of labels and sizes.
    pairs = np.stack([np.unique(name, return_inverse=True)[1], np.unique(size, return_inverse=True)[1]])
    _, first, count = np.unique(pairs, axis=1, return_index=True, return_counts=True)
    return list(zip(first.tolist(), count.tolist(), strict=True))
