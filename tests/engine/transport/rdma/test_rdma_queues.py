"""Queues of protocol rdma on slow and oversubscribed links, and the share of its link that RCCC grants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.base.jit import load
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.offer import offer
from armillary.engine.transport.rdma import Rdma
from armillary.engine.transport.rdma import layout as rl
from armillary.engine.transport.rdma.queues import Queues, oversubscription
from armillary.engine.transport.switch import layout as pk
from armillary.engine.transport.transport import Ints, first_state
from armillary.platform.network import Dimension
from armillary.platform.topology import (
    Adaptive,
    Ecmp,
    Shortest,
    Topology,
    fat_tree,
    from_dimensions,
    leaf_spine,
)

ROOM, OWNED, LOWEST, HIGHEST, LAST = range(5)


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (fat_tree(4, 12.5, 1000.0), 1.0),
        (fat_tree(4, 12.5, 1000.0, oversubscription=4.0), 4.0),
        (leaf_spine(2, 3, 6, 10.0, 100.0), 2.0),
        (leaf_spine(2, 3, 6, 10.0, 100.0, uplink=40.0), 1.0),
        (from_dimensions((Dimension("x", "Ring", 8, 10.0, 100.0),)), 1.0),
        (from_dimensions((Dimension("x", "Switch", 8, 10.0, 100.0),)), 1.0),
    ],
)
def test_tiers_carry_less_than_npus_send(topology: Any, expected: float) -> None:
    assert oversubscription(topology) == pytest.approx(expected)


def queues(rdma: Rdma, bdp: int, topology: Topology) -> Ints:
    marks = rdma.kmin, rdma.kmax, rdma.pmax
    return Queues(rdma.control, rdma.when_full, rdma.packet, bdp, rdma.buffer, *marks).table(topology)


def test_queues_of_slow_links_drain_in_the_same_time() -> None:
    tree = leaf_spine(2, 2, 2, 12.5, 1000.0, uplink=3.125)
    up = (tree.tail >= tree.npus) & (tree.head >= tree.npus)
    bdp = 80_000
    found = queues(Rdma(control="nscc"), bdp, tree)
    assert (found[up, ROOM] == bdp // 4).all()
    assert (found[up, LOWEST] == bdp // 20).all() and (found[up, HIGHEST] == bdp // 5).all()
    down = tree.head < tree.npus
    assert (found[down, ROOM] == bdp).all() and (found[down, LOWEST] == bdp // 5).all()
    # The link of a receiver that paces marks nothing; depths that a study gives hold for all links.
    paced = queues(Rdma(control="rccc"), bdp, tree)
    assert (paced[down, LOWEST] == -1).all() and (paced[up, LOWEST] == bdp // 20).all()
    given_depths = queues(Rdma(control="rccc", kmin=5000, kmax=9000, buffer=50_000), bdp, tree)
    assert (given_depths[:, LOWEST] == 5000).all() and (given_depths[up, ROOM] == 50_000).all()


class Share:
    """The rule in floating point: periods of packets (how many, marked, trimmed before and at the last link)."""

    def __init__(self, least: float) -> None:
        self.least, self.share, self.level, self.rises = least, 1.0, 0.0, 0

    def period(self, whole: int, marked: int, trimmed: int, last: int) -> None:
        self.level = 0.5 * self.level + 0.5 * (marked / whole if whole else 0.0)
        congested = trimmed > 0 or self.level > 0.3
        if trimmed:
            self.share -= trimmed / (whole + trimmed + last)
        if self.level > 0.3:
            self.share *= 1 - 0.5 * (self.level - 0.3)
        if not congested:
            self.share += 0.01 * (1 if marked else 2**self.rises)
        self.rises = 0 if congested else self.rises + 1
        self.share = min(1.0, max(self.least, self.share))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3), st.integers(0, 3)), max_size=25
    )
)
def test_a_receiver_grants_what_the_tiers_carry(periods: list[tuple[int, int, int, int]]) -> None:
    tree = leaf_spine(2, 1, 4, 12.5, 1000.0)
    routes, stages = Routes(), [Stage(0.0, Shortest(tree))]
    routes.add(stages[0], [0], [5])
    transport = Rdma(control="rccc").on(stages, routes)
    options = transport.options(tree)
    table = lower_network(stages, routes, options, transport.tables(tree)).tolist()
    net: Any = first_state(transport, tree, "interpreted", routes.count)
    kernel: Any = load("armillary.engine.transport.control.rccc_kernel", "interpreted")
    reference, pacer = Share(0.225), 5
    due = int(net[rl.NET.places["PACER"]]) + pacer * rl.PACER.width + rl.PACER.declared["due"].offset
    kernel.adapt(table, net, pacer, 1)
    for whole, marked, trimmed, last in periods:
        marked, now = min(marked, whole), net[due] - 1
        for kind, mark, times in (
            (rl.DATA, 1, marked), (rl.DATA, 0, whole - marked), (rl.HEADER, 0, trimmed), (rl.HEADER, 1, last),
        ):  # fmt: skip
            for _ in range(times):
                kernel.count(table, net, pacer, kind, mark, now)
        reference.period(whole, marked, trimmed, last)
        # A level of almost exactly 0.3 may round to either side.
        if abs(reference.level - 0.3) < 1e-4:
            return
        kernel.adapt(table, net, pacer, now + 1)
        assert kernel.granted(table, net, pacer) / pk.ONE == pytest.approx(0.99 * reference.share, abs=1e-4)


def test_receivers_trim_less_behind_a_thin_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen NPUs per leaf over two uplinks; receivers that pace for their own links only are the reference."""
    tree = leaf_spine(2, 2, 16, 12.5, 1000.0)
    source, size = np.arange(32), 200_000
    found = offer(Rdma(control="rccc"), Ecmp(tree), source, (source + 16) % 32, size)
    monkeypatch.setattr("armillary.engine.transport.rdma.transport.oversubscription", lambda topology: 1.0)
    blind = offer(Rdma(control="rccc"), Ecmp(tree), source, (source + 16) % 32, size)
    assert found.arrived.min() >= 0 and blind.arrived.min() >= 0
    assert found.use.drops.sum() * 3 < blind.use.drops.sum()


def test_a_sender_takes_all_ways_in_turn() -> None:
    """Numbers below the product of choices are the ways of a fat tree, each once."""
    tree = fat_tree(6, 12.5, 1000.0)
    rdma, source, target = Rdma(control="ndp", window=1 << 20), [0], [tree.npus - 1]
    routes, stages = Routes(), [Stage(0.0, Ecmp(tree))]
    routes.add(stages[0], source, target)
    transport = rdma.on(stages, routes)
    table = lower_network(stages, routes, transport.options(tree), transport.tables(tree)).tolist()
    net: Any = first_state(transport, tree, "interpreted", routes.count)
    kernel: Any = load("armillary.engine.transport.switch.hop_kernel", "interpreted")
    assert kernel.count_ways(table, net, int(tree.head[tree.tail == 0][0]), target[0]) == 9
    # Two rounds, and one packet more.
    use = offer(rdma, Ecmp(tree), source, target, 19 * 4096, mode="interpreted").use
    inside = (tree.tail >= tree.npus) & (tree.head >= tree.npus) & (use.size > 10 * 64)
    up = use.size[inside & (tree.head >= tree.node("core 0"))]
    assert len(up) == 9 and sorted(np.round(up / 4158).astype(int)) == [2] * 8 + [3]


def test_routings_by_queue_choose_themselves() -> None:
    """NDP on an adaptive network sprays by queue; to take ways in turn there is refused."""
    tree = fat_tree(4, 12.5, 1000.0)
    found = [
        offer(
            Rdma(control="ndp", spread=spread), Adaptive(tree), [0, 1], [15, 14], 100_000, mode="interpreted"
        )
        for spread in (None, "packet")
    ]
    assert found[0].arrived.tolist() == found[1].arrived.tolist()
    with pytest.raises(InputError, match="spread is 'permuted', expected packet with a routing"):
        offer(Rdma(control="ndp", spread="permuted"), Adaptive(tree), [0], [15], 1000)
