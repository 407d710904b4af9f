"""Ways chosen at every node: tick for tick an obvious reference; what they reach against what the literature says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import simulate
from armillary.base.errors import InputError, StuckError
from armillary.base.jit import Mode
from armillary.engine.transport.control.dcqcn import Dcqcn
from armillary.engine.transport.offer import Offered, offer
from armillary.engine.transport.packet import Packet
from armillary.engine.transport.switch.hops import Ways
from armillary.platform.files.native import load_platform
from armillary.platform.network import Dimension
from armillary.platform.topology import Adaptive, Ecmp, dragonfly, fat_tree, from_dimensions, leaf_spine
from armillary.platform.topology.detours import Minimal, Ugal, Valiant
from armillary.platform.topology.dimension_order import DimensionOrder
from armillary.platform.topology.routing import Routing, Shortest
from armillary.trace import GraphBuilder, Trace

from .way_reference import WayReference

GRAPHS = (
    leaf_spine(3, 3, 2, 1.0, 5.0, uplink=0.7),
    dragonfly(1, 2, 1, 1.0, 3.0, global_latency=9.0),
    dragonfly(1, 2, 2, 1.0, 3.0, groups=3),
    from_dimensions((Dimension("x", "Ring", 3, 1.0, 2.0), Dimension("y", "Ring", 4, 1.0, 2.0))),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Packet, Shortest, list[tuple[int, int, int, int, int]]]:
    graph = draw(st.sampled_from(GRAPHS))
    kind = draw(st.sampled_from([Ecmp, Adaptive, Minimal, Valiant, Ugal]))
    routing = kind(graph, draw(st.integers(0, 3)))
    spreads = ["packet", "flowlet"] + (["message"] if kind in (Ecmp, Valiant) else [])
    spreads += ["permuted"] if kind is Ecmp else []
    ways = Ways(
        draw(st.sampled_from(spreads)), draw(st.sampled_from([2, 3])), draw(st.sampled_from([1.0, 300.0])),
        draw(st.sampled_from([0, 500])),
    )  # fmt: skip
    marks: dict[str, Any] = {}
    if draw(st.booleans()):
        marks = {"kmin": 50, "kmax": 200, "pmax": 0.5, "dcqcn": Dcqcn(timer=500, alpha_timer=500, notify=200)}
    npu = st.integers(0, graph.npus - 1)
    begin, size = st.integers(0, 2).map(lambda n: n * 5000), st.integers(0, 1500)
    messages = draw(st.lists(st.tuples(begin, npu, npu, size, st.integers(0, 1)), min_size=1, max_size=10))
    return Packet(mtu=100, header=6, ways=ways, **marks), routing, messages


def moved(options: Packet, routing: Routing, messages: list[Any], mode: Mode) -> Offered:
    begin, source, target, size, key = np.array(messages).T
    return offer(options, routing, source, target, size, begin, key=key, mode=mode)


@settings(max_examples=25, deadline=None)
@given(cases())
def test_the_reference_agrees(case: tuple[Packet, Shortest, list[Any]]) -> None:
    WayReference(*case).check(moved(*case, "interpreted"))


@settings(max_examples=25, deadline=None)
@given(cases())
def test_the_reference_agrees_with_compiled(case: tuple[Packet, Shortest, list[Any]]) -> None:
    WayReference(*case).check(moved(*case, "compiled"))


def permuted(npus: int, seed: int) -> Any:
    """Return targets, none of them the source."""
    rng = np.random.default_rng(seed)
    while True:
        target = rng.permutation(npus)
        if (target != np.arange(npus)).all():
            return target


@pytest.mark.parametrize(
    ("routing", "spread", "draws", "most"),
    [(Ecmp, "permuted", 10, 1.08), (Adaptive, "packet", 10, 1.2), (Ecmp, "packet", 3, 1.2)],
)
def test_sprayed_permutations_take_little_longer_than_one_message(
    routing: type[Ecmp], spread: str, draws: int, most: float
) -> None:
    tree = fat_tree(8, 50.0, 500.0)
    alone = offer(Packet(), routing(tree), [0], [127], 1 << 20, mode="compiled").arrived.max()
    everyone = np.arange(tree.npus)
    for seed in range(draws):
        target = permuted(tree.npus, seed)
        sprayed = offer(Packet(ways=Ways(spread)), routing(tree), everyone, target, 1 << 20, mode="compiled")
        assert sprayed.arrived.max() < most * alone
        if seed < 3:
            hashed = offer(Packet(), Ecmp(tree), everyone, target, 1 << 20, mode="compiled")
            assert hashed.arrived.max() > 2.5 * alone


def throughput(routing: Minimal, source: Any, target: Any, size: int) -> float:
    """Return what arrives in the middle of a run, as share of what NPUs can send."""
    graph = routing.topology
    got = offer(Packet(mtu=2048, header=0), routing, source, target, size, mode="compiled")
    assert got.arrived.min() > 0
    into = np.flatnonzero(graph.head < graph.npus)
    bins = slice(int(0.2 * got.arrived.max() / got.use.bin), int(0.5 * got.arrived.max() / got.use.bin))
    series = got.use.series[into][:, bins]
    return float(series.sum() / (series.shape[1] * got.use.bin / 1000 * 50.0 * graph.npus))


def test_routings_of_a_dragonfly() -> None:
    """Kim et al., ISCA 2008, figure 8: what saturates when, with p = h = 2 and a = 4."""
    graph = dragonfly(2, 4, 2, 50.0, 100.0)
    npus, group = graph.npus, 8
    every = np.repeat(np.arange(npus), npus - 1)
    uniform = every, np.concatenate([np.delete(np.arange(npus), i) for i in range(npus)]), 1 << 15
    source = np.repeat(np.arange(npus), group)
    target = ((source // group + 1) * group + np.tile(np.arange(group), npus)) % npus
    adversarial = source, target, (1 << 15) * (npus - 1) // group
    minimal, valiant, ugal = Minimal(graph), Valiant(graph), Ugal(graph)
    assert throughput(minimal, *uniform) > 0.95
    assert throughput(ugal, *uniform) > 0.95
    assert 0.4 < throughput(valiant, *uniform) < 0.55
    # All of a group share one global link: 1 / (a h).
    assert throughput(minimal, *adversarial) == pytest.approx(1 / 8, rel=0.15)
    assert 0.4 < throughput(ugal, *adversarial) < 0.55
    end = {
        each: offer(Packet(mtu=2048, header=0), each, *adversarial, mode="compiled").arrived.max()
        for each in (minimal, valiant, ugal)
    }
    assert end[ugal] < 1.05 * end[valiant] < 0.5 * end[minimal]


@pytest.mark.slow
def test_routings_of_a_larger_dragonfly() -> None:
    """The same with p = h = 3 and a = 6, over the whole exchange: 1 / (a h) is 1/18."""
    graph = dragonfly(3, 6, 3, 50.0, 100.0)
    npus, group, peers, size = graph.npus, 18, 71, 1 << 15
    rng = np.random.default_rng(0)
    source = np.repeat(np.arange(npus), peers)
    apart = np.concatenate([1 + rng.permutation(npus - 1)[:peers] for _ in range(npus)])
    uniform = source, (source + apart) % npus, size
    source = np.repeat(np.arange(npus), group)
    target = ((source // group + 1) * group + np.tile(np.arange(group), npus)) % npus
    adversarial = source, target, size * peers // group

    def share(routing: Minimal, messages: tuple[Any, Any, int]) -> float:
        end = offer(Packet(mtu=2048, header=0), routing, *messages, mode="compiled").arrived.max()
        return len(messages[0]) * messages[2] / (float(end) / 1000 * 50.0 * npus)

    minimal, valiant, ugal = Minimal(graph), Valiant(graph), Ugal(graph)
    assert share(minimal, adversarial) == pytest.approx(1 / 18, rel=0.05)
    assert 0.4 < share(valiant, adversarial) < 0.5 and 0.4 < share(valiant, uniform) < 0.5
    assert 0.4 < share(ugal, adversarial) < 0.5
    assert share(ugal, uniform) > share(minimal, uniform) > 0.7


@pytest.mark.parametrize(
    ("routing", "packets", "arrives"),
    [
        ("ecmp", "mtu: 1 KiB", False),
        ("ecmp", "mtu: 1 KiB, spread: packet", True),
        ("ecmp", "mtu: 1 KiB, spread: flowlet", True),
        ("adaptive", "mtu: 1 KiB, buffer: 40 kB", True),
    ],
)
def test_a_failure_moves_what_is_in_flight(routing: str, packets: str, arrives: bool, tmp_path: Path) -> None:
    """An uplink is lost for good: messages on fixed routes wait for it for ever, packets that choose arrive."""
    (tmp_path / "study.yaml").write_text(f"""
platform:
  topology:
    {{kind: leaf-spine, leaves: 2, spines: 2, npus_per_leaf: 4, bandwidth: 10 GB/s, latency: 100 ns, routing: {routing},
      failures: [{{link: [leaf 0, spine 0], at: 20 us}}]}}
  packets: {{protocol: lossless, {packets}}}
  npu: {{memory: {{bandwidth: 1 TB/s}}}}
""")
    builders = [GraphBuilder(rank=rank) for rank in range(8)]
    for rank in range(4):
        builders[rank].send(rank + 4, 1 << 18, 0)
        builders[rank + 4].recv(rank, 1 << 18, 0)
    trace = Trace.from_ranks([b.graph() for b in builders])
    machine = load_platform(tmp_path / "study.yaml")
    if not arrives:
        with pytest.raises(StuckError, match="spine 0"):
            simulate(trace, machine, network_model="packet")
        return
    # Four messages of 26 us over one uplink instead of two.
    assert 60_000 < simulate(trace, machine, network_model="packet").total_ticks < 130_000


def test_queue_pairs_lie_between_one_way_and_spraying() -> None:
    tree = fat_tree(8, 50.0, 500.0)
    target = permuted(tree.npus, 1)
    ends = [
        offer(
            Packet(ways=ways), Ecmp(tree), np.arange(tree.npus), target, 1 << 20, mode="compiled"
        ).arrived.max()
        for ways in (Ways(), Ways(qps=4), Ways(qps=16), Ways("packet"))
    ]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.parametrize(
    ("ways", "routing", "text"),
    [
        (
            {"spread": "packets"},
            Ecmp,
            "spread is 'packets', expected one of message, packet, flowlet, permuted",
        ),
        ({"qps": 0}, Ecmp, "qps is 0, expected 1 to 4096 queue pairs"),
        ({"flowlet_gap": 0}, Ecmp, "flowlet_gap is 0, expected 1 to"),
        ({"spread": "message"}, Ugal, "routing ugal decides where packets are, got packets.spread message"),
        (
            {"spread": "permuted"},
            Adaptive,
            "routing adaptive decides where packets are, got packets.spread permuted",
        ),
        (
            {"qps": 2},
            DimensionOrder,
            "packets.qps needs a routing with several next links, got dimensionorder",
        ),
    ],
)
def test_refused(ways: dict[str, Any], routing: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        offer(Packet(ways=Ways(**ways)), routing(GRAPHS[3]), [0], [5], 100, mode="interpreted")


def test_a_detour_needs_a_third_place() -> None:
    with pytest.raises(InputError, match="at least 3 groups, got 2"):
        Valiant(dragonfly(1, 2, 1, 1.0, 1.0, groups=2))
