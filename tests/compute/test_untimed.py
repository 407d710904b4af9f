"""Compute nodes that name work and have no time are timed by the roofline, which is said, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import armillary
from armillary import report
from armillary.base.errors import InputError
from armillary.report.flop_rate import flops
from armillary.trace import GraphBuilder, Trace

NETWORK = {"network": [{"topology": "Ring", "size": 2, "bandwidth": "50 GB/s", "latency": "1 us"}]}
PEAK, MEMORY = 10**11, 10**12


def machine(*, peak: bool = True, memory: bool = True, **keys: Any) -> Any:
    npu = {"peak": "100 GFLOP/s"} if peak else {}
    npu |= {"memory": {"bandwidth": "1 TB/s"}} if memory else {}  # type: ignore[dict-item]
    return armillary.load_platform({**NETWORK, "npu": npu, **keys})


def trace(*nodes: dict[str, Any]) -> Trace:
    b = GraphBuilder()
    for at, node in enumerate(nodes):
        exact = node.pop("duration_ns", None)
        b.compute(f"k{at}", after=[at - 1] if at else (), **node)
        if exact is not None:
            b.nodes[-1].attrs.append(("duration_ns", "int64", exact))
    return Trace.replicate(b.graph(), ranks=2)


def test_they_take_the_roofline_and_the_headline_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = armillary.simulate(trace(*[{"flops": 10**9}] * 3), machine(memory=False))
    assert found.total_ticks == 3 * 10**7
    report.print_summary(found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "Assumed: the roofline times 6 nodes without a recorded time"
    assert any("100.0 % of the peak (MFU)" in line for line in lines)
    assert report.to_json(found)["assumptions"] == found.info["assumptions"] != []


def test_an_efficiency_holds_without_the_key_roofline() -> None:
    compute = {"efficiency": "50 %", "kernel_overhead": "3 ns"}
    found = armillary.simulate(trace({"flops": 10**9}, {"duration_micros": 5}), machine(compute=compute))
    assert found.total_ticks == 2 * 10**7 + 3 + 5000
    assert not any("no effect" in text for text in found.info["warnings"])
    alone = armillary.simulate(trace({"flops": 10**9, "duration_micros": 5}), machine(compute=compute))
    assert alone.total_ticks == 5000
    assert any(
        "compute.efficiency and compute.kernel_overhead have no effect" in w for w in alone.info["warnings"]
    )


@pytest.mark.parametrize(
    ("node", "platform", "expected"),
    [
        ({"flops": 5}, {"peak": False}, "num_ops, and no time; expected npu.peak"),
        ({"flops": 5, "duration_ns": 0}, {"peak": False}, "expected npu.peak"),
        ({"flops": 5}, {"compute": {"replay": True}}, "compute.replay takes recorded times only"),
    ],
)  # fmt: skip
def test_what_nothing_can_time_is_refused(
    node: dict[str, Any], platform: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError, match="k0") as error:
        armillary.simulate(trace(node), machine(**platform))
    assert expected in str(error.value)


def test_bytes_without_a_bandwidth_are_named() -> None:
    found = armillary.simulate(trace({"flops": 10**9, "bytes": 5}, {"bytes": 5}), machine(memory=False))
    assert found.total_ticks == 10**7
    assert "bytes of 4 nodes cost no time: npu.memory.bandwidth is not given" in found.info["assumptions"]


def test_what_a_cpu_does_is_named() -> None:
    found = armillary.simulate(
        trace({"flops": 5, "cpu": True}, {"flops": 5, "cpu": True, "duration_ns": 0}), machine()
    )
    assert found.info["assumptions"] == [
        "2 nodes of CPUs with operations or bytes and no recorded time take none"
    ]
    assert flops(found) is None


def test_zeros_take_their_recorded_time() -> None:
    both = trace({"flops": 0, "bytes": 0, "duration_micros": 7})
    assert armillary.simulate(both, machine(compute={"roofline": True})).total_ticks == 7000
    assert (
        armillary.simulate(both, machine(compute={"overrides": [{"name": "x", "factor": 2}]})).total_ticks
        == 7000
    )


def test_astra_sim_keeps_its_conventions_and_says_so() -> None:
    found = armillary.simulate(trace(*[{"flops": 10**9}] * 3), machine(), profile="astra-sim")
    assert found.total_ticks == 3
    assert "take no time, as in ASTRA-sim" in found.info["assumptions"][0]
    assert flops(found) is None
    skipped = armillary.simulate(
        trace({"flops": 10**9, "bytes": 0}), machine(compute={"roofline": True}), profile="astra-sim"
    )
    assert "1e9" not in skipped.info["assumptions"][0] and "2 nodes" in skipped.info["assumptions"][0]


@given(
    st.lists(
        st.fixed_dictionaries(
            {"flops": st.sampled_from([0, 1, 10**6, 10**9])},
            optional={"bytes": st.sampled_from([0, 1, 10**7]), "duration_micros": st.sampled_from([0, 1, 10**4])},
        ),
        min_size=1, max_size=4,
    ),
    st.booleans(), st.sampled_from(["", "gemm", "flops"]),
)  # fmt: skip
def test_no_work_is_free(nodes: list[dict[str, Any]], roofline: bool, kind: str) -> None:
    compute: dict[str, Any] = {"roofline": roofline}
    if kind:
        compute["overrides"] = [{"kind": kind, "factor": 1}]
    found = armillary.simulate(trace(*map(dict, nodes)), machine(compute=compute))
    for at, node in enumerate(nodes):
        took = int(found.node_end[at] - found.node_start[at])
        least = max(node["flops"] / PEAK, node.get("bytes", 0) / MEMORY) * 1e9
        own = node.get("duration_micros", 0) * 1000
        assert took >= (own if own and not roofline else least)
    rate = flops(found)
    assert rate is None or rate.utilisation is None or rate.utilisation <= 1
