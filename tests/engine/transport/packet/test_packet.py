"""Packets: tick for tick an obvious reference; by hand; pauses, marks, rates; a deadlock and its cycle."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.base.jit import Mode, load
from armillary.engine.transport import layout as lk
from armillary.engine.transport.control.dcqcn import Dcqcn
from armillary.engine.transport.deadlock import blocked_cycle
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.offer import Offered, offer
from armillary.engine.transport.packet.transport import Packet, reverse_links
from armillary.engine.transport.switch import layout as pk
from armillary.engine.transport.transport import Room, first_state
from armillary.platform.network import Dimension
from armillary.platform.topology import Ecmp, Routing, Shortest, Static, Topology, from_dimensions, leaf_spine

from ..stepping import advanced
from .packet_reference import PacketReference

Offer = tuple[int, int, int, int, int]


def ring(size: int, bandwidth: float = 1.0, latency: float = 10.0) -> Topology:
    return from_dimensions((Dimension("ring", "Ring", size, bandwidth, latency),))


def star(npus: int, bandwidth: float = 1.0, latency: float = 10.0) -> Topology:
    return from_dimensions((Dimension("star", "Switch", npus, bandwidth, latency),))


def clockwise(topology: Topology) -> Routing:
    """One way round: the routes that lock up."""
    npus = topology.npus
    return Static(topology, {(u, v): (u + 1) % npus for u in range(npus) for v in range(npus) if u != v})


def moved(options: Packet, routing: Routing, messages: list[Offer], mode: Mode = "interpreted") -> Offered:
    begin, source, target, size, key = np.array(messages).T
    return offer(options, routing, source, target, size, begin, key=key, mode=mode)


def least(options: Packet, topology: Topology) -> int:
    """The smallest buffer that loses nothing."""
    return int(options.headroom(topology).max())


ROUTINGS = [
    clockwise(ring(4)),
    Shortest(star(4, 3.0, 7.0)),
    Ecmp(leaf_spine(2, 2, 2, 1.0, 5.0, uplink=0.7)),
    Shortest(ring(5, 1 / 3, 0.0)),
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Packet, Routing, list[Offer]]:
    routing = draw(st.sampled_from(ROUTINGS))
    npus = routing.topology.npus
    messages = draw(
        st.lists(
            st.tuples(
                st.integers(0, 3).map(lambda n: n * 5000),
                st.integers(0, npus - 1),
                st.integers(0, npus - 1),
                st.integers(0, 900),
                st.integers(0, 2),
            ),
            min_size=1,
            max_size=12,
        )
    )
    keys: dict[str, Any] = {
        "mtu": draw(st.sampled_from([40, 64, 300])),
        "header": draw(st.sampled_from([0, 6])),
    }
    if draw(st.booleans()):
        room = least(Packet(**keys), routing.topology)
        keys["buffer"] = room + draw(st.integers(0, 200))
        if draw(st.booleans()):
            keys["xoff"] = keys["buffer"] - room
            keys["xon"] = draw(st.integers(0, keys["xoff"]))
    if draw(st.booleans()):
        keys["kmin"] = draw(st.integers(0, 100))
        keys["kmax"] = draw(st.none() | st.integers(keys["kmin"], 400))
        keys |= {"pmax": draw(st.sampled_from([0.1, 0.9])), "seed": draw(st.integers(0, 5))}
        if draw(st.booleans()):
            keys["dcqcn"] = Dcqcn(
                g=1 / 4, alpha_timer=100, timer=draw(st.sampled_from([50, 150])), byte_counter=200,
                fast_recovery=draw(st.integers(0, 3)), additive=0.01, hyper=0.1, notify=60, least=0.01,
            )  # fmt: skip
    return Packet(**keys), routing, messages


def compare(options: Packet, routing: Routing, messages: list[Offer], mode: Mode) -> None:
    got, reference = moved(options, routing, messages, mode), PacketReference(options, routing, messages)
    assert got.arrived.tolist() == reference.arrived
    for column in ("size", "busy", "depth", "marks", "paused"):
        assert getattr(got.use, column).tolist() == [line.use[column] for line in reference.lines], column
    assert not got.use.drops.any()
    buffer = routing.topology.buffer if options.buffer is None else [options.buffer] * routing.topology.links
    assert all(most <= buffer[link] for link, most in reference.most_held.items()), "a buffer overflowed"


@settings(max_examples=30, deadline=None)
@given(cases())
def test_the_reference_agrees(case: tuple[Packet, Routing, list[Offer]]) -> None:
    compare(*case, "interpreted")


@settings(max_examples=30, deadline=None)
@given(cases())
def test_the_reference_agrees_with_compiled(case: tuple[Packet, Routing, list[Offer]]) -> None:
    compare(*case, "compiled")


def incast(npus: int, size: int) -> list[Offer]:
    return [(0, source, 0, size, 0) for source in range(1, npus)]


def test_one_message_by_hand() -> None:
    """3 packets of 110, 110 and 60 bytes at 1 byte/ns over two links of 10 ns: the last waits for the second."""
    got = moved(Packet(mtu=100, header=10), Shortest(star(2)), [(0, 0, 1, 250, 0)])
    assert got.arrived.tolist() == [(110 + 10 + 110 + 110 + 60 + 10) * 1000]
    assert got.use.size.sum() == 2 * (250 + 3 * 10)


def test_messages_of_one_key_share_and_lower_keys_go_first() -> None:
    messages = [(0, 0, 1, 300, 1), (0, 0, 2, 300, 1), (0, 0, 3, 200, 0)]
    got = moved(Packet(mtu=100, header=0), Shortest(star(4)), messages)
    # Sent: 3 3 1 2 1 2 1 2, at 100 ns each; the last is stored once (100 ns) and 20 ns on edges.
    assert (got.arrived // 1000).tolist() == [820, 920, 320]


def test_bytes_in_are_bytes_out() -> None:
    routing = Ecmp(leaf_spine(2, 2, 4, 1.0, 5.0))
    messages = [(0, u, v, 1000 + u * v, 0) for u in range(8) for v in range(8) if u != v]
    options = Packet(mtu=64, header=6, buffer=300, kmin=0, pmax=1.0)
    got = moved(options, routing, messages)
    hops = routing.paths(*np.array(messages).T[1:3]).hops
    size = np.array(messages)[:, 3]
    assert got.use.size.sum() == ((size + -(-size // 64) * 6) * hops).sum()
    assert got.use.series.sum() == got.use.size.sum()
    assert got.arrived.min() > 0 and got.use.paused.any() and got.use.marks.any()


def test_seeds_decide_which_packets_are_marked() -> None:
    def seeded(seed: int, mode: Mode = "interpreted") -> tuple[list[int], list[int]]:
        control = Dcqcn(notify=100, timer=500, alpha_timer=500)
        options = Packet(mtu=100, kmin=100, kmax=4000, pmax=0.2, seed=seed, dcqcn=control)
        got = moved(options, Shortest(star(6)), incast(6, 20_000), mode)
        return got.arrived.tolist(), got.use.marks.tolist()

    assert seeded(1) == seeded(1) == seeded(1, "compiled")
    assert seeded(1) != seeded(2)


def test_pauses_keep_buffers_short_and_the_link_busy() -> None:
    topology = star(5)
    loose = moved(Packet(mtu=100, header=0), Shortest(topology), incast(5, 5000))
    tight = moved(Packet(mtu=100, header=0, buffer=700), Shortest(topology), incast(5, 5000))
    assert tight.arrived.max() == loose.arrived.max() == (4 * 5000 + 100 + 20) * 1000
    assert loose.use.depth.max() > 10_000 > 4 * 700 >= tight.use.depth.max()
    assert not loose.use.paused.any() and tight.use.paused.any()


def test_rates_fall_to_a_fair_share() -> None:
    """Two messages into one port: queues stay short, and both get about the same."""
    topology = star(3, bandwidth=5.0, latency=500.0)
    size = 20_000_000
    plain = Packet(mtu=1000, header=48, kmin=5000, kmax=200_000)
    slowed = Packet(mtu=1000, header=48, kmin=5000, kmax=200_000, dcqcn=Dcqcn(additive=0.05))
    free, held = (
        moved(options, Shortest(topology), incast(3, size), "compiled") for options in (plain, slowed)
    )
    assert free.use.depth.max() > 10_000_000
    assert held.use.depth.max() < 400_000
    ideal = 2 * size * 1.048 / 5.0 * 1000
    assert ideal < held.arrived.max() < 1.35 * ideal
    assert abs(held.arrived[0] - held.arrived[1]) < 0.2 * ideal


def run(
    options: Packet, routing: Routing, messages: list[Offer], budget: int = 1 << 20
) -> tuple[list[int], Any, Any]:
    """Run until `budget` messages have arrived, or to the end; returns when they have, and the state."""
    topology, routes, stage = routing.topology, Routes(), Stage(0.0, routing)
    rows = np.array(messages)
    routes.add(stage, rows[:, 1], rows[:, 2])
    table = lower_network([stage], routes, options.options(topology), options.tables(topology)).tolist()
    offers = np.stack([rows[:, 0], np.arange(len(rows)), rows[:, 3], rows[:, 4]], axis=1).ravel().tolist()
    net, room = (
        first_state(options, topology, "interpreted", routes.count),
        Room(options, "interpreted", len(rows)),
    )
    room.fit(net)
    arrived = [-1] * len(rows)
    kernel = load("armillary.engine.transport.offer_kernel", "interpreted", options.kernel)
    number, net[lk.N_STATUS] = 0, lk.GROW
    while net[lk.N_STATUS] == lk.GROW:
        room.fit(net)
        left = budget - sum(each >= 0 for each in arrived)
        number = kernel.run(table, net, room.pool, room.queue, offers, arrived, number, left)
    return arrived, net, room.pool


def test_buffers_in_a_ring_lock_up() -> None:
    routing = clockwise(ring(4))
    options = Packet(mtu=100, header=0, buffer=300)
    arrived, net, pool = run(options, routing, [(0, u, (u + 3) % 4, 2000, 0) for u in range(4)])
    assert net[lk.N_IN_FLIGHT] == 4 and net[lk.N_QUEUE] == 0 and arrived == [-1] * 4
    cycle = blocked_cycle(net, pool, routing.topology)
    assert [int(routing.topology.tail[link]) for link in cycle] == [0, 1, 2, 3]
    assert [int(routing.topology.head[link]) for link in cycle] == [1, 2, 3, 0]


def test_links_that_wait_without_a_cycle() -> None:
    topology = leaf_spine(2, 1, 4, 1.0, 5.0)
    messages = [(0, source, 0, 500 if source == 7 else 5000, 0) for source in range(1, 8)]
    _, net, pool = run(Packet(mtu=100, header=0, buffer=300), Shortest(topology), messages, budget=1)
    ports = [net[pk.PORTS] + link * pk.PO_COLUMNS for link in range(topology.links)]
    assert any(net[port + pk.PO_SHUT] and net[port + pk.PO_FIRST] for port in ports)
    assert net[lk.N_IN_FLIGHT] and blocked_cycle(net, pool, topology) == []


def test_no_cycle_where_all_arrives() -> None:
    routing = clockwise(ring(4))
    messages = [(0, u, (u + 3) % 4, 2000, 0) for u in range(4)]
    arrived, net, pool = run(Packet(mtu=100, header=0), routing, messages)
    assert min(arrived) > 0 and net[lk.N_IN_FLIGHT] == 0
    assert blocked_cycle(net, pool, routing.topology) == []


def test_a_link_that_is_down_for_a_while() -> None:
    """Packets of 100, 100, 50 bytes; the second link is down from 150 to 1000 ns, while it sends the first."""
    topology, options, routes = star(2), Packet(mtu=100, header=0), Routes()
    up = Stage(0.0, Shortest(topology))
    routes.add(up, [0], [1])
    bandwidth = np.where(topology.head == 1, 0.0, topology.bandwidth)
    down = Stage(150.0, Shortest(dataclasses.replace(topology, bandwidth=bandwidth)))
    table = lower_network([up, down], routes, options.options(topology), options.tables(topology)).tolist()
    net, room = first_state(options, topology, "interpreted", routes.count), Room(options, "interpreted")
    room.fit(net)
    kernel = load("armillary.engine.transport.packet.packet_kernel", "interpreted")
    kernel.inject(table, net, room.pool, room.queue, 7, 0, 250, 0, 0)
    for now, stage in ((150_000, 1), (1_000_000, 0)):
        assert advanced(kernel, table, net, room, now) == now
        net[lk.N_STAGE] = stage
        kernel.change(table, net, room.pool, room.queue, now)
    assert advanced(kernel, table, net, room, lk.FOREVER) == 1_160_000
    assert room.pool[net[lk.N_DELIVERED] + lk.P_COOKIE] == 7 and net[lk.N_IN_FLIGHT] == 0


def test_parallel_links_go_back_in_pairs() -> None:
    topology = from_dimensions(
        (Dimension("a", "FullyConnected", 2, 1.0, 1.0), Dimension("b", "Switch", 2, 1.0, 1.0))
    )
    back = reverse_links(topology)
    assert topology.tail[back].tolist() == topology.head.tolist()
    assert back[back].tolist() == list(range(topology.links))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"mtu": 0}, "packet: mtu is 0, expected 1 to 1048576 bytes"),
        ({"header": -1}, "packet: header is -1, expected 0 to 1048576 bytes"),
        ({"buffer": 4157}, "packet: buffer is 4157, smaller than a packet: expected at least 4158 bytes"),
        ({"xoff": 10, "xon": 11}, r"packet: xon is 11, expected 0 to 10 bytes \(xoff\)"),
        ({"kmin": 10, "kmax": 9}, r"packet: kmax is 9, expected 10 to \d+ bytes \(from kmin\)"),
        ({"kmin": 10, "pmax": 1.5}, "packet: pmax is 1.5, expected 0 to 1"),
        ({"dcqcn": Dcqcn()}, "packet: kmax and dcqcn need marked packets, expected kmin too"),
    ],
)
def test_options_out_of_range(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Packet(**keys)


@pytest.mark.parametrize(("key", "value"), [("g", 0.0), ("timer", 0), ("byte_counter", 0), ("least", 0)])
def test_rate_control_out_of_range(key: str, value: float) -> None:
    with pytest.raises(InputError, match=f"packet: dcqcn: {key} is {value}, expected "):
        Dcqcn(**{key: value})


def test_a_buffer_without_headroom() -> None:
    with pytest.raises(
        InputError, match=r"of npu 0 → star switch 0 has 219 bytes, expected at least 220: two packets"
    ):
        Packet(mtu=100, header=0, buffer=219).tables(star(2))
