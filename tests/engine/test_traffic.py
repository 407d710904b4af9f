"""What collectives moved, by plans and phase by phase."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import armillary
from armillary.platform import load_platform
from armillary.trace import CollectiveType, GraphBuilder, Trace

NETWORK = [
    {"name": "node", "topology": "Switch", "size": 4, "bandwidth": "100 GB/s", "latency": "500 ns"},
    {"name": "rack", "topology": "Ring", "size": 3, "bandwidth": "25 GB/s", "latency": "1 us"},
]
ORDERS = ("baseline", "themis", "online-greedy")


def trace() -> Trace:
    graphs = []
    for rank in range(12):
        b = GraphBuilder(rank=rank)
        b.collective("all", CollectiveType.ALL_REDUCE, 1_000_003)
        b.collective("node", CollectiveType.ALL_GATHER, 4_099 + rank // 4, group=str(rank // 4 + 1))
        b.collective("line", CollectiveType.ALL_TO_ALL, 17, group=str(rank % 4 + 4))
        graphs.append(b.graph("a rank"))
    return Trace.from_ranks(graphs)


def groups() -> dict[int, list[int]]:
    nodes = {i + 1: list(range(4 * i, 4 * i + 4)) for i in range(3)}
    return nodes | {i + 4: list(range(i, 12, 4)) for i in range(4)}


@pytest.mark.parametrize(
    ("profile", "order"), [("astra-sim", "baseline"), *(("physical", order) for order in ORDERS)]
)
def test_traffic_by_plans_is_the_sum_over_phases(order: str, profile: Any, tmp_path: Path) -> None:
    described: dict[str, Any] = {"network": NETWORK, "groups": groups(), "collectives": {"chunks": 8}}
    if order != "baseline":
        described["collectives"]["chunk_order"] = order
    (tmp_path / "machine.yaml").write_text(yaml.safe_dump({"platform": described, "profile": profile}))
    platform = load_platform(tmp_path / "machine.yaml")
    timeline = armillary.simulate(trace(), platform, profile=profile)
    by_phases = copy.copy(timeline)  # a copy has columns only
    assert timeline.traffic().sum() > 0
    assert np.array_equal(timeline.traffic(), by_phases.traffic())
