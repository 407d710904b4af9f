"""Packets with unbounded queues: tick for tick, and byte for byte on every link, the kernel with an event for each."""

from __future__ import annotations

from dataclasses import fields
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.jit import Mode
from armillary.engine.transport.network import Routes, Stage
from armillary.engine.transport.offer import Offered, offer
from armillary.engine.transport.packet import Packet
from armillary.engine.transport.packet import transport as packet_module
from armillary.engine.transport.packet.unbounded import UnboundedPacket
from armillary.platform.network import Dimension
from armillary.platform.topology import (
    DimensionOrder,
    Ecmp,
    Routing,
    Shortest,
    Topology,
    from_dimensions,
    leaf_spine,
)

Offer = tuple[int, int, int, int, int]
ROUTINGS: list[Routing] = [
    Ecmp(leaf_spine(3, 2, 2, 1.0, 5.0, uplink=0.7)),
    Shortest(from_dimensions((Dimension("star", "Switch", 5, 3.0, 0.0),))),
    # NPUs forward what others send, between packets of their own.
    DimensionOrder(
        from_dimensions((Dimension("x", "Ring", 4, 1 / 3, 2.0), Dimension("y", "Mesh", 3, 2.0, 0.0)))
    ),
]
MESSAGE = st.tuples(
    st.integers(0, 6).map(lambda n: n * 40_000),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 3000),
    st.integers(0, 2),
)
CASES = (
    st.sampled_from(ROUTINGS),
    st.sampled_from([Packet(mtu=64, header=6), Packet(mtu=300, header=1)]),
    st.lists(MESSAGE, min_size=1, max_size=25),
)


def moved(options: Packet, routing: Routing, messages: list[Offer], mode: Mode) -> Offered:
    begin, source, target, size, key = np.array(messages).T
    return offer(options, routing, source, target, size, begin, key=key, mode=mode)


def compare(options: Packet, routing: Routing, messages: list[Offer], mode: Mode) -> None:
    got = moved(options, routing, messages, mode)
    with mock.patch.object(packet_module, "is_unbounded", return_value=False):
        expected = moved(options, routing, messages, mode)
    assert got.arrived.tolist() == expected.arrived.tolist()
    for each in fields(got.use):
        assert np.array_equal(getattr(got.use, each.name), getattr(expected.use, each.name)), each.name
    assert got.events <= expected.events


@settings(max_examples=40, deadline=None)
@given(*CASES)
def test_every_event_agrees(routing: Routing, options: Packet, messages: list[Offer]) -> None:
    compare(options, routing, messages, "interpreted")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(*CASES)
def test_every_event_agrees_with_compiled(routing: Routing, options: Packet, messages: list[Offer]) -> None:
    compare(options, routing, messages, "compiled")


@pytest.mark.parametrize("base", [0, 1 << 44])
def test_times_far_from_the_base(base: int) -> None:
    messages = [(base + i * 7_000, i % 6, (i * 5 + 1) % 6, 400 * i, i % 2) for i in range(20)]
    options = Packet(mtu=64, header=6)
    expected = moved(options, ROUTINGS[0], messages, "interpreted")
    narrow = UnboundedPacket.options

    def few(self: UnboundedPacket, topology: Topology) -> list[int]:
        # Of each word 46 bits say which link, and 16 the time: 65 ns, less than a packet takes.
        mtu, header, _, leaves = narrow(self, topology)
        return [mtu, header, 46, leaves]

    with mock.patch.object(UnboundedPacket, "options", few):
        got = moved(options, ROUTINGS[0], messages, "interpreted")
    assert got.arrived.tolist() == expected.arrived.tolist()


@settings(max_examples=10, deadline=None)
@given(st.lists(MESSAGE, min_size=1, max_size=25))
def test_order_of_arrival_within_a_tick(messages: list[Offer]) -> None:
    """A transport that stops at each arrival gives them in the same order."""
    routing, options = ROUTINGS[0], Packet(mtu=64, header=6)
    same = [(0, source, target, 500, 0) for _, source, target, _, _ in messages]
    compare(options, routing, same, "interpreted")


def test_what_makes_queues_bounded() -> None:
    stage, routes = Stage(0.0, ROUTINGS[0]), Routes()
    routes.add(stage, [0], [5])
    assert isinstance(Packet().on([stage], routes), UnboundedPacket)
    for options in (
        Packet(header=0),
        Packet(buffer=10**6),
        Packet(xoff=10**6),
        Packet(kmin=1000),
    ):
        assert not isinstance(options.on([stage], routes), UnboundedPacket)
    assert not isinstance(Packet().on([stage, stage], routes), UnboundedPacket)
