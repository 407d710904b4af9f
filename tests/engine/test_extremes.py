"""Machines at the ends of what values may be, and beyond: an answer or one error line, never a traceback."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import ArmillaryError, InputError
from armillary.trace import CollectiveType, GraphBuilder, Trace

RATES = ["50 GB/s", "1 B/s", "4611686018 GB/s", "0.00000001 B/s", "1e30 B/s"]
TIMES = ["0 ns", "500 ns", "2501 h", "9223372036 s"]
SIZES = [1, 2**40, 2**62, 2**63 - 1]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["Ring", "Switch", "FullyConnected", "Mesh", "Torus"]), st.sampled_from(RATES),
    st.sampled_from(TIMES), st.sampled_from(SIZES), st.sampled_from(["physical", "astra-sim"]),
    st.sampled_from([None, "flow", "congestion"]), st.sampled_from(["ALL_REDUCE", "ALL_TO_ALL", "ALL_GATHER"]),
)  # fmt: skip
def test_no_machine_is_a_traceback(
    topology: str, bandwidth: str, latency: str, size: int, profile: str, network_model: str | None, kind: str
) -> None:
    b = GraphBuilder()
    b.compute("k", flops=size, bytes=size, after=[b.collective("c", CollectiveType[kind], size)])
    dimension = {"topology": topology, "size": 4, "bandwidth": bandwidth, "latency": latency}
    npu = {"peak": "1 TFLOP/s", "memory": {"bandwidth": "1 TB/s"}}
    with suppress(ArmillaryError):
        platform = armillary.load_platform({"network": [dimension], "npu": npu, "collectives": {"chunks": 2}})
        trace = Trace.replicate(b.graph(), ranks=4)
        found = armillary.simulate(trace, platform, profile=profile, network_model=network_model)
        assert found.total_ticks > 0


@pytest.mark.parametrize("value", [2**63, 2**31, 1e300, "nan", -1, 0, "x"])
def test_an_oversubscription_is_a_machine_or_refused(value: object) -> None:
    tree = {"kind": "fat-tree", "k": 4, "oversubscription": value, "bandwidth": "10 GB/s", "latency": "1 us"}
    with pytest.raises(ArmillaryError, match=r"oversubscription|links"):
        armillary.load_platform({"topology": tree})


@pytest.mark.parametrize("shape", [[2**16, 2**16], [2**31 - 1, 2**31 - 1]])
def test_a_graph_that_does_not_fit_is_refused(shape: list[int]) -> None:
    wafer = {"kind": "wafer-mesh", "shape": shape, "bandwidth": "10 GB/s", "latency": "1 us"}
    with pytest.raises(ArmillaryError, match="links, expected at most"):
        armillary.load_platform({"topology": wafer})
    torus = {**wafer, "kind": "optical-torus", "shape": [2**16] * 3}
    with pytest.raises(ArmillaryError, match="links, expected at most"):
        armillary.load_platform({"topology": torus})


@pytest.mark.parametrize("network_model", ["flow", "congestion", "packet"])
def test_what_picoseconds_cannot_count_is_refused(network_model: str) -> None:
    dimension = {"topology": "Ring", "size": 4, "bandwidth": "50 GB/s", "latency": "1 us"}
    b = GraphBuilder()
    late = b.compute("k", duration_micros=1500 * 3_600_000_000)
    b.collective("c", CollectiveType.ALL_REDUCE, 1 << 20, after=[late])
    replayed = {"network": [dimension], "compute": {"replay": True}}
    trace = Trace.replicate(b.graph(), ranks=4)
    with pytest.raises(InputError, match="simulation takes more than"):
        armillary.simulate(trace, armillary.load_platform(replayed), network_model=network_model)
    far = armillary.load_platform(
        {"network": [{**dimension, "latency": "1500 h"}], "compute": {"replay": True}}
    )
    with pytest.raises(InputError, match=r"latency of .* expected at most"):
        armillary.simulate(trace, far, network_model=network_model)


@pytest.mark.parametrize("network_model", ["flow", "congestion"])
def test_a_link_too_fast_to_be_counted_is_not_down(network_model: str) -> None:
    b = GraphBuilder()
    b.collective("c", CollectiveType.ALL_REDUCE, 1 << 20)
    trace = Trace.replicate(b.graph(), ranks=4)
    ring = {"topology": "Ring", "size": 4, "latency": "1 us"}
    platform = armillary.load_platform({"network": [{**ring, "bandwidth": "1000000000 GB/s"}]})
    assert armillary.simulate(trace, platform, network_model=network_model).total_ticks > 0
    platform = armillary.load_platform({"network": [{**ring, "bandwidth": "3000000000 GB/s"}]})
    with pytest.raises(
        InputError, match=r"bandwidth of 1.5e\+09 bytes/ns is too large; expected at most 1 EB/s"
    ):
        armillary.simulate(trace, platform, network_model=network_model)
