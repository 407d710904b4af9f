"""Synthesised schedules on transports: as predicted, as their traces run, and alike in both modes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import InputError
from armillary.collective.synthesis import OPERATIONS, synthesize
from armillary.collective.synthesis.traces import to_trace
from armillary.engine.messages.plan import simulate_schedule
from armillary.engine.messages.stages import network_of
from armillary.platform import load_platform
from armillary.platform.model import Platform

LINK = {"bandwidth": "100 GB/s", "latency": "500 ns"}
SLOW = {"bandwidth": "25 GB/s", "latency": "1 us"}
FASTEST = 100
"""Bytes per ns of the fastest link: those on which four NPUs meet."""
MACHINES = {
    "torus": [{"name": "x", "topology": "Torus", "shape": [4, 4], **LINK}],
    "mesh": [{"name": "x", "topology": "Mesh", "shape": [4, 3], **LINK}],
    "servers": [
        {"name": "node", "topology": "Switch", "size": 4, **LINK},
        {"name": "rack", "topology": "Switch", "size": 4, **SLOW},
    ],
    "groups": [
        {"name": "group", "topology": "FullyConnected", "size": 4, **LINK},
        {"name": "ring", "topology": "Ring", "size": 3, **SLOW},
    ],
}


def machine(name: str, memory: str | None = None) -> Platform:
    npu = {"npu": {"memory": {"bandwidth": memory}}} if memory else {}
    return load_platform({"network": MACHINES[name], **npu})


@settings(max_examples=16, deadline=None)
@given(
    st.sampled_from(sorted(MACHINES)), st.sampled_from(OPERATIONS), st.sampled_from([None, "2 TB/s"]),
    st.sampled_from([1, 2]), st.integers(1_000_000, 10_000_000),
)  # fmt: skip
def test_times_are_those_predicted_and_those_of_the_traces(
    name: str, operation: str, memory: str | None, per_npu: int, size: int
) -> None:
    platform = machine(name, memory)
    adds = platform.npu.memory.bytes_per_s
    found = synthesize(network_of(platform), operation, size, chunks_per_npu=per_npu, memory_bandwidth=adds)
    simulated = simulate_schedule(found, platform, mode="interpreted")
    if operation == "all-gather":
        assert simulated.time == pytest.approx(found.predicted, rel=1e-3)
    # The parts of an all-reduce overlap, and an NPU adds one message after the other.
    longest = max(part.end for part in found.parts) / 1000
    assert longest * (1 - 1e-3) <= simulated.time <= found.predicted * 1.02
    ran = armillary.simulate(to_trace(found, adds), platform, network_model="congestion")
    # Messages leave in the same order; which of two that arrive at a time is added first, and which of those that come
    # to a link at a time goes first, a trace does not say: the last of four then waits for three, in each part.
    ties = 3 * len(found.parts) * found.chunk / FASTEST
    assert ran.total_ticks == pytest.approx(simulated.time, rel=0.05, abs=ties)
    assert simulated.use.size.sum() == sum(
        int(part.edges.paths.hops[part.edge].sum()) * found.chunk for part in found.parts
    )


def test_no_message_of_a_trace_overtakes_one_that_waits_for_its_data() -> None:
    """It would keep the chunk flow for the time of a message: 108,334 ns instead of 96,330."""
    platform = machine("servers", "2 TB/s")
    found = synthesize(network_of(platform), "all-reduce", 4_801_393, chunks_per_npu=1, memory_bandwidth=2e12)
    ran = armillary.simulate(to_trace(found, 2e12), platform, network_model="congestion")
    assert ran.total_ticks == simulate_schedule(found, platform).time == found.predicted == 96_330


@pytest.mark.parametrize("model", ["congestion", "flow"])
@pytest.mark.parametrize("name", sorted(MACHINES))
def test_compiled_and_interpreted_kernels_agree(name: str, model: str) -> None:
    platform = machine(name, "2 TB/s")
    found = synthesize(network_of(platform), "all-reduce", 10**6, memory_bandwidth=2e12, chunks_per_npu=2)
    one, other = (simulate_schedule(found, platform, model, mode) for mode in ("compiled", "interpreted"))
    assert (one.time, one.events) == (other.time, other.events)
    assert (one.use.busy == other.use.busy).all()


def test_other_network_models_are_refused() -> None:
    platform = machine("torus")
    found = synthesize(network_of(platform), "all-gather", 100)
    with pytest.raises(InputError, match="expected congestion or flow"):
        simulate_schedule(found, platform, "packet")
