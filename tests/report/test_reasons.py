"""The reasons for the time: in order, with numbers, units and what would help."""

from __future__ import annotations

import pytest

from armillary.report import explain, flops

RATE = {"name": "chiplet", "topology": "Switch", "size": 4, "bandwidth_bytes_per_ns": 2.0, "latency_ns": 0.0}


@pytest.fixture
def step(build):
    nodes = [
        {"kind": "compute", "name": "forward", "start": 0, "end": 600, "flops": 6 * 10**7},
        {"kind": "collective", "label": "all-reduce@2", "size": 1024, "start": 600, "end": 900, "parents": [0],
         "least": 250, "call": 0},
        {"kind": "collective", "label": "all-reduce@2", "size": 1024, "start": 900, "end": 920, "parents": [1],
         "call": 1},
        {"kind": "memory", "name": "load", "size": 64, "start": 930, "end": 1000, "parents": [2]},
    ]  # fmt: skip
    phases = [(1, 0, 0, 0, "all-reduce", 600, 880, 500), (2, 0, 0, 0, "all-reduce", 900, 920, 20)]
    return build(
        [{"nodes": nodes, "phases": phases}], rank_class=[0] * 4, dimensions=[RATE], profile="physical",
        calls=[[501], [20]], peak_flops_per_ns=200_000.0,
    )  # fmt: skip


def test_each_has_numbers_and_help(step):
    found = explain(step)
    assert [(one.kind, one.ticks) for one in found] == [
        ("compute", 600), ("communication", 320), ("memory", 70), ("idle", 10)]  # fmt: skip
    assert found[0].text == (
        "Compute runs for 600 ns (60.0 %): 1 node, the longest 600 ns (forward); 100 TFLOP/s while it runs, "
        "50.0 % of the peak."
    )
    assert (
        found[0].help
        == "Faster compute would save at most 740 ns; then the port of dimension chiplet is the limit."
    )
    assert found[1].text == (
        "Communication is exposed for 320 ns (32.0 %): 2 all-reduces of 1 KiB in group 2; dimension chiplet "
        "is busy 93.8 % of that time."
    )
    assert found[1].help == (
        "More bandwidth in dimension chiplet would save at most 400 ns; then compute is the limit."
    )
    assert found[2].text == "Remote memory is exposed for 70 ns (7.0 %): 1 access of 64 B in all."
    assert found[3].saves == 10


def test_flops(step, build):
    found = flops(step)
    assert (found.total, found.busiest) == (4 * 6 * 10**7, 6 * 10**7)
    assert found.rate_per_npu == pytest.approx(6e13)
    assert found.rate == pytest.approx(2.4e14)
    assert found.peak == 2e14
    assert found.utilisation == pytest.approx(0.3)
    assert flops(build([])) is None
    assert found.by_precision == {"": 4 * 6 * 10**7}
    mixed = [{"kind": "compute", "start": 0, "end": 100, "flops": 500, "precision": p} for p in (2, 1, -1)]
    peaks = {"peak_flops_per_ns": 5.0, "peaks_flops_per_ns": {"bf16": 5.0, "fp8": 10.0}}
    found = flops(build([{"nodes": mixed, "finish": 250}], **peaks))
    assert found.by_precision == {"fp8": 500, "bf16": 500, "": 500}
    assert found.utilisation == (50 + 100 + 100) / 250
    huge = [{"kind": "compute", "start": 0, "end": 1, "flops": 2**62}] * 4
    assert flops(build([{"nodes": huge}])).total == 2**64
    assert flops(build([{"nodes": huge}])).utilisation is None


def test_waiting_names_whom(timeline, build):
    early = {"kind": "collective", "label": "all-reduce", "size": 8, "start": 0, "end": 100}
    late = [{"kind": "compute", "start": 0, "end": 80}, early | {"start": 80, "end": 90, "parents": [0]}]
    found = explain(build([{"nodes": [early]}, {"nodes": late}], profile="physical"))
    assert found[0].text == "It waits for others to begin for 80 ns (80.0 %): for rank 1 for 80 ns."
    assert found[0].help == "Work spread more evenly over the ranks would save at most 20 ns."


def test_there_are_at_most_five_and_they_add_up(timeline, step, empty):
    assert sum(one.ticks for one in explain(step)) == step.total_ticks
    assert 0 < len(explain(timeline)) <= 5
    assert explain(empty) == []
