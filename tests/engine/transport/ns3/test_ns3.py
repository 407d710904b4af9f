"""ns-3 as a transport, against closed forms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.base.jit import load
from armillary.engine.transport import layout as lk
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.ns3 import library
from armillary.engine.transport.ns3.transport import Ns3
from armillary.engine.transport.offer import Offered, offer
from armillary.engine.transport.transport import Room, first_state
from armillary.platform.network import Dimension
from armillary.platform.topology import Ecmp, Routing, Shortest, from_dimensions, leaf_spine

GBPS100 = 12.5
"""Bytes per ns."""
HEADERS = 8 + 20 + 2
"""UDP, IPv4, PPP."""

needs_ns3 = pytest.mark.skipif(not library.available(), reason="needs ns-3: pip install armillary[ns3]")


def run(routing: Routing, *messages: object, transport: Ns3 | None = None, **options: object) -> Offered:
    return offer(transport or Ns3(segment=1000), routing, *messages, mode="interpreted", **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def across() -> Shortest:
    """Ways of 4 links between NPUs of two leaves."""
    return Shortest(leaf_spine(2, 1, 2, GBPS100, 500))


def of_packet(size: int) -> int:
    """ps that a datagram takes on a link."""
    return round((size + HEADERS) / GBPS100 * 1000)


@needs_ns3
def test_a_message_is_stored_and_forwarded_packet_by_packet(across: Shortest) -> None:
    alone = run(across, 0, 2, 10_000)
    assert alone.arrived.tolist() == [4 * (of_packet(1000) + 500_000) + 9 * of_packet(1000)]
    assert alone.use.size[alone.use.size > 0].tolist() == [10 * (1000 + HEADERS)] * 4
    # The last packet is short, so it catches up with the one before and is held up by it.
    short = run(across, 0, 2, 2_100, 7_000)
    assert short.arrived.tolist() == [
        7_000 + 4 * (of_packet(1000) + 500_000) + of_packet(1000) + of_packet(100)
    ]


@needs_ns3
def test_two_share_a_link_packet_by_packet(across: Shortest) -> None:
    arrived = run(across, [0, 1], [2, 2], [10_000, 10_000]).arrived
    last = 4 * (of_packet(1000) + 500_000) + 19 * of_packet(1000)
    assert sorted(arrived.tolist()) == [last - of_packet(1000), last]


@needs_ns3
def test_messages_of_an_npu_take_turns(across: Shortest) -> None:
    arrived = run(across, [0, 0], [1, 2], [3_000, 10_000]).arrived
    # Packets 0, 2 and 4 of those that leave are of the first, over two links.
    assert arrived[0] == 2 * (of_packet(1000) + 500_000) + 4 * of_packet(1000)


@needs_ns3
def test_own_packets_and_those_passed_on_share_a_port() -> None:
    ring = Shortest(from_dimensions([Dimension("dim0", "Mesh", 3, GBPS100, 500.0)]))
    # Both cross the second link: NPU 0's wait there behind all that NPU 1 has, or take turns with them.
    messages = [0, 1], [2, 2], [20_000, 20_000]
    paced = run(ring, *messages).arrived
    fair = run(ring, *messages, transport=Ns3("udp-fair", segment=1000)).arrived
    last = of_packet(1000) * 40 + 500_000
    assert paced.max() == fair.max() <= last + of_packet(1000) + 500_000
    # With turns NPU 1 has to wait for NPU 0's packets from when the first of them is there.
    ahead = -(-(of_packet(1000) + 500_000) // of_packet(1000))
    assert fair[1] == (ahead + 2 * (20 - ahead)) * of_packet(1000) + 500_000


@needs_ns3
def test_messages_to_oneself_and_empty_ones_arrive(across: Shortest) -> None:
    arrived = run(across, [1, 0], [1, 1], [5_000, 0], [3_000, 0]).arrived
    assert arrived.tolist() == [3_000, 2 * (of_packet(0) + 500_000)]


@needs_ns3
def test_flows_take_the_ways_of_our_routing() -> None:
    routing = Ecmp(leaf_spine(2, 4, 1, GBPS100, 500))
    flow = np.arange(8)
    use = run(routing, [0] * 8, [1] * 8, [4_000] * 8, flow=flow).use
    links = np.bincount(routing.paths([0] * 8, [1] * 8, flow).link, minlength=routing.topology.links)
    assert use.size.tolist() == (links * 4 * (1000 + HEADERS)).tolist()
    assert (links > 0).sum() > 4


@needs_ns3
def test_what_a_full_queue_drops_is_lost() -> None:
    routing = Shortest(leaf_spine(1, 1, 4, GBPS100, 500, buffer=4_120))
    lost = run(routing, [0, 1, 2], [3, 3, 3], [50_000] * 3)
    assert (lost.arrived == -1).sum() == 2
    # Four packets fit the queue, and one leaves in the time in which three come.
    carried = lost.use.size.max() // (1000 + HEADERS)
    assert carried + lost.use.drops.max() == 150
    assert 50 < carried < 60
    assert lost.use.depth.max() <= 4_120


@needs_ns3
@pytest.mark.parametrize("protocol", ["reno", "cubic", "dctcp"])
def test_tcp_delivers_all_even_over_queues_that_drop(protocol: str, across: Shortest) -> None:
    size = 1 << 20
    arrived = run(across, [0, 1], [2, 3], [size] * 2, transport=Ns3(protocol)).arrived  # type: ignore[arg-type]
    edge = 2 * size * (1502 / 1448) / GBPS100 * 1000
    assert edge < arrived.max() < 1.2 * edge
    small = Shortest(leaf_spine(2, 1, 2, GBPS100, 500, buffer=30_000))
    held = run(small, [0, 1], [2, 2], [size] * 2, transport=Ns3(protocol, min_rto=1_000_000))  # type: ignore[arg-type]
    assert held.use.drops.sum() > 0
    assert held.arrived.min() > edge / 2


@needs_ns3
def test_dctcp_keeps_the_queue_at_the_mark(across: Shortest) -> None:
    marked = run(across, [0, 1], [2, 3], [4 << 20] * 2, transport=Ns3("dctcp", mark=100_000)).use
    free = run(across, [0, 1], [2, 3], [4 << 20] * 2, transport=Ns3("dctcp")).use
    assert marked.marks.max() > 10
    assert marked.depth.max() < 300_000 < free.depth.max()


@needs_ns3
def test_runs_do_not_know_of_each_other(across: Shortest) -> None:
    first = run(across, [0, 1, 3], [2, 2, 0], [10_000, 20_000, 30_000])
    again = run(across, [0, 1, 3], [2, 2, 0], [10_000, 20_000, 30_000])
    assert first.arrived.tolist() == again.arrived.tolist()
    assert first.events == again.events


@needs_ns3
def test_connections_are_open_from_the_start_and_shared_by_a_way(across: Shortest) -> None:
    one = run(across, 0, 2, 1448, transport=Ns3("reno")).arrived
    assert abs(one[0] - 4 * (round(1502 / GBPS100 * 1000) + 500_000)) <= 4  # ns-3 rounds every link's time
    # The window that the first message left is open for the second.
    size = 1448 * 100
    two = run(across, [0, 0], [2, 2], [size] * 2, [0, 1_000_000_000], transport=Ns3("reno")).arrived
    assert two[1] - 1_000_000_000 < two[0]


@needs_ns3
def test_tcp_needs_a_way_back() -> None:
    ring = from_dimensions([Dimension("dim0", "FullyConnected", 3, GBPS100, 500.0)])
    one_way = dataclasses.replace(
        ring, first_link=np.arange(4), head=np.array([1, 2, 0]), bandwidth=ring.bandwidth[:3], latency=ring.latency[:3],
        buffer=ring.buffer[:3], kind=ring.kind[:3],
    )  # fmt: skip
    assert run(Shortest(one_way), 0, 2, 1000).arrived[0] == 2 * (of_packet(1000) + 500_000)
    with pytest.raises(InputError, match="expected links both ways"):
        run(Shortest(one_way), 0, 2, 1000, transport=Ns3("reno"))


@needs_ns3
def test_links_change_with_the_stage_and_runs_end_when_another_begins(across: Shortest) -> None:
    transport, fast = Ns3(segment=1000), across.topology
    slow = dataclasses.replace(fast, bandwidth=fast.bandwidth / 2)
    stages, routes = [Stage(0.0, across), Stage(1000.0, Shortest(slow))], Routes()
    routes.add(stages[0], [0], [2])
    table = lower_network(stages, routes, transport.options(fast), transport.tables(fast)).tolist()
    net, room = first_state(transport, fast, "interpreted", routes.count), Room(transport, "interpreted")
    room.fit(net)
    state = table, net, room.pool, room.queue
    kernel = load(transport.kernel, "interpreted", transport.name)
    kernel.inject(*state, 7, 0, 10_000, 0, 0)
    assert kernel.advance(*state, 1_000_000) == 1_000_000
    net[lk.N_STAGE] = 1
    kernel.change(*state, 1_000_000)
    # The third link is slow from the first packet on, so that all wait for it; the fourth adds the last packet.
    slowly = 2 * of_packet(1000)
    third = 2 * (of_packet(1000) + 500_000)
    assert kernel.advance(*state, lk.FOREVER) == third + 10 * slowly + 500_000 + slowly + 500_000
    assert (
        load("armillary.engine.transport.queue_kernel", "interpreted", "ns3").take_delivered(net, room.pool)
        == 7
    )
    first_state(transport, fast, "interpreted", routes.count)
    with pytest.raises(InputError, match="another run has begun"):
        kernel.advance(*state, lk.FOREVER)


def test_what_ns3_cannot_do_is_refused(across: Shortest, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="'vegas', expected udp, udp-fair, reno, cubic, dctcp"):
        Ns3("vegas")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got mode compiled, expected interpreted"):
        offer(Ns3(), across, 0, 1, 1, mode="compiled")
    monkeypatch.setattr(library, "_prefix", lambda: None)
    with pytest.raises(InputError, match=r"pip install armillary\[ns3\]"):
        library.ns3_messages.__wrapped__()
