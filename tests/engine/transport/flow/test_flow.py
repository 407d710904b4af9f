from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.base.jit import load
from armillary.engine.transport import layout as lk
from armillary.engine.transport.flow import Flow
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.offer import offer
from armillary.engine.transport.transport import Room, first_state
from armillary.engine.transport.use import link_use
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.routing import Ecmp, Shortest
from armillary.platform.topology.trees import fat_tree, leaf_spine
from armillary.platform.topology.wiring import Wiring

from .flow_reference import Message, arrivals


def line(bandwidths: list[float], latency: float = 500.0) -> Topology:
    """NPUs in a row."""
    wiring = Wiring("line", len(bandwidths) + 1)
    at = np.arange(len(bandwidths))
    wiring.connect(at, at + 1, "link", np.array(bandwidths), latency)
    return dataclasses.replace(wiring.topology(), forwards=np.ones(wiring.nodes, bool))


def move(
    stages: list[tuple[int, Topology]], messages: list[Message], ends: list[tuple[int, int]]
) -> tuple[list[int], Any]:
    """Let messages and stages begin when they do; returns the times of arrival and the state in the end."""
    parts, routes = [Stage(time / lk.PS, Shortest(topology)) for time, topology in stages], Routes()
    routes.add(parts[0], [a for a, _ in ends], [b for _, b in ends])
    transport, topology = Flow([m.weight for m in messages]), stages[0][1]
    table = lower_network(parts, routes, transport.options(topology), transport.tables(topology)).tolist()
    kernel = load(transport.kernel, "interpreted", "flow")
    events = load("armillary.engine.transport.queue_kernel", "interpreted", "flow")
    net, room = first_state(transport, topology, "interpreted", routes.count), Room(transport, "interpreted")
    arrived = [-1] * len(messages)
    begins = sorted({m.begin for m in messages} | {time for time, _ in stages})
    for limit in [*begins, lk.FOREVER]:
        now = -1
        while now < limit:
            room.fit(net)
            net[lk.N_STATUS] = lk.OK
            now = kernel.advance(table, net, room.pool, room.queue, limit)
            while (cookie := events.take_delivered(net, room.pool)) >= 0:
                arrived[cookie] = now
        for number, (time, _) in enumerate(stages):
            if time == limit and number > 0:
                net[lk.N_STAGE] = number
                kernel.change(table, net, room.pool, room.queue, limit)
        for i, message in enumerate(messages):
            if message.begin == limit:
                room.fit(net)
                kernel.inject(table, net, room.pool, room.queue, i, i, message.size, message.key, limit)
    return arrived, net


def topologies() -> st.SearchStrategy[Topology]:
    paces = st.lists(st.sampled_from([0.3, 1.0, 2.5, 10.0, 12.5, 50.0, 77.7]), min_size=3, max_size=6)
    return st.one_of(
        paces.map(line),
        st.sampled_from([fat_tree(4, 10.0, 7.0), leaf_spine(3, 2, 2, 25.0, 20.0, uplink=30.0)]),
    )


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[tuple[int, Topology]], list[Message], list[tuple[int, int]]]:
    topology = draw(topologies())
    npu = st.integers(0, topology.npus - 1)
    ends = draw(st.lists(st.tuples(npu, npu), min_size=1, max_size=14))
    paths = Shortest(topology).paths([a for a, _ in ends], [b for _, b in ends])
    begin = st.integers(0, 4) | st.integers(0, 300_000)
    size = st.sampled_from([0, 1, 1000, 10_000]) | st.integers(0, 20_000)
    keys = draw(st.sampled_from([st.integers(-1, 1), st.just(0)]))
    messages = [
        Message(
            draw(begin),
            paths[i].tolist(),
            draw(size),
            draw(keys),
            draw(st.sampled_from([1, 1, 2, 7])),
        )
        for i in range(len(ends))
    ]
    stages = [(0, topology)]
    for time in sorted(draw(st.sets(st.integers(1, 400_000), max_size=3))):
        share = draw(
            st.lists(st.sampled_from([1.0, 1.0, 0.5, 0.0]), min_size=topology.links, max_size=topology.links)
        )
        stages.append((time, dataclasses.replace(topology, bandwidth=topology.bandwidth * share)))
    return stages, messages, ends


@settings(max_examples=50, deadline=None)
@given(scenes())
def test_equal_to_the_reference_that_finds_all_levels_anew(scene: Any) -> None:
    stages, messages, ends = scene
    arrived, net = move(stages, messages, ends)
    assert arrived == arrivals(messages, stages)
    if -1 not in arrived:
        carried = np.zeros(stages[0][1].links, np.int64)
        for message in messages:
            carried[message.route] += message.size
        use = link_use(np.asarray(net), stages[0][1])
        assert use.size.tolist() == carried.tolist() == use.series.sum(axis=1).tolist()


@settings(max_examples=30, deadline=None)
@given(topologies(), st.data())
def test_compiled_equals_the_reference_and_no_message_beats_its_bound(
    topology: Topology, data: st.DataObject
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    count = data.draw(st.integers(1, 40))
    source, target = rng.integers(0, topology.npus, (2, count))
    size, begin, key = (
        rng.integers(1, 20_000, count),
        rng.integers(0, 3, count) * 1000,
        rng.integers(0, data.draw(st.sampled_from([1, 3])), count),
    )
    weight = rng.integers(1, 5, count)
    routing = Ecmp(topology)
    done = offer(Flow(weight), routing, source, target, size, begin, key=key, flow=np.arange(count))
    paths = routing.paths(source, target, np.arange(count))
    messages = [
        Message(int(begin[i]), paths[i].tolist(), int(size[i]), int(key[i]), int(weight[i]))
        for i in range(count)
    ]
    assert done.arrived.tolist() == arrivals(messages, [(0, topology)])
    for message, arrived in zip(messages, done.arrived.tolist(), strict=True):
        slowest = max(
            (message.size * lk.PS / topology.bandwidth[link] for link in message.route), default=0.0
        )
        latency = lk.PS * sum(topology.latency[link] for link in message.route)
        assert arrived - message.begin >= slowest + latency - 1e-3


def test_one_message_takes_its_size_over_the_slowest_link_and_the_latencies() -> None:
    done = offer(Flow(), Shortest(line([10.0, 3.0, 50.0])), [0, 1], [3, 1], [3_000_000, 5], [0, 17])
    assert done.arrived.tolist() == [10**9 + 1_500_000, 17]
    assert done.use.busy[[0, 2, 4]].tolist() == [10**9] * 3
    assert done.use.size.tolist() == [3_000_000, 0, 3_000_000, 0, 3_000_000, 0]


def test_shares_by_weight_and_lets_urgent_ones_go_first() -> None:
    # 3 : 1 on one link of 10 bytes/ns; when the first has gone, 300 bytes are left to the other.
    done = offer(Flow([3, 1]), Shortest(line([10.0], 0.0)), 0, 1, [300, 400])
    assert done.arrived.tolist() == [40_000, 70_000]
    # The urgent one takes all until it has gone, though it came later.
    done = offer(Flow(), Shortest(line([10.0], 0.0)), 0, 1, [1000, 1000], [0, 50_000], key=[7, 3])
    assert done.arrived.tolist() == [200_000, 150_000]


def test_max_min_of_three_on_two_links() -> None:
    # The parking lot (Bertsekas, Gallager, §6.5.2): the long one gets half of the narrow link, others the rest.
    topology = line([10.0, 4.0], 0.0)
    done = offer(Flow(), Shortest(topology), [0, 0, 1], [2, 1, 2], [200, 800, 200])
    assert done.arrived.tolist() == pytest.approx([100_000] * 3, abs=1)


def test_use_over_time_is_that_of_the_shares() -> None:
    done = offer(Flow(), Shortest(line([10.0], 0.0)), 0, 1, 10**6, [0, 50_000_000])
    shares = done.use.utilisation(line([10.0], 0.0))[0]
    assert shares[:-1] == pytest.approx(1.0, abs=1e-2)
    assert done.use.busy[0] == 200_000_000


def test_messages_of_a_link_that_is_down_wait_until_it_is_up() -> None:
    topology = line([10.0], 0.0)
    down = dataclasses.replace(topology, bandwidth=topology.bandwidth * 0)
    message = Message(0, [0], 1000)
    assert move([(0, topology), (40_000, down), (90_000, topology)], [message], [(0, 1)])[0] == [150_000]
    assert move([(0, topology), (40_000, down)], [message], [(0, 1)])[0] == [-1]


@pytest.mark.parametrize("weight", [0, 1.5, 1 << 17])
def test_weights_are_whole_numbers(weight: float) -> None:
    with pytest.raises(
        InputError, match=r"flow: weights: got .* for route 1, expected whole numbers from 1 to"
    ):
        Flow([1, weight])
