"""What papers state in numbers about NDP and TIMELY; docs/validation/networks.md has the table."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.engine.transport.offer import offer
from armillary.engine.transport.rdma import Rdma
from armillary.platform.topology import Ecmp, fat_tree, leaf_spine

RATE, PACKET, HEADER = 1.25, 9000, 64
"""10 Gb/s in bytes/ns, and jumbo frames."""
MTU = PACKET - HEADER
pytestmark = pytest.mark.slow


def ndp(window: int, spread: str = "permuted") -> Rdma:
    return Rdma(
        control="ndp",
        mtu=MTU,
        header=HEADER,
        buffer=8 * PACKET,
        window=window * PACKET,
        spread=spread,
        paths=4096,
    )


def test_ndp_fills_a_loaded_network_with_queues_of_eight_packets() -> None:
    """Handley et al. state more than 95 % of capacity; paths that are hashed do not take each once."""
    tree, size = fat_tree(12, RATE, 1000.0), 18_000_000
    rng = np.random.default_rng(1)
    target = rng.permutation(tree.npus)
    while (target == np.arange(tree.npus)).any():
        target = rng.permutation(tree.npus)
    used = {}
    for spread in ("permuted", "packet"):
        found = offer(
            ndp(23, spread), Ecmp(tree), np.arange(tree.npus), target, size, flow=np.arange(tree.npus)
        )
        used[spread] = float((size * PACKET / MTU / RATE / (found.arrived / 1000)).mean())
    assert used["permuted"] == pytest.approx(0.95, abs=0.01)
    assert used["packet"] < used["permuted"] - 0.03


@pytest.mark.parametrize("senders", [8, 100, 431])
def test_ndp_ends_an_incast_near_the_optimum(senders: int) -> None:
    tree, size = fat_tree(12, RATE, 1000.0), 450_000
    rdma = Rdma(control="ndp", mtu=MTU, header=HEADER, buffer=8 * PACKET)
    found = offer(rdma, Ecmp(tree), np.arange(1, senders + 1), 0, size, flow=np.arange(senders))
    optimum = senders * size * PACKET / MTU / RATE
    assert 1 <= found.arrived.max() / 1000 / optimum < 1.04


def test_timely_has_no_fixed_point() -> None:
    """Zhu et al., "ECN or delay", CoNEXT 2016: where the rates of two flows end depends on how they began."""
    star = leaf_spine(1, 1, 3, RATE, 1000.0)
    first = [int(np.flatnonzero(star.tail == npu)[0]) for npu in (0, 1)]
    shares, used = [], []
    for later in (0, 1, 5, 10):
        begin = [0, later * 1_000_000_000]
        found = offer(Rdma(control="timely"), Ecmp(star), [0, 1], 2, int(RATE * 60e6), begin, flow=[0, 1])
        wide = found.use.bin / 1e9
        part = slice(int(25 / wide), int(55 / wide))
        each = [float(found.use.series[link][part].mean()) / (wide * 1e6 * RATE) for link in first]
        shares.append(each[0] / sum(each))
        used.append(sum(each))
    assert min(used) > 0.9 and max(used) <= 1.0
    assert max(shares) - min(shares) > 0.1
