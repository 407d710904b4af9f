"""What the collectives and messages of a run move through the ports of each dimension."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.engine.timeline import KINDS, Timeline
from armillary.report.communication import port_bandwidths
from armillary.study.cost.use import crossing

Floats = NDArray[np.float64]
_COLLECTIVE, _SEND = KINDS.index("collective"), KINDS.index("send")


@dataclass(frozen=True)
class Traffic:
    """Communication of a step: p kinds of it, c classes of ranks, d dimensions.

    A kind with volumes v, k chunks and fixed time f takes, where u is ns per byte of each dimension,
    ``f + sum(v u) / k + (1 - 1/k) max(v u)``: chunks follow each other through the dimensions, the first and the
    last alone, and the fullest dimension is never idle between them.

    Attributes:
        volume: Bytes through the busier direction of the port, (p, d).
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
        each = self.volume / bandwidth
        alone = 1 / self.chunks
        found: Floats = self.fixed + alone * each.sum(axis=1) + (1 - alone) * each.max(axis=1, initial=0)
        return found

    def time(self, bandwidth: Floats) -> float:
        """Return ns of communication of the class that has most, one after the other."""
        return float((self.count @ self.times(bandwidth)).max(initial=0))


def traffic_of(timeline: Timeline) -> Traffic:
    """Return the communication of a run; nodes of a class with the same operation, group and size are one kind."""
    dimensions = [int(one["size"]) for one in timeline.info["dimensions"]]
    ports = np.array([min(pair) for pair in port_bandwidths(timeline)])
    kinds: dict[tuple[float, ...], dict[int, int]] = {}
    for cls in range(len(timeline.finish)):
        table, ran = timeline.table(cls), timeline.spans(cls)[0] >= 0
        rows = timeline.phases(cls)
        nodes = np.flatnonzero((table.kind == _COLLECTIVE) & ran)
        for first, count in _alike(table.label[nodes], table.size[nodes]):
            node = int(nodes[first])
            mine = rows[timeline.phase_node[rows] == node]
            dim = timeline.phase_dim[mine]
            where = np.where(dim < 0, len(dimensions) - 1, dim)
            sent = timeline.phase_port_bytes[mine].astype(np.float64)
            volume: Floats = np.bincount(where, sent, len(dimensions)).astype(np.float64)
            chunks = len(np.unique(timeline.phase_chunk[mine])) or 1
            least = float(timeline.node_least[timeline.node_ptr[cls] + node])
            _add(kinds, volume, chunks, max(least - _pipelined(volume / ports, chunks), 0.0), cls, count)
        sends = np.flatnonzero((table.kind == _SEND) & ran)
        for first, count in _alike(table.peer[sends], table.size[sends]):
            peer, volume = int(table.peer[sends[first]]), np.zeros(len(dimensions))
            rank = int(timeline.representative[cls])
            crossed = crossing(rank, peer, dimensions) if peer >= 0 else [len(dimensions) - 1]
            volume[crossed] = table.size[sends[first]]
            _add(kinds, volume, 1, 0.0, cls, count)
    counts = np.zeros((len(timeline.finish), len(kinds)))
    for p, by_class in enumerate(kinds.values()):
        for cls, count in by_class.items():
            counts[cls, p] = count
    table_of = np.array(list(kinds), np.float64).reshape(len(kinds), len(dimensions) + 2)
    return Traffic(table_of[:, :-2], table_of[:, -2], table_of[:, -1], counts)


def _pipelined(each: Floats, chunks: int) -> float:
    return float(each.sum() / chunks + (1 - 1 / chunks) * each.max(initial=0))


def _alike(name: NDArray[np.generic], size: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return (first position, count) of equal pairs."""
    if not len(name):
        return []
    pairs = np.stack([np.unique(name, return_inverse=True)[1], np.unique(size, return_inverse=True)[1]])
    _, first, count = np.unique(pairs, axis=1, return_index=True, return_counts=True)
    return list(zip(first.tolist(), count.tolist(), strict=True))


def _add(
    kinds: dict[tuple[float, ...], dict[int, int]],
    volume: Floats,
    chunks: int,
    fixed: float,
    cls: int,
    count: int,
) -> None:
    found = kinds.setdefault((*volume.tolist(), float(chunks), fixed), {})
    found[cls] = found.get(cls, 0) + count
