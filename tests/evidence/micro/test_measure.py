"""Times and bandwidths against closed forms: steps x latency + bytes ÷ bandwidth."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log2

import pytest

from armillary.base.errors import InputError
from armillary.evidence.micro import measure, measure_beside
from armillary.platform import Dimension, Platform, read_platform
from armillary.platform.kernels import Compute
from armillary.workload.micro import COLLECTIVES, PATTERNS, Case, sizes, sweep

LATENCY, RATE = 500.0, 100.0
SWEPT = sizes(1 << 10, 1 << 30, 8)


def machine(topology: str, *shape: int) -> Platform:
    """NPUs with a port of `RATE` bytes per ns in every dimension."""
    links = {"Ring": 2, "Switch": 1}[topology]
    return Platform(
        tuple(Dimension(f"dim {d}", topology, n, RATE / links, LATENCY) for d, n in enumerate(shape))
    )


def twice(n: int) -> int:
    """Hops of halving-doubling over a switch: two links in each of log2 n rounds."""
    return int(2 * log2(n))


@pytest.mark.parametrize("n", [2, 8, 64])
@pytest.mark.parametrize(
    ("topology", "test", "hops", "share"),
    [
        ("Ring", "all-reduce", lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n),
        ("Ring", "all-gather", lambda n: n - 1, lambda n: (n - 1) / n),
        ("Ring", "reduce-scatter", lambda n: n - 1, lambda n: (n - 1) / n),
        ("Switch", "all-reduce", lambda n: 2 * twice(n), lambda n: 2 * (n - 1) / n),
        ("Switch", "all-gather", twice, lambda n: (n - 1) / n),
        ("Switch", "reduce-scatter", twice, lambda n: (n - 1) / n),
        ("Switch", "all-to-all", lambda n: 2, lambda n: (n - 1) / n),
    ],
)
def test_collectives_take_their_closed_form(topology, test, hops, share, n):
    if topology == "Ring" and n == 2:
        pytest.skip("both directions of a ring of two are the same wire")
    results = measure(sweep([test], n, SWEPT), machine(topology, n))
    assert [result.case.size for result in results] == SWEPT
    for result in results:
        exact = hops(n) * LATENCY + share(n) * result.case.size / RATE
        assert exact <= result.time_ns <= ceil(exact) + 2
        algorithm, bus = result.bandwidths
        assert algorithm == pytest.approx(result.case.size / result.time_ns)
        assert bus == pytest.approx(algorithm * share(n))
    rates = [result.bandwidths[1] for result in results]
    assert rates == sorted(rates) and 0.98 * RATE < rates[-1] <= RATE


@pytest.mark.parametrize("members", [4, 16])
def test_groups_do_not_disturb_each_other(members):
    """On a switch, 64 / n groups at once take as long as one machine of n."""
    alone = measure(sweep(COLLECTIVES, members, SWEPT), machine("Switch", members))
    together = measure(sweep(COLLECTIVES, 64, SWEPT, [members]), machine("Switch", 64))
    assert [each.time_ns for each in together] == [each.time_ns for each in alone]


@pytest.mark.parametrize("test", [*COLLECTIVES, *PATTERNS])
def test_bus_bandwidth_never_beats_the_port(test):
    for result in measure(sweep([test], 16, SWEPT), machine("Switch", 16)):
        assert result.bandwidths[1] is None or 0 < result.bandwidths[1] <= RATE
        assert (result.bandwidths[1] is None) == (test == "barrier")


@pytest.mark.parametrize(
    ("test", "messages"),
    [("ping-pong", 1), ("unidirectional", 1), ("bidirectional", 1), ("ring", 1), ("ring-bidirectional", 2),
     ("bisection", 1), ("bisection-bidirectional", 1), ("all-pairs", 7), ("incast", 7), ("outcast", 7)],
)  # fmt: skip
def test_messages_take_their_closed_form(test, messages):
    """Of a port that several messages share, each has its part; a ping-pong is half of there and back."""
    for result in measure(sweep([test], 8, SWEPT), machine("Switch", 8)):
        exact = 2 * LATENCY + messages * result.case.size / RATE
        assert exact <= result.time_ns <= ceil(exact) + 1
        assert result.bandwidths[0] == pytest.approx(result.case.size / result.time_ns)
        assert result.bandwidths[1] == pytest.approx(messages * result.case.size / result.time_ns)


def test_a_ring_of_messages_folds_to_one_rank():
    from armillary.engine import simulate

    for test in ("ring", "ring-bidirectional", "all-pairs"):
        timeline = simulate(Case(test, 64, 64, 1024).trace(), machine("Switch", 64))
        assert len(timeline.finish) == 1


@pytest.mark.parametrize("ratio", [0.25, 1.0, 3.0])
def test_compute_beside_a_collective_is_hidden(ratio):
    platform = machine("Switch", 8)
    alone = measure(sweep(["all-reduce", "ring"], 8, SWEPT), platform)
    beside = measure_beside(alone, [ratio], platform)
    assert [each.case.test for each in beside] == ["all-reduce"] * len(SWEPT)
    for one, both in zip(alone, beside, strict=False):
        assert both.compute_ns == round(one.time_ns * ratio) and both.alone_ns == one.time_ns
        assert both.time_ns == max(both.compute_ns, one.time_ns) and both.hidden == 1.0
        assert both.bandwidths == (None, None)


def test_the_share_that_was_hidden():
    (alone,) = measure([Case("all-reduce", 8, 8, 64)], machine("Switch", 8))
    assert alone.hidden is None
    case = replace(alone.case, compute_ns=100)
    (result,) = measure([case], machine("Switch", 8))
    assert replace(result, time_ns=120.0, alone_ns=40.0, compute_ns=100.0).hidden == 0.5


def astra_sim(**more: object) -> Platform:
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    system = {
        "scheduling-policy": "LIFO", "endpoint-delay": 0, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1, "collective-optimization": "baseline", "local-mem-bw": 10**6,
        **{f"{name}-implementation": ["ring"] for name in names}, **more,
    }  # fmt: skip
    network = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50.0], "latency": [500.0]}
    return read_platform(system, network)


def test_profile_astra_sim():
    """A ring all-reduce there: 2(n-1) messages of S/n bytes, one after the other, in one direction."""
    (result,) = measure(sweep(["all-reduce"], 8, [1 << 20]), astra_sim(), profile="astra-sim")
    step = 500 + (1 << 17) / (50 * 2**30 / 1e9)
    assert result.time_ns == pytest.approx(14 * step, rel=1e-3)
    rounded = measure_beside(
        [result], [1.0], astra_sim(**{"roofline-enabled": 1, "peak-perf": 1}), profile="astra-sim"
    )
    assert rounded[0].compute_ns == round(result.time_ns / 1000) * 1000


def test_what_a_profile_does_not_model():
    with pytest.raises(InputError, match=r"broadcast: profile astra-sim.*all-to-all"):
        measure(sweep(["broadcast"], 8, [64]), astra_sim(), profile="astra-sim")
    replay = replace(machine("Ring", 8), compute=Compute(replay=True))
    with pytest.raises(InputError, match="replay-only"):
        measure(sweep(["ring"], 8, [64]), replay)


def test_groups_of_the_platform_give_way():
    platform = replace(machine("Switch", 8), groups={1: (0, 7)})
    (result,) = measure(sweep(["all-reduce"], 8, [1 << 20], [4]), platform)
    assert result.time_ns == measure([Case("all-reduce", 4, 4, 1 << 20)], machine("Switch", 4))[0].time_ns
