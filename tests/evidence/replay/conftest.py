"""Traces to replay."""

from __future__ import annotations

import pytest

from armillary.convert import Groups
from armillary.trace import CollectiveType, Graph, GraphBuilder, Trace

PAIRS = ((0, 1), (2, 3))


def step(rank: int) -> Graph:
    """Return every collective in the world or in pairs of ranks, and a message in each pair."""
    builder, groups = GraphBuilder(rank=rank), Groups(4)
    mine = [groups.number(pair) for pair in PAIRS][rank // 2]
    groups.metadata(builder)
    forward = builder.compute("forward", duration_micros=2000, flops=10**7, bytes="1 MiB")
    builder.all_reduce("gradients", "256 KiB", after=[forward])
    last = builder.compute("backward", duration_micros=3000, flops=10**7, bytes="1 MiB", after=[forward])
    for kind in CollectiveType:
        size = 0 if kind == CollectiveType.BARRIER else "64 KiB"
        last = builder.collective(kind.name, kind, size, after=[last], group=mine if kind % 2 else None)
    if rank % 2 == 0:
        builder.send(rank + 1, "128 KiB", tag=2**31 - 1, after=[last])
        builder.recv(rank + 1, 1001, after=[last])
    else:
        builder.recv(rank - 1, "128 KiB", tag=2**31 - 1, after=[last])
        builder.send(rank - 1, 1001, after=[last])
    return builder.graph()


@pytest.fixture
def trace() -> Trace:
    """Four ranks."""
    return Trace.from_ranks([step(rank) for rank in range(4)])
