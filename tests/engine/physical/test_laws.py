"""What must hold for any machine: bounds, monotony, scaling, and the closed forms of one chunk on an idle network."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import armillary
from armillary.engine.common.network import CollectiveCall, Communicator
from armillary.engine.common.timeline import Timeline
from armillary.engine.physical.chunk_routes import chunk_routes_of
from armillary.platform.model import Collectives, Platform
from armillary.platform.network import Dimension, Port
from armillary.report import bound
from armillary.trace import CollectiveType, GraphBuilder, Trace

OPERATIONS = [kind for kind in CollectiveType if kind.name not in ("BARRIER",)]
TOPOLOGIES = ["Ring", "FullyConnected", "Switch", "Mesh", "Torus"]


def machine(*dimensions: tuple[str, int, float, float], **keys: Any) -> Platform:
    """A platform of (topology, size, bytes per ns of a port, latency) with one algorithm for all, or natural."""
    name = keys.pop("algorithm", None)
    kinds = [kind.name.lower().replace("_", "-") for kind in CollectiveType]
    algorithms = {kind: (name,) * len(dimensions) for kind in kinds} if name else {}
    return Platform(
        tuple(Dimension(f"d{i}", t, n, b, a, Port(b, b)) for i, (t, n, b, a) in enumerate(dimensions)),  # type: ignore[arg-type]
        collectives=Collectives(algorithms, **keys),
    )


def run(platform: Platform, kind: CollectiveType, size: int) -> Timeline:
    """Run one collective on all NPUs."""
    builder = GraphBuilder()
    builder.collective("c", kind, size)
    return armillary.simulate(Trace.replicate(builder.graph(), ranks=platform.npus), platform)


def took(platform: Platform, kind: CollectiveType, size: int) -> int:
    """Return the ticks of one collective."""
    return run(platform, kind, size).total_ticks


def chosen(platform: Platform, kind: CollectiveType, size: int) -> list[tuple[int, str, int | None]]:
    """Return dimension, algorithm and parts of every phase.

    A dimension takes the algorithm of a rooted collective by the time that it takes alone. So a slightly better machine
    may take one that is worse beside a slower dimension: the laws are about machines that choose alike.
    """
    call = CollectiveCall(0, kind.name.lower().replace("_", "-"), size, None)
    everyone = Communicator(0, np.arange(platform.npus), world=True)
    phases = chunk_routes_of(call, everyone, platform).phases
    return [(phase.dim, phase.algorithm, phase.parts) for phase in phases]


@st.composite
def machines(draw: Any, latency: bool = True, algorithms: bool = True) -> Platform:
    """Machines of one to three dimensions."""
    dimensions = [
        (
            draw(st.sampled_from(TOPOLOGIES)), draw(st.integers(2, 6)), draw(st.sampled_from([0.5, 3.0, 50.0, 333.3])),
            draw(st.sampled_from([0.0, 0.6, 20.0, 500.0])) if latency else 0.0,
        )
        for _ in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    name = draw(st.sampled_from([None, "natural"] + (["auto"] if algorithms else [])))
    return machine(*dimensions, algorithm=name, chunks=draw(st.sampled_from([1, 1, 2, 5, 16])))


jobs = st.tuples(st.sampled_from(OPERATIONS), st.sampled_from([1, 1000, 65_536, 1_000_003, 1 << 30]))


@settings(deadline=None)
@given(machines(), jobs)
def test_no_run_beats_its_bound(platform: Platform, job: tuple[CollectiveType, int]) -> None:
    timeline = run(platform, *job)
    found = bound(timeline)
    assert (job[1] >= 65_536) <= found.ticks <= timeline.total_ticks


def _faster(platform: Platform, d: int, bandwidth: float, latency: float) -> Platform:
    old = platform.dimensions[d]
    port = Port(old.port.out * bandwidth, old.port.into * bandwidth) if old.port else None
    new = replace(old, bandwidth=old.bandwidth * bandwidth, port=port, latency=old.latency * latency)
    return replace(platform, dimensions=(*platform.dimensions[:d], new, *platform.dimensions[d + 1 :]))


@settings(deadline=None)
@given(machines(algorithms=False), jobs, st.integers(0, 2), st.sampled_from([1.01, 1.5, 2, 7]))
def test_more_bandwidth_is_never_slower(
    platform: Platform, job: tuple[CollectiveType, int], d: int, more: float
) -> None:
    better = _faster(platform, d % len(platform.dimensions), more, 1)
    assume(chosen(better, *job) == chosen(platform, *job))
    assert took(better, *job) <= took(platform, *job)


@settings(deadline=None)
@given(machines(algorithms=False), jobs, st.integers(0, 2), st.sampled_from([0.99, 0.5, 0]))
def test_less_latency_is_never_slower(
    platform: Platform, job: tuple[CollectiveType, int], d: int, less: float
) -> None:
    better = _faster(platform, d % len(platform.dimensions), 1, less)
    assume(chosen(better, *job) == chosen(platform, *job))
    assert took(better, *job) <= took(platform, *job)


@settings(deadline=None)
@given(machines(algorithms=False), jobs, st.floats(0, 1))
def test_fewer_bytes_are_never_slower(
    platform: Platform, job: tuple[CollectiveType, int], part: float
) -> None:
    kind, size = job
    fewer = max(int(size * part), platform.collectives.chunks)  # not fewer chunks
    assume(fewer <= size and chosen(platform, kind, fewer) == chosen(platform, kind, size))
    assert took(platform, kind, fewer) <= took(platform, kind, size)


@settings(deadline=None)
@given(machines(latency=False, algorithms=False), jobs)
def test_twice_the_bandwidth_takes_half_the_time(platform: Platform, job: tuple[CollectiveType, int]) -> None:
    better = platform
    for d in range(len(platform.dimensions)):
        better = _faster(better, d, 2, 1)
    rounding = platform.collectives.chunks * 2 * len(platform.dimensions)
    slow, fast = took(platform, *job), took(better, *job)
    assert slow / 2 - rounding <= fast <= slow / 2 + rounding


ALPHA, BETA, SIZE = 700.0, 25.0, 48_000_000


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 12, 16])
@pytest.mark.parametrize(
    ("kind", "algorithm", "topology", "hops", "volume"),
    [
        ("ALL_REDUCE", "ring", "Switch", lambda n: 4 * (n - 1), lambda n: Fraction(2 * (n - 1), n)),
        ("ALL_REDUCE", "direct", "FullyConnected", lambda n: 2, lambda n: Fraction(2 * (n - 1), n)),
        ("ALL_REDUCE", "direct", "Switch", lambda n: 4, lambda n: Fraction(2 * (n - 1), n)),
        ("REDUCE_SCATTER", "ring", "Switch", lambda n: 2 * (n - 1), lambda n: Fraction(n - 1, n)),
        ("ALL_GATHER", "direct", "FullyConnected", lambda n: 1, lambda n: Fraction(n - 1)),
        ("ALL_TO_ALL", "direct", "Switch", lambda n: 2, lambda n: Fraction(n - 1, n)),
        ("ALL_REDUCE", "halvingDoubling", "Switch", lambda n: 4 * log2(n), lambda n: Fraction(2 * (n - 1), n)),
        ("ALL_GATHER", "halvingDoubling", "Switch", lambda n: 2 * log2(n), lambda n: Fraction(n - 1)),
        ("ALL_REDUCE", "recursiveDoubling", "Switch", lambda n: 2 * log2(n), lambda n: Fraction(int(log2(n)))),
        ("BROADCAST", "binomialTree", "Switch", lambda n: 2 * ceil(log2(n)), lambda n: Fraction(ceil(log2(n)))),
        ("REDUCE", "binomialTree", "Switch", lambda n: 2 * ceil(log2(n)), lambda n: Fraction(ceil(log2(n)))),
        ("BARRIER", "recursiveDoubling", "Switch", lambda n: 2 * ceil(log2(n)), lambda n: Fraction(0)),
    ],
)  # fmt: skip
def test_closed_forms(n: int, kind: str, algorithm: str, topology: str, hops: Any, volume: Any) -> None:
    """Alpha-beta, one chunk, idle network: links crossed times latency plus bytes over bandwidth, to 1 tick."""
    if ("alving" in algorithm or (algorithm == "recursiveDoubling" and kind != "BARRIER")) and n & (n - 1):
        n = 1 << n.bit_length()  # the closed form is for powers of two
    platform = machine((topology, n, BETA, ALPHA), algorithm=algorithm)
    expected = hops(n) * ALPHA + float(volume(n)) * SIZE / BETA
    assert abs(took(platform, CollectiveType[kind], SIZE) - expected) <= 1


@pytest.mark.parametrize("n", [2, 3, 4, 7, 16])
def test_closed_form_of_a_ring_that_uses_both_directions(n: int) -> None:
    """Half the bytes go each way round: each link has half of the port, so the bytes see all of it."""
    expected = 2 * (n - 1) * ALPHA + 2 * (n - 1) / n * SIZE / BETA
    found = took(machine(("Ring", n, BETA, ALPHA), algorithm="ring"), CollectiveType.ALL_REDUCE, SIZE)
    assert abs(found - expected) <= 1


@pytest.mark.parametrize("shape", [(4, 8), (2, 2, 4)])
def test_closed_form_of_a_hierarchy(shape: tuple[int, ...]) -> None:
    """Reduce-scatter inwards, all-reduce on the last dimension, all-gather outwards, each on a share of the bytes."""
    platform = machine(*((("Switch", n, BETA, ALPHA)) for n in shape), algorithm="halvingDoubling")
    expected, share = 0.0, float(SIZE)
    for n in shape:
        expected += 2 * (2 * log2(n) * ALPHA + (n - 1) / n * share / BETA)
        share /= n
    assert abs(took(platform, CollectiveType.ALL_REDUCE, SIZE) - expected) <= 2 * len(shape) - 1


@pytest.mark.parametrize(("rate", "ms"), [(350.0, 6.124), (500.0, 4.287), (600.0, 3.572)])
def test_a_gibibyte_over_512_npus_on_one_switch(rate: float, ms: float) -> None:
    timeline = run(machine(("Switch", 512, rate, 500.0), chunks=64), CollectiveType.ALL_REDUCE, 1 << 30)
    assert round(bound(timeline).ticks / 1e6, 3) == ms
    assert ms <= timeline.total_ticks / 1e6 <= 1.1 * ms
