"""15 to 1 over a fat tree: the last link works from the first byte that comes to the last, whoever sent it.

Bytes of far NPUs queue before that link while those of near ones cross it, so only the shortest way adds latency.
`congestion` says so to the tick, and `packet` without headers agrees but for a packet per switch. In `flow` all
messages end together, and the last one then has the latency of the longest way to go: that much later it may end.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from armillary import simulate
from armillary.platform.files.native import load_platform
from armillary.platform.model import Packets, Platform
from armillary.trace import GraphBuilder, Trace

LATENCY, RATE = 500, 50


@pytest.fixture
def tree(tmp_path) -> Platform:  # type: ignore[no-untyped-def]
    path = tmp_path / "tree.yaml"
    path.write_text("platform: {topology: {kind: fat-tree, k: 4, bandwidth: 50 GB/s, latency: 500 ns}}\n")
    return load_platform(path)


def incast(size: int) -> Trace:
    builders = [GraphBuilder(rank=rank) for rank in range(16)]
    for rank in range(1, 16):
        builders[rank].send(0, size)
        builders[0].recv(rank, size)
    return Trace.from_ranks([builder.graph() for builder in builders])


@pytest.mark.parametrize("size", [50_000, 1_000_000])
def test_the_last_link_is_never_idle(tree: Platform, size: int) -> None:
    busy, shortest, longest = 15 * size // RATE, 2 * LATENCY, 6 * LATENCY
    assert simulate(incast(size), tree, network_model="congestion").total_ticks == busy + shortest
    assert busy + shortest <= simulate(incast(size), tree, network_model="flow").total_ticks <= busy + longest


def test_packets_agree_with_congestion(tree: Platform) -> None:
    small = replace(tree, packets=Packets("lossless", {"mtu": 250, "header": 0}))
    ticks = simulate(incast(50_000), small, network_model="packet").total_ticks
    assert 16_000 <= ticks <= 16_000 + 4 * 250 / RATE
