from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.base.jit import load
from armillary.engine.transport import layout as lk
from armillary.engine.transport.credit import layout as ck
from armillary.engine.transport.credit.transport import Credit, datelines
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.offer import offer
from armillary.engine.transport.transport import Room, first_state
from armillary.platform.network import Dimension
from armillary.platform.topology import (
    UNBOUNDED,
    DimensionOrder,
    Shortest,
    Static,
    Topology,
    from_dimensions,
    leaf_spine,
)
from armillary.platform.topology.routing import Routing

from .credit_reference import Reference

FLIT = 8


def line(kind, *sizes, paces=(1,), latency=0.002, buffer=UNBOUNDED):
    """Dimensions whose links take so many ps for a flit of 8 bytes."""
    dimensions = [
        Dimension(f"d{i}", kind, size, FLIT * 1000 / paces[i % len(paces)], latency)
        for i, size in enumerate(sizes)
    ]
    return from_dimensions(dimensions, buffer)


def with_paces(topology: Topology, paces: list[int]) -> Topology:
    chosen = np.resize(np.array(paces, float), topology.links)
    return dataclasses.replace(topology, bandwidth=FLIT * 1000 / chosen)


def clockwise(topology: Topology) -> Static:
    """Every way goes up, past the dateline too."""
    count = topology.npus
    return Static(topology, {(i, d): (i + 1) % count for i in range(count) for d in range(count) if i != d})


def routed(topology: Topology, way: str) -> Routing:
    if (
        way == "clockwise"
        and topology.shape
        and len(topology.shape) == 1
        and topology.nodes == topology.npus > 2
    ):
        return clockwise(topology)
    return DimensionOrder(topology) if topology.dimensions else Shortest(topology)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_equals_the_reference_flit_by_flit(data):
    make = data.draw(
        st.sampled_from(
            [
                lambda delay: line("Ring", 4, latency=delay),
                lambda delay: line("Ring", 5, latency=delay),
                lambda delay: line("Mesh", 3, 2, latency=delay),
                lambda delay: line("Ring", 3, 3, latency=delay),
                lambda delay: line("Switch", 4, latency=delay),
                lambda delay: leaf_spine(2, 2, 2, 8000.0, delay),
            ]
        )
    )
    topology = make(data.draw(st.integers(0, 4)) / 1000)
    topology = with_paces(topology, data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
    packet = data.draw(st.integers(1, 4)) * FLIT
    vcs = data.draw(st.integers(1, 3))
    depth = packet // FLIT + data.draw(st.integers(0, 6))
    credit = Credit(
        packet=packet,
        flit=FLIT,
        vcs=vcs,
        depth=depth,
        router_delay=data.draw(st.integers(0, 3)) / 1000,
        switching=data.draw(st.sampled_from(["virtual-cut-through", "store-and-forward"])),
    )
    npu = st.integers(0, topology.npus - 1)
    rows = data.draw(
        st.lists(
            st.tuples(npu, npu, st.integers(0, 60), st.integers(0, 30), st.integers(0, 2)),
            min_size=1,
            max_size=9,
        )
    )
    source, target, size, begin, key = (np.array(column) for column in zip(*rows, strict=True))
    routing = routed(topology, data.draw(st.sampled_from(["clockwise", "shortest"])))
    found = offer(credit, routing, source, target, size, begin, key=key, mode="interpreted")
    paths = routing.paths(source, target)
    messages = [
        {"begin": int(begin[i]), "route": paths[i].tolist(), "size": int(size[i]), "key": int(key[i])}
        for i in range(len(rows))
    ]
    slow = Reference(credit, topology, depth).run(messages, 2000)
    assert found.arrived.tolist() == [slow.get(i, -1) for i in range(len(rows))]
    assert bool(found.blocked) == (len(slow) < len(rows))


def test_compiled_equals_interpreted():
    topology = line("Ring", 3, 3, paces=(1, 2), buffer=16 * FLIT)
    chance = np.random.default_rng(3)
    ends = chance.integers(0, 9, (2, 60))
    size, begin, key = (chance.integers(0, most, 60) for most in (300, 200, 3))
    credit = Credit(packet=4 * FLIT, flit=FLIT, router_delay=0.003)
    one, other = (
        offer(credit, DimensionOrder(topology), *ends, size, begin, key=key, mode=mode)
        for mode in ("compiled", "interpreted")
    )
    assert one.arrived.tolist() == other.arrived.tolist()
    assert (one.use.size == other.use.size).all() and (one.use.paused == other.use.paused).all()
    assert one.events == other.events


def test_many_that_have_come_to_their_end_leave_a_buffer_at_once():
    """They stand behind one that must go on, but waits for a long packet."""
    topology = line("Mesh", 3)
    credit = Credit(packet=64 * FLIT, flit=FLIT, vcs=1, depth=80)
    rows = [(1, 2, 64 * FLIT), (0, 2, FLIT)] + [(0, 1, FLIT)] * 40
    source, target, size = (np.array(column) for column in zip(*rows, strict=True))
    key = np.minimum(np.arange(len(rows)), 2)
    routing = DimensionOrder(topology)
    found = offer(credit, routing, source, target, size, key=key, mode="interpreted")
    paths = routing.paths(source, target)
    messages = [
        {"begin": 0, "route": paths[i].tolist(), "size": int(size[i]), "key": int(key[i])}
        for i in range(len(rows))
    ]
    slow = Reference(credit, topology, 80).run(messages, 500)
    assert found.arrived.tolist() == [slow[i] for i in range(len(rows))]
    assert found.arrived[2:].min() > 64


def test_a_link_that_comes_up_moves_what_waits_for_it():
    up = line("Mesh", 3)
    down = dataclasses.replace(up, bandwidth=np.where(up.tail == 1, 0.0, up.bandwidth))
    credit, routes = Credit(packet=16, flit=FLIT), Routes()
    stages = [Stage(0.0, DimensionOrder(topology)) for topology in (down, up)]
    routes.add(stages[1], [0], [2])
    table = lower_network(stages, routes, credit.options(up), credit.tables(up)).tolist()
    kernel = load("armillary.engine.transport.credit.credit_kernel", "interpreted", "credit")
    net, room = first_state(credit, down, "interpreted", routes.count), Room(credit, "interpreted")

    def advance(limit):
        now, net[lk.N_STATUS] = 0, lk.GROW
        while net[lk.N_STATUS] == lk.GROW:
            room.fit(net)
            net[lk.N_STATUS] = lk.OK
            now = kernel.advance(table, net, room.pool, room.queue, limit)
        return now

    room.fit(net)
    kernel.inject(table, net, room.pool, room.queue, 0, 0, 32, 0, 0)
    assert advance(1000) == 1000 and net[lk.N_IN_FLIGHT] == 1
    net[lk.N_STAGE] = 1
    room.fit(net)
    kernel.change(table, net, room.pool, room.queue, 1000)
    assert advance(lk.FOREVER) == 1000 + 4 + 2 and net[lk.N_IN_FLIGHT] == 0


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_alone_in_closed_form(hops):
    """hops * (router delay + latency) + serialisation."""
    topology = line("Mesh", 4, paces=(2,), latency=0.5)
    credit = Credit(packet=4 * FLIT, flit=FLIT, router_delay=0.25)
    found = offer(credit, DimensionOrder(topology), 0, hops, 101, mode="interpreted")
    flits = 13  # three packets of 4 flits, and 5 bytes
    assert found.arrived.tolist() == [hops * (500 + 250) + flits * 2]
    whole = dataclasses.replace(credit, switching="store-and-forward")
    found = offer(whole, DimensionOrder(topology), 0, hops, 4 * FLIT, mode="interpreted")
    assert found.arrived.tolist() == [hops * (500 + 250 + 4 * 2)]


def test_a_message_to_itself_and_one_of_no_bytes():
    topology = line("Ring", 4)
    found = offer(
        Credit(packet=16, flit=FLIT), DimensionOrder(topology), [0, 0], [0, 1], [99, 0], 7, mode="interpreted"
    )
    assert found.arrived.tolist() == [7, 7 + 2 + 1]


def test_default_buffers_never_hold_up_a_link():
    topology = from_dimensions([Dimension("line", "Mesh", 4, 50.0, 500.0)])
    found = offer(Credit(router_delay=20), DimensionOrder(topology), 0, 3, 1 << 20, mode="interpreted")
    assert found.arrived.tolist() == [3 * 520_000 + (1 << 20) * 20]
    assert not found.use.paused.any()


def test_a_small_buffer_holds_up_a_long_link():
    """A packet per round trip: its time, twice the latency, and what the next router takes."""
    topology = line("Mesh", 2, paces=(1,), latency=0.1, buffer=4 * FLIT)
    found = offer(
        Credit(packet=4 * FLIT, flit=FLIT, vcs=1),
        DimensionOrder(topology),
        0,
        1,
        3 * 4 * FLIT,
        mode="interpreted",
    )
    assert found.arrived.tolist() == [2 * (4 + 2 * 100) + 4 + 100]
    assert found.use.paused.tolist() == [2 * 2 * 100, 0]


def test_flits_and_credits_are_conserved():
    topology = line("Ring", 4, 3, buffer=16 * FLIT)
    routing, credit = DimensionOrder(topology), Credit(packet=4 * FLIT, flit=FLIT)
    chance = np.random.default_rng(5)
    source, target = chance.integers(0, 12, (2, 40))
    size = chance.integers(1, 200, 40)
    routes = Routes()
    routes.add(Stage(0.0, routing), source, target)
    table = lower_network(
        [Stage(0.0, routing)], routes, credit.options(topology), credit.tables(topology)
    ).tolist()
    kernel = load(
        "armillary.engine.transport.offer_kernel",
        "interpreted",
        "armillary.engine.transport.credit.credit_kernel",
    )
    net, room = first_state(credit, topology, "interpreted", routes.count), Room(credit, "interpreted", 40)
    rows = [value for i in range(40) for value in (0, i, int(size[i]), 0)]
    arrived, number, net[lk.N_STATUS] = [-1] * 40, 0, lk.GROW
    while net[lk.N_STATUS] == lk.GROW:
        room.fit(net)
        number = kernel.run(table, net, room.pool, room.queue, rows, arrived, number, 10_000)
    assert min(arrived) >= 0 and net[lk.N_IN_FLIGHT] == 0
    moved = sum(net[net[lk.N_USE] + link * lk.U_COLUMNS + lk.U_BYTES] for link in range(topology.links))
    assert moved == int((size * routing.paths(source, target).hops).sum())
    for slot in range(topology.links * credit.vcs):
        row = net[lk.N_OWN + 2] + slot * ck.V_COLUMNS
        back, flits = net[row + ck.V_BACK], net[row + ck.V_CREDITS]
        while back:
            flits, back = flits + room.pool[back + ck.B_FLITS], room.pool[back]
        assert flits == 8 and net[row + ck.V_FIRST] == 0


@pytest.mark.parametrize("size", [4, 5, 8])
def test_a_ring_without_a_dateline_deadlocks_and_with_one_does_not(size):
    ends = np.arange(size), (np.arange(size) - 1) % size
    one, two = (line("Ring", size, buffer=vcs * 4 * FLIT) for vcs in (1, 2))
    credit = Credit(packet=4 * FLIT, flit=FLIT, vcs=1)
    stuck = offer(credit, clockwise(one), *ends, 40 * FLIT, mode="interpreted")
    assert (stuck.arrived == -1).all()
    up = one.between(np.arange(size), (np.arange(size) + 1) % size).tolist()
    assert stuck.blocked == up
    free = offer(dataclasses.replace(credit, vcs=2), clockwise(two), *ends, 40 * FLIT, mode="interpreted")
    assert (free.arrived > 0).all() and not free.blocked


def test_tori_under_dimension_order_do_not_deadlock():
    topology = line("Ring", 4, 4, buffer=2 * 4 * FLIT)
    credit = Credit(packet=4 * FLIT, flit=FLIT)
    source, target = (grid.ravel() for grid in np.meshgrid(np.arange(16), np.arange(16)))
    found = offer(credit, DimensionOrder(topology), source, target, 20 * FLIT)
    assert (found.arrived >= 0).all()


def test_datelines_close_rings_both_ways():
    topology = line("Ring", 4, 2)
    ring, dateline = datelines(topology)
    ends = {(int(topology.tail[link]), int(topology.head[link])) for link in np.flatnonzero(dateline)}
    assert ends == {(3, 0), (0, 3), (7, 4), (4, 7)}
    assert (ring > 0).sum() == 16  # A pair of the second dimension is no ring.


def test_lower_keys_go_first_and_equal_ones_take_turns():
    topology = line("Mesh", 2)
    credit = Credit(packet=2 * FLIT, flit=FLIT)
    found = offer(credit, DimensionOrder(topology), 0, 1, 4 * FLIT, key=[1, 0, 1], mode="interpreted")
    assert (found.arrived - 2).tolist() == [10, 4, 12]


@pytest.mark.parametrize(
    ("credit", "buffer", "message"),
    [
        (
            Credit(),
            8000,
            "0 → npu 1 has a buffer of 8000 bytes, so 3968 bytes for each of 2 VCs, expected room for a",
        ),
        (Credit(depth=63), UNBOUNDED, "npu 0 → npu 1 has 63 flits per VC, so 4032 bytes"),
    ],
)
def test_a_buffer_below_a_packet_is_refused(credit, buffer, message):
    topology = line("Ring", 4, buffer=buffer)
    with pytest.raises(InputError, match=message):
        offer(credit, DimensionOrder(topology), 0, 1, 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"flit": 0}, "flit is 0, expected at least 1"),
        ({"packet": 32}, "packet is 32, expected at least 64"),
        ({"vcs": 0}, "vcs is 0"),
        ({"router_delay": -1.0}, "router_delay is -1.0, expected at least 0"),
        ({"switching": "wormhole"}, "switching is 'wormhole', expected 'virtual-cut-through' or"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(changed, message):
    with pytest.raises(InputError, match=message):
        Credit(**changed)
