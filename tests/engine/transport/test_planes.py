"""Messages over several planes: as if each plane were a network alone, and what fails, over those that are left."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.collective import synthesize
from armillary.engine.transport.congestion import Congestion
from armillary.engine.transport.credit import Credit
from armillary.engine.transport.flow import Flow
from armillary.engine.transport.offer import offer
from armillary.engine.transport.packet import Packet
from armillary.engine.transport.rdma import Rdma
from armillary.engine.transport.tcp import Tcp
from armillary.engine.transport.transport import Transport
from armillary.platform import load_platform
from armillary.platform.topology import (
    Shortest,
    Topology,
    check_connected,
    fat_tree,
    leaf_spine,
    rail_optimised,
)
from armillary.platform.topology.planes import in_planes
from armillary.trace import GraphBuilder, Trace

NETWORKS = (
    fat_tree(4, 20.0, 7.0),
    leaf_spine(3, 2, 2, 25.0, 20.0, uplink=30.0),
    leaf_spine(1, 0, 5, 50.0, 9.0),
)


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Topology, int, Any]:
    topology = draw(st.sampled_from(NETWORKS))
    npu = st.integers(0, topology.npus - 1)
    message = st.tuples(npu, npu, st.integers(0, 30_000), st.integers(0, 4) | st.integers(0, 900_000))
    return topology, draw(st.integers(1, 4)), draw(st.lists(message, min_size=1, max_size=12))


TRANSPORTS = (Congestion(), Flow(), Packet(mtu=1000, header=10), Credit(), Tcp(jitter=0), Rdma())
HASHED = (Rdma,)
"""Where there are several ways these take one by numbers of nodes, which differ from plane to plane."""


@settings(max_examples=60, deadline=None)
@given(scenes(), st.sampled_from(TRANSPORTS))
def test_each_plane_is_a_network_alone(scene: tuple[Topology, int, Any], transport: Transport) -> None:
    topology, planes, messages = scene
    assume(not isinstance(transport, HASHED) or topology is NETWORKS[2])
    source, target, size, begin = np.array(messages).T
    together = offer(
        transport, Shortest(in_planes(topology, planes)), source, target, size, begin, mode="interpreted"
    )
    alone = dataclasses.replace(topology, bandwidth=topology.bandwidth / planes)
    arrived = [
        offer(
            transport,
            Shortest(alone),
            source,
            target,
            size // planes + (p < size % planes),
            begin,
            mode="interpreted",
        )
        for p in range(planes)
    ]
    assert together.arrived.tolist() == np.max([each.arrived for each in arrived], axis=0).tolist()
    # All that planes carry, and nothing twice.
    assert together.use.size.sum() == sum(each.use.size.sum() for each in arrived)


@settings(max_examples=5, deadline=None)
@given(scenes())
def test_compiled_and_interpreted_agree(scene: tuple[Topology, int, Any]) -> None:
    topology, planes, messages = scene
    source, target, size, begin = np.array(messages).T
    routing = Shortest(in_planes(topology, planes))
    slow, fast = (
        offer(Flow(), routing, source, target, size, begin, mode=mode) for mode in ("interpreted", "compiled")
    )
    assert slow.arrived.tolist() == fast.arrived.tolist()


def test_planes_meet_in_npus_and_hosts_stay_whole() -> None:
    one = rail_optimised(4, 2, 450.0, 900.0, 50.0, 500.0, hosts_per_unit=2, spines=2)
    two = in_planes(one, 2)
    check_connected(dataclasses.replace(two, forwards=np.ones(two.nodes, np.bool_)))
    counts = {tier.name: tier.count for tier in two.tiers}
    assert counts == {"npu": 8, "host switch": 4, "leaf": 8, "spine": 4}
    inner = two.plane < 0
    assert two.bandwidth[inner].min() == 450.0 and inner.sum() == 16
    # A NIC has 50 GB/s in all, and no switch has links of two planes.
    outer = (two.tail == 0) & ~inner
    assert two.bandwidth[outer].tolist() == [25.0, 25.0] and two.plane[outer].tolist() == [0, 1]
    for switch in range(two.npus, two.nodes):
        assert len(np.unique(two.plane[(two.tail == switch) | (two.head == switch)])) == 1


def machine(planes: int, more: str = "", routing: str = "shortest") -> Any:
    text = "kind: leaf-spine, leaves: 1, spines: 0, npus_per_leaf: 8, bandwidth: 50 GB/s, latency: 500 ns"
    keys = {"planes": str(planes), "routing": routing}
    topology: dict[str, Any] = dict(part.split(": ") for part in text.split(", ")) | keys
    topology |= {key: int(topology[key]) for key in ("leaves", "spines", "npus_per_leaf", "planes")}
    if more:
        topology["failures"] = [{"link": ["npu 0", more]}]
    return {
        "topology": topology,
        "npu": {"memory": {"bandwidth": "3350 GB/s"}},
        "collectives": {"all-to-all": "direct", "chunks": 1},
    }


def ticks(platform: Any, network_model: str = "flow") -> int:
    builder = GraphBuilder()
    builder.all_to_all("exchange", size="8 MiB")
    found = armillary.simulate(
        Trace.replicate(builder.graph(), ranks=8), load_platform(platform), network_model=network_model
    )
    return found.total_ticks


@pytest.mark.parametrize("network_model", ("flow", "congestion"))
def test_a_step_takes_what_it_takes_in_one_plane_of_all_the_bandwidth(network_model: str) -> None:
    assert (
        ticks(machine(1), network_model)
        == ticks(machine(2), network_model)
        == ticks(machine(4), network_model)
    )


def test_a_port_that_fails_leaves_the_others() -> None:
    whole = ticks(machine(2))
    # All that NPU 0 sends and receives goes by one port of two.
    size, latency = 8 << 20, 1000
    assert abs(whole - latency - size * 7 / 8 / 50) < 20
    assert abs(ticks(machine(2, "leaf 0")) - latency - size * 7 / 8 / 25) < 20
    with pytest.raises(InputError, match="no way from npu 1 to npu 0"):
        ticks(machine(1, "leaf 0"))


def test_receivers_grant_credit_for_every_port() -> None:
    """An incast of NDP fills both links into the receiver: one pacer for both would take twice as long."""
    last = [
        offer(
            Rdma(control="ndp"),
            Shortest(in_planes(NETWORKS[2], planes)),
            [1, 2, 3, 4],
            0,
            1 << 17,
            mode="interpreted",
        ).arrived.max()
        for planes in (1, 2)
    ]
    assert last[0] <= last[1] < 1.2 * last[0]


def test_what_does_not_keep_to_a_plane_is_refused() -> None:
    for routing in ("valiant", "ugal", "static"):
        with pytest.raises(InputError, match=f"got '{routing}', expected one of ecmp.* with planes"):
            load_platform(machine(2, routing=routing))
    inside = machine(2)
    inside["topology"]["in_network"] = {}
    with pytest.raises(InputError, match="planes"):
        load_platform(inside)
    with pytest.raises(InputError, match="planes"):
        load_platform(machine(65))
    with pytest.raises(InputError, match="2 planes, expected 1 for a synthesized collective"):
        synthesize(in_planes(NETWORKS[0], 2), "all-gather", 1 << 20)
    with pytest.raises(InputError, match="2 leaves and no spines"):
        leaf_spine(2, 0, 2, 1.0, 1.0)
