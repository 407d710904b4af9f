"""TCP over drop-tail queues: closed forms, what recovery must do, and both modes of the kernel."""

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
from armillary.engine.transport.network import Routes, Stage, lower_network
from armillary.engine.transport.ns3 import library
from armillary.engine.transport.ns3.transport import Ns3
from armillary.engine.transport.offer import Offered, offer
from armillary.engine.transport.tcp import layout as tk
from armillary.engine.transport.tcp.transport import ALGORITHMS, Tcp
from armillary.platform.network import Dimension
from armillary.platform.topology import Ecmp, Routing, Shortest, from_dimensions, leaf_spine
from armillary.platform.topology.graph import UNBOUNDED
from armillary.platform.topology.wiring import Wiring

MSS, HEADER = 1448, 90
ENDLESS = Tcp(buffer=UNBOUNDED, jitter=0)


def run(tcp: Tcp, routing: Routing, *messages: Any, **options: Any) -> Offered:
    return offer(tcp, routing, *messages, **{"mode": "interpreted"} | options)


def star(npus: int, bandwidth: float = 1.25, latency: float = 500.0, buffer: int = UNBOUNDED) -> Shortest:
    """NPUs at one switch; 10 Gbit/s, and a buffer for each of its ports."""
    return Shortest(leaf_spine(1, 1, npus, bandwidth, latency, buffer=buffer))


def slow_start(segments: int, tcp: Tcp, bandwidth: float, latency: float) -> int:
    """Return the ps at which the last of `segments` full ones arrives over two links, every one acknowledged."""
    times = [round(size / bandwidth * 1000) for size in (MSS + HEADER, HEADER)]
    free, allowed = [0] * 4, [0] * tcp.initial_window
    for number in range(segments):
        time = allowed[number]
        for hop in range(4):
            free[hop] = max(free[hop], time) + times[hop // 2]
            time = free[hop] + round(latency * 1000)
            if hop == 1:
                arrived = time
        allowed += [time, time]
    return arrived


@pytest.mark.parametrize("segments", [1, 10, 11, 40, 500])
@pytest.mark.parametrize("latency", [500.0, 50_000.0])
def test_one_connection_goes_through_slow_start_to_the_rate_of_the_line(
    segments: int, latency: float
) -> None:
    tcp = dataclasses.replace(ENDLESS, ack_every=1)
    done = run(tcp, star(2, latency=latency), 0, 1, segments * MSS)
    assert done.arrived.tolist() == [slow_start(segments, tcp, 1.25, latency)]
    assert done.use.size.max() == segments * (MSS + HEADER)


def test_delayed_acknowledgements_halve_those_sent_and_slow_the_start() -> None:
    each, both = (
        run(dataclasses.replace(ENDLESS, ack_every=n), star(2, latency=50_000), 0, 1, 400 * MSS)
        for n in (1, 2)
    )
    assert np.sort(each.use.size)[:4].max() == 400 * HEADER
    assert np.sort(both.use.size)[:4].max() == 200 * HEADER
    assert both.arrived[0] > 1.2 * each.arrived[0]


@pytest.mark.parametrize("quick", [0, 1, 3])
@pytest.mark.parametrize("persistent", [True, False])
def test_the_first_segments_may_be_acknowledged_at_once(quick: int, persistent: bool) -> None:
    # A window of one segment, which the receiver answers when its patience ends, unless it is quick.
    tcp = dataclasses.replace(
        ENDLESS, initial_window=1, quick_acks=quick, ack_delay=1.0, persistent=persistent, growth=1
    )
    begin = 10 * 10**9
    first, second = run(tcp, star(2), [0, 0], [1, 1], [2 * MSS] * 2, [0, begin]).arrived
    patience = 10**9
    assert (first > patience) == (quick == 0)
    # A new connection is quick again; one that stays has a window of more than one segment by then.
    assert (second - begin > patience) == (quick == 0 and not persistent)


def test_a_window_limits_what_is_in_flight() -> None:
    tcp = dataclasses.replace(ENDLESS, window=10 * MSS, ack_every=1)
    round_trip = (MSS + 2 * HEADER + MSS) * 800 + HEADER * 2 * 800 + 4 * 50_000_000
    done = run(tcp, star(2, latency=50_000), 0, 1, 100 * MSS).arrived[0]
    assert done == pytest.approx(9.5 * round_trip, rel=0.02)


def test_connections_keep_their_window_if_they_persist() -> None:
    line = star(2, latency=50_000)
    size, begin = 100 * MSS, [0, 10**11]
    kept, fresh = (
        run(dataclasses.replace(ENDLESS, persistent=yes), line, 0, 1, size, begin).arrived - begin
        for yes in (True, False)
    )
    assert kept[0] == fresh[0] == fresh[1]
    assert kept[1] < 0.6 * kept[0]
    waited = run(dataclasses.replace(ENDLESS, handshake=True), line, 0, 1, size, begin).arrived - begin
    assert (waited - kept).tolist() == [4 * 50_000_000 + 4 * HEADER * 800, 0]


def test_messages_of_a_connection_arrive_in_order_and_those_to_oneself_at_once() -> None:
    arrived = run(ENDLESS, star(3), [0, 0, 1, 0], [1, 1, 1, 1], [50_000, 0, 7, 20], [5, 5, 9, 5]).arrived
    assert arrived[2] == 9
    assert 0 < arrived[0] <= arrived[1] <= arrived[3]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("sack", [True, False])
def test_all_arrives_over_tiny_buffers(algorithm: Any, sack: bool) -> None:
    tcp = Tcp(algorithm, sack=sack, min_rto=1)
    done = run(tcp, star(9, buffer=MSS + HEADER), np.arange(1, 9), 0, 100_000)
    assert done.arrived.min() > 0
    assert done.use.drops.sum() > 50
    payload = 8 * 100_000 + HEADER * -(-100_000 // MSS) * 8
    assert done.use.size.max() >= payload


def test_sack_repairs_many_losses_in_a_round_trip() -> None:
    line = star(3, latency=50_000, buffer=100_000)
    late = {
        sack: run(Tcp("newreno", sack=sack, min_rto=1000), line, [0, 1], 2, 4 << 20).arrived.max()
        for sack in (True, False)
    }
    assert late[True] < 0.8 * late[False]


def test_two_flows_share_a_link() -> None:
    for algorithm in ALGORITHMS:
        arrived = run(Tcp(algorithm, min_rto=10), star(3, buffer=150_000), [0, 1], 2, 8 << 20).arrived  # type: ignore[arg-type]
        line = 2 * (8 << 20) * (MSS + HEADER) / MSS / 1.25 * 1000
        assert line < arrived.max() < 1.15 * line
        assert arrived.min() > 0.75 * arrived.max()


def test_dctcp_keeps_the_queue_at_the_mark() -> None:
    line = star(4, buffer=1 << 20)
    depth = {}
    for mark in (30_000, 120_000):
        use = run(Tcp("dctcp", mark=mark), line, [0, 1, 2], 3, 8 << 20).use
        assert use.drops.sum() == 0
        assert use.marks.sum() > 50
        busiest = int(np.argmax(use.size))
        assert use.busy[busiest] > 0.97 * 3 * (8 << 20) * (MSS + HEADER) / MSS * 800
        depth[mark] = np.median(use.depths[busiest, use.series[busiest] > 0])
        assert 0.5 * mark < depth[mark] < 2 * mark
    assert depth[30_000] < 0.5 * depth[120_000]


@pytest.mark.slow
def test_cubic_wins_back_a_large_window_sooner() -> None:
    narrow = Wiring("narrow", 2)
    switch = narrow.tier("switch", 1)
    narrow.connect(0, switch, "in", 1.25, 5e6)
    narrow.connect(switch, 1, "out", 0.625, 5e6, buffer=3_000_000)
    routing = Shortest(narrow.topology())
    newreno, cubic = (
        run(Tcp(name), routing, 0, 1, 1 << 27, mode="compiled").arrived[0]
        for name in ("newreno", "cubic")  # type: ignore[arg-type]
    )
    assert cubic < 0.97 * newreno


def test_a_connection_over_a_dead_link_is_given_up() -> None:
    routing = star(2)
    tcp = Tcp(min_rto=1, retries=3)
    small = dataclasses.replace(routing.topology, buffer=np.full(routing.topology.links, 2000))
    down = small.bandwidth.copy()
    down[small.head == 1] = 0
    routes, stages = Routes(), [Stage(0.0, Shortest(small))]
    routes.add(stages[0], 0, 1)
    dead = dataclasses.replace(small, bandwidth=down)
    transport = tcp.on(stages, routes)
    table = lower_network(
        [Stage(0.0, Shortest(dead))], routes, transport.options(dead), transport.tables(dead)
    ).tolist()
    from armillary.engine.transport.transport import Room, first_state

    net, room = first_state(transport, dead, "interpreted", routes.count), Room(transport, "interpreted")
    room.fit(net)
    kernel = load(
        "armillary.engine.transport.offer_kernel", "interpreted", "armillary.engine.transport.tcp.tcp_kernel"
    )
    arrived, number, net[lk.N_STATUS] = [-1], 0, lk.GROW
    while net[lk.N_STATUS] == lk.GROW:
        room.fit(net)
        number = kernel.run(table, net, room.pool, room.queue, [0, 0, 100_000, 0], arrived, number, 100)
    assert arrived == [-1]
    assert net[lk.N_QUEUE] == 0
    assert net[lk.N_IN_FLIGHT] == 1


@st.composite
def traffic(draw: st.DrawFn) -> tuple[Tcp, Routing, list[list[int]]]:
    buffer = draw(st.sampled_from([1600, 5_000, 40_000, UNBOUNDED]))
    topology = leaf_spine(2, 2, 2, draw(st.sampled_from([1.25, 12.5])), 500, buffer=buffer)
    tcp = Tcp(
        draw(st.sampled_from(ALGORITHMS)), sack=draw(st.booleans()), min_rto=draw(st.sampled_from([0.1, 5.0])),
        ack_every=draw(st.integers(1, 3)), persistent=draw(st.booleans()), jitter=draw(st.sampled_from([0, 1000])),
        growth=draw(st.integers(1, 2)), quick_acks=draw(st.integers(0, 3)),
        seed=draw(st.integers(0, 9)), mark=draw(st.sampled_from([0, 3000])),
    )  # fmt: skip
    npu = st.integers(0, 3)
    message = st.tuples(npu, npu, st.integers(0, 60_000), st.integers(0, 200_000))
    rows = draw(st.lists(message, min_size=1, max_size=12))
    return tcp, Ecmp(topology), [list(column) for column in zip(*rows, strict=True)]


@settings(max_examples=30, deadline=None)
@given(traffic())
def test_compiled_is_interpreted_and_all_arrives(case: tuple[Tcp, Routing, list[list[int]]]) -> None:
    tcp, routing, messages = case
    slow, fast = (run(tcp, routing, *messages, mode=mode) for mode in ("interpreted", "compiled"))
    assert (slow.arrived >= messages[3]).all()
    assert slow.arrived.tolist() == fast.arrived.tolist()
    assert slow.events == fast.events
    for name in ("size", "drops", "marks", "depth", "series"):
        assert np.array_equal(getattr(slow.use, name), getattr(fast.use, name))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=15),
    st.integers(0, 70),
    st.integers(0, 70),
)
def test_intervals_are_sets_of_bytes(added: list[tuple[int, int]], below: int, limit: int) -> None:
    kernel: Any = load("armillary.engine.transport.tcp.tcp_interval_kernel", "interpreted", "tcp")
    net, pool = [0] * 64, [0] * 1000
    net[lk.N_POOL] = lk.P_COLUMNS
    reference: set[int] = set()
    for begin, size in added:
        new = set(range(begin, begin + size))
        row, fresh = kernel.add(net, pool, 60, begin, begin + size)
        assert fresh == len(new - reference)
        assert pool[row + tk.S_FROM] <= begin < begin + size <= pool[row + tk.S_TO]
        reference |= new
    if added:
        assert kernel.highest(net, pool, 60) == max(reference) + 1
    holes = [byte for byte in range(below, limit) if byte not in reference]
    first, end = kernel.gap(net, pool, 60, below, limit)
    assert first == (holes[0] if holes else -1)
    assert not holes or set(range(first, end)) <= set(holes)
    assert not holes or end == limit or end in reference
    assert kernel.missing(net, pool, 60, below, limit) == len(holes)
    lost = [
        byte
        for byte in range(100)
        if byte not in reference and len([one for one in reference if one > byte]) > 10
    ]
    edge = kernel.edge(net, pool, 60, len(reference), 10)
    assert not lost or edge == max(lost) + 1
    assert kernel.cut(net, pool, 60, below) == len([byte for byte in reference if byte < below])
    assert kernel.missing(net, pool, 60, 0, 100) == 100 - len([byte for byte in reference if byte >= below])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "cubik"}, "'cubik', expected one of newreno, cubic, dctcp .*'cubic'"),
        ({"mss": 0}, "mss is 0, expected 1 to"),
        ({"buffer": 1000}, "buffer is 1000, expected at least 1538"),
        ({"window": 100}, "window is 100, expected at least 1448"),
        ({"max_rto": 100}, "max_rto is 100, expected 200 to"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Tcp(**options)


def test_networks_that_cannot_carry_tcp_are_refused() -> None:
    with pytest.raises(
        InputError, match="buffer of the link from npu 0 to leaf 0 is 1000 bytes, expected at least a"
    ):
        run(Tcp(), star(2, buffer=1000), 0, 1, 1)
    one_way = Wiring("ring", 3)
    one_way.connect([0, 1, 2], [1, 2, 0], "ring", 1.0, 1.0, one_way=True)
    with pytest.raises(InputError, match="no link leads from npu 1 back to npu 0"):
        run(Tcp(), Shortest(one_way.topology(forwards=True)), 0, 1, 1)
    torus = from_dimensions([Dimension("d", "Ring", 4, 10.0, 100.0)])
    assert run(Tcp(), Shortest(torus), 0, 2, 10_000).arrived[0] > 0


@pytest.mark.skipif(not library.available(), reason="needs ns-3: pip install armillary[ns3]")
@pytest.mark.parametrize("pattern", ["incast", "permutation", "all-to-all"])
def test_windows_are_those_of_ns3(pattern: str) -> None:
    npus = np.arange(8)
    source, target = {
        "incast": (npus[1:], np.zeros(7, np.int64)),
        "permutation": (npus, np.array([5, 6, 7, 4, 1, 0, 3, 2])),
        "all-to-all": (np.repeat(npus, 7), np.concatenate([np.delete(npus, npu) for npu in npus])),
    }[pattern]
    begin = np.random.default_rng(1).integers(0, 10**7, len(source))
    tcp = Tcp("newreno", header=54, ack_delay=200, min_rto=1000, persistent=False, handshake=True, jitter=10)
    routing = Ecmp(leaf_spine(4, 2, 2, 12.5, 500))
    ours = (
        offer(dataclasses.replace(tcp, buffer=UNBOUNDED), routing, source, target, 1 << 20, begin).arrived
        - begin
    )
    theirs = offer(Ns3("reno"), routing, source, target, 1 << 20, begin, mode="interpreted").arrived - begin
    assert ours.max() == pytest.approx(theirs.max(), rel=0.10)
    assert ours.mean() == pytest.approx(theirs.mean(), rel=0.05)
