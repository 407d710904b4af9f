"""Network model `loggops` against LogGOPSim's model of schedules, closed forms, and network model `analytical`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.convert.front_ends.goal import convert
from armillary.convert.goal.loggops import Model, simulate
from armillary.convert.goal.operation import Operation
from armillary.engine.common.assumptions import without_effect
from armillary.engine.transport.loggops import LogGops
from armillary.engine.transport.offer import offer
from armillary.platform.files.native import load_platform
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.platform.topology import Ecmp, from_dimensions
from armillary.trace import GraphBuilder, Trace

STAR = from_dimensions((Dimension("x", "Switch", 5, 12.5, 250.0),))
VALUES: dict[str, float] = {"L": 700.0, "o": 30.0, "g": 45.0, "G": 0.25, "O": 0.0, "S": 2000.0}


def schedule(messages: list[tuple[int, int, int]]) -> list[list[Operation]]:
    """Return a schedule in which every receive is posted before anything is sent."""
    ranks: list[list[Operation]] = [[] for _ in range(STAR.npus)]
    for tag, (source, target, _) in enumerate(messages):
        ranks[target].append(Operation("recv", 0, source, tag))
    for tag, (source, target, size) in enumerate(messages):
        ranks[source].append(Operation("send", size, target, tag))
    return ranks


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.sampled_from([1, 2, 999, 2000, 30_000])), max_size=14),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 45.0, 2000.0]),
    st.booleans(),
)  # fmt: skip
def test_hosts_end_as_in_loggopsim(
    drawn: list[tuple[int, int, int]], per_byte: float, gap: float, apart: bool
) -> None:
    """A receiver that sends nothing ends with its last message; of all hosts the last one does."""
    # LogGOPSim posts what can start rank by rank, `offer` message by message.
    messages = sorted((m for m in drawn if m[0] != m[1]), key=lambda m: m[0])
    if apart:
        messages = [m for m in messages if m[0] < 2 <= m[1]]
    if not messages:
        return
    values = {**VALUES, "O": per_byte, "g": gap}
    model = Model.of(",".join(f"{name}={value:g}" for name, value in values.items()))
    ends = simulate(schedule(messages), model).ends
    source, target, size = np.array(messages).T
    found = offer(LogGops(**values), Ecmp(STAR), source, target, size, mode="interpreted")
    last = np.zeros(STAR.npus)
    np.maximum.at(last, target, found.arrived / 1000)
    if apart:
        assert np.ceil(last[2:]).tolist() == list(ends[2:])
    if per_byte == 0:
        assert np.ceil(last.max()) == max(ends)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 4), st.integers(0, 4), st.integers(0, 90_000)),
        min_size=1,
        max_size=30,
    )
)
def test_compiled_does_the_same(drawn: list[tuple[int, int, int, int]]) -> None:
    begin, source, target, size = np.array(drawn).T
    one, other = (
        offer(LogGops(o=20, g=10, O=0.02, S=1000), Ecmp(STAR), source, target, size, begin, mode=mode)
        for mode in ("interpreted", "compiled")
    )
    assert one.arrived.tolist() == other.arrived.tolist() and one.arrived.min() >= 0
    assert one.use.size.tolist() == other.use.size.tolist()


def test_closed_forms() -> None:
    model = LogGops(**VALUES)
    L, o, g, G = (VALUES[name] for name in "LogG")
    alone = offer(model, Ecmp(STAR), [0], [1], [4001], mode="interpreted").arrived[0] / 1000
    assert alone == 2 * o + L + 4000 * G
    # Into one receiver, whose CPU and link take one after the other.
    into = offer(model, Ecmp(STAR), [1, 2, 3, 4], 0, 4001, mode="interpreted").arrived.max() / 1000
    assert into == o + L + 3 * (max(o, g) + 4000 * G) + o + 4000 * G
    # Out of one sender, whose link does.
    out = offer(model, Ecmp(STAR), 0, [1, 2, 3, 4], 4001, mode="interpreted").arrived.max() / 1000
    assert out == 3 * (g + 4000 * G) + 2 * o + L + 4000 * G


def machine(algorithm: str, **options: float) -> Platform:
    """Return 8 NPUs of a switch, whose all-reduces are one chunk."""
    level = {"name": "x", "topology": "Switch", "size": 8, "bandwidth": "12.5 GB/s", "latency": "500 ns"}
    return load_platform({
        "network": [level], "collectives": {"chunks": 1, "all-reduce": algorithm},
        "network_model": {"name": "loggops", "options": options},
    })  # fmt: skip


def test_collectives_take_their_closed_forms() -> None:
    """Halving and doubling: 2 log n exchanges of 2 o + L + (s - 1) G; without options the time of `analytical`."""
    step = GraphBuilder()
    step.all_reduce("sum", size=8 << 20)
    trace = Trace.replicate(step.graph(), ranks=8)
    got = armillary.simulate(trace, machine("halving-doubling", L=900, o=150, g=40, G=0.1)).total_ticks
    assert got == pytest.approx(6 * (2 * 150 + 900 - 0.1) + 2 * 7 / 8 * (8 << 20) * 0.1, abs=6)
    plain = armillary.simulate(trace, machine("halving-doubling")).total_ticks
    analytical = armillary.simulate(
        trace, machine("halving-doubling"), network_model="analytical"
    ).total_ticks
    assert plain == pytest.approx(analytical, abs=6)
    # A CPU that takes a message sends nothing: with both directions of a ring at once, half of the time is lost.
    both = armillary.simulate(trace, machine("ring")).total_ticks
    assert 1.4 < both / analytical < 1.6


def test_a_schedule_takes_the_time_that_loggopsim_says(tmp_path: Path) -> None:
    """Three rounds of a ring, through the converter and the engine."""
    path = tmp_path / "ring.goal"
    lines = ["num_ranks 4"]
    for rank in range(4):
        lines.append(f"rank {rank} {{")
        for tag in range(3):
            lines.append(f"s{tag}: send 4001b to {(rank + 1) % 4} tag {tag}")
            lines.append(f"r{tag}: recv 4001b from {(rank + 3) % 4} tag {tag}")
            lines += [f"s{tag} requires r{tag - 1}"] if tag else []
        lines.append("}")
    path.write_text("\n".join(lines) + "\n")
    values = {"L": 1000, "o": 100, "g": 50, "G": 0.25}
    converted = convert([path], loggops=",".join(f"{name}={value}" for name, value in values.items()))
    level = {"name": "x", "topology": "Switch", "size": 4, "bandwidth": "12.5 GB/s", "latency": "500 ns"}
    four = load_platform({"network": [level], "network_model": {"name": "loggops", "options": values}})
    ticks = armillary.simulate(converted.trace, four).total_ticks
    assert ticks == max(converted.facts["loggops_ns"]) == 3 * (2 * 100 + 1000 + 4000 * 0.25)


def test_a_rate_beyond_the_links_is_said() -> None:
    warned = list(without_effect(machine("ring", G=0.01), "loggops"))
    assert (
        len(warned) == 1
        and "options.G of 0.01 ns per byte is faster than a link (12.5 bytes per ns)" in warned[0]
    )
    assert not list(without_effect(machine("ring", G=0.08), "loggops"))


@pytest.mark.parametrize("until", ["400 us", None])
def test_a_link_that_is_down_stops_messages(until: str | None) -> None:
    failure = {"link": ["npu 0", "leaf 0"], "at": "1 us"} | ({"until": until} if until else {})
    tree = {"kind": "leaf-spine", "leaves": 2, "spines": 1, "npus_per_leaf": 2, "bandwidth": "10 GB/s",
            "latency": "100 ns", "failures": [failure]}  # fmt: skip
    platform = load_platform({"topology": tree, "network_model": "loggops"})
    sends, takes = GraphBuilder(), GraphBuilder()
    # The link goes down while the first is on its way, and before the second leaves.
    for tag in range(2):
        sends.send(3, 20_000, tag)
        takes.recv(0, 20_000, tag)
    idle = GraphBuilder().graph()
    trace = Trace.from_ranks([sends.graph(), idle, idle, takes.graph()])
    if until is None:
        with pytest.raises(StuckError, match="npu 0"):
            armillary.simulate(trace, platform)
        return
    assert armillary.simulate(trace, platform).total_ticks == 400_000 + 400 + 2000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"L": -1}, "L: got -1, expected 0 to 1e9 ns"),
        ({"G": float("nan")}, "G: got nan, expected 0 to 1e9 ns per byte"),
        ({"o": "fast"}, "o: got 'fast', expected 0 to 1e9 ns"),
        ({"S": 1e10}, "S: got 10000000000.0, expected 0 to 1e9 bytes"),
        ({"O": True}, "O: got True"),
    ],
)
def test_values_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="loggops: .*" + message):
        LogGops(**options)
